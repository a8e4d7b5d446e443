//! Changes to all jobs that match, in bounded steps.

use super::Step;
use super::rows::Record;
use super::scan::{Cursor, JobScan, question};
use super::tables::{Position, Tables};
use crate::error::{Error, Result};
use crate::job::{Due, State, Verb};
use crate::name::QueueName;
use crate::store::{ChangeMany, ChangeManyOp, ChangeOp, ChangedMany, FeedEvent, Filter, Setting};
use crate::time::Timestamp;

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::change_many`](crate::store::JobQueue::change_many).
    pub fn change_many(&mut self, request: &ChangeMany) -> Result<ChangedMany> {
        let name = request.check()?;
        let max = request.max as usize;
        let (began, cursor) = request.resume(self.now)?;
        let question = question(&request.filter, request.question(began));
        let cursor = cursor.map(|text| Cursor::decode(text, &question)).transpose()?;
        let (changed, end) = match request.op {
            ChangeManyOp::Obliterate { force } => self.obliterate(&name, force, max)?,
            _ => self.change_found(request, began, cursor)?,
        };
        Ok(ChangeMany::answer(began, changed, end.map(|cursor| cursor.encode(&question))))
    }

    /// Changes those that it finds from a place on; answers how many, and where it stopped.
    fn change_found(
        &mut self,
        request: &ChangeMany,
        began: Timestamp,
        from: Option<Cursor<Position>>,
    ) -> Result<(u64, Option<Cursor<Position>>)> {
        let scan = JobScan::new(request.filter.clone(), false, from).in_states(request.op.states());
        let steps = began..=self.now;
        let mut changed = 0;
        let mut found = Vec::new();
        let end = self.scan(&scan, request.max as usize, |_, record| {
            if !request.had_its_turn(&steps, record.life.claimed_at) {
                found.push(record.clone());
            }
            Ok(true)
        })?;
        for record in &found {
            changed += u64::from(self.change_matching(record, request.op)?);
        }
        Ok((changed, end))
    }

    fn change_matching(&mut self, record: &Record, op: ChangeManyOp) -> Result<bool> {
        // An earlier change of this step may have moved or removed this one, as a dedup successor.
        let Some(record) = self.readable_record(record.row)? else {
            return Ok(false);
        };
        let change = match op {
            ChangeManyOp::Drain { .. } | ChangeManyOp::Obliterate { .. } => ChangeOp::Remove,
            ChangeManyOp::Clean { older_than_ms } => {
                let ended = record.life.finished_at.unwrap_or(self.now);
                if self.now.ms_since(ended) < older_than_ms {
                    return Ok(false);
                }
                ChangeOp::Remove
            }
            ChangeManyOp::RetryFailed if record.quarantined => return Ok(false),
            ChangeManyOp::RetryFailed => ChangeOp::Retry(Due::Now),
            ChangeManyOp::PromoteAll if record.is_held() => return Ok(false),
            ChangeManyOp::PromoteAll => ChangeOp::Promote,
            ChangeManyOp::CancelAll if record.life.cancel_requested => return Ok(false),
            ChangeManyOp::CancelAll => ChangeOp::Cancel,
        };
        match self.change_record(&record, change) {
            Ok(_) => Ok(true),
            Err(Error::IllegalTransition { .. } | Error::KeyTaken { .. }) => Ok(false),
            // One that cannot be read must not keep the others from their turn.
            Err(error) => self.or_set_aside::<()>(record.row, Err(error)).map(|_| false),
        }
    }

    fn obliterate(&mut self, name: &QueueName, force: bool, max: usize) -> Result<(u64, Option<Cursor<Position>>)> {
        let Some(id) = self.tables.find_queue(name)? else {
            return Ok((0, None));
        };
        let queue = self.tables.queue(id)?;
        let active = queue.counts[State::Active.index()];
        if active > 0 && !force {
            return Err(Error::jobs_active(active));
        }
        // So that nothing is claimed between the steps. Whoever stops half-way leaves a paused queue.
        if !queue.settings.paused {
            self.tables.queue_mut(id)?.settings.paused = true;
            self.events.push(FeedEvent::Settings(Setting::Paused { queue: name.clone(), paused: true }));
        }
        let filter = Filter::queue(name.clone());
        let mut found = Vec::new();
        let end = self.scan(&JobScan::new(filter, false, None), max, |_, record| {
            found.push(record.clone());
            Ok(true)
        })?;
        let mut changed = 0;
        for record in found {
            // Removing one may have promoted its successor.
            if let Some(record) = self.readable_record(record.row)? {
                self.remove(&record, Verb::Remove)?;
                changed += 1;
            }
        }
        if end.is_none() && self.tables.queue(id)?.counts.iter().all(|count| *count == 0) {
            self.tables.remove_queue(id)?;
            self.events.push(FeedEvent::QueueRemoved { queue: name.clone() });
            return Ok((changed, None));
        }
        Ok((changed, Some(Cursor { queue: id.0, state: State::Scheduled, position: None })))
    }
}
