-- Reads lines of a job's log, oldest first.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; id, first line, limit
-- Answers `missing`; or `ok`, the first line's number, the number that the next line will have, and the lines
-- Bounds  limit

local id, from, limit = E.arg(), E.num(), E.num()
local j = E.peek(id)
if not j then return { 'missing' } end
local begin, to = match(call('HGET', E.EXTRA, id .. ':l') or '0 0', '^(%d+) (%d+)$')
begin, to = E.upto(1e15, begin or '0') or 0, E.upto(1e15, to or '0') or 0
local first = max(from, begin)
local fields = {}
for k = first, j.row and min(first + limit, to) - 1 or -1 do fields[#fields + 1] = E.log_of(j) .. ':' .. E.int(k) end
local answer = { 'ok', E.int(first), E.int(to) }
for _, line in ipairs(E.hmget(E.LOGS, fields)) do answer[#answer + 1] = line or '' end
return answer
