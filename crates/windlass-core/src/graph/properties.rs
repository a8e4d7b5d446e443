//! Random graphs with random outcomes, in random order: what must hold for every run.

use super::expr::Expr;
use super::*;
use crate::id::JobId;
use crate::name::{Kind, QueueName};
use crate::retry::RetryPolicy;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

pub(super) fn job() -> Work {
    Work::Job(Box::new(NodeJob {
        queue: QueueName::new("q").unwrap(),
        kind: Kind::new("k").unwrap(),
        payload: Value::Null,
        labels: Vec::new(),
        priority: 0,
        attempts: 1,
        retry: RetryPolicy::None,
        timeout_ms: None,
        group: None,
        group_max: None,
    }))
}

/// An entrance that gives on what the run was given.
pub(super) fn gate() -> Work {
    let given = ["yes", "rows"].map(|name| (name.to_owned(), json!(format!("${{{{ inputs.{name} }}}}"))));
    Work::Gate { inputs: given.into_iter().collect() }
}

pub(super) fn node(id: &str, needs: &[usize]) -> Node {
    Node {
        id: id.to_owned(),
        title: None,
        needs: needs.iter().map(|&node| Need { node, accepts: Accepts::default() }).collect(),
        condition: None,
        matrix: None,
        continue_on_error: false,
        inside: None,
        entrance: None,
        env: BTreeMap::new(),
        work: job(),
    }
}

pub(super) fn graph(nodes: Vec<Node>) -> Graph {
    Graph { name: "g".to_owned(), nodes, env: BTreeMap::new(), timeout_ms: None }
}

/// A job that has ended without a word.
pub(super) fn ended(job: JobId, outcome: Outcome) -> Happened {
    Happened::JobEnded { job, end: End { outcome, error: None, outputs: BTreeMap::new() } }
}

/// Ids one after the other.
pub(super) fn ids() -> impl FnMut() -> JobId {
    ids_from(0)
}

fn ids_from(first: u128) -> impl FnMut() -> JobId {
    let mut next = first;
    move || {
        next += 1;
        JobId::from_parts(0, next)
    }
}

fn arb_matrix() -> impl Strategy<Value = Option<Matrix>> {
    let rows = prop_oneof![
        (0..4_usize)
            .prop_map(|count| Source::Rows((0..count).map(|n| Map::from_iter([("n".to_owned(), json!(n))])).collect())),
        Just(Source::From(Expr::parse("inputs.rows").unwrap())),
        Just(Source::From(Expr::parse("inputs.none").unwrap())),
    ];
    let matrix = (rows, any::<bool>(), prop::option::of(1..3_u32))
        .prop_map(|(source, fail_fast, parallel_max)| Matrix { source, fail_fast, parallel_max });
    prop_oneof![4 => Just(None), 1 => matrix.prop_map(Some)]
}

fn arb_node(at: usize) -> impl Strategy<Value = Node> {
    let accepts = any::<(bool, bool, bool, bool)>().prop_map(|(a, b, c, d)| Accepts {
        succeeded: a,
        failed: b,
        skipped: c,
        cancelled: d,
    });
    let needs = prop::collection::vec(
        (0..at.max(1), prop_oneof![3 => Just(Accepts::default()), 1 => accepts]),
        0..4.min(at + 1),
    );
    let condition = prop_oneof![
        6 => Just(None),
        1 => Just(Some("always()")),
        1 => Just(Some("failure()")),
        1 => Just(Some("false")),
        1 => Just(Some("inputs.yes")),
    ];
    let work = prop_oneof![5 => Just(job()), 1 => Just(gate()), 1 => Just(Work::Join { outputs: BTreeMap::new() })];
    (needs, condition, arb_matrix(), any::<bool>(), work).prop_map(move |(needs, condition, matrix, forgiven, work)| {
        Node {
            needs: if at == 0 {
                Vec::new()
            } else {
                needs.into_iter().map(|(node, accepts)| Need { node, accepts }).collect()
            },
            condition: condition.map(|text| Expr::parse(text).unwrap()),
            matrix,
            continue_on_error: forgiven && at.is_multiple_of(3),
            work,
            ..node(&format!("n{at}"), &[])
        }
    })
}

fn arb_graph() -> impl Strategy<Value = Graph> {
    let plain = (1..10_usize).prop_flat_map(|count| (0..count).map(arb_node).collect::<Vec<_>>()).prop_map(graph);
    let condition = prop_oneof![2 => Just(None), 1 => Just(Some("inputs.none")), 1 => Just(Some("inputs.yes"))];
    (plain, prop::option::of(condition)).prop_map(|(graph, enclose)| match enclose {
        Some(condition) => enclosed(graph, condition),
        None => graph,
    })
}

