-- Reads on in the feed.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; the place to go on after or `-` for the end alone, max
-- Answers the number of the last entry, that of the oldest one, then the entries
-- Bounds  max

local after, limit = E.arg(), E.num()
local last = call('HGET', META, 'feed') or '0'
if after == '-' then return { last } end
local oldest = call('XRANGE', E.FEED, '-', '+', 'COUNT', 1)[1]
local begin = oldest and match(oldest[1], '^%d+') or E.int(tonumber(last) + 1)
local answer = { last, begin }
if tonumber(after) > tonumber(last) or tonumber(after) + 1 < tonumber(begin) then return answer end
for i, entry in ipairs(call('XRANGE', E.FEED, '(' .. after .. '-0', '+', 'COUNT', limit)) do answer[i + 2] = entry end
return answer
