-- Jobs whose stored form cannot be read: set aside by the first write that comes across one, shown, removed by hand, and
-- never in anybody's way.
--
-- Counters follow the indexes. So an index entry that its job does not know of any more is taken out together with what
-- it was counted for, whenever somebody meets it.

-- A job by id; one that cannot be read is set aside, and nil. Where it was found tells its queue and its lane, should it
-- not know them itself.
function E.readable(id, queue_id, lane_id)
  local j = E.peek(id)
  if j and not j.broken and not E.has_flag(j, 'q') then
    local l = E.lane(j.lane)
    if not l or l.queue ~= j.queue or not E.queue(j.queue) then
      j.broken = 'its queue or its lane is not there'
    elseif j.group and E.group(j.group) == nil then
      j.broken = 'its group is not there'
    end
  end
  if j and j.broken then
    E.set_aside(j, j.broken, queue_id, lane_id)
    return nil
  end
  return j
end

-- The queue and the lane of a job: its own, those of its record, or those under which it was found.
local function home_of(j, queue_id, lane_id)
  E.head(j)
  for _, home in ipairs({ { j.queue, j.lane }, { j.head_queue, j.head_lane }, { queue_id, lane_id } }) do
    local l = home[1] and home[2] and E.lane(home[2])
    if l and l.queue == home[1] and E.queue(home[1]) then return home[1], home[2] end
  end
  return queue_id or 0, lane_id or 0
end

-- Makes a job a failed one that keeps the reason and is never claimed.
function E.set_aside(j, why, queue_id, lane_id)
  local queue_now, lane_now = home_of(j, queue_id, lane_id)
  -- One that is not where it says to be stands in indexes that nobody knows: whoever meets it there takes it out.
  local known = j.state ~= nil and queue_now == j.queue and lane_now == j.lane
  j.queue, j.lane = queue_now, lane_now
  if not j.state then
    j.row = j.head_row or 0
    j.created, j.ready_at, j.ord, j.attempt, j.stalls, j.retries = j.head_created or now, now, '0', 0, 0, 0
    j.attempts, j.stalls_max, j.flags = j.head_attempts or 1, j.head_stalls or 0, '-'
  end
  j.broken = nil
  -- Its key is freed as that of any job that ends, as far as it is known, and its log is kept in mind.
  local flags = (E.head(j) and j.key and 'd' or '') .. (j.flags and match(j.flags, 'o') or '') .. 'q'
  local function become(k)
    k.state, k.cancel, k.finished, k.due = 'F', false, now, nil
    k.token, k.expires, k.worker, k.group = nil, nil, nil, nil
    k.flags = flags
  end
  local q = E.queue(j.queue)
  if known and q and E.lane(j.lane) then
    E.apply(j, 'fail', become)
  else
    become(j)
    E.touch(j)
    E.ended[#E.ended + 1] = j.id
    if q then
      q.F = q.F + 1
      E.touch_queue(q)
      E.note(j, 'fail', nil, 'F')
      E.index(j, true)
    end
    if j.key then E.free_key(j) end
    if j.run then E.tell_run(j, 'F') end
  end
  E.set_flag(j, 'x')
  E.hput(E.EXTRA, j.id .. ':f', 'quarantined ' .. j.attempt .. ' ' .. E.int(now) .. ' ' .. why)
end

-- How many entries of an index begin like this; what waits to be written included.
local function count_of(key, prefix)
  E.settle(key)
  return call('ZLEXCOUNT', key, '[' .. prefix, E.after_all(prefix))
end
-- Takes an entry of the ready index out that its job does not know of, and counts what is left anew.
function E.stray_ready(member, lane_id, group_id)
  E.zput(READY, member, false)
  local there = count_of(READY, E.enc(lane_id) .. E.enc(group_id))
  local l, g = E.lane(lane_id), E.group(group_id)
  local q = l and E.queue(l.queue)
  if not q or not g then return end
  local s = E.sub_of(lane_id, g.id)
  local more = there - s.ready
  if more == 0 then return end
  local was = g.ready
  l.ready, q.r, g.ready = max(l.ready + more, 0), max(q.r + more, 0), max(g.ready + more, 0)
  if g.name and (was > 0) ~= (g.ready > 0) then q.named = max(q.named + (was > 0 and -1 or 1), 0) end
  E.touch_lane(l)
  E.touch_queue(q)
  E.touch_group(g)
  E.put_sub(lane_id, g, there, s.vtime)
end
-- The same for an index that counts nothing but its state. Leases do not say whose they are, so one is taken off.
function E.stray(key, member, queue_id, state)
  if key == E.LEASES and E.zsets[key] and E.zsets[key][member] == false then return end
  E.zput(key, member, false)
  local q = queue_id and E.queue(queue_id)
  if not q then return end
  if key == E.LEASES then
    q.a = max(q.a - 1, 0)
  else
    q[state] = count_of(key, E.enc(q.id) .. (key == E.ENDED and state or ''))
  end
  E.touch_queue(q)
end
-- An entry of the leases that its job does not know of. One that was set aside without its life has left its group, too.
function E.stray_lease(member, j)
  local q = j and E.queue(j.queue)
  if E.zsets[E.LEASES] and E.zsets[E.LEASES][member] == false then return end
  E.stray(E.LEASES, member, q and q.id, 'a')
  if not q or not E.has_flag(j, 'q') then return end
  local g = E.head(j) and j.group_name and E.find_group(q.id, j.group_name) or E.group(q.plain)
  if g then
    g.active = max(g.active - 1, 0)
    E.touch_group(g)
    E.review(g)
  end
end
