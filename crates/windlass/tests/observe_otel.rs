//! With `tracing-opentelemetry`: the span that enqueues and the span of the handler are of one trace.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed check is a panic")]

use opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use windlass::core::job::TraceContext;
use windlass::{Client, Ctx, Job, JobError, Waited, Worker};

#[derive(Serialize, Deserialize)]
struct Task {
    depth: u32,
}

impl Job for Task {
    const KIND: &'static str = "task";
    type Output = Option<String>;
}

/// Enqueues another of its kind from a span of its own, and returns what it would tell others.
async fn task(job: Task, ctx: Ctx) -> Result<Option<String>, JobError> {
    if job.depth == 0 {
        let child = async { ctx.client().enqueue(Task { depth: 1 }).await };
        child.instrument(tracing::info_span!("inner")).await?;
    }
    Ok(ctx.trace().map(|trace: TraceContext| trace.parent))
}

async fn life() -> Vec<Option<String>> {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    let worker = Worker::builder(Arc::clone(&store)).handle(task).build().unwrap();
    let stopper = worker.stopper();
    let work = async {
        let request = client.enqueue(Task { depth: 0 }).instrument(tracing::info_span!("request"));
        let ticket = request.await.unwrap();
        let Waited::Succeeded(first) = ticket.wait(windlass::core::time::HANG_GUARD).await.unwrap() else {
            unreachable!("it succeeds")
        };
        // The child ends in its own time.
        while store.queues().await.unwrap()[0].counts.succeeded < 2 {
            tokio::task::yield_now().await;
        }
        stopper.drain();
        vec![first]
    };
    let (done, told) = tokio::join!(worker.run_until_stopped(), work);
    done.unwrap();
    told
}

#[test]
fn enqueue_and_handler_share_a_trace() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO));
    let told = tracing::subscriber::with_default(subscriber, || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(life())
    });
    provider.force_flush().unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let named = |name: &str| spans.iter().filter(|span| span.name == name).cloned().collect::<Vec<SpanData>>();
    let (request, inner, jobs) = (named("request").remove(0), named("inner").remove(0), named("windlass.job"));
    assert_eq!(jobs.len(), 2);
    let trace = request.span_context.trace_id();
    assert!(spans.iter().all(|span| span.span_context.trace_id() == trace), "{spans:#?}");
    let child_of = |parent: SpanId| jobs.iter().find(|job| job.parent_span_id == parent).expect("it has a child");
    let first = child_of(request.span_context.span_id());
    assert_eq!(inner.parent_span_id, first.span_context.span_id());
    child_of(inner.span_context.span_id());
    let expected = format!("00-{}-{}-01", trace, first.span_context.span_id());
    assert_eq!(told, [Some(expected)], "what the handler hands on is its own span");
    let says = |key: &str| first.attributes.iter().find(|a| a.key.as_str() == key).map(|a| a.value.to_string());
    assert_eq!(says("trace_id"), Some(trace.to_string()));
}
