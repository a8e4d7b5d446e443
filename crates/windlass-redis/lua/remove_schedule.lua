-- Removes a schedule.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; name, the event as JSON
-- Answers 1, or 0 when there was none
-- Bounds  none needed

local name, event = E.arg(), E.arg()
-- A tick whose schedule is lost is removed as well.
if call('HEXISTS', E.SCHEDULES, name) == 0 and call('ZREM', E.TICKS, name) == 0 then return 0 end
E.hput(E.SCHEDULES, name, false)
E.zput(E.TICKS, name, false)
E.note_json(event)
E.finish()
return 1
