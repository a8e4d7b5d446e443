//! Why a job stands where it stands.

use super::RedisStore;
use super::status::{Group, meter};
use super::workers::workers;
use crate::directory::settings_of;
use crate::record::{Read, failures, read};
use crate::reply::{Items, number, odd};
use crate::scripts::AT;
use windlass_core::id::JobId;
use windlass_core::job::{Failure, State};
use windlass_core::store::{Explanation, Reason};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// All that the store knows about a job's standing.
struct Facts {
    now: Timestamp,
    read: Read,
    failures: Vec<Failure>,
    holder: Option<JobId>,
    queue: Option<String>,
    settings: String,
    group: Option<String>,
    workers: Items,
}

impl RedisStore {
    pub(super) async fn explain_job(&self, id: JobId) -> Result<Explanation> {
        let mut call = self.caller.script(AT.explain);
        call.arg_fmt(id);
        let mut items = self.caller.items(call).await?;
        match items.text()?.as_str() {
            "ok" => {}
            "missing" => return Err(Error::job_not_found(id)),
            other => return Err(odd(other)),
        }
        let now = items.time()?;
        let (record, life, failed) = (items.maybe()?, items.maybe()?, items.maybe()?);
        let holder = items.maybe_text()?.and_then(|text| text.parse().ok());
        let (queue, settings, group) =
            (items.maybe_text()?, items.maybe_text()?.unwrap_or_default(), items.maybe_text()?);
        let mut job = read(record.as_ref(), life.as_ref(), &self.directory, false)?;
        if job.damage.is_some() {
            self.look_at(&[]).await?;
            job = read(record.as_ref(), life.as_ref(), &self.directory, false)?;
        }
        let facts = Facts {
            now,
            read: job,
            failures: failures(failed.as_ref()),
            holder,
            queue,
            settings,
            group,
            workers: items,
        };
        let state = facts.read.life.state;
        Ok(Explanation { id, state, reason: facts.reason(id)? })
    }
}

impl Facts {
    fn reason(self, id: JobId) -> Result<Reason> {
        let life = &self.read.life;
        if life.is_quarantined() {
            let why = self.last_error().or(self.read.damage.clone()).unwrap_or_default();
            return Ok(Reason::Quarantined { detail: why });
        }
        if let Some(why) = self.read.damage.clone() {
            return Ok(Reason::Quarantined { detail: why });
        }
        match life.state {
            State::Scheduled => Ok(self.why_scheduled(id)),
            State::Ready => self.why_ready(),
            State::Active => Ok(self.why_active()),
            State::Succeeded | State::Failed | State::Cancelled => {
                let failed = life.state == State::Failed;
                Ok(Reason::Ended { error: self.last_error().filter(|_| failed) })
            }
        }
    }

    fn last_error(&self) -> Option<String> {
        self.failures.last().map(|failure| failure.message.clone())
    }

    fn why_scheduled(&self, id: JobId) -> Reason {
        let life = &self.read.life;
        let Some(until) = life.due_at else {
            return Reason::HeldBehind { job: self.holder.unwrap_or(id) };
        };
        if until <= self.now {
            return Reason::Due;
        }
        match self.last_error() {
            Some(error) if life.attempt > 0 => Reason::BackingOff { until, attempt: life.attempt, error },
            _ => Reason::Delayed { until },
        }
    }

    fn why_active(&self) -> Reason {
        let life = &self.read.life;
        match &life.lease {
            Some(lease) if lease.expires_at <= self.now => Reason::LeaseExpired { worker: lease.worker.clone() },
            Some(lease) if life.cancel_requested => Reason::Cancelling { worker: lease.worker.clone() },
            Some(lease) => Reason::Running { worker: lease.worker.clone(), until: lease.expires_at },
            None => Reason::WaitsItsTurn,
        }
    }

    fn why_ready(mut self) -> Result<Reason> {
        let now = self.now;
        let spec = &self.read.spec;
        let settings = settings_of(&self.settings)?;
        if settings.paused {
            return Ok(Reason::QueuePaused);
        }
        if settings.paused_kinds.contains(&spec.kind) {
            return Ok(Reason::KindPaused { kind: spec.kind.clone() });
        }
        let queue = self.queue.as_deref().unwrap_or_default();
        let parts: Vec<&str> = queue.splitn(12, ' ').collect();
        let active: u64 = number(parts.get(2).copied().unwrap_or("0"))?;
        if let Some(cap) = settings.cap.filter(|cap| active >= u64::from(*cap)) {
            return Ok(Reason::QueueAtCap { cap });
        }
        let started = meter(parts.get(10).copied().unwrap_or("-"))?;
        if let Some(until) = settings.rate.and_then(|rate| started.next_at(rate, now)) {
            return Ok(Reason::QueueRateLimited { until });
        }
        if let Some(Group { active, limits: own, meter, name: Some(group), .. }) =
            self.group.as_deref().and_then(|record| Group::read(record).ok())
        {
            let limits = own.or(settings.groups);
            if let Some(cap) = limits.cap.filter(|cap| active >= u64::from(*cap)) {
                return Ok(Reason::GroupAtCap { group, cap });
            }
            if let Some(until) = limits.rate.and_then(|rate| meter.next_at(rate, now)) {
                return Ok(Reason::GroupRateLimited { group, until });
            }
        }
        // By id, as everywhere: which of two equally good workers is named must not depend on a hash.
        let workers = workers(&mut self.workers, now)?;
        let live: Vec<_> = workers.iter().filter(|worker| worker.live).map(|worker| &worker.beat).collect();
        Ok(Reason::of_workers(&live, &spec.queue, spec.kind.clone(), &spec.labels))
    }
}
