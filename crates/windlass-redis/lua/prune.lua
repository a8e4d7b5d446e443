-- Removes what retention lets go: ended jobs, ended runs, dedup keys, old minutes, memos of workers, dead workers, logs in the bin.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; max, minutes kept, how long workers are kept in ms; count of rules, then of each
--         its queue by name, state, age in ms or `-`, count or `-`
-- Answers how many were handled, and `1` when more is left of what could have been handled now
-- Bounds  max of each, and the work of one step; of logs 4,000 lines

-- Removing a run touches twelve fields and members; those of its history are counted where they are removed.
local RUN_WORK = 3
local RUNS_MAX = E.WORK_MAX / RUN_WORK
local limit, minutes_kept, worker_ms = E.num(), E.num(), E.num()
local handled = 0

local function remove_all(ids, members, key, queue_id, state)
  handled = handled + E.each(ids, function(i, id)
    local j = E.readable(id, queue_id)
    if j and (key == E.REMOVABLE and j.remove_at or key == E.ENDED and E.ended_member(j) == members[i]) then
      E.remove(j, 'remove')
    elseif key == E.ENDED then
      E.work = E.work + 1
      E.stray(E.ENDED, members[i], queue_id, state)
    else
      E.work = E.work + 1
      E.zput(key, members[i], false)
    end
  end)
end

-- Jobs that say themselves how long they are kept.
local found = E.by_score(E.REMOVABLE, now, min(limit, E.WORK_MAX))
local ids = {}
for i, member in ipairs(found) do ids[i] = sub(member, 13) end
remove_all(ids, found, E.REMOVABLE)

-- Ended runs that were kept long enough.
local runs = handled < limit and not E.is_spent() and E.by_score(E.RUN_REMOVABLE, now, min(limit - handled, RUNS_MAX)) or {}
E.work = E.work + #runs * RUN_WORK
E.know_runs(runs)
for _, id in ipairs(runs) do
  local r = E.run(id)
  -- One that cannot be read and does not know its place stays, to be looked at and removed by hand.
  if r and (r.broken and r.seq or r.at_remove and r.at_remove <= now) then
    E.forget_run(r)
  else
    E.zput(E.RUN_REMOVABLE, id, r and not r.broken and r.at_remove and E.int(r.at_remove) or false)
  end
end
handled = handled + #runs

