//! One store of the two that are driven, and how a step is done to it.

use super::answer::{
    Answer, Granted, plain_error, plain_errors, plain_explanation, plain_item, plain_job, plain_schedule,
    plain_summary, plain_worker,
};
use super::op::{
    ChangePlan, ClaimPlan, FeedFrom, FirePlan, JobPlan, LeaseRef, Op, ReportPlan, RequestPlan, RunStepPlan,
    SchedulePlan, TickPlan, WaitPlan, World,
};
use crate::faults::{FaultPlan, Faulty};
use futures::FutureExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::id::{JobId, Token};
use windlass_core::job::{Job, JobSummary, Lease};
use windlass_core::name::{ScheduleName, WorkerId};
use windlass_core::schedule::{self, Schedule};
use windlass_core::store::{
    CallStore, Change, ChangeMany, ClaimRequest, Claimed, ClaimedRun, EnqueueRequest, Feed, FeedCursor, FeedEvent,
    FeedRequest, Fire, GroupsRequest, JobQueue, ListRequest, LogAppend, LogRequest, LogSink, MetricsRequest, NewRun,
    Outcome, RenewRequest, Renewal, ReportRequest, RunClaim, RunCommit, RunState, RunStep, RunStore, ScheduleStore,
    Store, Sweep, SweepKind, WaitFor, WorkerRegistry,
};
use windlass_core::time::{Clock, HANG_GUARD, Timestamp, VirtualClock};

/// When every sequence begins.
pub(crate) const START: Timestamp = Timestamp::from_ms(1_700_000_000_000);

/// One store, and what it has handed out.
pub(crate) struct Side {
    pub(crate) store: Arc<CallStore<Faulty>>,
    pub(crate) clock: Arc<VirtualClock>,
    /// Every lease that it granted, in order.
    pub(crate) leases: Vec<Lease>,
    claims: BTreeMap<WorkerId, ClaimRequest>,
    feed: FeedCursor,
}

