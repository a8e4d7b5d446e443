//! Leases: at most one per job (4, 5), only the current one speaks (6), a repeated outcome is answered the same (7), the
//! number of deliveries is bounded (9), a repeated claim returns what is still leased (11), logs are what was appended.

use super::super::answer::{Answer, Granted};
use super::super::op::Op;
use super::super::side::Side;
use super::{Step, Verdict, ensure};
use std::collections::BTreeMap;
use windlass_core::id::JobId;
use windlass_core::job::{Job, State, Verb};
use windlass_core::name::WorkerId;
use windlass_core::store::{ClaimRequest, FeedEvent, LogLine, LogRequest, LogSink, OutcomeKind, Reported};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// So long a store must remember a worker's last claim.
const REMEMBERED_MS: u64 = 24 * 3_600_000;

/// What is known of the leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// The job of every lease.
    jobs: Vec<JobId>,
    /// The current lease of every active job.
    current: BTreeMap<JobId, usize>,
    /// What the accepted outcome of a lease led to.
    ended: BTreeMap<usize, State>,
    /// The lease whose outcome a job accepted last.
    last_ended: BTreeMap<JobId, usize>,
    /// Deliveries of a job since it was enqueued or retried, without those that were released unstarted.
    deliveries: BTreeMap<JobId, u32>,
    /// What each worker's last numbered claim was granted, and when.
    last_grants: BTreeMap<WorkerId, (ClaimRequest, Vec<usize>, Timestamp)>,
    logs: BTreeMap<JobId, Vec<LogLine>>,
}

impl Leases {
    fn is_current(&self, lease: Option<usize>) -> bool {
        lease.is_some_and(|lease| self.current.get(&self.jobs[lease]) == Some(&lease))
    }

    /// Checks everything that spoke for a lease; before the feed is replayed.
    pub(super) fn check_outcomes(&mut self, step: &Step<'_>) -> Verdict {
        match (step.op, step.answer) {
            (
                Op::Report(plan) | Op::ReportAndClaim(plan, _),
                Answer::Reported(answers) | Answer::ReportedAndClaimed(answers, _),
            ) => {
                for ((lease, answer), (_, kind)) in step.spoken_for.iter().zip(answers).zip(&plan.outcomes) {
                    self.check_outcome(step, *lease, kind, answer)?;
                }
            }
            (Op::Renew(plans), Answer::Renewed(answers)) => {
                for ((lease, answer), plan) in step.spoken_for.iter().zip(answers).zip(plans) {
                    self.check_spoken(*lease, answer)?;
                    let (Ok(renewed), Some(lease)) = (answer, lease) else { continue };
                    let before = step.before.get(&self.jobs[*lease]).and_then(|job| job.lease.as_ref());
                    let promised = before.is_some_and(|before| renewed.expires_at >= before.expires_at);
                    ensure!(promised, "a renewal took time away: {before:?} became {renewed:?}");
                    let asked = plan.lease_ms.is_none_or(|ms| renewed.expires_at >= step.now.plus_ms(ms));
                    ensure!(asked, "a renewal by {:?} at {} ends at {renewed:?}", plan.lease_ms, step.now);
                }
            }
            (Op::AppendLogs { behind, ahead, lines, .. }, Answer::Appended(answers)) => {
                let lease = step.spoken_for[0];
                self.check_spoken(lease, &answers[0])?;
                let (Ok(next), Some(lease)) = (&answers[0], lease) else { return Ok(()) };
                let log = self.logs.entry(self.jobs[lease]).or_default();
                ensure!(*ahead == 0 || lines.is_empty(), "a gap in a log was accepted");
                let known = usize::try_from((*behind).min(log.len() as u64)).unwrap_or(0);
                log.extend(lines.iter().skip(known).cloned());
                ensure!(*next == log.len() as u64, "a log of {} lines goes on at {next}", log.len());
            }
            _ => {}
        }
        Ok(())
    }

    /// Whoever has the current lease is heard, and nobody else.
    fn check_spoken<T: std::fmt::Debug>(&self, lease: Option<usize>, answer: &Result<T>) -> Verdict {
        let fair = match answer {
            Ok(_) => self.is_current(lease),
            Err(Error::LeaseLost) => !self.is_current(lease),
            Err(Error::Invalid { .. } | Error::Limit { .. }) => true,
            Err(_) => false,
        };
        ensure!(fair, "lease {lease:?}, current: {}, was answered {answer:?}", self.is_current(lease));
        Ok(())
    }

