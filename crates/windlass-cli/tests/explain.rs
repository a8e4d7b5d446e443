//! `windlass explain` for every reason there is, on a real file through the real binary.
//!
//! The transcript is printed: `cargo test -p windlass-cli --test explain -- --nocapture --test-threads=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::collections::BTreeSet;
use support::{Scene, beat, claim, fail, report, until, wait};
use windlass::core::id::JobId;
use windlass::core::job::Retry;
use windlass::core::store::{JobQueue, Kinds, Outcome, Setting};
use windlass::core::time::{Clock, SystemClock};

/// What is seen of each.
struct Show<'a> {
    scene: &'a Scene,
    seen: BTreeSet<String>,
}

impl Show<'_> {
    /// Both forms name the reason, say it in words, and say what to do.
    #[track_caller]
    fn reason(&mut self, id: JobId, reason: &str, words: &[&str]) {
        let id = id.to_string();
        let people = self.scene.run(&["explain", &id]).ok();
        let value = self.scene.run(&["explain", &id, "--json"]).ok().one();
        assert_eq!((&value["reason"], &value["id"]), (&reason.into(), &id.as_str().into()), "{value}");
        println!("# {reason}\n$ windlass explain {id}\n{}", people.out);
        for word in words {
            assert!(people.out.contains(word), "`{word}` is missing: {}", people.out);
            let (text, hint) = (value["text"].as_str().unwrap(), value["hint"].as_str().unwrap_or_default());
            let state = value["state"].as_str().unwrap();
            assert!(format!("{state}: {text}\nnext: {hint}").contains(word), "`{word}` is missing: {value}");
        }
        self.seen.insert(reason.to_owned());
    }

    /// These, and no others: together, all that there are.
    #[track_caller]
    fn saw(&self, reasons: &[&str]) {
        assert_eq!(self.seen, reasons.iter().map(|reason| (*reason).to_owned()).collect());
    }
}

#[test]
fn waiting_for_time() {
    let scene = Scene::new();
    let mut show = Show { scene: &scene, seen: BTreeSet::new() };
    let id = scene.enqueue(&["delays", "k", "--delay", "1h"]);
    show.reason(id, "delayed", &["scheduled: its time has not come", "in 59m", "windlass jobs watch"]);

    let id = scene.enqueue(&["delays", "k", "--delay", "1ms"]);
    until(SystemClock.now().plus_ms(1));
    show.reason(id, "due", &["scheduled: its time has come"]);

    let id = scene.enqueue(&["backoff", "k"]);
    wait(async {
        let store = scene.store();
        let job = claim(&store, "backoff", 60_000).await;
        report(&store, &job, Outcome::fail(job.lease, "smtp said no", Retry::AfterMs(3_600_000))).await;
    });
    show.reason(id, "backing_off", &["attempt 1 failed with `smtp said no`", "windlass jobs show"]);

    let dedup = ["held", "k", "--dedup", "keep_last", "--dedup-key", "x"];
    let first = scene.enqueue(&dedup);
    wait(async { claim(&scene.store(), "held", 60_000).await });
    let second = scene.enqueue(&dedup);
    show.reason(second, "held_behind", &["it waits until the job", &format!("next: windlass explain {first}")]);
    show.saw(&["backing_off", "delayed", "due", "held_behind"]);
}

#[test]
fn held_back_by_settings() {
    let scene = Scene::new();
    let mut show = Show { scene: &scene, seen: BTreeSet::new() };
    let id = scene.enqueue(&["a queue", "k"]);
    scene.run(&["queues", "pause", "a queue"]).ok();
    show.reason(id, "queue_paused", &["its queue is paused", "next: windlass queues resume 'a queue'"]);

    let id = scene.enqueue(&["kinds", "slow"]);
    scene.run(&["queues", "pause", "kinds", "--kind", "slow"]).ok();
    show.reason(id, "kind_paused", &["kind `slow` are paused", "next: windlass queues resume kinds --kind slow"]);

    scene.run(&["queues", "set", "capped", "--cap", "1"]).ok();
    scene.run(&["queues", "set", "rated", "--rate", "1/1h"]).ok();
    scene.run(&["queues", "set", "grouped", "--group-cap", "1"]).ok();
    scene.run(&["queues", "set", "group-rated", "--group-rate", "1/1h"]).ok();
    for (queue, group, reason, words) in [
        ("capped", None, "queue_at_cap", ["has 1 active job,", "next: windlass queues set capped --cap 2"]),
        ("rated", None, "queue_rate_limited", ["as its rate allows", "next: windlass queues set rated --rate none"]),
        (
            "grouped",
            Some("acme"),
            "group_at_cap",
            ["group `acme` has 1", "next: windlass groups set grouped acme --cap 2"],
        ),
        (
            "group-rated",
            Some("acme"),
            "group_rate_limited",
            ["group `acme`", "windlass groups set group-rated acme --rate none"],
        ),
    ] {
        let mut args = vec![queue, "k"];
        args.extend(group.into_iter().flat_map(|group| ["--group", group]));
        scene.enqueue(&args);
        wait(async { claim(&scene.store(), queue, 60_000).await });
        show.reason(scene.enqueue(&args), reason, &words);
    }
    show.saw(&[
        "group_at_cap",
        "group_rate_limited",
        "kind_paused",
        "queue_at_cap",
        "queue_paused",
        "queue_rate_limited",
    ]);
}

