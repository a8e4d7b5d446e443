-- Runs: their records, their places in the indexes, and what happens to them.
--
-- RUNS           <id>    `1 seq state history first next token expires last ready wake created changed finished keep definition
--                        fingerprint`; then a line each: kind, engine, name, `-` or `+` and why it is stuck, summary. `first` and
--                        `next` are the numbers of the oldest and of the next item of its inbox, `last` is the token of the last
--                        commit that let go of it. seq, ready and the hashes are hexadecimal, other numbers and times decimal
--                <id>:d  its definition; <id>:i its input
-- INBOX          <seq>:<number>         an item: `j job state attempt claimed at`, a line with `-` or `+` and an error, outputs as
--                                       JSON; or `m at`, line end, message
-- HISTORY        <seq>:<number>         an entry
-- RUN_READY      <kind>\n<place><id>    has something to do, and nobody holds it
-- RUN_WAKE       <id>                   when its lease ends or its time comes
-- RUN_LIST       *<seq><id>             all; and <state><seq><id>
-- RUN_REMOVABLE  <id>                   when it goes
--
-- States: R running, S succeeded, F failed, C cancelled. Numbers of sequences have twelve digits, those of items and entries are decimal.

local TEXT = '^1 (%x+) ([RSFC]) (%d+) (%d+) (%d+) ([%x%-]+) (%-?%d*) ([%x%-]+) ([%x%-]+) (%-?%d*) (%-?%d+) (%-?%d+) (%-?%d*) (%d+) (%x+) (%x+)\n'
  .. '([^\n]+)\n([^\n]*)\n([^\n]*)\n([%-+][^\n]*)\n([^\n]*)$'
