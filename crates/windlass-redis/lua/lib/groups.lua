-- Groups: who is in the ring, who is parked, and how the counts follow the jobs.
--
-- A group stands in the ring of every lane in which it has ready jobs, unless it is parked: at its cap until a job of it
-- ends, at its rate until its wake time.
--
-- The virtual time of a group in a lane is the later one of its own and that of its place in the lane's ring. The place is
-- earlier while the group was served in other lanes since; a claim that reads the place corrects it. The place is later
-- when the group joined the lane while it had ready jobs in other lanes: it starts at the lane's present, so that jobs that
-- no worker may run do not earn their group turns in the lanes that are served.

-- Lanes and queues on which something may be claimed that could not be before.
E.rung_lanes, E.rung_queues, E.rung_anybody = {}, {}, {}
function E.ring_lane(lane_id, count)
  E.rung_lanes[lane_id] = (E.rung_lanes[lane_id] or 0) + (count or 1)
end
-- Whoever waits on a queue, whatever for: there is a lane that nobody knows, or a time that comes sooner.
function E.ring_anybody(queue_id, count)
  E.rung_anybody[queue_id] = max(E.rung_anybody[queue_id] or 0, count)
end
function E.ring_queue(queue_id, count)
  E.rung_queues[queue_id] = max(E.rung_queues[queue_id] or 0, count or 8)
end

-- What holds for a group: its own settings, then the cap that jobs of runs have set, then its queue's settings. Jobs that name no group have no limits of a group.
function E.limits(g)
  if not g.name then return nil, nil, nil, 1 end
  local s = E.queue(g.queue).settings
  local rate, per = g.rate, g.per
  if not rate then rate, per = s.g_rate, s.g_per end
  return g.cap or g.run_cap or s.g_cap, rate, per, g.weight or s.g_weight or 1
end

-- Whether a group may be served, and when to look again if it may not.
local function standing(g)
  local cap, rate, per = E.limits(g)
  if cap and g.active >= cap then return 'C', nil end
  local next_at = rate and E.meter_next(g.meter, rate, per)
  if next_at then return 'R', next_at end
  return 'N', nil
end

-- The present of a lane: the queue's virtual time, or that of the lane's next group when it lags behind because few
-- workers serve the lane. A group that joins must not wait until such a lane has caught up.
local function present_in(lane_id, vnow)
  local first = E.ring_of(lane_id, nil, 1)[1]
  if not first then return vnow end
  local g = E.group(first[2])
  return g and min(max(g.vtime, first[1]), vnow) or vnow
end

-- Puts a group into the rings of its lanes, or takes it out.
local function move_in_ring(g)
  local q = E.queue(g.queue)
  local back = g.parked == 'N'
  local lanes, places = E.lanes_of_group(g), {}
  E.work = E.work + #lanes / 2
  if back and g.vtime < q.vtime then
    local soonest
    for i, lane_id in ipairs(lanes) do
      places[i] = max(g.vtime, present_in(lane_id, q.vtime))
      soonest = min(soonest or places[i], places[i])
    end
    g.vtime = soonest or q.vtime
  end
  for i, lane_id in ipairs(lanes) do
    E.put_sub(lane_id, g, E.sub_of(lane_id, g.id).ready, back and (places[i] or g.vtime) or nil)
  end
  if back and g.ready > 0 then
    for _, lane_id in ipairs(lanes) do E.ring_lane(lane_id) end
  end
  E.touch_group(g)
end

-- Parks a group or brings it back, as its limits and its state say now.
function E.review(g)
  if not g.name then return end
  local s = E.queue(g.queue).settings
  if g.parked == 'N' and not (g.wake or g.cap or g.run_cap or g.rate or s.g_cap or s.g_rate) then return end
  local was = g.parked
  local parked, wake = standing(g)
  if was == parked and g.wake == wake then return end
  E.park_group(g, parked, wake)
  if (was == 'N') ~= (parked == 'N') then move_in_ring(g) end
end

-- Forgets a group that has nothing left to be remembered for.
function E.drop_idle(g)
  if not g.name or g.ready > 0 or g.active > 0 or g.cap or g.rate or g.weight then return end
  local _, rate, per = E.limits(g)
  if rate and not E.meter_idle(g.meter, per) then
    -- It must not forget its starts by being away for a moment; look again when they do not count any more.
    E.park_group(g, g.parked, now + 2 * per)
  else
    E.remove_group(g)
  end
end

