-- Takes back leases that ran out, of jobs and of runs, and wakes runs whose time has come.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; max
-- Answers how many were handled, and when there is more to do
-- Bounds  max jobs and runs

local limit = E.num()
local found = E.by_score(E.LEASES, now, limit)
if #found > 0 then
  local ids = {}
  for i, member in ipairs(found) do ids[i] = sub(member, 13) end
  E.know(ids)
  for i, id in ipairs(ids) do
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
      E.stray_lease(found[i], E.peek(id))
    end
  end
end
local handled = #found
if handled < limit then
  local woken, all = E.wake_runs(limit - handled)
  for _, r in ipairs(woken) do E.ring_runs(r.kind, 1) end
  handled = handled + all
end
if handled > 0 then E.finish() end
local following = call('ZRANGE', E.LEASES, 0, 0, 'WITHSCORES')
local at_time = tonumber(following[2] or nil)
local wake = tonumber(call('ZRANGE', E.RUN_WAKE, 0, 0, 'WITHSCORES')[2] or nil)
if wake and wake < (at_time or math.huge) then at_time = wake end
return { handled, at_time and at_time > 0 and at_time < 1e15 and E.int(floor(at_time)) or '-' }
