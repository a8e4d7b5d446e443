//! Stores that answer claims in such a way that the worker drops jobs before their handlers start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::Error;
use windlass::core::name::WorkerId;
use windlass::core::store::{
    ClaimRequest, Claimed, ClaimedJob, Outcome, OutcomeKind, RenewRequest, Renewed, ReportRequest, Store, Wrap,
};

pub(crate) const SHORT_LEASE: Duration = Duration::from_millis(200);

/// A store that answers the first claim with jobs when their leases have ended, and that renews no lease: a renewal that came
/// before the handler would make the lease valid again.
pub(crate) struct AnswersLate {
    inner: Arc<dyn Store>,
    late: AtomicBool,
}

impl AnswersLate {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, late: AtomicBool::new(true) }
    }
}

#[async_trait::async_trait]
impl Wrap for AnswersLate {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn claim(&self, request: ClaimRequest) -> windlass::Result<Claimed> {
        let claimed = self.inner.claim(request).await?;
        if !claimed.jobs.is_empty() && self.late.swap(false, Ordering::SeqCst) {
            // sleeps because: workers measure leases by the machine's clock
            tokio::time::sleep(SHORT_LEASE).await;
        }
        Ok(claimed)
    }

    async fn renew(&self, _: RenewRequest) -> windlass::Result<Vec<windlass::Result<Renewed>>> {
        Err(Error::Unavailable { reason: "no renewals".to_owned() })
    }
}

/// A store whose first answer with jobs holds each of them twice: with a lease that has ended, and with a new one. A worker
/// sees the same when a lease ends, and the worker claims the job again before it has started it.
pub(crate) struct LeasesTwice {
    inner: Arc<dyn Store>,
    first: AtomicBool,
}

impl LeasesTwice {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, first: AtomicBool::new(true) }
    }
}

#[async_trait::async_trait]
impl Wrap for LeasesTwice {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn claim(&self, request: ClaimRequest) -> windlass::Result<Claimed> {
        if !self.first.swap(false, Ordering::SeqCst) {
            return self.inner.claim(request).await;
        }
        let other = WorkerId::new("other").unwrap();
        let ended = self.inner.claim(ClaimRequest { worker: other.clone(), ..request.clone() }).await?;
        let release = |job: &ClaimedJob| Outcome { lease: job.lease, kind: OutcomeKind::Release { started: false } };
        let outcomes = ended.jobs.iter().map(release).collect();
        self.inner.report(ReportRequest { worker: other, outcomes }).await?;
        let mut claimed = self.inner.claim(request).await?;
        claimed.jobs.splice(0..0, ended.jobs);
        Ok(claimed)
    }
}
