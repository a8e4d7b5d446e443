//! Runs: created, claimed, changed by fenced steps.

mod inbox;
mod look;

use super::Step;
use super::enqueue::Prepared;
use super::rows::RunRow;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::{RunId, Token};
use crate::job::Held;
use crate::store::{
    ChangeOp, ClaimedRun, FeedEvent, INBOX_ITEMS_MAX, NewRun, RUN_KEPT_MS, RunChange, RunClaim, RunCommit,
    RunCommitted, RunCreated, RunItem, RunLease, RunRenewal, RunRenewed, RunState, RunStep, RunsClaimed, check_batch,
};
use bytes::Bytes;
use std::sync::Arc;

/// Outputs and messages that one claim hands out of one inbox, in bytes; one item always.
const INBOX_BYTES: usize = 4 << 20;

/// A run that was checked and whose hashes are known.
#[derive(Clone, Debug)]
pub struct PreparedRun {
    run: NewRun,
    jobs: Vec<Result<Prepared>>,
    fingerprint: u64,
    definition_hash: [u8; 16],
}

impl PreparedRun {
    /// Checks a whole call; a run that is refused keeps its place.
    pub fn batch(runs: Vec<NewRun>) -> Result<Vec<Result<Self>>> {
        check_batch(runs.len())?;
        // Runs of one call are mostly of one workflow, and share its text.
        let mut last: Option<(Bytes, [u8; 16])> = None;
        let prepare = |run: NewRun| {
            run.check()?;
            let known = last.as_ref().filter(|(text, _)| text.as_ptr_range() == run.definition.as_ptr_range());
            let definition_hash = known.map_or_else(|| run.definition_hash(), |(_, hash)| *hash);
            last = Some((run.definition.clone(), definition_hash));
            let fingerprint = run.fingerprint_with(&definition_hash);
            let mut run = run;
            let jobs = Prepared::known(std::mem::take(&mut run.step.jobs));
            Ok(Self { run, jobs, fingerprint, definition_hash })
        };
        Ok(runs.into_iter().map(prepare).collect())
    }
}

/// A commit that was checked, and whose jobs were.
#[derive(Clone, Debug)]
pub struct PreparedCommit {
    commit: RunCommit,
    jobs: Vec<Result<Prepared>>,
}

impl PreparedCommit {
    /// Checks a whole call; a commit that is refused keeps its place.
    pub fn batch(commits: Vec<RunCommit>) -> Result<Vec<Result<Self>>> {
        check_batch(commits.len())?;
        let prepare = |mut commit: RunCommit| {
            commit.check()?;
            let jobs = Prepared::known(std::mem::take(&mut commit.step.jobs));
            Ok(Self { commit, jobs })
        };
        Ok(commits.into_iter().map(prepare).collect())
    }
}

