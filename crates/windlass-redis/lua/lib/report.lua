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
    if started and j.attempt >= j.attempts then
      E.push_failure(j, 'released', 'released by its worker after it had started, with no attempt left')
    end
    E.release(j, started)
  end
  return j.state, false
end

local run, NOW15 = nil, E.time15(now)
-- What goes into the memo: token and state, then ids.
local told = {}

-- Writes down what the plain jobs have come to, before anybody else looks.
local function end_run()
  local r = run
  if not r then return end
  run = nil
  local q = E.queue(r.queue)
  local g, m = E.group(q.plain), E.minute_of(q)
  if q.settings.cap and q.a >= q.settings.cap then E.ring_queue(q.id, 1) end
  q.a, q.S = max(q.a - r.n, 0), q.S + r.n
  E.touch_queue(q)
  g.active = max(g.active - r.plain, 0)
  E.touch_group(g)
  m[3], m[9] = m[3] + r.n, m[9] + r.ran
  E.later('ZREM', E.LEASES, r.leases)
  E.later('ZADD', E.ENDED, r.ended)
  E.later('HSET', LIFE, r.sets)
  E.note_run('complete a S ' .. r.attempt .. ' ' .. r.queue, r.queue, r.ids)
  E.ended_runs[#E.ended_runs + 1] = r.ids
  told[#told + 1] = '\n' .. r.token .. ' S ' .. concat(r.ids, ',')
end

local function group_of(life)
  return tonumber(match(life, '^%x+ %x+ %d+ %d+ %d+ %d+ %d+ %d %x+ %x+ (%d+) ', 69) or 0)
end

-- The common case, without an object: an outcome without a result, of a job without a key or any flag. Does what
-- `E.complete` would do; false when it is not that case.
local function complete_plain(id, token, life)
  local mark = sub(life, 3, 3)
  if mark == 'x' or sub(life, 5, 20) ~= token or sub(life, 1, 1) ~= 'a' then return false end
  local where = match(life, '^%x+ %x+ %d+ ', 69)
  local r = run
  if not r or r.where ~= where or r.token ~= token then
    end_run()
    local queue_id, lane_id, attempt = match(where or '', '^(%x+) (%x+) (%d+) ')
    local q = queue_id and E.queue(tonumber(queue_id, 16))
    if not q or not E.group(q.plain) then return false end
    r = { queue = q.id, where = where, token = token, attempt = attempt, n = 0, plain = 0, ran = 0, leases = {}, ended = {}, sets = {}, ids = {},
      entry = E.enc(q.id) .. 'S0' .. E.hex12(max(now, 0)), lane_text = E.enc(tonumber(lane_id, 16)), first = 'S x ' .. token .. ' S ' }
    run = r
  end
  local g = mark == 'g' and E.group(group_of(life))
  if mark == 'g' and not g then return false end
  local n = r.n + 1
  r.n = n
  if g then
    g.active = max(g.active - 1, 0)
    E.touch_group(g)
    E.review(g)
    E.drop_idle(g)
  else
    r.plain = r.plain + 1
  end
  local row = sub(life, 24, 35)
  local ended = r.first .. sub(life, 24, 52) .. NOW15 .. sub(life, 68)
  E.fresh_lives[id] = ended
  r.leases[n], r.ids[n] = row .. id, id
  r.ended[2 * n - 1], r.ended[2 * n] = 0, r.entry .. row .. r.lane_text .. id
  r.sets[2 * n - 1], r.sets[2 * n] = id, ended
  r.ran = r.ran + max(now - tonumber(sub(life, 37, 51)), 0)
  return true
end

-- Reads and applies the outcomes of the arguments: id, token, kind, argument, extra of each. Answers a text per outcome.
function E.report()
  local worker, n = E.arg(), E.num()
  local first = E.at
  local ids = {}
  for i = 1, n do ids[i] = ARGV[first + 5 * i - 4] end
  local lives = E.hmget(LIFE, ids)
  local groups = {}
  for i = 1, n do
    if lives[i] and sub(lives[i], 3, 3) == 'g' then groups[#groups + 1] = group_of(lives[i]) end
  end
  E.know_groups(groups)
  local answers, noted, memo = {}, {}, nil
  for i, id in ipairs(ids) do
    local base = first + 5 * i - 4
    local token, kind, extra = ARGV[base + 1], ARGV[base + 2], ARGV[base + 4]
    if kind == 'c' and extra == '' and lives[i] and E.job_cache[id] == nil and not E.fresh_lives[id]
      and complete_plain(id, token, lives[i]) then
      answers[i] = 'S'
    else
      end_run()
      if E.known_lives[id] == nil then E.known_lives[id] = lives[i] end
      local state, repeated = report_one(E.readable(id), token, kind, ARGV[base + 3], extra)
      if not state then
        -- Told in this very report, or in the one before.
        memo = memo or read_memo(worker)
        state, repeated = noted[id .. token] or memo[id .. token], true
      end
      if state then
        told[#told + 1] = '\n' .. token .. ' ' .. state .. ' ' .. id
        noted[id .. token] = state
        answers[i] = state .. (repeated and '=' or '')
      else
        answers[i] = 'lost'
      end
    end
  end
  end_run()
  E.at = first + 5 * n
  if #told > 0 then E.hput(E.CLAIMS, 'r' .. worker, E.int(now) .. concat(told)) end
  return answers
end