#[test]
fn without_a_worker() {
    let scene = Scene::new();
    let mut show = Show { scene: &scene, seen: BTreeSet::new() };
    let id = scene.enqueue(&["mail", "welcome"]);
    show.reason(id, "no_worker_for_queue", &["ready: no live worker", "next: start a worker for the queue mail"]);

    wait(async { beat(&scene.store(), "mail", Kinds::Only(vec!["welcom".try_into().unwrap()])).await });
    show.reason(id, "no_worker_for_kind", &["none has a handler for the kind `welcome`", "windlass workers"]);

    wait(async { beat(&scene.store(), "mail", Kinds::Any).await });
    show.reason(id, "waits_its_turn", &["nothing is in its way", "windlass jobs watch"]);

    let id = scene.enqueue(&["mail", "render", "--label", "gpu", "--label", "linux"]);
    show.reason(id, "no_worker_with_labels", &["the best of them lacks the label `gpu`", "offers the label `gpu`"]);
    show.saw(&["no_worker_for_kind", "no_worker_for_queue", "no_worker_with_labels", "waits_its_turn"]);
}

#[test]
fn in_hands_or_ended() {
    let scene = Scene::new();
    let mut show = Show { scene: &scene, seen: BTreeSet::new() };
    let id = scene.enqueue(&["hands", "k"]);
    wait(async { claim(&scene.store(), "hands", 3_600_000).await });
    show.reason(id, "running", &["active: the worker worker-of-hands works on it", "in 59m"]);

    scene.run(&["jobs", "cancel", &id.to_string()]).ok();
    show.reason(id, "cancelling", &["it was cancelled", "worker-of-hands is being told"]);

    let id = scene.enqueue(&["lost", "k"]);
    until(wait(async { claim(&scene.store(), "lost", 10).await }).expires_at);
    show.reason(id, "lease_expired", &["worker-of-lost has vanished", "start a worker", "windlass doctor"]);

    scene.enqueue(&["ended", "k"]);
    let id = wait(async { fail(&scene.store(), "ended", "no such mailbox").await });
    show.reason(
        id,
        "ended",
        &["failed: it has ended as failed: no such mailbox", &format!("next: windlass jobs retry {id}")],
    );

    scene.enqueue(&["ended", "k"]);
    let id = wait(async {
        let store = scene.store();
        let job = claim(&store, "ended", 60_000).await;
        report(&store, &job, Outcome::complete(job.lease)).await;
        job.lease.job
    });
    show.reason(id, "ended", &["succeeded: it has ended as succeeded"]);

    let id = scene.enqueue(&["damaged", "k"]);
    scene.raw().execute("UPDATE windlass_job SET rest='{\"group' WHERE id=?1", [id.to_string()]).unwrap();
    show.reason(id, "quarantined", &["its stored form cannot be read", &format!("windlass jobs remove {id} --yes")]);
    show.saw(&["cancelling", "ended", "lease_expired", "quarantined", "running"]);
}

/// A setting that the store takes and that no flag can say is no reason to say nothing.
#[test]
fn a_queue_whose_name_needs_quoting_can_be_copied_into_a_shell() {
    let scene = Scene::new();
    let id = scene.enqueue(&["it's", "k"]).to_string();
    let queue = "it's".try_into().unwrap();
    wait(async { scene.store().configure(Setting::Paused { queue, paused: true }).await.unwrap() });
    let hint = scene.run(&["explain", &id, "--json"]).ok().one()["hint"].as_str().unwrap().to_owned();
    let shell = format!("windlass() {{ '{}' \"$@\"; }}; {hint}", env!("CARGO_BIN_EXE_windlass"));
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &shell]).current_dir(scene.path("")).env("WINDLASS_STORE", "sqlite://jobs.db");
    support::said(command.output().unwrap()).ok().shows(&["is resumed"]);
}
