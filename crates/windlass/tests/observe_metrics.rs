//! Every metric, with its labels, over small lives of jobs.

#![cfg(feature = "metrics")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

#[path = "support/late_claims.rs"]
mod late_claims;
#[path = "support/recorded.rs"]
mod recorded;

use late_claims::{AnswersLate, LeasesTwice, SHORT_LEASE};
use recorded::{Recorded, record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass::core::id::Ids;
use windlass::core::job::{Due, Failure, FailureClass, JobSpec, NewJob, Retry};
use windlass::core::memory::MemoryStore;
use windlass::core::name::WorkerId;
use windlass::core::payload::Payload;
use windlass::core::random::StrongRandom;
use windlass::core::retry::RetryPolicy;
use windlass::core::schedule::{Rule, Schedule, tick};
use windlass::core::store::{
    Beat, Change, ChangeOp, ClaimRequest, ClaimedJob, EnqueueRequest, Kinds, Outcome, OutcomeKind, RenewRequest,
    Renewal, ReportRequest, Store, Sweep, SweepKind, Wrapped,
};
use windlass::core::time::{HANG_GUARD, Timestamp, VirtualClock};
use windlass::observe::names::{self, MetricType};
use windlass::observe::{Sampler, observe};
use windlass::{Client, Ctx, Error, Job, JobError, Options, Waited, Worker};
use windlass_conformance::faults::{FaultPlan, Faulty};

const LEASE_MS: u64 = 30_000;

/// A store on a clock that stands, observed.
struct Bench {
    clock: Arc<VirtualClock>,
    inner: Arc<dyn Store>,
    store: Arc<dyn Store>,
    ids: Ids,
    request: u64,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let random = Arc::new(StrongRandom::seeded(7));
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::with(clock.clone(), random.clone()));
        let store = observe("memory", Arc::clone(&inner));
        Self { ids: Ids::new(clock.clone(), random), clock, inner, store, request: 0 }
    }

    fn job(&self, queue: &str, kind: &str) -> NewJob {
        let spec = JobSpec::new(queue.try_into().unwrap(), kind.try_into().unwrap(), Payload::json(&1).unwrap());
        NewJob::new(self.ids.next(), spec)
    }

    async fn enqueue(&self, queue: &str, kind: &str, count: usize) {
        let jobs = (0..count).map(|_| self.job(queue, kind)).collect();
        assert!(self.store.enqueue(EnqueueRequest::new(jobs)).await.unwrap().iter().all(Result::is_ok));
    }

    fn claim_request(&mut self, queue: &str, max: u32) -> ClaimRequest {
        self.request += 1;
        let request = ClaimRequest::new(worker(), self.request, queue.try_into().unwrap());
        ClaimRequest { max, lease_ms: LEASE_MS, ..request }
    }

    async fn claim(&mut self, queue: &str, max: u32) -> Vec<ClaimedJob> {
        let request = self.claim_request(queue, max);
        self.store.claim(request).await.unwrap().jobs
    }

    async fn report(&self, outcomes: Vec<Outcome>) -> Vec<windlass::Result<()>> {
        let request = ReportRequest { worker: worker(), outcomes };
        self.store.report(request).await.unwrap().into_iter().map(|answer| answer.map(drop)).collect()
    }

    async fn sweep(&self, kind: SweepKind) {
        self.store.sweep(Sweep { kind, max: 1_000 }).await.unwrap();
    }
}

fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

fn fail(job: &ClaimedJob, class: FailureClass, retry: Retry) -> Outcome {
    let failure = Failure { class, message: "no".to_owned(), attempt: 0, at: Timestamp::from_ms(0), detail: None };
    Outcome { lease: job.lease, kind: OutcomeKind::Fail { failure, retry } }
}

