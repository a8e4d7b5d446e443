-- Leases runs that have something to do: items in their inbox, a time that has come, or an engine that vanished.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; engine, token, lease in ms, max, handle and engine, a run or `-`, `1` to claim it
--         even if it is stuck, bytes of a segment that comes with its run, kinds
-- Answers `missing` or `corrupt` of a run that was asked for; or `ok`, the time, when there may be more; then of each run its id, its
--         record, `<end of the lease> <up to where its inbox was read> <1 when its time has come> <items taken>`, and its items as
--         in inbox.lua; and, when bytes of segments were asked for, its input or nothing, and the entries of its segment
-- Bounds  max runs, 1,000 items of each; 32 MiB of items, the last run excepted; of segments 4 MiB and 10,000 entries

local engine, token, lease_ms, most, who, wanted = E.arg(), E.arg(), E.num(), E.num(), E.arg(), E.arg()
local even_stuck = E.arg() == '1'
local segment_max, segments_left, entries_left = E.num(), 4194304, 10000
local kinds, serves = {}, {}
for i = E.at + 1, #ARGV do kinds[#kinds + 1], serves[ARGV[i]] = ARGV[i], true end
local answer, count = { 'ok', E.int(now), '-' }, 0

-- The input of a run and the entries of its segment, as far as they come with its claim: not when the last commit was made by this
-- engine, which has them, nor when they are too large.
local function segment_of(r)
  local most_bytes, from = min(segment_max, segments_left), r.segment or 0
  if r.committer == engine or r.history - from > entries_left then return false, {} end
  entries_left = entries_left - (r.history - from)
  local names, size = {}, call('HSTRLEN', E.RUNS, r.id .. ':i')
  for n = from, r.history - 1 do
    -- compares numbers
    if size > most_bytes then break end
    local name = E.numbered(r, n)
    names[#names + 1], size = name, size + call('HSTRLEN', E.HISTORY, name)
  end
  -- compares numbers
  if size > most_bytes then return false, {} end
  local entries = E.hmget(E.HISTORY, names)
  for _, entry in ipairs(entries) do
    -- The engine finds out by reading it.
    if not entry then return false, {} end
  end
  segments_left = segments_left - size
  return call('HGET', E.RUNS, r.id .. ':i'), entries
end

local function hold(r)
  E.count_stall(r)
  r.token, r.engine, r.expires, r.ready = token, engine, now + lease_ms, nil
  E.touch_run(r)
  local n = #answer
  -- Nothing changes it any more in this step.
  r.text = E.run_text(r)
  answer[n + 1], answer[n + 2] = r.id, r.text
  answer[n + 3] = E.int(r.expires) .. ' ' .. E.int(r.upto) .. ' ' .. (r.wake and r.wake <= now and 1 or 0)
    .. ' ' .. E.items_taken(r, r.first)
  answer[n + 4] = r.items
  if segment_max > 0 then answer[n + 5], answer[n + 6] = segment_of(r) end
  count = count + 1
end

if wanted ~= '-' then
  local r = E.run(wanted)
  if not r then return { 'missing' } end
  if r.broken then return { 'corrupt' } end
  local is_wanted = E.run_is_claimable(r) or even_stuck and r.state == 'R'
  if (not r.token or r.expires <= now) and is_wanted and serves[r.kind] then
    E.read_items({ r })
    hold(r)
    E.finish()
  end
  return answer
end

-- Runs whose time has come, or whose engine vanished, by kind; those that cannot be read are set aside.
local woken, more = {}, false
local function wake_runs()
  local found, all = E.wake_runs(most + 1)
  more = all > most
  for _, r in ipairs(found) do
    woken[r.kind] = woken[r.kind] or {}
    table.insert(woken[r.kind], r)
    if not serves[r.kind] then E.ring_runs(r.kind, 1) end
  end
end

-- Leases runs of a kind, in the order in which they got something to do; what stays is left to the next who waits.
local function claim_kind(kind)
  local prefix = kind .. '\n'
  local members = call('ZRANGEBYLEX', E.RUN_READY, '[' .. prefix, E.after_all(prefix), 'LIMIT', 0, most - count + 1)
  local ids = {}
  for i, member in ipairs(members) do ids[i] = sub(member, #prefix + 13) end
  E.know_runs(ids)
  local able = {}
  for i, id in ipairs(ids) do
    local r = E.run(id)
    if not r or r.broken or not r.ready or E.run_ready_member(r) ~= members[i] then
      -- Set aside: it is shown by listings, and nobody can do more about it.
      if not r or r.at_ready ~= members[i] then E.zput(E.RUN_READY, members[i], false) end
    else
      able[#able + 1] = r
    end
  end
  for _, r in ipairs(woken[kind] or {}) do able[#able + 1] = r end
  local mine = {}
  for i = 1, min(#able, most - count) do mine[i] = able[i] end
  E.read_items(mine)
  local held = 0
  for _, r in ipairs(mine) do
    if not r.items then break end
    hold(r)
    held = held + 1
  end
  if held < #able then E.ring_runs(kind, 1) end
end

wake_runs()
local following = call('ZRANGEBYSCORE', E.RUN_WAKE, '(' .. E.int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
for _, kind in ipairs(kinds) do claim_kind(kind) end
local soonest = tonumber(following or nil)
if count > 0 then soonest = min(soonest or math.huge, now + lease_ms) end
if more then soonest = now end
if soonest and soonest < 1e15 then answer[3] = E.int(soonest) end
E.finish()
if who ~= '' then
  local lines = {}
  for i, kind in ipairs(kinds) do lines[i] = '\n' .. kind .. '\n' .. who end
  E.enlist(who, count < most and lines or nil)
end
return answer
