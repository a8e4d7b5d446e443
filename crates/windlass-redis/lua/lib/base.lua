-- Time, numbers, and what every way needs.
--
-- Every script is one atomic step. It reads what it needs and writes at its end, so that a script that fails has changed
-- nothing.

local call, fmt, concat, floor = redis.call, string.format, table.concat, math.floor
local sub, match, gmatch, char, byte, find = string.sub, string.match, string.gmatch, string.char, string.byte, string.find
local min, max = math.min, math.max
local KEYS, ARGV = KEYS, ARGV

-- Keys come in one order in every script; a script that needs fewer is given the first of them.
-- What the parts of a script share is in one table: a closure that catches many names costs more than it does.
local META, JOBS, READY, LIFE = KEYS[1], KEYS[2], KEYS[3], KEYS[10]
local E = {
  RING = KEYS[4], GROUPS = KEYS[5], MINUTES = KEYS[6], FEED = KEYS[7], BELLS = KEYS[8], IDLE = KEYS[9], SCHED = KEYS[11],
  WAKE = KEYS[12], LEASES = KEYS[13], CLAIMS = KEYS[14], EXTRA = KEYS[15], ENDED = KEYS[16], WATCH = KEYS[17],
  REMOVABLE = KEYS[18], CANCELLING = KEYS[19], DEDUP = KEYS[20], DEDUP_AT = KEYS[21], GNAMES = KEYS[22], PARKED = KEYS[23],
  LOGS = KEYS[24], TRASH = KEYS[25], WORKERS = KEYS[26], SCHEDULES = KEYS[27], TICKS = KEYS[28], RUNS = KEYS[29], INBOX = KEYS[30],
  RUN_READY = KEYS[31], RUN_WAKE = KEYS[32], HISTORY = KEYS[33], RUN_LIST = KEYS[34], RUN_REMOVABLE = KEYS[35],
  -- Channels of this store's bells begin like this; how to publish depends on the topology.
  BELL = ARGV[2], PUBLISH = ARGV[3],
  -- The last argument that was read.
  at = 3,
  -- Lua cannot unpack more than some thousand values.
  PIECE = 4000,
  -- Places of jobs lie around this one.
  MIDDLE = 2 ^ 46,
  -- No time, in a life.
  NO_TIME = '---------------',
  -- How far one job of weight 1 moves a group's virtual time.
  TURN = 2 ^ 20,
  LONG = ('-'):rep(65),
  -- Work that the step has done, and how much it may do before it leaves the rest to the next call: a change of a plain job is 1,
  -- of another one 3, 4 KiB of a record are 1. Measured on Redis 7.0, 384 took up to 21 ms. Time itself cannot be asked for: from
  -- Redis 7.2 on it stands still in a script.
  work = 0, WORK_MAX = 384, RECORD_BYTES = 4096,
  -- Work of one field that a variadic command removes.
  FIELD_WORK = 1 / 16,
  -- Jobs that are read at once, at most: their records may be large.
  SLICE = 16,
}
-- The store's clock. ARGV[1] is empty but in tests, which set it.
local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
end

-- The next argument, and the next one as a number.
function E.arg()
  E.at = E.at + 1
  return ARGV[E.at]
end
function E.num()
  E.at = E.at + 1
  return tonumber(ARGV[E.at])
end
-- Whole numbers as text: Lua itself writes 15 digits as 1e+15.
local ints = {}
function E.int(n)
  local text = ints[n]
  if not text then
    text = n < 1e14 and n .. '' or fmt('%.0f', n)
    ints[n] = text
  end
  return text
end
-- A number whose text sorts like the number: its length, then its digits.
local encs = {}
function E.enc(n)
  local text = encs[n]
  if not text then
    local h = fmt('%x', n)
    text = char(96 + #h) .. h
    encs[n] = text
  end
  return text
end
function E.hex12(n)
  return fmt('%012x', n)
end
-- The text after `text` in every order that we use.
function E.after_all(prefix)
  return '(' .. prefix .. '\255'
end

-- Whether a text comes before another one by its bytes. `<` would compare two texts by the locale of the server's host: where
-- that is Danish, `aa` comes last, and where it is Czech, digits come behind letters. So `<` compares numbers only.
function E.is_before(a, b)
  for i = 1, max(#a, #b), 4 do
    local a1, a2, a3, a4 = byte(a, i, i + 3)
    local b1, b2, b3, b4 = byte(b, i, i + 3)
    if a1 ~= b1 then return (a1 or -1) < (b1 or -1) end
    if a2 ~= b2 then return (a2 or -1) < (b2 or -1) end
    if a3 ~= b3 then return (a3 or -1) < (b3 or -1) end
    if a4 ~= b4 then return (a4 or -1) < (b4 or -1) end
  end
  return false
end
-- The two numbers of a job's place, priority and position, which are in the order of places when they are compared one after
-- the other. What cannot be read is 0.
function E.place_numbers(place)
  return tonumber(sub(place, 1, 4), 16) or 0, tonumber(sub(place, 5, 16), 16) or 0
end

-- Whether the step has done as much as one step may do.
function E.is_spent()
  return E.work >= E.WORK_MAX
end

-- Counts what was read of a record.
function E.count_record(record)
  if record then E.work = E.work + #record / E.RECORD_BYTES end
end
-- How many jobs to read at once, after so many whose records were so much work: one when they are large, else twice as many.
function E.next_slice(size, work)
  if work > 4 * size then return 1 end
  return min(2 * size, E.SLICE)
end

-- Calls a variadic command in bounded pieces.
function E.many(command, key, list)
  local n = #list
  for from = 1, n, E.PIECE do
    call(command, key, unpack(list, from, min(from + E.PIECE - 1, n)))
  end
end
-- Adds to a sorted set. A small one is a list, and to fill that is slow: an entry that is too long for it makes it a tree.
function E.zadd(key, list)
  local many = #list >= 32
  if many then call('ZADD', key, '+inf', E.LONG) end
  E.many('ZADD', key, list)
  if many then call('ZREM', key, E.LONG) end
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

-- The layout of what is stored; src/scripts.rs says what it means.
E.LAYOUT = 2
-- A time in a life.
function E.time15(t)
  return t and fmt('%015d', t) or E.NO_TIME
end
