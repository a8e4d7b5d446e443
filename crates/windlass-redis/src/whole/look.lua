-- Looks which keys of a store exist, and which do not although what `meta` counts, or what is in other keys, says that they must.
--
-- KEYS    all of the store, in the one order
-- ARGV    names of the keys, their types (h hash, z sorted set, x stream, l list), names that may exist without `meta`
-- Answers names that exist, names that are missing
-- Bounds  one round per key, 1,000 queues, 100 jobs that were set aside
local call, gmatch = redis.call, string.gmatch
local QUEUES_MAX, ASIDE_MAX = 1000, 100
-- The flags in the life of an ended job, as lua/lib/jobs.lua writes it.
local FLAGS = '^F %a %S+ %S %x+ %S+ %S+ %x+ %x+ %d+ %d+ %d+ %d+ %d+ [01] %x+ %x+ %S+ %x+ (%S+)'
-- A job is in one of these, by its state.
local INDEXES = { 'scheduled', 'ready', 'leases', 'ended' }

local function has_entries(kind, key)
  if kind == 'h' then return call('HLEN', key) > 0 end
  if kind == 'z' then return call('ZCARD', key) > 0 end
  if kind == 'l' then return call('LINDEX', key, 0) ~= false end
  return #call('XRANGE', key, '-', '+', 'COUNT', 1) > 0
end

local there, present, missing, without_meta, key_of = {}, {}, {}, {}, {}
local i = 0
for name in gmatch(ARGV[1], '%S+') do
  i = i + 1
  key_of[name] = KEYS[i]
  if has_entries(string.sub(ARGV[2], i, i), KEYS[i]) then there[name], present[#present + 1] = true, name end
end
for name in gmatch(ARGV[3], '%S+') do without_meta[name] = true end
local function must_exist(name)
  if not there[name] then missing[#missing + 1] = name end
end

local function size(name, command)
  return call(command, key_of[name])
end

-- How many of the first failed jobs of each queue were set aside, which their lives say.
local function set_aside(queue_ids)
  local count, left = 0, ASIDE_MAX
  for id in gmatch(queue_ids, '%d+') do
    local digits = string.format('%x', id)
    local prefix = string.char(96 + #digits) .. digits .. 'F'
    local members = left > 0 and call('ZRANGEBYLEX', key_of.ended, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, left) or {}
    left = left - #members
    for _, member in ipairs(members) do
      -- Behind the prefix: a digit, two numbers of twelve digits, the lane with the length of its number in front, the id.
      local lane_at = #prefix + 26
      local id_at = lane_at + 1 + (string.byte(member, lane_at) or 96) - 96
      local life = call('HGET', key_of.life, string.sub(member, id_at))
      local flags = string.match(life or '', FLAGS)
      if flags and string.find(flags, 'q', 1, true) then count = count + 1 end
    end
  end
  return count
end

local meta = call('HMGET', KEYS[1], 'layout', 'seq', 'feed', 'queues')
if meta[1] or meta[2] or meta[3] then
  local counts, queues = { 0, 0, 0, 0, 0, 0 }, 0
  for id in gmatch(meta[4] or '', '%d+') do
    queues = queues + 1
    local texts = { string.match(queues <= QUEUES_MAX and call('HGET', KEYS[1], 'q' .. id) or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ') }
    for state, text in ipairs(texts) do counts[state] = counts[state] + tonumber(text) end
  end
  local scheduled, ready, active = counts[1], counts[2], counts[3]
  local ended = counts[4] + counts[5] + counts[6]
  if tonumber(meta[3] or 0) > 0 then must_exist('feed') end
  if queues > 0 then must_exist('groups') end
  -- One entry that is lost is damage of that entry. A lost container is another matter.
  --
  -- A lease does not name its queue. When a job has lost its record and its life, its queue goes on counting it as active, so active
  -- jobs are counted by their leases, and an index is missed only when the records of the jobs that should be in it exist.
  local leases, indexed = size('leases', 'ZCARD'), 0
  for _, name in ipairs(INDEXES) do indexed = indexed + size(name, 'ZCARD') end
  local records_more = size('jobs', 'HLEN') - indexed
  for i, count in ipairs({ scheduled, ready, active, ended }) do
    if count > 1 and records_more > 1 then must_exist(INDEXES[i]) end
  end
  if leases + ended > 1 then must_exist('life') end
  -- Jobs that were set aside may have lost their records before. When all that is left are such jobs, their records are not missed.
  local with_records = scheduled + ready + leases + ended
  if with_records > 1 and not there.jobs then with_records = with_records - set_aside(meta[4] or '') end
  if with_records > 1 then must_exist('jobs') end
  if size('ticks', 'ZCARD') > 1 then must_exist('schedules') end
  -- A run has two members in the list and three to five fields.
  if size('run_list', 'ZCARD') > 2 then must_exist('runs') end
  if size('runs', 'HLEN') > 5 then must_exist('run_list') end
else
  -- Without counters `meta` holds at most the cursors of the pruning.
  for _, name in ipairs(present) do
    if name ~= 'meta' and not without_meta[name] then missing[1] = 'meta' end
  end
end
return { table.concat(present, ' '), table.concat(missing, ' ') }