async fn enqueue_and_claim() {
    let mut bench = Bench::new();
    bench.enqueue("mail", "welcome", 3).await;
    bench.clock.advance_ms(500);
    // One call with two kinds, one that is there already, and one that is refused.
    let bill = bench.job("mail", "bill");
    let mut wrong = bench.job("mail", "bill");
    wrong.spec.attempts = 0;
    let jobs = vec![bill.clone(), bench.job("mail", "welcome"), bill.clone(), wrong];
    bench.store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
    bench.clock.advance_ms(1_500);
    assert_eq!(bench.claim("mail", 10).await.len(), 5);
    assert!(bench.claim("mail", 10).await.is_empty());
    // What a delay takes is no wait for a worker.
    let late = bench.job("late", "k").due(Due::DelayMs(4_000));
    bench.store.enqueue(EnqueueRequest::new(vec![late])).await.unwrap();
    bench.clock.advance_ms(4_000);
    bench.sweep(SweepKind::Promote).await;
    bench.clock.advance_ms(250);
    assert_eq!(bench.claim("late", 10).await.len(), 1);
}

#[test]
fn jobs_are_counted_by_queue_and_kind_and_their_waits_measured() {
    let seen = record(enqueue_and_claim());
    seen.counter("windlass_jobs_enqueued_total{kind=welcome,queue=mail}", 4);
    seen.counter("windlass_jobs_enqueued_total{kind=bill,queue=mail}", 1);
    seen.counter("windlass_jobs_claimed_total{kind=welcome,queue=mail}", 4);
    seen.counter("windlass_jobs_claimed_total{kind=bill,queue=mail}", 1);
    seen.histogram("windlass_job_wait_seconds{kind=welcome,queue=mail}", &[2.0, 2.0, 2.0, 1.5]);
    seen.histogram("windlass_job_wait_seconds{kind=bill,queue=mail}", &[1.5]);
    seen.histogram("windlass_job_wait_seconds{kind=k,queue=late}", &[0.25]);
    seen.counter("windlass_swept_total{sweep=promote}", 1);
    seen.counter("windlass_store_refusals_total{error=invalid,op=enqueue,store=memory}", 1);
    seen.count_of("windlass_store_call_seconds{op=enqueue,store=memory}", 3);
    seen.count_of("windlass_store_call_seconds{op=claim,store=memory}", 3);
    seen.nothing_of(names::STORE_ERRORS);
}

async fn outcomes() {
    let mut bench = Bench::new();
    bench.enqueue("q", "k", 10).await;
    let jobs = bench.claim("q", 10).await;
    bench.store.change(vec![Change { id: jobs[6].lease.job, op: ChangeOp::Cancel }]).await.unwrap();
    let answers = bench
        .report(vec![
            Outcome::complete(jobs[0].lease),
            Outcome::complete(jobs[1].lease),
            fail(&jobs[2], FailureClass::Error, Retry::Never),
            fail(&jobs[3], FailureClass::Timeout, Retry::Never),
            fail(&jobs[4], FailureClass::Panic, Retry::AfterMs(1)),
            Outcome::release(jobs[5].lease),
            Outcome::complete(jobs[6].lease),
        ])
        .await;
    assert!(answers.iter().all(Result::is_ok));
    // The same again, as if the answer had been lost: nobody is counted twice.
    assert!(bench.report(vec![Outcome::complete(jobs[0].lease)]).await[0].is_ok());
    // One is renewed, two are not, and lose their leases: one is told by its outcome, one by its renewal.
    let renewal = |at: usize| Renewal { lease: jobs[at].lease, lease_ms: Some(10 * LEASE_MS), progress: None };
    bench.store.renew(RenewRequest { renewals: vec![renewal(7)] }).await.unwrap();
    bench.clock.advance_ms(LEASE_MS + 1);
    bench.sweep(SweepKind::Reap).await;
    assert_eq!(bench.report(vec![Outcome::complete(jobs[8].lease)]).await, [Err(Error::LeaseLost)]);
    for _ in 0..2 {
        let answers = bench.store.renew(RenewRequest { renewals: vec![renewal(9)] }).await.unwrap();
        assert_eq!(answers, [Err(Error::LeaseLost)]);
    }
    let claim = bench.claim_request("q", 1);
    let report = ReportRequest { worker: worker(), outcomes: vec![Outcome::complete(jobs[7].lease)] };
    let both = bench.store.report_and_claim(report, claim).await.unwrap();
    assert_eq!((both.reported.len(), both.claimed.jobs.len()), (1, 1));
}

