//! Workflows that use others, read and run.

use super::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass_core::graph::{End, Event, Graph, Happened, Outcome, Progress, Skip, Work, advance, foresee};
use windlass_core::id::JobId;

const DEPLOY: &str = "
inputs:
  stage: { required: true }
  count: { type: number, default: 1 }
  dry: { type: boolean, default: false }
outputs:
  url: ${{ jobs.push.outputs.url }}
  stage: { description: as given, value: inputs.stage }
env: { A: inner, B: inner }
jobs:
  push: { kind: push, with: { stage: \"${{ inputs.stage }}\", count: \"${{ inputs.count }}\" }, env: { B: job } }
  clean: { needs: push, if: always(), run: x }
  dry: { if: inputs.dry, run: x }
";

const MAIN: &str = "
queue: builds
inputs: { deploy: { type: boolean, default: true } }
env: { A: outer }
jobs:
  build: { run: x, outputs: [n] }
  live:
    name: Live
    needs: build
    if: inputs.deploy
    uses: ./sub/deploy.yml
    with: { stage: live, count: \"${{ needs.build.outputs.n }}\" }
  tell: { needs: live, kind: tell, with: { url: \"${{ needs.live.outputs.url }}\" } }
";

fn load<'f>(files: &'f [(&'f str, &'f str)]) -> impl Fn(&str) -> Result<String, String> + 'f {
    move |path| {
        let found = files.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "no such file".to_owned())
    }
}

fn good(text: &str, files: &[(&str, &str)]) -> Workflow {
    schema_tests::assert_fits(text);
    files.iter().for_each(|(_, text)| schema_tests::assert_fits(text));
    read_with("dir/ci.yml", text, &load(files)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn bad(text: &str, files: &[(&str, &str)]) -> String {
    read_with("dir/ci.yml", text, &load(files)).expect_err(text).to_string()
}

/// A run in which jobs end as they are told to, by name.
struct Run {
    graph: Graph,
    progress: Progress,
    inputs: Value,
    ids: u128,
}

impl Run {
    fn new(workflow: &Workflow, inputs: Value) -> Self {
        let graph = workflow.graph.clone();
        let mut run = Self { progress: Progress::new(&graph), graph, inputs, ids: 0 };
        run.advance(Vec::new());
        run
    }

    fn advance(&mut self, happened: Vec<Happened>) -> Vec<Event> {
        let Self { graph, progress, inputs, ids } = self;
        advance(graph, progress, inputs, happened, &mut || {
            *ids += 1;
            JobId::from_parts(0, *ids)
        })
    }

    fn end(&mut self, id: &str, outcome: Outcome, outputs: &[(&str, &str)]) {
        let at = self.graph.find(id).unwrap();
        let job = self.progress.nodes[at].instances.first().and_then(|one| one.job);
        let job = job.unwrap_or_else(|| panic!("{id} does not run: {:?}", self.progress.nodes[at]));
        let outputs: BTreeMap<String, String> =
            outputs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.advance(vec![Happened::JobEnded { job, end: End { outcome, error: None, outputs } }]);
    }

    fn outcome(&self, id: &str) -> Option<Outcome> {
        self.progress.nodes[self.graph.find(id).unwrap()].outcome
    }

    /// The payload of a job, filled in.
    fn payload(&self, id: &str) -> Value {
        let node = self.graph.find(id).unwrap();
        let Work::Job(job) = &self.graph.nodes[node].work else { panic!("{id}") };
        let scope = windlass_core::graph::NodeScope {
            graph: &self.graph,
            progress: &self.progress,
            inputs: &self.inputs,
            node,
            row: None,
        };
        windlass_core::graph::Template::fill_all(&job.payload, &scope)
    }
}

#[test]
fn a_workflow_within_another_has_a_door_in_and_a_door_out() {
    let workflow = good(MAIN, &[("sub/deploy.yml", DEPLOY)]);
    let ids: Vec<&str> = workflow.graph.nodes.iter().map(|node| node.id.as_str()).collect();
    assert_eq!(ids, ["build", "live/>", "live/push", "live/clean", "live/dry", "live", "tell"]);
    let [_, gate, push, clean, dry, exit, tell] = &workflow.graph.nodes[..] else { panic!() };
    let needs = |node: &windlass_core::graph::Node| node.needs.iter().map(|need| need.node).collect::<Vec<_>>();
    assert_eq!((needs(gate), needs(push), needs(clean), needs(dry)), (vec![0], vec![1], vec![2], vec![1]));
    assert_eq!((needs(exit), needs(tell)), (vec![2, 3, 4], vec![5]));
    assert_eq!((push.inside, push.entrance, exit.inside, exit.entrance), (Some(5), Some(1), None, Some(1)));
    assert_eq!(
        (exit.title.as_deref(), gate.condition.is_some(), exit.condition.is_some()),
        (Some("Live"), true, false)
    );
    assert_eq!((push.env["A"].as_str(), push.env["B"].as_str()), ("inner", "job"));
    let Work::Job(job) = &push.work else { panic!() };
    assert_eq!(job.queue.as_str(), "builds");
}

#[test]
fn it_reads_what_it_was_given_and_tells_what_it_says() {
    let mut run = Run::new(&good(MAIN, &[("sub/deploy.yml", DEPLOY)]), json!({"deploy": true}));
    run.end("build", Outcome::Succeeded, &[("n", "3")]);
    assert_eq!(run.payload("live/push"), json!({"stage": "live", "count": "3"}));
    assert_eq!(run.outcome("live/dry"), Some(Outcome::Skipped));
    run.end("live/push", Outcome::Succeeded, &[("url", "https://x")]);
    run.end("live/clean", Outcome::Succeeded, &[]);
    let exit = &run.progress.nodes[run.graph.find("live").unwrap()];
    assert_eq!(exit.outputs, BTreeMap::from([("stage".into(), "live".into()), ("url".into(), "https://x".into())]));
    assert_eq!(run.payload("tell"), json!({"url": "https://x"}));
    run.end("tell", Outcome::Succeeded, &[]);
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));
    // A number that is written down stays one, and so does a default.
    let literal = MAIN.replace("\"${{ needs.build.outputs.n }}\"", "7");
    let mut run = Run::new(&good(&literal, &[("sub/deploy.yml", DEPLOY)]), json!({"deploy": true}));
    run.end("build", Outcome::Succeeded, &[]);
    assert_eq!(run.payload("live/push"), json!({"stage": "live", "count": 7}));
}

#[test]
fn what_is_not_entered_is_skipped_whatever_it_says_itself() {
    let workflow = good(MAIN, &[("sub/deploy.yml", DEPLOY)]);
    let mut run = Run::new(&workflow, json!({"deploy": false}));
    run.end("build", Outcome::Succeeded, &[]);
    for id in ["live/>", "live/push", "live/clean", "live/dry", "live", "tell"] {
        assert_eq!(run.outcome(id), Some(Outcome::Skipped), "{id}");
    }
    let shut = Some(Skip::Need { node: 1, outcome: Outcome::Skipped });
    for id in ["live/push", "live/clean", "live/dry", "live"] {
        assert_eq!(run.progress.nodes[run.graph.find(id).unwrap()].skip, shut, "{id}");
    }
    let skips = foresee(&workflow.graph, &json!({"deploy": false})).unwrap();
    assert_eq!((&skips[1], &skips[3], &skips[5]), (&Some(Skip::Condition), &shut, &shut));
    assert!(skips[6].is_some());
    // What the inside is given is foreseen where it can be.
    let skips = foresee(&workflow.graph, &json!({"deploy": true})).unwrap();
    assert_eq!(skips, [None, None, None, None, Some(Skip::Condition), None, None]);

    // It fails as what is in it does.
    let mut run = Run::new(&workflow, json!({"deploy": true}));
    run.end("build", Outcome::Succeeded, &[]);
    run.end("live/push", Outcome::Failed, &[]);
    run.end("live/clean", Outcome::Succeeded, &[]);
    assert_eq!((run.outcome("live"), run.outcome("tell")), (Some(Outcome::Failed), Some(Outcome::Skipped)));
}

#[test]
fn they_lie_in_each_other() {
    let main = "inputs: { top: { default: t } }\njobs:\n  a: { uses: ./x/mid.yml, with: { m: \"${{ inputs.top }}1\" } }\n  b: { needs: a, kind: k, with: { got: \"${{ needs.a.outputs.o }}\" } }\n";
    let mid = "inputs: { m: { required: true } }\noutputs: { o: jobs.c.outputs.p }\njobs:\n  first: { run: x, outputs: [q] }\n  c: { needs: first, uses: ../y/leaf.yml, with: { l: \"${{ inputs.m }}${{ needs.first.outputs.q }}\" } }\n";
    let leaf = "inputs: { l: }\noutputs: { p: jobs.k.outputs.z }\njobs: { k: { kind: k, with: { l: \"${{ inputs.l }}\" } } }\n";
    let workflow = good(main, &[("x/mid.yml", mid), ("y/leaf.yml", leaf)]);
    let mut run = Run::new(&workflow, json!({"top": "t"}));
    run.end("a/first", Outcome::Succeeded, &[("q", "2")]);
    assert_eq!(run.payload("a/c/k"), json!({"l": "t12"}));
    run.end("a/c/k", Outcome::Succeeded, &[("z", "deep")]);
    assert_eq!(run.payload("b"), json!({"got": "deep"}));
    // All of it skipped inside is skipped outside, though the doors were open.
    let never = leaf.replace("kind: k,", "kind: k, if: false,");
    let only = "inputs: { m: }\njobs: { c: { uses: ../y/leaf.yml } }\n";
    let run = Run::new(&good(main, &[("x/mid.yml", only), ("y/leaf.yml", &never)]), json!({}));
    assert_eq!((run.outcome("a/c/>"), run.outcome("a/c")), (Some(Outcome::Succeeded), Some(Outcome::Skipped)));
    assert_eq!((run.outcome("a"), run.outcome("b")), (Some(Outcome::Skipped), Some(Outcome::Skipped)));
    let stored: Graph = serde_json::from_str(&serde_json::to_string(&workflow.graph).unwrap()).unwrap();
    assert_eq!(stored, workflow.graph);
}

#[test]
fn what_cannot_be_used_is_told() {
    let uses = |path: &str| format!("jobs: {{ a: {{ uses: {path} }} }}");
    let ok = ("o.yml", "jobs: { x: { run: y } }");
    for (text, files, words) in [
        (uses("o.yml"), vec![ok], "this names no file"),
        (uses("/o.yml"), vec![ok], "./other.yml"),
        (uses("../o.yml"), vec![ok], "leaves the folder"),
        (uses("./x/../../o.yml"), vec![ok], "leaves the folder"),
        (uses("./none.yml"), vec![ok], "dir/none.yml cannot be read: no such file"),
        (uses("./ci.yml"), vec![ok], "workflows use each other: ci.yml → ci.yml"),
        (uses("./o.yml, run: x"), vec![ok], "`run` is not for a job that uses a workflow"),
        (uses("./o.yml, retries: 1"), vec![ok], "`retries` is not for a job"),
        (uses("./o.yml, strategy: { matrix: { a: [1] } }"), vec![ok], "`strategy` is not for a job"),
        (uses("./o.yml, with: { x: 1 }"), vec![ok], "it has no input `x`"),
        (uses("./o.yml, with: { stag: 1, stage: a, count: x }"), vec![("o.yml", DEPLOY)], "did you mean `stage`?"),
        (uses("./o.yml, with: { stage: a, count: x }"), vec![("o.yml", DEPLOY)], "no value of the input's type"),
        (uses("./o.yml, with: { stage: a, dry: 1 }"), vec![("o.yml", DEPLOY)], "write true or false"),
        (uses("./o.yml"), vec![("o.yml", DEPLOY)], "the input `stage` must be given"),
        (uses("./o.yml, with: { stage: \"${{ inputs.x }}\" }"), vec![("o.yml", DEPLOY)], "there is no input `x`"),
        (
            uses("./o.yml"),
            vec![("o.yml", "jobs: { x: { uses: ./p.yml } }"), ("p.yml", "jobs: { x: { uses: ./o.yml } }")],
            "workflows use each other: o.yml → p.yml → o.yml",
        ),
    ] {
        let said = bad(&text, &files);
        assert!(said.contains(words), "{text}\n{said}");
    }
    assert!(read("x", &uses("./o.yml")).unwrap_err().to_string().contains("other files cannot be read from here"));
}

#[test]
fn faults_of_used_files_are_drawn_into_them() {
    let main = "jobs: { a: { uses: ./o.yml }, b: { uses: ./o.yml } }";
    let problems = read_with("dir/ci.yml", main, &load(&[("o.yml", "jobs:\n  x: { rum: y }\n")])).unwrap_err();
    assert_eq!((problems.count(), problems.used.len()), (3, 1), "{problems}");
    let said = problems.to_string();
    assert!(said.contains("dir/ci.yml:1:20") && said.contains("there are faults in `./o.yml`"), "{said}");
    assert!(said.contains("dir/o.yml:2:8") && said.contains("did you mean `run`?"), "{said}");
}

#[test]
fn depth_and_size_are_bounded_for_the_whole() {
    let deep = |levels: usize| {
        let mut files: Vec<(String, String)> =
            (1..levels).map(|n| (format!("{n}.yml"), format!("jobs: {{ a: {{ uses: ./{}.yml }} }}", n + 1))).collect();
        files.push((format!("{levels}.yml"), "jobs: { a: { run: x } }".to_owned()));
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        read_with("ci.yml", "jobs: { a: { uses: ./1.yml } }", &load(&files))
    };
    assert_eq!(deep(8).unwrap().graph.nodes.len(), 17);
    assert!(deep(9).unwrap_err().to_string().contains("deeper than 8"));
    // Ten times ten times ten, and so on.
    let ten = |to: &str| (0..10).map(|n| format!("j{n}: {{ uses: ./{to}.yml }}")).collect::<Vec<_>>().join(", ");
    let file = |to: &str| format!("jobs: {{ {} }}", ten(to));
    let (a, b, c) = (file("b"), file("c"), file("d"));
    let files = [("a.yml", &a[..]), ("b.yml", &b), ("c.yml", &c), ("d.yml", "jobs: { x: { run: y } }")];
    let said = bad(&file("a"), &files);
    assert!(said.contains("jobs, and 10000 are allowed"), "{said}");
}

#[test]
fn a_workflow_that_is_used_twice_uploads_under_two_names() {
    let main = "jobs:\n  a: { uses: ./o.yml, with: { n: 1 } }\n  b: { uses: ./o.yml, with: { n: 2 } }\n";
    let inner = |name: &str| {
        format!("inputs: {{ n: }}\njobs: {{ x: {{ run: y, artifacts: {{ upload: {{ '{name}': g }} }} }} }}")
    };
    let said = bad(main, &[("o.yml", &inner("g"))]);
    assert!(said.contains("`a/x` uploads `g`, too") && said.contains("ci.yml:3:3"), "{said}");
    good(main, &[("o.yml", &inner("g-${{ inputs.n }}"))]);
}

#[test]
fn a_workflow_that_is_used_too_often_for_its_bytes_is_refused_where_it_is_used() {
    let large = "x".repeat(1 << 20);
    let jobs: String = (0..20).map(|n| format!("  u{n}: {{ uses: ./in.yml }}\n")).collect();
    let outer = format!("jobs:\n{jobs}");
    let inner = format!("jobs: {{ a: {{ run: {large} }} }}");
    let words = bad(&outer, &[("in.yml", &inner)]);
    assert!(words.contains("with this one the workflow comes to more than 16777216 bytes"), "{words}");
    assert!(words.contains("u15: { uses"), "{words}");
    let inner = format!("env: {{ A: {large} }}\njobs: {{ {} }}", "a: { run: x }, b: { run: x }");
    let words = bad(&outer, &[("in.yml", &inner)]);
    assert!(words.contains("u5: { uses"), "each job has the environment: {words}");
}
