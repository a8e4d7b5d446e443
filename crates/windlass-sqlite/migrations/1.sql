-- Purpose: the first layout. Times are milliseconds since 1970; states are numbered as in windlass_state.
-- Outcomes: every table, index and view of Windlass exists; their names begin with windlass_.

CREATE TABLE windlass_meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO windlass_meta (key, value) VALUES ('layout', 1), ('seq', 0);

CREATE TABLE windlass_state (code INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO windlass_state VALUES
  (0, 'scheduled'), (1, 'ready'), (2, 'active'), (3, 'succeeded'), (4, 'failed'), (5, 'cancelled');

CREATE TABLE windlass_queue (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, plain INTEGER NOT NULL, settings TEXT NOT NULL,
  scheduled INTEGER NOT NULL, ready INTEGER NOT NULL, active INTEGER NOT NULL,
  succeeded INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL,
  vtime INTEGER NOT NULL, named_ready INTEGER NOT NULL, meter TEXT
);

CREATE TABLE windlass_lane (
  id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, kind TEXT NOT NULL, labels TEXT NOT NULL,
  jobs INTEGER NOT NULL, ready INTEGER NOT NULL, head INTEGER NOT NULL,
  UNIQUE (queue, kind, labels)
);

-- A meter that remembers nothing, and settings that say nothing, are NULL.
CREATE TABLE windlass_group (
  id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, name TEXT, settings TEXT,
  ready INTEGER NOT NULL, active INTEGER NOT NULL, vtime INTEGER NOT NULL, meter TEXT,
  parked INTEGER NOT NULL, wake_at INTEGER
);
CREATE UNIQUE INDEX windlass_group_name ON windlass_group (queue, name) WHERE name IS NOT NULL;
CREATE INDEX windlass_group_parked ON windlass_group (queue, id) WHERE parked <> 0;
CREATE INDEX windlass_group_wake ON windlass_group (queue, wake_at, id) WHERE wake_at IS NOT NULL;

-- The ready jobs of one group in one lane, and its place in the lane's ring.
CREATE TABLE windlass_sub (
  grp INTEGER NOT NULL, lane INTEGER NOT NULL, ready INTEGER NOT NULL, vtime INTEGER,
  PRIMARY KEY (grp, lane)
) WITHOUT ROWID;
CREATE INDEX windlass_sub_ring ON windlass_sub (lane, vtime, grp) WHERE vtime IS NOT NULL;

-- What a job is, which hardly ever changes. `grp` and `ord` are its place among the ready ones, when it last was one;
-- `rest` holds what was asked of the job and differs from the defaults.
CREATE TABLE windlass_job (
  row INTEGER PRIMARY KEY, id TEXT NOT NULL, queue INTEGER NOT NULL, lane INTEGER NOT NULL, grp INTEGER,
  ord INTEGER NOT NULL, priority INTEGER NOT NULL, flags INTEGER NOT NULL, attempts_max INTEGER NOT NULL,
  stalls_max INTEGER NOT NULL, created_at INTEGER NOT NULL, fingerprint INTEGER NOT NULL, dedup BLOB,
  payload BLOB, content_type TEXT, rest TEXT
);
CREATE UNIQUE INDEX windlass_job_id ON windlass_job (id);

-- Where a job stands: in exactly one of the four tables below. A transition takes its small row out of one and puts it
-- into another, and leaves the job itself alone.

-- A held job is due at the end of time.
CREATE TABLE windlass_scheduled (
  row INTEGER PRIMARY KEY, queue INTEGER NOT NULL, lane INTEGER NOT NULL, due_at INTEGER NOT NULL,
  attempt INTEGER NOT NULL, stalls INTEGER NOT NULL, retries INTEGER NOT NULL, ready_at INTEGER NOT NULL,
  claimed_at INTEGER, last_token INTEGER, last_state INTEGER
);
CREATE INDEX windlass_scheduled_due ON windlass_scheduled (queue, due_at);

CREATE TABLE windlass_ready (
  lane INTEGER NOT NULL, grp INTEGER NOT NULL, ord INTEGER NOT NULL, row INTEGER NOT NULL,
  attempt INTEGER NOT NULL, stalls INTEGER NOT NULL, retries INTEGER NOT NULL, ready_at INTEGER NOT NULL,
  claimed_at INTEGER, last_token INTEGER, last_state INTEGER,
  PRIMARY KEY (lane, grp, ord, row)
) WITHOUT ROWID;

-- `told` is the worker, once the job is cancelled.
CREATE TABLE windlass_active (
  row INTEGER PRIMARY KEY, queue INTEGER NOT NULL, lane INTEGER NOT NULL,
  worker TEXT NOT NULL, token INTEGER NOT NULL, expires_at INTEGER NOT NULL, told TEXT,
  attempt INTEGER NOT NULL, stalls INTEGER NOT NULL, retries INTEGER NOT NULL, ready_at INTEGER NOT NULL,
  claimed_at INTEGER, last_token INTEGER, last_state INTEGER
);
CREATE INDEX windlass_active_told ON windlass_active (told) WHERE told IS NOT NULL;

CREATE TABLE windlass_ended (
  row INTEGER PRIMARY KEY, lane INTEGER NOT NULL, state INTEGER NOT NULL, finished_at INTEGER NOT NULL,
  remove_at INTEGER,
  attempt INTEGER NOT NULL, stalls INTEGER NOT NULL, retries INTEGER NOT NULL, ready_at INTEGER NOT NULL,
  claimed_at INTEGER, last_token INTEGER, last_state INTEGER
);
CREATE INDEX windlass_ended_at ON windlass_ended (lane, state, finished_at);
CREATE INDEX windlass_ended_remove ON windlass_ended (remove_at) WHERE remove_at IS NOT NULL;

-- Payloads that are too large to stand with their job, whose own payload is NULL then.
CREATE TABLE windlass_payload (row INTEGER PRIMARY KEY, payload BLOB NOT NULL);

-- What a job left behind.
CREATE TABLE windlass_extra (
  row INTEGER PRIMARY KEY, progress TEXT, result BLOB, result_type TEXT, outputs TEXT, failures TEXT,
  held_due_at INTEGER
);

CREATE TABLE windlass_log (
  row INTEGER NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL, at INTEGER NOT NULL,
  stream INTEGER NOT NULL, text BLOB NOT NULL,
  PRIMARY KEY (row, number)
) WITHOUT ROWID;

CREATE TABLE windlass_dedup (
  key BLOB PRIMARY KEY, owner TEXT NOT NULL, until INTEGER, sticky INTEGER NOT NULL, successor TEXT
) WITHOUT ROWID;
CREATE INDEX windlass_dedup_until ON windlass_dedup (until) WHERE until IS NOT NULL;

-- What each worker was answered last, to answer it again.
CREATE TABLE windlass_memo (
  worker TEXT PRIMARY KEY, at INTEGER NOT NULL, request_id INTEGER, fingerprint INTEGER, token INTEGER, claimed BLOB,
  reported BLOB
) WITHOUT ROWID;

CREATE TABLE windlass_minute (
  queue INTEGER NOT NULL, minute INTEGER NOT NULL,
  enqueued INTEGER NOT NULL, claimed INTEGER NOT NULL, succeeded INTEGER NOT NULL, failed INTEGER NOT NULL,
  cancelled INTEGER NOT NULL, retried INTEGER NOT NULL, stalled INTEGER NOT NULL,
  waited_ms INTEGER NOT NULL, ran_ms INTEGER NOT NULL,
  PRIMARY KEY (queue, minute)
) WITHOUT ROWID;

-- The entries `first` to `number`, one for each step of a transaction; `total` counts the events up to the last one.
CREATE TABLE windlass_feed (number INTEGER PRIMARY KEY, first INTEGER NOT NULL, total INTEGER NOT NULL, events BLOB NOT NULL);

CREATE TABLE windlass_worker (id TEXT PRIMARY KEY, since INTEGER NOT NULL, seen_at INTEGER NOT NULL, beat TEXT NOT NULL)
  WITHOUT ROWID;

CREATE TABLE windlass_schedule (name TEXT PRIMARY KEY, paused INTEGER NOT NULL, next_tick INTEGER, body TEXT NOT NULL)
  WITHOUT ROWID;
CREATE INDEX windlass_schedule_due ON windlass_schedule (next_tick) WHERE paused = 0 AND next_tick IS NOT NULL;

-- For people: `SELECT * FROM windlass_jobs WHERE state = 'failed'`.
CREATE VIEW windlass_jobs AS
  SELECT q.name AS queue, l.kind, s.name AS state, j.id, j.priority,
         coalesce(r.attempt, a.attempt, d.attempt, e.attempt) AS attempt, j.attempts_max,
         a.worker, coalesce(r.stalls, a.stalls, d.stalls, e.stalls) AS stalls,
         CAST(coalesce(j.payload, p.payload) AS TEXT) AS payload, x.failures,
         CASE WHEN json_valid(x.failures) THEN json_extract(x.failures, '$[#-1].message') END AS last_error, g.name AS "group",
         datetime(j.created_at / 1000, 'unixepoch') AS created,
         datetime(nullif(d.due_at, 9223372036854775807) / 1000, 'unixepoch') AS due,
         datetime(a.expires_at / 1000, 'unixepoch') AS lease_until,
         datetime(e.finished_at / 1000, 'unixepoch') AS finished
    FROM windlass_job j
    JOIN windlass_queue q ON q.id = j.queue
    JOIN windlass_lane l ON l.id = j.lane
    LEFT JOIN windlass_scheduled d ON d.row = j.row
    LEFT JOIN windlass_ready r ON r.lane = j.lane AND r.grp = j.grp AND r.ord = j.ord AND r.row = j.row
    LEFT JOIN windlass_active a ON a.row = j.row
    LEFT JOIN windlass_ended e ON e.row = j.row
    LEFT JOIN windlass_state s
           ON s.code = coalesce(e.state, iif(a.row, 2, NULL), iif(r.row, 1, NULL), iif(d.row, 0, NULL))
    LEFT JOIN windlass_payload p ON p.row = j.row
    LEFT JOIN windlass_group g ON g.id = j.grp
    LEFT JOIN windlass_extra x ON x.row = j.row;
