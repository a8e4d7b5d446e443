-- What was delivered to runs, as claims and renewals return it.
--
-- Bounds  1,000 items and 4 MiB of each run, one item excepted; 32 MiB of all; of an inbox with holes 10,000 numbers

local ITEMS_MAX, NUMBERS_MAX, BYTES_MAX, ALL_BYTES_MAX, PIECE = 1000, 10000, 4194304, 33554432, 64
local bytes = 0

-- Reads items of the inboxes of runs, oldest first, from `read_from` on or from the first: `items` of each run, in which nothing and a
-- number stand before an item whose number does not follow the one before; `upto`, the number behind the last one that was read; and
-- of an inbox with holes `found`, how many items there are. A few at a time, because they may be large: with a `slice` so many first,
-- and then as many as their size allows. When there are enough, the runs that follow get no `items`.
function E.read_items(runs, slice)
  local names, owners = {}, {}
  local function read()
    local found = E.hmget(E.INBOX, names)
    local read_bytes = 0
    for i, r in ipairs(owners) do
      local item = found[i]
      local size = item and #item or 0
      read_bytes = read_bytes + size
      if r.size > 0 and r.size + size > BYTES_MAX or r.holes and r.found >= ITEMS_MAX then
        -- Nothing more fits.
        r.size = max(r.size, BYTES_MAX + 1)
      else
        -- One that is not there was taken, or is damage, and is not asked for again.
        if item then
          local n = #r.items
          if r.skipped then
            r.items[n + 1], r.items[n + 2], r.skipped = false, E.int(r.upto), false
            n = n + 2
          end
          r.items[n + 1] = item
          if r.holes then r.found = r.found + 1 end
        else
          r.skipped = true
        end
        r.upto, r.size, bytes = r.upto + 1, r.size + size, bytes + size
      end
    end
    names, owners = {}, {}
    if slice then slice = E.next_slice(slice, read_bytes / E.RECORD_BYTES) end
  end
  for _, r in ipairs(runs) do
    if bytes >= ALL_BYTES_MAX then break end
    local from = r.read_from or r.first
    -- A run has few fields more than its table has room for: what most runs do not need is not set.
    r.items, r.upto, r.size = {}, from, 0
    if r.holes then r.found = 0 end
    if r.skipped then r.skipped = false end
    for n = from, min(r.following, from + (r.holes and NUMBERS_MAX or ITEMS_MAX)) - 1 do
      if r.size > BYTES_MAX then break end
      names[#names + 1], owners[#owners + 1] = E.numbered(r, n), r
      if #names >= (slice or PIECE) then read() end
    end
  end
  read()
end
-- How many items a run was read of. Without holes, one that is not there is a damaged one.
function E.items_taken(r, from)
  return E.int(r.holes and r.found or r.upto - from)
end
