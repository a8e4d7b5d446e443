//! A worker: claims, works, writes its ledger, reports, until it is killed.

use crate::args::{Bug, Part};
use crate::child::{Dice, open, pass_ms, queue};
use crate::ledger::{Entry, Ledger};
use crate::{Error, Result};
use std::collections::BTreeMap;
use windlass_core::job::{Failure, FailureClass, Lease, Retry};
use windlass_core::name::{Labels, WorkerId};
use windlass_core::store::{
    ClaimRequest, ClaimedJob, JobQueue, Kinds, Outcome, OutcomeKind, ReportRequest, Reported, Sweep, SweepKind,
};
use windlass_core::time::Timestamp;
use windlass_sqlite::SqliteStore;

/// Short, so that the jobs of a killed worker go on soon; long enough for a batch on a busy machine.
pub(crate) const LEASE_MS: u64 = 700;
/// Jobs per claim: a killed worker then holds some that it has not begun.
const BATCH: u32 = 4;
/// A handler takes less than this.
const WORK_MS: u64 = 12;
/// How long an idle worker waits before it looks again.
const IDLE_MS: u64 = 10;

struct Worker {
    store: SqliteStore,
    id: WorkerId,
    ledger: Ledger,
    dice: Dice,
    bug: Option<Bug>,
}

/// Works until it is killed.
pub(crate) async fn work(part: Part) -> Result<()> {
    let worker = Worker {
        store: open(&part.dir)?,
        id: WorkerId::new(&part.name)?,
        ledger: Ledger::open(&part.dir, &part.name)?,
        dice: Dice::of(&part),
        bug: part.bug,
    };
    worker.run().await
}

impl Worker {
    async fn run(mut self) -> Result<()> {
        for request_id in 1.. {
            for kind in [SweepKind::Reap, SweepKind::Promote] {
                let swept = self.store.sweep(Sweep { kind, max: 1_000 }).await;
                swept.map(drop).or_else(or_try_again)?;
            }
            let jobs = self.claim(request_id).await?;
            if jobs.is_empty() {
                pass_ms(IDLE_MS).await;
            }
            for job in jobs {
                self.handle(&job).await?;
            }
        }
        Ok(())
    }

    /// Asks until there is an answer: with the same request id the answer to a claim cannot get lost.
    async fn claim(&self, request_id: u64) -> Result<Vec<ClaimedJob>> {
        let request = ClaimRequest {
            worker: self.id.clone(),
            request_id,
            queues: vec![queue()?],
            kinds: Kinds::Any,
            labels: Labels::default(),
            max: BATCH,
            lease_ms: LEASE_MS,
        };
        loop {
            match self.store.claim(request.clone()).await {
                Ok(claimed) => return Ok(claimed.jobs),
                Err(error) => or_try_again(error)?,
            }
        }
    }

    async fn handle(&mut self, job: &ClaimedJob) -> Result<()> {
        let lease = job.lease;
        let outcome = outcome(job)?;
        if self.bug == Some(Bug::ReportFirst) {
            let reported = self.report(lease, outcome).await?;
            pass_ms(self.dice.below(WORK_MS)).await;
            self.ledger.note(&[Entry::executed(lease)])?;
            return self.note_accepted(lease, reported);
        }
        pass_ms(self.dice.below(WORK_MS)).await;
        self.ledger.note(&[Entry::executed(lease)])?;
        let reported = self.report(lease, outcome).await?;
        self.note_accepted(lease, reported)
    }

    /// Reports until there is an answer; `None` when the lease is lost.
    async fn report(&self, lease: Lease, kind: OutcomeKind) -> Result<Option<Reported>> {
        loop {
            let outcomes = vec![Outcome { lease, kind: kind.clone() }];
            match self.store.report(ReportRequest { worker: self.id.clone(), outcomes }).await {
                Ok(mut answers) => match answers.pop() {
                    Some(Ok(reported)) => return Ok(Some(reported)),
                    Some(Err(error)) if error.is_lease_lost() => return Ok(None),
                    Some(Err(error)) => return Err(error.into()),
                    None => return Err("a report without an answer".into()),
                },
                Err(error) => or_try_again(error)?,
            }
        }
    }

    fn note_accepted(&mut self, lease: Lease, reported: Option<Reported>) -> Result<()> {
        let Some(Reported { state, repeated }) = reported else { return Ok(()) };
        let Lease { job, attempt, token } = lease;
        self.ledger.note(&[Entry::Accepted { job, attempt, token, state, repeated }])
    }
}

/// Goes on after an error that may pass, such as another process that holds the file for too long.
fn or_try_again(error: windlass_core::Error) -> Result<(), Error> {
    if error.is_retryable() { Ok(()) } else { Err(error.into()) }
}

/// Most jobs end well; the first attempt of some does not, as their payload says.
fn outcome(job: &ClaimedJob) -> Result<OutcomeKind> {
    let fails_once: bool = job.spec.payload.to_json()?;
    if !fails_once || job.lease.attempt > 1 {
        return Ok(OutcomeKind::Complete { result: None, outputs: BTreeMap::new() });
    }
    let (class, at) = (FailureClass::Error, Timestamp::default());
    let failure = Failure { class, message: "as it was asked to".to_owned(), attempt: 0, at };
    Ok(OutcomeKind::Fail { failure, retry: Retry::AfterMs(0) })
}
