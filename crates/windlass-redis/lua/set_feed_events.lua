-- Sets how many events the feed keeps at least, and forgets some of the oldest entries that are beyond it.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; events
-- Answers `done`, or `more` when older entries are left: to be called again
-- Bounds  8,192 entries are forgotten

local events = E.num()
-- Reads the counters, and with them the layout.
local total = E.counter(6)
E.hput(META, 'feed_events', E.int(events))
E.settle_all()
return E.trim_feed(total) and 'more' or 'done'
