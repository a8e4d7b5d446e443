//! Workflows from the command line: started, worked on by other processes, followed, cancelled, repeated.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use support::{Said, Scene, said};
use windlass::core::time::HANG_GUARD;

const CI: &str = "
name: ci
inputs:
  who: { default: world }
jobs:
  build:
    env: { WHO: '${{ inputs.who }}' }
    steps:
      - run: 'echo \"hello $WHO # and more\"'
      - run: echo version=1.2 >> \"$WINDLASS_OUTPUT\"
  test: { needs: build, run: 'echo testing $NEEDS_BUILD_VERSION; test ! -e broken' }
  ship: { needs: test, run: echo shipped }
  sorry: { needs: test, if: failure(), run: echo sorry }
";

fn scene(text: &str) -> Scene {
    let scene = Scene::new();
    std::fs::write(scene.path("ci.yml"), text).unwrap();
    scene
}

/// A worker, ended with the test.
struct Working(Child);

impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn worker(scene: &Scene, more: &[&str]) -> Working {
    let args: Vec<&str> = ["worker", "--allow-commands"].iter().chain(more).copied().collect();
    let mut child = scene.start(&args);
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = notes.next().unwrap().unwrap();
    assert!(first.contains("working on"), "{first}");
    Working(child)
}

/// A local run: the store that the environment names is none of its business.
fn local(scene: &Scene, more: &[&str]) -> Said {
    let args: Vec<&str> = ["run", "ci.yml", "--local"].iter().chain(more).copied().collect();
    said(scene.command(&args).output().unwrap())
}

fn states(shown: &Value) -> Vec<String> {
    shown["nodes"].as_array().unwrap().iter().map(|node| node["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_local_run_needs_nothing_and_leaves_nothing() {
    let scene = scene(CI);
    let said = local(&scene, &["--input", "who=Ada"]).ok();
    let said = said.shows(&["hello Ada # and more", "testing 1.2", "✓ ship", "– sorry", "succeeded: 4 of 4 done"]);
    let (word, end) = (said.out.find("│ hello Ada").unwrap(), said.out.find("✓ build").unwrap());
    assert!(word < end, "what a job says comes before the word of its end: {}", said.out);
    let left: Vec<_> = std::fs::read_dir(scene.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["ci.yml"]);

    std::fs::write(scene.path("broken"), "").unwrap();
    let said = local(&scene, &[]).shows(&["✗ test", "exit code 1", "– ship", "skipped: test failed", "│ sorry"]);
    assert_eq!(said.code, 1, "{said:?}");
    local(&scene, &["--input", "wo=Ada"]).fails(2, &["wo", "who"]);
}

#[test]
fn a_local_run_that_nobody_here_can_do_is_refused() {
    let scene = scene("jobs: { mail: { kind: send-mail } }");
    local(&scene, &[]).fails(1, &["send-mail", "--store"]);
    let scene = self::scene("jobs: { a: { rum: true } }");
    local(&scene, &[]).fails(1, &["rum", "did you mean `run`?", "ci.yml:1:14"]);
}

/// A process that must end by itself. It is killed when it does not.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "reads what another process writes while the test goes on")]
fn ends(command: &mut Command) -> Said {
    let child = command.spawn().unwrap();
    let (pid, (done, ended)) = (child.id().to_string(), std::sync::mpsc::channel());
    let output = std::thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        let _ = done.send(());
        output
    });
    if ended.recv_timeout(HANG_GUARD).is_err() {
        let _ = Command::new("kill").args(["-KILL", &pid]).status();
        panic!("it does not end: {:?}", said(output.join().unwrap()));
    }
    said(output.join().unwrap())
}

