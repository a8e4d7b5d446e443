use super::expr::Expr;
use super::properties::{ended, gate, graph, ids, job, node};
use super::*;
use crate::id::JobId;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A run that is advanced by names.
pub(super) struct Run {
    graph: Graph,
    pub(super) progress: Progress,
    inputs: Value,
    new_job: Box<dyn FnMut() -> JobId>,
}

impl Run {
    pub(super) fn new(nodes: Vec<Node>) -> Self {
        let graph = graph(nodes);
        graph.check().unwrap();
        let progress = Progress::new(&graph);
        let mut run = Self { graph, progress, inputs: json!({}), new_job: Box::new(ids()) };
        run.advance(Vec::new());
        run
    }

    pub(super) fn advance(&mut self, happened: Vec<Happened>) -> Vec<Event> {
        advance(&self.graph, &mut self.progress, &self.inputs, happened, &mut self.new_job)
    }

    pub(super) fn at(&self, id: &str) -> &NodeProgress {
        &self.progress.nodes[self.graph.find(id).unwrap()]
    }

    pub(super) fn end(&mut self, id: &str, outcome: Outcome, outputs: &[(&str, &str)]) -> Vec<Event> {
        let one = self.at(id).instances.iter().find(|one| one.job.is_some() && one.outcome.is_none());
        let job = one.and_then(|one| one.job).unwrap_or_else(|| panic!("{id} does not run"));
        let outputs = outputs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.advance(vec![Happened::JobEnded { job, end: End { outcome, error: None, outputs } }])
    }

    pub(super) fn succeed(&mut self, id: &str) -> Vec<Event> {
        self.end(id, Outcome::Succeeded, &[])
    }

    /// Those that run, in the order of the graph.
    pub(super) fn running(&self) -> Vec<&str> {
        let nodes = self.graph.nodes.iter().zip(&self.progress.nodes);
        nodes.filter(|(_, progress)| progress.running() > 0).map(|(node, _)| node.id.as_str()).collect()
    }

    fn outcomes(&self) -> Vec<Option<Outcome>> {
        self.progress.nodes.iter().map(|node| node.outcome).collect()
    }
}

pub(super) fn when(text: &str, node: Node) -> Node {
    Node { condition: Some(Expr::parse(text).unwrap()), ..node }
}

pub(super) fn rows(count: usize) -> Source {
    Source::Rows((0..count).map(|n| Map::from_iter([("n".to_owned(), json!(n))])).collect())
}

pub(super) fn matrix(source: Source, fail_fast: bool, parallel_max: Option<u32>, node: Node) -> Node {
    Node { matrix: Some(Matrix { source, fail_fast, parallel_max }), ..node }
}

#[test]
fn a_run_of_which_a_job_was_cancelled_by_hand_has_not_succeeded() {
    let mut run = Run::new(vec![node("a", &[]), node("b", &[0])]);
    run.end("a", Outcome::Cancelled, &[]);
    assert_eq!(run.outcomes(), [Some(Outcome::Cancelled), Some(Outcome::Skipped)]);
    assert_eq!(run.progress.result, Some(Outcome::Cancelled));
    let mut run = Run::new(vec![Node { continue_on_error: true, ..node("a", &[]) }]);
    run.end("a", Outcome::Cancelled, &[]);
    assert_eq!(run.progress.result, Some(Outcome::Succeeded), "it does not count");
}

#[test]
fn a_diamond_runs_in_its_order() {
    let mut run = Run::new(vec![node("a", &[]), node("b", &[0]), node("c", &[0]), node("d", &[1, 2])]);
    assert_eq!(run.running(), ["a"]);
    run.succeed("a");
    assert_eq!(run.running(), ["b", "c"]);
    run.succeed("c");
    assert_eq!(run.running(), ["b"]);
    run.succeed("b");
    assert_eq!(run.running(), ["d"]);
    let events = run.succeed("d");
    assert_eq!(events.last(), Some(&Event::Finished { result: Outcome::Succeeded }));
}

