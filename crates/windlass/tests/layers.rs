//! Tower layers around handlers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tracing::field::{Field, Visit};
use windlass::core::job::{Failure, FailureClass};
use windlass::core::time::HANG_GUARD;
use windlass::layers::tower_layer::Layer;
use windlass::layers::tower_service::Service;
use windlass::layers::{CatchPanic, Limit, Returned, Timeout, Trace};
use windlass::testing::TestBed;
use windlass::{Ctx, Job, JobError, Options, State, Waited, Worker};

#[derive(Serialize, Deserialize)]
struct One;
impl Job for One {
    const KIND: &'static str = "one";
    type Output = u32;
    fn options(&self) -> Options {
        Options::new().attempts(1)
    }
}

#[derive(Serialize, Deserialize)]
struct Two;
impl Job for Two {
    const KIND: &'static str = "two";
    type Output = ();
}

type Notes = Arc<Mutex<Vec<String>>>;

/// Notes when it is entered and how it was left.
#[derive(Clone)]
struct Noting(&'static str, Notes);

#[derive(Clone)]
struct NotingService<S>(S, Noting);

impl<S> Layer<S> for Noting {
    type Service = NotingService<S>;
    fn layer(&self, inner: S) -> Self::Service {
        NotingService(inner, self.clone())
    }
}

impl<S> Service<Ctx> for NotingService<S>
where
    S: Service<Ctx, Response = Returned, Error = JobError>,
    S::Future: Send + 'static,
{
    type Response = Returned;
    type Error = JobError;
    type Future = futures::future::BoxFuture<'static, Result<Returned, JobError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JobError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, ctx: Ctx) -> Self::Future {
        let Noting(name, notes) = self.1.clone();
        notes.lock().unwrap().push(format!("{name} > {}", ctx.spec().kind));
        let call = self.0.call(ctx);
        Box::pin(async move {
            let result = call.await;
            let left = match &result {
                Ok(returned) => format!("{:?}", returned.payload().map(|payload| payload.bytes.clone())),
                Err(error) => error.to_string(),
            };
            notes.lock().unwrap().push(format!("{name} < {left}"));
            result
        })
    }
}

async fn one(_job: One) -> Result<u32, JobError> {
    Ok(7)
}

async fn two(_job: Two) -> Result<(), JobError> {
    Ok(())
}

async fn failure_of(test: &TestBed, sent: windlass::Ticket<One>) -> Failure {
    let job = test.store().get(vec![sent.id()]).await.unwrap().remove(0).unwrap();
    job.failures.last().unwrap().clone()
}

