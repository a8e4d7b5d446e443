-- Looks which keys of a store exist, and which do not although what `meta` counts says that they must.
--
-- KEYS    all of the store, in the one order
-- ARGV    names of the keys, their types (h hash, z sorted set, x stream, l list), names that may exist without `meta`
-- Answers names that exist, names that are missing
-- Bounds  one round per key, 1,000 queues
local call, gmatch = redis.call, string.gmatch
local QUEUES_MAX = 1000

local function has_entries(kind, key)
  if kind == 'h' then return call('HLEN', key) > 0 end
  if kind == 'z' then return call('ZCARD', key) > 0 end
  if kind == 'l' then return call('LINDEX', key, 0) ~= false end
  return #call('XRANGE', key, '-', '+', 'COUNT', 1) > 0
end

local there, present, missing, without_meta = {}, {}, {}, {}
local i = 0
for name in gmatch(ARGV[1], '%S+') do
  i = i + 1
  if has_entries(string.sub(ARGV[2], i, i), KEYS[i]) then there[name], present[#present + 1] = true, name end
end
for name in gmatch(ARGV[3], '%S+') do without_meta[name] = true end
local function must_exist(name)
  if not there[name] then missing[#missing + 1] = name end
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
  -- One job whose record or index entry is lost is set aside when it is met. A lost container is another matter.
  if scheduled > 1 then must_exist('scheduled') end
  if ready > 1 then must_exist('ready') end
  if active > 1 then must_exist('leases') end
  if ended > 1 then must_exist('ended') end
  if active + ended > 1 then must_exist('life') end
  if scheduled + ready + active + ended > 1 then must_exist('jobs') end
  if there['ticks'] then must_exist('schedules') end
  if there['run_list'] then must_exist('runs') end
  if there['runs'] then must_exist('run_list') end
else
  -- Without counters `meta` holds at most the cursors of the pruning.
  for _, name in ipairs(present) do
    if name ~= 'meta' and not without_meta[name] then missing[1] = 'meta' end
  end
end
return { table.concat(present, ' '), table.concat(missing, ' ') }