#[test]
fn outcomes_are_counted_once_and_by_what_they_came_to() {
    let seen = record(outcomes());
    seen.counter("windlass_jobs_succeeded_total{kind=k,queue=q}", 3);
    seen.counter("windlass_jobs_failed_total{class=error,kind=k,queue=q}", 1);
    seen.counter("windlass_jobs_failed_total{class=timeout,kind=k,queue=q}", 1);
    seen.counter("windlass_jobs_retried_total{kind=k,queue=q}", 1);
    seen.counter("windlass_jobs_released_total{kind=k,queue=q}", 1);
    seen.counter("windlass_jobs_cancelled_total{kind=k,queue=q}", 1);
    seen.counter("windlass_jobs_lease_lost_total{kind=k,queue=q}", 2);
    seen.counter("windlass_jobs_claimed_total{kind=k,queue=q}", 11);
    seen.counter("windlass_swept_total{sweep=reap}", 2);
    seen.counter("windlass_store_refusals_total{error=lease_lost,op=report,store=memory}", 1);
    seen.counter("windlass_store_refusals_total{error=lease_lost,op=renew,store=memory}", 2);
    seen.nothing_of("windlass_jobs_failed_total{class=panic");
    seen.nothing_of("windlass_jobs_succeeded_total{kind=other");
}

async fn an_outcome_from_elsewhere() {
    let mut bench = Bench::new();
    bench.enqueue("q", "k", 1).await;
    let request = bench.claim_request("q", 1);
    let job = bench.inner.claim(request).await.unwrap().jobs.remove(0);
    assert!(bench.report(vec![Outcome::complete(job.lease)]).await[0].is_ok());
}

#[test]
fn an_outcome_of_a_job_that_was_claimed_elsewhere_is_counted_as_other() {
    record(an_outcome_from_elsewhere()).counter("windlass_jobs_succeeded_total{kind=other,queue=other}", 1);
}

async fn many_queues() {
    let bench = Bench::new();
    for n in 0..1_005 {
        bench.enqueue(&format!("tenant-{n}"), "k", 1).await;
    }
    bench.enqueue("tenant-0", "k", 1).await;
}

#[test]
fn labels_have_a_bound() {
    let seen = record(many_queues());
    seen.counter("windlass_jobs_enqueued_total{kind=other,queue=other}", 5);
    seen.counter("windlass_jobs_enqueued_total{kind=k,queue=tenant-999}", 1);
    seen.counter("windlass_jobs_enqueued_total{kind=k,queue=tenant-0}", 2);
    seen.nothing_of("windlass_jobs_enqueued_total{kind=k,queue=tenant-1000");
}

async fn storm(jobs: usize) -> (u64, u64) {
    let bench = Bench::new();
    bench.enqueue("q", "k", jobs).await;
    let store = observe("stormy", Arc::new(Faulty::new(Arc::clone(&bench.inner), FaultPlan::stormy(11))));
    let (mut unavailable, mut unknown) = (0, 0);
    let mut note = |error: &Error| match error {
        Error::Unavailable { .. } => unavailable += 1,
        Error::Unknown { .. } => unknown += 1,
        other => panic!("{other}"),
    };
    for request_id in 1..=jobs as u64 {
        let request = ClaimRequest::new(worker(), request_id, "q".try_into().unwrap());
        let claimed = loop {
            match store.claim(request.clone()).await {
                Ok(claimed) => break claimed,
                Err(error) => note(&error),
            }
        };
        let outcomes: Vec<Outcome> = claimed.jobs.iter().map(|job| Outcome::complete(job.lease)).collect();
        while let Err(error) = store.report(ReportRequest { worker: worker(), outcomes: outcomes.clone() }).await {
            note(&error);
        }
    }
    assert_eq!(bench.inner.queues().await.unwrap()[0].counts.succeeded, jobs as u64);
    (unavailable, unknown)
}

