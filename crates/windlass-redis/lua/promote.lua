-- Makes due jobs ready, and brings groups back whose rate allows it.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; max
-- Answers how many were handled, and when there will be more
-- Bounds  max jobs and groups, one round per queue

local limit = E.num()
local handled, soonest = 0, nil
local queues = E.all_queues()
for _, q in ipairs(queues) do
  if handled < limit then handled = handled + E.wake_groups(q, limit - handled) end
  if handled < limit then handled = handled + E.promote_due(q, limit - handled) end
end
if handled > 0 then E.finish() end
for _, q in ipairs(queues) do
  local due, wake = E.next_due(q), E.next_wake(q)
  if due then soonest = min(soonest or due, due) end
  if wake then soonest = min(soonest or wake, wake) end
end
return { handled, soonest and E.int(soonest) or '-' }
