//! Runs that are stuck, from the command line: shown, resumed, cancelled, removed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::process::Child;
use support::{Scene, wait};
use windlass::core::id::RunId;
use windlass::core::job::Due;
use windlass::core::store::{ClaimedRun, NewRun, RunClaim, RunCommit, RunStep, RunStore};

/// Claims a run and lays it aside.
fn park(scene: &Scene, run: RunId, why: &str) {
    let claim = RunClaim {
        run: Some(run),
        lease_ms: 60_000,
        ..RunClaim::new("engine".try_into().unwrap(), vec!["graph".try_into().unwrap()])
    };
    wait(async {
        let store = scene.store();
        let ClaimedRun { lease, history_len, .. } = store.claim_runs(claim).await.unwrap().runs.remove(0);
        let step = RunStep { stuck: Some(why.to_owned()), ..RunStep::nothing() };
        let commit = RunCommit::new(lease, history_len, step);
        store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
    });
}

fn started(scene: &Scene) -> String {
    std::fs::write(scene.path("ci.yml"), "jobs: { a: { run: sleep 600 }, b: { needs: a, run: echo b } }").unwrap();
    scene.run(&["run", "ci.yml", "--detach"]).ok().out.trim().to_owned()
}

/// A run of a workflow in a form that this program does not know.
fn unreadable(scene: &Scene) -> String {
    let run = NewRun {
        name: "unreadable".to_owned(),
        definition: "{\"version\":2,\"graph\":{\"name\":\"x\",\"nodes\":[]}}".into(),
        input: "{\"inputs\":{}}".into(),
        step: RunStep { wake: Some(Due::Now), ..RunStep::nothing() },
        ..NewRun::new(RunId::named("unreadable"), "graph".try_into().unwrap())
    };
    let id = run.id.to_string();
    wait(async { scene.store().create_runs(vec![run]).await.unwrap().remove(0).unwrap() });
    id
}

/// A worker, ended with the test.
struct Working(Child);

impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stuck_run_says_what_to_do_and_is_resumed() {
    let scene = Scene::new();
    let (one, well, two) = (started(&scene), started(&scene), started(&scene));
    for id in [&one, &two] {
        park(&scene, id.parse().unwrap(), "no room");
    }
    let way = format!("windlass runs resume {one}");
    scene.run(&["runs", "show", &one]).ok().shows(&["no room", &way, "windlass runs cancel"]);
    scene.run(&["explain", &one]).ok().shows(&["stuck: no room", &way]);
    scene.run(&["runs", "follow", &one]).fails(1, &["no room", &way]);
    scene.run(&["runs", "list"]).ok().shows(&["stuck: no room", &well]);
    let listed = scene.run(&["runs", "list", "--state", "stuck", "--json"]).ok().json();
    assert_eq!(listed.iter().map(|run| run["id"].as_str().unwrap()).collect::<Vec<_>>(), [&two, &one]);
    let page = scene.run(&["runs", "list", "--state", "stuck", "--limit", "1", "--json"]).ok().json();
    let cursor = page[1]["cursor"].as_str().unwrap();
    let rest = scene.run(&["runs", "list", "--state", "stuck", "--limit", "1", "--json", "--cursor", cursor]).ok();
    assert_eq!((&page[0]["id"], &rest.json()[0]["id"]), (&two.as_str().into(), &one.as_str().into()));

    // Nobody is there to take it.
    let said = scene.run(&["runs", "resume", &one, "--json"]).ok().one();
    assert_eq!(said, serde_json::json!({ "run": one, "state": "running", "taken": false }));
    let shown = scene.run(&["runs", "show", &one, "--json"]).ok().one();
    assert_eq!((&shown["stuck"], &shown["inbox_len"]), (&serde_json::Value::Null, &1.into()));
    // What can be resumed is, whatever the others are.
    let ended = started(&scene);
    scene.run(&["runs", "cancel", &ended]).ok();
    let said = scene.run(&["runs", "resume", &one, &ended, &two]).fails(5, &["it goes on by itself", "rerun"]);
    said.shows(&[&format!("{two} is open; no worker has taken it yet")]);
    let said = scene.run(&["runs", "resume", &one, "--json"]).fails(5, &[]).one();
    assert!(said["error"]["message"].as_str().unwrap().contains("not stuck"), "{said}");
    scene.run(&["runs", "resume", &RunId::named("nobody").to_string()]).fails(4, &["there is no run"]);
    scene.run(&["runs", "resume"]).fails(2, &["ID"]);
}

#[test]
fn a_worker_takes_what_is_resumed_and_it_goes_on_or_is_stuck_again() {
    let scene = Scene::new();
    let (id, bad) = (started(&scene), unreadable(&scene));
    park(&scene, id.parse().unwrap(), "no room");
    scene.run(&["runs", "cancel", &bad]).fails(5, &["its definition"]);
    let _worker = Working(scene.start(&["worker", "--queue", "elsewhere", "--allow-commands"]));
    let said = scene.run(&["runs", "resume", &id]).ok();
    // On a machine that is busy, it may be taken a little later.
    assert!(["goes on", "is open"].iter().any(|word| said.out.starts_with(&format!("{id} {word}"))), "{said:?}");
    while scene.run(&["runs", "show", &id, "--json"]).ok().one()["inbox_len"] != 0 {}
    loop {
        let said = scene.run(&["runs", "resume", &bad, "--json"]).one();
        if said["error"].is_object() {
            let message = said["error"]["message"].as_str().unwrap();
            assert!(message.contains("is stuck again") && message.contains("its definition"), "{said}");
            break;
        }
        while !scene.run(&["runs", "list"]).ok().out.contains("stuck") {}
    }
}

#[test]
fn a_stuck_run_is_cancelled() {
    let scene = Scene::new();
    let id = started(&scene);
    park(&scene, id.parse().unwrap(), "no room");
    let said = scene.run(&["runs", "cancel", &id, "--json"]).ok().one();
    assert_eq!(said, serde_json::json!({ "run": id, "state": "cancelled" }));
}

#[test]
fn a_run_that_cannot_be_read_is_told_from_one_that_can_and_removed() {
    let scene = Scene::new();
    let id = unreadable(&scene);
    let remove = format!("windlass runs remove {id}");
    scene.run(&["runs", "cancel", &id]).fails(5, &["stuck", "its definition", &remove]);
    let resume = format!("windlass runs resume {id}");
    for command in [&["runs", "show", &id][..], &["explain", &id], &["runs", "follow", &id]] {
        scene.run(command).fails(1, &["cannot be read", "its definition", &resume, &remove]);
    }
    scene.run(&["runs", "remove", &id]).ok();
    scene.run(&["runs", "show", &id]).fails(4, &["there is no run"]);
}
