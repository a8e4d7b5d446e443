//! Claims of runs, renewals of their leases, and what happens when a lease or a wait is over.

use super::super::Step;
use super::super::rows::RunRow;
use super::super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::Token;
use crate::job::Held;
use crate::store::{
    CLAIM_HISTORIES_BYTES_MAX, ClaimedRun, INBOX_ITEMS_MAX, InboxItem, RunClaim, RunItem, RunLease, RunRenewal,
    RunRenewed, RunState, RunsClaimed,
};
use bytes::Bytes;

/// Outputs, results and messages that one claim hands out of one inbox, in bytes; one item always.
const INBOX_BYTES: usize = 4 << 20;

/// Items that were read from an inbox.
struct ItemsRead {
    inbox: Vec<InboxItem>,
    /// The number behind the last item that was read or passed.
    inbox_to: u64,
    /// How many items there were, those included that cannot be read.
    inbox_taken: u64,
}

impl<T: Tables> Step<'_, T> {
    /// The answer to a claim that finds nothing, found by looking alone; `None` when there may be something.
    pub(in super::super) fn no_runs(&mut self, claim: &RunClaim) -> Result<Option<RunsClaimed>> {
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
        let (mut runs, mut bytes_left) = (Vec::new(), CLAIM_HISTORIES_BYTES_MAX);
        if let Some(id) = claim.run {
            let row = self.wanted_run(id)?;
            let free = row.held.as_ref().is_none_or(|held| held.expires_at <= self.now);
            let is_wanted = row.is_claimable(self.now) || claim.even_stuck && row.state == RunState::Running;
            if free && is_wanted && claim.kinds.contains(&row.kind) {
                runs.push(self.hold_run(&row, claim, &mut bytes_left)?);
            }
            return Ok(RunsClaimed { runs, now: self.now, ..RunsClaimed::default() });
        }
        let max = claim.max as usize;
        self.wake_runs(max)?;
        for kind in &claim.kinds {
            for id in self.tables.ready_runs(kind, max - runs.len())? {
                match self.wanted_run(id) {
                    Ok(row) => runs.push(self.hold_run(&row, claim, &mut bytes_left)?),
                    // It is shown by listings; nobody can do more about it.
                    Err(Error::Corrupt { .. } | Error::NotFound { .. }) => self.tables.set_run_aside(id)?,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(RunsClaimed { runs, now: self.now, next_at: self.tables.next_run_wake()?, ..RunsClaimed::default() })
    }

    /// Puts runs whose time has come, or whose engine vanished, where they are claimed.
    pub(in super::super) fn wake_runs(&mut self, max: usize) -> Result<usize> {
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
            let stall_count = stall_count(&before);
            let row = RunRow { held: None, ready: Some(self.tables.next_seq()?), stall_count, ..before.clone() };
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
        let ItemsRead { inbox, inbox_to, inbox_taken } = self.items_from(&before, from)?;
        let expires_at = self.now.plus_ms(renewal.lease_ms);
        let row = RunRow { held: Some(Held { expires_at, ..held }), ..before.clone() };
        self.tables.put_run(Some(&before), &row)?;
        Ok(RunRenewed { expires_at, inbox, inbox_to, inbox_taken })
    }

    /// The oldest items of an inbox from one on. One that cannot be read is left out, and counts as taken with the others.
    fn items_from(&mut self, row: &RunRow, from: u64) -> Result<ItemsRead> {
        let found = self.tables.inbox(row.id, from, INBOX_ITEMS_MAX)?;
        // Those that are not there at all are passed when nothing else follows.
        let is_all = found.len() < INBOX_ITEMS_MAX;
        let (mut inbox, mut bytes, mut inbox_to, mut count, mut is_cut) = (Vec::new(), 0, from, 0, false);
        for (number, item) in found {
            bytes += item.as_ref().map_or(0, RunItem::weight);
            if bytes > INBOX_BYTES && !inbox.is_empty() {
                is_cut = true;
                break;
            }
            inbox.extend(item.map(|item| InboxItem { number, item }));
            inbox_to = number.saturating_add(1).min(row.inbox_next);
            count += 1;
        }
        if is_all && !is_cut {
            inbox_to = row.inbox_next;
        }
        // Without holes, an item that is not there is a damaged one. The inbox of a damaged run may begin behind its end.
        let inbox_taken = if row.inbox_holes == 0 { inbox_to.saturating_sub(from) } else { count };
        Ok(ItemsRead { inbox, inbox_to, inbox_taken })
    }

    /// Items of an inbox from a number on, and the number behind the last one that was read or passed.
    pub(super) fn inbox_from(&mut self, row: &RunRow, from: u64) -> Result<(Vec<InboxItem>, u64)> {
        let from = from.clamp(row.inbox_first, row.inbox_next.max(row.inbox_first));
        self.items_from(row, from).map(|read| (read.inbox, read.inbox_to))
    }

    fn hold_run(&mut self, before: &RunRow, claim: &RunClaim, bytes_left: &mut u64) -> Result<ClaimedRun> {
        let token = Token::from_bits(self.random.next_u64());
        let expires_at = self.now.plus_ms(claim.lease_ms);
        let held = Held { token, worker: claim.engine.clone(), expires_at };
        let stall_count = stall_count(before);
        let row = RunRow { held: Some(held), ready: None, stall_count, ..before.clone() };
        self.tables.put_run(Some(before), &row)?;
        let ItemsRead { inbox, inbox_to, inbox_taken } = self.items_from(&row, row.inbox_first)?;
        let (input, history) = self.segment(&row, claim, bytes_left)?.unzip();
        Ok(ClaimedRun {
            lease: RunLease { run: row.id, token },
            expires_at,
            woken: row.is_due(self.now),
            kind: row.kind,
            name: row.name.as_ref().to_owned(),
            definition_hash: row.definition_hash,
            number: row.seq,
            created_at: row.created_at,
            history_len: row.history_len,
            inbox,
            inbox_to,
            inbox_taken,
            state: row.state,
            stuck: row.stuck,
            parent: row.parent,
            labels: row.labels.as_ref().clone(),
            stall_count: row.stall_count,
            segment_from: row.segment_from,
            input,
            history: history.unwrap_or_default(),
        })
    }

    /// The input and the history that come with a claim, if they do.
    fn segment(&mut self, row: &RunRow, claim: &RunClaim, bytes_left: &mut u64) -> Result<Option<(Bytes, Vec<Bytes>)>> {
        let is_known = row.committed_by.as_ref() == Some(&claim.engine);
        let max = u64::from(claim.history_bytes_max).min(*bytes_left);
        if claim.history_bytes_max == 0 || is_known || row.segment_bytes > max {
            return Ok(None);
        }
        let len = usize::try_from(row.history_len.saturating_sub(row.segment_from)).unwrap_or(usize::MAX);
        let Some(input) = self.tables.run_input(row.id)? else { return Ok(None) };
        let history = if len == 0 { Vec::new() } else { self.tables.history(row.id, row.segment_from, len)? };
        if history.len() != len {
            // Some of it cannot be read; the engine finds that out by reading it.
            return Ok(None);
        }
        *bytes_left -= row.segment_bytes;
        Ok(Some((input, history)))
    }
}

/// How many leases of a run have run out since its last commit, when the one that it has now, if any, has run out.
fn stall_count(row: &RunRow) -> u32 {
    row.stall_count.saturating_add(u32::from(row.held.is_some()))
}
