//! Traces and spans, from enqueue to handler and on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

#[path = "support/spans.rs"]
mod spans;

use serde::{Deserialize, Serialize};
use spans::{Seen, Spans};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt;
use windlass::core::id::{Ids, JobId};
use windlass::core::job::{JobSpec, NewJob, TraceContext};
use windlass::core::payload::Payload;
use windlass::core::random::StrongRandom;
use windlass::core::store::{EnqueueRequest, Store};
use windlass::core::time::SystemClock;
use windlass::observe::{TraceParent, current_trace, with_trace};
use windlass::{Client, Ctx, Error, Job, JobError, Options, State, Waited, Worker};

const LONG: Duration = windlass::core::time::HANG_GUARD;
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn trace(parent: &str) -> TraceContext {
    TraceContext { parent: parent.to_owned(), state: Some("vendor=1".to_owned()) }
}

#[derive(Serialize, Deserialize)]
struct Task {
    n: u32,
}

impl Job for Task {
    const KIND: &'static str = "task";
    type Output = ();
}

#[derive(Debug, Serialize, Deserialize)]
struct Child;

impl Job for Child {
    const KIND: &'static str = "child";
    const QUEUE: &'static str = "children";
    type Output = ();
}

/// What a handler saw: its trace, and the job it enqueued.
type Told = (u32, Option<TraceContext>, JobId);

async fn parent(job: Task, ctx: Ctx, told: State<mpsc::UnboundedSender<Told>>) -> Result<(), JobError> {
    tracing::info!("the handler speaks");
    // Under one id of its own: the second attempt asks for the very same job.
    let child = ctx.client().enqueue_with(Child, Options::new().id(format!("child-of-{}", job.n))).await?;
    told.send((ctx.attempt(), ctx.trace(), child.id()))?;
    if ctx.attempt() < 2 { Err(JobError::new("once more").retry_after(Duration::ZERO)) } else { Ok(()) }
}

async fn trace_of(store: &Arc<dyn Store>, id: JobId) -> Option<TraceContext> {
    store.get(vec![id]).await.unwrap().remove(0).unwrap().spec.trace.clone()
}

/// Runs a job to its end; what its handler told, attempt by attempt.
async fn run(store: &Arc<dyn Store>, id: JobId) -> Vec<Told> {
    let (tell, mut told) = mpsc::unbounded_channel();
    let worker = Worker::builder(Arc::clone(store)).state(tell).handle(parent).build().unwrap();
    let stopper = worker.stopper();
    let client = Client::new(Arc::clone(store));
    let work = async {
        assert_eq!(client.wait::<()>(id, LONG).await.unwrap(), Waited::Succeeded(()));
        stopper.drain();
    };
    let (done, ()) = tokio::join!(worker.run_until_stopped(), work);
    done.unwrap();
    let mut all = Vec::new();
    while let Ok(one) = told.try_recv() {
        all.push(one);
    }
    all
}

#[tokio::test]
async fn a_job_carries_the_trace_to_its_handler_and_on_to_its_children() {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    let ticket = client.enqueue_with(Task { n: 1 }, Options::new().trace(trace(PARENT))).await.unwrap();
    assert_eq!(trace_of(&store, ticket.id()).await, Some(trace(PARENT)), "as it was given");
    let told = run(&store, ticket.id()).await;
    assert_eq!(told.iter().map(|(attempt, ..)| *attempt).collect::<Vec<_>>(), [1, 2]);
    let mut spans = BTreeSet::from([PARENT.to_owned()]);
    for (_, trace, _) in &told {
        let trace = trace.as_ref().expect("it has one");
        let parent: TraceParent = trace.parent.parse().unwrap();
        assert_eq!((parent.trace_id().to_string().as_str(), trace.state.as_deref()), (TRACE_ID, Some("vendor=1")));
        assert!(spans.insert(trace.parent.clone()), "each attempt is a span of its own");
    }
    // The child belongs to the attempt that made it; the second attempt found it there, under the same id.
    assert_eq!(told[0].2, told[1].2);
    assert_eq!(trace_of(&store, told[0].2).await, told[0].1);
}

