-- Scheduled jobs whose time comes.

-- The earliest time of a scheduled job of a queue that is not held.
function E.next_due(q)
  local prefix = E.enc(q.id)
  local first = E.lex(E.SCHED, '[' .. prefix, '(' .. prefix .. 'z', 1)[1]
  return first and tonumber(sub(first, #prefix + 1, #prefix + 12), 16) or nil
end

-- Makes due jobs of a queue ready, in the order of their times, until the step has done enough; answers how many.
function E.promote_due(q, limit)
  local prefix = E.enc(q.id)
  local found = E.lex(E.SCHED, '[' .. prefix, '[' .. prefix .. E.hex12(max(now, 0)) .. '~', limit)
  local ids, lanes = {}, {}
  for i, member in ipairs(found) do
    local lane_id, id_at = E.dec(member, #prefix + 25)
    ids[i], lanes[i] = sub(member, id_at), lane_id or 0
  end
  return E.each(ids, function(i, id)
    local j = E.readable(id, q.id, lanes[i])
    if not j or j.state ~= 's' or E.sched_member(j) ~= found[i] then
      E.work = E.work + 1
      E.stray(E.SCHED, found[i], q.id, 's')
    else
      E.promote(j)
    end
  end)
end
