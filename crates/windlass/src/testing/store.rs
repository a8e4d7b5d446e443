//! The store of a test: the memory store, with a record of what was enqueued, and with faults on request.

use super::faults::{Fate, Injected};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;
use windlass_core::id::JobId;
use windlass_core::job::{Lease, NewJob};
use windlass_core::memory::MemoryStore;
use windlass_core::store::{
    Answer, Call, ClaimRequest, Claimed, EnqueueRequest, Enqueued, Fire, FireOutcome, HandleCall, JobQueue,
    RenewRequest, Renewed, ReportRequest, Reported, ReportedAndClaimed, ScheduleStore, Store, WaitFor,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

pub(super) struct TestStore {
    pub(super) inner: MemoryStore,
    pub(super) faults: Arc<Injected>,
    /// What was enqueued, in order.
    pub(super) sent: Mutex<Vec<NewJob>>,
    /// Rings after every call.
    pub(super) busy: Notify,
    /// Jobs handed out.
    pub(super) claimed: AtomicU64,
    /// Workers that found nothing to claim and wait for more.
    idle_workers: AtomicUsize,
    /// When the last claim expected more.
    next_at: Mutex<Option<Timestamp>>,
}

impl TestStore {
    pub(super) fn new(inner: MemoryStore) -> Self {
        Self {
            inner,
            faults: Arc::default(),
            sent: Mutex::default(),
            busy: Notify::new(),
            claimed: AtomicU64::new(0),
            idle_workers: AtomicUsize::new(0),
            next_at: Mutex::new(None),
        }
    }

    /// A worker has claimed what it may, waits for more, and time alone will not bring it.
    pub(super) fn nothing_to_claim(&self) -> bool {
        self.idle_workers.load(Ordering::SeqCst) > 0 && self.next_at.lock().is_none()
    }

    /// Makes the call and takes notes of what tests ask for.
    async fn noted(&self, call: Call) -> Result<Answer> {
        match call {
            Call::Enqueue { request } => self.enqueue_noted(request).await.map(Answer::Enqueue),
            Call::Claim { request } => self.claim_noted(request).await.map(Answer::Claim),
            Call::Renew { request } => self.renew_held(request).await.map(Answer::Renew),
            Call::Report { request } => self.report_held(request).await.map(Answer::Report),
            Call::ReportAndClaim { report, claim } => {
                self.report_and_claim_held(report, claim).await.map(Answer::ReportAndClaim)
            }
            Call::Fire { request } => self.fire_noted(request).await.map(Answer::Fire),
            call => call.send(&self.inner).await,
        }
    }

    async fn through(&self, call: impl Future<Output = Result<Answer>> + Send) -> Result<Answer> {
        let answer = match self.faults.fate() {
            Fate::Pass => call.await,
            Fate::Unavailable => Err(Error::Unavailable { reason: "away by plan".to_owned() }),
            Fate::LoseAnswer => {
                // An error is lost like any other answer.
                let _ = call.await;
                Err(Error::Unknown { reason: "lost by plan".to_owned() })
            }
        };
        self.busy.notify_one();
        answer
    }

    fn note_claimed(&self, claimed: &Claimed) {
        self.claimed.fetch_add(claimed.jobs.len() as u64, Ordering::SeqCst);
        *self.next_at.lock() = claimed.next_at;
    }

    fn note_sent(&self, jobs: impl Iterator<Item = (NewJob, JobId)>) {
        self.sent.lock().extend(jobs.map(|(job, id)| NewJob { id, ..job }));
    }

    /// Reports, but for leases that were lost by plan: those are refused and the store hears nothing of them.
    async fn report_held(&self, mut report: ReportRequest) -> Result<Vec<Result<Reported>>> {
        let asked: Vec<Lease> = report.outcomes.iter().map(|outcome| outcome.lease).collect();
        report.outcomes.retain(|outcome| !self.faults.is_lost(outcome.lease));
        let answers = self.inner.report(report).await?;
        Ok(self.with_refusals(&asked, answers))
    }

    async fn renew_held(&self, mut request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        let asked: Vec<Lease> = request.renewals.iter().map(|renewal| renewal.lease).collect();
        request.renewals.retain(|renewal| !self.faults.is_lost(renewal.lease));
        let answers = self.inner.renew(request).await?;
        Ok(self.with_refusals(&asked, answers))
    }

    /// The answers of those that were passed on, and `LeaseLost` for the others.
    fn with_refusals<T>(&self, asked: &[Lease], answers: Vec<Result<T>>) -> Vec<Result<T>> {
        let mut answers = answers.into_iter();
        let answer = |lease: &Lease| match self.faults.is_lost(*lease) {
            true => Err(Error::LeaseLost),
            false => answers.next().unwrap_or(Err(Error::LeaseLost)),
        };
        asked.iter().map(answer).collect()
    }

    async fn enqueue_noted(&self, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        let jobs = request.jobs.clone();
        let answers = self.inner.enqueue(request).await?;
        let created = jobs.into_iter().zip(&answers).filter_map(|(job, answer)| match answer {
            Ok(Enqueued::Created { id } | Enqueued::Replaced { id, .. } | Enqueued::Held { id, .. }) => {
                Some((job, *id))
            }
            Ok(Enqueued::Existing { .. } | Enqueued::Deduplicated { .. }) | Err(_) => None,
        });
        self.note_sent(created);
        Ok(answers)
    }

    async fn fire_noted(&self, fire: Fire) -> Result<FireOutcome> {
        let jobs = fire.jobs.clone();
        let outcome = self.inner.fire(fire).await?;
        if let FireOutcome::Fired { jobs: created @ 1.. } = outcome {
            let created = usize::try_from(created).unwrap_or(usize::MAX);
            self.note_sent(jobs.into_iter().take(created).map(|job| (job.clone(), job.id)));
        }
        Ok(outcome)
    }

    async fn claim_noted(&self, request: ClaimRequest) -> Result<Claimed> {
        let claimed = self.inner.claim(request).await?;
        self.note_claimed(&claimed);
        Ok(claimed)
    }

    async fn report_and_claim_held(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed> {
        let asked: Vec<Lease> = report.outcomes.iter().map(|outcome| outcome.lease).collect();
        let mut held = report;
        held.outcomes.retain(|outcome| !self.faults.is_lost(outcome.lease));
        let both = self.inner.report_and_claim(held, claim).await?;
        self.note_claimed(&both.claimed);
        Ok(ReportedAndClaimed { reported: self.with_refusals(&asked, both.reported), claimed: both.claimed })
    }

    async fn wait_noted(&self, what: WaitFor) -> Result<()> {
        if let Some(until) = self.faults.away_until() {
            tokio::time::sleep_until(until).await;
            return Ok(());
        }
        let _idle = matches!(what, WaitFor::Work { .. }).then(|| Idle::new(&self.idle_workers));
        self.inner.wait(what).await
    }
}

/// Counts a worker as idle for as long as it waits.
struct Idle<'s>(&'s AtomicUsize);

impl<'s> Idle<'s> {
    fn new(count: &'s AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

opaque_debug!(TestStore);

impl HandleCall for TestStore {
    async fn call(&self, call: Call) -> Result<Answer> {
        match call {
            // Whatever is wrong with the store, a program can look at its own clock and wait.
            Call::Wait { target } => self.wait_noted(target).await.map(Answer::Wait),
            Call::Info {} | Call::Now {} | Call::ClaimMaintenance { .. } | Call::Close {} => {
                call.send(&self.inner).await
            }
            call => self.through(self.noted(call)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::id::Token;

    #[test]
    fn each_lease_gets_its_own_answer_though_some_are_lost() {
        let store = TestStore::new(MemoryStore::new());
        let lease =
            |n: u8| Lease { job: JobId::from_parts(0, n.into()), attempt: 1, token: Token::from_bits(n.into()) };
        let asked = [1, 2, 3, 4].map(lease);
        store.faults.lose(lease(1));
        store.faults.lose(lease(3));
        let answers = store.with_refusals(&asked, vec![Ok(2), Ok(4)]);
        assert_eq!(answers, [Err(Error::LeaseLost), Ok(2), Err(Error::LeaseLost), Ok(4)]);
    }
}