#[test]
fn a_local_run_offers_labels_that_read_inputs() {
    let text = "
inputs:
  where: { default: here }
  zones: { default: '[\"eu\"]' }
jobs:
  a: { labels: ['on-${{ inputs.where }}'], run: 'echo a ran' }
  b: { strategy: { matrix: '${{ fromJSON(inputs.zones) }}' }, labels: ['${{ matrix.value }}'], run: 'echo b ran' }
";
    let scene = scene(text);
    ends(&mut scene.command(&["run", "ci.yml", "--local"])).ok().shows(&["a │ a ran", "│ b ran"]);
    let more = ["run", "ci.yml", "--local", "--store", "sqlite://named.db", "--input", "where=there"];
    ends(&mut scene.command(&more)).ok().shows(&["a │ a ran"]);
}

#[test]
fn a_local_run_whose_labels_depend_on_its_jobs_is_refused_and_starts_nothing() {
    let text = "
jobs:
  pick: { run: 'echo where=eu >> \"$WINDLASS_OUTPUT\"', outputs: [where] }
  go: { needs: pick, labels: ['${{ needs.pick.outputs.where }}'], run: echo gone }
";
    let scene = scene(text);
    let words = ["`go`", "${{ needs.pick.outputs.where }}", "windlass worker --allow-commands --labels"];
    ends(&mut scene.command(&["run", "ci.yml", "--local"])).fails(1, &words);
    let named = ["run", "ci.yml", "--local", "--store", "sqlite://jobs.db"];
    ends(&mut scene.command(&named)).fails(1, &words);
    assert!(!scene.path("jobs.db").exists());
}

#[test]
fn a_local_run_that_cannot_be_worked_on_is_not_started() {
    let scene = scene("jobs: { a: { run: echo a } }");
    scene.run(&["runs", "list", "--store", "sqlite://jobs.db?create=true"]).ok();
    let named = ["run", "ci.yml", "--local", "--store", "sqlite://jobs.db"];
    for wrong in [&["--secret", "NOT_SET_ANYWHERE"][..], &["--artifacts", "ftp://x"], &["--slots", "0"]] {
        let args: Vec<&str> = named.iter().chain(wrong).copied().collect();
        let said = ends(&mut scene.command(&args));
        assert_ne!(said.code, 0, "{said:?}");
        let runs = scene.run(&["runs", "list", "--json"]).ok().json();
        assert_eq!(runs.len(), 0, "{wrong:?} is refused, and the run was started: {runs:?}");
    }
}

#[test]
fn flags_for_commands_are_refused_where_no_command_is_run() {
    let scene = scene("jobs: { a: { run: echo a } }");
    let flags = [
        ["--secret", "HOME"],
        ["--pass", "HOME"],
        ["--grace", "5s"],
        ["--artifacts", "made"],
        ["--limit-cpu", "1"],
        ["--limit-memory", "64"],
        ["--slots", "4"],
    ];
    for [flag, value] in flags {
        let advice = format!("windlass worker --allow-commands {flag}");
        scene.run(&["run", "ci.yml", "--detach", flag, value]).fails(2, &[flag, "--local", &advice]);
        if flag != "--slots" {
            let needs = format!("{flag} needs --allow-commands");
            ends(&mut scene.command(&["worker", flag, value])).fails(2, &[&needs]);
        }
    }
    assert!(!scene.path("jobs.db").exists());
}

#[test]
fn a_local_run_that_is_forgotten_is_not_named_in_advice() {
    let scene = scene("jobs: { a: { run: 'false' } }");
    let said = local(&scene, &[]);
    assert_eq!((said.code, said.err.as_str()), (1, ""), "{said:?}");
    let kept = local(&scene, &["--store", "sqlite://kept.db"]);
    kept.fails(1, &["windlass runs rerun", "--failed"]);
}

