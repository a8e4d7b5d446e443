//! `lint` and `plan`, through the real binary.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::json;
use support::{Scene, said};

const CI: &str = "
name: CI
inputs:
  deploy: { type: boolean, default: false }
  version: { required: true }
  count: { type: number }
jobs:
  lint: { run: cargo clippy }
  test:
    needs: lint
    labels: [linux]
    retries: 2
    timeout: 10m
    strategy: { matrix: { os: [debian, alpine] } }
    steps: [{ run: make }, { run: make test }]
  publish:
    needs: test
    if: inputs.deploy && needs.test.result == 'succeeded'
    kind: publish
    queue: releases
  tell: { needs: publish, run: echo }
";

fn scene() -> Scene {
    let scene = Scene::new();
    std::fs::write(scene.path("ci.yml"), CI).unwrap();
    std::fs::write(scene.path("bad.yml"), "jobs:\n  test:\n    needs: biuld\n    run: x\n  build: { rum: y }\n")
        .unwrap();
    scene
}

#[test]
fn faults_are_drawn_and_counted() {
    let scene = scene();
    scene.run(&["lint", "ci.yml"]).ok().shows(&["ok ci.yml (4 jobs)"]);
    let said = scene.run(&["lint", "ci.yml", "bad.yml"]).fails(1, &["2 faults in 1 file"]);
    said.shows(&["ok ci.yml", "error: there is no job `biuld`", "bad.yml:3:12", "^^^^^ did you mean `build`?"]);
    let lines = scene.run(&["lint", "bad.yml", "ci.yml", "--json"]).fails(1, &[]).json();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        lines[0],
        json!({"file": "bad.yml", "line": 3, "column": 12, "end": {"line": 3, "column": 17},
               "message": "there is no job `biuld`", "help": "did you mean `build`?"})
    );
    scene.run_with(&["lint", "-"], CI.as_bytes()).ok().shows(&["ok stdin (4 jobs)"]);
    scene.run_with(&["lint", "-"], b"jobs: {}").fails(1, &[]).shows(&["stdin:1:1"]);
    scene.run_with(&["lint", "-"], b"\xff").fails(2, &["utf-8", "save it as UTF-8"]);
    scene.run(&["lint", "nowhere.yml", "bad.yml"]).fails(2, &["nowhere.yml", "No such file"]);
    scene.run(&["lint"]).fails(2, &["FILE"]);
    assert!(!scene.path("jobs.db").exists(), "a store was made");
}

#[test]
fn a_plan_says_what_would_run() {
    let scene = scene();
    let plan = |more: &[&str]| {
        let args: Vec<&str> = ["plan", "ci.yml", "--input", "version=1.2"].iter().chain(more).copied().collect();
        said(scene.command(&args).env("LC_ALL", "C.UTF-8").output().unwrap())
    };
    plan(&[]).ok().shows(&[
        "CI: 4 jobs in 4 levels, 2 would be skipped",
        "inputs: deploy=false, version=1.2",
        "○ lint ── ○ test ×2 ── – publish ── – tell",
        "commands (2 steps)",
        "×2; labels linux; 2 retries; timeout 10m",
        "would be skipped: `inputs.deploy && needs.test.result == 'succeeded'` does not hold",
        "would be skipped: `publish` is skipped",
        "releases",
    ]);
    plan(&["--ascii"]).ok().shows(&["o lint -- o test x2 -- - publish -- - tell"]);
    let said = plan(&["--input", "deploy=true"]).ok();
    assert!(!said.out.contains("skipped"), "{said:?}");
    let shown = plan(&["--json"]).ok().one();
    assert_eq!(shown["levels"], 4);
    assert_eq!(shown["inputs"], json!({"deploy": false, "version": "1.2"}));
    assert_eq!(shown["jobs"][1]["needs"], json!([{"job": "lint", "accepts": ["succeeded"]}]));
    assert_eq!(shown["jobs"][1]["matrix"]["rows"], json!([{"os": "debian"}, {"os": "alpine"}]));
    assert_eq!(shown["jobs"][3]["skipped"], "`publish` is skipped");
    // Where the terminal is not one of UTF-8, nothing else is drawn.
    let plain =
        support::said(scene.command(&["plan", "ci.yml", "--input", "version=1"]).env("LC_ALL", "C").output().unwrap());
    plain.ok().shows(&["o lint -- o test x2"]);
    assert!(!scene.path("jobs.db").exists(), "a store was made");
}

#[test]
fn inputs_are_checked() {
    let scene = scene();
    for (inputs, words) in [
        (&[][..], &["the input `version` must be given", "--input"][..]),
        (&["version=1", "deplyo=true"], &["no input `deplyo`", "did you mean `deploy`?"]),
        (&["version=1", "zebra=1"], &["no input `zebra`", "there are count, deploy, version"]),
        (&["version=1", "deploy=yes"], &["`yes` is no value for the input `deploy`", "true or false"]),
        (&["version=1", "count=x"], &["`x` is no value", "a number"]),
        (&["version"], &["key=value"]),
    ] {
        let args: Vec<&str> =
            ["plan", "ci.yml"].into_iter().chain(inputs.iter().flat_map(|input| ["--input", input])).collect();
        scene.run(&args).fails(2, words);
    }
    scene.run(&["plan", "bad.yml"]).fails(1, &["did you mean `build`?", "bad.yml has 2 faults"]);
    let said = scene.run(&["plan", "bad.yml", "--json"]).fails(1, &["there is no job `biuld` at 3:12"]);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
}

#[test]
fn the_schema_is_printed() {
    let shown = Scene::new().run(&["schema"]).ok().out;
    let committed = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workflow.schema.json"));
    assert_eq!(shown, committed.unwrap());
}

#[test]
fn files_that_are_used_are_read_from_beside_the_first_one() {
    let scene = Scene::new();
    let write = |name: &str, text: &str| std::fs::write(scene.path(name), text).unwrap();
    std::fs::create_dir(scene.path("flows")).unwrap();
    write("outside.yml", "jobs: { x: { run: y } }");
    write(
        "flows/deploy.yml",
        "inputs: { stage: { required: true } }\njobs:\n  push: { run: x, if: inputs.stage == 'live' }\n",
    );
    write("flows/ci.yml", "jobs:\n  a: { run: x }\n  b: { needs: a, uses: ./deploy.yml, with: { stage: test } }\n");
    scene.run(&["lint", "flows/ci.yml"]).ok().shows(&["ok flows/ci.yml (4 jobs)"]);
    scene.run(&["plan", "flows/ci.yml", "--ascii"]).ok().shows(&[
        "ci: 2 jobs in 4 levels, 2 would be skipped",
        "o a -- o b/> -- - b/push -- - b",
        "would be skipped: `inputs.stage == 'live'` does not hold",
    ]);
    write("flows/bad.yml", "jobs: { a: { uses: ./worse.yml } }");
    write("flows/worse.yml", "jobs: { a: { rum: x } }");
    let faults = scene.run(&["lint", "flows/bad.yml", "--json"]).fails(1, &[]).json();
    let files: Vec<&str> = faults.iter().filter_map(|fault| fault["file"].as_str()).collect();
    assert_eq!(files, ["flows/bad.yml", "flows/worse.yml"]);
    std::os::unix::fs::symlink(scene.path("outside.yml"), scene.path("flows/link.yml")).unwrap();
    write("flows/out.yml", "jobs: { a: { uses: ./link.yml } }");
    scene.run(&["lint", "flows/out.yml"]).fails(1, &[]).shows(&["a link that leads out of the folder"]);
}
