-- Those who wait, and how they are woken. Wake-ups only shorten a wait: whoever waits looks again by itself.
--
-- BELLS  <queue name>\n<lane>\n<handle>/<worker>        somebody waits for this lane; `-` for a new one, `*` for any
--        \n<kind>\n<handle>//<engine>                     somebody waits for runs of this kind
-- IDLE   <handle>/<worker>                              the entries above of one who waits, one per line
-- WATCH  <id>                                           handles that wait for the end of a job or run
--
-- A claim that is not filled registers its worker in the very step that found nothing, so no wake-up falls in between.
-- Whoever makes work wakes one who waits for that lane, and takes it off the list; a claim that was filled wakes the next.

-- The step is done when bells are rung: that a message cannot be sent must not make it fail.
function E.publish(handle, text)
  local sent, heard = pcall(call, E.PUBLISH, E.BELL .. handle, text)
  return sent and heard or 0
end

-- Takes one who waits off the list.
local function forget(who, text)
  local lines = {}
  for line in gmatch(text, '[^\r]+') do lines[#lines + 1] = line end
  E.many('ZREM', E.BELLS, lines)
  call('HDEL', E.IDLE, who)
end
function E.forget_idle(who)
  local text = call('HGET', E.IDLE, who)
  if text then forget(who, text) end
  return text
end

-- Wakes up to `count` of those whose entries begin with `prefix`; answers how many.
function E.wake_some(prefix, message, count)
  local woken = 0
  -- One who is gone hears nothing, and is taken off the list all the same.
  for _ = 1, count + 64 do
    local entry = woken < count and call('ZRANGEBYLEX', E.BELLS, '[' .. prefix, E.after_all(prefix), 'LIMIT', 0, 1)[1]
    if not entry then break end
    local handle, worker = match(entry, '\n([^\n/]+)/([^\n]+)$')
    if not handle or not E.forget_idle(handle .. '/' .. worker) then call('ZREM', E.BELLS, entry) end
    if handle and E.publish(handle, message) > 0 then woken = woken + 1 end
  end
  return woken
end
-- Wakes up to `count` of those who wait for a lane; answers how many.
function E.wake_lane(queue_name, lane_id, count)
  local message = 'work\n' .. queue_name
  local woken = E.wake_some(queue_name .. '\n' .. lane_id .. '\n', message, count)
  -- Workers with very many lanes wait for all of them at once.
  if woken < count then woken = woken + E.wake_some(queue_name .. '\n*\n', message, count - woken) end
  return woken
end

-- Wakes those who wait for the ends of jobs and runs.
function E.tell_watchers(ids)
  if call('HLEN', E.WATCH) == 0 then return end
  local found, gone = E.hmget(E.WATCH, ids), {}
  for i, id in ipairs(ids) do
    if found[i] then
      for handle in gmatch(found[i], '%S+') do E.publish(handle, 'job\n' .. id) end
      gone[#gone + 1] = id
    end
  end
  if #gone > 0 then E.many('HDEL', E.WATCH, gone) end
end
