//! Runs of workflows in code, from the command line. A worker in this process executes them on the same file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::Scene;
use windlass::core::id::RunId;
use windlass::durable::{Error, Signal, Wf, workflow};
use windlass::{Job, JobError, Stopper, Worker};

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = u64)]
struct Charge {
    order: u64,
}

async fn charge(job: Charge) -> Result<u64, JobError> {
    if job.order == 13 {
        return Err(JobError::fatal("declined"));
    }
    Ok(job.order * 10)
}

#[derive(Serialize, Deserialize, Signal)]
struct Approve {
    by: String,
}

#[workflow]
async fn order(wf: Wf, id: u64) -> Result<String, Error> {
    let slip = wf.run_ok("slip", || async { format!("slip {id}") }).await?;
    let paid = wf.call(Charge { order: id }).await?;
    let approve = wf.recv::<Approve>().await?;
    Ok(format!("{slip}, {paid} paid, approved by {}", approve.by))
}

#[workflow]
async fn refuses(_wf: Wf, text: String) -> Result<(), Error> {
    Err(text.into())
}

#[workflow]
async fn promised(wf: Wf, _: ()) -> Result<u64, Error> {
    let promise = wf.promise::<u64>();
    let token = promise.token().to_string();
    wf.run_ok("token", || async { token.clone() }).await?;
    Ok(promise.await?)
}

#[workflow]
async fn family(wf: Wf, depth: u64) -> Result<u64, Error> {
    if depth == 0 {
        wf.recv::<Approve>().await?;
        return Ok(0);
    }
    Ok(wf.child(family, depth - 1).await? + 1)
}

#[workflow]
async fn sleeps(wf: Wf, _: ()) -> Result<(), Error> {
    wf.sleep("1h").await?;
    Ok(())
}

#[workflow]
async fn steps(wf: Wf, count: u64) -> Result<u64, Error> {
    for _ in 0..count {
        wf.run_ok("step", async || ()).await?;
    }
    Ok(count)
}

/// A worker on a thread of its own, stopped with the test.
struct Working {
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Working {
    fn start(scene: &Scene) -> Self {
        let url = format!("sqlite://{}", scene.path("jobs.db").display());
        let (sender, stopper) = std::sync::mpsc::channel();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let builder = Worker::builder(windlass::open(&url).unwrap()).queue("shop").handle(charge);
                let builder = builder.workflow(order).workflow(refuses).workflow(promised).workflow(family);
                let worker = builder.workflow(sleeps).workflow(steps).history_cap(1_000).build().unwrap();
                sender.send(worker.stopper()).unwrap();
                worker.run_until_stopped().await.unwrap();
            });
        };
        let thread = std::thread::Builder::new().name("worker".to_owned()).spawn(run).unwrap();
        Self { stopper: stopper.recv().unwrap(), thread: Some(thread) }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.stopper.drain();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn shown(scene: &Scene, run: &str) -> Value {
    scene.run(&["runs", "show", run, "--json"]).ok().one()
}

/// Shows a run until it is as wanted. The limit of the test runner ends a run that never is.
fn shown_when(scene: &Scene, run: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let view = shown(scene, run);
        if wanted(&view) {
            return view;
        }
    }
}

/// The operations of this kind.
fn operations(view: &Value, kind: &str) -> Vec<Value> {
    let all = view["operations"].as_array().unwrap();
    all.iter().filter(|operation| operation["kind"] == kind).cloned().collect()
}

fn started(scene: &Scene, args: &[&str]) -> String {
    scene.run(&[&["runs", "start"], args].concat()).ok().out.trim().to_owned()
}

/// Lets an engine find a run stuck that nobody can execute.
fn stuck_by_its_input(scene: &Scene, id: &str) {
    started(scene, &["order", "\"no number\"", "--id", id]);
    shown_when(scene, id, |view| view["stuck"].is_string());
}