    fn check_outcome(
        &mut self,
        step: &Step<'_>,
        lease: Option<usize>,
        kind: &OutcomeKind,
        answer: &Result<Reported>,
    ) -> Verdict {
        let Ok(reported) = answer else {
            let retained = lease.is_some_and(|lease| {
                let job = self.jobs[lease];
                self.last_ended.get(&job) == Some(&lease) && step.after.contains_key(&job)
            });
            let refused = matches!(answer, Err(Error::LeaseLost));
            ensure!(!(retained && refused), "the outcome of lease {lease:?} is not known any more");
            return self.check_spoken(lease, answer);
        };
        let Some(lease) = lease else { return Err(format!("a forged lease was answered {reported:?}")) };
        if reported.repeated {
            let first = self.ended.get(&lease);
            ensure!(first == Some(&reported.state), "lease {lease} ended {first:?}, its repetition says {reported:?}");
            return Ok(());
        }
        ensure!(self.is_current(Some(lease)), "an outcome of lease {lease}, which is not current, was accepted");
        let job = self.jobs[lease];
        self.current.remove(&job);
        self.ended.insert(lease, reported.state);
        self.last_ended.insert(job, lease);
        if matches!(kind, OutcomeKind::Release { started: false }) {
            *self.deliveries.entry(job).or_insert(1) -= 1;
        }
        Ok(())
    }

    /// Checks what was granted; after the feed was replayed.
    pub(super) fn check_grants(&mut self, step: &Step<'_>) -> Verdict {
        let (Answer::Claimed(granted) | Answer::ReportedAndClaimed(_, granted)) = step.answer else { return Ok(()) };
        let Some((request, new)) = step.claim else { return Ok(()) };
        let fresh: Vec<&Granted> = granted.iter().filter(|job| job.lease >= step.leases_before).collect();
        let claimed =
            |event: &&(Timestamp, FeedEvent)| matches!(&event.1, FeedEvent::Job(job) if job.verb == Verb::Claim);
        let claims = step.events.iter().filter(claimed).count();
        ensure!(claims == fresh.len(), "{claims} claims in the feed, {} new leases in the answer", fresh.len());
        if let Some((last, grants, at)) = self.last_grants.get(&request.worker)
            && last.request_id >= request.request_id
            && !grants.is_empty()
            && step.now.ms_since(*at) < REMEMBERED_MS
        {
            ensure!(last == request, "answered {granted:?} to {request:?}, though the last claim was {last:?}");
            let held = |lease: &&usize| self.current.get(&self.jobs[**lease]) == Some(*lease);
            let expected: Vec<usize> = grants.iter().filter(held).copied().collect();
            let answered: Vec<usize> = granted.iter().map(|job| job.lease).collect();
            ensure!(expected == answered, "the claim again: {expected:?} are still leased, {answered:?} were answered");
        }
        for job in &fresh {
            ensure!(job.lease == self.jobs.len(), "leases out of order");
            let (_, holder) = (self.jobs.push(job.job), self.current.insert(job.job, job.lease));
            ensure!(holder.is_none(), "{} was leased twice at once: {holder:?} and {}", job.job, job.lease);
            let deliveries = self.deliveries.entry(job.job).or_insert(0);
            *deliveries += 1;
            let allowed = job.spec.attempts + job.spec.stalls;
            ensure!(*deliveries <= allowed, "{} was delivered {deliveries} times, allowed are {allowed}", job.job);
            ensure!(
                job.expires_at == step.now.plus_ms(request.lease_ms),
                "a lease at {} ends at {}",
                step.now,
                job.expires_at
            );
        }
        if *new || !fresh.is_empty() {
            let grants = granted.iter().map(|job| job.lease).collect();
            self.last_grants.insert(request.worker.clone(), (request.clone(), grants, step.now));
        }
        Ok(())
    }

    /// Forgets what is over.
    pub(super) fn settle(&mut self, step: &Step<'_>) {
        self.current.retain(|id, _| step.after.get(id).is_some_and(|job| job.state == State::Active));
        for (_, event) in step.events {
            let FeedEvent::Job(job) = event else { continue };
            if job.to.is_none() || job.verb == Verb::Retry {
                self.deliveries.remove(&job.job);
            }
            if job.to.is_none() {
                self.last_ended.remove(&job.job);
                self.logs.remove(&job.job);
            }
        }
    }

    pub(super) async fn check_logs(&self, side: &Side, jobs: &BTreeMap<JobId, Job>) -> Verdict {
        for id in jobs.keys() {
            let page = side.store.read_logs(LogRequest { job: *id, from: 0, limit: 10_000 }).await;
            let page = page.map_err(|error| error.to_string())?;
            let lines: Vec<&LogLine> = page.lines.iter().map(|(_, line)| line).collect();
            let expected: Vec<&LogLine> = self.logs.get(id).into_iter().flatten().collect();
            ensure!(lines == expected, "the log of {id} is {lines:?}, appended were {expected:?}");
        }
        Ok(())
    }
}
