-- A worker that waits.

local LANES_REGISTERED = 64

-- Notes that the worker of a claim waits, or that it does not any more.
function E.note_idle(claim)
  if claim.who == '' then return end
  if claim.count >= claim.max then
    E.forget_idle(claim.who)
    return
  end
  local lines = {}
  for _, plan in ipairs(claim.queues) do
    lines[#lines + 1] = plan.name .. '\n-\n' .. claim.who
    if #plan.lanes > LANES_REGISTERED then
      lines[#lines + 1] = plan.name .. '\n*\n' .. claim.who
    else
      for _, id in ipairs(plan.lanes) do lines[#lines + 1] = plan.name .. '\n' .. id .. '\n' .. claim.who end
    end
  end
  local text = concat(lines, '\r')
  if call('HGET', E.IDLE, claim.who) == text then return end
  E.forget_idle(claim.who)
  call('HSET', E.IDLE, claim.who, text)
  local members = {}
  for i, line in ipairs(lines) do members[2 * i - 1], members[2 * i] = 0, line end
  E.many('ZADD', E.BELLS, members)
end
