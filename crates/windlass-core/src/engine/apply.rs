//! The one way in which a job changes: its record, and everything that is a function of the records.

use super::rows::{Fresh, GroupId, Lane, LaneId, Ord64, QueueId, Record, Row};
use super::tables::Tables;
use super::{Ended, Step};
use crate::error::{Error, Result};
use crate::job::{Event, FAILURES_MAX, Failure, Next, Order, State, Verb, next};
use crate::store::{FeedEvent, MinuteMetrics, Transition};
use crate::time::Timestamp;

impl<T: Tables> Step<'_, T> {
    /// Asks the machine, and applies what it says. Answers the new record, or `None` when the job is gone.
    pub(super) fn transition(&mut self, before: &Record, event: &Event) -> Result<Option<Record>> {
        let verb = event.verb();
        match next(&before.life, event, self.now)? {
            Next::Gone => {
                self.remove(before, verb)?;
                Ok(None)
            }
            Next::Becomes(life, order) => {
                let mut after = before.with_life(life);
                if after.state() == State::Ready && order == Order::Fresh {
                    after.ord = self.fresh_ord(&after)?;
                }
                self.apply(before, &mut after, verb)?;
                Ok(Some(after))
            }
        }
    }

    /// A new place at the end of the job's priority, or at its head.
    pub(super) fn fresh_ord(&mut self, record: &Record) -> Result<Ord64> {
        Ok(Ord64::new(record.priority, self.tables.next_seq()?, record.lifo))
    }

    /// Adds a job.
    pub(super) fn insert(&mut self, mut fresh: Fresh) -> Result<()> {
        let record = &mut fresh.record;
        if record.state() == State::Ready {
            record.group = Some(self.group_of_spec(record.queue, &fresh.spec, true)?);
        }
        self.enter_state(record)?;
        let lane = self.tables.lane_mut(record.lane)?;
        lane.jobs = lane.jobs.saturating_add(1);
        add(&mut self.minute(record.queue)?.enqueued, 1);
        self.note(record, Verb::Enqueue, None, Some(record.life.state))?;
        self.tables.insert_job(fresh)
    }

    /// Replaces a record, and lets everything follow that depends on it.
    pub(super) fn apply(&mut self, before: &Record, after: &mut Record, verb: Verb) -> Result<()> {
        let (from, to) = (before.state(), after.state());
        if from == to {
            if verb != Verb::Renew {
                self.note(after, verb, Some(from), Some(to))?;
            }
            if to == State::Ready && after.ord < before.ord {
                // It may stand before all others of its lane now.
                let lane = self.tables.lane_mut(after.lane)?;
                lane.head = lane.head.min(after.ord);
            }
            return self.tables.update_job(before, after);
        }
        // Whatever may turn out to be unreadable is read before the first write.
        after.group = match to {
            State::Active => before.group,
            State::Ready => Some(self.group_of(before)?),
            State::Scheduled | State::Succeeded | State::Failed | State::Cancelled => None,
        };
        after.remove_at = self.removal_time(after)?;
        if to == State::Ready {
            after.ready_at = self.now;
        }
        self.measure(before, after, verb)?;
        self.leave_state(before, Some(to))?;
        self.enter_state(after)?;
        self.note(after, verb, Some(from), Some(to))?;
        self.tables.update_job(before, after)?;
        if to.is_terminal() {
            self.effects.ended.push(Ended::Job(after.id));
            self.free_dedup(after)?;
            self.tell_run(after, Some(to))?;
            if after.remove_at.is_some_and(|at| at <= self.now) {
                self.remove(after, Verb::Remove)?;
            }
        }
        Ok(())
    }

    /// Removes a job and all that hangs on it.
    pub(super) fn remove(&mut self, record: &Record, verb: Verb) -> Result<()> {
        if self.is_orphan(record)? {
            self.effects.ended.push(Ended::Job(record.id));
            return self.tables.remove_job(record);
        }
        if !record.state().is_terminal() {
            self.tell_run(record, None)?;
        }
        self.leave_state(record, None)?;
        let lane = self.tables.lane_mut(record.lane)?;
        lane.jobs = lane.jobs.saturating_sub(1);
        self.note(record, verb, Some(record.state()), None)?;
        self.tables.remove_job(record)?;
        self.effects.ended.push(Ended::Job(record.id));
        if record.state().is_terminal() { Ok(()) } else { self.free_dedup(record) }
    }

    fn enter_state(&mut self, record: &Record) -> Result<()> {
        let count = &mut self.tables.queue_mut(record.queue)?.counts[record.state().index()];
        *count = count.saturating_add(1);
        self.enter_group(record)
    }

    /// `to` is the state that it goes to, or `None` when it goes for good.
    fn leave_state(&mut self, record: &Record, to: Option<State>) -> Result<()> {
        // Counters follow the records. Only damaged ones can be too small, and they must not stop anybody.
        let count = &mut self.tables.queue_mut(record.queue)?.counts[record.state().index()];
        let was = *count;
        *count = count.saturating_sub(1);
        let queue = self.tables.queue(record.queue)?;
        if record.state() == State::Active && queue.settings.cap.is_some_and(|cap| was >= u64::from(cap)) {
            // A place is free that somebody may be waiting for.
            let name = queue.name.clone();
            self.ring(&name);
        }
        self.leave_group(record, to)
    }

    /// The group of a job that becomes ready.
    pub(super) fn group_of(&mut self, record: &Record) -> Result<GroupId> {
        match record.group {
            Some(group) => Ok(group),
            None if record.grouped => {
                let spec = self.tables.spec(record.row)?;
                self.group_of_spec(record.queue, &spec, false)
            }
            None => self.group_for(record.queue, None),
        }
    }

    /// When a job goes that says so itself.
    fn removal_time(&mut self, record: &Record) -> Result<Option<Timestamp>> {
        if !record.keeps_itself || !record.state().is_terminal() {
            return Ok(None);
        }
        let keep = match self.tables.spec(record.row) {
            Ok(spec) => spec.keep_for,
            Err(Error::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let ms = if record.state() == State::Failed { keep.failed_ms } else { keep.succeeded_ms };
        Ok(ms.map(|ms| self.now.plus_ms(ms)))
    }

    fn note(&mut self, record: &Record, verb: Verb, from: Option<State>, to: Option<State>) -> Result<()> {
        let queue = self.tables.queue(record.queue)?.name.clone();
        if to == Some(State::Ready) {
            self.ring(&queue);
        }
        let attempt = record.life.attempt;
        self.events.push(FeedEvent::Job(Transition { job: record.id, queue, verb, from, to, attempt }));
        Ok(())
    }

    pub(super) fn minute(&mut self, queue: QueueId) -> Result<&mut MinuteMetrics> {
        self.tables.minute_mut(queue, self.now.minute())
    }

    fn measure(&mut self, before: &Record, after: &Record, verb: Verb) -> Result<()> {
        if verb != Verb::Claim && before.state() != State::Active && !after.state().is_terminal() {
            // Nothing of this is counted, and a minute in which nothing happened must not come to be.
            return Ok(());
        }
        let now = self.now;
        let waited_ms = now.ms_since(before.ready_at);
        let ran_ms = before.life.claimed_at.map_or(0, |at| now.ms_since(at));
        let minute = self.minute(after.queue)?;
        match (verb, after.state()) {
            (Verb::Claim, _) => {
                add(&mut minute.claimed, 1);
                add(&mut minute.waited_ms, waited_ms);
            }
            (Verb::Fail, State::Ready | State::Scheduled) => add(&mut minute.retried, 1),
            (_, State::Succeeded) => add(&mut minute.succeeded, 1),
            (_, State::Failed) => add(&mut minute.failed, 1),
            (_, State::Cancelled) => add(&mut minute.cancelled, 1),
            _ => {}
        }
        if verb == Verb::Reap {
            add(&mut minute.stalled, 1);
        }
        if before.state() == State::Active {
            add(&mut minute.ran_ms, ran_ms);
        }
        Ok(())
    }

    /// Keeps a failure with its job; the oldest go.
    pub(super) fn push_failure(&mut self, row: Row, mut failure: Failure) -> Result<()> {
        failure.cut();
        let mut extra = self.readable(row)?;
        if extra.failures.len() >= FAILURES_MAX {
            extra.failures.remove(0);
        }
        extra.failures.push(failure);
        self.tables.put_extra(row, extra)
    }

    /// The lanes of a queue that pass a test.
    pub(super) fn lanes_where(&mut self, queue: QueueId, mut test: impl FnMut(&Lane) -> bool) -> Result<Vec<LaneId>> {
        let mut found = Vec::new();
        for id in self.tables.lanes(queue)? {
            if test(self.tables.lane(id)?) {
                found.push(id);
            }
        }
        Ok(found)
    }
}

/// Adds to a stored number, which may be damaged and must not stop anybody.
fn add(number: &mut u64, more: u64) {
    *number = number.saturating_add(more);
}
