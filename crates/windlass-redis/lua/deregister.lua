-- A worker says that it leaves.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; worker, handle and worker
-- Answers 1
-- Bounds  its entries among those who wait

call('HDEL', E.WORKERS, E.arg())
E.forget_idle(E.arg())
return 1
