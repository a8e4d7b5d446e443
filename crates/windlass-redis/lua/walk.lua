-- Walks through the jobs of one queue and state in listing order: scheduled by time, ready by lane, group and place, active
-- by age, ended by time.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; queue, state, `1` to go backwards, the place to go on from or nothing, how many to
--         look at, `1` for whole records (payloads included), lanes: `*` or a count and their numbers
-- Answers `1` when there may be more, the last place, how many were looked at; then of each job in these lanes its id, record, life and failures
-- Bounds  as many entries as it is told to look at, and the work of one step; of active jobs all there are, which are never more than
--         the slots of workers

local name, state, backwards, after, limit, whole = E.arg(), E.arg(), E.arg() == '1', E.arg(), E.num(), E.arg() == '1'
local wanted, lane_ids = nil, nil
local count = E.arg()
if count ~= '*' then
  wanted, lane_ids = {}, {}
  for i = 1, tonumber(count) do
    lane_ids[i] = E.num()
    wanted[lane_ids[i]] = true
  end
end
local q = E.find_queue(name)
if not q then return { '0', '', 0 } end

-- One stretch of an index that begins with `prefix`.
local function stretch(key, prefix, from, most)
  local low, high = '[' .. prefix, E.after_all(prefix)
  if from then
    if backwards then high = '(' .. from else low = '(' .. from end
  end
  if backwards then return E.lex_back(key, high, low, most) end
  return E.lex(key, low, high, most)
end

local found, more = {}, false
local function walk_scheduled()
  local prefix = E.enc(q.id)
  local members = stretch(E.SCHED, prefix, after ~= '' and after or nil, limit)
  more = #members == limit
  for i, member in ipairs(members) do
    local lane_id, id_at = E.dec(member, #prefix + 25)
    found[i] = { member, sub(member, id_at), lane_id }
  end
end
local function walk_ready()
  local ids = lane_ids or E.lanes_of(q)
  E.sort_numbers(ids)
  local step, first, last = 1, 1, #ids
  if backwards then step, first, last = -1, #ids, 1 end
  local reached = after ~= '' and E.dec(after, 1) or nil
  for i = first, last, step do
    local id = ids[i]
    local behind = reached and (id - reached) * step < 0
    if not behind and #found < limit then
      local prefix = E.enc(id)
      local members = stretch(READY, prefix, reached == id and after or nil, limit - #found)
      for _, member in ipairs(members) do
        local _, ord_at = E.dec(member, #prefix + 1)
        found[#found + 1] = { member, sub(member, ord_at + 16), id }
      end
    end
  end
  more = #found == limit
end
-- An entry of the leases with the number of its row, and whether one comes before another. Rows differ unless they are damaged.
local function lease_of(member)
  return { tonumber(sub(member, 1, 12), 16) or -1, member }
end
local function is_older(a, b)
  if a[1] ~= b[1] then return a[1] - b[1] < 0 end
  return E.is_before(a[2], b[2])
end
local function walk_active()
  if q.a == 0 then return end
  local leases, reached = {}, lease_of(after)
  for _, member in ipairs(call('ZRANGE', E.LEASES, 0, -1)) do
    local lease = lease_of(member)
    if after == '' or backwards and is_older(lease, reached) or not backwards and is_older(reached, lease) then
      leases[#leases + 1] = lease
    end
  end
  table.sort(leases, is_older)
  local ids, kept = {}, {}
  for i, lease in ipairs(leases) do ids[i], kept[i] = sub(lease[2], 13), lease[2] end
  local step, first, last = 1, 1, #kept
  if backwards then step, first, last = -1, #kept, 1 end
  for i = first, last, step do
    if (i - first) % 500 == 0 then
      local some = {}
      for k = i, i + 499 * step, step do some[#some + 1] = ids[k] end
      E.know(some)
    end
    local j = E.peek(ids[i])
    -- One whose life cannot be read is shown where its record says.
    if j and (j.queue and E.queue(j.queue) and j.queue or E.head(j) and j.head_queue) == q.id then
      if #found == limit then
        more = true
        return
      end
      found[#found + 1] = { kept[i], ids[i], j.lane or j.head_lane }
    end
  end
end
local function walk_ended()
  local lists = {}
  for i, kept in ipairs({ '0', '1' }) do
    local prefix = E.enc(q.id) .. state .. kept
    lists[i] = {}
    for k, member in ipairs(stretch(E.ENDED, prefix, after ~= '' and prefix .. after or nil, limit)) do
      lists[i][k] = sub(member, #prefix + 1)
    end
  end
  more = #lists[1] + #lists[2] >= limit
  for i, place in ipairs(E.merge(lists[1], lists[2], limit, backwards)) do
    local lane_id, id_at = E.dec(place, 25)
    found[i] = { place, sub(place, id_at), lane_id }
  end
end

if state == 's' then
  walk_scheduled()
elseif state == 'r' then
  walk_ready()
elseif state == 'a' then
  walk_active()
else
  walk_ended()
end

-- What is only read costs less than what is written.
E.RECORD_BYTES = 8 * E.RECORD_BYTES
local answer = { '', after, 0 }
-- Reads some jobs and answers them. Payloads may be large, and most callers do not need them.
local function add(some)
  local ids, notes = {}, {}
  for i, item in ipairs(some) do ids[i], notes[i] = item[2], item[2] .. ':f' end
  local records, lives, failures = E.hmget(JOBS, ids), E.hmget(LIFE, ids), E.hmget(E.EXTRA, notes)
  for i, item in ipairs(some) do
    local record, n = records[i], #answer
    E.count_record(record)
    E.count_record(failures[i])
    if record and not whole then record = match(record, '^[^\n]*\n[^\n]*\n') or record end
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4], answer[n + 5] = item[1], item[2], record, lives[i], failures[i]
  end
end
local looked_at, size, some = 0, 1, {}
for i, item in ipairs(found) do
  if not wanted or wanted[item[3]] then some[#some + 1] = item end
  if #some == size or i == #found then
    local before = E.work
    add(some)
    looked_at, size, some = i, E.next_slice(size, E.work - before), {}
    if E.is_spent() then break end
  end
end
-- What is left is looked at by the next call.
if looked_at < #found then more = true end
answer[1], answer[3] = more and '1' or '0', looked_at
if looked_at > 0 then answer[2] = found[looked_at][1] end
return answer
