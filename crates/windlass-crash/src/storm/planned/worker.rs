//! A worker at full speed: reports what it has done together with its next claim.

use super::meter::Meter;
use super::runs::{NODES, Node, RunLedger, node_outcome};
use crate::Result;
use crate::child::{pass_ms, queue};
use crate::hand::Hand;
use crate::worker::outcome;
use std::sync::Arc;
use windlass_audit::Entry;
use windlass_core::job::{Lease, State};
use windlass_core::name::{QueueName, WorkerId};
use windlass_core::store::{ClaimRequest, ClaimedJob, Outcome, ReportRequest, Reported, Store, Sweep, SweepKind};
use windlass_core::time::{Clock, SystemClock, Timestamp};

/// Jobs per claim.
const BATCH: u32 = 32;
/// Shorter than a failover may take, so that work is redelivered because of it.
const LEASE_MS: u64 = 3_000;
/// How often a worker looks for leases that ran out and for jobs that are due.
const SWEEP_MS: u64 = 250;
/// How long an idle worker waits before it looks again.
const IDLE_MS: u64 = 5;

pub(super) struct Worker {
    pub(super) hand: Hand,
    pub(super) meter: Arc<Meter>,
    pub(super) runs: Arc<RunLedger>,
}

/// An outcome that was not reported yet.
struct Done {
    lease: Lease,
    node: Option<Node>,
    outcome: Outcome,
}

impl Worker {
    /// Works until it is aborted.
    pub(super) async fn work(self) -> Result<()> {
        let id = WorkerId::new(&self.hand.name)?;
        let mut done: Vec<Done> = Vec::new();
        let mut swept_at = SystemClock.now();
        for request_id in 1.. {
            self.sweep(&mut swept_at).await?;
            let completed = self.meter.completed();
            let mut claim = ClaimRequest::new(id.clone(), request_id, QueueName::new(NODES)?);
            claim.queues.push(queue()?);
            let claim = ClaimRequest { max: BATCH, lease_ms: LEASE_MS, ..claim };
            let jobs = self.exchange(std::mem::take(&mut done), claim).await?;
            self.hand.watch.claimed(&self.hand.name);
            if jobs.is_empty() {
                pass_ms(IDLE_MS).await;
            }
            for job in jobs {
                done.push(self.perform(&job, completed)?);
            }
        }
        Ok(())
    }

    async fn sweep(&self, swept_at: &mut Timestamp) -> Result<()> {
        if SystemClock.now().ms_since(*swept_at) < SWEEP_MS {
            return Ok(());
        }
        for kind in [SweepKind::Reap, SweepKind::Promote] {
            self.hand.insist(|| self.hand.store.sweep(Sweep { kind, max: 1_000 })).await?;
        }
        *swept_at = SystemClock.now();
        Ok(())
    }

    /// Reports and claims until there is an answer: the request id and the leases make a repeated call the same call.
    async fn exchange(&self, done: Vec<Done>, claim: ClaimRequest) -> Result<Vec<ClaimedJob>> {
        let store: &Arc<dyn Store> = &self.hand.store;
        if done.is_empty() {
            let call = self.hand.insist(|| store.claim(claim.clone()));
            return Ok(self.meter.in_flight(call).await?.jobs);
        }
        let outcomes = done.iter().map(|done| done.outcome.clone()).collect();
        let report = ReportRequest { worker: claim.worker.clone(), outcomes };
        let call = self.hand.insist(|| store.report_and_claim(report.clone(), claim.clone()));
        let both = self.meter.in_flight(call).await?;
        for (done, answer) in done.into_iter().zip(both.reported) {
            self.note_answer(&done, answer)?;
        }
        Ok(both.claimed.jobs)
    }

    /// The work itself takes no time. `completed` is the number of acknowledged completions before the claim was sent.
    fn perform(&self, job: &ClaimedJob, completed: u64) -> Result<Done> {
        let lease = job.lease;
        let is_forgotten = self.meter.was_complete(lease.job, completed);
        if let Some(node) = Node::of(job) {
            if is_forgotten {
                self.runs.forgot(&node);
            }
            let outcome = Outcome { lease, kind: node_outcome(job)? };
            return Ok(Done { lease, node: Some(node), outcome });
        }
        if is_forgotten {
            self.hand.ledger.note(&[Entry::Redelivered(lease.job)]);
        }
        self.hand.ledger.note(&[Entry::executed(lease)]);
        Ok(Done { lease, node: None, outcome: Outcome { lease, kind: outcome(job)? } })
    }

    fn note_answer(&self, done: &Done, answer: windlass_core::Result<Reported>) -> Result<()> {
        let reported = match answer {
            Ok(reported) => Some(reported),
            // A job that a failover has lost is not there at all.
            Err(error) if error.is_lease_lost() || error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        if reported.is_some_and(|reported| reported.state == State::Succeeded) {
            self.meter.complete(done.lease.job);
            self.hand.watch.completed();
        }
        match (&done.node, reported) {
            (Some(node), Some(_)) => self.runs.accepted(node, done.lease),
            (Some(_), None) => {}
            (None, reported) => self.hand.ledger.note(&[Entry::answered(done.lease, reported)]),
        }
        Ok(())
    }
}