-- So many jobs of a group are ready in a lane now.
local function enter_lane(lane_id, g, q, count)
  if g.ready == 0 and g.parked == 'R' then
    -- While it was idle, the time to look at it again was that of forgetting it.
    E.review(g)
  end
  local s, joins_at = E.sub_of(lane_id, g.id), g.vtime
  if s.ready == 0 and g.vtime < q.vtime then
    -- A group must not catch up on turns that it could not use.
    joins_at = max(g.vtime, present_in(lane_id, q.vtime))
    if g.ready == 0 then g.vtime = joins_at end
  end
  if g.ready == 0 and g.name then
    q.named = q.named + 1
    E.touch_queue(q)
  end
  g.ready = g.ready + count
  E.touch_group(g)
  E.put_sub(lane_id, g, s.ready + count, s.vtime or (g.parked == 'N' and joins_at) or nil)
end
-- So many jobs without a group are ready in a lane now, which knows of them.
function E.enter_plain(l, q, count)
  enter_lane(l.id, E.group(q.plain), q, count)
end
-- A job is ready now.
local function enter_ready(j, q)
  enter_lane(j.lane, E.group(j.group), q, 1)
  local l = E.lane(j.lane)
  if l.ready == 0 or E.is_before(j.ord, l.head) then l.head = j.ord end
  l.ready = l.ready + 1
  E.touch_lane(l)
end

-- A job is ready or active now.
function E.enter_group(j, q)
  if not j.group then return end
  if j.state == 'r' then return enter_ready(j, q) end
  local g = E.group(j.group)
  g.active = g.active + 1
  E.touch_group(g)
  if g.name then E.review(g) end
end

-- A job is not ready or active any more; `to` is the state it goes to, nil when it goes for good.
function E.leave_group(j, q, from, group_id, to)
  local g = group_id and E.group(group_id)
  if not g then return end
  E.touch_group(g)
  if from == 'r' then
    if g.ready == 1 and g.name then
      q.named = max(q.named - 1, 0)
      E.touch_queue(q)
    end
    g.ready = max(g.ready - 1, 0)
    local s = E.sub_of(j.lane, g.id)
    E.put_sub(j.lane, g, max(s.ready - 1, 0), s.vtime)
    local l = E.lane(j.lane)
    if l then
      l.ready = max(l.ready - 1, 0)
      E.touch_lane(l)
    end
  elseif from == 'a' then
    g.active = max(g.active - 1, 0)
    E.review(g)
  end
  if to ~= 'r' and to ~= 'a' then E.drop_idle(g) end
end

-- The group of a job that becomes ready; nil when its record cannot be read. A cap that the job brings, the number among its
-- flags, holds for the group: that of a new job in any case, and that of a job that was there before if the group has none, as
-- after it was idle and forgotten.
function E.group_for(j, q, is_new)
  if j.group then return j.group end
  if not E.has_flag(j, 'g') then return q.plain end
  if not E.head(j) or not j.group_name then return nil end
  local g = E.find_group(q.id, j.group_name) or E.make_group(q.id, j.group_name)
  local cap = tonumber(match(j.flags, '%d+'))
  if cap and g.run_cap ~= cap and (is_new or not g.run_cap) then
    g.run_cap = cap
    E.touch_group(g)
    E.review(g)
  end
  return g.id
end

-- Brings groups of a queue back whose time has come, and forgets those that have nothing left, until the step has done enough;
-- answers how many.
function E.wake_groups(q, limit)
  local prefix = E.enc(q.id)
  local found = E.lex(E.WAKE, '[' .. prefix, '[' .. prefix .. E.hex12(max(now, 0)) .. '~', limit)
  local ids = {}
  for i, member in ipairs(found) do ids[i] = E.dec(member, #prefix + 13) or 0 end
  E.know_groups(ids)
  for i, id in ipairs(ids) do
    if i > 1 and E.is_spent() then return i - 1 end
    local g = E.group(id)
    E.work = E.work + 1
    if g and g.wake and E.queue(g.queue) then
      E.park_group(g, g.parked, nil)
      E.review(g)
      if g.parked == 'N' then E.drop_idle(g) end
    else
      E.zput(E.WAKE, found[i], false)
    end
  end
  return #ids
end

-- When the next group of a queue is to be looked at.
function E.next_wake(q)
  local prefix = E.enc(q.id)
  local first = E.lex(E.WAKE, '[' .. prefix, E.after_all(prefix), 1)[1]
  return first and tonumber(sub(first, #prefix + 1, #prefix + 12), 16)
end
