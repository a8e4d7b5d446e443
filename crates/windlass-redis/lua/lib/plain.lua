-- Claims and reports as texts: most jobs are plain ones, and need no object.
--
-- CLAIMS  c<worker>  request id, fingerprint, token, time, ids of the last claim that got something
--         r<worker>  time; then lines of token, state and ids: the outcomes of the last report

-- Reads a claim from the arguments.
function E.read_claim()
  local claim = { worker = E.arg(), request = E.arg(), fingerprint = E.arg(), token = E.arg(), lease_ms = E.num(), max = E.num(), who = E.arg(),
    queues = {}, texts = {}, ids = {}, count = 0 }
  for i = 1, E.num() do
    local plan = { name = E.arg(), version = E.arg(), lanes = {} }
    for k = 1, E.num() do plan.lanes[k] = E.num() end
    claim.queues[i] = plan
  end
  return claim
end

-- Reads the outcomes of a report: ids, tokens, and what else those say that are no mere successes.
function E.read_outcomes()
  local ids, tokens, kinds, arguments, extras = {}, {}, {}, {}, {}
  local worker, n = E.arg(), E.num()
  local i, at = 0, E.at
  -- ends because: every round reads an outcome
  while i < n do
    local kind, token = ARGV[at + 1], ARGV[at + 2]
    if kind == 'S' then
      local count = tonumber(ARGV[at + 3])
      at = at + 3
      for k = 1, count do ids[i + k], tokens[i + k] = ARGV[at + k], token end
      i, at = i + count, at + count
    else
      i = i + 1
      ids[i], tokens[i], kinds[i], arguments[i], extras[i] = ARGV[at + 3], token, kind, ARGV[at + 4], ARGV[at + 5]
      at = at + 5
    end
  end
  E.at = at
  return { worker = worker, n = n, ids = ids, tokens = tokens, kinds = kinds, arguments = arguments, extras = extras }
end
-- What is kept of a claim, in case that its answer is lost.
function E.claim_memo(claim, ids)
  return claim.request .. ' ' .. claim.fingerprint .. ' ' .. claim.token .. ' ' .. E.int(now) .. ' ' .. ids
end
-- What a claim is answered: next time, token, then three texts per job: its id, its lease, its record.
function E.claimed(claim, answer)
  local n = #answer
  answer[n + 1], answer[n + 2] = claim.next_at, claim.again and claim.again.token or claim.token
  n = n + 2
  local texts = claim.texts
  for i = 1, #texts do answer[n + i] = texts[i] end
  return answer
end

-- What a claim makes of jobs that nobody has touched: index entries to take out and to put in, lives, ids.
function E.new_leases(claim, queue_id)
  local expires = now + claim.lease_ms
  local queue_hex = fmt('%x', queue_id)
  return {
    claim = claim, queue = queue_id, n = 0, waited = 0, gone = {}, leases = {}, sets = {}, ids = {}, expires = E.int(expires), queue_hex = queue_hex,
    times = ' ' .. E.time15(now) .. ' ' .. E.time15(expires) .. ' ' .. queue_hex .. ' ',
  }
end
-- The next ones are of this lane and this group.
function E.lease_from(out, lane_id, group_id, plain_id)
  if out.lane ~= lane_id then
    local lane_hex, token = fmt('%x', lane_id), out.claim.token
    out.lane = lane_id
    out.head = '1 ' .. out.queue_hex .. ' ' .. lane_hex .. ' '
    out.plain, out.named, out.node, out.other =
      'a p ' .. token .. ' - ', 'a g ' .. token .. ' - ', 'a n ' .. token .. ' - ', 'a x ' .. token .. ' - '
    out.middle = out.times .. lane_hex .. ' 1 '
  end
  local plain = group_id == plain_id
  out.flags, out.usual = plain and '-' or 'g', plain and out.plain or out.named
  out.group = ' ' .. group_id .. ' '
  -- Where in an index entry of theirs the place begins.
  out.at = #E.enc(lane_id) + #E.enc(group_id) + 1
