-- Extends leases, and notes progress.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; count, then of each lease its id, token, length in ms or `-`, and progress
--         as JSON or nothing
-- Answers of each `<end of the lease> <1 when its job was cancelled>`, or `lost`
-- Bounds  one round per lease

local n = E.num()
local first = E.at
local ids, answers = {}, {}
for i = 1, n do ids[i] = ARGV[first + 4 * i - 3] end
E.know(ids)
for i, id in ipairs(ids) do
  local base = first + 4 * i - 3
  local j = E.readable(id)
  if not j or j.token ~= ARGV[base + 1] then
    answers[i] = 'lost'
  else
    local lease_ms, progress = E.opt(ARGV[base + 2]), ARGV[base + 3]
    if progress ~= '' then
      E.put_extra(j, ':p', progress)
      E.note(j, 'progress', 'a', 'a')
    end
    if lease_ms and now + lease_ms > j.expires then
      -- A clock that jumped back must not take away what was promised.
      j.expires = now + lease_ms
      E.zput(E.LEASES, E.hex12(j.row) .. id, j.expires)
      E.touch(j)
    end
    answers[i] = E.int(j.expires) .. ' ' .. (j.cancel and 1 or 0)
  end
end
E.finish()
return answers