impl Side {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<VirtualClock>) -> Self {
        clock.set(START);
        let store = Arc::new(Faulty::new(store, FaultPlan::calm()));
        Self { store, clock, leases: Vec::new(), claims: BTreeMap::new(), feed: FeedCursor(0) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The number of the lease, unless it is a forged one.
    pub(crate) fn lease_index(&self, lease: &LeaseRef) -> Option<usize> {
        match lease {
            LeaseRef::Latest(k) => self.leases.len().checked_sub(k + 1),
            LeaseRef::Forged(_) => None,
        }
    }

    fn lease(&self, world: &World, lease: &LeaseRef) -> Lease {
        let job = if let LeaseRef::Forged(job) = lease { *job } else { 0 };
        let forged = Lease { job: world.job(job), attempt: 1, token: Token::from_bits(7) };
        self.lease_index(lease).map_or(forged, |index| self.leases[index])
    }

    fn job_to_change(&self, world: &World, plan: &ChangePlan) -> JobId {
        let leased = self.leases.len().checked_sub(plan.job + 1).filter(|_| plan.leased);
        leased.map_or_else(|| world.job(plan.job), |index| self.leases[index].job)
    }

    /// The request that a plan means, and whether it is a new one.
    pub(crate) fn claim_request(&self, plan: &ClaimPlan) -> (ClaimRequest, bool) {
        let last = self.claims.get(&plan.worker);
        let last_id = last.map_or(0, |last| last.request_id);
        let request_id = match plan.request {
            RequestPlan::Next => last_id + 1,
            RequestPlan::Again => match last {
                Some(last) => return (last.clone(), false),
                None => 1,
            },
            RequestPlan::AgainOtherwise => last_id.max(1),
            RequestPlan::Older => last_id.max(1) - 1,
        };
        let ClaimPlan { worker, queues, kinds, labels, max, lease_ms, .. } = plan.clone();
        (ClaimRequest { worker, request_id, queues, kinds, labels, max, lease_ms }, request_id > last_id)
    }

    fn note_claim(&mut self, request: ClaimRequest, new: bool) {
        if new {
            self.claims.insert(request.worker.clone(), request);
        }
    }

    fn granted(&mut self, claimed: Claimed) -> Vec<Granted> {
        let mut all = Vec::new();
        for job in claimed.jobs {
            let lease = self.leases.iter().position(|known| *known == job.lease).unwrap_or_else(|| {
                self.leases.push(job.lease);
                self.leases.len() - 1
            });
            all.push(Granted {
                lease,
                job: job.lease.job,
                attempt: job.lease.attempt,
                expires_at: job.expires_at,
                spec: job.spec,
                stalls: job.stall_count,
                retries: job.retry_count,
                created_at: job.created_at,
            });
        }
        all
    }

    fn report_request(&self, world: &World, plan: &ReportPlan) -> ReportRequest {
        let outcome =
            |(lease, kind): &(LeaseRef, _)| Outcome { lease: self.lease(world, lease), kind: Clone::clone(kind) };
        ReportRequest { worker: plan.worker.clone(), outcomes: plan.outcomes.iter().map(outcome).collect() }
    }

    /// Does a step; moves of the clock are done by the caller.
    pub(crate) async fn apply(&mut self, op: &Op, world: &World) -> Answer {
        self.try_apply(op, world).await.unwrap_or_else(Answer::from)
    }

    async fn try_apply(&mut self, op: &Op, world: &World) -> Result<Answer> {
        Ok(match op {
            Op::Claim(plan) => {
                let (request, new) = self.claim_request(plan);
                let claimed = self.store.claim(request.clone()).await;
                self.note_claim(request, new);
                Answer::Claimed(self.granted(claimed?))
            }
            Op::ReportAndClaim(report, plan) => {
                let (claim, new) = self.claim_request(plan);
                let report = self.report_request(world, report);
                let both = self.store.report_and_claim(report, claim.clone()).await;
                self.note_claim(claim, new);
                let both = both?;
                Answer::ReportedAndClaimed(plain_errors(both.reported), self.granted(both.claimed))
            }
            _ => self.do_other(op, world).await?,
        })
    }

    /// The steps that change jobs without granting a lease.
    async fn do_other(&self, op: &Op, world: &World) -> Result<Answer> {
        let store = &self.store;
        Ok(match op {
            Op::Enqueue { jobs, atomic } => {
                let request = EnqueueRequest { jobs: world.jobs(jobs), atomic: *atomic };
                Answer::Enqueued(plain_errors(store.enqueue(request).await?))
            }
            Op::Renew(plans) => {
                let renewal = |plan: &super::op::RenewPlan| Renewal {
                    lease: self.lease(world, &plan.lease),
                    lease_ms: plan.lease_ms,
                    progress: plan.progress.clone(),
                };
                let request = RenewRequest { renewals: plans.iter().map(renewal).collect() };
                Answer::Renewed(plain_errors(store.renew(request).await?))
            }
            Op::Report(plan) => Answer::Reported(plain_errors(store.report(self.report_request(world, plan)).await?)),
            Op::Change(plans) => {
                let change = |plan| Change { id: self.job_to_change(world, plan), op: plan.op.clone() };
                Answer::Changed(plain_errors(store.change(plans.iter().map(change).collect()).await?))
            }
            Op::ChangeMany { op, filter, max } => {
                let mut request = ChangeMany { op: *op, filter: filter.clone(), max: *max, cursor: None };
                let mut changed = 0;
                for _ in 0..1_000 {
                    let step = store.change_many(request.clone()).await?;
                    changed += step.changed;
                    if step.cursor.is_none() {
                        return Ok(Answer::ChangedMany(changed));
                    }
                    request.cursor = step.cursor;
                }
                panic!("{request:?} never ends")
            }
            Op::Sweep { kind, max } => self.sweep(*kind, *max).await?,
            Op::AppendLogs { lease, behind, ahead, lines } => {
                let lease = self.lease(world, lease);
                let page = store.read_logs(LogRequest { job: lease.job, from: 0, limit: 1 }).await;
                let first = page.map_or(0, |page| page.next).saturating_sub(*behind) + ahead;
                let append = LogAppend { lease, first, lines: lines.clone() };
                Answer::Appended(plain_errors(store.append_logs(vec![append]).await?))
            }
            _ => self.look(op, world).await?,
        })
    }

    /// Which jobs a bounded sweep takes first is only said of leases, so the others run to their end. A step that has done
    /// enough work stops before it has handled as many as it may.
    async fn sweep(&self, kind: SweepKind, max: u32) -> Result<Answer> {
        let mut handled = 0;
        for _ in 0..1_000 {
            let left = if kind == SweepKind::Reap { max.saturating_sub(handled) } else { max };
            let swept = self.store.sweep(Sweep { kind, max: left }).await?;
            // What a prune counts beside jobs (old minutes, memos, what is left of logs) is the store's business.
            let counted = kind != SweepKind::Prune;
            assert!(
                !counted || swept.handled <= u64::from(left),
                "a sweep of at most {left} has handled {}",
                swept.handled
            );
            handled += u32::try_from(swept.handled).unwrap_or(u32::MAX);
            if !swept.more || kind == SweepKind::Reap && handled >= max {
                return Ok(Answer::Swept(counted.then_some(handled.into())));
            }
        }
        panic!("the sweep {kind:?} by {max} never ends")
    }

    /// The steps that only look at jobs.
    async fn look(&self, op: &Op, world: &World) -> Result<Answer> {
        let store = &self.store;
        Ok(match op {
            Op::Get(jobs) => {
                let jobs = store.get(jobs.iter().map(|job| world.job(*job)).collect()).await?;
                Answer::Jobs(jobs.into_iter().map(|job| job.map(plain_job)).collect())
            }
            Op::List { filter, order, limit } => {
                let request = ListRequest { filter: filter.clone(), order: *order, cursor: None, limit: *limit };
                Answer::Page(self.list_all(request).await?)
            }
            Op::Queues => Answer::Queues(store.queues().await?),
            Op::Groups { queue, after, limit } => {
                let request = GroupsRequest { queue: queue.clone(), after: after.clone(), limit: *limit };
                let groups = store.groups(request).await?.groups;
                Answer::Groups(groups.into_iter().filter(super::view::counts).collect())
            }
            Op::Metrics { queue, back_ms } => {
                let request =
                    MetricsRequest { queue: queue.clone(), from: self.now().minus_ms(*back_ms), to: self.now() };
                Answer::Metrics(store.metrics(request).await?)
            }
            Op::Explain(job) => Answer::Explained(plain_explanation(store.explain(world.job(*job)).await?)),
            Op::ReadLogs { job, from, limit } => {
                let request = LogRequest { job: world.job(*job), from: *from, limit: *limit };
                Answer::Logs(store.read_logs(request).await?)
            }
            _ => self.keep_house(op, world).await?,
        })
    }

    /// All pages of a listing; no job may come twice.
    pub(crate) async fn list_all(&self, mut request: ListRequest) -> Result<Vec<JobSummary>> {
        let mut all = Vec::new();
        for _ in 0..10_000 {
            let page = self.store.list(request.clone()).await?;
            all.extend(page.jobs.into_iter().map(plain_summary));
            if page.cursor.is_none() {
                let ids: BTreeSet<JobId> = all.iter().map(|job: &JobSummary| job.id).collect();
                assert!(ids.len() == all.len(), "a listing shows a job twice: {all:?}");
                return Ok(all);
            }
            request.cursor = page.cursor;
        }
        panic!("{request:?} never ends")
    }

    /// Workers, schedules, the feed, the store itself.
    async fn keep_house(&self, op: &Op, world: &World) -> Result<Answer> {
        let store = &self.store;
        Ok(match op {
            Op::Configure(setting) => {
                store.configure(setting.clone()).await?;
                Answer::Nothing
            }
            Op::Heartbeat(beat) => {
                let mut cancelled = store.heartbeat(beat.clone()).await?.cancelled;
                cancelled.sort();
                Answer::CancelledJobs(cancelled)
            }
            Op::Deregister(worker) => {
                store.deregister(worker.clone()).await?;
                Answer::Nothing
            }
            Op::Workers => Answer::Workers(store.workers().await?.into_iter().map(plain_worker).collect()),
            Op::PutSchedule(plan) => {
                store.put_schedule(self.schedule(plan)).await?;
                Answer::Nothing
            }
            Op::RemoveSchedule(name) => Answer::Removed(store.remove_schedule(name.clone()).await?),
            Op::Schedules => Answer::Schedules(store.schedules().await?.into_iter().map(plain_schedule).collect()),
            Op::DueSchedules { max } => {
                let mut due = store.due_schedules(*max).await?;
                due.iter_mut().for_each(|due| due.schedule.revision = 0);
                Answer::Due(due)
            }
            Op::Fire(plan) => Answer::Fired(store.fire(self.fire(plan, world).await?).await?),
            Op::Tick { max } => {
                let ticked = schedule::tick(store.as_ref(), *max).await?;
                Answer::Ticked { handled: ticked.handled, jobs: ticked.jobs, failed: ticked.failed.len() }
            }
            Op::ReadFeed { from, max } => Answer::Feed(self.read_feed(*from, *max).await?),
            Op::FeedEvents { set } => {
                let set = store.set_feed_events(*set).await.map_err(plain_error);
                Answer::FeedEvents { set, now: store.feed_events().await? }
            }
            Op::StartRun { jobs } => Answer::Runs(plain_errors(store.create_runs(vec![start(world, jobs)]).await?)),
            Op::StepRun(plan) => self.step_run(plan, world).await?,
            Op::Info => {
                store.info().await?;
                Answer::Nothing
            }
            Op::Now => Answer::Now(store.now().await?),
            Op::Wait(plan) => {
                self.wait(plan, world).await?;
                Answer::Nothing
            }
            other => panic!("nobody does {other:?}"),
        })
    }

    /// Claims a run, and commits what was planned.
    async fn step_run(&self, plan: &RunStepPlan, world: &World) -> Result<Answer> {
        let run = world.run(plan.run);
        let engine = super::op::worker(0);
        let claim = RunClaim { run: Some(run), lease_ms: 1_000, ..RunClaim::new(engine, vec![super::op::kind(0)]) };
        let Some(claimed) = self.store.claim_runs(claim).await?.runs.pop() else { return Ok(Answer::Nothing) };
        let step = RunStep {
            history: vec!["step".into()],
            jobs: world.jobs_of(run, &plan.jobs),
            cancel: plan.cancel.iter().map(|job| world.job(*job)).collect(),
            state: if plan.ends { RunState::Succeeded } else { RunState::Running },
            ..RunStep::nothing()
        };
        let ClaimedRun { lease, history_len, inbox_to, .. } = claimed;
        let commit = RunCommit { inbox_to, ..RunCommit::new(lease, history_len, step) };
        let mut committed = plain_errors(self.store.commit_runs(vec![commit]).await?);
        if committed.iter().any(Result::is_err) {
            // The lease must not stay behind.
            let commit = RunCommit::new(lease, history_len, RunStep::nothing());
            committed.extend(plain_errors(self.store.commit_runs(vec![commit]).await?));
        }
        Ok(Answer::RunStepped(claimed.inbox.into_iter().map(plain_item).collect(), committed))
    }

    fn schedule(&self, plan: &SchedulePlan) -> Schedule {
        Schedule {
            overlap: plan.overlap,
            limit: plan.limit,
            paused: plan.paused,
            next_tick: plan.next_in_ms.map(|ms| self.now().plus_ms(ms)),
            ..Schedule::new(plan.name.clone(), plan.rule.clone(), plan.spec.clone())
        }
    }

    async fn fire(&self, plan: &FirePlan, world: &World) -> Result<Fire> {
        let known = self.stored_schedule(&plan.name).await?;
        let (next_tick, revision) = known.map_or((None, 0), |known| (known.next_tick, known.revision));
        let expected = match plan.tick {
            TickPlan::Expected => next_tick,
            TickPlan::Wrong => Some(next_tick.unwrap_or(START).plus_ms(1)),
            TickPlan::OutOfTurn => None,
        };
        Ok(Fire {
            name: plan.name.clone(),
            expected_tick: expected,
            revision: revision + u64::from(plan.stale_revision),
            jobs: world.jobs(&plan.jobs),
            // Ticks rise.
            next_tick: plan.next_in_ms.map(|ms| self.now().max(expected.unwrap_or_default()).plus_ms(ms + 1)),
            skip_if_running: plan.skip_if_running,
        })
    }

    async fn stored_schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>> {
        Ok(self.store.schedules().await?.into_iter().find(|schedule| schedule.name == *name))
    }

    async fn read_feed(&self, from: FeedFrom, max: u32) -> Result<Vec<(Timestamp, FeedEvent)>> {
        let end = self.store.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
        match from {
            FeedFrom::Beginning => Ok(self.feed_after(FeedCursor(0), max).await?.0),
            FeedFrom::End => self.store.read_feed(FeedRequest { after: None, max }).await.map(|_| Vec::new()),
            FeedFrom::Beyond => {
                let request = FeedRequest { after: Some(FeedCursor(end.0 + 1_000)), max };
                self.store.read_feed(request).await.map(|_| Vec::new())
            }
        }
    }

    /// What the feed says from a place on, event by event, and where it ends.
    async fn feed_after(&self, mut after: FeedCursor, max: u32) -> Result<(Vec<(Timestamp, FeedEvent)>, FeedCursor)> {
        let mut events = Vec::new();
        for _ in 0..100_000 {
            let page = self.store.read_feed(FeedRequest { after: Some(after), max }).await?;
            assert!(!page.gap, "a short feed has a gap");
            if page.entries.is_empty() {
                return Ok((events, after));
            }
            for entry in page.entries {
                assert!(entry.cursor > after, "the feed goes back from {after:?} to {:?}", entry.cursor);
                assert!(!entry.events.is_empty(), "a feed entry without events");
                after = entry.cursor;
                events.extend(entry.events.into_iter().map(|event| (entry.at, event)));
            }
            assert_eq!(page.next, after, "a page of the feed goes on after its last entry");
        }
        panic!("the feed never ends")
    }

    /// What the feed says since it was asked last.
    pub(crate) async fn feed_news(&mut self) -> Vec<(Timestamp, FeedEvent)> {
        let (events, end) = self.feed_after(self.feed, 3).await.unwrap();
        self.feed = end;
        events
    }

    /// Only what has happened already is waited for; anything else is polled once, because it may return early.
    async fn wait(&self, plan: &WaitPlan, world: &World) -> Result<()> {
        let (what, over) = match plan {
            WaitPlan::Work(queue) => {
                (WaitFor::Work { queues: vec![queue.clone()], mark: windlass_core::store::WorkMark::default() }, false)
            }
            WaitPlan::Job(job) => {
                let id = world.job(*job);
                let job = self.store.get(vec![id]).await?.remove(0);
                (WaitFor::Job(id), job.is_none_or(|job| job.state.is_terminal()))
            }
            WaitPlan::Feed => (WaitFor::Feed(FeedCursor(0)), self.feed > FeedCursor(0)),
        };
        let text = format!("{what:?}");
        let wait = self.store.wait(what);
        if over {
            return tokio::time::timeout(HANG_GUARD, wait)
                .await
                .unwrap_or_else(|_| panic!("{text} is over and still waits"));
        }
        wait.now_or_never().unwrap_or(Ok(()))
    }

    /// Every job that was ever named, as far as it exists.
    pub(crate) async fn jobs(&self, ids: &[JobId]) -> BTreeMap<JobId, Job> {
        let jobs = self.store.get(ids.to_vec()).await.unwrap();
        jobs.into_iter().flatten().map(|job| (job.id, plain_job(job))).collect()
    }

    /// Closes the store: twice, and then nothing works any more.
    pub(crate) async fn close(&self) -> Answer {
        self.store.close().await.unwrap();
        self.store.close().await.unwrap();
        match self.store.queues().await {
            Ok(queues) => panic!("a closed store answers {queues:?}"),
            Err(error) => Answer::Failed(plain_error(error)),
        }
    }
}

/// The run that is started by these jobs.
fn start(world: &World, jobs: &[JobPlan]) -> NewRun {
    let id = world.next_run();
    let step = RunStep { history: vec!["begun".into()], jobs: world.jobs_of(id, jobs), ..RunStep::nothing() };
    let (kind, name) = (super::op::kind(0), "run".to_owned());
    NewRun { name, definition: "{}".into(), input: "1".into(), step, ..NewRun::new(id, kind) }
}