#[test]
fn slow_a_run_is_started_shown_signalled_and_returns_its_result() {
    let scene = Scene::new();
    let run = started(&scene, &["order", "7", "--id", "order-7", "--timeout", "1h", "--label", "tenant=acme"]);
    let id = RunId::named("order-7").to_string();
    assert_eq!(run, id);
    let view = shown(&scene, "order-7");
    assert_eq!((&view["workflow"], &view["version"], &view["input"]), (&json!("order"), &json!("1"), &json!(7)));
    assert_eq!(view["labels"], json!({ "tenant": "acme" }));
    assert!(view["deadline"].is_string() && view["operations"] == json!([]), "{view}");
    scene.run(&["runs", "history", "order-7"]).ok();

    let _worker = Working::start(&scene);
    let view =
        shown_when(&scene, "order-7", |view| operations(view, "call").iter().any(|call| call["state"] == "done"));
    let call = &operations(&view, "call")[0];
    assert_eq!((&call["name"], &call["value"], &call["job"]["queue"]), (&json!("charge"), &json!(70), &json!("shop")));
    assert!(call["place"].as_str().unwrap().contains("runs_code.rs:"), "{call}");
    assert_eq!(operations(&view, "step")[0]["value"], "slip 7");

    let signal = ["runs", "signal", "order-7", "approve", "{\"by\":\"ada\"}", "--message-id", "m1"];
    let said = scene.run(&[&signal[..], &["--json"]].concat()).ok().one();
    assert_eq!(said, json!({ "run": id, "signal": "approve" }));
    scene.run(&["runs", "follow", "order-7"]).ok().shows(&["the start", "call `charge`", "approved by ada"]);
    let said = scene.run(&["runs", "follow", "order-7", "--json"]).ok().json();
    let result = json!("slip 7, 70 paid, approved by ada");
    assert_eq!(said.last().unwrap()["result"], result);
    assert_eq!(shown(&scene, "order-7")["result"], result);
    let text = scene.run(&["runs", "show", "order-7"]).ok();
    text.shows(&[
        "order, version 1",
        "tenant=acme",
        "call charge",
        "signal approve",
        "slip 7, 70 paid",
        "runs_code.rs:",
    ]);

    let records = scene.run(&["runs", "history", "order-7", "--json"]).ok().json();
    let kinds: Vec<&str> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "stepped", "call", "done", "signal", "ok"]);
    assert_eq!(records[4]["body"], json!({ "by": "ada" }));
    let rest = scene.run(&["runs", "history", "order-7", "--json", "--from", "4"]).ok().json();
    assert_eq!(rest.len(), 2);

    // What has ended takes no messages, and its id is taken.
    scene.run(&signal).fails(5, &["has ended: succeeded", "windlass runs show"]);
    scene.run(&["runs", "terminate", "order-7"]).fails(5, &["nothing to terminate"]);
    scene.run(&["runs", "resume", "order-7"]).fails(5, &["--reuse if-ended"]);
    scene.run(&["runs", "cancel", "order-7"]).ok().shows(&["succeeded"]);
    scene.run(&["runs", "start", "order", "8", "--id", "order-7"]).fails(5, &["order-7", "--reuse"]);
    let again = ["runs", "start", "order", "8", "--id", "order-7", "--reuse"];
    scene.run(&[&again[..], &["if-not-succeeded"]].concat()).fails(5, &["order-7"]);
    scene.run(&[&again[..], &["if-ended"]].concat()).ok().shows(&[&id]);
}

#[test]
fn slow_a_start_waits_for_the_result_and_its_exit_code_is_that_of_the_run() {
    let scene = Scene::new();
    let _worker = {
        // The worker needs the file.
        started(&scene, &["sleeps", "--id", "sleeper", "--delay", "1h"]);
        Working::start(&scene)
    };
    let said = scene.run(&["runs", "start", "refuses", "\"no room\"", "--wait"]);
    assert_eq!(said.code, 1, "{said:?}");
    said.shows(&["failed in", "no room"]);
    let said = scene.run(&["runs", "start", "refuses@1", "--wait", "--json"]);
    assert!(said.code == 1, "a null is no text, so the run is stuck: {said:?}");
    std::fs::write(scene.path("input.json"), "\"from a file\"").unwrap();
    let said = scene.run(&["runs", "start", "refuses", "@input.json", "--follow", "--json"]);
    assert_eq!(said.json().last().unwrap()["error"], "from a file");
    let listed = scene.run(&["runs", "list", "--state", "failed", "--kind", "refuses", "--json"]).ok().json();
    assert_eq!(listed.len(), 2, "{listed:?}");
}

