//! What operators do with runs of workflows in code: discard, export, replay, look at many calls, and start by a schedule. The code
//! is executed by an engine in this process on the same file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use support::{Scene, claim, report, wait};
use windlass::core::id::RunId;
use windlass::core::job::Retry;
use windlass::core::store::{Outcome, RunMessage, RunStore};
use windlass::durable::{Error, Signal, Wf, join_all, typed, workflow};
use windlass::runs::Engine;
use windlass::{Job, Worker};

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "images")]
struct Resize {
    image: u64,
}

#[derive(Serialize, Deserialize, Signal)]
struct Approve {
    by: String,
}

#[workflow]
async fn approval(wf: Wf, _: Option<u64>) -> Result<String, Error> {
    Ok(wf.recv::<Approve>().await?.by)
}

#[workflow]
async fn gallery(wf: Wf, images: u64) -> Result<(), Error> {
    join_all((0..images).map(|image| wf.call(Resize { image }))).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(())
}

/// Lets an engine do what there is to do.
fn settle(scene: &Scene) {
    wait(async {
        let engine = Engine::new(Arc::new(scene.store())).unwrap();
        let mut engine = engine.workflows(vec![typed(approval), typed(gallery)], Some("test".to_owned())).unwrap();
        engine.settle().await.unwrap();
    });
}

fn shown(scene: &Scene, run: &str) -> Value {
    scene.run(&["runs", "show", run, "--json"]).ok().one()
}

fn send(scene: &Scene, run: &str, body: &str) {
    let message = RunMessage::new(RunId::named(run), body);
    wait(async { scene.store().send_to_runs(vec![message]).await.unwrap().remove(0).unwrap() });
}

#[test]
fn a_message_that_a_run_cannot_read_is_discarded() {
    let scene = Scene::new();
    scene.run(&["runs", "start", "approval", "--id", "a"]).ok();
    scene.run(&["runs", "discard", "a", "--yes"]).fails(5, &["is not stuck", "windlass runs show"]);
    scene.run(&["runs", "signal", "a", "approve", "{\"by\":7}"]).ok();
    send(&scene, "a", "{\"say\":\"da\\u001bnce\"}");
    settle(&scene);
    let stuck = |words: &str| {
        let view = shown(&scene, "a");
        assert!(view["stuck"].as_str().is_some_and(|stuck| stuck.starts_with(words)), "{view}");
    };
    // All messages are read before the code gets the first one.
    stuck("message 1 is not understood");
    scene.run(&["runs", "show", "a"]).ok().shows(&["windlass runs discard"]);

    // Nobody is there to say yes, and nothing is dropped.
    scene.run(&["runs", "discard", "a"]).fails(2, &["the message (message 1)", "--yes"]);
    scene.run(&["runs", "discard", "a", "--item", "7", "--yes"]).fails(4, &["such a message", "windlass runs export"]);
    scene.run(&["runs", "discard", "a", "--signal", "other", "--yes", "--json"]).fails(4, &["\"exit_code\":4"]);
    scene.run(&["runs", "discard", "a", "--signal", "x", "--item", "1"]).fails(2, &["--item"]);
    scene.run(&["runs", "discard", "nobody", "--yes"]).fails(4, &["there is no run `nobody`"]);
    assert_eq!(shown(&scene, "a")["unread_messages"], 2);
    let said = scene.run(&["runs", "discard", "a", "--yes"]).ok().shows(&["goes on without the message (message 1)"]);
    assert!(!said.out.contains('\u{1b}'), "{said:?}");
    settle(&scene);
    stuck("message 0 (record 2) does not decode");
    let said = scene.run(&["runs", "discard", "a", "--yes", "--json"]).ok().one();
    assert_eq!((&said["item"], &said["signal"], &said["record"]), (&json!(0), &json!("approve"), &Value::Null));
    assert!(said["text"].as_str().unwrap().contains("\"by\":7"), "{said}");

    scene.run(&["runs", "signal", "a", "approve", "{\"by\":\"ada\"}"]).ok();
    settle(&scene);
    let view = shown(&scene, "a");
    assert_eq!((&view["state"], &view["result"]), (&json!("succeeded"), &json!("ada")));
    let states: Vec<_> = view["operations"].as_array().unwrap().iter().map(|row| row["state"].clone()).collect();
    assert_eq!(states, ["discarded", "discarded", "done"]);
    scene.run(&["runs", "show", "a"]).ok().shows(&["discarded"]);
    scene
        .run(&["runs", "history", "a"])
        .ok()
        .shows(&["the discard of the signal `approve`", "the discard of a message"]);
    scene.run(&["runs", "discard", "a", "--yes"]).fails(5, &["has ended: succeeded"]);
}

