-- Claims: plan and lease.

-- Due jobs that a claim promotes at least, so that small claims keep up with large schedules.
local PROMOTE_MIN = 64
-- How often a claim looks again after it has met entries that belong to no job; the next claim goes on.
local SPOILT_MAX = 64

-- Why a claim cannot be done as it was planned: `stale` (plan again), `reused`, `old`; nil when it can. A repeated one
-- has its memo in `again`.
function E.check_claim(claim)
  local memo = call('HGET', E.CLAIMS, 'c' .. claim.worker)
  if memo then
    local request, fingerprint, token, ids = match(memo, '^(%d+) (%x+) (%x+) %S+ (.*)$')
    if request == claim.request then
      if fingerprint ~= claim.fingerprint then return 'reused' end
      claim.again = { token = token, ids = ids }
    elseif request and E.is_before(claim.request, request) then
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
  texts[n + 2] = j.attempt .. ' ' .. j.stalls .. ' ' .. j.retries .. ' ' .. fmt('%x', j.ready_at) .. ' ' .. E.int(j.expires)
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
local function lease_all(claim, q, ids, members, lanes, groups)
  local lives, records = E.hmget(LIFE, ids), E.hmget(JOBS, ids)
  E.know_subs(lanes, groups)
  local out, run_lane, run_group, counted, spoilt = E.new_leases(claim, q.id), nil, nil, 0, false
  -- Counts the last jobs of one lane and group.
  local function count()
    if out.n == counted then return end
    count_leases(q, E.group(run_group), run_lane, out.n - counted)
    counted = out.n
  end
  local function write()
    count()
    if out.n == 0 then return end
    local m = E.minute_of(q)
    m[2], m[8] = m[2] + out.n, m[8] + out.waited
    E.note_lines('claim r a 1 ' .. q.id .. ':' .. concat(out.ids, ','), q.id, out.n)
    E.later('ZREM', READY, out.gone)
    E.later('ZADD', E.LEASES, out.leases)
    E.later('HSET', LIFE, out.sets)
    out, counted, run_lane = E.new_leases(claim, q.id), 0, nil
  end
  local i = 1
  -- ends because: every round leases a job, or looks at one
  while ids[i] do
    if run_lane ~= lanes[i] or run_group ~= groups[i] then
      count()
      run_lane, run_group = lanes[i], groups[i]
      E.lease_from(out, run_lane, run_group, q.plain)
    end
    local to, before = i - 1, out.n
    -- ends because: `to` grows up to the count of jobs
    while lanes[to + 1] == run_lane and groups[to + 1] == run_group and E.job_cache[ids[to + 1]] == nil
      and not E.fresh_lives[ids[to + 1]] do
      to = to + 1
    end
    local reached = E.lease_some(out, i, to, ids, members, lives, records)
    for k = before + 1, out.n do E.fresh_lives[out.ids[k]] = out.sets[2 * k] end
    if reached == i then
      write()
      local id = ids[i]
      if E.known_lives[id] == nil then E.known_lives[id] = lives[i] end
      E.know({ id }, true)
      if not lease(claim, { id, members[i], lanes[i], groups[i] }) then spoilt = true end
      reached = i + 1
    end
    i = reached
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
    if q.named == 0 and #lanes == 1 and E.group(q.plain) then
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
  -- A claim is bounded by its maximum alone, or it would find less than there is.
  E.WORK_MAX = math.huge
  if claim.again then
    claim_again(claim)
  else
    for _, plan in ipairs(claim.queues) do
      local q = E.find_queue(plan.name)
      if q and claim.count < claim.max then claim_on(claim, plan, q) end
    end
    if claim.count > 0 then
      E.hput(E.CLAIMS, 'c' .. claim.worker, E.claim_memo(claim, concat(claim.ids, ',')))
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
  E.note_idle(claim)
end
