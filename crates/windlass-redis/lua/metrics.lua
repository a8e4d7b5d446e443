-- What happened on a queue per minute.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; queue, first minute, last minute
-- Answers `missing`; or `ok`, then minute and numbers of each minute in which something happened
-- Bounds  the minutes that are asked for

local name, from, to = E.arg(), E.num(), E.num()
local q = E.find_queue(name)
if not q then return { 'missing' } end
local fields, answer = {}, { 'ok' }
for minute = from, to do fields[#fields + 1] = q.id .. ':' .. E.int(minute) end
for i, text in ipairs(E.hmget(E.MINUTES, fields)) do
  if text then
    answer[#answer + 1] = E.int(from + i - 1)
    answer[#answer + 1] = text
  end
end
return answer