#[test]
fn a_run_is_exported_and_its_history_is_shown_at_each_record() {
    let scene = Scene::new();
    scene.run(&["runs", "start", "gallery", "3", "--id", "g", "--label", "tenant=acme"]).ok();
    settle(&scene);
    scene.run(&["runs", "signal", "g", "approve", "{\"by\":\"ada\"}"]).ok();
    let text = scene.run(&["runs", "export", "g"]).ok().out;
    let export: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&export["format"], &export["version"]), (&json!("windlass.run"), &json!(1)));
    assert_eq!((&export["run"]["kind"], &export["input"]["json"]), (&json!("gallery@1"), &json!(3)));
    assert_eq!(export["history"].as_array().unwrap().len(), 4);
    assert_eq!(export["inbox"][0]["item"], "message");
    let said = scene.run(&["runs", "export", "g", "-o", "g.json", "--json"]).ok().one();
    assert_eq!((&said["file"], &said["history"], &said["inbox"]), (&json!("g.json"), &json!(4), &json!(1)));
    let file = std::fs::read_to_string(scene.path("g.json")).unwrap();
    let without_time =
        |text: &str| text.lines().filter(|line| !line.contains("exported_at")).collect::<Vec<_>>().join("\n");
    assert_eq!(without_time(&file), without_time(&text));
    scene.run(&["runs", "export", "nobody"]).fails(4, &["there is no run `nobody`"]);
    scene.run(&["runs", "export", "g", "-o", "no/such/folder.json"]).fails(1, &["no/such/folder.json"]);

    // No store is needed for what follows.
    let replay = |args: &[&str]| {
        let mut command = scene.command(&[&["replay", "g.json"], args].concat());
        support::said(command.env_remove("WINDLASS_STORE").output().unwrap())
    };
    let said = replay(&[]).ok().shows(&["gallery@1", "0 to 4 of 4", "call resize", "3 open", "runs_operate.rs:"]);
    assert!(said.err.contains("windlass::durable::Replay::of_file"), "{said:?}");
    let said = replay(&["--until", "2", "--json"]).ok().one();
    assert_eq!((&said["until"], &said["groups"][0]["open"], &said["history_len"]), (&json!(2), &json!(1), &json!(4)));
    let steps = replay(&["--steps", "--json"]).ok().json();
    let open: Vec<_> = steps.iter().map(|step| step["open"].clone()).collect();
    assert_eq!(open, [json!([]), json!([1]), json!([1, 2]), json!([1, 2, 3])]);
    replay(&["--steps", "--until", "2"]).ok().shows(&["the start", "1 open: 1"]);
    replay(&["--until", "5"]).fails(2, &["there is no record 5", "0 to 4"]);
    scene.run(&["replay", "nowhere.json"]).fails(2, &["nowhere.json"]);
    std::fs::write(scene.path("other.json"), "{}").unwrap();
    scene.run(&["replay", "other.json", "--json"]).fails(2, &["no exported run", "\"exit_code\":2"]);
}

