//! The work that time brings, in bounded steps that any number of processes may do.

use super::Step;
use super::rows::{DedupRow, Parked, QueueId, Row};
use super::tables::{Tables, Walk};
use crate::error::Result;
use crate::job::{Event, Failure, FailureClass, State, Verb};
use crate::store::{Beat, MINUTES_KEPT, Sweep, SweepKind, Swept, WORKER_KEPT_MS};
use crate::time::Timestamp;

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::sweep`](crate::store::JobQueue::sweep).
    pub fn sweep(&mut self, sweep: Sweep) -> Result<Swept> {
        sweep.check()?;
        let max = sweep.max as usize;
        let handled = match sweep.kind {
            SweepKind::Reap => {
                let reaped = self.reap(max)?;
                reaped + self.wake_runs(max - reaped)?
            }
            SweepKind::Promote => self.promote(max)?,
            SweepKind::Prune => self.prune(max)?,
        };
        Ok(Swept { handled: handled as u64, more: handled >= max, next_at: self.next_sweep(sweep.kind)? })
    }

    /// The answer to a sweep that has nothing to do, found by looking alone; `None` when it has, or may have.
    pub(super) fn empty_sweep(&mut self, kind: SweepKind) -> Result<Option<Swept>> {
        let idle = match kind {
            SweepKind::Reap => {
                self.tables.expired(self.now, 1)?.is_empty() && self.tables.waking_runs(self.now, 1)?.is_empty()
            }
            SweepKind::Promote => self.nothing_to_promote()?,
            // It looks in too many places to look twice, and it is rare.
            SweepKind::Prune => false,
        };
        Ok(if idle { Some(Swept { next_at: self.next_sweep(kind)?, ..Swept::default() }) } else { None })
    }

    fn nothing_to_promote(&mut self) -> Result<bool> {
        for queue in self.tables.queues()? {
            let waking = self.tables.waking_groups(queue, self.now, 1)?;
            if !waking.is_empty() || !self.tables.due(queue, self.now, 1)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// When time alone brings the next of this work, as far as it stands now.
    fn next_sweep(&mut self, kind: SweepKind) -> Result<Option<Timestamp>> {
        match kind {
            SweepKind::Reap => {
                let (lease, run) = (self.tables.next_expiry()?, self.tables.next_run_wake()?);
                Ok([lease, run].into_iter().flatten().min())
            }
            SweepKind::Promote => {
                let mut next = None;
                for queue in self.tables.queues()? {
                    let (due, wake) = (self.tables.next_due(queue)?, self.tables.next_wake(queue)?);
                    next = [next, due, wake].into_iter().flatten().min();
                }
                Ok(next)
            }
            SweepKind::Prune => Ok(None),
        }
    }

    fn reap(&mut self, max: usize) -> Result<usize> {
        let rows = self.tables.expired(self.now, max)?;
        for row in &rows {
            let Some(record) = self.readable_record(*row)? else {
                continue;
            };
            let worker = record.life.held.as_ref().map_or("?", |held| held.worker.as_str());
            let message = format!("the lease of worker {worker} ran out; it died, froze, or lost the store");
            let (attempt, at) = (record.life.attempt, self.now);
            self.push_failure(*row, Failure { attempt, at, ..Failure::new(FailureClass::Stalled, message) })?;
            let reaped = self.transition(&record, &Event::Reap);
            self.or_set_aside(*row, reaped)?;
        }
        Ok(rows.len())
    }

    fn promote(&mut self, max: usize) -> Result<usize> {
        let mut handled = 0;
        for queue in self.tables.queues()? {
            handled += self.wake_groups(queue, max - handled)?;
            handled += self.promote_due(queue, max - handled)?;
        }
        Ok(handled)
    }

    /// Makes due jobs of a queue ready, in the order of their times.
    pub(super) fn promote_due(&mut self, queue: QueueId, max: usize) -> Result<usize> {
        let rows = self.tables.due(queue, self.now, max)?;
        for row in &rows {
            if let Some(record) = self.readable_record(*row)? {
                let promoted = self.transition(&record, &Event::Promote);
                self.or_set_aside(*row, promoted)?;
            }
        }
        Ok(rows.len())
    }

    /// Brings groups back whose time has come, and forgets those that have nothing left.
    pub(super) fn wake_groups(&mut self, queue: QueueId, max: usize) -> Result<usize> {
        let groups = self.tables.waking_groups(queue, self.now, max)?;
        for id in &groups {
            let parked = self.tables.group(*id)?.parked;
            self.tables.park_group(*id, parked, None)?;
            self.review_group(*id)?;
            if self.tables.group(*id)?.parked == Parked::No {
                self.drop_idle_group(*id)?;
            }
        }
        Ok(groups.len())
    }

    fn prune(&mut self, max: usize) -> Result<usize> {
        let mut handled = self.prune_rows(max, |step, left| step.tables.removable(step.now, left))?;
        for queue in self.tables.queues()? {
            for state in [State::Succeeded, State::Failed, State::Cancelled] {
                if handled < max {
                    handled += self.prune_ended(queue, state, max - handled)?;
                }
            }
        }
        if handled < max {
            let keys = self.tables.expired_dedup(self.now, max - handled)?;
            handled += keys.len();
            for key in keys {
                self.prune_key(key)?;
            }
        }
        if handled < max {
            handled += self.prune_runs(max - handled)?;
        }
        handled += self.prune_rest(max.saturating_sub(handled))?;
        Ok(handled)
    }

    fn prune_rows(&mut self, max: usize, find: impl FnOnce(&mut Self, usize) -> Result<Vec<Row>>) -> Result<usize> {
        let rows = find(self, max)?;
        for row in &rows {
            if let Some(record) = self.readable_record(*row)? {
                self.remove(&record, Verb::Remove)?;
            }
        }
        Ok(rows.len())
    }

    /// Removes ended jobs that are too old or too many.
    fn prune_ended(&mut self, id: QueueId, state: State, max: usize) -> Result<usize> {
        let queue = self.tables.queue(id)?;
        let rule = queue.settings.retention.rule(state);
        let count = queue.counts[state.index()];
        let over = rule.count.map_or(0, |keep| count.saturating_sub(keep));
        let too_many = usize::try_from(over).unwrap_or(usize::MAX).min(max);
        let mut handled = 0;
        if too_many > 0 {
            // All of them count, also those that say themselves how long they are kept: that concerns their age only.
            let lanes = self.tables.lanes(id)?;
            handled = self.prune_rows(too_many, |step, limit| {
                let walk = Walk { queue: id, lanes: &lanes, state, descending: false, after: None, limit };
                Ok(step.tables.walk(walk)?.into_iter().map(|(_, row)| row).collect())
            })?;
        }
        if let Some(age_ms) = rule.age_ms
            && handled < max
        {
            let edge = self.now.minus_ms(age_ms);
            handled += self.prune_rows(max - handled, |step, left| step.tables.ended(id, state, edge, left))?;
        }
        Ok(handled)
    }

    /// Frees a key whose time ran out, unless a job still waits behind its holder.
    fn prune_key(&mut self, key: [u8; 16]) -> Result<()> {
        match self.tables.dedup(key)? {
            Some(row) if row.successor.is_some() => self.tables.put_dedup(key, Some(DedupRow { until: None, ..row })),
            _ => self.tables.put_dedup(key, None),
        }
    }

    fn prune_rest(&mut self, max: usize) -> Result<usize> {
        if max == 0 {
            return Ok(0);
        }
        let count = |pruned: u64| usize::try_from(pruned).unwrap_or(usize::MAX);
        let mut handled = count(self.tables.prune_minutes(self.now.minute() - MINUTES_KEPT, max)?);
        if handled < max {
            handled += count(self.tables.prune_memos(self.now.minus_ms(WORKER_KEPT_MS), max - handled)?);
        }
        if handled < max {
            let now = self.now;
            let is_gone = |beat: &Beat, seen_at| now.ms_since(seen_at) > WORKER_KEPT_MS.max(beat.ttl_ms);
            let workers = self.tables.workers()?.into_iter().filter(|worker| is_gone(&worker.beat, worker.seen_at));
            for worker in workers.take(max - handled) {
                self.tables.remove_worker(worker.id())?;
                handled += 1;
            }
        }
        Ok(handled)
    }
}
