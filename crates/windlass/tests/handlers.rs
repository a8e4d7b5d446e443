//! Handlers that take many jobs at once, handlers that block, and workers that cannot work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]
#![allow(clippy::needless_pass_by_value, reason = "handlers are given their arguments")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{LONG, Running, Task, memory, stored};
use tokio::sync::mpsc;
use windlass::core::job::{FailureClass, JobSpec, NewJob, State as JobState};
use windlass::core::payload::Payload;
use windlass::core::store::{EnqueueRequest, LogRequest};
use windlass::{Ctx, Item, JobError, Options, State, Waited, Worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_handler_gets_many_jobs_and_answers_for_each() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    async fn all(items: Vec<Item<Task>>) -> Result<Vec<Result<u32, JobError>>, JobError> {
        CALLS.fetch_add(1, Ordering::SeqCst);
        assert!(items.len() <= 25);
        let answer = |item: &Item<Task>| match item.job.n {
            13 => Err(JobError::fatal("unlucky")),
            n => Ok(n * 2),
        };
        Ok(items.iter().map(answer).collect())
    }
    let (store, client) = memory();
    let tickets = client.enqueue_all((0..200).map(|n| Task { n })).await.unwrap();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).slots(50).handle_batch(25, all));
    for (n, ticket) in (0..).zip(tickets) {
        let waited = ticket.unwrap().wait(LONG).await.unwrap();
        match n {
            13 => assert!(matches!(waited, Waited::Failed(Some(failure)) if failure.message == "unlucky")),
            n => assert_eq!(waited, Waited::Succeeded(n * 2)),
        }
    }
    worker.drain().await;
    let calls = CALLS.load(Ordering::SeqCst);
    assert!((8..100).contains(&calls), "{calls} calls for 200 jobs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_fails_panics_or_answers_too_little_fails_each_of_its_jobs() {
    async fn bad(items: Vec<Item<Task>>) -> Result<Vec<Result<u32, JobError>>, JobError> {
        match items[0].job.n {
            0 => Err(JobError::fatal("no")),
            1 => panic!("all is lost"),
            _ => Ok(Vec::new()),
        }
    }
    let (store, client) = memory();
    let worker = Running::start(Worker::builder(store).handle_batch(4, bad));
    for (n, class, words) in [
        (0, FailureClass::Error, "no"),
        (1, FailureClass::Panic, "all is lost"),
        (2, FailureClass::Error, "the handler gave 0 answers for 1 jobs"),
    ] {
        let ticket = client.enqueue_with(Task { n }, Options::new().attempts(1)).await.unwrap();
        let Waited::Failed(Some(failure)) = ticket.wait(LONG).await.unwrap() else { panic!("it failed") };
        assert_eq!((failure.class, failure.message.as_str()), (class, words));
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_cannot_be_read_fails_alone() {
    async fn all(items: Vec<Item<Task>>) -> Result<Vec<Result<u32, JobError>>, JobError> {
        Ok(items.iter().map(|item| Ok(item.job.n)).collect())
    }
    let (store, client) = memory();
    let good = client.enqueue(Task { n: 5 }).await.unwrap();
    let spec = JobSpec::new("default".try_into().unwrap(), "task".try_into().unwrap(), Payload::json(&"x").unwrap());
    let spec = JobSpec { attempts: 1, ..spec };
    let bad = NewJob::new(windlass::core::id::JobId::from_parts(0, 99), spec);
    store.enqueue(EnqueueRequest::new(vec![bad])).await.unwrap().remove(0).unwrap();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).handle_batch(4, all));
    assert_eq!(good.wait(LONG).await.unwrap(), Waited::Succeeded(5));
    let bad = client.wait::<u32>(windlass::core::id::JobId::from_parts(0, 99), LONG).await.unwrap();
    let Waited::Failed(Some(failure)) = bad else { panic!("it failed: {bad:?}") };
    assert!(failure.message.starts_with("its payload is not one that this worker can read"), "{}", failure.message);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn blocking_handlers_run_side_by_side_and_keep_nobody_from_running() {
    let together = Arc::new(std::sync::Barrier::new(3));
    fn meet(job: Task, ctx: Ctx, together: State<Arc<std::sync::Barrier>>) -> Result<u32, JobError> {
        if job.n == 9 {
            panic!("thread of its own");
        }
        ctx.log("waiting");
        together.wait();
        Ok(job.n)
    }
    let (store, client) = memory();
    let tickets = client.enqueue_all((0..3).map(|n| Task { n })).await.unwrap();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).slots(3).state(together).handle_blocking(meet));
    for (n, ticket) in (0..).zip(tickets) {
        assert_eq!(ticket.unwrap().wait(LONG).await.unwrap(), Waited::Succeeded(n));
    }
    let panics = client.enqueue_with(Task { n: 9 }, Options::new().attempts(1)).await.unwrap();
    let Waited::Failed(Some(failure)) = panics.wait(LONG).await.unwrap() else { panic!("it failed") };
    assert_eq!((failure.class, failure.message.as_str()), (FailureClass::Panic, "thread of its own"));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_handler_that_takes_too_long_times_out_and_is_told() {
    let (told, mut tells) = mpsc::unbounded_channel::<()>();
    fn until_stopped(_job: Task, ctx: Ctx, told: State<mpsc::UnboundedSender<()>>) -> Result<u32, JobError> {
        while !ctx.is_stopped() {
            std::thread::yield_now();
        }
        told.send(()).unwrap();
        Ok(1)
    }
    let (store, client) = memory();
    let worker = Running::start(Worker::builder(store).slots(1).state(told).handle_blocking(until_stopped));
    let options = Options::new().attempts(1).timeout(Duration::from_millis(20));
    let ticket = client.enqueue_with(Task { n: 0 }, options).await.unwrap();
    let Waited::Failed(Some(failure)) = ticket.wait(LONG).await.unwrap() else { panic!("it failed") };
    assert_eq!(failure.class, FailureClass::Timeout);
    assert_eq!(tells.recv().await, Some(()), "a handler whose job timed out is told to stop");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_goes_on_with_the_next_attempt() {
    async fn talk(_job: Task, ctx: Ctx) -> Result<u32, JobError> {
        ctx.log(format!("attempt {}", ctx.attempt()));
        ctx.log("more\nand more");
        if ctx.attempt() < 3 { Err(JobError::new("again")) } else { Ok(0) }
    }
    let (store, client) = memory();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).handle(talk));
    let ticket = client.enqueue(Task { n: 0 }).await.unwrap();
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(0));
    let page = store.read_logs(LogRequest { job: ticket.id(), from: 0, limit: 100 }).await.unwrap();
    let lines: Vec<_> = page.lines.iter().map(|(at, line)| (*at, String::from_utf8_lossy(&line.text))).collect();
    let expected: Vec<_> = (1..=3)
        .flat_map(|n| [format!("attempt {n}"), "more".to_owned(), "and more".to_owned()].map(|line| (n, line.into())))
        .collect();
    assert_eq!(lines, expected);
    worker.drain().await;
}

