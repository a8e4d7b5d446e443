-- Leases up to `max` jobs to a worker.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; worker, request id, fingerprint, token, lease in ms, max, handle and worker;
--         count of queues, then of each its name, the version it was planned by, and its lanes that the worker may take
-- Answers `ok`, when there may be more, the token, and of each job its id, its lease and its record;
--         `stale` when the plan is; `reused` or `old <request>` when the request id cannot be answered
-- Bounds  max jobs, max promotions, 64 registrations per queue

local claim = E.read_claim()
local quick = E.report_quick(claim, nil)
if quick then return quick end
long_way()
local refused = E.check_claim(claim)
if refused then return { refused } end
E.claim(claim)
E.finish()
return E.claimed(claim, { 'ok' })