#[test]
fn errors_of_the_store_are_counted_and_repeats_are_not_counted_twice() {
    let mut errors = (0, 0);
    let seen = record(async { errors = storm(200).await });
    let sum = |error: &str| {
        ["claim", "report"]
            .map(|op| seen.get(&format!("windlass_store_errors_total{{error={error},op={op},store=stormy}}")))
    };
    assert!(errors.0 > 10 && errors.1 > 10, "{errors:?}");
    assert_eq!(sum("unavailable").iter().sum::<u64>(), errors.0);
    assert_eq!(sum("unknown").iter().sum::<u64>(), errors.1);
    seen.counter("windlass_jobs_claimed_total{kind=k,queue=q}", 200);
    seen.counter("windlass_jobs_succeeded_total{kind=k,queue=q}", 200);
}

fn beat(name: &str, running: u32) -> Beat {
    let (queues, about) = (vec!["q".try_into().unwrap()], String::new());
    let worker = WorkerId::new(name).unwrap();
    Beat { worker, queues, kinds: Kinds::Any, labels: Default::default(), slots: 16, running, about, ttl_ms: 1_000 }
}

async fn gauges() {
    let mut bench = Bench::new();
    let other = observe("other", Arc::new(MemoryStore::new()));
    for (name, running) in [("a", 3), ("b", 5), ("a", 4), ("gone", 1)] {
        bench.store.heartbeat(beat(name, running)).await.unwrap();
    }
    other.heartbeat(beat("c", 2)).await.unwrap();
    bench.store.deregister(WorkerId::new("gone").unwrap()).await.unwrap();
    bench.clock.advance_ms(5_000);
    bench.store.heartbeat(beat("b", 5)).await.unwrap();
    bench.enqueue("q", "k", 3).await;
    bench.claim("q", 1).await;
    Sampler::new(Arc::clone(&bench.store)).once().await.unwrap();
}

#[test]
fn gauges_tell_what_is_there() {
    let seen = record(gauges());
    seen.gauge("windlass_worker_slots", 48.0);
    seen.gauge("windlass_worker_running", 11.0);
    seen.gauge("windlass_queue_jobs{queue=q,state=ready}", 2.0);
    seen.gauge("windlass_queue_jobs{queue=q,state=active}", 1.0);
    seen.gauge("windlass_queue_jobs{queue=q,state=failed}", 0.0);
    seen.gauge("windlass_workers{state=live}", 1.0);
    seen.gauge("windlass_workers{state=dead}", 1.0);
}

async fn a_queue_that_goes() {
    use windlass::core::store::{ChangeMany, ChangeManyOp, Filter};
    let bench = Bench::new();
    bench.enqueue("gone", "k", 3).await;
    let sampler = Sampler::new(Arc::clone(&bench.store)).every(Duration::from_secs(15)).run();
    let work = async {
        // sleeps because: on tokio's paused clock, which jumps, this is how two loops take turns
        tokio::time::sleep(Duration::from_secs(1)).await;
        let filter = Filter { queue: Some("gone".try_into().unwrap()), ..Filter::default() };
        let op = ChangeManyOp::Obliterate { force: true };
        bench.store.change_many(ChangeMany { op, filter, max: 100, cursor: None }).await.unwrap();
        // sleeps because: see above; the sampler looks once more
        tokio::time::sleep(Duration::from_secs(15)).await;
    };
    tokio::select! {
        () = sampler => {}
        () = work => {}
    }
}