#[test]
fn another_process_does_the_work_and_what_failed_is_run_once_more() {
    let scene = scene(CI);
    std::fs::write(scene.path("broken"), "").unwrap();
    // Jobs have folders of their own on a worker; this one looks at the scene's.
    let here = scene.path("").display().to_string();
    std::fs::write(scene.path("ci.yml"), CI.replace("test ! -e broken", &format!("test ! -e {here}/broken"))).unwrap();
    let _worker = worker(&scene, &[]);
    let run = scene.run(&["run", "ci.yml", "--json"]);
    assert_eq!(run.code, 1, "{run:?}");
    let lines = run.json();
    let (id, last) = (lines[0]["run"].as_str().unwrap().to_owned(), lines.last().unwrap());
    assert_eq!((&last["run"], &last["state"]), (&json!(id), &json!("failed")));
    assert!(lines.iter().any(|line| line["log"]["text"] == "hello world # and more"), "{run:?}");
    let shown = scene.run(&["runs", "show", &id, "--json"]).ok().one();
    assert_eq!(states(&shown), ["succeeded", "failed", "skipped", "succeeded"]);
    assert_eq!(shown["nodes"][0]["outputs"], json!({ "version": "1.2" }));
    assert_eq!(shown["nodes"][2]["reason"], "test failed");
    scene.run(&["runs", "show", &id]).ok().shows(&["failed, 4 of 4 done", "✗ test", "test failed"]);
    scene.run(&["runs", "list", "--state", "failed"]).ok().shows(&[&id]);

    std::fs::remove_file(scene.path("broken")).unwrap();
    scene.run(&["runs", "rerun", "latest"]).fails(2, &["--failed"]);
    scene.run(&["runs", "rerun", "latest", "--failed", "--follow"]).ok().shows(&["✓ test", "✓ ship"]);
    let shown = scene.run(&["runs", "show", "latest", "--json"]).ok().one();
    assert_eq!(states(&shown), ["succeeded", "succeeded", "succeeded", "skipped"]);
    assert_eq!(shown["nodes"][0]["reruns"], 0, "what went well is not repeated");

    let fork = scene.run(&["runs", "fork", &id, "--input", "who=Eve", "--follow"]).ok();
    assert!(fork.out.contains("hello Eve"), "{fork:?}");
    scene.run(&["runs", "fork", &id, "--input", "woh=Eve"]).fails(2, &["woh", "who"]);
    scene.run(&["runs", "remove", &id]).ok();
    scene.run(&["runs", "show", &id]).fails(4, &["there is no run"]);
}

#[test]
fn nodes_go_to_workers_with_their_labels() {
    let text = "
jobs:
  here: { labels: [blue], run: 'echo on $WHERE' }
  there: { labels: [red, big], run: 'echo on $WHERE' }
";
    let scene = scene(text);
    let id = scene.run(&["run", "ci.yml", "--detach"]).ok().out.trim().to_owned();
    let shown = scene.run(&["runs", "show", &id, "--json"]).ok().one();
    let job = shown["nodes"][1]["jobs"][0]["job"].as_str().unwrap().to_owned();
    scene.run(&["explain", &job]).ok().shows(&["no live worker"]);
    let start = |labels: &str, name: &str| {
        let mut command = scene.command(&["worker", "--allow-commands", "--labels", labels, "--pass", "WHERE"]);
        Working(command.env("WHERE", name).spawn().unwrap())
    };
    let _workers = [start("blue", "one"), start("red,big,fast", "two")];
    let said = scene.run(&["runs", "follow", &id]).ok();
    said.shows(&["here │ on one", "there │ on two"]);
}

#[test]
fn an_interrupt_cancels_the_run_and_kills_what_it_runs() {
    let scene = scene("jobs: { slow: { run: 'echo $$ > pid; sleep 600' }, next: { needs: slow, run: echo next } }");
    let mut child = scene.command(&["run", "ci.yml", "--local"]).env_remove("WINDLASS_STORE").spawn().unwrap();
    let pid = loop {
        match std::fs::read_to_string(scene.path("pid")) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => std::thread::yield_now(),
        }
    };
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let alive = Command::new("kill").args(["-0", &pid]).status().unwrap().success();
    assert!(!alive, "the command is gone");
}

