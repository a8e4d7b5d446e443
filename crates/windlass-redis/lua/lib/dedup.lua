-- Dedup keys: who holds one, and what happens when its job ends.
--
-- DEDUP  <key>  owner, until, sticky, the job that waits behind the owner
--
-- A key is freed only by the job that holds it. It is held until its job ends, or until its time runs out, whichever is
-- earlier; a throttle's key is held until its time runs out, whatever becomes of the job.

local key_cache = {}
local function key_row(key)
  local row = key_cache[key]
  if row == nil then
    local owner, till, sticky, successor = match(call('HGET', E.DEDUP, key) or '', '^(%S+) (%S+) ([01]) (%S+)$')
    row = owner and { owner = owner, till = E.opt(till), sticky = sticky == '1', successor = successor ~= '-' and successor or nil }
      or false
    key_cache[key] = row
  end
  return row or nil
end
local function put_key(key, row)
  key_cache[key] = row or false
  if row then
    E.hput(E.DEDUP, key, row.owner .. ' ' .. (row.till and E.int(row.till) or '-') .. ' ' .. (row.sticky and 1 or 0) .. ' '
      .. (row.successor or '-'))
  else
    E.hput(E.DEDUP, key, false)
  end
  E.zput(E.DEDUP_AT, key, row and row.till or false)
end
E.key_row, E.put_key = key_row, put_key

-- The holder of a key, unless its time has run out. A job that waits behind the holder keeps the key held, or nobody
-- would let that job go ahead.
local function held_key(key)
  local row = key_row(key)
  if row and (row.successor or not row.till or row.till > now) then return row end
  return nil
end
-- The state of a job that has not ended. One that cannot be read is set aside, and has.
local function live_state(id)
  local j = E.readable(id)
  local live = j and not E.has_flag(j, 'q') and (j.state == 's' or j.state == 'r' or j.state == 'a')
  return live and j.state or nil
end

-- Gives a key to the job that waits behind its holder, and lets that job go ahead; frees it when there is none.
local function hand_over(key, row)
  local following = row.successor and E.readable(row.successor)
  local readable = following and E.head(following)
  -- Only damage can make it anything but a job that waits.
  if not readable or not E.is_held(following) then
    put_key(key, nil)
    -- Nothing would promote it any more.
    if following and not readable then E.set_aside(following, 'its record cannot be read') end
    return
  end
  put_key(key, { owner = following.id, till = following.ttl and now + following.ttl or nil, sticky = false })
  -- It may have been asked to wait for a time of its own, too.
  local due = tonumber(match(following.head_due, '^h(%d+)$') or nil)
  if due and due > now then E.reschedule(following, due) else E.promote(following) end
end

-- Who holds a key, and the state of that job; no state for a throttle. A holder that cannot be read is set aside, and one
-- that has ended or is gone holds the key no more: then the job that waits behind it does.
local function live_holder(key)
  -- Each round takes one job off the key, and a key has two at most.
  for _ = 1, 3 do
    local row = held_key(key)
    if not row then return nil end
    if row.sticky then return row end
    local owner, state = row.owner, live_state(row.owner)
    if state then return row, state end
    -- When it was set aside just now, it has given the key away already.
    local left = key_row(key)
    if left and left.owner == owner then hand_over(key, left) end
  end
  return nil
end

-- What a job's key says about it: free, taken, replaces, behind.
function E.key_verdict(job)
  local row, state = live_holder(job.key)
  if not row then return 'free' end
  local yields = job.mode == 'replace' or job.mode == 'keep_last'
  if row.sticky or not yields then return 'taken', row.owner end
  -- Whoever waits behind the holder is the one that has not started, whatever the holder does meanwhile.
  if row.successor then return 'behind', row.owner, row.successor end
  if state ~= 'a' then return 'replaces', row.owner end
  if job.mode == 'keep_last' then return 'behind', row.owner end
  return 'free'
end

-- Gives the key to a job, or makes it the one that waits behind the active holder.
function E.take_key(j, behind)
  local row = behind and key_row(j.key)
  if row then
    row.successor = j.id
    return put_key(j.key, row)
  end
  put_key(j.key, { owner = j.id, till = j.ttl and now + j.ttl or nil, sticky = j.mode == 'throttle' })
end

-- A job has ended or is gone: frees its key, and lets the job behind it go ahead.
function E.free_key(j)
  if not E.head(j) or not j.key then return end
  local row = key_row(j.key)
  if not row then return end
  if row.successor == j.id then
    row.successor = nil
    return put_key(j.key, row)
  end
  if row.owner ~= j.id or row.sticky then return end
  hand_over(j.key, row)
end

-- An ended job comes back: it needs its key again. Answers who has it meanwhile.
function E.retake_key(j)
  local row = live_holder(j.key)
  if row and row.owner ~= j.id and (not row.sticky or live_state(row.owner)) then return row.owner end
  -- A throttle goes on until its time has run out, whoever comes back meanwhile.
  if not (row and row.sticky) then E.take_key(j, false) end
  return nil
end

-- A job that waits behind another has no time of its own.
function E.is_held(j)
  return j.state == 's' and j.due == nil
end
