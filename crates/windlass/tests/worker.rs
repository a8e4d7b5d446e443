//! Workers over a real store: what handlers see, and what becomes of their jobs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{LONG, Running, Task, memory, state, stored};
use tokio::sync::{Notify, mpsc};
use windlass::core::id::JobId;
use windlass::core::job::{FailureClass, State as JobState};
use windlass::core::store::{Change, ChangeOp, LogRequest};
use windlass::{Ctx, Job, JobError, Options, State, Waited, Worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_and_hand_back_what_they_returned() {
    let (store, client) = memory();
    async fn double(job: Task) -> Result<u32, JobError> {
        Ok(job.n * 2)
    }
    let tickets = client.enqueue_all((0..1_000).map(|n| Task { n })).await.unwrap();
    let worker = Running::start(Worker::builder(store).slots(64).handle(double));
    for (n, ticket) in (0..).zip(tickets) {
        assert_eq!(ticket.unwrap().wait(LONG).await.unwrap(), Waited::Succeeded(n * 2));
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_tried_again_and_a_fatal_one_is_not() {
    let (store, client) = memory();
    async fn sometimes(job: Task, ctx: Ctx) -> Result<u32, JobError> {
        match job.n {
            0 => Err(JobError::fatal("no such thing")),
            1 if ctx.attempt() < 3 => Err(JobError::new("not yet").retry_after(Duration::from_millis(1))),
            2 => panic!("all is lost on attempt {}", ctx.attempt()),
            _ => Ok(ctx.attempt()),
        }
    }
    let worker = Running::start(Worker::builder(Arc::clone(&store)).handle(sometimes));
    let wait = async |n| client.enqueue(Task { n }).await.unwrap().wait(LONG).await.unwrap();
    let Waited::Failed(Some(failure)) = wait(0).await else { panic!("it failed") };
    assert_eq!((failure.message.as_str(), failure.attempt), ("no such thing", 1));
    assert_eq!(wait(1).await, Waited::Succeeded(3));
    let Waited::Failed(Some(failure)) = wait(2).await else { panic!("it failed") };
    assert_eq!(failure.class, FailureClass::Panic);
    assert_eq!((failure.message.as_str(), failure.attempt), ("all is lost on attempt 3", 3));
    assert_eq!(wait(3).await, Waited::Succeeded(1), "the worker lives");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_takes_too_long_ends_and_leaves_the_others_alone() {
    let (store, client) = memory();
    async fn hang(job: Task) -> Result<u32, JobError> {
        if job.n == 0 {
            std::future::pending::<()>().await;
        }
        Ok(job.n)
    }
    let worker = Running::start(Worker::builder(store).handle(hang));
    let limited = Options::new().timeout(Duration::from_millis(30)).attempts(2);
    let hung = client.enqueue_with(Task { n: 0 }, limited).await.unwrap();
    let other = client.enqueue(Task { n: 1 }).await.unwrap();
    assert_eq!(other.wait(LONG).await.unwrap(), Waited::Succeeded(1));
    let Waited::Failed(Some(failure)) = hung.wait(LONG).await.unwrap() else { panic!("it timed out") };
    assert_eq!((failure.class, failure.attempt), (FailureClass::Timeout, 2));
    worker.drain().await;
}

/// Tells of each attempt; the number says how it behaves.
async fn silent(job: Task, ctx: Ctx, begun: State<mpsc::UnboundedSender<u32>>) -> Result<u32, JobError> {
    begun.send(ctx.attempt()).unwrap();
    for beat in 0..10 {
        match job.n {
            0 => {}
            1 => ctx.heartbeat(),
            _ => ctx.progress(beat, "on its way"),
        }
        tokio::time::sleep(Duration::from_secs(6)).await; // sleeps because: the clock is paused
    }
    Ok(job.n)
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_heartbeats_ends_and_is_tried_again() {
    let (store, client) = memory();
    let (begun, mut attempts) = mpsc::unbounded_channel::<u32>();
    let worker = Running::start(Worker::builder(store).without_runs().state(begun).handle(silent));
    let options = || Options::new().heartbeat(Duration::from_secs(10)).attempts(2);
    let run = async |n| client.enqueue_with(Task { n }, options()).await.unwrap().wait(LONG).await.unwrap();
    let Waited::Failed(Some(failure)) = run(0).await else { panic!("it is silent") };
    assert_eq!((failure.class, failure.attempt), (FailureClass::Timeout, 2));
    assert_eq!(failure.message, "no heartbeat and no progress for 10000 ms");
    assert_eq!(run(1).await, Waited::Succeeded(1));
    assert_eq!(run(2).await, Waited::Succeeded(2), "progress is a heartbeat");
    let of_others = client.enqueue_with(Task { n: 0 }, Options::new()).await.unwrap();
    assert_eq!(of_others.wait(LONG).await.unwrap(), Waited::Succeeded(0), "without the option silence is no failure");
    worker.drain().await;
    let attempts: Vec<u32> = std::iter::from_fn(|| attempts.try_recv().ok()).collect();
    assert_eq!(attempts, [1, 2, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_is_told_and_ends_as_cancelled() {
    let (store, client) = memory();
    let (started, mut starts) = mpsc::unbounded_channel::<()>();
    async fn until_stopped(_job: Task, ctx: Ctx, started: State<mpsc::UnboundedSender<()>>) -> Result<u32, JobError> {
        started.send(()).unwrap();
        ctx.stopped().await;
        assert!(ctx.is_stopped());
        Ok(1)
    }
    let worker = Running::start(Worker::builder(Arc::clone(&store)).state(started).handle(until_stopped));
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    starts.recv().await.unwrap();
    store.change(vec![Change { id: ticket.id(), op: ChangeOp::Cancel }]).await.unwrap().remove(0).unwrap();
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Cancelled);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_finishes_what_was_started_and_gives_back_the_rest() {
    let (store, client) = memory();
    let (started, mut starts) = mpsc::unbounded_channel::<u32>();
    let go = Arc::new(Notify::new());
    async fn gated(
        job: Task,
        started: State<mpsc::UnboundedSender<u32>>,
        go: State<Arc<Notify>>,
    ) -> Result<u32, JobError> {
        if job.n < 9 {
            started.send(job.n).unwrap();
            go.notified().await;
        }
        Ok(job.n)
    }
    let builder = Worker::builder(Arc::clone(&store)).slots(2).state(started).state(Arc::clone(&go)).handle(gated);
    let worker = Running::start(builder);
    // A short one first, so that the worker claims ahead.
    client.enqueue(Task { n: 9 }).await.unwrap().wait(LONG).await.unwrap();
    let tickets = client.enqueue_all((0..6).map(|n| Task { n })).await.unwrap();
    let ids: Vec<JobId> = tickets.into_iter().map(|ticket| ticket.unwrap().id()).collect();
    let mut first = [starts.recv().await.unwrap(), starts.recv().await.unwrap()];
    first.sort_unstable();
    assert_eq!(first, [0, 1]);
    worker.stopper.drain();
    // What was claimed ahead is back at once, with its attempt, while the started ones still run.
    tokio::time::timeout(LONG, async {
        while store.queues().await.unwrap()[0].counts.ready != 4 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("they are given back");
    go.notify_one();
    go.notify_one();
    worker.drain().await;
    assert_eq!(state(&store, ids[0]).await, JobState::Succeeded);
    assert_eq!(state(&store, ids[1]).await, JobState::Succeeded);
    let back = store.get(ids[2..].to_vec()).await.unwrap();
    assert!(back.iter().all(|job| job.as_ref().is_some_and(|job| job.state == JobState::Ready && job.attempt == 0)));
    assert!(store.workers().await.unwrap().is_empty(), "it has said goodbye");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_stop_in_time_is_given_back_with_its_attempt_spent() {
    let (store, client) = memory();
    let (started, mut starts) = mpsc::unbounded_channel::<()>();
    async fn stubborn(_job: Task, started: State<mpsc::UnboundedSender<()>>) -> Result<u32, JobError> {
        started.send(()).unwrap();
        std::future::pending().await
    }
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    let drain_time = Duration::from_millis(20);
    let builder = Worker::builder(Arc::clone(&store)).drain_time(drain_time).state(started).handle(stubborn);
    let worker = Running::start(builder);
    starts.recv().await.unwrap();
    worker.drain().await;
    let job = store.get(vec![ticket.id()]).await.unwrap().remove(0).unwrap();
    assert_eq!((job.state, job.attempt), (JobState::Ready, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_handlers_that_block_their_threads_lose_no_lease() {
    let (store, client) = memory();
    type Gate = Arc<(parking_lot::Mutex<bool>, parking_lot::Condvar)>;
    async fn block(job: Task, ctx: Ctx, State(gate): State<Gate>) -> Result<u32, JobError> {
        // Blocks its thread until the test opens the gate.
        gate.1.wait_while(&mut gate.0.lock(), |open| !*open);
        assert!(!ctx.is_stopped());
        Ok(job.n + ctx.attempt())
    }
    // Long enough that a busy machine does not lose it by itself.
    let lease = Duration::from_millis(2_000);
    let gate = Gate::default();
    let tickets: Vec<_> =
        client.enqueue_all((0..4).map(|n| Task { n })).await.unwrap().into_iter().map(Result::unwrap).collect();
    let builder = Worker::builder(Arc::clone(&store)).slots(4).lease(lease).state(Arc::clone(&gate)).handle(block);
    let worker = Running::start(builder);
    // Every lease is renewed until it reaches beyond the end of a second one.
    for ticket in &tickets {
        let expires_at = async || stored(&store, ticket.id()).await.lease.map(|lease| lease.expires_at);
        let first = loop {
            match expires_at().await {
                Some(first) => break first,
                None => tokio::task::yield_now().await,
            }
        };
        while expires_at().await.expect("the lease is kept") < first.plus_ms(2_000) {
            tokio::task::yield_now().await;
        }
    }
    *gate.0.lock() = true;
    gate.1.notify_all();
    for (n, ticket) in (0..).zip(tickets) {
        assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(n + 1), "on the first attempt");
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_takes_no_more_slots_than_it_may() {
    #[derive(Serialize, Deserialize)]
    struct Counted;
    impl Job for Counted {
        const KIND: &'static str = "counted";
        type Output = usize;
    }
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    async fn heavy(_job: Counted) -> Result<usize, JobError> {
        let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
        // sleeps because: those that run at once have to overlap
        tokio::time::sleep(Duration::from_millis(2)).await;
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        Ok(running)
    }
    async fn light(job: Task) -> Result<u32, JobError> {
        Ok(job.n)
    }
    let (store, client) = memory();
    let heavies = client.enqueue_all((0..40).map(|_| Counted)).await.unwrap();
    let lights = client.enqueue_all((0..40).map(|n| Task { n })).await.unwrap();
    let worker = Running::start(Worker::builder(store).slots(8).handle(heavy).at_most(2).handle(light));
    for ticket in lights {
        assert!(ticket.unwrap().wait(LONG).await.unwrap().success().is_some());
    }
    for ticket in heavies {
        assert!(ticket.unwrap().wait(LONG).await.unwrap().success().unwrap() <= 2);
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_lines_and_outputs_reach_the_store() {
    async fn tell(_job: Task, ctx: Ctx) -> Result<u32, JobError> {
        ctx.log("one");
        ctx.log("two");
        ctx.output("answer", "42");
        ctx.progress(50, "half");
        // It is passed on while the handler runs.
        while ctx.client().store().get(vec![ctx.id()]).await?[0].as_ref().is_none_or(|job| job.progress.is_none()) {
            tokio::task::yield_now().await;
        }
        Ok(7)
    }
    let (store, client) = memory();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).handle(tell));
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(7));
    let job = store.get(vec![ticket.id()]).await.unwrap().remove(0).unwrap();
    assert_eq!(job.outputs.get("answer").map(String::as_str), Some("42"));
    assert_eq!(job.progress.map(|progress| progress.percent), Some(50));
    let page = store.read_logs(LogRequest { job: ticket.id(), from: 0, limit: 10 }).await.unwrap();
    let lines: Vec<_> = page.lines.iter().map(|(_, line)| String::from_utf8_lossy(&line.text).into_owned()).collect();
    assert_eq!(lines, ["one", "two"]);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_says_when_there_is_nothing_to_wait_for() {
    let (store, client) = memory();
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    assert_eq!(ticket.wait(Duration::from_millis(10)).await.unwrap(), Waited::TimedOut);
    let removal = async {
        tokio::task::yield_now().await;
        store.change(vec![Change { id: ticket.id(), op: ChangeOp::Remove }]).await.unwrap();
    };
    let (waited, ()) = tokio::join!(ticket.wait(LONG), removal);
    assert_eq!(waited.unwrap(), Waited::Gone);
}

#[derive(Serialize, Deserialize)]
struct Heavy;

impl Job for Heavy {
    const KIND: &'static str = "heavy";
    type Output = ();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_at_its_limit_keeps_no_other_kind_from_running() {
    let (store, client) = memory();
    async fn hang(_job: Heavy, ctx: Ctx) -> Result<(), JobError> {
        ctx.stopped().await;
        Ok(())
    }
    async fn light(job: Task) -> Result<u32, JobError> {
        Ok(job.n)
    }
    let heavies = client.enqueue_all((0..100).map(|_| Heavy)).await.unwrap();
    let lights = client.enqueue_all((0..40).map(|n| Task { n })).await.unwrap();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).slots(8).handle(hang).at_most(1).handle(light));
    for ticket in lights {
        assert!(ticket.unwrap().wait(LONG).await.unwrap().success().is_some(), "while the heavy one hangs");
    }
    let held = heavies.iter().map(|ticket| ticket.as_ref().unwrap().id()).collect::<Vec<_>>();
    let held = store.get(held).await.unwrap().into_iter().flatten().filter(|job| job.state == JobState::Active).count();
    assert!((1..=2).contains(&held), "{held} are held of a kind that may run once");
    worker.stopper.stop_now();
    worker.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_cancelled_before_its_turn_is_never_begun() {
    let (store, client) = memory();
    let (started, mut starts) = mpsc::unbounded_channel::<u32>();
    let go = Arc::new(Notify::new());
    async fn gated(
        job: Task,
        started: State<mpsc::UnboundedSender<u32>>,
        go: State<Arc<Notify>>,
    ) -> Result<u32, JobError> {
        if job.n < 9 {
            started.send(job.n).unwrap();
            go.notified().await;
        }
        Ok(job.n)
    }
    let builder = Worker::builder(Arc::clone(&store)).slots(1).lease(Duration::from_millis(1_500));
    let worker = Running::start(builder.state(started).state(Arc::clone(&go)).handle(gated));
    // A short one first, so that the worker claims ahead.
    client.enqueue(Task { n: 9 }).await.unwrap().wait(LONG).await.unwrap();
    let tickets = client.enqueue_all((0..2).map(|n| Task { n })).await.unwrap();
    let second = tickets[1].as_ref().unwrap().id();
    assert_eq!(starts.recv().await, Some(0));
    while state(&store, second).await != JobState::Active {
        tokio::task::yield_now().await;
    }
    client.cancel(second).await.unwrap();
    // The keeper has looked when the lease was renewed, or when the job is given back already.
    let lease = async || stored(&store, second).await.lease.map(|lease| lease.expires_at);
    let before = lease().await;
    while before.is_some() && lease().await == before {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    assert_eq!(client.wait::<u32>(second, LONG).await.unwrap(), Waited::Cancelled);
    worker.drain().await;
    assert_eq!(starts.try_recv().ok(), None, "its handler was never called");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_handler_that_does_not_stop_is_stopped() {
    let (store, client) = memory();
    let (started, mut starts) = mpsc::unbounded_channel::<()>();
    async fn stubborn(_job: Task, started: State<mpsc::UnboundedSender<()>>) -> Result<u32, JobError> {
        started.send(()).unwrap();
        std::future::pending().await
    }
    let builder = Worker::builder(Arc::clone(&store)).cancel_grace(Duration::from_millis(10));
    let worker = Running::start(builder.state(started).handle(stubborn));
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    starts.recv().await.unwrap();
    client.cancel(ticket.id()).await.unwrap();
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Cancelled);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_may_say_how_long_to_wait_and_a_bad_word_of_it_hurts_nobody() {
    use windlass::core::retry::RetryPolicy;
    let (store, client) = memory();
    async fn fail(job: Task, ctx: Ctx) -> Result<u32, JobError> {
        match (job.n, ctx.attempt()) {
            // Longer than any store keeps a job.
            (9, 1) => Err(JobError::new("much later").retry_after(Duration::MAX)),
            (_, 1) => Err(JobError::new(job.n)),
            (_, attempt) => Ok(attempt),
        }
    }
    let backoff = |attempt, error: &JobError| {
        assert_eq!(attempt, 1);
        match error.to_string().as_str() {
            "0" => Some(Duration::from_millis(1)),
            "1" => None,
            _ => panic!("no idea"),
        }
    };
    let worker = Running::start(Worker::builder(Arc::clone(&store)).handle(fail).backoff(backoff));
    let by_kind = || Options::new().retry(RetryPolicy::ByKind);
    let wait = async |n| client.enqueue_with(Task { n }, by_kind()).await.unwrap().wait(LONG).await.unwrap();
    assert_eq!(wait(0).await, Waited::Succeeded(2));
    assert!(matches!(wait(1).await, Waited::Failed(Some(failure)) if failure.message == "1"));
    assert_eq!(wait(2).await, Waited::Succeeded(2), "a second later, as by default");
    let later = client.enqueue_with(Task { n: 9 }, by_kind()).await.unwrap();
    while state(&store, later.id()).await != JobState::Scheduled {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.get(later.id()).await.unwrap().unwrap().failures[0].message, "much later");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_handler_says_of_its_progress_reaches_the_store_and_costs_no_lease() {
    let (store, client) = memory();
    async fn talk(_job: Task, ctx: Ctx) -> Result<u32, JobError> {
        ctx.progress(200, "ü".repeat(4_000));
        Ok(1)
    }
    let worker = Running::start(Worker::builder(Arc::clone(&store)).handle(talk));
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(1));
    let progress = client.get(ticket.id()).await.unwrap().unwrap().progress.unwrap();
    assert_eq!((progress.percent, progress.message.len()), (100, 4_096));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_as_it_is_dropped_has_panicked() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("on the way out");
        }
    }
    async fn hang(_job: Task) -> Result<u32, JobError> {
        let _bad = Bad;
        std::future::pending().await
    }
    let (store, client) = memory();
    let worker = Running::start(Worker::builder(store).handle(hang));
    let options = Options::new().timeout(Duration::from_millis(10)).attempts(1);
    let ticket = client.enqueue_with(Task { n: 0 }, options).await.unwrap();
    let Waited::Failed(Some(failure)) = ticket.wait(LONG).await.unwrap() else { panic!("it failed") };
    assert_eq!((failure.class, failure.message.as_str()), (FailureClass::Panic, "on the way out"));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_full_is_ready() {
    let (store, client) = memory();
    let (started, mut starts) = mpsc::unbounded_channel::<()>();
    async fn hang(_job: Heavy, ctx: Ctx, started: State<mpsc::UnboundedSender<()>>) -> Result<(), JobError> {
        started.send(()).unwrap();
        ctx.stopped().await;
        Ok(())
    }
    client.enqueue_all((0..3).map(|_| Heavy)).await.unwrap();
    let worker = Running::start(Worker::builder(store).slots(8).state(started).handle(hang).at_most(1));
    starts.recv().await.unwrap();
    // Its one kind has no room, so it claims nothing more: what counts is that the store hears of it.
    while !worker.health.is_full() {
        tokio::task::yield_now().await;
    }
    assert!(worker.health.is_ready());
    worker.stopper.stop_now();
    worker.ended().await;
}