#[test]
fn a_cancelled_run_starts_nothing_more() {
    let scene = scene("jobs: { slow: { run: sleep 600 }, next: { needs: slow, run: echo next } }");
    let id = scene.run(&["run", "ci.yml", "--detach", "--id", "one"]).ok().out.trim().to_owned();
    assert_eq!(scene.run(&["run", "ci.yml", "--detach", "--id", "one"]).ok().out.trim(), id, "started once");
    scene.run(&["runs", "cancel", &id, "--reason", "enough"]).ok().shows(&["cancelled"]);
    let shown = scene.run(&["runs", "show", &id, "--json"]).ok().one();
    assert_eq!((&shown["cancelled"], states(&shown)), (&json!("enough"), vec!["cancelled".to_owned(); 2]));
    scene.run(&["explain", &id]).ok().shows(&["cancelled", "enough"]);
    scene.run(&["runs", "rerun", &id, "--from", "nxt"]).fails(4, &["did you mean `next`?"]);
    scene.run(&["runs", "show", "nonsense"]).fails(4, &["r0-"]);
}

#[test]
fn explain_says_what_a_run_waits_for() {
    let scene = scene(CI);
    let id = scene.run(&["run", "ci.yml", "--detach"]).ok().out.trim().to_owned();
    scene.run(&["explain", &id]).ok().shows(&["build", "no live worker", "test: waits for build"]);
    let said = scene.run(&["explain", &id, "--json"]).ok().one();
    assert_eq!(said["waits"][1], json!({ "node": "test", "reason": "waits for build" }));
}

#[test]
fn a_worker_without_leave_runs_no_command() {
    let scene = scene(CI);
    scene.run(&["worker", "--no-runs"]).fails(2, &["--allow-commands"]);
    scene.run(&["worker", "--allow-commands", "--secret", "NOT_SET_ANYWHERE"]).fails(2, &["NOT_SET_ANYWHERE"]);
}

#[test]
fn a_schedule_of_a_workflow_starts_its_runs() {
    let scene = scene("on: { schedule: [{ cron: '* * * * * *' }] }\njobs: { a: { run: echo ticked } }");
    scene.run(&["schedules", "apply", "ci.yml"]).ok();
    scene.run(&["schedules", "apply", "ci.yml"]).ok();
    assert_eq!(scene.run(&["schedules", "list", "--json"]).ok().json().len(), 1, "said again, it is changed");
    let _worker = worker(&scene, &[]);
    let first = loop {
        let runs = scene.run(&["runs", "list", "--oldest", "--state", "succeeded", "--json"]).ok().json();
        if let Some(run) = runs.first() {
            break run["id"].as_str().unwrap().to_owned();
        }
    };
    scene.run(&["runs", "show", &first]).ok().shows(&["ci", "1 of 1 done"]);
    let scene = self::scene("jobs: { a: { run: echo } }");
    scene.run(&["schedules", "apply", "ci.yml"]).fails(1, &["names no schedule", "cron"]);
}

#[test]
fn files_are_handed_on_between_jobs() {
    let text = "
jobs:
  make:
    run: mkdir -p out && echo content > out/file.txt
    artifacts: { upload: { dist: out } }
  use:
    needs: make
    artifacts: { download: { dist: got } }
    run: cat got/out/file.txt
";
    let scene = scene(text);
    // In one folder, what was made would be there anyway: each job has its own on a worker.
    let artifacts = scene.path("artifacts").display().to_string();
    std::fs::create_dir(scene.path("artifacts")).unwrap();
    let _worker = worker(&scene, &["--artifacts", &artifacts]);
    scene.run(&["run", "ci.yml"]).ok().shows(&["use │ content"]);
    let local = local(&scene, &[]).ok();
    local.shows(&["use │ content", "artifact dist"]);
    scene.run(&["worker", "--allow-commands", "--artifacts", "ftp://x"]).fails(2, &["--artifacts"]);
}