#[test]
fn a_failure_skips_what_comes_after_and_says_why() {
    let mut run = Run::new(vec![node("a", &[]), node("b", &[0]), node("c", &[1]), node("d", &[])]);
    run.end("a", Outcome::Failed, &[]);
    assert_eq!(run.at("b").skip, Some(Skip::Need { node: 0, outcome: Outcome::Failed }));
    assert_eq!(run.at("c").skip, Some(Skip::Need { node: 1, outcome: Outcome::Skipped }));
    assert_eq!(run.running(), ["d"]);
    run.succeed("d");
    assert_eq!(run.progress.result, Some(Outcome::Failed));
}

#[test]
fn a_failure_that_is_forgiven_stops_nobody() {
    let lenient = Node { continue_on_error: true, ..node("a", &[]) };
    let mut run = Run::new(vec![lenient, node("b", &[0]), when("failure()", node("c", &[0]))]);
    run.end("a", Outcome::Failed, &[]);
    assert_eq!(run.running(), ["b"]);
    assert_eq!(run.at("c").skip, Some(Skip::Condition));
    run.succeed("b");
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));
}

#[test]
fn conditions_see_what_happened_before() {
    let mut run = Run::new(vec![
        node("a", &[]),
        node("b", &[0]),
        when("failure()", node("alarm", &[1])),
        when("always()", node("clean", &[1])),
        when("needs.a.outputs.deploy == 'yes'", node("deploy", &[0])),
        when("needs.a.result == 'failed'", node("never", &[0])),
    ]);
    run.end("a", Outcome::Failed, &[("deploy", "yes")]);
    // A failure further up counts, too. A condition that does not ask means success as well.
    assert_eq!(run.running(), ["alarm", "clean"]);
    assert_eq!(run.at("deploy").skip, Some(Skip::Need { node: 0, outcome: Outcome::Failed }));
    assert_eq!(run.at("never").outcome, Some(Outcome::Skipped));
    let mut run = Run::new(vec![node("a", &[]), when("always() && false", node("b", &[0]))]);
    run.end("a", Outcome::Failed, &[]);
    assert_eq!(run.at("b").skip, Some(Skip::Condition));

    let mut run = Run::new(vec![node("a", &[]), when("needs.a.outputs.deploy == 'yes'", node("deploy", &[0]))]);
    run.end("a", Outcome::Succeeded, &[("deploy", "no")]);
    assert_eq!(run.at("deploy").skip, Some(Skip::Condition));
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));
}

#[test]
fn conditions_see_the_environment_of_the_graph_and_over_it_that_of_the_node() {
    let env =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let mut graph = graph(vec![when("env.A == 'node' && env.B == 'graph'", node("a", &[]))]);
    (graph.env, graph.nodes[0].env) = (env(&[("A", "graph"), ("B", "graph")]), env(&[("A", "node")]));
    let events = advance(&graph, &mut Progress::new(&graph), &json!({}), [], &mut ids());
    assert!(matches!(events[..], [Event::Begun, Event::Started { .. }]), "{events:?}");
}

#[test]
fn what_comes_twice_is_nothing_new() {
    let mut run = Run::new(vec![node("a", &[]), node("b", &[0])]);
    let job = run.at("a").instances[0].job.unwrap();
    let mut history = vec![Event::Begun, Event::Started { node: 0, instance: 0, job }];
    history.extend(run.succeed("a"));
    assert!(run.advance(vec![ended(job, Outcome::Failed)]).is_empty());
    let again = history[2].clone();
    history.push(again);
    assert_eq!(Progress::fold(&run.graph, &history), run.progress);
}

#[test]
fn needs_accept_what_they_say() {
    let accepts = Accepts { succeeded: false, failed: true, skipped: false, cancelled: false };
    let on_failure = Node { needs: vec![Need { node: 0, accepts }], ..node("b", &[]) };
    let mut run = Run::new(vec![node("a", &[]), on_failure.clone()]);
    run.end("a", Outcome::Failed, &[]);
    assert_eq!(run.running(), ["b"]);
    let mut run = Run::new(vec![node("a", &[]), on_failure]);
    run.succeed("a");
    assert_eq!(run.at("b").skip, Some(Skip::Need { node: 0, outcome: Outcome::Succeeded }));
}

