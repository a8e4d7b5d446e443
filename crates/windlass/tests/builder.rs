//! Graphs that are built in Rust: the same as those that are read, and refused for the same reasons.

#![cfg(feature = "yaml")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use support::{LONG, Running, memory};
use windlass::core::retry::RetryPolicy;
use windlass::core::store::RunState;
use windlass::graph::{Accepts, BuildError, GraphBuilder, Work, yaml};
use windlass::runs::{NewGraphRun, Runs};
use windlass::{Ctx, Job, JobError, Options, State, Worker};

#[derive(Debug, Serialize, Deserialize)]
struct Build {
    target: String,
}

impl Job for Build {
    const KIND: &'static str = "build";
    const QUEUE: &'static str = "ci";
    type Output = ();

    fn options(&self) -> Options {
        let retry = RetryPolicy::Exponential { base_ms: 2_000, factor: 3, cap_ms: 60_000, jitter_percent: 10 };
        Options::new()
            .attempts(3)
            .retry(retry)
            .timeout(Duration::from_secs(60))
            .priority(-5)
            .label("linux")
            .id("ignored")
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Say {
    text: String,
    #[serde(default)]
    times: u32,
}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = ();

    fn options(&self) -> Options {
        Options::new().attempts(1)
    }
}

fn say(text: &str) -> Say {
    Say { text: text.to_owned(), times: 1 }
}

const WRITTEN: &str = r#"
name: ship
env: { LEVEL: high }
timeout: 1h
jobs:
  build:
    kind: build
    queue: ci
    labels: [linux]
    priority: -5
    retry: { count: 2, delay: 2s, factor: 3, max-delay: 60s, jitter: 10 }
    timeout: 60s
    with: { target: x86 }
  lint:
    name: Lint everything
    steps:
      - run: cargo fmt --check
      - run: cargo clippy
    shell: bash
    working-directory: src
    outputs: [warnings]
    env: { STRICT: '1', VERSION: '${{ needs.build.outputs.version }}' }
    needs: [build]
    retries: 2
    continue-on-error: true
  each:
    needs: { build: , lint: any }
    if: needs.build.outputs.channel == 'stable'
    strategy:
      matrix: { os: [linux, mac] }
      fail-fast: false
      max-parallel: 1
    kind: say
    with: { text: '${{ matrix.os }}', times: 1 }
  grown:
    needs: { each: [succeeded, failed] }
    strategy: { matrix: '${{ fromJSON(needs.each.outputs.rows) }}' }
    kind: say
    with: { text: plain, times: '${{ fromJSON(matrix.value) }}' }
"#;

#[test]
fn what_is_built_is_what_is_read() {
    let mut g = GraphBuilder::new("ship");
    g.env("LEVEL", "high").timeout(Duration::from_secs(3_600));
    let build = g.job("build", &Build { target: "x86".to_owned() }).node();
    let lint = g
        .commands("lint", ["cargo fmt --check", "cargo clippy"])
        .title("Lint everything")
        .shell("bash")
        .working_directory("src")
        .outputs(["warnings"])
        .env("STRICT", "1")
        .env_from("VERSION", build.output("version"))
        .after(&build)
        .retries(2)
        .continue_on_error()
        .node();
    let each = g
        .job("each", &say(""))
        .after(&build)
        .after_any(&lint)
        .when("needs.build.outputs.channel == 'stable'")
        .matrix([json!({ "os": "linux" }), json!({ "os": "mac" })])
        .fail_fast(false)
        .max_parallel(1)
        .with("text", "matrix.os")
        .node();
    g.job("grown", &say("plain"))
        .after_accepting(&each, Accepts { failed: true, ..Accepts::default() })
        .matrix_from("${{ fromJSON(needs.each.outputs.rows) }}")
        .with("times", "fromJSON(matrix.value)");
    let built = g.finish().unwrap();
    let read = yaml::read("ship.yml", WRITTEN).unwrap_or_else(|problems| panic!("{problems}")).graph;
    for (built, read) in built.nodes.iter().zip(&read.nodes) {
        assert_eq!(built, read);
    }
    assert_eq!(built, read);
}

#[test]
fn files_to_hand_on_are_said_as_commands_read_them() {
    let mut g = GraphBuilder::new("files");
    g.commands("a", ["make"]).upload("dist", ["target/x", "*.log"]).upload("docs", ["doc"]).download("seed", ".");
    let graph = g.finish().unwrap();
    let Work::Job(job) = &graph.nodes[0].work else { panic!("it is a job") };
    let artifacts =
        json!({ "upload": { "dist": ["target/x", "*.log"], "docs": ["doc"] }, "download": { "seed": "." } });
    assert_eq!(job.payload["artifacts"], artifacts);
}

/// What `build` is told must be in the error.
#[track_caller]
fn refused(build: impl FnOnce(&mut GraphBuilder), words: &str) -> BuildError {
    let mut g = GraphBuilder::new("bad");
    build(&mut g);
    let error = g.finish().unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
    assert!(windlass::Error::from(error.clone()).to_string().contains(words));
    error
}

#[test]
fn what_cannot_be_run_is_refused() {
    #[derive(Serialize, Deserialize)]
    struct Late;
    impl Job for Late {
        const KIND: &'static str = "late";
        type Output = ();
        fn options(&self) -> Options {
            Options::new().delay(Duration::from_secs(1))
        }
    }

    refused(|_| (), "no jobs");
    refused(|g| drop(g.job("a/b", &say("")).node()), "`a/b` is no name for a job");
    refused(
        |g| {
            g.job("a", &say(""));
            g.job("a", &say(""));
        },
        "two jobs are called `a`",
    );
    refused(|g| drop(g.job("a", &say("")).when("needs.b.result ==").node()), "job `a`, in `needs.b.result ==`");
    refused(|g| drop(g.job("a", &say("")).with("text", "needs.").node()), "job `a`, in `needs.`");
    let unknown = refused(|g| drop(g.job("a", &say("")).when("needs.b.result == 'x'").node()), "after(&…)");
    assert!(matches!(unknown, BuildError::NotNeeded { name, read } if name == "a" && read == "b"));
    refused(
        |g| {
            let a = g.job("a", &say("")).node();
            g.job("b", &say("")).with("text", a.output("said"));
        },
        "job `b` reads `needs.a`",
    );
    refused(|g| drop(g.job("a", &Late).node()), "delay");
    refused(|g| drop(g.job("a", &Late).with("text", "inputs.x").node()), "delay");
    refused(|g| drop(g.job("a", &say("")).queue("no such\n").node()), "job `a`: ");
    refused(|g| drop(g.job("a", &say("")).shell("bash").node()), "only commands have it");
    refused(|g| drop(g.job("a", &say("")).fail_fast(true).node()), "say matrix before");
    refused(|g| drop(g.commands("a", ["echo ${{ inputs.x }}"]).node()), "env_from");
    refused(|g| drop(g.commands("a", [""; 0]).node()), "there are no commands");
    let rows = (0..1_001).map(|n| json!(n));
    refused(|g| drop(g.job("a", &say("")).matrix(rows).node()), "rows in one matrix");
}

#[test]
fn a_node_of_another_graph_is_refused() {
    let mut other = GraphBuilder::new("other");
    let theirs = other.job("theirs", &say("")).node();
    let error = refused(
        |g| {
            g.job("mine", &say(""));
            g.job("a", &say("")).after(&theirs);
        },
        "`theirs`, which is of another graph",
    );
    assert!(matches!(error, BuildError::Elsewhere { .. }));
}

type Said = Arc<parking_lot::Mutex<Vec<String>>>;

async fn says(job: Say, ctx: Ctx, State(said): State<Said>) -> Result<(), JobError> {
    said.lock().push(job.text.repeat(job.times.try_into()?));
    ctx.output("said", job.text);
    Ok(())
}

#[tokio::test]
async fn it_runs_and_a_text_that_looks_like_an_expression_stays_a_text() {
    let (store, _) = memory();
    let (runs, said) = (Runs::new(Arc::clone(&store)), Said::default());
    let mut g = GraphBuilder::new("texts");
    let first = g.job("first", &say("${{ inputs.secret }} ${{")).node();
    let second = g.job("second", &say("")).after(&first).with("text", first.output("said")).node();
    g.job("third", &say("")).after(&second).with("text", second.result()).with("times", "fromJSON('2')");
    let run = NewGraphRun::new(g.finish().unwrap()).inputs(json!({ "secret": "s3cr3t" }));
    let run = runs.start(run).await.unwrap();
    let working = Running::start(Worker::builder(store).state(Arc::clone(&said)).handle(says));
    let status = runs.wait(run, LONG).await.unwrap().expect("the run ends");
    assert_eq!(status.run.state, RunState::Succeeded, "{:?}", status.progress.nodes);
    let text = "${{ inputs.secret }} ${{";
    assert_eq!(*said.lock(), [text, text, "succeededsucceeded"]);
    working.drain().await;
}
