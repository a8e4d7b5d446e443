//! The contract for jobs, one method after the other, handed to where it is done.

use super::RedisStore;
use async_trait::async_trait;
use windlass_core::Result;
use windlass_core::id::JobId;
use windlass_core::job::Job;
use windlass_core::store::{
    Change, ChangeMany, Changed, ChangedMany, ClaimRequest, Claimed, EnqueueRequest, Enqueued, Explanation, GroupPage,
    GroupsRequest, JobPage, JobQueue, ListRequest, MetricsRequest, MinuteMetrics, QueueStatus, RenewRequest, Renewed,
    ReportRequest, Reported, ReportedAndClaimed, Setting, Sweep, Swept,
};

#[async_trait]
impl JobQueue for RedisStore {
    async fn enqueue(&self, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        self.enqueue_jobs(request).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed> {
        self.claim_jobs(request).await
    }

    async fn renew(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        self.renew_leases(request).await
    }

    async fn report(&self, request: ReportRequest) -> Result<Vec<Result<Reported>>> {
        self.report_outcomes(request).await
    }

    async fn report_and_claim(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed> {
        self.report_and_claim_jobs(report, claim).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Vec<Result<Changed>>> {
        self.change_jobs(changes).await
    }

    async fn change_many(&self, request: ChangeMany) -> Result<ChangedMany> {
        self.change_matching(request).await
    }

    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<Job>>> {
        self.get_jobs(ids).await
    }

    async fn list(&self, request: ListRequest) -> Result<JobPage> {
        self.list_jobs(request).await
    }

    async fn configure(&self, setting: Setting) -> Result<()> {
        self.set(setting).await
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.queue_statuses().await
    }

    async fn groups(&self, request: GroupsRequest) -> Result<GroupPage> {
        self.group_page(request).await
    }

    async fn metrics(&self, request: MetricsRequest) -> Result<Vec<MinuteMetrics>> {
        self.minutes(request).await
    }

    async fn explain(&self, id: JobId) -> Result<Explanation> {
        self.explain_job(id).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        self.sweep_once(sweep).await
    }
}