#[tokio::test]
async fn a_worker_that_cannot_work_is_refused() {
    async fn one(job: Task) -> Result<u32, JobError> {
        Ok(job.n)
    }
    async fn many(items: Vec<Item<Task>>) -> Result<Vec<Result<u32, JobError>>, JobError> {
        Ok(items.iter().map(|item| Ok(item.job.n)).collect())
    }
    async fn asks(job: Task, _ctx: Ctx, _state: State<u8>) -> Result<u32, JobError> {
        Ok(job.n)
    }
    fn asks_too(job: Task, _state: State<u8>) -> Result<u32, JobError> {
        Ok(job.n)
    }
    let (store, _client) = memory();
    let new = || Worker::builder(Arc::clone(&store));
    let cases = [
        (new(), "invalid handler: there is none"),
        (new().slots(0).handle(one), "invalid slots: is 0"),
        (new().slots(1_000_000).handle(one), "slots is 1000000, at most 100000"),
        (new().handle(one).handle(one), "the kind `task` has two"),
        (new().handle(one).at_most(0), "invalid at_most: is 0 for `task`"),
        (new().handle(asks), "invalid state: the handler of `task` asks for a u8; give it by .state(…)"),
        (new().state(1_u16).handle_blocking(asks_too), "asks for a u8"),
        (new().slots(4).handle_batch(5, many), "each job of a batch needs one"),
        (new().handle_batch(0, many), "invalid batch: is 0"),
        (new().lease(Duration::from_millis(9)).handle(one), "invalid lease_ms: is 9; give at least 10"),
        (new().lease(Duration::from_secs(100_000)).handle(one), "lease_ms is 100000000, at most"),
        (new().queue("a").queue("a").handle(one), "`a` is named twice"),
        (new().queue("").handle(one), "invalid queue"),
        (new().label("a\0b").handle(one), "invalid label"),
        ((0..65).fold(new(), |worker, n| worker.label(format!("l{n}"))).handle(one), "labels is 65, at most 64"),
        ((0..257).fold(new(), |worker, n| worker.queue(format!("q{n}"))).handle(one), "queues is 257, at most 256"),
    ];
    for (worker, words) in cases {
        let error = worker.build().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_is_too_large_fails_its_job_and_no_other() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Big;
    impl windlass::Job for Big {
        const KIND: &'static str = "big";
        type Output = String;
    }
    async fn big(_job: Big) -> Result<String, JobError> {
        Ok("x".repeat(2 << 20))
    }
    async fn one(job: Task) -> Result<u32, JobError> {
        Ok(job.n)
    }
    let (store, client) = memory();
    let (large, small) = (client.enqueue(Big).await.unwrap(), client.enqueue(Task { n: 1 }).await.unwrap());
    let worker = Running::start(Worker::builder(Arc::clone(&store)).handle(big).handle(one));
    assert_eq!(small.wait(LONG).await.unwrap(), Waited::Succeeded(1));
    let Waited::Failed(Some(failure)) = large.wait(LONG).await.unwrap() else { panic!("it failed") };
    assert!(failure.message.contains("at most 1048576"), "{}", failure.message);
    assert_eq!(stored(&store, large.id()).await.state, JobState::Failed);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_of_a_batch_leaves_the_others_alone() {
    let (started, mut starts) = mpsc::unbounded_channel::<usize>();
    let go = Arc::new(tokio::sync::Notify::new());
    async fn all(
        items: Vec<Item<Task>>,
        started: State<mpsc::UnboundedSender<usize>>,
        go: State<Arc<tokio::sync::Notify>>,
    ) -> Result<Vec<Result<u32, JobError>>, JobError> {
        started.send(items.len()).unwrap();
        // Until one of them is told; the others are not.
        futures::future::select_all(items.iter().map(|item| Box::pin(item.ctx.stopped()))).await;
        started.send(0).unwrap();
        go.notified().await;
        Ok(items.iter().map(|item| Ok(item.job.n)).collect())
    }
    let (store, client) = memory();
    let tickets = client.enqueue_all((0..3).map(|n| Task { n })).await.unwrap();
    let builder = Worker::builder(Arc::clone(&store)).cancel_grace(Duration::from_millis(1));
    let worker = Running::start(builder.state(started).state(Arc::clone(&go)).handle_batch(3, all));
    assert_eq!(starts.recv().await, Some(3));
    client.cancel(tickets[1].as_ref().unwrap().id()).await.unwrap();
    // The handler has seen it, and goes on all the same.
    assert_eq!(starts.recv().await, Some(0));
    go.notify_one();
    for (n, ticket) in (0..).zip(tickets) {
        let waited = ticket.unwrap().wait(LONG).await.unwrap();
        assert_eq!(waited, if n == 1 { Waited::Cancelled } else { Waited::Succeeded(n) });
    }
    worker.drain().await;
}

#[tokio::test]
async fn what_is_said_of_no_handler_is_refused() {
    fn block(_job: Task) -> Result<u32, JobError> {
        Ok(1)
    }
    async fn many(items: Vec<Item<Task>>) -> Result<Vec<Result<u32, JobError>>, JobError> {
        Ok(items.iter().map(|item| Ok(item.job.n)).collect())
    }
    let (store, _client) = memory();
    let new = || Worker::builder(Arc::clone(&store));
    for (worker, words) in [
        (new().at_most(1).handle_blocking(block), "invalid at_most: is said before"),
        (new().backoff(|_, _| None).handle_blocking(block), "invalid backoff: is said before"),
        (new().handler_layer(windlass::layers::Trace::new()).handle_blocking(block), "invalid handler_layer"),
        (new().handle_batch(1, many).handler_layer(windlass::layers::Trace::new()), "invalid handler_layer"),
        (new().weighted_queue("a", 0).handle_blocking(block), "invalid weight: is 0 for the queue `a`"),
    ] {
        let error = worker.build().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_a_heartbeat_if_one_of_its_jobs_has_one() {
    let (store, client) = memory();
    async fn together(items: Vec<Item<Task>>) -> Result<Vec<Result<u32, JobError>>, JobError> {
        let beats = items.iter().any(|item| item.job.n == 1);
        for _ in 0..4 {
            if beats {
                items[0].ctx.heartbeat();
            }
            tokio::time::sleep(Duration::from_secs(6)).await; // sleeps because: the clock is paused
        }
        Ok(items.iter().map(|item| Ok(item.job.n)).collect())
    }
    let worker = Running::start(Worker::builder(store).without_runs().handle_batch(4, together));
    let options = || Options::new().heartbeat(Duration::from_secs(10)).attempts(1);
    for n in [0, 1] {
        let ticket = client.enqueue_with(Task { n }, options()).await.unwrap();
        let waited = ticket.wait(LONG).await.unwrap();
        assert_eq!(matches!(waited, Waited::Succeeded(1)), n == 1, "{waited:?}");
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_keeps_its_detail() {
    let (store, client) = memory();
    async fn fails(job: Task) -> Result<u32, JobError> {
        Err(JobError::fatal("declined").detail(serde_json::json!({ "code": job.n })))
    }
    let worker = Running::start(Worker::builder(store).handle(fails));
    let Waited::Failed(Some(failure)) = client.enqueue(Task { n: 5 }).await.unwrap().wait(LONG).await.unwrap() else {
        panic!("it fails")
    };
    assert_eq!((failure.message.as_str(), failure.detail), ("declined", Some(serde_json::json!({ "code": 5 }))));
    worker.drain().await;
}
