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
local function state_of(id)
  local j = E.readable(id)
  -- One that was set aside has lost its key with the rest.
  return j and not E.has_flag(j, 'q') and j.state or nil
end

-- What a job's key says about it: free, taken, replaces, behind.
function E.key_verdict(job)
  local row = held_key(job.key)
  if not row then return 'free' end
  if row.sticky then return 'taken', row.owner end
  local state = state_of(row.owner)
  local yields = job.mode == 'replace' or job.mode == 'keep_last'
  if yields and state and row.successor then
    -- Whoever waits behind the holder is the one that has not started, whatever the holder does meanwhile.
    return 'behind', row.owner, row.successor
  end
  if not state then return 'free' end
  if not yields then return 'taken', row.owner end
  if state == 'a' then
    if job.mode == 'keep_last' then return 'behind', row.owner end
    return 'free'
  end
  return 'replaces', row.owner
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
  local following = row.successor and E.readable(row.successor)
  if not following or not E.head(following) then
    put_key(j.key, nil)
    -- It waits for nobody any more, and would wait for ever.
    if following then E.set_aside(following, 'its record cannot be read') end
    return
  end
  put_key(j.key, { owner = following.id, till = following.ttl and now + following.ttl or nil, sticky = false })
  -- It may have been asked to wait for a time of its own, too.
  local due = tonumber(match(following.head_due, '^h(%d+)$') or nil)
  if due and due > now then E.reschedule(following, due) else E.promote(following) end
end

-- An ended job comes back: it needs its key again. Answers who has it meanwhile.
function E.retake_key(j)
  local row = held_key(j.key)
  if row then
    if row.owner ~= j.id then
      local state = state_of(row.owner)
      if state and state ~= 'S' and state ~= 'F' and state ~= 'C' then return row.owner end
    end
    -- A throttle goes on until its time has run out, whoever comes back meanwhile.
    if row.sticky then return nil end
  end
  E.take_key(j, false)
  return nil
end

-- A job that waits behind another has no time of its own.
function E.is_held(j)
  return j.state == 's' and j.due == nil
end
