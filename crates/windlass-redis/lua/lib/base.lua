-- Time, numbers, and the writes of a step.
--
-- Every script is one atomic step. It reads what it needs, changes objects in Lua, and writes at its end (`flush`), so
-- that a script that fails has changed nothing. Indexes that a step reads again after it has changed them are written
-- first (`settle`).

local call, fmt, concat, floor = redis.call, string.format, table.concat, math.floor
local sub, match, gmatch, char, byte = string.sub, string.match, string.gmatch, string.char, string.byte
local min, max = math.min, math.max

-- Keys come in one order in every script; a script that needs fewer is given the first of them.
-- What the parts of a script share is in one table: a closure that catches many names costs more than it does.
local E = {}
local META, JOBS, READY, LIFE = KEYS[1], KEYS[2], KEYS[3], KEYS[10]
E.RING, E.GROUPS, E.MINUTES, E.FEED, E.BELLS, E.IDLE = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
E.SCHED, E.WAKE, E.LEASES, E.CLAIMS, E.EXTRA, E.ENDED, E.WATCH, E.REMOVABLE, E.CANCELLING =
  KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18], KEYS[19]
E.DEDUP, E.DEDUP_AT, E.GNAMES, E.PARKED, E.LOGS, E.TRASH, E.WORKERS, E.SCHEDULES, E.TICKS =
  KEYS[20], KEYS[21], KEYS[22], KEYS[23], KEYS[24], KEYS[25], KEYS[26], KEYS[27], KEYS[28]

-- The store's clock. ARGV[1] is empty but in tests, which set it.
local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
end
-- Channels of this store's bells begin like this; how to publish depends on the topology.
E.BELL, E.PUBLISH = ARGV[2], ARGV[3]
E.at = 3

-- The next argument, and the next one as a number.
function E.arg()
  E.at = E.at + 1
  return ARGV[E.at]
end
function E.num()
  E.at = E.at + 1
  return tonumber(ARGV[E.at])
end
-- `-` stands for nothing.
function E.opt(text)
  if text == '-' then return nil end
  return tonumber(text)
end
function E.or_dash(value)
  if value == nil then return '-' end
  return value
end

-- Whole numbers as text: Lua itself writes 15 digits as 1e+15.
function E.int(n)
  if n < 1e14 then return n .. '' end
  return fmt('%.0f', n)
