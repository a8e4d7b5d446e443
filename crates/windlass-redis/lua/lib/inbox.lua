-- What was delivered to runs, as claims and renewals return it.
--
-- Bounds  1,000 items and 4 MiB of each run, one item excepted; 32 MiB of all

local ITEMS_MAX, BYTES_MAX, ALL_BYTES_MAX, PIECE = 1000, 4194304, 33554432, 64
local bytes = 0

-- Reads items of the inboxes of runs, oldest first, from `read_from` on or from the first: `items` of each run, and `upto`, the number
-- behind the last one that was read. A few at a time, because they may be large: with a `slice` so many first, and then as many as
-- their size allows. When there are enough, the runs that follow get no `items`.
function E.read_items(runs, slice)
  local names, owners = {}, {}
  local function read()
    local found = E.hmget(E.INBOX, names)
    local read_bytes = 0
    for i, r in ipairs(owners) do
      local item = found[i]
      local size = item and #item or 0
      read_bytes = read_bytes + size
      if r.full or r.size > 0 and r.size + size > BYTES_MAX then
        r.full = true
      else
        -- One that is not there is damage, and is not asked for again.
        if item then r.items[#r.items + 1] = item end
        r.upto, r.size, bytes = r.upto + 1, r.size + size, bytes + size
      end
    end
    names, owners = {}, {}
    if slice then slice = E.next_slice(slice, read_bytes / E.RECORD_BYTES) end
  end
  for _, r in ipairs(runs) do
    if bytes >= ALL_BYTES_MAX then break end
    local from = r.read_from or r.first
    r.items, r.upto, r.size, r.full = {}, from, 0, false
    for n = from, min(r.following, from + ITEMS_MAX) - 1 do
      if r.full then break end
      names[#names + 1], owners[#owners + 1] = E.numbered(r, n), r
      if #names >= (slice or PIECE) then read() end
    end
  end
  read()
end
