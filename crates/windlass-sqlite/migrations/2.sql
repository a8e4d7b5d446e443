-- Purpose: runs of workflows. Run states are numbered as in windlass_run_state.
-- Outcomes: jobs know their run; runs, their definitions, inputs, histories and inboxes have tables; windlass_runs shows them.

ALTER TABLE windlass_job ADD COLUMN run TEXT;

CREATE TABLE windlass_run_state (code INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO windlass_run_state VALUES (0, 'running'), (1, 'succeeded'), (2, 'failed'), (3, 'cancelled');

-- `look_at` is when time alone gives it something to do, `remove_at` when it goes; both follow from the others.
CREATE TABLE windlass_run (
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, name TEXT NOT NULL,
  definition_hash BLOB NOT NULL, fingerprint INTEGER NOT NULL, state INTEGER NOT NULL, stuck TEXT, summary TEXT NOT NULL,
  history_len INTEGER NOT NULL, inbox_first INTEGER NOT NULL, inbox_next INTEGER NOT NULL,
  engine TEXT, token INTEGER, expires_at INTEGER, last_token INTEGER, ready INTEGER, wake_at INTEGER,
  created_at INTEGER NOT NULL, changed_at INTEGER NOT NULL, finished_at INTEGER, keep_ms INTEGER NOT NULL,
  look_at INTEGER, remove_at INTEGER
);
CREATE INDEX windlass_run_ready ON windlass_run (kind, ready) WHERE ready IS NOT NULL;
CREATE INDEX windlass_run_look ON windlass_run (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX windlass_run_in_state ON windlass_run (state, seq);
CREATE INDEX windlass_run_remove ON windlass_run (remove_at) WHERE remove_at IS NOT NULL;

CREATE INDEX windlass_run_definition ON windlass_run (definition_hash);

-- Runs of one workflow share its definition.
CREATE TABLE windlass_definition (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, definition BLOB NOT NULL);

-- Whatever else belongs to a run stands under its `seq`.
CREATE TABLE windlass_run_input (run INTEGER PRIMARY KEY, input BLOB NOT NULL);

-- What a step has added, in the order of steps: `first` is the number of its first entry, and each entry stands behind its
-- length in four bytes, least first.
CREATE TABLE windlass_history (
  place INTEGER PRIMARY KEY, run INTEGER NOT NULL, first INTEGER NOT NULL, entries BLOB NOT NULL
);
CREATE UNIQUE INDEX windlass_history_of ON windlass_history (run, first);

-- A run's inbox begins at its `inbox_first`; what was handled before goes later.
CREATE TABLE windlass_inbox (
  place INTEGER PRIMARY KEY, run INTEGER NOT NULL, number INTEGER NOT NULL, item TEXT NOT NULL
);
CREATE UNIQUE INDEX windlass_inbox_of ON windlass_inbox (run, number);

-- For people: `SELECT * FROM windlass_runs WHERE state = 'failed'`.
CREATE VIEW windlass_runs AS
  SELECT r.id, r.name, s.name AS state, r.stuck, r.summary, r.history_len AS history, r.inbox_next - r.inbox_first AS inbox,
         r.engine, datetime(r.created_at / 1000, 'unixepoch') AS created,
         datetime(r.wake_at / 1000, 'unixepoch') AS wakes, datetime(r.finished_at / 1000, 'unixepoch') AS finished
    FROM windlass_run r LEFT JOIN windlass_run_state s ON s.code = r.state;