end
-- A number whose text sorts like the number: its length, then its digits.
function E.enc(n)
  local h = fmt('%x', n)
  return char(96 + #h) .. h
end
-- Reads such a number at `from`; answers it and where it ends. What is damaged is nil, and ends behind the text.
function E.dec(text, from)
  local len = (byte(text, from) or 0) - 96
  local n = len > 0 and len <= 13 and tonumber(sub(text, from + 1, from + len), 16)
  if not n then return nil, #text + 1 end
  return n, from + len + 1
end
-- A whole number from 0 to `most`; nil for everything else.
function E.upto(most, text)
  local n = #text <= 16 and tonumber(text)
  return n and n >= 0 and n <= most and n or nil
end
E.U32 = 4294967295
function E.hex12(n)
  return fmt('%012x', n)
end
E.MIDDLE = 2 ^ 46
-- The place of a job: priority, then sequence; last in first out goes before first in first out.
function E.place(priority, seq, lifo)
  return fmt('%04x%012x', priority + 32768, lifo and E.MIDDLE - seq or E.MIDDLE + seq)
end
-- The text after `text` in every order that we use.
function E.after_all(prefix)
  return '(' .. prefix .. '\255'
end

-- Writes that wait for the end of the step: by key, then member or field; false removes it.
E.zsets, E.hashes = {}, {}
function E.zput(key, member, score)
  local set = E.zsets[key]
  if not set then
    set = {}
    E.zsets[key] = set
  end
  set[member] = score
end
function E.hput(key, field, value)
  local hash = E.hashes[key]
  if not hash then
    hash = {}
    E.hashes[key] = hash
  end
  hash[field] = value
end

-- Calls a variadic command in bounded pieces: Lua cannot unpack more than some thousand values.
E.PIECE = 4000
function E.many(command, key, list)
  local n = #list
  for from = 1, n, E.PIECE do
    call(command, key, unpack(list, from, min(from + E.PIECE - 1, n)))
  end
end
-- Reads many fields of a hash, in order; `piece` at a time where they may be large.
function E.hmget(key, fields, piece)
  local n = #fields
  piece = piece or E.PIECE
  if n == 0 then return {} end
  if n <= piece then return call('HMGET', key, unpack(fields)) end
  local all = {}
  for from = 1, n, piece do
    local to = min(from + piece - 1, n)
    local part = call('HMGET', key, unpack(fields, from, to))
    for i = 1, to - from + 1 do all[from + i - 1] = part[i] end
  end
  return all
end

-- Variadic writes that wait, by key: for those who have made their lists already.
E.late = {}
E.ZEROS = { [0] = '' }
for i = 1, 12 do E.ZEROS[i] = E.ZEROS[i - 1] .. '0' end

-- Writes what waits for one sorted set.
function E.settle_late(key)
  local writes = E.late[key]
  E.late[key] = nil
  for _, first in ipairs({ true, false }) do
    for _, write in ipairs(writes) do
      if (write[1] == 'ZADD' or write[1] == 'HSET') == first then E.many(write[1], key, write[2]) end
    end
  end
end
function E.settle(key)
  if E.late[key] then E.settle_late(key) end
  local set = E.zsets[key]
  if not set then return end
  E.zsets[key] = nil
  local adds, gone, n, m = {}, {}, 0, 0
  for member, score in pairs(set) do
    if score then
      adds[n + 1], adds[n + 2] = score, member
      n = n + 2
    else
      m = m + 1
      gone[m] = member
    end
  end
  -- What is added comes first: while a slot moves, a key that a script has emptied is a key that it may not touch again.
  if n > 0 then E.many('ZADD', key, adds) end
  if m > 0 then E.many('ZREM', key, gone) end
end
function E.settle_hash(key)
  local hash = E.hashes[key]
  if not hash then return end
  E.hashes[key] = nil
  local sets, gone, n, m = {}, {}, 0, 0
  for field, value in pairs(hash) do
    if type(value) == 'table' then
      -- The jobs of a group in a lane: changed often in one step, so their text is made here.
      value = value.ready > 0 and value.ready .. ' ' .. (value.vtime and E.int(value.vtime) or '-')
    end
    if value then
      sets[n + 1], sets[n + 2] = field, value
      n = n + 2
    else
      m = m + 1
      gone[m] = field
    end
  end
  if n > 0 then E.many('HSET', key, sets) end
  if m > 0 then E.many('HDEL', key, gone) end
end
-- A range by text; writes what waits for it first.
function E.lex(key, from, to, limit)
  if E.zsets[key] or E.late[key] then E.settle(key) end
  return call('ZRANGEBYLEX', key, from, to, 'LIMIT', 0, limit)
end
function E.lex_back(key, from, to, limit)
  if E.zsets[key] or E.late[key] then E.settle(key) end
  return call('ZREVRANGEBYLEX', key, from, to, 'LIMIT', 0, limit)
end
-- A range by score up to `upto`.
function E.by_score(key, upto, limit)
  if E.zsets[key] or E.late[key] then E.settle(key) end
  return call('ZRANGEBYSCORE', key, '-inf', upto, 'LIMIT', 0, limit)
end

-- The layout of what is stored; src/scripts.rs says what it means.
E.LAYOUT = 1
-- Counters of the store: read once, written at the end.
E.counters, E.counters_dirty = nil, false
function E.counter(i)
  if not E.counters then
    local r = call('HMGET', META, 'seq', 'queue', 'lane', 'group', 'feed', 'events', 'layout')
    -- Whoever was connected when a newer version took over must not go on by rules that do not hold any more.
    if (tonumber(r[7] or nil) or 0) > E.LAYOUT then error({ err = 'LAYOUT ' .. r[7] }) end
    if not r[7] then E.hput(META, 'layout', E.LAYOUT) end
    E.counters = {}
    for k = 1, 6 do E.counters[k] = tonumber(r[k] or 0) end
  end
  return E.counters[i]
end
function E.bump(i, by)
  local n = E.counter(i) + (by or 1)
  E.counters[i] = n
  E.counters_dirty = true
  return n
end
E.SEQ, E.QUEUE_N, E.LANE_N, E.GROUP_N, E.FEED_N, E.EVENT_N = 1, 2, 3, 4, 5, 6