#[tokio::test]
async fn the_first_layer_is_the_outermost_and_those_of_a_handler_are_its_own() {
    let (test, notes) = (TestBed::new(), Notes::default());
    test.client().enqueue(One).await.unwrap();
    test.client().enqueue(Two).await.unwrap();
    let noting = |name| Noting(name, Arc::clone(&notes));
    let worker = Worker::builder(test.store())
        .slots(1)
        .layer(noting("all 1"))
        .handle(one)
        .handler_layer(noting("its 1"))
        .handler_layer(noting("its 2"))
        .layer(noting("all 2"))
        .handle(two);
    assert_eq!(test.run_until_idle(worker).await.succeeded, 2);
    let seven = r#"Some(b"7")"#;
    let mut expected: Vec<String> = ["all 1", "all 2", "its 1", "its 2"].map(|name| format!("{name} > one")).to_vec();
    expected.extend(["its 2", "its 1", "all 2", "all 1"].map(|name| format!("{name} < {seven}")));
    expected.extend(["all 1", "all 2"].map(|name| format!("{name} > two")));
    expected.extend(["all 2", "all 1"].map(|name| format!("{name} < None")));
    assert_eq!(*notes.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_timeout_counts_as_one_and_a_jobs_own_goes_before_it() {
    let test = TestBed::new();
    async fn hour(_job: One) -> Result<u32, JobError> {
        // sleeps because: it takes an hour of virtual time
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        Ok(1)
    }
    let short = test.client().enqueue(One).await.unwrap();
    let own = Options::new().timeout(Duration::from_secs(7_200));
    test.client().enqueue_with(One, own).await.unwrap();
    let worker = Worker::builder(test.store()).handle(hour).handler_layer(Timeout::new(Duration::from_secs(60)));
    let done = test.run_until_idle(worker).await;
    assert_eq!((done.succeeded, done.failed), (1, 1));
    let failure = failure_of(&test, short).await;
    assert_eq!((failure.class, failure.message.as_str()), (FailureClass::Timeout, "it took longer than 60000 ms"));
}

/// Drops the call of its handler when the handler says that it has begun.
#[derive(Clone)]
struct DropWhenBegun(Arc<tokio::sync::Notify>);

#[derive(Clone)]
struct DropWhenBegunService<S>(S, DropWhenBegun);

impl<S> Layer<S> for DropWhenBegun {
    type Service = DropWhenBegunService<S>;
    fn layer(&self, inner: S) -> Self::Service {
        DropWhenBegunService(inner, self.clone())
    }
}

impl<S> Service<Ctx> for DropWhenBegunService<S>
where
    S: Service<Ctx, Response = Returned, Error = JobError>,
    S::Future: Send + 'static,
{
    type Response = Returned;
    type Error = JobError;
    type Future = futures::future::BoxFuture<'static, Result<Returned, JobError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JobError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, ctx: Ctx) -> Self::Future {
        let (call, begun) = (self.0.call(ctx), Arc::clone(&self.1.0));
        Box::pin(async move {
            tokio::select! {
                result = call => result,
                () = begun.notified() => Err(JobError::new("dropped")),
            }
        })
    }
}

/// A thread cannot be ended from outside, so its handler is told.
#[tokio::test]
async fn a_blocking_handler_is_told_to_stop_when_a_layer_drops_it() {
    type Told = tokio::sync::mpsc::UnboundedSender<u32>;
    #[expect(clippy::needless_pass_by_value, reason = "handlers are given what they ask for")]
    fn until_told(
        _job: One,
        ctx: Ctx,
        begun: State<Arc<tokio::sync::Notify>>,
        told: State<Told>,
    ) -> Result<u32, JobError> {
        begun.notify_one();
        // Both ways of noticing it.
        tokio::runtime::Handle::current().block_on(ctx.stopped());
        assert!(ctx.is_stopped());
        told.send(ctx.attempt()).unwrap();
        Ok(1)
    }
    let store = windlass::open("memory://").unwrap();
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel::<u32>();
    let begun = Arc::new(tokio::sync::Notify::new());
    let worker = Worker::builder(Arc::clone(&store)).without_runs().state(told).state(Arc::clone(&begun));
    let worker = worker.handle_blocking(until_told).handler_layer(Noting("outer", Notes::default()));
    let worker = worker.handler_layer(DropWhenBegun(begun)).build().unwrap();
    let (stopper, client) = (worker.stopper(), windlass::Client::new(store));
    let test = async {
        let ticket = client.enqueue(One).await.unwrap();
        let ended = ticket.wait(HANG_GUARD).await.unwrap();
        assert!(matches!(ended, Waited::Failed(Some(failure)) if failure.message == "dropped"));
        assert_eq!(tokio::time::timeout(HANG_GUARD, tells.recv()).await.unwrap(), Some(1));
        stopper.drain();
    };
    tokio::join!(worker.run_until_stopped(), test).0.unwrap();
}

#[tokio::test]
async fn a_panic_is_an_error_outside_and_a_panic_in_the_store() {
    let (test, notes) = (TestBed::new(), Notes::default());
    async fn lost(_job: One) -> Result<u32, JobError> {
        panic!("all is lost")
    }
    let ticket = test.client().enqueue(One).await.unwrap();
    let layers = Worker::builder(test.store()).layer(Noting("out", Arc::clone(&notes))).layer(CatchPanic::new());
    assert_eq!(test.run_until_idle(layers.handle(lost)).await.failed, 1);
    assert_eq!(*notes.lock().unwrap(), ["out > one", "out < all is lost"]);
    let failure = failure_of(&test, ticket).await;
    assert_eq!((failure.class, failure.message.as_str()), (FailureClass::Panic, "all is lost"));
}

#[tokio::test]
async fn a_limit_is_shared_by_the_handlers_it_is_put_around() {
    #[derive(Default)]
    struct Seen {
        now: AtomicUsize,
        most: AtomicUsize,
    }
    async fn run(seen: &Seen) {
        seen.most.fetch_max(seen.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // sleeps because: those that run at once have to overlap
        tokio::time::sleep(Duration::from_secs(1)).await;
        seen.now.fetch_sub(1, Ordering::SeqCst);
    }
    async fn first(_job: One, seen: State<Arc<Seen>>) -> Result<u32, JobError> {
        run(&seen).await;
        Ok(0)
    }
    async fn second(_job: Two, seen: State<Arc<Seen>>) {
        run(&seen).await;
    }
    let (test, seen, limit) = (TestBed::new(), Arc::new(Seen::default()), Limit::new(3));
    test.client().enqueue_all((0..10).map(|_| One)).await.unwrap();
    test.client().enqueue_all((0..10).map(|_| Two)).await.unwrap();
    let worker = Worker::builder(test.store()).slots(16).state(Arc::clone(&seen));
    let worker = worker.handle(first).handler_layer(limit.clone()).handle(second).handler_layer(limit);
    assert_eq!(test.run_until_idle(worker).await.succeeded, 20);
    assert_eq!(seen.most.load(Ordering::SeqCst), 3);
}

/// Keeps the fields of all spans.
#[derive(Default)]
struct Spans(Mutex<Vec<(String, String)>>);

struct Subscriber(Arc<Spans>);

impl Visit for &Spans {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push((field.name().to_owned(), format!("{value:?}")));
    }
}

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.name() == "attempt"
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut &*self.0);
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut &*self.0);
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn an_attempt_has_a_span_that_says_how_it_ended() {
    async fn sometimes(_job: Two, ctx: Ctx) -> Result<(), JobError> {
        // sleeps because: the span tells how long it took
        tokio::time::sleep(Duration::from_secs(2)).await;
        match ctx.attempt() {
            1 => Err(JobError::new("not yet")),
            2 => panic!("nobody catches it inside"),
            _ => Ok(()),
        }
    }
    let (test, spans) = (TestBed::new(), Arc::new(Spans::default()));
    let ticket = test.client().enqueue(Two).await.unwrap();
    let guard = tracing::subscriber::set_default(Subscriber(Arc::clone(&spans)));
    test.run_until_idle(Worker::builder(test.store()).layer(Trace::new()).handle(sometimes)).await;
    drop(guard);
    let fields = spans.0.lock().unwrap().clone();
    let expected = |attempt: &str, outcome: &str| {
        let id = ticket.id().to_string();
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        [of("job", &id), of("kind", "two"), of("queue", "default"), of("attempt", attempt)]
            .into_iter()
            .chain([of("outcome", &format!("{outcome:?}")), of("ms", "2000")])
    };
    let all = expected("1", "failed").chain(expected("2", "stopped")).chain(expected("3", "succeeded"));
    let rounded = fields.into_iter().map(|(name, value)| (name, value.replace("2001", "2000")));
    assert_eq!(rounded.collect::<Vec<_>>(), all.collect::<Vec<_>>());
}
