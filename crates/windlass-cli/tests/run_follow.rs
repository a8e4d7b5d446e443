//! Runs that are followed: from their beginning, without a reader, without a store, without a worker.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Command};
use support::{Said, Scene, claim, said, until, wait};
use windlass::core::time::{Clock, HANG_GUARD, SystemClock};

fn scene(text: &str) -> Scene {
    let scene = Scene::new();
    std::fs::write(scene.path("ci.yml"), text.replace("HERE", &scene.path("").display().to_string())).unwrap();
    scene
}

/// A process, ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn notes(&mut self) -> Lines<BufReader<ChildStderr>> {
        BufReader::new(self.0.stderr.take().unwrap()).lines()
    }

    fn lines(&mut self) -> Lines<BufReader<ChildStdout>> {
        BufReader::new(self.0.stdout.take().unwrap()).lines()
    }

    fn code(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }

    fn interrupt(&self) {
        assert!(Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().unwrap().success());
    }
}

fn worker(scene: &Scene, more: &[&str]) -> Running {
    let args: Vec<&str> = ["worker", "--allow-commands"].iter().chain(more).copied().collect();
    let mut worker = Running(scene.start(&args));
    let first = worker.notes().next().unwrap().unwrap();
    assert!(first.contains("working on"), "{first}");
    worker
}

fn local_command(scene: &Scene, more: &[&str]) -> Command {
    let args: Vec<&str> = ["run", "ci.yml", "--local"].iter().chain(more).copied().collect();
    let mut command = scene.command(&args);
    command.env_remove("WINDLASS_STORE");
    command
}

fn local(scene: &Scene, more: &[&str]) -> Said {
    said(local_command(scene, more).output().unwrap())
}

/// These words are in the text, in this order, each once.
#[track_caller]
fn once_and_in_order(text: &str, words: &[&str]) {
    let places: Vec<usize> = words
        .iter()
        .map(|word| {
            assert_eq!(text.matches(word).count(), 1, "`{word}` in {text}");
            text.find(word).unwrap()
        })
        .collect();
    assert!(places.is_sorted(), "{words:?} at {places:?} in {text}");
}

/// Reads on to a line with this word.
#[track_caller]
fn read_to(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> String {
    let mut before = String::new();
    for line in lines {
        let line = line.unwrap();
        if line.contains(word) {
            return line;
        }
        before += &line;
        before.push('\n');
    }
    panic!("`{word}` was not said: {before}");
}

#[test]
fn without_a_reader_the_exit_code_is_still_that_of_the_run() {
    let scene = scene("jobs: { loud: { run: 'seq 100000 120000; exit 1' } }");
    for more in [&[][..], &["--json"]] {
        let mut run = Running(local_command(&scene, more).spawn().unwrap());
        // Much less than there is to say; then nobody reads any more.
        read_to(&mut run.lines(), "100000");
        assert_eq!(run.code(), Some(1), "{more:?}");
    }
}

const TWO: &str = "
jobs:
  one: { run: 'echo first word; echo second word' }
  two: { needs: one, run: 'echo third word; until test -e HERE/go; do sleep 0.05; done; echo fourth word; exit 7' }
  never: { if: '${{ 1 == 2 }}', run: echo never }
  after: { needs: two, run: echo after }
";

#[test]
fn what_has_happened_is_told_before_what_happens() {
    let scene = scene(TWO);
    let _worker = worker(&scene, &[]);
    let id = scene.run(&["run", "ci.yml", "--detach", "--id", "it"]).ok().out.trim().to_owned();
    while scene.run(&["runs", "show", &id, "--json"]).ok().one()["nodes"][0]["state"] != "succeeded" {}
    let mut follow = Running(scene.start(&["runs", "follow", &id]));
    let mut join = Running(scene.start(&["run", "ci.yml", "--id", "it"]));
    let (mut told, mut joined) = (follow.lines(), join.lines());
    let mut texts = [String::new(), String::new()];
    for (lines, text) in [&mut told, &mut joined].into_iter().zip(&mut texts) {
        for line in lines.by_ref().map(Result::unwrap) {
            *text += &format!("{line}\n");
            if line.contains("third word") {
                break;
            }
        }
    }
    std::fs::write(scene.path("go"), "").unwrap();
    for (lines, text) in [told, joined].into_iter().zip(&mut texts) {
        lines.for_each(|line| *text += &format!("{}\n", line.unwrap()));
    }
    assert_eq!((follow.code(), join.code()), (Some(1), Some(1)));
    let again = scene.run(&["runs", "follow", &id]);
    assert_eq!(again.code, 1, "what has ended is told to its end: {again:?}");
    let words = ["one │ first word", "one │ second word", "two │ third word", "two │ fourth word"];
    for text in texts.iter().chain([&again.out]) {
        once_and_in_order(text, &words);
        once_and_in_order(text, &["skipped: its condition does not hold", "│ third word"]);
        once_and_in_order(text, &["│ second word", "│ fourth word", "exit code 7", "skipped: two failed"]);
    }
}

#[test]
fn programs_are_told_of_an_end_after_the_last_line() {
    let scene = scene(TWO);
    std::fs::write(scene.path("go"), "").unwrap();
    let _worker = worker(&scene, &[]);
    let run = scene.run(&["run", "ci.yml", "--json"]);
    assert_eq!(run.code, 1, "{run:?}");
    let again = scene.run(&["runs", "follow", "--json"]);
    for said in [run, again] {
        let what = |value: serde_json::Value| {
            let text = |place: &str| Some(value.pointer(place)?.as_str()?.to_owned());
            let event = || Some(format!("{} {}", text("/event/event")?, text("/event/node")?));
            text("/log/text").or_else(event)
        };
        let heard: Vec<String> = said.json().into_iter().filter_map(what).collect();
        let heard = format!("{},", heard.join(","));
        once_and_in_order(&heard, &["started one,", "first word,second word,ended one,", "started two,"]);
        once_and_in_order(&heard, &["started two,third word,fourth word,ended two,", "settled after,"]);
        once_and_in_order(&heard, &["settled never,"]);
    }
}

#[test]
fn a_quiet_run_tells_how_it_ended() {
    let scene = scene("jobs: { one: { run: 'echo word; test ! -e broken' }, two: { needs: one, run: echo two } }");
    let said = local(&scene, &["--quiet"]).ok();
    assert!(said.out.starts_with("succeeded: 2 of 2 done in ") && said.out.lines().count() == 1, "{said:?}");
    assert_eq!(local(&scene, &["--quiet", "--json"]).ok().one()["state"], "succeeded");
    std::fs::write(scene.path("broken"), "").unwrap();
    let said = local(&scene, &["--quiet"]);
    assert!(said.code == 1 && !said.out.contains('│') && said.out.starts_with("✗ one "), "{said:?}");
    once_and_in_order(&said.out, &["✗ one", "exit code 1", "failed: 2 of 2 done in "]);
}

#[test]
fn a_second_interrupt_leaves_at_once_and_no_command_behind() {
    let scene = scene("jobs: { stubborn: { run: 'trap \"\" TERM INT; echo $$ > pid; while :; do sleep 0.1; done' } }");
    let mut run = Running(local_command(&scene, &["--grace", "10m"]).spawn().unwrap());
    let pid = loop {
        match std::fs::read_to_string(scene.path("pid")) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => std::thread::yield_now(),
        }
    };
    let mut notes = run.notes();
    run.interrupt();
    read_to(&mut notes, "cancelling");
    let (told, guard_ms) = (SystemClock.now(), HANG_GUARD.as_secs() * 1_000);
    // The note comes before it listens again; one of these is heard.
    while run.0.try_wait().unwrap().is_none() {
        run.interrupt();
        assert!(SystemClock.now().ms_since(told) < guard_ms, "it stays");
    }
    assert_eq!(run.code(), Some(130));
    // Its watcher needs a moment.
    while Command::new("kill").args(["-0", &pid]).output().unwrap().status.success() {
        assert!(SystemClock.now().ms_since(told) < 2 * guard_ms, "the command was left behind");
    }
}

