-- All that says why a job stands where it stands.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; id
-- Answers `missing`; or `ok`, the time, its record, life and failures, the holder of its dedup key, the state and settings of
--         its queue, the record of its group; then every worker and what it said
-- Bounds  one round per worker

local id = E.arg()
local record, life = call('HGET', JOBS, id), call('HGET', LIFE, id)
if not record and not life then return { 'missing' } end
local j = E.peek(id)
local holder, state, settings, group_text
if j and j.queue then
  if E.is_held(j) and E.head(j) and j.key then holder = (E.key_row(j.key) or {}).owner end
  local q = E.queue(j.queue)
  if q then
    local found = call('HMGET', META, 'q' .. q.id, 's' .. q.id)
    state, settings = found[1], found[2]
    if j.state == 'r' and not j.group then
      local g = E.has_flag(j, 'g') and E.head(j) and E.find_group(q.id, j.group_name) or nil
      j.group = g and g.id or q.plain
    end
    if j.group then group_text = call('HGET', E.GROUPS, j.group) end
  end
end
local answer = { 'ok', E.int(now), record, life, call('HGET', E.EXTRA, id .. ':f'), holder or false, state or false, settings or false,
  group_text or false }
for _, text in ipairs(call('HGETALL', E.WORKERS)) do answer[#answer + 1] = text end
return answer
