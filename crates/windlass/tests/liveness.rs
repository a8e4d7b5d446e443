//! What a worker does when its store is away, slow, deaf or unwilling, and when it is told to go.
//!
//! Time is tokio's, which stands still and jumps to the next thing that is waited for: what takes a minute here takes
//! no time at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use support::{LONG, Running, Task, faulty, memory, state, stored};
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass::core::job::State as JobState;
use windlass::core::store::{Change, ChangeOp};
use windlass::{Error, JobError, State, Waited, Worker};
use windlass_conformance::faults::{Fault, Method};

async fn double(job: Task) -> Result<u32, JobError> {
    Ok(job.n * 2)
}

#[expect(clippy::disallowed_methods, reason = "tokio's clock, which the test moves")]
fn now() -> Instant {
    Instant::now()
}

/// Lets `time` pass.
async fn pass(time: Duration) {
    // sleeps because: on a paused clock this is how time passes
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_claims_again_within_five_seconds_of_the_stores_return() {
    let (store, client) = memory();
    let away = Arc::new(AtomicBool::new(true));
    let is_away = Arc::clone(&away);
    let seen = faulty(&store, move |_| if is_away.load(Ordering::SeqCst) { Fault::Before } else { Fault::Pass });
    let worker = Running::start(Worker::builder(seen).without_maintenance().handle(double));
    // Many lengths of the outage, so that every point of the back-off is met.
    for outage in [1, 10, 61, 180] {
        away.store(true, Ordering::SeqCst);
        let ticket = client.enqueue(Task { n: 21 }).await.unwrap();
        pass(Duration::from_secs(outage)).await;
        assert!(!worker.health.is_ready() || outage < 10, "a worker without a store says so");
        away.store(false, Ordering::SeqCst);
        let back = now();
        assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(42));
        let took = now() - back;
        assert!(took < Duration::from_secs(5), "{took:?} after {outage} s");
        assert!(worker.health.is_ready());
    }
    worker.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_delays_by_no_more_than_the_poll() {
    let (store, client) = memory();
    let deaf = faulty(&store, |method| if method == Method::Wait { Fault::Hang } else { Fault::Pass });
    let worker = Running::start(Worker::builder(deaf).without_maintenance().handle(double));
    for _ in 0..5 {
        let ticket = client.enqueue(Task { n: 1 }).await.unwrap();
        let begin = now();
        assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(2));
        assert!(now() - begin <= Duration::from_millis(1_100), "{:?}", now() - begin);
    }
    worker.drain().await;
}

