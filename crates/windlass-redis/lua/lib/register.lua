-- A worker or an engine that waits.

local LANES_REGISTERED = 64

-- Notes what somebody waits for; nothing, when it does not any more.
function E.enlist(who, lines)
  local text = lines and concat(lines, '\r')
  local known = call('HGET', E.IDLE, who)
  if (known or nil) == text then return end
  E.forget_idle(who)
  if not text then return end
  call('HSET', E.IDLE, who, text)
  local members = {}
  for i, line in ipairs(lines) do members[2 * i - 1], members[2 * i] = 0, line end
  E.many('ZADD', E.BELLS, members)
end

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
  E.enlist(claim.who, lines)
end