#[test]
fn slow_a_promise_is_resolved_by_its_token() {
    let scene = Scene::new();
    let run = started(&scene, &["promised"]);
    let _worker = Working::start(&scene);
    let view = shown_when(&scene, "latest", |view| !operations(view, "step").is_empty());
    let token = operations(&view, "step")[0]["value"].as_str().unwrap().to_owned();
    scene.run(&["runs", "resolve", &token, "nothing"]).fails(2, &["the value is not JSON"]);
    scene.run(&["runs", "resolve", &token, "42"]).ok().shows(&[&run]);
    scene.run(&["runs", "follow", &run]).ok().shows(&["succeeded", ": 42"]);
    assert_eq!(operations(&shown(&scene, &run), "promise").len(), 1);
}

#[test]
fn slow_children_stand_below_their_parents() {
    let scene = Scene::new();
    let root = started(&scene, &["family", "2", "--id", "root"]);
    let _worker = Working::start(&scene);
    let tree = loop {
        let tree = scene.run(&["runs", "tree", "root", "--json"]).ok().one();
        if tree["children"][0]["children"][0]["run"].is_string() {
            break tree;
        }
    };
    assert_eq!((&tree["run"], &tree["kind"]), (&json!(root), &json!("family@1")));
    let child = tree["children"][0]["run"].as_str().unwrap();
    let leaf = tree["children"][0]["children"][0]["run"].as_str().unwrap();
    scene.run(&["runs", "tree", "root", "--ascii"]).ok().shows(&["root", "`- ", child, leaf]);
    let listed = scene.run(&["runs", "list", "--parent", "root", "--json"]).ok().json();
    assert_eq!((listed.len(), &listed[0]["id"]), (1, &json!(child)));
    let view = shown(&scene, "root");
    assert_eq!(operations(&view, "child")[0]["child"]["state"], "running");
    scene.run(&["runs", "signal", leaf, "approve", "{\"by\":\"ada\"}"]).ok();
    scene.run(&["runs", "follow", "root"]).ok().shows(&["succeeded", ": 2"]);
}

#[test]
fn slow_runs_are_cancelled_terminated_and_listed_by_their_state() {
    let scene = Scene::new();
    for id in ["a", "b", "c"] {
        started(&scene, &["sleeps", "--id", id, "--label", &format!("name={id}")]);
    }
    let _worker = Working::start(&scene);
    let view = shown_when(&scene, "a", |view| !operations(view, "timer").is_empty());
    assert!(operations(&view, "timer")[0]["fires_at"].is_string(), "{view}");
    scene.run(&["runs", "show", "a"]).ok().shows(&["timer", "waiting", "fires in"]);
    scene.run(&["explain", "a"]).ok().shows(&["timer", "fires in"]);
    scene.run(&["runs", "cancel", "a", "--reason", "too late"]).ok();
    let view = shown_when(&scene, "a", |view| view["state"] != "running");
    assert_eq!(view["state"], "cancelled");
    assert_eq!(operations(&view, "cancel_request").len(), 1);
    scene.run(&["runs", "terminate", "b", "--reason", "a bad deploy"]).ok().shows(&["terminated"]);
    shown_when(&scene, "b", |view| view["summary"] == "terminated: a bad deploy");
    scene.run(&["runs", "show", "b"]).ok().shows(&["terminated: a bad deploy", "cancelled"]);
    scene.run(&["explain", "b"]).ok().shows(&["it has ended as terminated: a bad deploy"]);
    let listed = scene.run(&["runs", "list", "--state", "terminated", "--json"]).ok().json();
    assert_eq!((listed.len(), &listed[0]["name"]), (1, &json!("b")));
    let listed = scene.run(&["runs", "list", "--label", "name=c", "--json"]).ok().json();
    assert_eq!((listed.len(), &listed[0]["name"]), (1, &json!("c")));
    let timed_out = started(&scene, &["sleeps", "--timeout", "1ms"]);
    shown_when(&scene, &timed_out, |view| view["state"] == "timed_out");
    let listed = scene.run(&["runs", "list", "--state", "timed_out", "--json"]).ok().json();
    assert_eq!(listed[0]["id"], timed_out);
}