#[test]
fn a_queue_that_is_gone_is_shown_as_empty() {
    record(a_queue_that_goes()).gauge("windlass_queue_jobs{queue=gone,state=ready}", 0.0);
}

/// The store cannot be asked once between two looks.
async fn a_queue_that_goes_while_the_store_is_away() {
    use windlass::core::store::{ChangeMany, ChangeManyOp, Filter};
    use windlass_conformance::faults::{Fault, FaultPlan, Faulty, Method};
    let bench = Bench::new();
    bench.enqueue("gone", "k", 3).await;
    let looks = AtomicU32::new(0);
    let away_once = move |method| match method {
        Method::Queues if looks.fetch_add(1, Ordering::SeqCst) == 1 => Fault::Before,
        _ => Fault::Pass,
    };
    let sampler = Sampler::new(Arc::new(Faulty::new(Arc::clone(&bench.store), FaultPlan::by(away_once))));
    sampler.once().await.unwrap();
    let filter = Filter { queue: Some("gone".try_into().unwrap()), ..Filter::default() };
    let op = ChangeManyOp::Obliterate { force: true };
    bench.store.change_many(ChangeMany { op, filter, max: 100, cursor: None }).await.unwrap();
    sampler.once().await.unwrap_err();
    sampler.once().await.unwrap();
}

#[test]
fn a_queue_that_goes_while_the_store_is_away_is_shown_as_empty() {
    record(a_queue_that_goes_while_the_store_is_away()).gauge("windlass_queue_jobs{queue=gone,state=ready}", 0.0);
}

async fn a_tick() {
    let bench = Bench::new();
    let spec = bench.job("q", "nightly").spec;
    let rule = Rule::Every { ms: 1_000 };
    let mut schedule = Schedule::new("s".try_into().unwrap(), rule, spec);
    schedule.next_tick = Some(Timestamp::from_ms(1_700_000_001_000));
    bench.store.put_schedule(schedule).await.unwrap();
    bench.clock.advance_ms(1_500);
    tick(bench.store.as_ref(), 10).await.unwrap();
}

#[test]
fn jobs_of_schedules_are_counted_too() {
    record(a_tick()).counter("windlass_jobs_enqueued_total{kind=nightly,queue=q}", 1);
}

#[derive(Serialize, Deserialize)]
struct Task {
    n: u32,
}

impl Job for Task {
    const KIND: &'static str = "task";
    type Output = ();

    fn options(&self) -> Options {
        Options::new().attempts(2).retry(RetryPolicy::Fixed { delay_ms: 1 })
    }
}

async fn task(job: Task, ctx: Ctx) -> Result<(), JobError> {
    match (job.n, ctx.attempt()) {
        (0, _) => Err(JobError::fatal("no")),
        (1, 1) => panic!("not yet"),
        (2, _) => std::future::pending().await,
        _ => Ok(()),
    }
}

async fn a_worker() {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    let worker = Worker::builder(store).handle(task).build().unwrap();
    let stopper = worker.stopper();
    let work = async {
        let wait = async |n, options| {
            let ticket = client.enqueue_with(Task { n }, options).await.unwrap();
            ticket.wait(HANG_GUARD).await.unwrap()
        };
        assert!(matches!(wait(0, Options::new()).await, Waited::Failed(_)));
        assert_eq!(wait(1, Options::new()).await, Waited::Succeeded(()));
        let short = Options::new().timeout(Duration::from_millis(20)).attempts(1);
        assert!(matches!(wait(2, short).await, Waited::Failed(_)));
        stopper.drain();
    };
    let (done, ()) = tokio::join!(worker.run_until_stopped(), work);
    done.unwrap();
}

fn recorded_worker() -> Recorded {
    recorded::record_in_real_time(a_worker())
}

