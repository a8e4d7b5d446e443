//! `windlass doctor`: what it finds on a store that is well, and on one that is not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::{Value, json};
use support::{Scene, beat, claim, fail, wait};
use windlass::core::store::Kinds;

/// The findings of one check, errors and warnings first.
#[track_caller]
fn finding<'a>(all: &'a [Value], check: &str, words: &str) -> &'a Value {
    let found = all.iter().find(|one| one["check"] == check && one["message"].as_str().unwrap().contains(words));
    found.unwrap_or_else(|| panic!("no {check} with `{words}`: {all:#?}"))
}

#[test]
fn a_store_that_is_well() {
    let scene = Scene::new();
    scene.enqueue(&["mail", "welcome"]);
    wait(async { beat(&scene.store(), "mail", Kinds::Any).await });
    let before = scene.seen();
    let words = [
        "durability power",
        "survives a power cut",
        "the file is whole",
        "free on its disk",
        "a read takes",
        "1 live worker",
    ];
    scene.run(&["doctor"]).ok().shows(&words);
    let all = scene.run(&["doctor", "--deep", "--json"]).ok().json();
    assert!(all.iter().all(|one| one["severity"] == "ok"), "{all:#?}");
    assert_eq!(scene.seen(), before, "it changes nothing");
    let weaker = scene.run(&["doctor", "--store", "sqlite://jobs.db?synchronous=normal", "--json"]).ok().json();
    assert_eq!(finding(&weaker, "store", "not a power cut")["severity"], "info");
    scene.run(&["doctor", "--store", "memory://"]).ok().shows(&["nothing survives the end of the process"]);
}

#[test]
fn a_store_that_is_not() {
    let scene = Scene::new();
    scene.enqueue(&["nobody", "k"]);
    scene.enqueue(&["paused", "k"]);
    scene.run(&["queues", "pause", "paused"]).ok();
    scene.enqueue(&["mail", "welcome"]);
    scene.enqueue(&["mail", "render", "--label", "gpu"]);
    let damaged = scene.enqueue(&["mail", "damaged"]).to_string();
    scene.run(&["queues", "set", "full", "--max-length", "1"]).ok();
    scene.enqueue(&["full", "k", "--delay", "1h"]);
    for name in ["late", "broken"] {
        scene.run(&["schedules", "add", name, "q", "k", "--every", "1h"]).ok();
    }
    for _ in 0..3 {
        scene.enqueue(&["failing", "k"]);
    }
    scene.enqueue(&["lost", "k"]);
    wait(async {
        let store = scene.store();
        beat(&store, "mail", Kinds::Only(vec!["render".try_into().unwrap(), "damaged".try_into().unwrap()])).await;
        beat(&store, "dead", Kinds::Any).await;
        for error in ["smtp said no", "smtp said no", "disk"] {
            fail(&store, "failing", error).await;
        }
        claim(&store, "lost", 60_000).await;
    });
    let file = scene.raw();
    file.execute("UPDATE windlass_job SET rest='{\"group' WHERE id=?1", [&damaged]).unwrap();
    file.execute("UPDATE windlass_active SET expires_at=expires_at-3600000", []).unwrap();
    file.execute("UPDATE windlass_worker SET seen_at=seen_at-3600000 WHERE id='worker-of-dead'", []).unwrap();
    file.execute("UPDATE windlass_schedule SET body='{' WHERE name='broken'", []).unwrap();
    let late = "UPDATE windlass_schedule SET next_tick=1000, body=json_set(body,'$.next_tick','2026-01-01T00:00:00Z') WHERE name='late'";
    file.execute(late, []).unwrap();
    drop(file);

    let said = scene.run(&["doctor", "--json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let all = said.json();
    for (check, words, severity, hint) in [
        ("paused", "`paused` is paused, and 1 job", "warning", "windlass queues resume paused"),
        ("full", "`full` holds 1 waiting jobs and refuses more", "error", "--max-length"),
        ("workers", "worker-of-dead", "warning", "taken back by itself"),
        ("workers", "1 job ready on `nobody`", "error", "start a worker"),
        ("unhandled", "`welcome` on `mail`", "error", "windlass workers"),
        ("unhandled", "lacks the label `gpu`", "error", "offers the label"),
        ("maintenance", "1 lease of `lost` ran out", "error", "start a worker"),
        ("failed", "2 failed jobs of `failing`: smtp said no", "warning", "windlass jobs retry --queue failing"),
        ("failed", "1 failed job of `failing`: disk", "warning", "windlass jobs list"),
        ("quarantine", &damaged, "warning", "windlass jobs remove"),
        ("schedules", "`late` should have ticked", "error", "no maintenance is running"),
        ("schedules", "`broken` is damaged", "error", "windlass schedules remove broken --yes"),
    ] {
        let one = finding(&all, check, words);
        assert_eq!(one["severity"], severity, "{one}");
        assert!(one["hint"].as_str().unwrap().contains(hint), "{one}");
    }
    let people = scene.run(&["doctor"]);
    assert_eq!(people.code, 1);
    people.shows(&["error   workers", "next: start a worker"]);
    // The hint is right: the damaged schedule goes in this way.
    scene.run(&["schedules", "remove", "broken", "--yes"]).ok();
    assert_eq!(scene.run(&["schedules", "list", "--json"]).ok().one()["name"], json!("late"));
}

#[test]
fn a_file_that_is_damaged_is_called_so() {
    let scene = Scene::new();
    let text = "x".repeat(2_000);
    let lines: String =
        (0..200).map(|_| format!("{{\"queue\":\"q\",\"kind\":\"k\",\"payload\":\"{text}\"}}\n")).collect();
    scene.run_with(&["enqueue", "--bulk", "-"], lines.as_bytes()).ok();
    // A process that ends in a hurry leaves its rows in the log; the damage is meant for the file.
    let conn = scene.raw();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    let mut bytes = std::fs::read(scene.path("jobs.db")).unwrap();
    // Pages in the second half hold payloads; a page whose head is nonsense is found by the check.
    for page in (bytes.len() / 2..bytes.len() - 4_096).step_by(4_096) {
        let head = page / 4_096 * 4_096;
        bytes[head..head + 64].fill(0xee);
    }
    std::fs::write(scene.path("jobs.db"), bytes).unwrap();
    let said = scene.run(&["doctor", "--json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let all = said.json();
    let one = finding(&all, "integrity", "the file is damaged");
    assert!(one["hint"].as_str().unwrap().contains("restore a backup"), "{one}");
}
