-- The writes of a step. It changes objects in Lua and writes at its end (`flush`). Indexes that it reads again after it
-- has changed them are written first (`settle`).

-- `-` stands for nothing.
function E.opt(text)
  if text == '-' then return nil end
  return tonumber(text)
end
function E.or_dash(value)
  if value == nil then return '-' end
  return value
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
-- The place of a job: priority, then sequence; last in first out goes before first in first out.
function E.place(priority, seq, lifo)
  return fmt('%04x%012x', priority + 32768, lifo and E.MIDDLE - seq or E.MIDDLE + seq)
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

-- Variadic writes that wait, by key: for those who have made their lists already.
E.late = {}
-- Writes what waits for one sorted set.
function E.settle_late(key)
  local writes = E.late[key]
  E.late[key] = nil
  for _, first in ipairs({ true, false }) do
    for _, write in ipairs(writes) do
      if write[1] == 'ZADD' and first then
        E.zadd(key, write[2])
      elseif (write[1] == 'ZADD' or write[1] == 'HSET') == first then
        E.many(write[1], key, write[2])
      end
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
  if n > 0 then E.zadd(key, adds) end
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
-- Writes all that waits for sorted sets and hashes.
function E.settle_all()
  for key in pairs(E.zsets) do E.settle(key) end
  for key in pairs(E.hashes) do E.settle_hash(key) end
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
