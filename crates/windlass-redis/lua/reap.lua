-- Takes back leases that ran out, of jobs and of runs, and wakes runs whose time has come.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; max
-- Answers how many were handled, when there is more to do, and `1` when more is left of what could have been handled now
-- Bounds  max jobs and runs, and the work of one step

local limit = E.num()
local found = E.by_score(E.LEASES, now, min(limit, E.WORK_MAX))
local handled = 0
if #found > 0 then
  local ids = {}
  for i, member in ipairs(found) do ids[i] = sub(member, 13) end
  handled = E.each(ids, function(i, id)
    local j = E.readable(id)
    if j and j.state == 'a' and E.hex12(j.row) .. id == found[i] then
      if (j.expires or 0) > now then
        E.zput(E.LEASES, found[i], j.expires)
      else
        local message = 'the lease of worker ' .. (j.worker or '?'):gsub('\\', '\\\\') .. ' ran out; it died, froze, or lost the store'
        E.push_failure(j, 'stalled', message)
        E.reap(j)
      end
    else
      E.work = E.work + 1
      E.stray_lease(found[i], E.peek(id))
    end
  end)
end
local left = #found > handled or #found == E.WORK_MAX
if handled < limit and not left then
  local most = min(limit - handled, E.WORK_MAX)
  local woken, all = E.wake_runs(most)
  left = all == most
  for _, r in ipairs(woken) do E.ring_runs(r.kind, 1) end
  handled = handled + all
end
if handled > 0 then E.finish() end
local following = call('ZRANGE', E.LEASES, 0, 0, 'WITHSCORES')
local at_time = tonumber(following[2] or nil)
local wake = tonumber(call('ZRANGE', E.RUN_WAKE, 0, 0, 'WITHSCORES')[2] or nil)
if wake and wake < (at_time or math.huge) then at_time = wake end
return { handled, at_time and at_time > 0 and at_time < 1e15 and E.int(floor(at_time)) or '-', left and '1' or '0' }