#[test]
fn a_matrix_runs_so_many_at_once() {
    let mut run = Run::new(vec![matrix(rows(5), false, Some(2), node("a", &[])), node("b", &[0])]);
    assert_eq!(run.at("a").running(), 2);
    for _ in 0..4 {
        run.succeed("a");
        assert!(run.at("a").running() <= 2);
    }
    assert_eq!(run.running(), ["a"]);
    run.succeed("a");
    assert_eq!(run.running(), ["b"]);
}

#[test]
fn one_that_fails_takes_the_others_with_it_if_told_to() {
    let mut run = Run::new(vec![matrix(rows(3), true, Some(2), node("a", &[]))]);
    let events = run.end("a", Outcome::Failed, &[]);
    assert!(events.contains(&Event::Stopping { node: 0 }));
    // The one that runs is told to stop, the one that waits never starts.
    assert_eq!(run.at("a").running(), 1);
    assert_eq!(run.at("a").ended, 2);
    run.end("a", Outcome::Cancelled, &[]);
    assert_eq!(run.progress.result, Some(Outcome::Failed));

    let mut run = Run::new(vec![matrix(rows(3), false, Some(2), node("a", &[]))]);
    run.end("a", Outcome::Failed, &[]);
    assert_eq!(run.at("a").running(), 2);
}

