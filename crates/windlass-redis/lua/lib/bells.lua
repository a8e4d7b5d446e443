-- Wake-ups. They only shorten a wait: whoever waits looks again by itself.
--
-- BELLS  <queue name>\n<lane>\n<handle>/<worker>        somebody waits for this lane; `-` for a new one, `*` for any
-- IDLE   <handle>/<worker>                              the entries above of one who waits, one per line
-- WATCH  <id>                                           handles that wait for the end of a job
--
-- A claim that is not filled registers its worker in the very step that found nothing, so no wake-up falls in between.
-- Whoever makes work wakes one who waits for that lane, and takes it off the list; a claim that was filled wakes the next.

-- The step is done when bells are rung: that a message cannot be sent must not make it fail.
function E.publish(handle, text)
  local sent, heard = pcall(call, E.PUBLISH, E.BELL .. handle, text)
  return sent and heard or 0
end

-- Takes one who waits off the list.
function E.forget_idle(who)
  local text = call('HGET', E.IDLE, who)
  if not text then return end
  local lines = {}
  for line in gmatch(text, '[^\r]+') do lines[#lines + 1] = line end
  E.many('ZREM', E.BELLS, lines)
  call('HDEL', E.IDLE, who)
end

-- Wakes up to `count` of those whose entries begin with `prefix`; answers how many.
local function wake_some(prefix, queue_name, count)
  local woken = 0
  -- One who is gone hears nothing, and is taken off the list all the same.
  for _ = 1, count + 64 do
    local entry = woken < count and call('ZRANGEBYLEX', E.BELLS, '[' .. prefix, E.after_all(prefix), 'LIMIT', 0, 1)[1]
    if not entry then break end
    local handle, worker = match(entry, '\n([^\n/]+)/([^\n]+)$')
    if handle and call('HEXISTS', E.IDLE, handle .. '/' .. worker) == 1 then
      E.forget_idle(handle .. '/' .. worker)
    else
      call('ZREM', E.BELLS, entry)
    end
    if handle and E.publish(handle, 'work\n' .. queue_name) > 0 then woken = woken + 1 end
  end
  return woken
end

-- True when nothing more may start on a queue now: to wake anybody would be for nothing.
local function is_shut(q)
  local s = q.settings
  return s.paused or s.cap and q.a >= s.cap or s.rate and E.meter_room(q.meter, s.rate, s.per) == 0
end
local function ring_lane(q, id, count)
  local woken = wake_some(q.name .. '\n' .. id .. '\n', q.name, count)
  -- Workers with very many lanes wait for all of them at once.
  if woken < count then woken = woken + wake_some(q.name .. '\n*\n', q.name, count - woken) end
  return woken
end
local function ring_queue(q, count)
  local ids = E.lanes_of(q)
  E.know_lanes(ids)
  for _, id in ipairs(ids) do
    if count <= 0 then return end
    local l = E.lane(id)
    if l and l.ready > 0 then count = count - ring_lane(q, id, min(count, l.ready)) end
  end
end

local function ring_all()
  if call('ZCARD', E.BELLS) == 0 then return end
  for id, count in pairs(E.rung_anybody) do
    local q = E.queue(id)
    if q then wake_some(q.name .. '\n-\n', q.name, count) end
  end
  for id, count in pairs(E.rung_queues) do
    local q = E.queue(id)
    if q and not is_shut(q) then ring_queue(q, count) end
  end
  for id, count in pairs(E.rung_lanes) do
    local l = E.lane(id)
    local q = l and l.ready > 0 and E.queue(l.queue)
    if q and not is_shut(q) then ring_lane(q, id, min(count, l.ready, 8)) end
  end
end

-- Rings for everything that this step has made possible.
function E.ring_bells()
  if next(E.rung_lanes) or next(E.rung_queues) or next(E.rung_anybody) then ring_all() end
  if (#E.ended > 0 or #E.ended_runs > 0) and call('HLEN', E.WATCH) > 0 then
    for _, ids in ipairs(E.ended_runs) do
      for _, id in ipairs(ids) do E.ended[#E.ended + 1] = id end
    end
    local found, gone = E.hmget(E.WATCH, E.ended), {}
    for i, id in ipairs(E.ended) do
      if found[i] then
        for handle in gmatch(found[i], '%S+') do E.publish(handle, 'job\n' .. id) end
        gone[#gone + 1] = id
      end
    end
    if #gone > 0 then E.many('HDEL', E.WATCH, gone) end
  end
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
  E.write_feed()
  E.flush()
  E.ring_bells()
end
