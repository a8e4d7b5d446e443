-- Extends leases of claimed runs, and returns what has happened to each run since.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; of each its run, token, lease in ms, the number of the first item to return
-- Answers of each `ok <end of the lease> <number of the first item that was read> <number behind the last one> <items taken>`, `lost`, `missing`,
--         `corrupt` or `beyond`; and its items as in inbox.lua
-- Bounds  one round per run; its items as in inbox.lua, and of all runs 3,000 items and 8 MiB, the last run excepted

local items_left, bytes_left = 3000, 8388608
local ids, answer = {}, {}
for i = 4, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
E.know_runs(ids)

local function renew(r, token, lease_ms, from)
  if not r then return 'missing' end
  if r.broken then return 'corrupt' end
  if r.token ~= token then return 'lost' end
  if from > r.following then return 'beyond' end
  r.expires = now + lease_ms
  E.touch_run(r)
  r.read_from, r.items = max(from, r.first), nil
  -- The next renewal of the others returns their items.
  if items_left > 0 and bytes_left > 0 then
    E.read_items({ r }, 1)
    items_left, bytes_left = items_left - (r.upto - r.read_from), bytes_left - r.size
  end
  return 'ok ' .. E.int(r.expires) .. ' ' .. E.int(r.read_from) .. ' ' .. E.int(r.items and r.upto or r.read_from) .. ' '
    .. (r.items and E.items_taken(r, r.read_from) or '0'), r.items
end
for i, id in ipairs(ids) do
  local word, items = renew(E.run(id), ARGV[4 * i + 1], tonumber(ARGV[4 * i + 2]), tonumber(ARGV[4 * i + 3]))
  answer[2 * i - 1], answer[2 * i] = word, items or {}
end
E.finish()
return answer