#[test]
fn attempts_are_timed_by_how_they_ended() {
    let seen = recorded_worker();
    seen.count_of("windlass_job_run_seconds{kind=task,outcome=error,queue=default}", 1);
    seen.count_of("windlass_job_run_seconds{kind=task,outcome=panic,queue=default}", 1);
    seen.count_of("windlass_job_run_seconds{kind=task,outcome=succeeded,queue=default}", 1);
    let timeout = seen.values("windlass_job_run_seconds{kind=task,outcome=timeout,queue=default}");
    assert!(timeout.len() == 1 && timeout[0] >= 0.02, "{timeout:?}");
    seen.counter("windlass_jobs_failed_total{class=error,kind=task,queue=default}", 1);
    seen.counter("windlass_jobs_failed_total{class=timeout,kind=task,queue=default}", 1);
    seen.counter("windlass_jobs_retried_total{kind=task,queue=default}", 1);
    seen.counter("windlass_jobs_succeeded_total{kind=task,queue=default}", 1);
}

async fn a_dropped_job() {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    let store = Arc::new(Wrapped(AnswersLate::new(store)));
    let ticket = client.enqueue(Task { n: 9 }).await.unwrap();
    let worker = Worker::builder(store).lease(SHORT_LEASE).handle(task).build().unwrap();
    let stopper = worker.stopper();
    let work = async {
        assert_eq!(ticket.wait(HANG_GUARD).await.unwrap(), Waited::Succeeded(()));
        stopper.drain();
    };
    let (done, ()) = tokio::join!(worker.run_until_stopped(), work);
    done.unwrap();
}

#[test]
fn a_job_whose_lease_was_lost_before_its_handler_started_counts_as_dropped() {
    let seen = recorded::record_in_real_time(async {
        let store = windlass::open("memory://").unwrap();
        let ticket = Client::new(Arc::clone(&store)).enqueue(Task { n: 9 }).await.unwrap();
        let store = Arc::new(Wrapped(LeasesTwice::new(store)));
        let worker = Worker::builder(store).handle(task).build().unwrap();
        let stopper = worker.stopper();
        let work = async {
            assert_eq!(ticket.wait(HANG_GUARD).await.unwrap(), Waited::Succeeded(()));
            stopper.drain();
        };
        let (done, ()) = tokio::join!(worker.run_until_stopped(), work);
        done.unwrap();
    });
    seen.counter("windlass_jobs_dropped_total{kind=task,queue=default}", 1);
}

#[test]
fn every_metric_is_recorded_with_the_labels_of_the_table() {
    let all = [
        record(enqueue_and_claim()),
        record(outcomes()),
        record(gauges()),
        record(async { assert_ne!(storm(50).await, (0, 0)) }),
        recorded_worker(),
        recorded::record_in_real_time(a_dropped_job()),
    ];
    for metric in names::ALL {
        let labels: BTreeSet<&str> = metric.labels.iter().copied().collect();
        let seen: Vec<_> = all.iter().flat_map(|one| one.labels_of(metric.name)).collect();
        assert!(!seen.is_empty(), "{} was never recorded", metric.name);
        for (kind, found) in seen {
            let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
            assert_eq!((kind, &found), (metric.kind, &labels), "{}", metric.name);
        }
    }
    for name in all.iter().flat_map(Recorded::names) {
        assert!(names::ALL.iter().any(|metric| metric.name == name), "{name} is not in the table");
    }
}

#[test]
fn names_follow_the_rules_of_prometheus() {
    for metric in names::ALL {
        assert!(metric.name.starts_with("windlass_"), "{}", metric.name);
        assert!(metric.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", metric.name);
        assert_eq!(metric.kind == MetricType::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        assert_eq!(metric.kind == MetricType::Histogram, metric.name.ends_with("_seconds"), "{}", metric.name);
        assert!(!metric.help.ends_with('.') && !metric.help.is_empty(), "{}", metric.name);
    }
}