#[test]
fn slow_attempts_that_fail_are_told() {
    let text = "
jobs:
  one:
    retry: { count: 2, delay: 1s, jitter: 0 }
    run: 'test -e HERE/ok && echo good || { touch HERE/ok; echo bad; exit 3; }'
";
    let scene = scene(text);
    let _worker = worker(&scene, &[]);
    let said = scene.run(&["run", "ci.yml"]).ok();
    once_and_in_order(&said.out, &["│ bad", "attempt 1 failed: ", "exit code 3; again in 1s", "│ good", "succeeded: "]);
    let said = scene.run(&["runs", "follow"]).ok();
    once_and_in_order(&said.out, &["│ bad", "attempt 1 failed: ", "exit code 3; again", "│ good", "✓ one"]);
    let said = scene.run(&["runs", "follow", "--json"]).ok().json();
    assert!(said.iter().any(|line| line["retry"]["failure"]["attempt"] == 1), "{said:?}");
}

#[test]
fn slow_a_worker_that_vanished_is_told() {
    let scene = scene("jobs: { one: { run: echo good } }");
    scene.run(&["run", "ci.yml", "--detach"]).ok();
    let lease = wait(async {
        let store = scene.store();
        claim(&store, "default", 1_000).await.expires_at
    });
    until(lease);
    let _worker = worker(&scene, &[]);
    let said = scene.run(&["runs", "follow"]).ok();
    once_and_in_order(&said.out, &["its worker vanished; again", "│ good", "✓ one"]);
}

#[test]
fn slow_what_is_waited_for_is_said_once() {
    let scene = scene("jobs: { one: { labels: [red], run: echo good }, two: { labels: [red], run: echo two } }");
    let mut run = Running(scene.start(&["run", "ci.yml"]));
    let mut notes = run.notes();
    let first = notes.next().unwrap().unwrap();
    assert_eq!(first, "note: one, two wait: no live worker works on its queue");
    let blue = worker(&scene, &["--labels", "blue"]);
    let second = notes.next().unwrap().unwrap();
    assert!(second.starts_with("note: one, two wait: ") && second.contains("lacks the label `red`"), "{second}");
    drop(blue);
    let _red = worker(&scene, &["--labels", "red"]);
    assert_eq!(notes.map(Result::unwrap).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(run.code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn slow_a_store_that_goes_away_for_a_while_is_waited_for() {
    use windlass_servers::{Fsync, Redis};
    let server = Redis::builder().append_only(Fsync::Always).start().unwrap();
    let scene = scene(TWO);
    let url = server.url();
    let _worker = worker(&scene, &["--store", &url]);
    let mut run = Running(scene.start(&["run", "ci.yml", "--store", &url]));
    let (mut lines, mut notes) = (run.lines(), run.notes());
    read_to(&mut lines, "third word");
    server.kill9();
    read_to(&mut notes, "the store is away");
    server.restart().unwrap();
    read_to(&mut notes, "the store is back");
    std::fs::write(scene.path("go"), "").unwrap();
    let rest = lines.map(Result::unwrap).collect::<Vec<_>>().join("\n");
    assert_eq!(run.code(), Some(1), "{rest}");
    once_and_in_order(&rest, &["│ fourth word", "exit code 7", "skipped: two failed"]);
    assert!(!rest.contains("│ third word"), "{rest}");
}
