//! A store that writes down which outcomes it took and which it refused: what a worker can know about its completions.

use super::ledger::{Entry, Ledger};
use async_trait::async_trait;
use std::sync::Arc;
use windlass::core::job::Lease;
use windlass::core::store::{
    ClaimRequest, RenewRequest, Renewed, ReportRequest, Reported, ReportedAndClaimed, Store, Wrap,
};
use windlass::{Error, Result};

pub(super) struct Recorder {
    inner: Arc<dyn Store>,
    ledger: Arc<Ledger>,
}

impl Recorder {
    pub(super) fn new(inner: Arc<dyn Store>, ledger: Arc<Ledger>) -> Self {
        Self { inner, ledger }
    }

    fn note_reported(&self, leases: &[Lease], answers: &[Result<Reported>]) {
        let entry = |(lease, answer): (&Lease, &Result<Reported>)| match answer {
            Ok(Reported { state, repeated }) => {
                let (state, repeated) = (*state, *repeated);
                Some(Entry::Accepted { job: lease.job, token: lease.token, state, repeated })
            }
            Err(error) => refusal(lease, error),
        };
        let entries: Vec<Entry> = leases.iter().zip(answers).filter_map(entry).collect();
        self.ledger.note(&entries);
    }

    async fn note_renewed(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        let leases: Vec<Lease> = request.renewals.iter().map(|renewal| renewal.lease).collect();
        let answers = self.inner.renew(request).await?;
        let refused = |(lease, answer): (&Lease, &Result<Renewed>)| refusal(lease, answer.as_ref().err()?);
        let entries: Vec<Entry> = leases.iter().zip(&answers).filter_map(refused).collect();
        self.ledger.note(&entries);
        Ok(answers)
    }
}

fn refusal(lease: &Lease, error: &Error) -> Option<Entry> {
    error.is_lease_lost().then_some(Entry::Refused { job: lease.job, token: lease.token })
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
        self.note_renewed(request).await
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
    use super::super::jobs::Email;
    use super::super::ledger::read_all;
    use super::*;
    use windlass::Client;
    use windlass::core::job::State;
    use windlass::core::memory::MemoryStore;
    use windlass::core::name::WorkerId;
    use windlass::core::store::{JobQueue, Outcome, Renewal, Wrapped};

    fn claim(request_id: u64) -> ClaimRequest {
        let worker = WorkerId::new("w").unwrap();
        ClaimRequest::new(worker, request_id, "demo-mail".try_into().unwrap())
    }

    fn complete(lease: Lease) -> ReportRequest {
        ReportRequest { worker: WorkerId::new("w").unwrap(), outcomes: vec![Outcome::complete(lease)] }
    }

    #[tokio::test]
    async fn what_the_store_took_and_what_it_refused_is_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger::open(dir.path(), "w").unwrap());
        let store = Arc::new(Wrapped(Recorder::new(Arc::new(MemoryStore::new()), ledger)));
        let client = Client::new(Arc::<Wrapped<Recorder>>::clone(&store));
        for number in 0..2 {
            client.enqueue(Email { number, tenant: "acme".to_owned(), to: "ada".to_owned() }).await.unwrap();
        }
        let first = store.claim(claim(1)).await.unwrap().jobs[0].lease;
        let second = store.report_and_claim(complete(first), claim(2)).await.unwrap().claimed.jobs[0].lease;
        store.report(complete(second)).await.unwrap();
        // A lease that somebody else has by now.
        let late = Lease { token: windlass::core::id::Token::from_bits(7), ..second };
        store.report(complete(late)).await.unwrap();
        let renewal = Renewal { lease: late, lease_ms: Some(1_000), progress: None };
        store.renew(RenewRequest { renewals: vec![renewal] }).await.unwrap();
        let accepted = |lease: Lease| Entry::Accepted {
            job: lease.job,
            token: lease.token,
            state: State::Succeeded,
            repeated: false,
        };
        let refused = Entry::Refused { job: late.job, token: late.token };
        assert_eq!(read_all(dir.path()).unwrap(), [accepted(first), accepted(second), refused, refused]);
    }
}
