//! Runs of a graph as part of the load: started by the real client, advanced by the engines of real workers. Their nodes are
//! executed by the workers of the load.

use super::meter::Meter;
use crate::Result;
use crate::child::pass_ms;
use crate::hand::Hand;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use windlass::graph::GraphBuilder;
use windlass::runs::{NewGraphRun, RunStatus, Runs};
use windlass::{Job, Options};
use windlass_core::graph::Graph;
use windlass_core::id::{Ids, JobId, RunId};
use windlass_core::job::Lease;
use windlass_core::random::StrongRandom;
use windlass_core::store::{ClaimedJob, OutcomeKind, Run, RunList, RunState, Store};
use windlass_core::time::SystemClock;

/// The queue of the nodes of runs.
pub(super) const NODES: &str = "nodes";
/// How long a starter waits between two runs.
const PAUSE_MS: u64 = 40;
/// The output of the last node, and what it must be.
const OUTPUT: (&str, &str) = ("n", "112");
/// Runs at fault that are named; the rest is only counted.
const NAMED_MAX: usize = 10;

/// A node of the graph: adds a number to the outputs of the nodes before it.
#[derive(Debug, Serialize, Deserialize)]
struct Add {
    number: u64,
    left: String,
    right: String,
}

impl Job for Add {
    const KIND: &'static str = "add";
    const QUEUE: &'static str = NODES;
    type Output = ();

    fn options(&self) -> Options {
        Options::new().attempts(3)
    }
}

/// `a`, then `b` and `c`, then `d`, which adds up what they left.
fn graph() -> Result<Graph> {
    let add = |number| Add { number, left: String::new(), right: String::new() };
    let mut g = GraphBuilder::new("sum");
    let a = g.job("a", &add(1)).node();
    let b = g.job("b", &add(10)).after(&a).with("left", a.output(OUTPUT.0)).node();
    let c = g.job("c", &add(100)).after(&a).with("left", a.output(OUTPUT.0)).node();
    let d = g.job("d", &add(0)).after(&b).after(&c).with("left", b.output(OUTPUT.0));
    d.with("right", c.output(OUTPUT.0)).node();
    Ok(g.finish()?)
}

/// The outcome of a node: the sum as its output.
pub(super) fn node_outcome(job: &ClaimedJob) -> Result<OutcomeKind> {
    let Add { number, left, right } = job.spec.payload.to_json()?;
    let value = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u64>() };
    let sum = number + value(&left)? + value(&right)?;
    let outputs = BTreeMap::from([(OUTPUT.0.to_owned(), sum.to_string())]);
    Ok(OutcomeKind::Complete { result: None, outputs })
}

/// A node of one run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    run: RunId,
    name: String,
}

impl Node {
    /// The node that a job belongs to, if it belongs to one.
    pub(super) fn of(job: &ClaimedJob) -> Option<Self> {
        Some(Self { run: job.spec.run?, name: job.spec.metadata.get("node").cloned().unwrap_or_default() })
    }
}

/// The leases under which outcomes were accepted: job, attempt and token.
type Leases = BTreeSet<(JobId, u32, u64)>;

/// What was acknowledged about runs.
#[derive(Debug, Default)]
pub(super) struct RunLedger {
    started: Mutex<Vec<RunId>>,
    accepted: Mutex<HashMap<Node, Leases>>,
    forgotten: Mutex<BTreeSet<(RunId, String)>>,
}

impl RunLedger {
    pub(super) fn accepted(&self, node: &Node, lease: Lease) {
        let lease = (lease.job, lease.attempt, lease.token.bits());
        self.accepted.lock().entry(node.clone()).or_default().insert(lease);
    }

    /// The node was claimed once more after its completion had been acknowledged.
    pub(super) fn forgot(&self, node: &Node) {
        self.forgotten.lock().insert((node.run, node.name.clone()));
    }
}

/// Starts runs until it is aborted; an answer that got lost is asked for again with the same id.
pub(super) async fn start_runs(hand: Hand, meter: Arc<Meter>, ledger: Arc<RunLedger>) -> Result<()> {
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::seeded(hand.dice.seed())));
    let (graph, runs) = (Arc::new(graph()?), Runs::new(Arc::clone(&hand.store)));
    loop {
        let id = ids.next_run();
        let run = NewGraphRun::new(Arc::clone(&graph)).id(id);
        meter.in_flight(hand.insist(|| runs.start(run.clone()))).await?;
        ledger.started.lock().push(id);
        pass_ms(PAUSE_MS).await;
    }
}

/// What became of the runs.
#[derive(Debug, Default)]
pub(super) struct RunFindings {
    pub(super) runs: u64,
    pub(super) lost: u64,
    pub(super) double: u64,
    pub(super) forgotten: u64,
    pub(super) faults: Vec<String>,
}

impl RunFindings {
    fn fault(&mut self, what: String) {
        if self.faults.len() < NAMED_MAX {
            self.faults.push(what);
        }
    }
}

/// Runs of the store that have not ended.
pub(super) async fn open_runs(store: &dyn Store) -> Result<usize> {
    let running = RunList { state: Some(RunState::Running), ..RunList::new(1_000) };
    Ok(store.list_runs(running).await?.runs.len())
}

/// Compares the acknowledged runs with those of the store. Nothing may be under way any more.
pub(super) async fn audit_runs(store: Arc<dyn Store>, ledger: &RunLedger) -> Result<RunFindings> {
    let runs = Runs::new(store);
    let mut findings = RunFindings::default();
    let started = ledger.started.lock().clone();
    for id in started {
        findings.runs += 1;
        let status = runs.status(id).await?;
        if let Some(why) = fault_of(status.as_ref()) {
            findings.lost += 1;
            findings.fault(format!("run {id}: {why}"));
        }
    }
    for (Node { run, name }, leases) in &*ledger.accepted.lock() {
        if leases.len() > 1 {
            findings.double += 1;
            findings.fault(format!("run {run}: the node {name} was completed {} times", leases.len()));
        }
    }
    for (run, name) in &*ledger.forgotten.lock() {
        findings.forgotten += 1;
        findings.fault(format!("run {run}: the node {name} was completed, and claimed once more"));
    }
    Ok(findings)
}

fn fault_of(status: Option<&RunStatus>) -> Option<String> {
    let Some(status) = status else { return Some("was acknowledged and is not in the store".to_owned()) };
    let (Run { state, .. }, progress) = (&status.run, &status.progress);
    if !state.is_terminal() {
        return Some("was acknowledged and has not ended".to_owned());
    }
    let output = progress.nodes.last().and_then(|node| node.outputs.get(OUTPUT.0)).map(String::as_str);
    if *state != RunState::Succeeded || output != Some(OUTPUT.1) {
        return Some(format!("ended as {} with {output:?}", state.name()));
    }
    let twice = progress.nodes.iter().position(|node| node.instances.len() != 1)?;
    Some(format!("the node at {twice} was enqueued {} times", progress.nodes[twice].instances.len()))
}