/// The store's clock does not jump: what counts is when the worker asks.
#[tokio::test(start_paused = true)]
async fn who_puts_a_job_off_asks_at_once_when_it_is_due() {
    async fn fails(_: Task) -> Result<u32, JobError> {
        Err(JobError::new("not yet").retry_after(Duration::from_millis(50)))
    }
    let (store, client) = memory();
    let (called, mut calls) = mpsc::unbounded_channel();
    let seen = faulty(&store, move |method| {
        let _ = called.send((method, now()));
        Fault::Pass
    });
    let worker = Running::start(Worker::builder(seen).without_maintenance().handle(fails));
    pass(Duration::from_millis(100)).await;
    client.enqueue(Task { n: 7 }).await.unwrap();
    pass(Duration::from_millis(100)).await;
    let mut all = Vec::new();
    while let Ok(call) = calls.try_recv() {
        all.push(call);
    }
    let reports = |method: &Method| matches!(method, Method::Report | Method::ReportAndClaim);
    let at = all.iter().position(|(method, _)| reports(method)).expect("it failed");
    let asks = |(method, _): &&(Method, Instant)| matches!(method, Method::Claim | Method::ReportAndClaim);
    let asked = all[at..].iter().find(asks).expect("it asked").1;
    assert_eq!(asked - all[at].1, Duration::ZERO, "{all:?}");
    worker.drain().await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_whose_answer_was_lost_is_reported_again_and_counts_once() {
    let (store, client) = memory();
    let lost = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lost);
    let seen = faulty(&store, move |method| {
        let reports = matches!(method, Method::Report | Method::ReportAndClaim | Method::Claim);
        if reports && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) { Fault::Lost } else { Fault::Pass }
    });
    static RAN: AtomicUsize = AtomicUsize::new(0);
    async fn count_me(job: Task) -> Result<u32, JobError> {
        RAN.fetch_add(1, Ordering::SeqCst);
        Ok(job.n)
    }
    let worker = Running::start(Worker::builder(seen).without_maintenance().handle(count_me));
    let tickets = client.enqueue_all((0..50).map(|n| Task { n })).await.unwrap();
    for (n, ticket) in (0..).zip(tickets) {
        assert_eq!(ticket.unwrap().wait(LONG).await.unwrap(), Waited::Succeeded(n));
    }
    worker.drain().await;
    assert!(lost.load(Ordering::SeqCst) > 4, "answers were lost");
    assert_eq!(RAN.load(Ordering::SeqCst), 50, "no job ran twice");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_for_good_is_taken_apart() {
    let (store, client) = memory();
    // The store refuses every report of more than one outcome, and every claim that comes with one: as one would that
    // cannot stand something in it.
    let refused = Error::Invalid { field: "outcome".to_owned(), reason: "is not to my taste".to_owned() };
    let seen = faulty(&store, move |method| match method {
        Method::ReportAndClaim => Fault::Refused(refused.clone()),
        _ => Fault::Pass,
    });
    let worker = Running::start(Worker::builder(seen).slots(4).without_maintenance().handle(double));
    let tickets = client.enqueue_all((0..20).map(|n| Task { n })).await.unwrap();
    for (n, ticket) in (0..).zip(tickets) {
        assert_eq!(ticket.unwrap().wait(LONG).await.unwrap(), Waited::Succeeded(n * 2));
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_no_store_takes_is_given_up_and_the_worker_goes_on() {
    async fn cannot(_job: Task, ctx: windlass::Ctx) -> Result<u32, JobError> {
        if stored(ctx.client().store(), ctx.id()).await.stall_count == 0 { Err(JobError::new("no")) } else { Ok(1) }
    }
    let (store, client) = memory();
    let refuse = Arc::new(AtomicBool::new(true));
    let refuses = Arc::clone(&refuse);
    let seen = faulty(&store, move |method| {
        let reports = matches!(method, Method::Report | Method::ReportAndClaim);
        let error = Error::Corrupt { what: "the counters".to_owned() };
        if reports && refuses.swap(false, Ordering::SeqCst) { Fault::Refused(error) } else { Fault::Pass }
    });
    // A lease that runs out soon, and that a busy machine does not lose while the job is reported.
    let lease = Duration::from_millis(700);
    let worker = Running::start(Worker::builder(seen).lease(lease).handle(cannot));
    let ticket = client.enqueue(Task { n: 2 }).await.unwrap();
    // Its lease runs out, it is reaped and delivered again.
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(1));
    assert!(stored(&store, ticket.id()).await.stall_count > 0);
    worker.drain().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_once_the_drain_has_begun() {
    let (store, client) = memory();
    let claims = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&claims);
    let seen = faulty(&store, move |method| {
        if matches!(method, Method::Claim | Method::ReportAndClaim) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Fault::Pass
    });
    let (started, mut starts) = mpsc::unbounded_channel::<u32>();
    async fn slow(job: Task, started: State<mpsc::UnboundedSender<u32>>) -> Result<u32, JobError> {
        started.send(job.n).unwrap();
        pass(Duration::from_secs(5)).await;
        Ok(job.n)
    }
    let tickets = client.enqueue_all((0..10).map(|n| Task { n })).await.unwrap();
    let ids: Vec<_> = tickets.into_iter().map(|ticket| ticket.unwrap().id()).collect();
    let worker = Running::start(Worker::builder(seen).slots(3).without_maintenance().state(started).handle(slow));
    for _ in 0..3 {
        starts.recv().await.unwrap();
    }
    worker.stopper.drain();
    tokio::task::yield_now().await;
    let before = claims.load(Ordering::SeqCst);
    let health = worker.health.clone();
    worker.ended().await;
    assert!(!health.is_ready());
    assert_eq!(claims.load(Ordering::SeqCst), before);
    let mut ended = 0;
    for id in ids {
        let job = stored(&store, id).await;
        match job.state {
            JobState::Succeeded => ended += 1,
            state => assert_eq!((state, job.attempt, job.lease), (JobState::Ready, 0, None), "given back as it was"),
        }
    }
    assert_eq!(ended, 3, "what was started was finished");
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_store_never_returns_ends_all_the_same() {
    let (store, client) = memory();
    let away = Arc::new(AtomicBool::new(false));
    let is_away = Arc::clone(&away);
    let seen = faulty(&store, move |_| if is_away.load(Ordering::SeqCst) { Fault::Before } else { Fault::Pass });
    let (started, mut starts) = mpsc::unbounded_channel::<()>();
    async fn tell(job: Task, started: State<mpsc::UnboundedSender<()>>) -> Result<u32, JobError> {
        started.send(()).unwrap();
        pass(Duration::from_secs(1)).await;
        Ok(job.n)
    }
    client.enqueue(Task { n: 1 }).await.unwrap();
    let drain_time = Duration::from_secs(10);
    let builder = Worker::builder(seen).without_maintenance().drain_time(drain_time).state(started).handle(tell);
    let worker = Running::start(builder);
    starts.recv().await.unwrap();
    away.store(true, Ordering::SeqCst);
    let begin = now();
    worker.drain().await;
    let took = now() - begin;
    // A second to let go, four for the store, and up to eight for the keeper, whose thread lives by another clock.
    assert!(took > drain_time && took < drain_time + Duration::from_secs(14), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_handler_that_blocks_its_thread_for_good_does_not_keep_the_worker() {
    let (store, client) = memory();
    let (started, mut starts) = mpsc::unbounded_channel::<()>();
    let (free, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(parking_lot::Mutex::new(wait));
    type Wait = Arc<parking_lot::Mutex<std::sync::mpsc::Receiver<()>>>;
    async fn block(_job: Task, started: State<mpsc::UnboundedSender<()>>, wait: State<Wait>) -> Result<u32, JobError> {
        started.send(()).unwrap();
        wait.lock().recv().unwrap();
        Ok(1)
    }
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).state(started).state(wait).handle(block));
    starts.recv().await.unwrap();
    worker.stopper.stop_now();
    let health = worker.health.clone();
    worker.ended().await;
    assert_eq!(health.stuck(), 1);
    let job = stored(&store, ticket.id()).await;
    assert_eq!((job.state, job.attempt), (JobState::Ready, 1), "given back, its attempt spent");
    free.send(()).unwrap();
    assert_eq!(state(&store, ticket.id()).await, JobState::Ready, "what it came to is not wanted any more");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_as_the_drain_began_is_given_back() {
    let (store, client) = memory();
    let lose = Arc::new(AtomicBool::new(true));
    let loses = Arc::clone(&lose);
    let (lost, mut losses) = mpsc::unbounded_channel::<()>();
    let seen = faulty(&store, move |method| {
        if method == Method::Claim && loses.swap(false, Ordering::SeqCst) {
            lost.send(()).unwrap();
            return Fault::Lost;
        }
        Fault::Pass
    });
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    let worker = Running::start(Worker::builder(seen).without_maintenance().handle(double));
    losses.recv().await.unwrap();
    worker.drain().await;
    let job = stored(&store, ticket.id()).await;
    assert_eq!((job.state, job.attempt), (JobState::Ready, 0), "it does not wait for its lease to run out");
}

/// That a repeated claim was not applied says nothing of the first one.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_and_then_failed_for_certain_is_given_back() {
    let (store, client) = memory();
    let (claims, away) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (count, is_away) = (Arc::clone(&claims), Arc::clone(&away));
    let seen = faulty(&store, move |method| match method {
        Method::Claim | Method::ReportAndClaim if is_away.load(Ordering::SeqCst) => {
            if count.fetch_add(1, Ordering::SeqCst) == 0 { Fault::Lost } else { Fault::Before }
        }
        _ => Fault::Pass,
    });
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    let worker = Running::start(Worker::builder(seen).without_runs().without_maintenance().handle(double));
    while claims.load(Ordering::SeqCst) < 3 {
        pass(Duration::from_millis(1)).await;
    }
    worker.stopper.drain();
    away.store(false, Ordering::SeqCst);
    worker.ended().await;
    let job = stored(&store, ticket.id()).await;
    assert_eq!((job.state, job.attempt), (JobState::Ready, 0), "it does not wait for its lease to run out");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_stops_the_handler_and_its_outcome_is_refused() {
    let (store, client) = memory();
    let (told, mut stops) = mpsc::unbounded_channel::<u32>();
    async fn until_told(
        _job: Task,
        ctx: windlass::Ctx,
        told: State<mpsc::UnboundedSender<u32>>,
    ) -> Result<u32, JobError> {
        ctx.stopped().await;
        told.send(ctx.attempt()).unwrap();
        Ok(7)
    }
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    let lease = Duration::from_millis(300);
    let worker = Running::start(Worker::builder(Arc::clone(&store)).lease(lease).state(told).handle(until_told));
    while state(&store, ticket.id()).await != JobState::Active {
        tokio::task::yield_now().await;
    }
    // Nothing takes a lease away so surely as the end of its job.
    store.change(vec![Change { id: ticket.id(), op: ChangeOp::Remove }]).await.unwrap().remove(0).unwrap_err();
    store
        .change_many(windlass::core::store::ChangeMany {
            op: windlass::core::store::ChangeManyOp::Obliterate { force: true },
            filter: windlass::core::store::Filter { queue: Some("default".try_into().unwrap()), ..Default::default() },
            max: 10,
            cursor: None,
        })
        .await
        .unwrap();
    assert_eq!(stops.recv().await, Some(1));
    worker.drain().await;
    assert_eq!(store.get(vec![ticket.id()]).await.unwrap(), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_keeps_its_id_claims_after_a_restart() {
    let (store, client) = memory();
    for n in 0..3 {
        let ticket = client.enqueue(Task { n }).await.unwrap();
        let worker = Worker::builder(Arc::clone(&store)).id("worker-0").without_maintenance();
        let worker = Running::start(worker.handle(double));
        assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(n * 2));
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_store_that_never_answers_does_not_keep_the_worker() {
    let (store, client) = memory();
    let hung = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&hung);
    let seen = faulty(&store, move |_| if hangs.load(Ordering::SeqCst) { Fault::Hang } else { Fault::Pass });
    let (started, mut starts) = mpsc::unbounded_channel::<()>();
    async fn tell(job: Task, started: State<mpsc::UnboundedSender<()>>) -> Result<u32, JobError> {
        started.send(()).unwrap();
        Ok(job.n)
    }
    client.enqueue(Task { n: 1 }).await.unwrap();
    hung.store(false, Ordering::SeqCst);
    let worker =
        Running::start(Worker::builder(seen).drain_time(Duration::from_millis(10)).state(started).handle(tell));
    starts.recv().await.unwrap();
    hung.store(true, Ordering::SeqCst);
    worker.stopper.stop_now();
    tokio::time::timeout(LONG, worker.ended()).await.expect("it ends without an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_cannot_renew_its_leases_any_more_ends_and_says_so() {
    let (store, client) = memory();
    let bad = faulty(&store, |method| match method {
        Method::Heartbeat => panic!("the keeper's thread ends here"),
        _ => Fault::Pass,
    });
    async fn hang(_job: Task, ctx: windlass::Ctx) -> Result<u32, JobError> {
        ctx.stopped().await;
        Ok(1)
    }
    client.enqueue(Task { n: 1 }).await.unwrap();
    let worker = Worker::builder(bad).handle(hang).build().unwrap();
    let ended = tokio::time::timeout(LONG, worker.run_until_stopped()).await.expect("it ends");
    assert!(ended.unwrap_err().to_string().contains("renews the leases"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_delays_a_busy_worker_no_longer_than_an_idle_one() {
    let (store, client) = memory();
    let deaf = faulty(&store, |method| if method == Method::Wait { Fault::Hang } else { Fault::Pass });
    /// Runs for as long as it is told to.
    async fn busy(job: Task, ctx: windlass::Ctx) -> Result<u32, JobError> {
        pass(Duration::from_millis(u64::from(job.n))).await;
        assert_eq!(ctx.attempt(), 1);
        Ok(job.n)
    }
    // Ends come every 100 ms for 20 s; each is an event for the worker.
    client.enqueue_all((1..200).map(|n| Task { n: n * 100 })).await.unwrap();
    let worker = Running::start(Worker::builder(deaf).slots(500).without_maintenance().handle(busy));
    pass(Duration::from_millis(2_050)).await;
    let (begin, late) = (now(), client.enqueue(Task { n: 0 }).await.unwrap());
    while state(&store, late.id()).await != JobState::Succeeded {
        pass(Duration::from_millis(10)).await;
    }
    assert!(now() - begin <= Duration::from_millis(1_200), "{:?}", now() - begin);
    worker.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_applied_is_not_repeated_once_the_drain_has_begun() {
    let (store, client) = memory();
    let claims = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&claims);
    let seen = faulty(&store, move |method| {
        if method == Method::Claim {
            count.fetch_add(1, Ordering::SeqCst);
            return Fault::Before;
        }
        Fault::Pass
    });
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    let worker = Running::start(Worker::builder(seen).without_maintenance().handle(double));
    while claims.load(Ordering::SeqCst) < 3 {
        pass(Duration::from_millis(1)).await;
    }
    let before = claims.load(Ordering::SeqCst);
    worker.drain().await;
    assert_eq!(claims.load(Ordering::SeqCst), before);
    assert_eq!(state(&store, ticket.id()).await, JobState::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_job_came_back_to_its_own_worker_is_told() {
    let (store, client) = memory();
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = Arc::clone(&cut);
    // Renewals do not get through for a while, as after a freeze.
    let seen = faulty(&store, move |method| {
        let renews = matches!(method, Method::Renew | Method::Heartbeat);
        if renews && is_cut.load(Ordering::SeqCst) { Fault::Before } else { Fault::Pass }
    });
    let (told, mut tells) = mpsc::unbounded_channel::<&'static str>();
    async fn until_told(
        _job: Task,
        ctx: windlass::Ctx,
        told: State<mpsc::UnboundedSender<&'static str>>,
    ) -> Result<u32, JobError> {
        told.send("started").unwrap();
        ctx.stopped().await;
        told.send("stopped").unwrap();
        Ok(7)
    }
    cut.store(true, Ordering::SeqCst);
    client.enqueue(Task { n: 0 }).await.unwrap();
    let lease = Duration::from_millis(100);
    let worker = Running::start(Worker::builder(seen).lease(lease).state(told).handle(until_told));
    for word in ["started", "stopped"] {
        let heard = tokio::time::timeout(LONG, async {
            loop {
                if tells.recv().await.unwrap() == word {
                    return;
                }
            }
        });
        heard.await.unwrap_or_else(|_| panic!("never {word}"));
    }
    cut.store(false, Ordering::SeqCst);
    worker.stopper.stop_now();
    worker.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_jobs_do_not_wait_beside_an_idle_worker() {
    let (store, client) = memory();
    let (started, mut starts) = mpsc::unbounded_channel::<u32>();
    async fn hang(job: Task, ctx: windlass::Ctx, started: State<mpsc::UnboundedSender<u32>>) -> Result<u32, JobError> {
        if job.n > 0 {
            started.send(job.n).unwrap();
            ctx.stopped().await;
        }
        Ok(job.n)
    }
    let worker = || Worker::builder(Arc::clone(&store)).slots(2).state(started.clone()).handle(hang);
    // It has only seen short jobs, and claims ahead.
    let first = Running::start(worker());
    client.enqueue(Task { n: 0 }).await.unwrap().wait(LONG).await.unwrap();
    client.enqueue_all((1..=4).map(|n| Task { n })).await.unwrap();
    for _ in 0..2 {
        starts.recv().await.unwrap();
    }
    let second = Running::start(worker());
    for _ in 0..2 {
        let started = tokio::time::timeout(LONG, starts.recv()).await;
        started.expect("what the first one cannot start, the second does").unwrap();
    }
    for worker in [first, second] {
        worker.stopper.stop_now();
        worker.ended().await;
    }
}
