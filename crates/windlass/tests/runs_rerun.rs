//! Reruns that several callers ask for at once: each is made or refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use support::{LONG, Running, memory};
use windlass::core::id::RunId;
use windlass::core::store::{RunMessage, Store, Wrap, Wrapped};
use windlass::graph::yaml;
use windlass::runs::{NewGraphRun, Rerun, RunStatus, Runs};
use windlass::{Error, Job, Worker};

#[derive(Debug, Serialize, Deserialize)]
struct Say {}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = ();
}

async fn say(_: Say) {}

async fn ended(runs: &Runs, run: RunId) -> RunStatus {
    runs.wait(run, LONG).await.unwrap().expect("it ends")
}

/// A run of two jobs that do not need each other, which has ended.
async fn ended_run(store: &Arc<dyn Store>) -> RunId {
    let graph = yaml::read("test.yml", "jobs:\n  a: { kind: say }\n  b: { kind: say }\n").unwrap().graph;
    let runs = Runs::new(Arc::clone(store));
    let run = runs.start(NewGraphRun::new(graph)).await.unwrap();
    ended(&runs, run).await;
    run
}

fn from(node: &str) -> Rerun {
    Rerun::From(vec![node.to_owned()])
}

/// Messages are sent when two callers have read the run.
struct Together(Arc<dyn Store>, tokio::sync::Barrier);

#[async_trait::async_trait]
impl Wrap for Together {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> windlass::Result<Vec<windlass::Result<()>>> {
        self.1.wait().await;
        self.0.send_to_runs(messages).await
    }
}

#[tokio::test]
async fn of_two_reruns_at_once_one_is_made_and_the_other_is_refused() {
    let (store, _) = memory();
    let working = Running::start(Worker::builder(Arc::clone(&store)).handle(say));
    let run = ended_run(&store).await;
    working.drain().await;
    let together = Runs::new(Arc::new(Wrapped(Together(Arc::clone(&store), tokio::sync::Barrier::new(2)))));
    let (one, other) = tokio::join!(together.rerun(run, from("a")), together.rerun(run, from("b")));
    let working = Running::start(Worker::builder(Arc::clone(&store)).handle(say));
    let seen = ended(&together, run).await;
    for (node, answer) in [(0, &one), (1, &other)] {
        assert_eq!(seen.progress.nodes[node].reruns, u32::from(answer.is_ok()), "{answer:?}");
    }
    let refused = one.and(other).unwrap_err();
    assert!(matches!(&refused, Error::RunRefused { why, .. } if why.contains("has not ended")), "{refused:?}");
    working.drain().await;
}

/// Somebody else runs `a` once more before a message is sent.
struct Overtaken(Arc<dyn Store>);

#[async_trait::async_trait]
impl Wrap for Overtaken {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> windlass::Result<Vec<windlass::Result<()>>> {
        let other = Runs::new(Arc::clone(&self.0));
        other.rerun(messages[0].run, from("a")).await.unwrap();
        ended(&other, messages[0].run).await;
        self.0.send_to_runs(messages).await
    }
}

#[tokio::test]
async fn a_rerun_of_a_run_that_was_run_once_more_since_it_was_read_is_refused() {
    let (store, _) = memory();
    let working = Running::start(Worker::builder(Arc::clone(&store)).handle(say));
    let run = ended_run(&store).await;
    let overtaken = Runs::new(Arc::new(Wrapped(Overtaken(Arc::clone(&store)))));
    let refused = overtaken.rerun(run, Rerun::All).await.unwrap_err();
    assert!(matches!(&refused, Error::RunRefused { why, .. } if why.contains("look at it")), "{refused:?}");
    assert_eq!(ended(&overtaken, run).await.progress.nodes[0].reruns, 1);
    working.drain().await;
}
