-- Claims: plan, memo, lease.
--
-- CLAIMS  c<worker>  request id, fingerprint, token, time, ids of the last claim that got something
--         r<worker>  time; then lines of token, state and ids: the outcomes of the last report

-- Due jobs that a claim promotes at least, so that small claims keep up with large schedules.
local PROMOTE_MIN = 64
local LANES_REGISTERED = 64
-- How often a claim looks again after it has met entries that belong to no job; the next claim goes on.
local SPOILT_MAX = 64

-- Reads a claim from the arguments.
function E.read_claim()
  local claim = { worker = E.arg(), request = E.arg(), fingerprint = E.arg(), token = E.arg(), lease_ms = E.num(), max = E.num(), who = E.arg(),
    queues = {} }
  for i = 1, E.num() do
    local plan = { name = E.arg(), version = E.arg(), lanes = {} }
    for k = 1, E.num() do plan.lanes[k] = E.num() end
    claim.queues[i] = plan
  end
  return claim
end

-- Why a claim cannot be done as it was planned: `stale` (plan again), `reused`, `old`; nil when it can. A repeated one
-- has its memo in `again`.
function E.check_claim(claim)
  local memo = call('HGET', E.CLAIMS, 'c' .. claim.worker)
  if memo then
    local request, fingerprint, token, ids = match(memo, '^(%d+) (%x+) (%x+) %S+ (.*)$')
    if request == claim.request then
      if fingerprint ~= claim.fingerprint then return 'reused' end
      claim.again = { token = token, ids = ids }
    elseif request and request > claim.request then
      return 'old ' .. request
    end
  end
  local names, fields = {}, {}
  for i, plan in ipairs(claim.queues) do names[i] = plan.name end
  E.know_queues(names)
  for _, plan in ipairs(claim.queues) do
    local id = E.queue_ids[plan.name]
    if id then
      fields[#fields + 1], fields[#fields + 2], fields[#fields + 3] = 'v' .. id, 'q' .. id, 's' .. id
    elseif plan.version ~= '-' then
      return 'stale'
    end
  end
  local found, k = E.hmget(META, fields), 0
  for _, plan in ipairs(claim.queues) do
    local id = E.queue_ids[plan.name]
    if id then
      if E.queue_cache[id] == nil then E.queue_cache[id] = E.read_queue(id, found[k + 2], found[k + 3]) or false end
      -- One that cannot be read is as good as none, and the worker's other queues go on.
      local q = E.queue_cache[id]
      local version = q and q.name == plan.name and (found[k + 1] or '0') or '-'
      if plan.version ~= version then return 'stale' end
      k = k + 3
    end
  end
  return nil
end

-- How many jobs may start on a queue now.
local function room_on(q, most)
  local s = q.settings
  if s.paused then return 0 end
  if s.cap then most = min(most, max(s.cap - q.a, 0)) end
  if s.rate then most = min(most, E.meter_room(q.meter, s.rate, s.per)) end
  return most
end

-- Puts a leased job into the answer.
function E.hand_out(claim, j)
  local texts = claim.texts
  local n = #texts
  claim.count = claim.count + 1
  claim.ids[claim.count] = j.id
  texts[n + 1] = j.id
  texts[n + 2] = j.attempt .. ' ' .. j.stalls .. ' ' .. fmt('%x', j.ready_at) .. ' ' .. E.int(j.expires)
  texts[n + 3] = j.record
end

-- Leases a job that was picked; false when it turned out to be unreadable or no entry of its own.
local function lease(claim, picked)
  local id, member, lane_id, group_id = picked[1], picked[2], picked[3], picked[4]
  local l = E.lane(lane_id)
  local j = E.readable(id, l and l.queue, lane_id)
  if not j or j.state ~= 'r' or E.has_flag(j, 'q') then
    E.stray_ready(member, lane_id, group_id)
    return false
  end
  -- One that was never touched has its group from where it stands.
  j.group = group_id
  if E.ready_member(j) ~= member then
    E.stray_ready(member, lane_id, group_id)
    return false
  end
  E.apply(j, 'claim', function(k)
    k.state, k.attempt, k.claimed = 'a', k.attempt + 1, now
    k.token, k.worker, k.expires = claim.token, claim.worker, now + claim.lease_ms
  end)
  E.hand_out(claim, j)
  return true
end

-- So many ready jobs of a lane and a group became active: what `E.apply` counts for each.
local function count_leases(q, g, lane_id, n)
  local l = E.lane(lane_id)
  q.r, q.a = max(q.r - n, 0), q.a + n
  if g.name and g.ready == n then q.named = max(q.named - 1, 0) end
  E.touch_queue(q)
  g.ready, g.active = max(g.ready - n, 0), g.active + n
  E.touch_group(g)
  local s = E.sub_of(lane_id, g.id)
  E.put_sub(lane_id, g, max(s.ready - n, 0), s.vtime)
  l.ready = max(l.ready - n, 0)
  E.touch_lane(l)
  E.review(g)
end

-- Leases what was picked: ids, index entries, places, lanes and groups. Jobs that were never touched go the short way,
-- without an object each; it does what `E.apply` would do. Answers whether an entry could not be leased.
local function lease_all(claim, q, ids, members, orders, lanes, groups)
  local lives, records = E.hmget(LIFE, ids), E.hmget(JOBS, ids)
  local fields = {}
  for i = 1, #ids do
    if i == 1 or groups[i] ~= groups[i - 1] or lanes[i] ~= lanes[i - 1] then fields[#fields + 1] = E.sub_field(lanes[i], groups[i]) end
  end
  E.know_subs(fields)
  local expires, m = E.int(now + claim.lease_ms), nil
  local first, queue_hex = claim.token .. ' - ', fmt('%x', q.id)
  local second = ' ' .. E.time15(now) .. ' ' .. E.time15(now + claim.lease_ms) .. ' ' .. queue_hex .. ' '
  local gone, leases, sets, texts, k, t = {}, {}, {}, claim.texts, 0, #claim.texts
  local waited, run, run_lane, run_group, counted, spoilt = 0, {}, nil, nil, 0, false
  local lane_hex, third, mark
  -- Counts the last jobs of one lane and group.
  local function count()
    if k == counted then return end
    count_leases(q, E.group(run_group), run_lane, k - counted)
    counted = k
  end
  local function write()
    count()
    if k == 0 then return end
    m = E.minute_of(q)
    m[2], m[8] = m[2] + k, m[8] + waited
    E.note_run('claim r a 1 ' .. q.id, q.id, run)
    E.later('ZREM', READY, gone)
    E.later('ZADD', E.LEASES, leases)
    E.later('HSET', LIFE, sets)
    gone, leases, sets, run, k, counted, waited = {}, {}, {}, {}, 0, 0, 0
  end
  for i = 1, #ids do
    local id, record = ids[i], records[i]
    if run_lane ~= lanes[i] or run_group ~= groups[i] then
      count()
      run_lane, run_group = lanes[i], groups[i]
      lane_hex, third, mark = fmt('%x', run_lane), ' ' .. run_group .. ' ', run_group == q.plain and '-' or 'g'
    end
    local its_queue, its_lane, row, created, rest, flags, attempts, stalls
    if record and not lives[i] and E.job_cache[id] == nil and not E.fresh_lives[id] then
      its_queue, its_lane, row, created, rest = match(record, '^1 (%x+) (%x+) (%x+) (%x+) %x+(.-)\n')
      if rest == '' then
        flags, attempts, stalls = '-', '3', '1'
      elseif rest then
        flags, attempts, stalls = match(rest, '^ %- %-?%d+ (%S+) (%d+) (%d+) ')
      end
    end
    if its_queue == queue_hex and its_lane == lane_hex and flags and #row <= 12 and #created <= 13 then
      local padded = E.ZEROS[12 - #row] .. row
      local life = (flags ~= mark and 'a x ' or mark == '-' and 'a p ' or 'a g ') .. first .. padded .. second .. lane_hex .. ' 1 '
        .. attempts .. ' 0 ' .. stalls .. ' 0 0 ' .. orders[i] .. ' ' .. created .. third .. created .. ' ' .. flags .. ' - - - '
        .. claim.worker
      E.fresh_lives[id] = life
      k = k + 1
      gone[k], run[k] = members[i], id
      leases[2 * k - 1], leases[2 * k] = expires, padded .. id
      sets[2 * k - 1], sets[2 * k] = id, life
      texts[t + 1], texts[t + 2], texts[t + 3] = id, '1 0 ' .. created .. ' ' .. expires, record
      t = t + 3
      claim.count = claim.count + 1
      claim.ids[claim.count] = id
      waited = waited + max(now - tonumber(created, 16), 0)
    else
      write()
      if E.known_lives[id] == nil then E.known_lives[id] = lives[i] end
      E.know({ id }, true)
      if not lease(claim, { id, members[i], lanes[i], groups[i] }) then spoilt = true end
      t = #texts
    end
  end
  write()
  return spoilt
end

local function claim_on(claim, plan, q)
  local promote = max(claim.max - claim.count, PROMOTE_MIN)
  E.wake_groups(q, promote)
  E.promote_due(q, promote)
  for _ = 1, SPOILT_MAX do
    -- Entries that cannot be leased are picked in vain, and taken out.
    local spoilt = false
    local room = room_on(q, claim.max - claim.count)
    local lanes = {}
    E.know_lanes(plan.lanes)
    for _, id in ipairs(plan.lanes) do
      local l = E.lane(id)
      if l and l.ready > 0 then lanes[#lanes + 1] = id end
    end
    if q.named == 0 and #lanes == 1 then
      spoilt = lease_all(claim, q, E.select_plain(q, lanes[1], room))
    else
      spoilt = lease_all(claim, q, E.select(q, lanes, room))
    end
    if not spoilt then return end
  end
end

-- When time alone may bring work on the queues of a claim.
local function next_at(claim)
  local soonest
  for _, plan in ipairs(claim.queues) do
    local q = E.find_queue(plan.name)
    if q then
      local s = q.settings
      for _, t in ipairs({ E.next_due(q) or math.huge, E.next_wake(q) or math.huge,
        s.rate and E.meter_next(q.meter, s.rate, s.per) or math.huge }) do
        if t < (soonest or math.huge) then soonest = t end
      end
    end
  end
  return soonest and E.int(soonest) or '-'
end

-- Notes that a worker waits, or that it does not any more.
local function note_idle(claim)
  if claim.who == '' then return end
  local stored = call('HGET', E.IDLE, claim.who)
  if claim.count >= claim.max then
    if stored then E.forget_idle(claim.who) end
    return
  end
  local lines = {}
  for _, plan in ipairs(claim.queues) do
    lines[#lines + 1] = plan.name .. '\n-\n' .. claim.who
    if #plan.lanes > LANES_REGISTERED then
      lines[#lines + 1] = plan.name .. '\n*\n' .. claim.who
    else
      for _, id in ipairs(plan.lanes) do lines[#lines + 1] = plan.name .. '\n' .. id .. '\n' .. claim.who end
    end
  end
  local text = concat(lines, '\r')
  if text == stored then return end
  if stored then E.forget_idle(claim.who) end
  call('HSET', E.IDLE, claim.who, text)
  local members = {}
  for i, line in ipairs(lines) do members[2 * i - 1], members[2 * i] = 0, line end
  E.many('ZADD', E.BELLS, members)
end

-- The answer to a claim whose first answer was lost: what of it is still leased.
local function claim_again(claim)
  local ids = {}
  for id in gmatch(claim.again.ids, '[^,]+') do ids[#ids + 1] = id end
  E.know(ids, true)
  for _, id in ipairs(ids) do
    local j = E.readable(id)
    if j and j.token == claim.again.token then E.hand_out(claim, j) end
  end
end

-- Leases jobs; the answer is built after the step has ended.
function E.claim(claim)
  claim.texts, claim.ids, claim.count = {}, {}, 0
  if claim.again then
    claim_again(claim)
  else
    for _, plan in ipairs(claim.queues) do
      local q = E.find_queue(plan.name)
      if q and claim.count < claim.max then claim_on(claim, plan, q) end
    end
    if claim.count > 0 then
      E.hput(E.CLAIMS, 'c' .. claim.worker,
        claim.request .. ' ' .. claim.fingerprint .. ' ' .. claim.token .. ' ' .. E.int(now) .. ' ' .. concat(claim.ids, ','))
    end
    if claim.count >= claim.max then
      -- There may be more than this one could take: the next who waits has a look.
      for _, plan in ipairs(claim.queues) do
        for _, id in ipairs(plan.lanes) do
          local l = E.lane_cache[id]
          if l and l.ready > 0 then E.ring_lane(id) end
        end
      end
    end
  end
  claim.next_at = next_at(claim)
  note_idle(claim)
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
