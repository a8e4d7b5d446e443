-- Looks runs up.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; of each its id, `d`, `i`, `p` and `r` for definition, input, published values and result, the first entry of its history, and
--         how many
-- Answers of each its record or nothing, `1` when it cannot be read, definition, input, entries up to the first that is missing,
--         published values, and result
-- Bounds  one round per run; its entries

-- The entries of a history, from one on.
local function entries_of(r, from, most)
  local names = {}
  for n = from, min(from + most, r.history) - 1 do names[#names + 1] = E.numbered(r, n) end
  local entries = {}
  for i, entry in ipairs(E.hmget(E.HISTORY, names)) do
    if not entry then break end
    entries[i] = entry
  end
  return entries
end

local answer, ids = {}, {}
for i = 4, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
E.know_runs(ids)
local texts = E.hmget(E.RUNS, ids)
for i, id in ipairs(ids) do
  local parts, from, most = ARGV[4 * i + 1], tonumber(ARGV[4 * i + 2]), tonumber(ARGV[4 * i + 3])
  local r, n = E.run(id), #answer
  answer[n + 1], answer[n + 2] = texts[i], r and r.broken and '1' or '0'
  answer[n + 3] = match(parts, 'd') and call('HGET', E.RUNS, id .. ':d') or false
  answer[n + 4] = match(parts, 'i') and call('HGET', E.RUNS, id .. ':i') or false
  answer[n + 5] = r and r.history and entries_of(r, from, most) or {}
  answer[n + 6] = match(parts, 'p') and call('HGET', E.RUNS, id .. ':p') or false
  answer[n + 7] = match(parts, 'r') and call('HGET', E.RUNS, id .. ':r') or false
end
return answer