#[test]
fn many_calls_are_grouped_and_the_first_that_wait_say_why() {
    let scene = Scene::new();
    scene.run(&["runs", "start", "gallery", "60", "--id", "g"]).ok();
    settle(&scene);
    wait(async {
        let store = scene.store();
        let (ok, bad) = (claim(&store, "images", 60_000).await, claim(&store, "images", 60_000).await);
        report(&store, &ok, Outcome::complete(ok.lease)).await;
        report(&store, &bad, Outcome::fail(bad.lease, "disk \u{1b}[31mfull", Retry::AfterMs(3_600_000))).await;
    });
    settle(&scene);
    let view = shown(&scene, "g");
    let group = &view["groups"][0];
    assert_eq!((&group["kind"], &group["name"]), (&json!("call"), &json!("resize")));
    assert_eq!((&group["total"], &group["done"], &group["open"]), (&json!(60), &json!(1), &json!(59)));
    let open = view["operations"].as_array().unwrap().iter().filter(|row| row["state"] == "open");
    let jobs: Vec<&Value> = open.map(|row| &row["job"]).collect();
    let explained = jobs.iter().filter(|job| job["reason"].is_string()).count();
    assert_eq!((jobs.len(), explained), (59, 20));
    let failed = jobs.iter().find(|job| job["last_error"].is_string()).unwrap();
    assert_eq!((&failed["attempt"], &failed["state"]), (&json!(1), &json!("scheduled")));
    assert!(failed["next_attempt_at"].is_string() && failed["reason"].is_string(), "{failed}");
    let said = scene.run(&["runs", "show", "g"]).ok();
    let said =
        said.shows(&["call resize: 1 done, 59 open", "failed: disk", "no live worker", "more; --all shows them"]);
    assert!(!said.out.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_schedule_starts_a_workflow_in_code() {
    let scene = Scene::new();
    let add = ["schedules", "workflow", "nightly", "approval", "7", "--every", "1h", "--overlap", "skip"];
    scene.run(&[&add[..], &["--label", "tenant=acme", "--timeout", "2h"]].concat()).ok();
    scene.run(&["schedules", "list"]).ok().shows(&["nightly", "run of approval@1"]);
    for (args, words) in [
        (&["nightly", "approval", "{", "--every", "1h"][..], &["the input is not JSON"][..]),
        (&["nightly", "approval@two", "--every", "1h"], &["order@2"]),
        (&["nightly", "approval", "7"], &["--cron", "--every"]),
        (&["nightly", "approval", "--every", "1h", "--label", "a=1", "--label", "a=2"], &["given twice"]),
    ] {
        scene.run(&[&["schedules", "workflow"], args].concat()).fails(2, words);
    }
    let started = |_| {
        scene.run(&["schedules", "run", "nightly"]).ok();
        wait(async {
            let worker = Worker::builder(Arc::new(scene.store())).handle(windlass::durable::start_workflow);
            let worker = worker.build().unwrap();
            let stopper = worker.stopper();
            let client = windlass::Client::new(Arc::new(scene.store()));
            let schedule = client.store().schedules().await.unwrap().remove(0);
            let work = async {
                let time = windlass::core::time::HANG_GUARD;
                let done = client.wait::<Value>(schedule.last_job.unwrap(), time).await.unwrap();
                stopper.drain();
                done.success().unwrap()
            };
            let (ran, done) = tokio::join!(worker.run_until_stopped(), work);
            ran.unwrap();
            done
        })
    };
    let [first, second] = [0, 1].map(started);
    assert_eq!((&first["started"], &second["started"]), (&json!(true), &json!(false)));
    assert_eq!(first["run"], second["run"]);
    let listed = scene.run(&["runs", "list", "--label", "windlass.schedule=nightly", "--json"]).ok().json();
    assert_eq!(
        (listed.len(), &listed[0]["kind"], &listed[0]["labels"]["tenant"]),
        (1, &json!("approval@1"), &json!("acme"))
    );
    let view = shown(&scene, "latest");
    assert_eq!(view["input"], 7);
    assert!(view["deadline"].is_string());
}

#[test]
fn verbs_that_a_kind_of_run_does_not_have_name_what_there_is_instead() {
    let scene = Scene::new();
    std::fs::write(scene.path("ci.yml"), "jobs: { a: { run: x }, b: { run: y, needs: a } }").unwrap();
    scene.run(&["run", "ci.yml", "--detach", "--id", "graph"]).ok();
    scene.run(&["runs", "start", "approval", "--id", "code"]).ok();
    for args in [&["runs", "signal", "graph", "x"][..], &["runs", "discard", "graph", "--yes"]] {
        scene.run(args).fails(5, &["no workflow in code", "windlass runs cancel"]);
    }
    for args in [&["runs", "rerun", "code", "--all"][..], &["runs", "fork", "code"]] {
        scene.run(args).fails(5, &["does not follow a graph", "windlass runs start approval@1", "--reuse if-ended"]);
    }
    // What both have.
    scene.run(&["runs", "history", "graph"]).ok().shows(&["begun", "started a, job"]);
    let records = scene.run(&["runs", "history", "graph", "--json", "--from", "1"]).ok().json();
    assert!(records.iter().all(|record| record["number"] != 0 && record["at"].is_string()), "{records:?}");
    for run in ["graph", "code"] {
        let export: Value = serde_json::from_str(&scene.run(&["runs", "export", run]).ok().out).unwrap();
        assert!(export["definition"]["json"].is_object(), "{export}");
        for verb in ["show", "tree", "history"] {
            scene.run(&["runs", verb, run]).ok();
        }
        std::fs::write(scene.path("run.json"), export.to_string()).unwrap();
        match run {
            "graph" => drop(scene.run(&["replay", "run.json"]).fails(5, &["windlass replay is for workflows in code"])),
            _ => drop(scene.run(&["replay", "run.json"]).ok()),
        }
        scene.run(&["runs", "cancel", run]).ok();
        let said = scene.run(&["runs", "terminate", run]);
        assert!(matches!(said.code, 0 | 5), "{said:?}");
        scene.run(&["runs", "remove", run]).ok();
    }
}
