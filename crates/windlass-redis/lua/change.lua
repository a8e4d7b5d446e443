-- Changes jobs by id, without a lease: what operators and applications do.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; the letters of the states that a bulk change touches, or `*`; `force` to remove
--         active jobs, too; count, then of each its id, operation and argument
-- Answers of each `ok <state>` or `ok -` when it is gone, `missing`, `illegal <state> <verb>`, `taken <by>`, `corrupt`, and
--         for bulk changes `skip`. Answers of the first jobs only when all of them are too much work for one step
-- Bounds  one round per job, and the work of one step

-- Due now, after a delay, or at a time.
local function due_of(text)
  if text == '-' then return now end
  local delay = match(text, '^%+(%d+)$')
  return delay and now + tonumber(delay) or tonumber(text)
end
local function is_final(j)
  return j.state == 'S' or j.state == 'F' or j.state == 'C'
end

-- Writes a record with other fields of its creator's part, or another payload. Its bytes are work, as those that were read are.
local function rewrite(j, priority, rest)
  E.work = E.work + 1 + #(rest or j.record) / E.RECORD_BYTES
  local line, old = match(j.record, '^([^\n]*)\n(.*)$')
  if priority then
    local first, tail = match(line, '^(1 %x+ %x+ %x+ %x+ %x+)(.*)$')
    if tail == '' then
      line = first .. ' - ' .. priority .. ' - 3 1 - - - - - -'
    else
      local due, behind = match(tail, '^ (%S+) %S+(.*)$')
      line = first .. ' ' .. due .. ' ' .. priority .. behind
    end
  end
  j.record = line .. '\n' .. (rest or old)
  E.hput(JOBS, j.id, j.record)
end

local ops = {}
function ops.cancel(j)
  if j.state == 'C' or j.cancel then return nil end
  return E.cancel(j)
end
function ops.promote(j)
  if E.is_held(j) then return 'illegal s promote' end
  return E.promote(j)
end
function ops.reschedule(j, argument)
  if E.is_held(j) then return 'illegal s reschedule' end
  return E.reschedule(j, due_of(argument))
end
function ops.retry(j, argument)
  if not is_final(j) then return 'illegal ' .. j.state .. ' retry' end
  if E.has_flag(j, 'd') and E.head(j) and j.key then
    local by = E.retake_key(j)
    if by then return 'taken ' .. by end
  end
  if E.has_flag(j, 'x') then
    -- What the last life achieved must not pass for the work of the new one; what went wrong is still told.
    E.hput(E.EXTRA, j.id .. ':r', false)
    E.hput(E.EXTRA, j.id .. ':p', false)
  end
  return E.retry(j, due_of(argument))
end
function ops.reprioritise(j, argument)
  if j.state ~= 's' and j.state ~= 'r' then return 'illegal ' .. j.state .. ' reprioritise' end
  E.apply(j, 'reprioritise', function(k) k.ord = fmt('%04x', tonumber(argument) + 32768) .. sub(k.ord, 5) end)
  rewrite(j, argument, nil)
end
function ops.payload(j, argument)
  if j.state ~= 's' and j.state ~= 'r' and j.state ~= 'F' then return 'illegal ' .. j.state .. ' update_payload' end
  E.note(j, 'update_payload', j.state, j.state)
  rewrite(j, nil, (match(j.record, '^[^\n]*\n([^\n]*\n)') or '\n') .. argument)
end
-- Found to be unreadable by whoever claimed it.
function ops.set_aside(j, argument)
  local token, why = match(argument, '^(%x+) (.*)$')
  if j.token ~= token then return 'skip' end
  E.set_aside(j, why)
end
function ops.remove(j, _, force)
  if j.state == 'a' and not force then return 'illegal a remove' end
  E.remove(j, 'remove')
end
-- Ended at least so long ago, and in one of the states that are asked for. An end in the future, by a clock that was set back
-- since, is no time ago.
function ops.clean(j, argument)
  local age = now - (j.finished or now)
  if not is_final(j) or (age > 0 and age or 0) < tonumber(argument) then return 'skip' end
  E.remove(j, 'remove')
end

-- The record, payload included: nil when it cannot be read.
local function has_record(j)
  return E.record(j) and E.read_head(j, j.record) and match(j.record, '^[^\n]*\n[^\n]*\n') ~= nil
end

local NEEDS_RECORD = { reprioritise = true, payload = true }
local states, mode, n = E.arg(), E.arg(), E.num()
local first = E.at
local ids, answers = {}, {}
for i = 1, n do ids[i] = ARGV[first + 3 * i - 2] end
E.each(ids, function(i, id)
  -- A job that cannot be changed costs a look at it.
  E.work = E.work + 0.25
  local op, argument = ARGV[first + 3 * i - 1], ARGV[first + 3 * i]
  local j = E.peek(id)
  if j and not E.readable(id) then j = E.peek(id) end
  local asked = j and E.has_flag(j, 'q')
  if not j then
    answers[i] = 'missing'
  elseif states ~= '*' and not states:find(j.state, 1, true) then
    -- It has changed since it was found.
    answers[i] = 'skip'
  elseif asked and op ~= 'remove' and op ~= 'clean' and op ~= 'set_aside' then
    answers[i] = 'corrupt'
  elseif NEEDS_RECORD[op] and not has_record(j) then
    E.set_aside(j, 'its record cannot be read')
    answers[i] = 'corrupt'
  else
    local why = ops[op](j, argument, mode == 'force')
    answers[i] = why or 'ok ' .. ((op == 'remove' or op == 'clean') and '-' or j.state)
  end
end)
E.finish()
return answers
