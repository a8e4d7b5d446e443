//! A store that writes to a ledger which outcomes it accepted and which leases it refused.

use crate::ledger::{Entry, Ledger};
use async_trait::async_trait;
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::job::Lease;
use windlass_core::store::{
    ClaimRequest, RenewRequest, Renewed, ReportRequest, Reported, ReportedAndClaimed, Store, Wrap,
};

/// The store of a worker, around another store.
#[expect(missing_debug_implementations, reason = "a store has no debug form")]
pub struct Recorder {
    inner: Arc<dyn Store>,
    ledger: Arc<Ledger>,
}

impl Recorder {
    /// Passes all calls to `inner`.
    pub fn new(inner: Arc<dyn Store>, ledger: Arc<Ledger>) -> Self {
        Self { inner, ledger }
    }

    fn note_reported(&self, leases: &[Lease], answers: &[Result<Reported>]) {
        let entry = |(lease, answer): (&Lease, &Result<Reported>)| match answer {
            Ok(reported) => Some(Entry::Accepted(*lease, *reported)),
            Err(error) => error.is_lease_lost().then_some(Entry::Refused(*lease)),
        };
        let entries: Vec<Entry> = leases.iter().zip(answers).filter_map(entry).collect();
        self.ledger.note(&entries);
    }
}

fn leases(request: &ReportRequest) -> Vec<Lease> {
    request.outcomes.iter().map(|outcome| outcome.lease).collect()
}

#[async_trait]
impl Wrap for Recorder {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn renew(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        let leases: Vec<Lease> = request.renewals.iter().map(|renewal| renewal.lease).collect();
        let answers = self.inner.renew(request).await?;
        let is_lost = |answer: &Result<Renewed>| answer.as_ref().is_err_and(windlass_core::Error::is_lease_lost);
        let refused = leases.iter().zip(&answers).filter(|(_, answer)| is_lost(answer));
        let entries: Vec<Entry> = refused.map(|(lease, _)| Entry::RenewalRefused(*lease)).collect();
        self.ledger.note(&entries);
        Ok(answers)
    }

    async fn report(&self, request: ReportRequest) -> Result<Vec<Result<Reported>>> {
        let leases = leases(&request);
        let answers = self.inner.report(request).await?;
        self.note_reported(&leases, &answers);
        Ok(answers)
    }

    async fn report_and_claim(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed> {
        let leases = leases(&report);
        let both = self.inner.report_and_claim(report, claim).await?;
        self.note_reported(&leases, &both.reported);
        Ok(both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Book;
    use windlass_core::id::{JobId, Token};
    use windlass_core::job::{JobSpec, NewJob, State};
    use windlass_core::memory::MemoryStore;
    use windlass_core::name::{Kind, QueueName, WorkerId};
    use windlass_core::payload::Payload;
    use windlass_core::store::{EnqueueRequest, JobQueue, Outcome, Renewal, Wrapped};

    fn claim(request_id: u64) -> ClaimRequest {
        ClaimRequest::new(WorkerId::new("w").unwrap(), request_id, QueueName::new("mail").unwrap())
    }

    fn complete(lease: Lease) -> ReportRequest {
        ReportRequest { worker: WorkerId::new("w").unwrap(), outcomes: vec![Outcome::complete(lease)] }
    }

    #[tokio::test]
    async fn accepted_outcomes_and_refused_leases_are_written_to_the_ledger() {
        let book = Book::default();
        let ledger = Arc::new(Ledger::Shared(Arc::clone(&book)));
        let store = Wrapped(Recorder::new(Arc::new(MemoryStore::new()), ledger));
        let spec = || JobSpec::new(QueueName::new("mail").unwrap(), Kind::new("mail").unwrap(), Payload::default());
        let jobs = (1..=2).map(|number| NewJob::new(JobId::from_parts(0, number), spec())).collect();
        store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
        let first = store.claim(claim(1)).await.unwrap().jobs[0].lease;
        let second = store.report_and_claim(complete(first), claim(2)).await.unwrap().claimed.jobs[0].lease;
        store.report(complete(second)).await.unwrap();
        // Another worker holds the lease by now.
        let late = Lease { token: Token::from_bits(7), ..second };
        store.report(complete(late)).await.unwrap();
        let renewal = Renewal { lease: late, lease_ms: Some(1_000), progress: None };
        store.renew(RenewRequest { renewals: vec![renewal] }).await.unwrap();
        let accepted = |lease| Entry::Accepted(lease, Reported { state: State::Succeeded, repeated: false });
        let expected = [accepted(first), accepted(second), Entry::Refused(late), Entry::RenewalRefused(late)];
        assert_eq!(*book.lock(), expected);
    }
}
