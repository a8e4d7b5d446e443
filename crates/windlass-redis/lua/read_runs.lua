-- Looks runs up.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; of each its id, `d`, `i`, `p` and `r` for definition, input, published values and result, and `n` with a number for the items of
--         its inbox from this number on, the first entry of its history, and how many
-- Answers of each its record or nothing, `1` when it cannot be read, definition, input, entries up to the first that is missing,
--         published values, result, and of its inbox the number of the first item that was read, the number behind the last one, and the items as in inbox.lua
-- Bounds  one round per run; its entries, 16 MiB of each run, one entry excepted; its items as in inbox.lua

-- The same as RUN_READ_BYTES_MAX of the contract; and the entries that are read first, before it is known how large they are.
local BYTES_MAX, FIRST = 16777216, 64

-- The entries of a history, from one on; a few at a time, because they may be large.
local function entries_of(r, from, most)
  local entries, bytes, at, slice = {}, 0, from, FIRST
  local upto = min(from + most, r.history)
  -- ends because: every round reads at least one entry
  while at < upto do
    local names = {}
    for n = at, min(at + slice, upto) - 1 do names[#names + 1] = E.numbered(r, n) end
    for _, entry in ipairs(E.hmget(E.HISTORY, names)) do
      if not entry then return entries end
      bytes = bytes + #entry
      -- compares numbers
      if bytes > BYTES_MAX and #entries > 0 then return entries end
      entries[#entries + 1] = entry
    end
    at = at + #names
    slice = max(floor((BYTES_MAX - bytes) / (bytes / #entries + 1)), 1)
  end
  return entries
end

-- The items of an inbox, from one on: the number of the first one, the number behind the last one, and the items.
local function inbox_of(r, from)
  r.read_from, r.items = max(min(from, r.following), r.first), nil
  E.read_items({ r }, 1)
  -- An answer that is full already has none: the next read returns them.
  return E.int(r.read_from), E.int(r.items and r.upto or r.read_from), r.items or {}
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
  answer[n + 8], answer[n + 9], answer[n + 10] = '0', '0', {}
  local items_from = match(parts, 'n(%d+)')
  if items_from and r and not r.broken then answer[n + 8], answer[n + 9], answer[n + 10] = inbox_of(r, tonumber(items_from)) end
end
return answer