/// A graph in another one: an entrance before it, an exit behind it, and one that needs that.
fn enclosed(inner: Graph, condition: Option<&str>) -> Graph {
    let exit = inner.nodes.len() + 1;
    let condition = condition.map(|text| Expr::parse(text).unwrap());
    let mut nodes = vec![Node { work: gate(), condition, ..node("s/>", &[]) }];
    for mut node in inner.nodes {
        node.needs.iter_mut().for_each(|need| need.node += 1);
        if node.needs.is_empty() {
            node.needs.push(Need { node: 0, accepts: Accepts::default() });
        }
        nodes.push(Node { id: format!("s/{}", node.id), inside: Some(exit), entrance: Some(0), ..node });
    }
    let needs = (1..exit).map(|node| Need { node, accepts: Accepts::ANY }).collect();
    let work = Work::Join { outputs: BTreeMap::new() };
    nodes.push(Node { needs, work, entrance: Some(0), ..node("s", &[]) });
    nodes.push(node("after", &[exit]));
    graph(nodes)
}

/// What the world does at each turn.
#[derive(Clone, Debug)]
enum Turn {
    End { pick: prop::sample::Index, outcome: Outcome, again: bool },
    Cancel,
    TimedOut,
    Rerun { pick: prop::sample::Index, failed: bool },
}

fn arb_turn() -> impl Strategy<Value = Turn> {
    let outcome = prop_oneof![5 => Just(Outcome::Succeeded), 2 => Just(Outcome::Failed), 1 => Just(Outcome::Cancelled)];
    prop_oneof![
        30 => (any::<prop::sample::Index>(), outcome, prop::bool::weighted(0.1))
            .prop_map(|(pick, outcome, again)| Turn::End { pick, outcome, again }),
        1 => Just(Turn::Cancel),
        1 => Just(Turn::TimedOut),
        2 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(pick, failed)| Turn::Rerun { pick, failed }),
    ]
}

struct World {
    graph: Graph,
    progress: Progress,
    inputs: Value,
    history: Vec<Event>,
    jobs: HashSet<JobId>,
    ended: Vec<JobId>,
}

impl World {
    fn new(graph: Graph) -> Self {
        let inputs = json!({"yes": true, "rows": [1, {"os": "linux"}]});
        Self {
            progress: Progress::new(&graph),
            graph,
            inputs,
            history: Vec::new(),
            jobs: HashSet::new(),
            ended: Vec::new(),
        }
    }

    fn advance(&mut self, happened: Vec<Happened>, new_job: &mut dyn FnMut() -> JobId) {
        // Where it stood before each event, to see that nothing starts too early.
        let mut before = self.progress.clone();
        let events = advance(&self.graph, &mut self.progress, &self.inputs, happened, new_job);
        for event in &events {
            if let Event::Started { node, instance, job } = event {
                assert!(!before.is_stopping(), "started after it was told to stop");
                for need in &self.graph.nodes[*node].needs {
                    assert!(
                        before.nodes[need.node].outcome.is_some(),
                        "node {node} started before its need {}",
                        need.node
                    );
                }
                assert!(self.jobs.insert(*job), "a job twice");
                let one = before.nodes[*node].instances.get(*instance);
                assert!(one.is_none_or(|one| one.job.is_none()), "an instance twice");
            }
            before.apply(&self.graph, event);
        }
        self.history.extend(events);
        self.assert_sound();
    }

    fn assert_sound(&self) {
        let progress = &self.progress;
        assert_eq!(&Progress::fold(&self.graph, &self.history), progress, "the fold of the events is another state");
        let open = progress.nodes.iter().filter(|node| node.outcome.is_none()).count();
        assert_eq!(progress.left, open);
        assert_eq!(progress.result.is_some(), open == 0, "a run has ended exactly when all its nodes have");
        if let Some(result) = progress.result {
            assert_eq!(result, progress.verdict(&self.graph));
        }
        assert!(open == 0 || progress.running_jobs().next().is_some(), "it waits for nothing: {progress:?}");
        for (at, node) in progress.nodes.iter().enumerate() {
            let most = self.graph.nodes[at].matrix.as_ref().and_then(|matrix| matrix.parallel_max);
            assert!(most.is_none_or(|most| node.running() <= most as usize), "too many at once");
            let gate = self.graph.nodes[at].entrance.map(|gate| &progress.nodes[gate]);
            if gate.is_some_and(|gate| gate.outcome == Some(Outcome::Skipped)) {
                assert!(node.instances.is_empty() && node.outcome.is_some(), "something ran behind a closed door");
                assert!(node.skip.is_some(), "nobody knows why it was not run: {node:?}");
            }
            assert_eq!(node.ended, node.instances.iter().filter(|one| one.outcome.is_some()).count());
        }
        // What is stored is what was decided.
        let stored: Vec<Event> = serde_json::from_str(&serde_json::to_string(&self.history).unwrap()).unwrap();
        assert_eq!(stored, self.history);
    }

    fn turn(&mut self, turn: &Turn, new_job: &mut dyn FnMut() -> JobId) {
        if let Some(happened) = self.happened(turn) {
            self.advance(vec![happened], new_job);
        }
    }

