//! Every command in both forms, for people and for programs, through the real binary.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use support::{Scene, beat, claim, fail, report, wait};
use windlass::core::id::Ids;
use windlass::core::job::{JobSpec, NewJob, Progress};
use windlass::core::payload::Payload;
use windlass::core::random::StrongRandom;
use windlass::core::store::{
    EnqueueRequest, JobQueue, Kinds, LogAppend, LogLine, LogSink, LogStream, Outcome, OutcomeKind, RenewRequest,
    Renewal,
};
use windlass::core::time::{SystemClock, Timestamp};

#[test]
fn enqueue_says_every_option() {
    let scene = Scene::new();
    let id = scene.enqueue(&[
        "mail",
        "welcome",
        "{\"b\":1,\"a\":[2]}",
        "--priority",
        "-5",
        "--delay",
        "2h",
        "--attempts",
        "7",
        "--stalls",
        "4",
        "--timeout",
        "30s",
        "--retry",
        "fixed:5s",
        "--label",
        "gpu",
        "--label",
        "eu",
        "--group",
        "acme",
        "--id",
        "order-7",
        "--dedup",
        "replace",
        "--dedup-key",
        "k",
        "--dedup-ttl",
        "1h",
        "--lifo",
        "--keep-succeeded",
        "1h",
        "--keep-failed",
        "7d",
        "--metadata",
        "a=b=c",
    ]);
    let job = scene.run(&["jobs", "show", &id.to_string(), "--json"]).ok().one();
    for (field, value) in [
        ("state", json!("scheduled")),
        ("priority", json!(-5)),
        ("attempts_max", json!(7)),
        ("stalls_max", json!(4)),
        ("timeout_ms", json!(30_000)),
        ("retry", json!({ "policy": "fixed", "delay_ms": 5_000 })),
        ("labels", json!(["eu", "gpu"])),
        ("group", json!("acme")),
        ("custom_id", json!("order-7")),
        ("dedup", json!({ "by": { "key": "k" }, "mode": "replace", "ttl_ms": 3_600_000 })),
        ("lifo", json!(true)),
        ("keep_for", json!({ "succeeded_ms": 3_600_000, "failed_ms": 604_800_000 })),
        ("metadata", json!({ "a": "b=c" })),
        ("payload", json!({ "b": 1, "a": [2] })),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    // The payload is kept as it was written.
    assert!(scene.run(&["jobs", "show", &id.to_string(), "--json"]).out.contains(r#""payload":{"b":1,"a":[2]}"#));
    let sheet = scene.run(&["jobs", "show", &id.to_string()]).ok();
    sheet.shows(&["order-7", "eu, gpu", "a=b=c", "30s", "7d after failure", "its time has not come", "\"a\": ["]);
}

#[test]
fn enqueue_takes_payloads_from_everywhere_and_says_what_became_of_them() {
    let scene = Scene::new();
    std::fs::write(scene.path("p.json"), "{\"from\":\"file\"}").unwrap();
    let payload = |id: &str| scene.run(&["jobs", "show", id, "--json"]).ok().one()["payload"].clone();
    let id = scene.enqueue(&["q", "k", "@p.json"]).to_string();
    assert_eq!(payload(&id), json!({ "from": "file" }));
    let said = scene.run_with(&["enqueue", "q", "k", "-", "--content-type", "text/csv"], b"a;b\n1;2").ok();
    assert_eq!(payload(said.out.trim()), json!("a;b\n1;2"));
    assert_eq!(payload(&scene.enqueue(&["q", "k", "-5"]).to_string()), json!(-5));
    assert_eq!(payload(&scene.enqueue(&["q", "k"]).to_string()), json!(null));

    let first = scene.run(&["enqueue", "q", "k", "--unique", "u", "--json"]).ok().one();
    assert_eq!(first["outcome"], "created");
    let second = scene.run(&["enqueue", "q", "k", "--unique", "u", "--json"]).ok().one();
    assert_eq!((&second["outcome"], &second["id"]), (&json!("deduplicated"), &first["id"]));
    let again = scene.run(&["enqueue", "q", "k", "--unique", "u"]).ok();
    assert!(again.err.contains("stands for it") && first["id"] == again.out.trim(), "{again:?}");
    let id = scene.enqueue(&["q", "k", "--id", "mine"]).to_string();
    let again = scene.run(&["enqueue", "q", "k", "--id", "mine"]).ok();
    assert!(again.err.contains("there already") && again.out.trim() == id, "{again:?}");
}

#[test]
fn enqueue_many() {
    let scene = Scene::new();
    let mut text = String::new();
    for n in 0..2_500 {
        text += &format!(
            "{{\"queue\":\"bulk\",\"kind\":\"k\",\"payload\":{{\"n\":{n}}},\"labels\":[\"a\"],\"metadata\":{{\"m\":\"1\"}}}}\n"
        );
    }
    text += "{\"queue\":\"bulk\",\"kind\":\"k\",\"unique\":\"u\",\"delay\":\"5m\",\"retry\":\"none\"}\n";
    text += "{\"queue\":\"bulk\",\"kind\":\"k\",\"unique\":\"u\"}\n";
    text += "{\"queue\":\"bulk\",\"kind\":\"csv\",\"content_type\":\"text/csv\",\"payload\":\"a;b\"}";
    std::fs::write(scene.path("jobs.ndjson"), &text).unwrap();
    let summary = scene.run(&["enqueue", "--bulk", "jobs.ndjson", "--json"]).ok().one();
    let expected =
        json!({ "created": 2_502, "existing": 0, "deduplicated": 1, "replaced": 0, "held": 0, "refused": 0 });
    assert_eq!(summary, expected);
    let listed = scene.run(&["jobs", "list", "--all", "--json"]).ok().json();
    assert_eq!(listed.len(), 2_502, "and no cursor");
    let said = scene.run_with(&["enqueue", "--bulk", "-"], text.as_bytes()).ok();
    said.shows(&["2501 created, 2 deduplicated"]);
    let csv = scene.run(&["jobs", "list", "--kind", "csv", "--json"]).ok().json();
    let job = scene.run(&["jobs", "show", csv[0]["id"].as_str().unwrap(), "--json"]).ok().one();
    assert_eq!((&job["payload"], &job["content_type"]), (&json!("a;b"), &json!("text/csv")));
}

#[test]
fn jobs_are_listed_and_searched() {
    let scene = Scene::new();
    for n in 0..5 {
        scene.enqueue(&[
            "mail",
            "welcome",
            &format!("{{\"to\":\"user-{n}\"}}"),
            "--group",
            if n == 0 { "acme" } else { "other" },
        ]);
    }
    scene.enqueue(&["thumbs", "resize", "--label", "gpu"]);
    let ids = |args: &[&str]| {
        let args: Vec<&str> = ["jobs", "list", "--json"].iter().chain(args).copied().collect();
        scene.run(&args).ok().json().iter().filter_map(|job| job["id"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]).len(), 6);
    for (args, count) in [
        (&["--queue", "mail"][..], 5),
        (&["--state", "failed"], 0),
        (&["--kind", "resize"], 1),
        (&["--group", "acme"], 1),
        (&["--label", "gpu"], 1),
        (&["--text", "user-3"], 1),
        (&["--queue", "mail", "--limit", "2"], 2),
        (&["--all"], 6),
    ] {
        assert_eq!(ids(args).len(), count, "{args:?}");
    }
    let mut newest = ids(&["--queue", "mail", "--newest"]);
    newest.reverse();
    assert_eq!(newest, ids(&["--queue", "mail"]));
    let first = scene.run(&["jobs", "list", "--queue", "mail", "--limit", "3", "--json"]).ok().json();
    let cursor = first[3]["cursor"].as_str().unwrap();
    assert_eq!(ids(&["--queue", "mail", "--cursor", cursor]).len(), 2);

    let people = scene
        .run(&["jobs", "list", "--limit", "2"])
        .ok()
        .shows(&["ID", "QUEUE", "STATE", "mail", "welcome", "ready", "0/3"]);
    assert!(people.err.contains("there are more: --all, or --cursor"), "{people:?}");
    assert!(!people.out.contains('\u{1b}'), "no colours without a terminal");
    assert!(scene.run(&["jobs", "list", "--state", "failed"]).ok().err.contains("no jobs"));
}

#[test]
fn jobs_are_retried_cancelled_and_removed() {
    let scene = Scene::new();
    let ids: Vec<String> = (0..6).map(|_| scene.enqueue(&["mail", "welcome"]).to_string()).collect();
    wait(async {
        let store = scene.store();
        for _ in 0..4 {
            fail(&store, "mail", "smtp\u{1b}[2J said no").await;
        }
    });
    let counts = || scene.run(&["queues", "list", "--json"]).ok().one()["counts"].clone();
    let listed = scene.run(&["jobs", "list", "--state", "failed"]).ok().shows(&["smtp [2J said no"]);
    assert!(!listed.out.contains('\u{1b}'), "what was stored is not obeyed");

    scene.run(&["jobs", "retry", &ids[0]]).ok().shows(&[&ids[0], "retried, now ready"]);
    let json = scene.run(&["jobs", "cancel", &ids[0], &ids[4], "--json"]).ok().json();
    assert_eq!(json[1], json!({ "id": ids[4], "state": "cancelled" }));
    let mixed = scene.run(&["jobs", "cancel", "0-01k9z3v8q2f7t8x6m5n4p3r2s1", &ids[5]]);
    mixed.fails(4, &["not cancelled: not found"]).shows(&[&format!("{} cancelled", ids[5])]);

    // What a listing says is what a change understands.
    let failed = scene.run(&["jobs", "list", "--state", "failed", "--limit", "2", "--json"]).ok().out;
    assert!(failed.contains("cursor"));
    scene.run_with(&["jobs", "retry", "-"], failed.as_bytes()).ok().shows(&["retried, now ready"]);
    assert_eq!(
        counts(),
        json!({ "scheduled": 0, "ready": 2, "active": 0, "succeeded": 0, "failed": 1, "cancelled": 3 })
    );
    scene.run(&["jobs", "retry", "--queue", "mail", "--text", "smtp", "--yes"]).ok().shows(&["1 job retried"]);
    assert_eq!(
        scene.run(&["jobs", "cancel", "--all-queues", "--kind", "welcome", "--yes", "--json"]).ok().one()["changed"],
        3
    );
    scene.run(&["jobs", "remove", &ids[0], "--yes"]).ok().shows(&["removed"]);
    scene.run(&["jobs", "remove", "--queue", "mail", "--state", "cancelled", "--yes"]).ok().shows(&["5 jobs removed"]);
    assert_eq!(counts()["cancelled"], 0);
}

/// About the helper `claim`: the memory store answers many claims within one millisecond, and each must be a request of
/// its own.
#[test]
fn claims_within_one_millisecond_are_separate_requests() {
    const JOBS: usize = 100;
    let store = windlass::core::memory::MemoryStore::new();
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()));
    let job = || {
        let spec = JobSpec::new("mail".try_into().unwrap(), "welcome".try_into().unwrap(), Payload::json(&1).unwrap());
        NewJob::new(ids.next(), spec)
    };
    wait(async {
        store.enqueue(EnqueueRequest::new((0..JOBS).map(|_| job()).collect())).await.unwrap();
        let mut claimed = BTreeSet::new();
        for _ in 0..JOBS {
            claimed.insert(claim(&store, "mail", 60_000).await.lease.job);
        }
        assert_eq!(claimed.len(), JOBS, "a claim was answered as the repetition of another one");
    });
}

/// A job that has been through everything.
fn eventful(scene: &Scene) -> String {
    scene.enqueue(&["mail", "welcome", "{\"to\":\"ada\"}"]);
    wait(async {
        let store = scene.store();
        let job = claim(&store, "mail", 60_000).await;
        report(&store, &job, Outcome::fail(job.lease, "try again", windlass::core::job::Retry::AfterMs(0))).await;
        let job = claim(&store, "mail", 60_000).await;
        let line =
            |text: &'static str| LogLine { at: Timestamp::from_ms(0), stream: LogStream::Stdout, text: text.into() };
        let lines = vec![line("first"), line("second\u{7}")];
        store.append_logs(vec![LogAppend { lease: job.lease, first: 0, lines }]).await.unwrap().remove(0).unwrap();
        let progress = Some(Progress { percent: 40, message: "half".to_owned() });
        let renewal = Renewal { lease: job.lease, lease_ms: None, progress };
        store.renew(RenewRequest { renewals: vec![renewal] }).await.unwrap().remove(0).unwrap();
        let outputs = [("url".to_owned(), "https://x".to_owned())].into();
        let result = Some(Payload::json(&json!({ "sent": true })).unwrap());
        report(&store, &job, Outcome { lease: job.lease, kind: OutcomeKind::Complete { result, outputs } }).await;
        job.lease.job.to_string()
    })
}

#[test]
fn a_job_is_shown_with_everything_about_it() {
    let scene = Scene::new();
    let id = eventful(&scene);
    let words =
        ["succeeded", "2 of 3", "attempt 1 (error", "try again", "\"sent\": true", "url=https://x", "\"to\": \"ada\""];
    scene.run(&["jobs", "show", &id]).ok().shows(&words);
    let job = scene.run(&["jobs", "show", &id, "--json"]).ok().one();
    assert_eq!((&job["result"], &job["outputs"]["url"]), (&json!({ "sent": true }), &json!("https://x")));
    assert_eq!((&job["failures"][0]["message"], &job["explanation"]["reason"]), (&json!("try again"), &json!("ended")));

    // Nobody's terminal: they are what was written.
    scene.run(&["jobs", "logs", &id]).ok().shows(&["#2 first", "#2 second\u{7}\n"]);
    let logs = scene.run(&["jobs", "logs", &id, "--follow", "--json"]).ok().json();
    assert_eq!((logs.len(), &logs[1]["number"], &logs[0]["stream"]), (2, &json!(1), &json!("stdout")));
    let quiet = scene.enqueue(&["mail", "welcome"]).to_string();
    assert!(scene.run(&["jobs", "logs", &quiet]).ok().err.contains("no lines"));
}

#[test]
fn queues_are_shown_and_changed() {
    let scene = Scene::new();
    eventful(&scene);
    scene.enqueue(&["mail", "newsletter"]);
    scene.enqueue(&["mail", "newsletter", "--delay", "1h"]);
    scene.run(&["queues", "list"]).ok().shows(&["QUEUE", "SCHEDULED", "mail"]);
    scene.run(&["queues", "show", "mail"]).ok().shows(&[
        "last hour",
        "3 enqueued",
        "1 succeeded",
        "1 retried",
        "█",
        "keep failed",
    ]);
    let queue = scene.run(&["queues", "show", "mail", "--json"]).ok().one();
    assert_eq!((&queue["last_hour"]["enqueued"], &queue["last_hour"]["claimed"]), (&json!(3), &json!(2)));
    assert!(queue["last_hour"]["wait_ms_mean"].is_u64() && queue["minutes"].is_array(), "{queue}");

    scene.run(&["queues", "pause", "mail"]).ok().shows(&["is paused"]);
    scene.run(&["queues", "pause", "mail"]).ok().shows(&["was paused already"]);
    let resumed = scene.run(&["queues", "resume", "mail", "--json"]).ok().one();
    assert_eq!((&resumed["before"], &resumed["paused"]), (&json!(true), &json!(false)));
    scene.run(&["queues", "pause", "mail", "--kind", "newsletter"]).ok().shows(&["the kind `newsletter`"]);
    scene.run(&["queues", "list"]).ok().shows(&["newsletter paused"]);
    scene.run(&["queues", "resume", "mail", "--kind", "newsletter"]).ok().shows(&["is resumed"]);

    let set = [
        "queues",
        "set",
        "mail",
        "--cap",
        "9",
        "--rate",
        "5/1s",
        "--max-length",
        "100",
        "--keep-failed",
        "1d",
        "--group-weight",
        "3",
    ];
    let words = [
        "cap: none → 9",
        "rate: none → 5/1s",
        "max length: none → 100",
        "keep failed: 14d → 1d",
        "group weight: none → 3",
    ];
    scene.run(&set).ok().shows(&words);
    let changed = scene.run(&["queues", "set", "mail", "--rate", "none", "--json"]).ok().one();
    assert_eq!((&changed["before"]["rate"]["limit"], &changed["after"]["rate"]), (&json!(5), &json!(null)));
    assert_eq!(changed["after"]["cap"], 9, "only what is named is changed");
    assert!(scene.run(&["queues", "set", "mail", "--cap", "9"]).ok().err.contains("set so already"));

    scene.run(&["queues", "clean", "mail", "--older-than", "1h", "--yes"]).ok().shows(&["0 jobs removed"]);
    scene.run(&["queues", "clean", "mail", "--state", "succeeded", "--yes"]).ok().shows(&["1 job removed"]);
    scene.run(&["queues", "drain", "mail", "--yes"]).ok().shows(&["1 job removed"]);
    assert_eq!(scene.run(&["queues", "drain", "mail", "--scheduled", "--yes", "--json"]).ok().one()["changed"], 1);
    scene.enqueue(&["mail", "welcome"]);
    scene.run(&["queues", "obliterate", "mail", "--yes"]).ok().shows(&["1 job removed"]);
    assert!(scene.run(&["queues", "list"]).ok().err.contains("no queues"));
}

#[test]
fn a_job_is_found_by_the_id_that_it_was_given() {
    let scene = Scene::new();
    let id = scene.enqueue(&["mail", "welcome", "--id", "mine-1"]).to_string();
    assert_eq!(scene.run(&["jobs", "show", "mine-1", "--json"]).ok().one()["id"], json!(id));
    assert_eq!(scene.run(&["explain", "mine-1", "--json"]).ok().one()["id"], json!(id));
    assert!(scene.run(&["jobs", "logs", "mine-1"]).ok().err.contains("no lines"));
    scene.run(&["jobs", "watch", "mine-1", "--for", "1ms"]).fails(1, &[&id, "has not ended"]);
    // Of two nobody knows which, and one of a group has to be looked for.
    scene.enqueue(&["other", "welcome", "--id", "mine-1"]);
    let grouped = scene.enqueue(&["mail", "welcome", "--id", "mine-2", "--group", "acme"]).to_string();
    for command in [&["jobs", "show"][..], &["jobs", "logs"], &["jobs", "watch"], &["explain"]] {
        let with = |name| scene.run(&[command, &[name]].concat());
        with("mine-1").fails(2, &["2 queues have a job `mine-1`", "windlass jobs list --text mine-1"]);
        with("mine-2").fails(4, &["no job `mine-2`", "windlass jobs list --text mine-2"]);
    }
    scene.run(&["jobs", "list", "--text", "mine-2"]).ok().shows(&[&grouped]);
}

#[test]
fn groups_and_workers() {
    let scene = Scene::new();
    scene.enqueue(&["tenants", "k", "--group", "acme"]);
    scene.run(&["groups", "list", "tenants"]).ok().shows(&["GROUP", "acme"]);
    scene
        .run(&["groups", "set", "tenants", "acme", "--cap", "5", "--weight", "2"])
        .ok()
        .shows(&["cap: none → 5", "weight: none → 2"]);
    let set = scene.run(&["groups", "set", "tenants", "acme", "--rate", "3/1m", "--cap", "none", "--json"]).ok().one();
    assert_eq!(set["after"], json!({ "cap": null, "rate": { "limit": 3, "per_ms": 60_000 }, "weight": 2 }));
    assert_eq!(scene.run(&["groups", "list", "tenants", "--json"]).ok().one()["settings"], set["after"]);
    // What it does not say, its queue says; and that is told apart.
    scene.run(&["queues", "set", "tenants", "--group-cap", "7", "--group-rate", "9/1s"]).ok();
    scene.run(&["groups", "list", "tenants"]).ok().shows(&["7 (queue)", "3/1m"]);
    let group = scene.run(&["groups", "list", "tenants", "--json"]).ok().one();
    assert_eq!((&group["cap"], &group["effective_cap"]), (&json!(null), &json!(7)), "{group}");
    assert_eq!((&group["effective_rate"]["limit"], &group["effective_weight"]), (&json!(3), &json!(2)), "{group}");
    scene.run(&["groups", "set", "tenants", "acme", "--cap", "5"]).ok();
    let own = scene.run(&["groups", "list", "tenants"]).ok();
    assert!(!own.out.contains("(queue)"), "{own:?}");

    assert!(scene.run(&["workers"]).ok().err.contains("no workers"));
    wait(async { beat(&scene.store(), "tenants", Kinds::Any).await });
    scene.run(&["workers"]).ok().shows(&[
        "worker-of-tenants",
        "live",
        "3/8",
        "ago",
        "tenants",
        "any",
        "linux",
        "host-1 pid 7",
    ]);
    let worker = scene.run(&["workers", "--json"]).ok().one();
    assert_eq!((&worker["live"], &worker["beat"]["slots"]), (&json!(true), &json!(8)));
}

#[test]
fn schedules_from_add_to_remove() {
    let scene = Scene::new();
    assert!(
        scene
            .run(&["schedules", "add", "n", "reports", "render", "{\"a\":1}", "--every", "5m"])
            .ok()
            .err
            .contains("added")
    );
    let args = [
        "schedules",
        "add",
        "n",
        "reports",
        "render",
        "--cron",
        "0 3 * * *",
        "--overlap",
        "skip",
        "--catch-up",
        "all:5",
    ];
    let said = scene.run(&args).ok().shows(&["0 3 * * * UTC", "render on reports", "T03:00:00.000Z"]);
    assert_eq!(said.out.lines().filter(|line| line.starts_with("next")).count(), 3, "{said:?}");
    assert!(said.err.contains("changed `n`"));
    let json = scene.run(&["schedules", "show", "n", "--json"]).ok().one();
    assert_eq!(
        (&json["overlap"], &json["catch_up"], json["next_ticks"].as_array().unwrap().len()),
        (&json!("skip"), &json!({ "all": { "max": 5 } }), 3)
    );
    scene.run(&["schedules", "show", "n"]).ok().shows(&["overlap    skip"]);
    scene.run(&["schedules", "list"]).ok().shows(&["SCHEDULE", "0 3 * * * UTC", "reports"]);
    assert_eq!(scene.run(&["schedules", "list", "--json"]).ok().one()["name"], "n");

    scene.run(&["schedules", "pause", "n"]).ok().shows(&["`n` is paused"]);
    assert_eq!(scene.run(&["schedules", "pause", "n", "--json"]).ok().one()["before"], true);
    scene.run(&["schedules", "resume", "n"]).ok().shows(&["`n` is running; next at"]);
    let id = scene.run(&["schedules", "run", "n"]).ok().out.trim().to_owned();
    let job = scene.run(&["jobs", "show", &id, "--json"]).ok().one();
    assert_eq!((&job["queue"], &job["metadata"]["windlass.schedule"]), (&json!("reports"), &json!("n")));
    scene.run(&["schedules", "run", "n"]).fails(5, &["has not ended", "windlass schedules show n"]);
    scene.run(&["jobs", "cancel", &id]).ok();
    assert_eq!(scene.run(&["schedules", "run", "n", "--json"]).ok().one()["created"], true);
    let args = ["schedules", "add", "short", "q", "k", "--every", "1h", "--limit", "2", "--json"];
    assert_eq!(scene.run(&args).ok().one()["next_ticks"].as_array().unwrap().len(), 2, "no more than its limit");
    assert_eq!(scene.run(&["schedules", "remove", "n", "--yes", "--json"]).ok().one()["removed"], true);
    scene.run(&["schedules", "remove", "short", "--yes"]).ok().shows(&["is removed"]);
    assert!(scene.run(&["schedules", "list"]).ok().err.contains("no schedules"));
}

#[test]
fn a_queue_without_room_for_another_kind_says_what_to_do() {
    let scene = Scene::new();
    let lines: String = (0..1_024).map(|n| format!("{{\"queue\":\"wide\",\"kind\":\"kind{n}\"}}\n")).collect();
    scene.run_with(&["enqueue", "--bulk", "-"], lines.as_bytes()).ok();
    let words = ["with this job the number of kinds", "is 1025, at most 1024", "hint: use another queue"];
    scene.run(&["enqueue", "wide", "one-more"]).fails(2, &words);
    scene.run(&["enqueue", "other", "one-more"]).ok();
}

#[test]
fn the_length_of_the_feed_is_shown_and_set() {
    let scene = Scene::new();
    // A store that is not there is not made.
    scene.run(&["feed", "show"]).fails(3, &["jobs.db"]);
    scene.run(&["feed", "set", "--events", "5000"]).fails(3, &["jobs.db"]);
    scene.enqueue(&["mail", "welcome"]);
    scene.run(&["feed", "show"]).ok().shows(&["keeps at least 100000 events", "the last entry is 1"]);
    scene.run(&["feed", "set", "--events", "5000"]).ok().shows(&["keeps at least 5000 events, before: 100000"]);
    let set = scene.run(&["feed", "set", "--events", "6000", "--json"]).ok().one();
    assert_eq!(set, json!({ "events": 6_000, "before": 5_000 }));
    assert_eq!(scene.run(&["feed", "show", "--json"]).ok().one(), json!({ "events": 6_000, "end": 1 }));
    scene.run(&["doctor"]).shows(&["feed events 6000"]);
    for events in ["0", "999"] {
        scene.run(&["feed", "set", "--events", events]).fails(2, &["'--events <N>'", "1000..=10000000"]);
    }
    scene.run(&["feed", "set", "--events", "10000001"]).fails(2, &["'--events <N>'", "1000..=10000000"]);
    for events in ["-1", "many", ""] {
        scene.run(&["feed", "set", "--events", events]).fails(2, &["--events"]);
    }
    assert_eq!(scene.run(&["feed", "show", "--json"]).ok().one()["events"], 6_000, "nothing was changed");
}
