-- Looks jobs up.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; ids
-- Answers the time; then of each its record, life, result, progress and failures, or nothing for what is not there. Of the first
--         jobs only when all of them are too much work for one step
-- Bounds  one round per job, and the work of one step

-- What is only read costs less than what is written.
E.RECORD_BYTES = 8 * E.RECORD_BYTES
local answer = { E.int(now) }
local function add(ids)
  local extras = {}
  for i, id in ipairs(ids) do extras[3 * i - 2], extras[3 * i - 1], extras[3 * i] = id .. ':r', id .. ':p', id .. ':f' end
  local records, lives, rest = E.hmget(JOBS, ids), E.hmget(LIFE, ids), E.hmget(E.EXTRA, extras)
  for i = 1, #ids do
    local n, five = #answer, { records[i], lives[i], rest[3 * i - 2], rest[3 * i - 1], rest[3 * i] }
    for k = 1, 5 do
      E.count_record(five[k])
      answer[n + k] = five[k]
    end
  end
end
local size, some = 1, {}
for i = 4, #ARGV do
  some[#some + 1] = ARGV[i]
  if #some == size or i == #ARGV then
    local before = E.work
    add(some)
    size, some = E.next_slice(size, E.work - before), {}
    if E.is_spent() then break end
  end
end
return answer