    fn happened(&mut self, turn: &Turn) -> Option<Happened> {
        Some(match turn {
            Turn::End { pick, outcome, again } => {
                let running: Vec<JobId> = self.progress.running_jobs().collect();
                let from = if *again || running.is_empty() { &self.ended } else { &running };
                if from.is_empty() {
                    return None;
                }
                let job = *pick.get(from);
                self.ended.push(job);
                ended(job, *outcome)
            }
            Turn::Cancel => Happened::Cancel { reason: "enough".to_owned() },
            Turn::TimedOut => Happened::TimedOut,
            Turn::Rerun { failed: true, .. } => Happened::Rerun { nodes: reruns(&self.progress), keep_rows: true },
            Turn::Rerun { pick, .. } => {
                Happened::Rerun { nodes: vec![pick.index(self.graph.nodes.len())], keep_rows: false }
            }
        })
    }

    /// What another engine makes of this run when only the first `kept` events of the last decision were committed, and the
    /// inbox still has what caused it.
    fn resumed(&self, kept: usize, happened: Option<Happened>, new_job: &mut dyn FnMut() -> JobId) -> Progress {
        let mut progress = Progress::fold(&self.graph, &self.history[..kept]);
        let stops = matches!(happened, Some(Happened::Cancel { .. } | Happened::TimedOut));
        if !stops {
            resume(&self.graph, &mut progress, &self.inputs, new_job);
        }
        advance(&self.graph, &mut progress, &self.inputs, happened, new_job);
        progress
    }
}

/// Where a run stands, but for the ids of its jobs.
fn without_ids(progress: &Progress) -> Vec<NodeProgress> {
    let mut nodes = progress.nodes.clone();
    for one in nodes.iter_mut().flat_map(|node| &mut node.instances) {
        one.job = one.job.map(|_| JobId::from_parts(0, 0));
    }
    nodes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_run_is_sound_and_ends(graph in arb_graph(), turns in prop::collection::vec(arb_turn(), 0..40)) {
        prop_assert_eq!(graph.check(), Ok(()));
        let stored: Graph = serde_json::from_str(&serde_json::to_string(&graph).unwrap()).unwrap();
        prop_assert_eq!(&stored, &graph);
        let mut world = World::new(graph);
        let mut new_job = ids();
        world.advance(Vec::new(), &mut new_job);
        for turn in &turns {
            world.turn(turn, &mut new_job);
        }
        // Whatever is left ends well: so does the run.
        for _ in 0..200 {
            let Some(job) = world.progress.running_jobs().next() else { break };
            world.advance(vec![ended(job, Outcome::Succeeded)], &mut new_job);
        }
        prop_assert!(world.progress.result.is_some());
    }

    #[test]
    fn a_decision_that_was_cut_off_is_resumed(graph in arb_graph(), turns in prop::collection::vec(arb_turn(), 0..40)) {
        let mut world = World::new(graph);
        let (mut new_job, mut other_job) = (ids_from(0), ids_from(1 << 64));
        world.advance(Vec::new(), &mut new_job);
        for turn in &turns {
            let Some(happened) = world.happened(turn) else { continue };
            let before = world.history.len();
            let settled = matches!(happened, Happened::JobEnded { .. }).then(|| {
                let mut progress = world.progress.clone();
                settle(&world.graph, &mut progress, &world.inputs, [happened.clone()]);
                assert_eq!(progress.running_jobs().find(|job| !world.jobs.contains(job)), None, "settling started a job");
                resume(&world.graph, &mut progress, &world.inputs, &mut other_job);
                progress
            });
            world.advance(vec![happened.clone()], &mut new_job);
            if let Some(settled) = settled {
                prop_assert_eq!(without_ids(&settled), without_ids(&world.progress));
            }
            for kept in before..world.history.len() {
                // A rerun that was committed is not made once more.
                let again = Some(happened.clone()).filter(|what| kept == before || !matches!(what, Happened::Rerun { .. }));
                let resumed = world.resumed(kept, again, &mut other_job);
                prop_assert_eq!(without_ids(&resumed), without_ids(&world.progress));
                prop_assert_eq!(resumed.result, world.progress.result);
            }
        }
    }

    #[test]
    fn what_happens_together_comes_to_the_same(graph in arb_graph(), outcomes in prop::collection::vec(any::<bool>(), 40)) {
        let (mut one, mut other) = (World::new(graph.clone()), World::new(graph));
        let (mut ids_of_one, mut ids_of_other) = (ids(), ids());
        one.advance(Vec::new(), &mut ids_of_one);
        other.advance(Vec::new(), &mut ids_of_other);
        let mut outcomes = outcomes.into_iter().cycle();
        for _ in 0..100 {
            let running: Vec<JobId> = one.progress.running_jobs().collect();
            if running.is_empty() {
                break;
            }
            let outcome = |well| if well { Outcome::Succeeded } else { Outcome::Failed };
            let happened: Vec<Happened> =
                running.into_iter().zip(&mut outcomes).map(|(job, well)| ended(job, outcome(well))).collect();
            for what in happened.clone() {
                one.advance(vec![what], &mut ids_of_one);
            }
            other.advance(happened, &mut ids_of_other);
            prop_assert_eq!(&one.progress, &other.progress);
        }
        prop_assert_eq!(one.history, other.history);
    }
}