#[test]
fn slow_a_stuck_run_says_why_keeps_its_messages_and_is_resumed_or_terminated() {
    let scene = Scene::new();
    started(&scene, &["sleeps", "--id", "sleeper", "--delay", "1h"]);
    let _worker = Working::start(&scene);
    stuck_by_its_input(&scene, "bad");
    scene.run(&["runs", "show", "bad"]).ok().shows(&["stuck", "windlass runs resume", "windlass runs terminate"]);
    scene.run(&["runs", "follow", "bad"]).fails(1, &["is stuck", "windlass runs resume"]);
    let listed = scene.run(&["runs", "list", "--stuck", "--json"]).ok().json();
    assert_eq!((listed.len(), &listed[0]["name"]), (1, &json!("bad")));
    scene.run(&["runs", "signal", "bad", "approve"]).ok();
    assert_eq!(shown(&scene, "bad")["unread_messages"], 1);
    scene.run(&["runs", "show", "bad"]).ok().shows(&["1 message: signal approve"]);
    scene.run(&["doctor"]).ok().shows(&["1 run stuck, such as bad", "windlass runs list --stuck"]);
    scene.run(&["runs", "cancel", "bad"]).ok().shows(&["is stuck"]);
    // It may be open for a moment, until it is stuck again.
    let said = scene.run(&["runs", "resume", "bad"]);
    assert!(matches!(said.code, 0 | 5), "{said:?}");
    scene.run(&["runs", "terminate", "bad"]).ok();
    assert_eq!(shown(&scene, "bad")["state"], "terminated");
    scene.run(&["runs", "resume", "sleeper"]).fails(5, &["is not stuck"]);
}

#[test]
fn a_wrong_start_says_what_to_do_and_starts_nothing() {
    let scene = Scene::new();
    for (args, words) in [
        (&["order", "{"][..], &["the input is not JSON", "quote text"][..]),
        (&["order", "{\"a\":1,\"a\":2}"], &["the input is not JSON"]),
        (&["order", "@nowhere.json"], &["nowhere.json"]),
        (&["or\tder", "1"], &["control character"]),
        (&["order@two", "1"], &["order@2"]),
        (&["order", "1", "--id", "a\nb"], &["control character"]),
        (&["order", "1", "--id", ""], &["empty"]),
        (&["order", "1", "--delay", "soon"], &["500ms"]),
        (&["order", "1", "--label", "x"], &["x"]),
        (&["order", "1", "--label", "x=1", "--label", "x=2"], &["given twice"]),
        (&["order", "1", "--reuse", "if-ended"], &["--id"]),
        (&["order", "1", "--id", "a", "--reuse", "always"], &["if-not-succeeded"]),
        (&["order", "1", "--follow", "--wait"], &["--wait"]),
        (&["order", "1", "--dely", "5m"], &["--delay"]),
        (&[], &["KIND"]),
    ] {
        let said = scene.run(&[&["runs", "start"], args].concat()).fails(2, words);
        assert!(said.out.is_empty(), "{said:?}");
        scene.run(&[&["runs", "start"], args, &["--json"]].concat()).fails(2, &["\"exit_code\":2"]);
    }
    started(&scene, &["sleeps", "--id", "one"]);
    let listed = scene.run(&["runs", "list", "--json"]).ok().json();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(scene.run_with(&["runs", "start", "order", "-"], b"7").ok().code, 0);
    assert_eq!(shown(&scene, "latest")["input"], 7);
}

