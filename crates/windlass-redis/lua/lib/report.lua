-- Outcomes of attempts.

-- What a worker was told in its last report: by id and token.
local function read_memo(worker)
  local memo = {}
  for token, state, ids in gmatch(call('HGET', E.CLAIMS, 'r' .. worker) or '', '\n(%x+) (%a) ([^\n]+)') do
    for id in gmatch(ids, '[^,]+') do memo[id .. token] = state end
  end
  return memo
end

-- Applies one outcome; answers the state it led to, and whether that was known before; nil when the lease is lost.
local function report_one(j, token, kind, argument, extra)
  if not j then return nil end
  if j.token ~= token then
    if j.last_token == token then return j.last_state, true end
    return nil
  end
  if kind == 'c' then
    if extra ~= '' and not j.cancel then E.put_extra(j, ':r', extra) end
    E.complete(j)
  elseif kind == 'f' then
    E.push_failure(j, match(argument, '^%S+'), extra)
    E.fail(j, E.opt(match(argument, ' (%S+)$')))
  else
    local started = argument == '1'
    if started and j.attempt >= j.attempts and j.stalls >= j.stalls_max then
      E.push_failure(j, 'released', 'released by its worker after it had started, with no attempt and no stall left')
    end
    E.release(j, started)
  end
  return j.state, false
end

local out, run
-- Jobs of which the step has an outcome.
local done = {}
-- What goes into the memo: token and state, then ids.
local told = {}

-- Writes down what the plain jobs have come to, before anybody else looks.
local function end_runs()
  local o = out
  out, run = nil, nil
  if not o or o.n == 0 then return end
  local q = E.queue(o.queue)
  local g, m = E.group(q.plain), E.minute_of(q)
  if q.settings.cap and q.a >= q.settings.cap then E.ring_queue(q.id, 1) end
  q.a, q.S = max(q.a - o.n, 0), q.S + o.n
  E.touch_queue(q)
  g.active = max(g.active - o.plain, 0)
  E.touch_group(g)
  m[3], m[9] = m[3] + o.n, m[9] + o.ran
  E.later('ZREM', E.LEASES, o.leases)
  E.later('ZADD', E.ENDED, o.ended)
  E.later('HSET', LIFE, o.sets)
  local lines, pieces = E.told_of(o)
  E.note_lines(concat(lines), o.queue, o.n)
  E.ended_runs[#E.ended_runs + 1] = o.ids
  E.tell_runs(o.told, o.words)
  told[#told + 1] = concat(pieces)
end

local function group_of(life)
  return tonumber(match(life, '^%x+ %x+ %d+ %d+ %d+ %d+ %d+ %d %x+ %x+ (%d+) ', 69) or 0)
end

-- The common case, without an object: outcomes without a result, of jobs without a key or any flag, from the `i`-th on. Does
-- what `E.complete` would do; answers where it has stopped, `i` when that is not such a case.
local function complete_plain(i, outcomes, lives, groups)
  local ids, life = outcomes.ids, lives[i]
  local mark = life and sub(life, 3, 3)
  if mark ~= 'p' and mark ~= 'g' and mark ~= 'n' then return i end
  local reached = run and E.end_some(out, run, mark, i, outcomes, lives)
  if not reached or reached == i then
    local another = E.run_of(outcomes.tokens[i], life)
    local q = another and E.queue(another.queue)
    if not q or not E.group(q.plain) then return i end
    if out and out.queue ~= q.id then end_runs() end
    if not out then
      out = E.new_ended(q.id)
      out.plain, out.seen = 0, done
    end
    run = another
    E.add_run(out, run)
    reached = E.end_some(out, run, mark, i, outcomes, lives)
    if reached == i then
      run, out.runs[#out.runs] = nil, nil
      return i
    end
  end
  for k = i, reached - 1 do
    E.fresh_lives[ids[k]] = done[ids[k]]
    local g = groups[k]
    if g then
      g.active = max(g.active - 1, 0)
      E.touch_group(g)
      E.review(g)
      E.drop_idle(g)
    else
      out.plain = out.plain + 1
    end
  end
  return reached
end

-- The named groups of jobs, by their places. A job whose group is not there is none that goes the short way.
local function groups_of(ids, lives)
  local asked, of, groups = {}, {}, {}
  for i = 1, #ids do
    if lives[i] and sub(lives[i], 3, 3) == 'g' then
      local id = group_of(lives[i])
      asked[#asked + 1], of[i] = id, id
    end
  end
  E.know_groups(asked)
  for i, id in pairs(of) do
    groups[i] = E.group(id)
    if not groups[i] then E.known_lives[ids[i]], lives[i] = lives[i], false end
  end
  return groups
end

-- Applies outcomes. Answers a text per outcome.
function E.report(outcomes)
  local ids, n = outcomes.ids, outcomes.n
  local lives = E.hmget(LIFE, ids)
  local groups = groups_of(ids, lives)
  local answers, noted, memo, i = {}, {}, nil, 1
  -- ends because: every round is done with an outcome
  while i <= n do
    local reached = complete_plain(i, outcomes, lives, groups)
    for k = i, reached - 1 do answers[k] = 'S' end
    if reached == i then
      local id, token = ids[i], outcomes.tokens[i]
      end_runs()
      if E.known_lives[id] == nil then E.known_lives[id] = lives[i] end
      local state, repeated =
        report_one(E.readable(id), token, outcomes.kinds[i] or 'c', outcomes.arguments[i] or '', outcomes.extras[i] or '')
      if not state then
        -- Told in this very report, or in the one before.
        memo = memo or read_memo(outcomes.worker)
        state, repeated = noted[id .. token] or memo[id .. token], true
      end
      if state then
        told[#told + 1] = '\n' .. token .. ' ' .. state .. ' ' .. id
        noted[id .. token] = state
        answers[i] = state .. (repeated and '=' or '')
      else
        answers[i] = 'lost'
      end
      -- What was read of it is not true any more.
      done[id] = true
      reached = i + 1
    end
    i = reached
  end
  end_runs()
  if #told > 0 then E.hput(E.CLAIMS, 'r' .. outcomes.worker, E.int(now) .. concat(told)) end
  return answers
end
