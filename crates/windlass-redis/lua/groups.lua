-- One page of the groups of a queue, by name.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; queue, the name to go on after or nothing, limit
-- Answers `missing`; or `ok`, the time, the settings of the queue, and the record of each group
-- Bounds  limit

local name, after, limit = E.arg(), E.arg(), E.num()
local q = E.find_queue(name)
if not q then return { 'missing' } end
local prefix = E.enc(q.id)
local from = after ~= '' and E.after_all(prefix .. after .. '\n') or '[' .. prefix
local ids = {}
for i, member in ipairs(call('ZRANGEBYLEX', E.GNAMES, from, E.after_all(prefix), 'LIMIT', 0, limit)) do
  ids[i] = match(member, '\n(%d+)$')
end
local answer = { 'ok', E.int(now), call('HGET', META, 's' .. q.id) or '' }
for _, record in ipairs(E.hmget(E.GROUPS, ids)) do answer[#answer + 1] = record or '' end
return answer