#[test]
fn messages_are_refused_where_nobody_can_read_them() {
    let scene = Scene::new();
    std::fs::write(scene.path("ci.yml"), "jobs: { a: { run: x } }").unwrap();
    scene.run(&["run", "ci.yml", "--detach", "--id", "graph"]).ok();
    started(&scene, &["sleeps", "--id", "code"]);
    scene.run(&["runs", "signal", "graph", "approve"]).fails(5, &["no workflow in code"]);
    let promise = format!("{}.00000000000000ff", RunId::named("graph"));
    scene.run(&["runs", "resolve", &promise, "1"]).fails(5, &["no workflow in code"]);
    scene.run(&["runs", "resolve", "nonsense", "1"]).fails(2, &["<run id>.<16 hexadecimal digits>"]);
    for verb in ["signal", "terminate", "history", "tree", "show", "cancel"] {
        let args: &[&str] = if verb == "signal" { &["nobody", "approve"] } else { &["nobody"] };
        scene.run(&[&["runs", verb], args].concat()).fails(4, &["there is no run `nobody`"]);
        let gone = RunId::named("nobody").to_string();
        let args: &[&str] = if verb == "signal" { &[&gone, "approve"] } else { &[&gone] };
        scene.run(&[&["runs", verb], args].concat()).fails(4, &["there is no run"]);
    }
    scene.run(&["runs", "signal", "code", "app\trove"]).fails(2, &["control character"]);
    scene.run(&["runs", "signal", "code", "approve", "{"]).fails(2, &["the body is not JSON"]);
    scene.run(&["runs", "signal", "code", "approve", "--message-id", ""]).fails(2, &["empty"]);
    for _ in 0..2 {
        scene.run(&["runs", "signal", "code", "approve", "1", "--message-id", "m1"]).ok();
    }
    assert_eq!(shown(&scene, "code")["unread_messages"], 1, "a repeated message is dropped");
    scene.run(&["runs", "rerun", "code", "--all"]).fails(5, &["does not follow a graph"]);
    scene.run(&["runs", "terminate", "graph"]).ok().shows(&["terminated"]);
    assert_eq!(shown(&scene, "graph")["state"], "terminated");
    scene.run(&["runs", "tree", "graph"]).ok().shows(&["terminated"]);
}

#[test]
fn a_failed_job_of_a_run_is_explained_without_advice_to_repeat_it() {
    let scene = Scene::new();
    let _worker = Working::start(&scene);
    started(&scene, &["order", "13", "--id", "declined"]);
    let view = shown_when(&scene, "declined", |view| view["state"] == "failed");
    let job = operations(&view, "call")[0]["job_id"].as_str().unwrap().to_owned();
    let explained = scene.run(&["explain", &job, "--json"]).ok().one();
    let text = explained["text"].as_str().unwrap();
    assert!(text.contains("declined") && text.contains("the run `declined`, which has ended as failed"), "{text}");
    assert_eq!(explained["hint"], format!("windlass runs show {}", view["id"].as_str().unwrap()));
}

#[test]
fn a_run_of_a_workflow_that_no_worker_has_is_explained() {
    let scene = Scene::new();
    started(&scene, &["nobody@3", "{}", "--id", "early"]);
    let why = "it waits for a worker that has the workflow `nobody@3`";
    scene.run(&["runs", "show", "early"]).ok().shows(&["running, has not started", why]);
    scene.run(&["explain", &RunId::named("early").to_string()]).ok().shows(&[why]);
}

#[test]
fn slow_a_run_at_the_cap_of_its_history_goes_on_with_another_cap() {
    let scene = Scene::new();
    let _worker = Working::start(&scene);
    let run = started(&scene, &["steps", "1500", "--id", "long"]);
    let view = shown_when(&scene, "long", |view| view["stuck"].is_string());
    let advice = format!("`windlass runs resume {run} --cap 2000`");
    assert!(view["stuck"].as_str().unwrap().contains(&advice), "{view}");
    scene.run(&["runs", "resume", "long", "--cap", "0"]).fails(2, &["0 is not in"]);
    scene.run(&["runs", "resume", "long", "--cap", "2000"]).ok();
    let view = shown_when(&scene, "long", |view| view["state"] == "succeeded");
    assert_eq!(view["result"], 1_500);
    let history = scene.run(&["runs", "history", "long"]).ok();
    history.shows(&["the cap of the history, 2000 records"]);
}