local function ids_of(members, prefix)
  local list = {}
  for i, member in ipairs(members) do
    local _, id_at = E.dec(member, #prefix + 25)
    list[i] = sub(member, id_at)
  end
  return list
end
-- The oldest ended jobs of a queue in one state, those that keep themselves included.
local function oldest(q, state, count)
  local lists = {}
  for i, kept in ipairs({ '0', '1' }) do
    local prefix = E.enc(q.id) .. state .. kept
    lists[i] = E.lex(E.ENDED, '[' .. prefix, E.after_all(prefix), count)
  end
  return E.merge(lists[1], lists[2], count, false, #E.enc(q.id) + 3)
end
for _ = 1, E.num() do
  local name, state, age, count = E.arg(), E.arg(), E.opt(E.arg()), E.opt(E.arg())
  local q = E.find_queue(name)
  if q and handled < limit and not E.is_spent() then
    local over = count and max(q[state] - count, 0) or 0
    if over > 0 then
      local members = oldest(q, state, min(over, limit - handled, E.WORK_MAX))
      remove_all(ids_of(members, E.enc(q.id) .. state .. '0'), members, E.ENDED, q.id, state)
    end
    if age and handled < limit and not E.is_spent() then
      local prefix = E.enc(q.id) .. state .. '0'
      local members = E.lex(E.ENDED, '[' .. prefix, '[' .. prefix .. E.hex12(max(now - age, 0)) .. '~', min(limit - handled, E.WORK_MAX))
      remove_all(ids_of(members, prefix), members, E.ENDED, q.id, state)
    end
  end
end

if handled < limit and not E.is_spent() then
  local keys = E.by_score(E.DEDUP_AT, now, min(limit - handled, E.WORK_MAX))
  handled, E.work = handled + #keys, E.work + #keys
  for _, key in ipairs(keys) do
    local row = E.key_row(key)
    if row and row.successor then
      row.till = nil
      E.put_key(key, row)
    else
      E.put_key(key, nil)
    end
  end
end

local edge = floor(now / 60000) - minutes_kept
for _, q in ipairs(handled < limit and not E.is_spent() and E.all_queues() or {}) do
  -- ends because: every round does some of the work of a step
  while q.minute ~= 0 and q.minute < edge and not E.is_spent() do
    E.hput(E.MINUTES, q.id .. ':' .. E.int(q.minute), false)
    q.minute = q.minute + 1
    E.work = E.work + E.FIELD_WORK
    E.touch_queue(q)
  end
end

-- Looks through a page of a hash, where the last call has stopped, and takes out what is old. While there is more of it, the next
-- call goes on at once.
local function remove_old(key, place, is_old)
  local page = call('HSCAN', key, call('HGET', META, place) or '0', 'COUNT', 100)
  call('HSET', META, place, page[1])
  local gone = 0
  for i = 1, #page[2], 2 do
    if is_old(page[2][i], page[2][i + 1]) then
      E.hput(key, page[2][i], false)
      gone = gone + 1
    end
  end
  handled = handled + gone
  return gone > 0 and page[1] ~= '0'
end
-- Memos and workers of whom nothing was heard.
if handled < limit and not E.is_spent() then
  local more = remove_old(E.CLAIMS, 'memo_cursor', function(field, text)
    local time = sub(field, 1, 1) == 'c' and match(text, '^%d+ %x+ %x+ (%S+)') or match(text, '^(%-?%d+)')
    return now - (tonumber(time) or 0) > worker_ms
  end)
  more = remove_old(E.WORKERS, 'worker_cursor', function(_, text)
    local seen, ttl = match(text, '^%-?%d+ (%-?%d+) (%d+)')
    -- One that cannot be read says nothing to anybody, and is written anew by the next sign of life.
    return not seen or now - tonumber(seen) > max(worker_ms, tonumber(ttl))
  end) or more
  if more then E.work = E.WORK_MAX end
end

-- Logs of jobs and histories of runs that are gone, as many lines and entries as fit into one step.
local ENTRY_LINES = 10
local lines_left = E.is_spent() and 0 or 4000
-- Takes up to so many numbered fields out; answers how many, and where to go on or nil.
local function cut(key, name, from, to, longest)
  -- Nothing is longer; what says so would never come to its end.
  if to - from > longest then to = from end
  local last = min(to, from + lines_left)
  local fields = {}
  for k = from, last - 1 do fields[#fields + 1] = name .. ':' .. E.int(k) end
  if #fields > 0 then E.many('HDEL', key, fields) end
  return last - from, last < to and last or nil
end
-- The same with fields of which nobody knows the numbers: all before one; or everything, message ids included, of a run that is gone.
local function cut_unknown(key, name, before, cursor)
  local is_all = before >= 1e15
  local page = call('HSCAN', key, cursor, 'MATCH', name .. (is_all and '[:#@]*' or ':*'), 'COUNT', 500)
  local fields = {}
  for i = 1, #page[2], 2 do
    local field = page[2][i]
    if is_all or (tonumber(sub(field, #name + 2)) or 0) < before then fields[#fields + 1] = field end
  end
  if #fields > 0 then E.many('HDEL', key, fields) end
  return 500, page[1] ~= '0' and page[1] or nil
end
-- Takes out message ids of a run that is gone, by their places.
local function cut_ids(run, from, to)
  local slots, fields = {}, {}
  for k = from, min(to, from + floor(lines_left / 2), 1000) - 1 do slots[#slots + 1] = run .. '@' .. E.int(k) end
  for i, id in ipairs(E.hmget(E.INBOX, slots)) do
    fields[#fields + 1] = slots[i]
    if id then fields[#fields + 1] = run .. '#' .. id end
  end
  if #fields > 0 then E.many('HDEL', E.INBOX, fields) end
  return #fields, #slots > 0 and from + #slots < to and from + #slots or nil
end
local OF_RUNS = { i = E.INBOX, h = E.HISTORY }
-- Does a bit of what an entry of the bin says; answers how much that was, and what is left of the entry.
local function empty(entry)
  local row, from, to = match(entry, '^(%x+) (%d+) (%d+)$')
  if row then
    local gone, following = cut(E.LOGS, row, E.upto(1e15, from) or 0, E.upto(1e15, to) or 0, 2000000)
    return gone, following and row .. ' ' .. E.int(following) .. ' ' .. to
  end
  local of_ids, slot, slots = match(entry, '^m (%x+) (%d+) (%d+)$')
  if of_ids then
    local gone, following = cut_ids(of_ids, E.upto(1000, slot) or 0, E.upto(1000, slots) or 0)
    return gone, following and 'm ' .. of_ids .. ' ' .. E.int(following) .. ' ' .. slots
  end
  local kind, unknown, run, first, last = match(entry, '^([ih])(%*?) (%x+) (%d+) (%d+)$')
  if not kind or #run ~= 12 then return 0, nil end
  if unknown == '' then
    local gone, following = cut(OF_RUNS[kind], run, E.upto(1e15, first) or 0, E.upto(1e15, last) or 0, 1e7)
    return gone, following and kind .. ' ' .. run .. ' ' .. E.int(following) .. ' ' .. last
  end
  local gone, cursor = cut_unknown(OF_RUNS[kind], run, E.upto(1e15, first) or 1e15, last)
  return gone, cursor and kind .. '* ' .. run .. ' ' .. first .. ' ' .. cursor
end
-- ends because: every round takes an entry out, or uses up what is left
while lines_left > 0 do
  local entry = call('LINDEX', E.TRASH, 0)
  if not entry then break end
  local gone, left = empty(entry)
  -- Each entry costs some commands, however few lines it has.
  lines_left, handled = lines_left - max(gone, ENTRY_LINES), handled + 1
  if left then call('LSET', E.TRASH, 0, left) else call('LPOP', E.TRASH) end
  if lines_left <= 0 then E.work = E.WORK_MAX end
end

-- Those who wait and are gone: looked through a bit at a time.
local waiting_at = call('HGET', META, 'idle_cursor') or '0'
local waiting = call('HSCAN', E.IDLE, waiting_at, 'COUNT', 100)
call('HSET', META, 'idle_cursor', waiting[1])
for i = 1, #waiting[2], 2 do
  local handle = match(waiting[2][i], '^[^/]+')
  if not handle or E.publish(handle, 'here') == 0 then E.forget_idle(waiting[2][i]) end
end

-- What has gone to the bin is emptied by the next call.
if #E.binned > 0 then E.work = E.WORK_MAX end
E.finish()
return { handled, E.is_spent() and '1' or '0' }
