//! Enqueue: the same request the same answer, another content a conflict, one holder per dedup key (3), no job out of
//! nothing (2).

use super::super::answer::Answer;
use super::super::op::Op;
use super::feed::Replay;
use super::{Step, Verdict, ensure};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::id::JobId;
use windlass_core::job::{DedupBy, DedupMode, Due, JobSpec, NewJob, Verb};
use windlass_core::store::{Enqueued, FeedEvent, Transition};
use windlass_core::{Error, Result};

/// What is known of the jobs as they were asked for.
#[derive(Debug, Default)]
pub(super) struct Enqueues {
    /// The content with which a job was created.
    contents: BTreeMap<JobId, (Due, JobSpec)>,
    /// Who surely holds a dedup key: the last job that was created with it, if it rejects others for as long as it lives.
    holders: BTreeMap<String, JobId>,
}

impl Enqueues {
    pub(super) fn check(&mut self, step: &Step<'_>, replay: &Replay) -> Verdict {
        let (Op::Enqueue { jobs, atomic }, Answer::Enqueued(answers)) = (step.op, step.answer) else { return Ok(()) };
        let jobs = step.world.jobs(jobs);
        ensure!(jobs.len() == answers.len(), "{} jobs, {} answers", jobs.len(), answers.len());
        let created: Vec<JobId> =
            transitions(step).filter(|event| event.verb == Verb::Enqueue).map(|event| event.job).collect();
        if *atomic && answers.iter().any(Result::is_err) {
            ensure!(created.is_empty() && answers.iter().all(Result::is_err), "half of an atomic batch: {answers:?}");
            return Ok(());
        }
        let mut there: BTreeSet<JobId> = replay.jobs.keys().copied().collect();
        let mut expected = Vec::new();
        for (job, answer) in jobs.iter().zip(answers) {
            self.check_one(job, answer, &there, replay)?;
            match answer {
                Ok(Enqueued::Created { id } | Enqueued::Held { id, .. }) => expected.push(*id),
                Ok(Enqueued::Replaced { id, old }) => {
                    there.remove(old);
                    expected.push(*id);
                }
                _ => continue,
            }
            there.insert(job.effective_id());
            self.contents.insert(job.effective_id(), (job.due, job.spec.clone()));
            self.hold(job);
        }
        ensure!(created == expected, "the feed says {created:?} were created, the answers {expected:?}");
        Ok(())
    }

    fn check_one(&self, job: &NewJob, answer: &Result<Enqueued>, there: &BTreeSet<JobId>, replay: &Replay) -> Verdict {
        let id = job.effective_id();
        if let Err(Error::Invalid { .. } | Error::Limit { .. }) = answer {
            ensure!(!may_be_enqueued(job), "refused for nothing: {answer:?}");
            return Ok(());
        }
        ensure!(may_be_enqueued(job), "bad input was accepted: {answer:?}");
        if there.contains(&id) {
            // A job of a schedule is known by its feed entry only.
            let Some(known) = self.contents.get(&id) else { return Ok(()) };
            let same = *known == (job.due, job.spec.clone());
            let expected = if same { Ok(Enqueued::Existing { id }) } else { Err(Error::Duplicate { id }) };
            ensure!(*answer == expected, "{id} is there, the same: {same}; answered {answer:?}");
            return Ok(());
        }
        let known = matches!(answer, Ok(Enqueued::Existing { .. }) | Err(Error::Duplicate { .. }));
        ensure!(!known, "{id} is not there, yet the answer is {answer:?}");
        let Some(holder) = key(&job.spec).and_then(|key| self.holders.get(&key)) else { return Ok(()) };
        let alive = replay.jobs.get(holder).is_some_and(|(state, _)| !state.is_terminal());
        let mode = job.spec.dedup.as_ref().map(|dedup| dedup.mode);
        if alive && matches!(mode, Some(DedupMode::Reject | DedupMode::Throttle)) {
            let expected = Ok(Enqueued::Deduplicated { by: *holder });
            ensure!(*answer == expected, "{holder} holds the key, yet the answer is {answer:?}");
        }
        Ok(())
    }

    fn hold(&mut self, job: &NewJob) {
        let (Some(dedup), Some(key)) = (&job.spec.dedup, key(&job.spec)) else { return };
        if dedup.mode == DedupMode::Reject && dedup.ttl_ms.is_none() {
            self.holders.insert(key, job.effective_id());
        } else {
            self.holders.remove(&key);
        }
    }

    pub(super) fn settle(&mut self, step: &Step<'_>) {
        for event in transitions(step) {
            if event.to.is_none() {
                self.contents.remove(&event.job);
            }
            let asked = matches!(step.op, Op::Enqueue { .. });
            if event.verb == Verb::Retry || event.verb == Verb::Enqueue && !asked {
                // A key may have changed hands.
                self.holders.clear();
            }
        }
    }
}

/// Whether there is nothing wrong with a job. Only the steps of a run make its jobs.
fn may_be_enqueued(job: &NewJob) -> bool {
    job.check().is_ok() && job.spec.run.is_none()
}

fn transitions<'a>(step: &Step<'a>) -> impl Iterator<Item = &'a Transition> {
    step.events.iter().filter_map(|(_, event)| if let FeedEvent::Job(job) = event { Some(job) } else { None })
}

/// By what jobs count as the same work.
fn key(spec: &JobSpec) -> Option<String> {
    let dedup = spec.dedup.as_ref()?;
    let by = match &dedup.by {
        DedupBy::Key(key) => format!("key {key}"),
        DedupBy::Payload => format!("payload {} {:?}", spec.kind, spec.payload),
    };
    Some(format!("{} {:?} {by}", spec.queue, spec.group))
}
