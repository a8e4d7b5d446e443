-- Schedules whose tick has come, the most overdue first.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; max
-- Answers the time; then of each its name, its text, and the state of its last job or nothing
-- Bounds  max

local names = call('ZRANGEBYSCORE', E.TICKS, '-inf', now, 'LIMIT', 0, E.num())
local answer = { E.int(now) }
for i, text in ipairs(E.hmget(E.SCHEDULES, names)) do
  if text then
    local last = match(text, '^%d+ %S+ [01] %S+ (%S+) ')
    local j = last and last ~= '-' and E.peek(last)
    local n = #answer
    answer[n + 1], answer[n + 2] = names[i], text
    answer[n + 3] = j and (j.broken and 'F' or j.state) or ''
  end
end
return answer