#[test]
fn rows_come_from_what_a_job_says() {
    let from = |text: &str| Source::From(Expr::parse(text).unwrap());
    let nodes = || {
        vec![node("plan", &[]), matrix(from("needs.plan.outputs.list"), true, None, node("a", &[0])), node("b", &[1])]
    };
    let mut run = Run::new(nodes());
    run.end("plan", Outcome::Succeeded, &[("list", r#"[{"os":"linux"},7]"#)]);
    assert_eq!(
        run.at("a").rows,
        [json!({"os": "linux"}), json!({"value": 7})].map(|row| row.as_object().unwrap().clone())
    );
    assert_eq!(run.at("a").running(), 2);
    // None is as good as all of them done.
    let mut run = Run::new(nodes());
    run.end("plan", Outcome::Succeeded, &[("list", "[]")]);
    assert_eq!((run.at("a").outcome, run.at("a").skip.clone()), (Some(Outcome::Succeeded), Some(Skip::NoRows)));
    assert_eq!(run.running(), ["b"]);
    let many = format!("[{}]", vec!["1"; 1_001].join(","));
    for (list, why) in
        [("{", "is no JSON"), ("3", "is no list: a number"), (&many, "has 1001 rows, and 1000 are allowed")]
    {
        let mut run = Run::new(nodes());
        run.end("plan", Outcome::Succeeded, &[("list", list)]);
        let skip = run.at("a").skip.clone();
        assert!(matches!(&skip, Some(Skip::Matrix { message }) if message.contains(why)), "{skip:?}");
        assert_eq!(run.progress.result, Some(Outcome::Failed));
    }
    let mut run = Run::new(nodes());
    run.succeed("plan");
    assert!(matches!(&run.at("a").skip, Some(Skip::Matrix { message }) if message.contains("is not there")));
    // A text that is no JSON is told, as far as it helps.
    let expr = "fromJSON(needs.plan.outputs.list)";
    for (list, why) in [
        ("a, b".to_owned(), "is no JSON: expected value at line 1 column 1; it is given `a, b`"),
        (format!("[1,\n{}", "é".repeat(100)), "it is given `[1,\\né"),
    ] {
        let mut nodes = nodes();
        nodes[1].matrix.as_mut().unwrap().source = Source::From(Expr::parse(expr).unwrap());
        let mut run = Run::new(nodes);
        run.end("plan", Outcome::Succeeded, &[("list", &list)]);
        let Some(Skip::Matrix { message }) = &run.at("a").skip else { panic!("{:?}", run.at("a")) };
        assert!(message.starts_with(&format!("`{expr}` is no JSON")) && message.contains(why), "{message}");
        assert!(message.chars().count() < 200, "{message}");
    }
}

#[test]
fn nothing_starts_after_a_cancel() {
    let mut run = Run::new(vec![node("a", &[]), node("b", &[0]), when("always()", node("c", &[0])), node("d", &[])]);
    let reason = "enough".to_owned();
    run.advance(vec![Happened::Cancel { reason: reason.clone() }]);
    assert_eq!(run.running(), ["a", "d"]);
    assert_eq!((run.at("b").outcome, run.at("b").skip.clone()), (Some(Outcome::Cancelled), Some(Skip::Stopped)));
    assert!(run.advance(vec![Happened::Cancel { reason }, Happened::TimedOut]).is_empty());
    // One that was done before it heard of it has succeeded all the same.
    run.succeed("a");
    run.end("d", Outcome::Cancelled, &[]);
    assert_eq!(run.progress.result, Some(Outcome::Cancelled));
    assert_eq!(run.at("c").outcome, Some(Outcome::Cancelled));
    assert!(run.advance(vec![Happened::TimedOut]).is_empty());
}

#[test]
fn a_step_that_stops_a_run_starts_nothing() {
    let cancel = || Happened::Cancel { reason: "enough".to_owned() };
    let done = |run: &Run, id: &str| {
        let job = run.at(id).instances[0].job.unwrap();
        Happened::JobEnded { job, end: End { outcome: Outcome::Succeeded, error: None, outputs: BTreeMap::new() } }
    };
    let starts = |events: &[Event]| events.iter().filter(|event| matches!(event, Event::Started { .. })).count();
    for stop in [cancel(), Happened::TimedOut] {
        let line = matrix(rows(3), false, Some(1), node("m", &[]));
        let mut run = Run::new(vec![node("a", &[]), node("b", &[0]), line]);
        let happened = vec![done(&run, "a"), done(&run, "m"), stop];
        assert_eq!(starts(&run.advance(happened)), 0);
        assert_eq!(run.at("a").outcome, Some(Outcome::Succeeded), "what was done before counts");
        assert!(run.progress.result.is_some(), "nothing is left to wait for");
    }
    // Run once more, and then stopped: in this order, and still without a start.
    let mut run = Run::new(vec![node("a", &[])]);
    run.succeed("a");
    assert_eq!(starts(&run.advance(vec![Happened::Rerun { nodes: vec![0], keep_rows: false }, cancel()])), 0);
    assert_eq!((run.at("a").outcome, run.progress.result), (Some(Outcome::Cancelled), Some(Outcome::Cancelled)));
}

#[test]
fn time_that_runs_out_is_a_failure() {
    let mut run = Run::new(vec![node("a", &[]), node("b", &[0])]);
    run.advance(vec![Happened::TimedOut]);
    run.end("a", Outcome::Cancelled, &[]);
    assert_eq!(run.progress.result, Some(Outcome::Failed));
}

#[test]
fn what_failed_is_run_again_with_all_that_comes_after() {
    let mut run = Run::new(vec![node("a", &[]), node("b", &[0]), node("c", &[1]), node("d", &[0])]);
    run.end("a", Outcome::Succeeded, &[("k", "v")]);
    let old = run.at("b").instances[0].job.unwrap();
    run.end("b", Outcome::Failed, &[]);
    // While it runs there is nothing to run again.
    let nodes = reruns(&run.progress);
    assert!(run.advance(vec![Happened::Rerun { nodes, keep_rows: true }]).is_empty());
    run.succeed("d");
    assert_eq!(run.progress.result, Some(Outcome::Failed));
    run.advance(vec![Happened::Rerun { nodes: reruns(&run.progress), keep_rows: true }]);
    assert_eq!(run.running(), ["b"]);
    assert_eq!(run.outcomes(), [Some(Outcome::Succeeded), None, None, Some(Outcome::Succeeded)]);
    assert_eq!((run.at("b").reruns, run.at("d").reruns, &run.at("a").outputs["k"]), (1, 0, &"v".to_owned()));
    // What the old job still says is of no interest.
    assert!(run.advance(vec![ended(old, Outcome::Failed)]).is_empty());
    run.succeed("b");
    run.succeed("c");
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));
    run.advance(vec![Happened::Rerun { nodes: vec![1], keep_rows: false }]);
    assert_eq!(run.running(), ["b"]);
}

#[test]
fn a_sub_graph_is_entered_and_left_once() {
    let gate = Node { work: gate(), ..when("inputs.deploy", node("deploy/>", &[0])) };
    let inner = |id: &str, needs: &[usize]| Node { inside: Some(4), entrance: Some(1), ..node(id, needs) };
    let outputs = BTreeMap::from([("url".to_owned(), Expr::parse("needs.push.outputs.url").unwrap())]);
    let any = |node| Need { node, accepts: Accepts::ANY };
    let exit = Node { work: Work::Join { outputs }, needs: vec![any(2), any(3)], ..node("deploy", &[]) };
    let nodes = || {
        vec![
            node("build", &[]),
            gate.clone(),
            inner("deploy/push", &[1]),
            inner("deploy/test", &[2]),
            exit.clone(),
            node("z", &[4]),
        ]
    };
    let mut run = Run::new(nodes());
    run.inputs = json!({"deploy": true});
    run.succeed("build");
    assert_eq!(run.running(), ["deploy/push"]);
    run.end("deploy/push", Outcome::Succeeded, &[("url", "u")]);
    run.succeed("deploy/test");
    assert_eq!(run.at("deploy").outcome, Some(Outcome::Succeeded));
    assert_eq!(run.at("deploy").outputs["url"], "u");
    assert_eq!(run.running(), ["z"]);

    let mut run = Run::new(nodes());
    run.succeed("build");
    assert_eq!(run.at("deploy").outcome, Some(Outcome::Skipped));
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));

    // A sub-graph that is forgiven forgives what is in it.
    let mut lenient = nodes();
    lenient[4].continue_on_error = true;
    let mut run = Run::new(lenient);
    run.inputs = json!({"deploy": true});
    run.succeed("build");
    run.end("deploy/push", Outcome::Failed, &[]);
    assert_eq!(run.at("deploy").outcome, Some(Outcome::Failed));
    run.succeed("z");
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));
}