local NOW = E.int(now)
-- What the feed is told of runs, behind what it is told of jobs.
E.run_notes = {}
function E.note_run(text)
  E.run_notes[#E.run_notes + 1] = text
end
E.run_cache, E.dirty_runs, E.rung_runs, E.binned = {}, {}, {}, {}

-- True when nobody advances it: it has ended, or it is stuck.
function E.run_rests(r)
  return r.state ~= 'R' or r.stuck ~= '-'
end
-- When time alone gives it something to do.
function E.run_look_at(r)
  if r.token then return r.expires end
  if E.run_rests(r) or r.ready then return nil end
  return r.wake
end
local function remove_at(r)
  return r.finished and r.finished + tonumber(r.keep)
end
function E.run_ready_member(r)
  return r.kind .. '\n' .. r.ready .. r.id
end
-- Where it stands in the indexes, so that the end of the step knows what has changed.
local function note_places(r)
  r.at_ready, r.at_look, r.at_state, r.at_remove = r.ready and E.run_ready_member(r), E.run_look_at(r), r.state, remove_at(r)
end
-- What the feed was told last.
local function note_told(r)
  r.told_history, r.told_state, r.told_stuck = r.history, r.state, r.stuck
end

-- A run from its text; one that cannot be read is `broken`.
local function read_run(id, text)
  local seq, state, history, first, following, token, expires, last, ready, wake, created, changed, finished, keep, definition, fingerprint,
    kind, engine, name, stuck, summary = match(text, TEXT)
  local broken = not seq or #seq ~= 12 or #history > 14 or #first > 14 or #following > 14 or not match(id, '^r%d+%-[0-9a-z]+$')
    or #expires > 16 or #wake > 16 or #created > 16 or #changed > 16 or #finished > 16 or #keep > 20
    or token ~= '-' and #token ~= 16 or last ~= '-' and #last ~= 16 or ready ~= '-' and #ready ~= 12
    or (token == '-') ~= (expires == '-') or (state == 'R') ~= (finished == '-') or #definition ~= 32 or #fingerprint ~= 16
  local r = not broken and {
    id = id, seq = seq, state = state, history = tonumber(history), first = tonumber(first), following = tonumber(following),
    token = token ~= '-' and token or nil, expires = tonumber(expires), last = last, ready = ready ~= '-' and ready or nil,
    wake = tonumber(wake), created = created, changed = changed, finished = tonumber(finished), keep = keep,
    definition = definition, fingerprint = fingerprint, kind = kind, engine = engine, name = name, stuck = stuck, summary = summary,
  }
  local marks = r and token .. ' ' .. last .. ' ' .. ready
  -- A `-` within a number or a token is none.
  if not r or r.first > r.following or expires ~= '-' and not r.expires or wake ~= '-' and not r.wake or finished ~= '-' and not r.finished
    or match(marks, '[%x%-]%-') or match(marks, '%-%x') then
    return { id = id, broken = true, seq = match(text, '^1 (%x%x%x%x%x%x%x%x%x%x%x%x) ') }
  end
  note_places(r)
  note_told(r)
  return r
end
local function or_dash(time)
  return time and E.int(time) or '-'
end
function E.run_text(r)
  return concat({ '1', r.seq, r.state, E.int(r.history), E.int(r.first), E.int(r.following), r.token or '-', or_dash(r.token and r.expires),
    r.last, r.ready or '-', or_dash(r.wake), r.created, r.changed, or_dash(r.finished), r.keep, r.definition, r.fingerprint }, ' ')
    .. '\n' .. r.kind .. '\n' .. (r.token and r.engine or '') .. '\n' .. r.name .. '\n' .. r.stuck .. '\n' .. r.summary
end

-- Loads runs together.
function E.know_runs(ids)
  local ask = {}
  for _, id in ipairs(ids) do
    if E.run_cache[id] == nil then
      E.run_cache[id] = false
      ask[#ask + 1] = id
    end
  end
  local found = E.hmget(E.RUNS, ask)
  for i, id in ipairs(ask) do E.run_cache[id] = found[i] and read_run(id, found[i]) or false end
end
-- A run by id; nil when it is not there.
function E.run(id)
  if E.run_cache[id] == nil then E.know_runs({ id }) end
  return E.run_cache[id] or nil
end
function E.touch_run(r)
  E.dirty_runs[r.id] = r
end
-- Somebody may claim so many more runs of a kind.
function E.ring_runs(kind, count)
  E.rung_runs[kind] = (E.rung_runs[kind] or 0) + count
end

-- Puts runs whose time has come, or whose engine vanished, where they are claimed; those that cannot be read are set aside. Answers
-- them, and how many there were.
function E.wake_runs(most)
  local ids = call('ZRANGEBYSCORE', E.RUN_WAKE, '-inf', now, 'LIMIT', 0, most)
  E.know_runs(ids)
  local woken = {}
  for _, id in ipairs(ids) do
    local r = E.run(id)
    local look = r and not r.broken and E.run_look_at(r)
    if not look or look > now then
      E.zput(E.RUN_WAKE, id, look and E.int(look) or false)
    else
      r.token, r.ready = nil, E.hex12(E.bump(E.SEQ))
      E.touch_run(r)
      woken[#woken + 1] = r
    end
  end
  return woken, #ids
end

-- The name of an item or of an entry.
local function numbered(r, number)
  return r.seq .. ':' .. E.int(number)
end
E.numbered = numbered
-- More items and entries than this, all runs of the step together, go to the bin, and then bit by bit.
local at_once = 2000
-- Forgets items or entries of a run, from one up to before another. What has more than anybody could have written is damaged, and is
-- looked for one by one.
local function forget_numbered(key, bin, r, from, to)
  if to - from <= at_once then
    at_once = at_once - (to - from)
    E.work = E.work + (to - from) * E.FIELD_WORK
    for n = from, to - 1 do E.hput(key, numbered(r, n), false) end
  elseif to - from <= 1e7 then
    E.binned[#E.binned + 1] = bin .. ' ' .. r.seq .. ' ' .. E.int(from) .. ' ' .. E.int(to)
  else
    E.binned[#E.binned + 1] = bin .. '* ' .. r.seq .. ' ' .. E.int(to) .. ' 0'
  end
end
-- The items before this one were handled.
function E.trim_inbox(r, upto)
  if upto <= r.first then return end
  forget_numbered(E.INBOX, 'i', r, r.first, upto)
  r.first = upto
end

-- A run has changed: gives it its place among those that have something to do, and tells of it.
function E.put_run(r)
  r.changed = NOW
  local due = r.wake and r.wake <= now
  if r.token or E.run_rests(r) or not (r.first < r.following or due) then
    r.ready = nil
  elseif not r.ready then
    r.ready = E.hex12(E.bump(E.SEQ))
    E.ring_runs(r.kind, 1)
  end
  if r.told_history ~= r.history or r.told_state ~= r.state or r.told_stuck ~= r.stuck then
    E.note_run('run ' .. r.id .. ' ' .. r.state .. ' ' .. E.int(r.history))
    note_told(r)
  end
  E.touch_run(r)
end
-- Puts an item into the inbox.
function E.deliver(r, item)
  E.hput(E.INBOX, numbered(r, r.following), item)
  r.following = r.following + 1
  E.put_run(r)
end

-- Puts words into the inboxes of runs, one each. A run that has ended, or is gone, or cannot be read has no use for it.
function E.tell_runs(ids, words)
  E.know_runs(ids)
  for i, id in ipairs(ids) do
    local r = E.run_cache[id]
    if r and r.state == 'R' then E.deliver(r, words[i]) end
  end
end
-- Wakes engines for the runs that got something to do.
function E.ring_for_runs()
  if not next(E.rung_runs) or call('ZCARD', E.BELLS) == 0 then return end
  for kind, count in pairs(E.rung_runs) do E.wake_some('\n' .. kind .. '\n', 'runs\n', min(count, 8)) end
end

-- What went wrong last with a failed job.
local function last_error(j)
  if E.has_flag(j, 'q') then return '+its stored form cannot be read' end
  local last
  for line in gmatch(E.has_flag(j, 'x') and E.extra_now(j, ':f') or '', '[^\n]+') do last = line end
  local message = last and match(last, '^%S+ %S+ %S+ (.*)$')
  return message and '+' .. message or '-'
end
-- Tells the run of a job that the job has ended, or is gone before it could (nil).
function E.tell_run(j, state)
  local why, outputs = '-', ''
  if state == 'F' then
    why = last_error(j)
  elseif state == 'S' and E.has_flag(j, 'x') then
    outputs = match(E.extra_now(j, ':r') or '', '^[^\n]*')
  end
  E.tell_runs({ j.run }, { 'j ' .. j.id .. ' ' .. (state or '-') .. ' ' .. j.attempt .. ' ' .. or_dash(j.claimed) .. ' ' .. E.int(now) .. '\n' .. why
    .. '\n' .. outputs })
end

-- Forgets a run with everything that is its own. One that cannot be read may stand anywhere.
function E.forget_run(r)
  for _, part in ipairs({ '', ':d', ':i' }) do E.hput(E.RUNS, r.id .. part, false) end
  E.zput(E.RUN_WAKE, r.id, false)
  E.zput(E.RUN_REMOVABLE, r.id, false)
  if r.at_ready then E.zput(E.RUN_READY, r.at_ready, false) end
  if r.seq then
    for _, list in ipairs(r.broken and { '*', 'R', 'S', 'F', 'C' } or { '*', r.at_state }) do
      E.zput(E.RUN_LIST, list .. r.seq .. r.id, false)
    end
    -- Of one that cannot be read nobody knows how much there is.
    forget_numbered(E.INBOX, 'i', r, r.first or 0, r.following or 1e15)
    forget_numbered(E.HISTORY, 'h', r, 0, r.history or 1e15)
  end
  E.run_cache[r.id], E.dirty_runs[r.id] = false, nil
  E.note_run('run ' .. r.id .. ' - ' .. (r.broken and '0' or E.int(r.history)))
end

local function put_places(r)
  local ready, look, removal = r.ready and E.run_ready_member(r), E.run_look_at(r), remove_at(r)
  if r.at_ready ~= ready then
    if r.at_ready then E.zput(E.RUN_READY, r.at_ready, false) end
    if ready then E.zput(E.RUN_READY, ready, 0) end
  end
  if r.at_look ~= look then E.zput(E.RUN_WAKE, r.id, look and E.int(look) or false) end
  if r.at_remove ~= removal then E.zput(E.RUN_REMOVABLE, r.id, removal and E.int(removal) or false) end
  if r.at_state ~= r.state then
    if r.at_state then E.zput(E.RUN_LIST, r.at_state .. r.seq .. r.id, false) else E.zput(E.RUN_LIST, '*' .. r.seq .. r.id, 0) end
    E.zput(E.RUN_LIST, r.state .. r.seq .. r.id, 0)
  end
  note_places(r)
end
-- Writes the runs that have changed, with the rest of the step.
function E.flush_runs()
  for id, r in pairs(E.dirty_runs) do
    E.hput(E.RUNS, id, r.text or E.run_text(r))
    put_places(r)
  end
  E.dirty_runs = {}
  if #E.binned > 0 then E.many('RPUSH', E.TRASH, E.binned) end
  E.binned = {}
end
