//! Commits: the fenced steps of engines.

use super::super::Step;
use super::super::tables::Tables;
use super::PreparedStep;
use crate::error::{Error, Result};
use crate::job::Held;
use crate::store::{RunCommit, RunCommitted, RunState, RunStep, check_batch};

/// A commit that was checked, and whose jobs and runs were.
#[derive(Clone, Debug)]
pub struct PreparedCommit {
    /// The commit without its step.
    commit: RunCommit,
    step: PreparedStep,
}

impl PreparedCommit {
    /// Checks a whole call; a commit that is refused keeps its place.
    pub fn batch(commits: Vec<RunCommit>) -> Result<Vec<Result<Self>>> {
        check_batch(commits.len())?;
        let prepare = |mut commit: RunCommit| {
            commit.check()?;
            let step = PreparedStep::new(std::mem::replace(&mut commit.step, RunStep::nothing()));
            Ok(Self { commit, step })
        };
        Ok(commits.into_iter().map(prepare).collect())
    }
}

impl<T: Tables> Step<'_, T> {
    /// See [`RunStore::commit_runs`](crate::store::RunStore::commit_runs).
    pub fn commit_runs(&mut self, commits: Vec<Result<PreparedCommit>>) -> Result<Vec<Result<RunCommitted>>> {
        Ok(commits.into_iter().map(|commit| commit.and_then(|commit| self.commit_run(commit))).collect())
    }

    fn commit_run(&mut self, prepared: PreparedCommit) -> Result<RunCommitted> {
        let PreparedCommit { commit, step } = prepared;
        let RunCommit { lease, history_len, inbox_to, inbox_taken, requires_read_messages, lease_ms, .. } = commit;
        let row = self.wanted_run(lease.run)?;
        let repeated = RunCommitted { history_len: row.history_len, repeated: true };
        let Some(held) = row.held.clone().filter(|held| held.token == lease.token) else {
            return if row.last_token == Some(lease.token) { Ok(repeated) } else { Err(Error::LeaseLost) };
        };
        if row.history_len != history_len {
            let made = history_len.checked_add(step.step.history.len() as u64) == Some(row.history_len);
            return if made { Ok(repeated) } else { Err(Error::LeaseLost) };
        }
        let is_terminated = row.state == RunState::Terminated;
        if is_terminated != (step.step.state == RunState::Terminated) {
            return Err(Error::terminated_only(is_terminated));
        }
        let taken = self.taken(&row, inbox_to, inbox_taken, requires_read_messages)?;
        if requires_read_messages && taken.unread_left() > 0 {
            return Err(Error::UnreadMessages { run: lease.run, unread: taken.unread_left() });
        }
        let accepted = self.accept(step)?;
        let inbox = self.take(&row, taken)?;
        let history_len = self.make_step(row, accepted, |step, row| {
            inbox.settle(row);
            row.committed_by = Some(held.worker.clone());
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
}