#[test]
fn a_graph_that_cannot_be_run_is_refused() {
    assert_eq!(graph(Vec::new()).check(), Err(Fault::Empty));
    assert_eq!(graph(vec![node("a", &[]), node("a", &[])]).check(), Err(Fault::Twice { id: "a".to_owned(), node: 1 }));
    assert_eq!(graph(vec![node("a", &[7])]).check(), Err(Fault::Missing { id: "a".to_owned(), need: 7 }));
    let circle = graph(vec![node("x", &[]), node("a", &[3]), node("b", &[1, 0]), node("c", &[2]), node("after", &[3])]);
    let error = circle.check().unwrap_err();
    assert_eq!(error.to_string(), "jobs wait for each other: a → b → c → a");
    assert_eq!(graph(vec![node("a", &[0])]).check().unwrap_err().to_string(), "jobs wait for each other: a → a");
    let many = (0..=NODES_MAX).map(|n| node(&n.to_string(), &[])).collect();
    assert!(graph(many).check().unwrap_err().to_string().contains("10001 jobs, and 10000 are allowed"));
    let wide = vec![matrix(rows(1_001), true, None, node("a", &[]))];
    assert!(graph(wide).check().unwrap_err().to_string().contains("1001 rows in one matrix, and 1000"));
    let deep =
        (0..NODES_MAX).map(|n| node(&n.to_string(), &[n + 1])).chain([node("last", &[])]).skip(1).collect::<Vec<_>>();
    assert!(graph(deep).check().is_err());
}