end
-- Leases jobs, from the `i`-th up to the one at `to`; answers where it has stopped: behind the last one, or at one to which
-- there is more than its record says.
function E.lease_some(out, i, to, ids, members, lives, records)
  local claim, lane_head, at = out.claim, out.head, out.at
  local gone, leases, sets, mine, texts, claimed = out.gone, out.leases, out.sets, out.ids, claim.texts, claim.ids
  local middle, group, expires, last = out.middle, out.group, out.expires, ' - - - ' .. claim.worker
  local k, count, waited, head_to = out.n, claim.count, out.waited, #lane_head
  -- Many were created in the same moment.
  local moment, text, wait, short, whole
  -- ends because: `i` grows up to `to`
  while i <= to and records[i] and not lives[i] do
    local id, record, member = ids[i], records[i], members[i]
    -- A record of another lane, or with numbers that are too long, is damaged.
    if sub(record, 1, head_to) ~= lane_head then break end
    local row, created, rest = match(record, '^(%x+) (%x+) %x+(.-)\n', head_to + 1)
    if not row or #row > 12 or #created > 13 then break end
    local flags, attempts, stalls = '-', '3', '1'
    if rest ~= '' then
      flags, attempts, stalls = match(rest, '^ %- %-?%d+ (%S+) (%d+) (%d+) ')
      if not flags then break end
    end
    if created ~= moment then
      moment, text, wait = created, '1 0 0 ' .. created .. ' ' .. expires, max(now - tonumber(created, 16), 0)
      short, whole = '* ' .. created .. ' ' .. claim.worker, ' ' .. created .. group .. created .. ' '
    end
    if #row < 12 then row = sub('000000000000', #row + 1) .. row end
    i, k, count = i + 1, k + 1, count + 1
    gone[k], mine[k], claimed[count] = member, id, id
    leases[2 * k - 1], leases[2 * k] = expires, row .. id
    if rest == '' and out.flags == '-' then
      sets[2 * k] = out.usual .. row .. middle .. short
    else
      local head = out.other
      if flags == out.flags then head = out.usual elseif sub(flags, 1, 2) == '-@' then head = out.node end
      sets[2 * k] = head .. row .. middle .. attempts .. ' 0 ' .. stalls .. ' 0 0 '
        .. sub(member, at, at + 15) .. whole .. flags .. last
    end
    sets[2 * k - 1] = id
    waited = waited + wait
    texts[3 * count - 2], texts[3 * count - 1], texts[3 * count] = id, text, record
  end
  out.n, claim.count, out.waited = k, count, waited
  return i
end
local NOW15 = E.time15(now)
-- What a report makes of active jobs of a queue that have succeeded: the same, and the runs in which they came.
function E.new_ended(queue_id)
  return { queue = queue_id, n = 0, ran = 0, leases = {}, ended = {}, sets = {}, ids = {}, runs = {}, seen = {}, told = {}, words = {} }
end
-- A run: jobs of one lane, in one attempt, under one token. Nil when a life cannot be read that far.
function E.run_of(token, life)
  local where, queue_hex, lane_hex, attempt = match(life, '^((%x+) (%x+) (%d+) )', 69)
  if not where or #queue_hex > 13 or #lane_hex > 13 then return nil end
  local queue_id = tonumber(queue_hex, 16)
  return {
    queue = queue_id, where = where, where_to = 68 + #where, token = token, attempt = attempt, p = 'a p ' .. token .. ' -',
    g = 'a g ' .. token .. ' -', n = 'a n ' .. token .. ' -', entry = E.enc(queue_id) .. 'S0' .. E.hex12(max(now, 0)), lane = E.enc(tonumber(lane_hex, 16)),
    first = 'S x ' .. token .. ' S ',
  }
end
-- Adds a run to what a report has come to.
function E.add_run(out, run)
  run.from = out.n + 1
  out.runs[#out.runs + 1] = run
end
-- Ends jobs of the last run, beginning with the `i`-th outcome; answers where it has stopped: at the first that is not of this
-- run, or not a mere success. `mark` is `p` for jobs without anything special, `g` for those of named groups, `n` for those of graphs.
function E.end_some(out, run, mark, i, outcomes, lives)
  local head, token, where, where_to, first, entry, lane = run[mark], run.token, run.where, run.where_to, run.first, run.entry, run.lane
  local ids, tokens, kinds = outcomes.ids, outcomes.tokens, outcomes.kinds
  local mine, leases, index, sets, seen = out.ids, out.leases, out.ended, out.sets, out.seen
  -- Many were claimed in the same moment.
  local n, ran, moment, took = out.n, out.ran, nil, 0
  -- ends because: `i` grows up to the count of outcomes
  while lives[i] do
    local id, life = ids[i], lives[i]
    if kinds[i] or tokens[i] ~= token or seen[id] or sub(life, 1, 22) ~= head or sub(life, 69, where_to) ~= where then break end
    local row, claimed_at = sub(life, 24, 35), sub(life, 36, 52)
    if claimed_at ~= moment then
      moment, took = claimed_at, max(now - (tonumber(claimed_at) or now), 0)
    end
    if mark == 'n' then
      local told = match(life, ' %-@(%S+) ', where_to)
      if not told then break end
      local k = #out.told + 1
      out.told[k], out.words[k] = told, 'j ' .. id .. ' S ' .. run.attempt .. ' ' .. E.int(tonumber(claimed_at) or 0) .. ' ' .. E.int(now) .. '\n-\n'
    end
    local ended = first .. row .. claimed_at .. NOW15 .. sub(life, 68)
    i, n, seen[id] = i + 1, n + 1, ended
    mine[n], leases[n] = id, row .. id
    index[2 * n - 1], index[2 * n] = 0, entry .. row .. lane .. id
    sets[2 * n - 1], sets[2 * n] = id, ended
    ran = ran + took
  end
  out.n, out.ran = n, ran
  return i
end
-- What the feed and the memo of the worker say of it, in pieces that are put together once.
function E.told_of(out)
  local lines, told = {}, {}
  for i, run in ipairs(out.runs) do
    local following = out.runs[i + 1]
    local ids = concat(out.ids, ',', run.from, following and following.from - 1 or out.n)
    local n = #lines
    lines[n + 1], lines[n + 2] = (i > 1 and '\n' or '') .. 'complete a S ' .. run.attempt .. ' ' .. out.queue .. ':', ids
    n = #told
    told[n + 1], told[n + 2] = '\n' .. run.token .. ' S ', ids
  end
  return lines, told
end
