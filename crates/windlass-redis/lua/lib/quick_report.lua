-- The quick way of a report and a claim: plain jobs that have succeeded, and jobs that nobody has touched, of one lane of
-- one queue without limits, groups or anything due. Does what the long way would do, with one read and one write per key.

-- A bound on what is read, nothing more: with more lanes, two of them have work most of the time.
local LANES_MAX = 64

-- What outcomes come to: false when there are none, nil when one of them needs a closer look.
local function end_all(outcomes)
  local n, out = outcomes.n, nil
  local lives, i = E.hmget(LIFE, outcomes.ids), 1
  -- ends because: every round ends an outcome, or all of it
  while i <= n do
    local run = lives[i] and E.run_of(outcomes.tokens[i], lives[i])
    if not run or out and out.queue ~= run.queue then return nil end
    out = out or E.new_ended(run.queue)
    E.add_run(out, run)
    local reached = E.end_some(out, run, sub(lives[i], 3, 3) == 'n' and 'n' or 'p', i, outcomes, lives)
    if reached == i then return nil end
    i = reached
  end
  return out or false
end

-- The first entry of an index of a queue's times; its time.
local function first_time(key, prefix, upto)
  local first = call('ZRANGEBYLEX', key, '[' .. prefix, upto, 'LIMIT', 0, 1)[1]
  if not first then return math.huge end
  return tonumber(sub(first, #prefix + 1, #prefix + 12), 16) or 0
end

-- The queue of the step with the lane that has work; nil when the long way must be gone.
local function read_queue(claim, out, meta)
  local id = claim and meta[4] or out and out.queue
  if not id or claim and out and out.queue ~= tonumber(id) then return nil end
  local plan = claim and claim.queues[1] or { lanes = {} }
  local ask = { 'q' .. id, 's' .. id, 'v' .. id }
  for i, lane_id in ipairs(plan.lanes) do ask[3 + i] = 'l' .. lane_id end
  local found = E.hmget(META, ask)
  if not found[1] or found[2] and not match(found[2], '^0 %- %- %- ') then return nil end
  if claim and (found[3] or '0') ~= plan.version then return nil end
  local q = { id = id }
  q.s, q.r, q.a, q.S, q.others, q.vtime, q.plain, q.named, q.minute, q.meter, q.name =
    match(found[1], '^(%d+) (%d+) (%d+) (%d+) (%d+ %d+) (%d+) (%d+) (%d+) (%-?%d+) (%S+) (.+)$')
  -- Another name than the one it was found by is damage, as is another queue of a lane; the long way looks after both.
  if not q.s or claim and (q.name ~= plan.name or q.named ~= '0') then return nil end
  for i, lane_id in ipairs(plan.lanes) do
    local queue_id, ready, jobs, head = match(found[3 + i] or '', '^(%d+) (%d+) (%d+) (%x+)$')
    if queue_id ~= id then return nil end
    if ready ~= '0' then
      if q.lane then return nil end
      q.lane = { id = lane_id, ready = tonumber(ready), jobs = jobs, head = head }
    end
  end
  local minute = E.int(floor(now / 60000))
  if q.minute == '0' or tonumber(q.minute) > tonumber(minute) then q.minute = minute end
  q.minute_field = id .. ':' .. minute
  if claim then
    local prefix = E.enc(tonumber(id))
    q.next_at = min(first_time(E.SCHED, prefix, '(' .. prefix .. 'z'), first_time(E.WAKE, prefix, E.after_all(prefix)))
    if q.next_at <= now then return nil end
  end
  return q
end

-- The plain group and its place in the lane; false when they cannot be read.
local function read_group(q)
  local found = call('HMGET', E.GROUPS, q.plain, 's' .. (q.lane and q.lane.id or '') .. ':' .. q.plain)
  q.g_first, q.g_ready, q.g_active, q.g_vtime, q.g_rest = match(found[1] or '', '^(%d+ )(%d+) (%d+) (%d+)( N .+)$')
  if not q.g_first then return false end
  q.g_vtime = tonumber(q.g_vtime)
  if q.lane then
    local ready, vtime = match(found[2] or '', '^(%d+) (%d+)$')
    if not ready then return false end
    q.s_ready, q.s_vtime = tonumber(ready), vtime
  end
  return true
end

-- Picks jobs of the lane and leases them; nil when one of them was touched before.
local function lease(claim, q)
  local prefix, l = E.enc(q.lane.id) .. E.enc(tonumber(q.plain)), q.lane
  local members = call('ZRANGEBYLEX', READY, '[' .. prefix, E.after_all(prefix), 'LIMIT', 0, claim.max + 1)
  local at = #prefix + 1
  local n, ids = min(#members, claim.max), {}
  for i = 1, n do ids[i] = sub(members[i], at + 16) end
  -- A count that is wrong, which takes damage, is put right on the long way.
  if n == 0 or n > q.s_ready or n > l.ready then return nil end
  local lives, records = E.hmget(LIFE, ids), E.hmget(JOBS, ids)
  local out = E.new_leases(claim, q.id)
  E.lease_from(out, l.id, q.plain, q.plain)
  if E.lease_some(out, 1, n, ids, members, lives, records) <= n then return nil end
  local bound = members[n + 1] and sub(members[n + 1], at, at + 15)
  -- No named group has anything ready, so the counts differ only when one of them is damaged.
  if bound and q.s_ready == l.ready and E.is_before(l.head, bound) then l.head = bound end
  l.ready, q.s_ready = l.ready - n, q.s_ready - n
  local began = q.g_vtime
  q.g_vtime = began + n * E.TURN
  q.vtime = E.int(max(tonumber(q.vtime), began, q.g_vtime - E.TURN))
  return out
end

-- Writes everything: first what is added, for a key that a script has emptied while its slot moves is one that it may not
-- touch again.
local function write(q, ended, leased, meta, worker, claim)
  local done, got = ended and ended.n or 0, leased and leased.n or 0
  local lines, memos = {}, {}
  if ended then
    local told
    lines, told = E.told_of(ended)
    memos[1], memos[2] = 'r' .. worker, E.int(now) .. concat(told)
    E.many('HSET', LIFE, ended.sets)
    E.zadd(E.ENDED, ended.ended)
    if #ended.told > 0 then
      with_runs()
      E.tell_runs(ended.told, ended.words)
      E.flush_runs()
    end
  end
  if leased then
    local ids = concat(leased.ids, ',')
    lines[#lines + 1] = (ended and '\n' or '') .. 'claim r a 1 ' .. q.id .. ':'
    lines[#lines + 1] = ids
    memos[#memos + 1] = 'c' .. claim.worker
    memos[#memos + 1] = E.claim_memo(claim, ids)
    E.many('HSET', LIFE, leased.sets)
    E.zadd(E.LEASES, leased.leases)
  end
  local cursor, total = (meta[2] or 0) + 1, (meta[3] or 0) + done + got
  local counts = { 'feed', E.int(cursor), 'events', E.int(total), 'q' .. q.id, q.s .. ' ' .. max(q.r - got, 0) .. ' '
    .. max(q.a - done, 0) + got .. ' ' .. q.S + done .. ' ' .. q.others .. ' ' .. q.vtime .. ' ' .. q.plain .. ' ' .. q.named .. ' '
    .. q.minute .. ' ' .. q.meter .. ' ' .. q.name }
  local groups = { q.plain, q.g_first .. max(q.g_ready - got, 0) .. ' ' .. max(q.g_active - done, 0) + got .. ' ' .. E.int(q.g_vtime)
    .. q.g_rest }
  if leased then
    local l = q.lane
    counts[7], counts[8] = 'l' .. l.id, q.id .. ' ' .. l.ready .. ' ' .. l.jobs .. ' ' .. l.head
    if q.s_ready > 0 then groups[3], groups[4] = 's' .. l.id .. ':' .. q.plain, q.s_ready .. ' ' .. q.s_vtime end
  end
  if E.counters_dirty then counts[#counts + 1], counts[#counts + 2] = 'seq', E.int(E.counters[E.SEQ]) end
  call('HSET', META, unpack(counts))
  call('HSET', E.GROUPS, unpack(groups))
  call('HSET', E.CLAIMS, unpack(memos))
  local m = { match(call('HGET', E.MINUTES, q.minute_field) or '0 0 0 0 0 0 0 0 0',
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$') }
  m[2], m[3] = (m[2] or 0) + got, (m[3] or 0) + done
  m[8], m[9] = E.int((m[8] or 0) + (leased and leased.waited or 0)), E.int((m[9] or 0) + (ended and ended.ran or 0))
  for i = 1, 9 do m[i] = m[i] or 0 end
  call('HSET', E.MINUTES, q.minute_field, concat(m, ' '))
  E.add_feed(cursor, total, done + got, q.id .. ' ' .. q.name, concat(lines))
  if ended then E.many('ZREM', E.LEASES, ended.leases) end
  if ended and #ended.told > 0 then E.settle_all() end
  if leased then
    call('ZREMRANGEBYLEX', READY, '[' .. leased.gone[1], '[' .. leased.gone[got])
    if q.s_ready == 0 then
      call('HDEL', E.GROUPS, 's' .. q.lane.id .. ':' .. q.plain)
      call('ZREM', E.RING, E.enc(q.lane.id) .. fmt('%016x', q.s_vtime) .. E.enc(tonumber(q.plain)))
    end
  end
end

-- Whether a claim is a new one of one queue.
local function is_new(claim)
  if #claim.queues ~= 1 or claim.max == 0 or #claim.queues[1].lanes > LANES_MAX then return false end
  local memo = call('HGET', E.CLAIMS, 'c' .. claim.worker)
  return not memo or E.is_before(match(memo, '^(%d+) ') or claim.request, claim.request)
end

-- Ends attempts and leases jobs, as report.lua and claim.lua say; nil, and nothing has changed, when it is not that case.
function E.report_quick(claim, outcomes)
  if claim and not is_new(claim) then return nil end
  local ended = false
  if outcomes then ended = end_all(outcomes) end
  if ended == nil then return nil end
  local meta = call('HMGET', META, 'layout', 'feed', 'events', claim and 'Q' .. claim.queues[1].name or 'layout')
  if tonumber(meta[1] or nil) ~= E.LAYOUT then return nil end
  local q = read_queue(claim, ended, meta)
  if not q or not read_group(q) then return nil end
  local leased = q.lane and lease(claim, q)
  if q.lane and not leased then
    claim.texts, claim.ids, claim.count = {}, {}, 0
    return nil
  end
  if ended or leased then write(q, ended, leased, meta, outcomes and outcomes.worker, claim) end
  local answer = { 'ok' }
  if outcomes then answer[2] = ('S,'):rep(outcomes.n) end
  if claim then
    E.note_idle(claim)
    -- There may be more than this one could take: the next who waits has a look.
    if claim.count >= claim.max and q.lane.ready > 0 and call('ZCARD', E.BELLS) > 0 then E.wake_lane(q.name, q.lane.id, 1) end
    claim.next_at = q.next_at < math.huge and E.int(q.next_at) or '-'
  end
  if ended then E.tell_watchers(ended.ids) end
  if ended and #ended.told > 0 then E.ring_for_runs() end
  return claim and E.claimed(claim, answer) or answer
end
