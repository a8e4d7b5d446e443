-- New queues, and new versions of what claims are planned by.

-- The queue of this name, made if it is not there.
function E.queue_for(name)
  local q = E.find_queue(name)
  if q then return q end
  -- Another one of this name would hide the jobs that it has.
  if E.queue_ids[name] then error({ err = 'DAMAGED the queue ' .. name .. ' cannot be read' }) end
  local id = E.bump(E.QUEUE_N)
  local plain = E.make_group(id, nil)
  q = { id = id, name = name, vtime = 0, plain = plain.id, named = 0, minute = 0, meter = {}, settings = {},
    s = 0, r = 0, a = 0, S = 0, F = 0, C = 0 }
  E.queue_cache[id], E.queue_ids[name] = q, id
  E.touch_queue(q)
  E.hput(META, 'Q' .. name, id)
  local known = E.queue_list or call('HGET', META, 'queues') or ''
  E.queue_list = known == '' and id .. '' or known .. ' ' .. id
  E.hput(META, 'queues', E.queue_list)
  return q
end

-- Whoever plans claims by the directory or the settings must look at them again.
function E.new_version(q)
  -- Never the same twice, also not after a failover that lost the last one.
  q.version = q.version or E.int(now) .. '.' .. E.int(E.bump(E.SEQ))
  E.hput(META, 'v' .. q.id, q.version)
end