impl<T: Tables> Step<'_, T> {
    /// See [`RunStore::create_runs`](crate::store::RunStore::create_runs).
    pub fn create_runs(&mut self, runs: Vec<Result<PreparedRun>>) -> Result<Vec<Result<RunCreated>>> {
        Ok(runs.into_iter().map(|run| run.and_then(|run| self.create_run(run))).collect())
    }

    fn create_run(&mut self, prepared: PreparedRun) -> Result<RunCreated> {
        let PreparedRun { run, jobs, fingerprint, definition_hash } = prepared;
        let NewRun { id, kind, name, definition, input, keep_ms, step } = run;
        match self.tables.run(id) {
            Ok(Some(known)) if known.fingerprint == fingerprint => return Ok(RunCreated::Existing),
            Ok(Some(_)) | Err(Error::Corrupt { .. }) => return Err(Error::RunTaken { run: id }),
            Ok(None) => {}
            Err(error) => return Err(error),
        }
        let jobs = self.all_or_none(jobs)?;
        let row = RunRow {
            id,
            seq: self.tables.next_seq()?,
            kind,
            name: name.into(),
            definition_hash,
            fingerprint,
            state: RunState::Running,
            stuck: None,
            summary: Arc::default(),
            history_len: 0,
            inbox_first: 0,
            inbox_next: 0,
            held: None,
            last_token: None,
            ready: None,
            wake_at: None,
            created_at: self.now,
            changed_at: self.now,
            finished_at: None,
            keep_ms: keep_ms.unwrap_or(RUN_KEPT_MS),
        };
        self.tables.put_run(None, &row)?;
        self.tables.put_run_texts(id, definition, input)?;
        self.make_step(row, step, jobs, |_, _| {})?;
        Ok(RunCreated::Created)
    }

    /// The jobs of a step, if all of them can be enqueued.
    fn all_or_none(&mut self, jobs: Vec<Result<Prepared>>) -> Result<Vec<Prepared>> {
        if let Some(refused) = self.verdicts(&jobs).into_iter().find_map(Result::err) {
            return Err(refused);
        }
        jobs.into_iter().collect()
    }

    /// Applies what was decided. Nothing may be refused here any more. `settle` says what becomes of the lease.
    fn make_step(
        &mut self,
        before: RunRow,
        step: RunStep,
        jobs: Vec<Prepared>,
        settle: impl FnOnce(&mut Self, &mut RunRow),
    ) -> Result<u64> {
        let id = before.id;
        // Whatever is cancelled, and a message to itself, changes the run.
        let told = !step.cancel.is_empty() || !step.messages.is_empty();
        // A step may cancel the jobs that it starts.
        for job in jobs {
            self.enqueue_one(job)?;
        }
        for job in step.cancel {
            let cancelled = self.wanted(job).and_then(|record| match record.run == Some(id) && !record.quarantined {
                true => self.change_record(&record, ChangeOp::Cancel).map(drop),
                false => Ok(()),
            });
            match cancelled {
                Ok(()) | Err(Error::NotFound { .. } | Error::IllegalTransition { .. } | Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for message in step.messages {
            match self.send_to_run(message) {
                Ok(()) | Err(Error::NotFound { .. } | Error::RunRefused { .. } | Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // Only now: whatever was cancelled has left word in the inbox.
        let before = if told { self.wanted_run(id)? } else { before };
        let mut row = before.clone();
        let added = step.history.len() as u64;
        self.tables.append_history(id, row.history_len, step.history)?;
        row.history_len += added;
        row.state = step.state;
        row.stuck = step.stuck;
        row.summary = step.summary.into();
        row.wake_at = step.wake.map(|due| due.resolve(self.now));
        if row.state.is_terminal() {
            row.finished_at = Some(self.now);
            row.wake_at = None;
        }
        settle(self, &mut row);
        if row.state.is_terminal() {
            self.tables.trim_inbox(id, row.inbox_first, row.inbox_next)?;
            row.inbox_first = row.inbox_next;
        }
        self.put_run(&before, row)
    }

    /// Writes a run, gives it its place among those that have something to do, and tells of it. Answers the length of its
    /// history.
    fn put_run(&mut self, before: &RunRow, mut row: RunRow) -> Result<u64> {
        row.changed_at = self.now;
        let due = row.wake_at.is_some_and(|at| at <= self.now);
        let wanted = row.held.is_none() && !row.rests() && (row.inbox_first < row.inbox_next || due);
        if !wanted {
            row.ready = None;
        } else if row.ready.is_none() {
            row.ready = Some(self.tables.next_seq()?);
            self.effects.runs = true;
        }
        let change = RunChange { run: row.id, state: Some(row.state), history_len: row.history_len };
        if before.history_len != row.history_len || before.state != row.state || before.stuck != row.stuck {
            self.events.push(FeedEvent::Run(change));
        }
        self.tables.put_run(Some(before), &row)?;
        Ok(row.history_len)
    }

    /// The run of this id, or `NotFound`.
    fn wanted_run(&mut self, id: RunId) -> Result<RunRow> {
        self.tables.run(id)?.ok_or_else(|| Error::run_not_found(id))
    }

    /// See [`RunStore::commit_runs`](crate::store::RunStore::commit_runs).
    pub fn commit_runs(&mut self, commits: Vec<Result<PreparedCommit>>) -> Result<Vec<Result<RunCommitted>>> {
        Ok(commits.into_iter().map(|commit| commit.and_then(|commit| self.commit_run(commit))).collect())
    }

    fn commit_run(&mut self, prepared: PreparedCommit) -> Result<RunCommitted> {
        let PreparedCommit { commit, jobs } = prepared;
        let RunCommit { lease, history_len, inbox_to, lease_ms, step } = commit;
        let row = self.wanted_run(lease.run)?;
        let repeated = RunCommitted { history_len: row.history_len, repeated: true };
        let Some(held) = row.held.clone().filter(|held| held.token == lease.token) else {
            return if row.last_token == Some(lease.token) { Ok(repeated) } else { Err(Error::LeaseLost) };
        };
        if row.history_len != history_len {
            let made = history_len.checked_add(step.history.len() as u64) == Some(row.history_len);
            return if made { Ok(repeated) } else { Err(Error::LeaseLost) };
        }
        if inbox_to > row.inbox_next {
            return Err(Error::beyond_inbox("inbox_to"));
        }
        let jobs = self.all_or_none(jobs)?;
        self.tables.trim_inbox(lease.run, row.inbox_first, inbox_to)?;
        let history_len = self.make_step(row, step, jobs, |step, row| {
            row.inbox_first = row.inbox_first.max(inbox_to);
            match lease_ms {
                Some(ms) => row.held = Some(Held { expires_at: step.now.plus_ms(ms), ..held }),
                None => {
                    row.held = None;
                    row.last_token = Some(lease.token);
                }
            }
        })?;
        Ok(RunCommitted { history_len, repeated: false })
    }

    /// The answer to a claim that finds nothing, found by looking alone; `None` when there may be something.
    pub(super) fn no_runs(&mut self, claim: &RunClaim) -> Result<Option<RunsClaimed>> {
        if claim.run.is_some() || !self.tables.waking_runs(self.now, 1)?.is_empty() {
            return Ok(None);
        }
        for kind in &claim.kinds {
            if !self.tables.ready_runs(kind, 1)?.is_empty() {
                return Ok(None);
            }
        }
        let next_at = self.tables.next_run_wake()?;
        Ok(Some(RunsClaimed { now: self.now, next_at, ..RunsClaimed::default() }))
    }

    /// See [`RunStore::claim_runs`](crate::store::RunStore::claim_runs).
    pub fn claim_runs(&mut self, claim: &RunClaim) -> Result<RunsClaimed> {
        let mut runs = Vec::new();
        if let Some(id) = claim.run {
            let row = self.wanted_run(id)?;
            let free = row.held.as_ref().is_none_or(|held| held.expires_at <= self.now);
            if free && !row.rests() && claim.kinds.contains(&row.kind) {
                runs.push(self.hold_run(&row, claim)?);
            }
            return Ok(RunsClaimed { runs, now: self.now, ..RunsClaimed::default() });
        }
        let max = claim.max as usize;
        self.wake_runs(max)?;
        for kind in &claim.kinds {
            for id in self.tables.ready_runs(kind, max - runs.len())? {
                match self.wanted_run(id) {
                    Ok(row) => runs.push(self.hold_run(&row, claim)?),
                    // It is shown by listings; nobody can do more about it.
                    Err(Error::Corrupt { .. } | Error::NotFound { .. }) => self.tables.set_run_aside(id)?,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(RunsClaimed { runs, now: self.now, next_at: self.tables.next_run_wake()?, ..RunsClaimed::default() })
    }

    /// Puts runs whose time has come, or whose engine vanished, where they are claimed.
    pub(super) fn wake_runs(&mut self, max: usize) -> Result<usize> {
        let runs = self.tables.waking_runs(self.now, max)?;
        for id in &runs {
            let before = match self.wanted_run(*id) {
                Ok(row) => row,
                Err(Error::Corrupt { .. } | Error::NotFound { .. }) => {
                    self.tables.set_run_aside(*id)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let row = RunRow { held: None, ready: Some(self.tables.next_seq()?), ..before.clone() };
            self.effects.runs = true;
            self.tables.put_run(Some(&before), &row)?;
        }
        Ok(runs.len())
    }

    /// See [`RunStore::renew_runs`](crate::store::RunStore::renew_runs).
    pub fn renew_runs(&mut self, renewals: &[RunRenewal]) -> Result<Vec<Result<RunRenewed>>> {
        Ok(renewals.iter().map(|renewal| self.renew_run(renewal)).collect())
    }

    fn renew_run(&mut self, renewal: &RunRenewal) -> Result<RunRenewed> {
        renewal.check()?;
        let before = self.wanted_run(renewal.lease.run)?;
        let held = before.held.clone().filter(|held| held.token == renewal.lease.token).ok_or(Error::LeaseLost)?;
        if renewal.inbox_from > before.inbox_next {
            return Err(Error::beyond_inbox("inbox_from"));
        }
        // Read before the write, so that a failed read changes nothing.
        let from = renewal.inbox_from.max(before.inbox_first);
        let (inbox, inbox_to) = self.items_from(&before, from)?;
        let expires_at = self.now.plus_ms(renewal.lease_ms);
        let row = RunRow { held: Some(Held { expires_at, ..held }), ..before.clone() };
        self.tables.put_run(Some(&before), &row)?;
        // The inbox of a damaged run may begin behind its end.
        Ok(RunRenewed { expires_at, inbox, inbox_to, inbox_taken: inbox_to.saturating_sub(from) })
    }

    /// The oldest items of an inbox from one on, and the number behind the last one that was read. One that cannot be read is
    /// left out, and counts as handled with the others.
    fn items_from(&mut self, row: &RunRow, from: u64) -> Result<(Vec<RunItem>, u64)> {
        let found = self.tables.inbox(row.id, from, INBOX_ITEMS_MAX)?;
        // Those that are not there at all are passed when nothing else follows.
        let end = if found.len() < INBOX_ITEMS_MAX { Some(row.inbox_next) } else { None };
        let (mut inbox, mut bytes, mut to) = (Vec::new(), 0, from);
        for (number, item) in found {
            bytes += item.as_ref().map_or(0, weight);
            if bytes > INBOX_BYTES && !inbox.is_empty() {
                return Ok((inbox, to));
            }
            inbox.extend(item);
            to = number.saturating_add(1).min(row.inbox_next);
        }
        Ok((inbox, end.unwrap_or(to)))
    }

    fn hold_run(&mut self, before: &RunRow, claim: &RunClaim) -> Result<ClaimedRun> {
        let token = Token::from_bits(self.random.next_u64());
        let expires_at = self.now.plus_ms(claim.lease_ms);
        let held = Held { token, worker: claim.engine.clone(), expires_at };
        let row = RunRow { held: Some(held), ready: None, ..before.clone() };
        self.tables.put_run(Some(before), &row)?;
        let (inbox, inbox_to) = self.items_from(&row, row.inbox_first)?;
        Ok(ClaimedRun {
            lease: RunLease { run: row.id, token },
            expires_at,
            kind: row.kind,
            name: row.name.as_ref().to_owned(),
            definition_hash: row.definition_hash,
            number: row.seq,
            created_at: row.created_at,
            history_len: row.history_len,
            inbox,
            inbox_to,
            inbox_taken: inbox_to.saturating_sub(row.inbox_first),
            woken: row.wake_at.is_some_and(|at| at <= self.now),
        })
    }
}

/// About how many bytes an item takes.
fn weight(item: &RunItem) -> usize {
    match item {
        RunItem::Message { body, .. } => body.len(),
        RunItem::JobEnded(end) => {
            let outputs: usize = end.outputs.iter().map(|(key, value)| key.len() + value.len()).sum();
            outputs + end.error.as_ref().map_or(0, String::len)
        }
    }
}
