//! A worker: claims, works, writes its ledger, reports, until it is killed.

use crate::Result;
use crate::args::Bug;
use crate::child::{pass_ms, queue};
use crate::hand::Hand;
use std::collections::BTreeMap;
use windlass_audit::Entry;
use windlass_core::job::{Failure, FailureClass, Lease, Retry, State};
use windlass_core::name::WorkerId;
use windlass_core::store::{
    ClaimRequest, ClaimedJob, Outcome, OutcomeKind, RenewRequest, Renewal, ReportRequest, Reported, Sweep, SweepKind,
};
use windlass_core::time::Timestamp;

/// Short, so that the jobs of a killed worker go on soon; long enough for a batch on a busy machine.
pub(crate) const LEASE_MS: u64 = 700;
/// Jobs per claim: a killed worker then holds some that it has not begun.
const BATCH: u32 = 4;
/// A handler takes less than this.
const WORK_MS: u64 = 12;
/// How long an idle worker waits before it looks again.
pub(crate) const IDLE_MS: u64 = 10;

struct Worker {
    hand: Hand,
    id: WorkerId,
}

/// Works until it is killed.
pub(crate) async fn work(hand: Hand) -> Result<()> {
    Worker { id: WorkerId::new(&hand.name)?, hand }.run().await
}

impl Worker {
    async fn run(self) -> Result<()> {
        let mut outcomes = Vec::new();
        for request_id in 1.. {
            for kind in [SweepKind::Reap, SweepKind::Promote] {
                self.hand.insist(|| self.hand.store.sweep(Sweep { kind, max: 1_000 })).await?;
            }
            let jobs = self.claim(request_id, std::mem::take(&mut outcomes)).await?;
            self.hand.watch.claimed(&self.hand.name);
            if jobs.is_empty() {
                pass_ms(self.hand.idle_ms).await;
            }
            // What it did goes with the next claim, or each by itself.
            let together = self.hand.bug.is_none() && self.hand.dice.below(2) == 0;
            for job in jobs {
                if together {
                    outcomes.push(self.perform(&job).await?);
                } else {
                    self.handle(&job).await?;
                }
            }
        }
        Ok(())
    }

    /// Asks until there is an answer: with the same request id the answer to a claim cannot get lost.
    async fn claim(&self, request_id: u64, outcomes: Vec<Outcome>) -> Result<Vec<ClaimedJob>> {
        let claim = ClaimRequest::new(self.id.clone(), request_id, queue()?);
        let claim = ClaimRequest { max: BATCH, lease_ms: LEASE_MS, ..claim };
        let store = &self.hand.store;
        if outcomes.is_empty() {
            return Ok(self.hand.insist(|| store.claim(claim.clone())).await?.jobs);
        }
        let leases: Vec<Lease> = outcomes.iter().map(|outcome| outcome.lease).collect();
        let report = ReportRequest { worker: self.id.clone(), outcomes };
        let both = self.hand.insist(|| store.report_and_claim(report.clone(), claim.clone())).await?;
        for (lease, answer) in leases.into_iter().zip(both.reported) {
            self.note_answer(lease, unless_lost(answer)?);
        }
        Ok(both.claimed.jobs)
    }

    /// Does the work and says how it ended.
    async fn perform(&self, job: &ClaimedJob) -> Result<Outcome> {
        let lease = job.lease;
        pass_ms(self.hand.dice.below(WORK_MS)).await;
        if self.hand.dice.below(4) == 0 {
            let renewals = vec![Renewal { lease, lease_ms: Some(LEASE_MS), progress: None }];
            // A lease that is lost is told of by the report, too.
            self.hand.insist(|| self.hand.store.renew(RenewRequest { renewals: renewals.clone() })).await?;
        }
        self.hand.ledger.note(&[Entry::executed(lease)]);
        Ok(Outcome { lease, kind: outcome(job)? })
    }

    async fn handle(&self, job: &ClaimedJob) -> Result<()> {
        let lease = job.lease;
        if self.hand.bug == Some(Bug::ReportFirst) {
            let reported = self.report(Outcome { lease, kind: outcome(job)? }).await?;
            pass_ms(self.hand.dice.below(WORK_MS)).await;
            self.hand.ledger.note(&[Entry::executed(lease)]);
            self.note_answer(lease, reported);
            return Ok(());
        }
        let outcome = self.perform(job).await?;
        let reported = self.report(outcome).await?;
        self.note_answer(lease, reported);
        Ok(())
    }

    /// Reports until there is an answer; `None` when the lease is lost.
    async fn report(&self, outcome: Outcome) -> Result<Option<Reported>> {
        let request = ReportRequest { worker: self.id.clone(), outcomes: vec![outcome] };
        let mut answers = self.hand.insist(|| self.hand.store.report(request.clone())).await?;
        unless_lost(answers.pop().ok_or("a report without an answer")?)
    }

    fn note_answer(&self, lease: Lease, reported: Option<Reported>) {
        if reported.is_some_and(|reported| reported.state == State::Succeeded) {
            self.hand.watch.completed();
        }
        self.hand.ledger.note(&[Entry::answered(lease, reported)]);
    }
}

fn unless_lost(answer: windlass_core::Result<Reported>) -> Result<Option<Reported>> {
    match answer {
        Ok(reported) => Ok(Some(reported)),
        Err(error) if error.is_lease_lost() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Most jobs end well; the first attempt of some does not, as their payload says.
pub(crate) fn outcome(job: &ClaimedJob) -> Result<OutcomeKind> {
    let fails_once: bool = job.spec.payload.to_json()?;
    if !fails_once || job.lease.attempt > 1 {
        return Ok(OutcomeKind::Complete { result: None, outputs: BTreeMap::new() });
    }
    let (class, at) = (FailureClass::Error, Timestamp::default());
    let failure = Failure { at, ..Failure::new(class, "as it was asked to") };
    Ok(OutcomeKind::Fail { failure, retry: Retry::AfterMs(0) })
}
