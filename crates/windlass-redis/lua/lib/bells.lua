-- What a step has made possible, and who is woken for it.

-- True when nothing more may start on a queue now: to wake anybody would be for nothing.
local function is_shut(q)
  local s = q.settings
  return s.paused or s.cap and q.a >= s.cap or s.rate and E.meter_room(q.meter, s.rate, s.per) == 0
end
local function ring_queue(q, count)
  local ids = E.lanes_of(q)
  E.know_lanes(ids)
  for _, id in ipairs(ids) do
    if count <= 0 then return end
    local l = E.lane(id)
    if l and l.ready > 0 then count = count - E.wake_lane(q.name, id, min(count, l.ready)) end
  end
end

local function ring_all()
  if call('ZCARD', E.BELLS) == 0 then return end
  for id, count in pairs(E.rung_anybody) do
    local q = E.queue(id)
    if q then E.wake_some(q.name .. '\n-\n', 'work\n' .. q.name, count) end
  end
  for id, count in pairs(E.rung_queues) do
    local q = E.queue(id)
    if q and not is_shut(q) then ring_queue(q, count) end
  end
  for id, count in pairs(E.rung_lanes) do
    local l = E.lane(id)
    local q = l and l.ready > 0 and E.queue(l.queue)
    if q and not is_shut(q) then E.wake_lane(q.name, id, min(count, l.ready, 8)) end
  end
end

-- Rings for everything that this step has made possible.
function E.ring_bells()
  if next(E.rung_lanes) or next(E.rung_queues) or next(E.rung_anybody) then ring_all() end
  E.ring_for_runs()
  for _, ids in ipairs(E.ended_runs) do
    for _, id in ipairs(ids) do E.ended[#E.ended + 1] = id end
  end
  if #E.ended > 0 then E.tell_watchers(E.ended) end
end

local sooner_queues = {}
-- A job was scheduled: if it is the queue's first, those who sleep until the next one must learn of it.
function E.sooner(q, due)
  local known = sooner_queues[q.id]
  if not known then
    known = E.next_due(q) or math.huge
    sooner_queues[q.id] = known
  end
  if due < known then
    sooner_queues[q.id] = due
    E.ring_anybody(q.id, 1)
  end
end

-- Ends the step.
function E.finish()
  if E.flush_created then E.flush_created() end
  for _, text in ipairs(E.run_notes) do E.note_json(text) end
  E.write_feed()
  E.flush()
  E.ring_bells()
end
