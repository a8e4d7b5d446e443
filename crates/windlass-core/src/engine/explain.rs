//! Why a job stands where it stands.

use super::Step;
use super::rows::Record;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::State;
use crate::store::{Explanation, Reason};

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::explain`](crate::store::JobQueue::explain).
    pub fn explain(&mut self, id: JobId) -> Result<Explanation> {
        let missing = || Error::job_not_found(id);
        let row = self.tables.find_job(id)?.ok_or_else(missing)?;
        let (record, damage) = self.look(row)?.ok_or_else(missing)?;
        let damage = match self.tables.spec(row) {
            Err(Error::Corrupt { what }) if !record.quarantined => Some(what),
            _ => damage,
        };
        let reason = if let Some(why) = damage {
            Reason::Quarantined { detail: why }
        } else if record.quarantined {
            let failures = self.readable(record.row)?.failures;
            Reason::Quarantined { detail: failures.last().map_or(String::new(), |failure| failure.message.clone()) }
        } else {
            match record.state() {
                State::Scheduled => self.why_scheduled(&record)?,
                State::Ready => self.why_ready(&record)?,
                State::Active => self.why_active(&record),
                State::Succeeded | State::Failed | State::Cancelled => {
                    let failed = record.state() == State::Failed;
                    Reason::Ended { error: self.last_error(&record)?.filter(|_| failed) }
                }
            }
        };
        Ok(Explanation { id, state: record.state(), reason })
    }

    fn last_error(&mut self, record: &Record) -> Result<Option<String>> {
        Ok(self.readable(record.row)?.failures.last().map(|failure| failure.message.clone()))
    }

    fn why_scheduled(&mut self, record: &Record) -> Result<Reason> {
        let Some(until) = record.life.due_at else {
            let holder = match record.dedup {
                Some(key) => self.tables.dedup(key)?.map(|row| row.owner),
                None => None,
            };
            return Ok(Reason::HeldBehind { job: holder.unwrap_or(record.id) });
        };
        if until <= self.now {
            return Ok(Reason::Due);
        }
        match self.last_error(record)? {
            Some(error) if record.life.attempt > 0 => {
                Ok(Reason::BackingOff { until, attempt: record.life.attempt, error })
            }
            _ => Ok(Reason::Delayed { until }),
        }
    }

    fn why_active(&self, record: &Record) -> Reason {
        match &record.life.held {
            Some(held) if held.expires_at <= self.now => Reason::LeaseExpired { worker: held.worker.clone() },
            Some(held) if record.life.cancel_requested => Reason::Cancelling { worker: held.worker.clone() },
            Some(held) => Reason::Running { worker: held.worker.clone(), until: held.expires_at },
            None => Reason::WaitsItsTurn,
        }
    }

    fn why_ready(&mut self, record: &Record) -> Result<Reason> {
        let now = self.now;
        let lane = self.tables.lane(record.lane)?;
        let (kind, labels) = (lane.kind.clone(), lane.labels.clone());
        let queue = self.tables.queue(record.queue)?;
        let name = queue.name.clone();
        let settings = &queue.settings;
        if settings.paused {
            return Ok(Reason::QueuePaused);
        }
        if settings.paused_kinds.contains(&kind) {
            return Ok(Reason::KindPaused { kind });
        }
        match settings.cap {
            Some(cap) if queue.counts[State::Active.index()] >= u64::from(cap) => {
                return Ok(Reason::QueueAtCap { cap });
            }
            _ => {}
        }
        if let Some(until) = settings.rate.and_then(|rate| queue.meter.next_at(rate, now)) {
            return Ok(Reason::QueueRateLimited { until });
        }
        if let Some(reason) = self.why_group(record)? {
            return Ok(reason);
        }
        let workers = self.tables.workers()?;
        let live: Vec<_> = workers.iter().filter(|worker| worker.is_live(now)).map(|worker| &worker.beat).collect();
        Ok(Reason::of_workers(&live, &name, kind, &labels))
    }

    fn why_group(&mut self, record: &Record) -> Result<Option<Reason>> {
        let now = self.now;
        let Some(id) = record.group else {
            return Ok(None);
        };
        let limits = self.group_limits(id)?;
        let group = self.tables.group(id)?;
        let Some(name) = group.name.clone() else {
            return Ok(None);
        };
        match limits.cap {
            Some(cap) if group.active >= u64::from(cap) => {
                return Ok(Some(Reason::GroupAtCap { group: name, cap }));
            }
            _ => {}
        }
        let until = limits.rate.and_then(|rate| group.meter.next_at(rate, now));
        Ok(until.map(|until| Reason::GroupRateLimited { group: name, until }))
    }
}
