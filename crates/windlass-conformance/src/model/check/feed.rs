//! The feed replayed: exactly one state per job (1), legal edges only (8), leases reaped when they had ended (10), the
//! feed equal to the state (19), ticks once (22).

use super::super::answer::Answer;
use super::super::op::Op;
use super::{Step, Verdict, ensure};
use std::collections::BTreeMap;
use windlass_core::id::JobId;
use windlass_core::job::{Job, State, Verb, targets};
use windlass_core::name::ScheduleName;
use windlass_core::store::{ChangeManyOp, ChangeOp, FeedEvent, SweepKind, Transition};
use windlass_core::time::Timestamp;

/// The state that the feed tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    /// State and attempts of every job that is there.
    pub(crate) jobs: BTreeMap<JobId, (State, u32)>,
    /// In which order jobs became ready: the store's sequence as far as it can be seen.
    pub(crate) places: BTreeMap<JobId, u64>,
    next_place: u64,
    ticks: BTreeMap<ScheduleName, Timestamp>,
}

impl Replay {
    /// Takes one transition in; it must go on where the last one ended.
    pub(crate) fn take(&mut self, event: &Transition) -> Verdict {
        let known = self.jobs.get(&event.job).copied();
        ensure!(known.map(|(state, _)| state) == event.from, "the feed has a gap: {event:?} follows {known:?}");
        match event.from {
            None => ensure!(event.verb == Verb::Enqueue && event.to.is_some(), "out of nothing comes {event:?}"),
            Some(from) => {
                // Only an obliteration by force takes a job away from its worker; see `check_cause`.
                let forced = event.verb == Verb::Remove && from == State::Active;
                let legal = forced || targets(from, event.verb).contains(&event.to);
                ensure!(legal, "an illegal transition: {event:?}");
            }
        }
        if let (Some((_, attempt)), Verb::Claim) = (known, event.verb) {
            ensure!(event.attempt == attempt + 1, "a claim spends one attempt: {event:?} after {attempt}");
        }
        let fresh = event.from != Some(State::Ready) && event.verb != Verb::Release || event.verb == Verb::Reschedule;
        if event.to == Some(State::Ready) && fresh {
            self.next_place += 1;
            self.places.insert(event.job, self.next_place);
        }
        match event.to {
            Some(state) => drop(self.jobs.insert(event.job, (state, event.attempt))),
            None => {
                self.jobs.remove(&event.job);
                self.places.remove(&event.job);
            }
        }
        Ok(())
    }

    /// The feed must tell the very state that the jobs show.
    pub(crate) fn agrees_with(&self, jobs: &BTreeMap<JobId, Job>) -> Verdict {
        for (id, job) in jobs {
            let told = self.jobs.get(id).copied();
            ensure!(told == Some((job.state, job.attempt)), "the feed tells {told:?} of {id}, which is {job:?}");
        }
        let gone = self.jobs.keys().find(|id| !jobs.contains_key(id));
        ensure!(gone.is_none(), "the feed knows the job {gone:?}, which is not there");
        Ok(())
    }

    pub(super) fn check(&mut self, step: &Step<'_>) -> Verdict {
        for (at, event) in step.events {
            ensure!(*at == step.now, "{event:?} is dated {at}, but it is {}", step.now);
            match event {
                FeedEvent::Job(job) => {
                    self.take(job)?;
                    check_cause(step, job)?;
                }
                FeedEvent::SchedulePut { schedule } | FeedEvent::ScheduleRemoved { schedule } => {
                    self.ticks.remove(schedule);
                }
                FeedEvent::ScheduleFired { schedule, tick } if matches!(step.op, Op::Tick { .. }) => {
                    let last = self.ticks.insert(schedule.clone(), *tick);
                    ensure!(last.is_none_or(|last| last < *tick), "the tick {tick} of {schedule} came after {last:?}");
                }
                _ => {}
            }
        }
        self.agrees_with(step.after)?;
        for (id, job) in step.after {
            ensure!(
                (job.state == State::Active) == job.lease.is_some(),
                "{id} is {} with lease {:?}",
                job.state,
                job.lease
            );
            let ended = job.finished_at.is_some();
            ensure!(job.state.is_terminal() == ended, "{id} is {} and finished at {:?}", job.state, job.finished_at);
        }
        check_reaped(step)
    }
}

/// Whether the step that was made may cause this.
fn check_cause(step: &Step<'_>, event: &Transition) -> Verdict {
    let before = step.before.get(&event.job);
    match (event.verb, event.from, event.to) {
        (Verb::Reap, ..) => {
            let lease = before.and_then(|job| job.lease.as_ref());
            let ended = lease.is_some_and(|lease| lease.expires_at <= step.now);
            ensure!(ended, "a lease was reaped at {} before it had ended: {lease:?}", step.now);
        }
        (Verb::Promote, ..) if !matches!(step.op, Op::Change(_) | Op::ChangeMany { .. }) => {
            let due = before.and_then(|job| job.due_at);
            ensure!(due.is_none_or(|due| due <= step.now), "promoted at {} though due at {due:?}: {event:?}", step.now);
        }
        (_, Some(from), None) if !from.is_terminal() => {
            let asked = match step.op {
                Op::Change(plans) => plans.iter().any(|plan| plan.op == ChangeOp::Remove),
                Op::ChangeMany { op: ChangeManyOp::Obliterate { force: true }, .. } => true,
                Op::ChangeMany { op: ChangeManyOp::Drain { .. } | ChangeManyOp::Obliterate { .. }, .. } => {
                    from != State::Active
                }
                Op::Enqueue { .. } | Op::Fire(_) | Op::Tick { .. } => from != State::Active,
                _ => false,
            };
            ensure!(asked, "a job that had not ended is gone, and nobody asked for it: {event:?}");
        }
        _ => {}
    }
    Ok(())
}

/// A reap that had room for more leaves no ended lease behind.
fn check_reaped(step: &Step<'_>) -> Verdict {
    let (Op::Sweep { kind: SweepKind::Reap, max }, Answer::Swept(Some(handled))) = (step.op, step.answer) else {
        return Ok(());
    };
    let ended = |job: &&Job| job.lease.as_ref().is_some_and(|lease| lease.expires_at <= step.now);
    let left = step.after.values().find(ended);
    ensure!(*handled >= u64::from(*max) || left.is_none(), "a reap left an ended lease: {left:?}");
    Ok(())
}