#[tokio::test]
async fn a_trace_can_be_set_for_everything_inside() {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    with_trace(trace(PARENT), async {
        assert_eq!(current_trace(), Some(trace(PARENT)));
        let ticket = client.enqueue(Child).await.unwrap();
        assert_eq!(trace_of(&store, ticket.id()).await, Some(trace(PARENT)));
        for ticket in client.enqueue_all([Child, Child]).await.unwrap() {
            assert_eq!(trace_of(&store, ticket.unwrap().id()).await, Some(trace(PARENT)));
        }
        let other = PARENT.replace("-01", "-00");
        let ticket = client.enqueue_with(Child, Options::new().trace(trace(&other))).await.unwrap();
        assert_eq!(trace_of(&store, ticket.id()).await, Some(trace(&other)), "what is said goes first");
    })
    .await;
    assert_eq!(current_trace(), None);
    let ticket = client.enqueue(Child).await.unwrap();
    assert_eq!(trace_of(&store, ticket.id()).await, None);
}

#[tokio::test]
async fn a_bad_trace_is_refused_where_it_is_said_and_left_alone_where_it_comes_from_outside() {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    let refused = client.enqueue_with(Child, Options::new().trace(trace("00-1-2-01"))).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid { ref field, .. } if field == "traceparent"), "{refused}");
    let ticket = with_trace(trace("nonsense"), client.enqueue(Child)).await.unwrap();
    assert_eq!(trace_of(&store, ticket.id()).await, None);
}

#[tokio::test]
async fn a_stored_trace_that_cannot_be_read_harms_nobody() {
    let store = windlass::open("memory://").unwrap();
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::seeded(3)));
    let payload = Payload::json(&Task { n: 2 }).unwrap();
    let mut spec = JobSpec::new("default".try_into().unwrap(), "task".try_into().unwrap(), payload);
    spec.trace = Some(trace("\u{fffd}-not-a-trace"));
    let job = NewJob::new(ids.next(), spec);
    store.enqueue(EnqueueRequest::new(vec![job.clone()])).await.unwrap().remove(0).unwrap();
    let told = run(&store, job.id).await;
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(_, trace, _)| trace.is_none()));
    assert_eq!(trace_of(&store, told[0].2).await, None);
}

/// Runs a job with a trace under a subscriber; its id and what was seen.
fn watched() -> (JobId, Vec<Seen>) {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let id = tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = windlass::open("memory://").unwrap();
            let client = Client::new(Arc::clone(&store));
            let ticket = client.enqueue_with(Task { n: 3 }, Options::new().trace(trace(PARENT))).await.unwrap();
            run(&store, ticket.id()).await;
            store.close().await.unwrap();
            assert!(store.queues().await.is_err());
            ticket.id()
        })
    });
    (id, spans.all())
}

#[test]
fn a_span_goes_around_each_attempt_and_its_lines_say_so() {
    let (id, seen) = watched();
    let lines: Vec<&Seen> = seen.iter().filter(|seen| seen.fields.contains_key("message")).collect();
    let spoken: Vec<_> = lines.iter().filter(|line| line.fields["message"] == "the handler speaks").collect();
    assert_eq!(spoken.len(), 2);
    for (line, attempt) in spoken.iter().zip(["1", "2"]) {
        let (name, fields) = line.parent.as_ref().expect("it is in a span");
        assert_eq!(name, "windlass.job");
        let field = |name: &str| fields[name].clone();
        assert_eq!(field("job.id"), id.to_string());
        assert_eq!((field("kind"), field("queue")), ("task".to_owned(), "default".to_owned()));
        assert_eq!((field("attempt").as_str(), field("trace_id").as_str()), (attempt, TRACE_ID));
    }
    let jobs: Vec<&Seen> = seen.iter().filter(|seen| seen.name == "windlass.job").collect();
    assert_eq!(jobs.len(), 2);
    assert!(jobs.iter().all(|job| job.level == tracing::Level::INFO && job.target == "windlass::job"));
}

#[test]
fn a_span_goes_around_each_call_to_the_store() {
    let (_, seen) = watched();
    let calls: Vec<&Seen> = seen.iter().filter(|seen| seen.name == "windlass.store").collect();
    let of = |op: &str| calls.iter().filter(|call| call.fields["op"] == op).collect::<Vec<_>>();
    assert!(calls.iter().all(|call| call.level == tracing::Level::DEBUG && call.target == "windlass::store"));
    assert!(calls.iter().all(|call| call.fields["store"] == "memory"));
    let enqueue = of("enqueue");
    assert_eq!((enqueue[0].fields["items"].as_str(), enqueue[0].fields["outcome"].as_str()), ("1", "ok"));
    assert!(!of("claim").is_empty());
    assert_eq!(of("queues")[0].fields["outcome"], "unavailable");
}
