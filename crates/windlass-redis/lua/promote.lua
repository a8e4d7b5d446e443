-- Makes due jobs ready, and brings groups back whose rate allows it.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; max
-- Answers how many were handled, when there will be more, and `1` when more is left of what could have been handled now
-- Bounds  max jobs and groups, one round per queue, and the work of one step

local limit = E.num()
local handled, soonest, left = 0, nil, false
local queues = E.all_queues()
for _, q in ipairs(queues) do
  for _, act in ipairs({ E.wake_groups, E.promote_due }) do
    local most = min(limit - handled, E.WORK_MAX)
    if most > 0 and not left then
      local done = act(q, most)
      handled, left = handled + done, done == E.WORK_MAX or E.is_spent()
    end
  end
end
if handled > 0 then E.finish() end
for _, q in ipairs(queues) do
  local due, wake = E.next_due(q), E.next_wake(q)
  if due then soonest = min(soonest or due, due) end
  if wake then soonest = min(soonest or wake, wake) end
end
return { handled, soonest and E.int(soonest) or '-', left and '1' or '0' }
