-- Makes or changes a schedule; its history is kept.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; name, next tick or `-`, `1` when it is paused, the event as JSON, the schedule as JSON,
--         the first line of the stored schedule for which the next tick was worked out, or nothing
-- Answers `ok`, or `stale` when the stored schedule has changed since
-- Bounds  none needed
--
-- SCHEDULES  <name>  revision, next tick, paused, last tick, last job, jobs fired; then the schedule as JSON

local name, tick, paused, event, text, known = E.arg(), E.arg(), E.arg(), E.arg(), E.arg(), E.arg()
local stored = call('HGET', E.SCHEDULES, name) or ''
if known ~= (match(stored, '^[^\n]*') or '') then return 'stale' end
local last_tick, last_job, fired = match(stored, '^%d+ %S+ [01] (%S+) (%S+) (%d+)\n')
local history = (last_tick or '-') .. ' ' .. (last_job or '-') .. ' ' .. (fired or '0')
E.hput(E.SCHEDULES, name, E.int(E.bump(E.SEQ)) .. ' ' .. tick .. ' ' .. paused .. ' ' .. history .. '\n' .. text)
E.zput(E.TICKS, name, paused == '0' and E.opt(tick) or false)
E.note_json(event)
E.finish()
return 'ok'