#[test]
fn a_join_needs_no_job_of_its_own() {
    assert!(matches!(job(), Work::Job(_)));
    let all = Node { work: Work::Join { outputs: BTreeMap::new() }, ..node("all", &[0, 1]) };
    let mut run = Run::new(vec![node("a", &[]), node("b", &[]), all]);
    run.succeed("a");
    run.end("b", Outcome::Failed, &[]);
    assert_eq!(run.at("all").outcome, Some(Outcome::Failed));
    assert!(run.at("all").instances.is_empty());
}

#[test]
fn what_never_runs_is_foreseen() {
    let graph = graph(vec![
        node("a", &[]),
        when("inputs.deploy && needs.a.outputs.x", node("b", &[0])),
        node("c", &[1]),
        when("always()", node("d", &[1])),
        when("needs.a.outputs.x || !inputs.deploy", node("e", &[0])),
        when("success() && inputs.deploy", node("f", &[])),
        when("failure() || inputs.none == null", node("g", &[0])),
        Node { work: Work::Join { outputs: BTreeMap::new() }, ..node("h", &[1, 2]) },
        Node { work: Work::Join { outputs: BTreeMap::new() }, ..node("i", &[0, 2]) },
        Node { needs: vec![Need { node: 1, accepts: Accepts::ANY }], ..node("j", &[]) },
    ]);
    let because = |node| Some(Skip::Need { node, outcome: Outcome::Skipped });
    let expected =
        [None, Some(Skip::Condition), because(1), None, None, Some(Skip::Condition), None, because(1), None, None];
    assert_eq!(foresee(&graph, &json!({"deploy": false})).unwrap(), expected);
    assert!(foresee(&graph, &json!({"deploy": true})).unwrap().iter().all(Option::is_none));
    assert_eq!(graph.levels().unwrap(), [0, 1, 2, 2, 1, 0, 1, 3, 3, 2]);
    assert_eq!(graph.places()["j"], 9);
}

#[test]
fn a_sub_graph_reads_what_it_was_given() {
    let given = json!({"n": 3, "who": "${{ needs.a.outputs.name }}", "list": ["${{ inputs.x }}"]});
    let gate = Node { work: Work::Gate { inputs: given.as_object().unwrap().clone() }, ..node("s/>", &[0]) };
    let inner = |id: &str, needs: &[usize]| Node { inside: Some(5), entrance: Some(1), ..node(id, needs) };
    let exit = Node {
        work: Work::Join { outputs: BTreeMap::new() },
        needs: (2..5).map(|node| Need { node, accepts: Accepts::ANY }).collect(),
        ..node("s", &[])
    };
    let mut run = Run::new(vec![
        node("a", &[]),
        gate,
        when("inputs.n == 3 && inputs.who == 'ada' && inputs.list[0] == 'run'", inner("s/yes", &[1])),
        when("inputs.x == 'run'", inner("s/no", &[1])),
        when("always()", inner("s/always", &[2])),
        exit,
    ]);
    run.inputs = json!({"x": "run"});
    run.end("a", Outcome::Succeeded, &[("name", "ada")]);
    // What the run was given is not seen inside.
    assert_eq!((run.running(), run.at("s/no").outcome), (vec!["s/yes"], Some(Outcome::Skipped)));
    assert_eq!(run.at("s/>").outputs["n"], "3");
    let mut run = Run { progress: Progress::new(&run.graph), ..run };
    run.advance(Vec::new());
    run.end("a", Outcome::Failed, &[]);
    let shut = Some(Skip::Need { node: 1, outcome: Outcome::Skipped });
    assert_eq!((run.at("s/always").skip.clone(), run.at("s/yes").skip.clone()), (shut.clone(), shut));
    assert_eq!(run.at("s").outcome, Some(Outcome::Skipped));
}

#[test]
fn doors_that_are_none_are_refused() {
    let lost = |entrance, inside| Node { inside, entrance, ..node("a", &[]) };
    for node in [lost(Some(7), None), lost(None, Some(7)), lost(Some(0), None), lost(None, Some(0))] {
        let fault = graph(vec![node]).check().unwrap_err();
        assert_eq!(fault.to_string(), "job `a` belongs to a sub-graph, and there is none");
    }
}
