//! Bad input, through the real binary: an exit code, words that help, no panic, and nothing changed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use support::{Scene, wait};
use windlass::core::store::{Filter, JobQueue, ListRequest};

/// Arguments, exit code, words that the user must see.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

/// A store with something in it that could be changed.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.enqueue(&["mail", "welcome", "{\"to\":\"ada\"}"]);
    scene.enqueue(&["mail", "welcome", "--delay", "1h"]);
    scene.run(&["schedules", "add", "nightly", "mail", "digest", "--cron", "0 3 * * *"]).ok();
    scene
}

#[track_caller]
fn check(scene: &Scene, cases: &[Case<'_>]) {
    let before = scene.seen();
    for (args, code, words) in cases {
        let said = scene.run(args).fails(*code, words);
        assert_eq!(said.out, "", "{args:?} is refused and says something all the same");
        assert_eq!(scene.seen(), before, "{args:?} changed something");
        // Programs get the same as JSON.
        let json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let said = scene.run(&json).fails(*code, &[]);
        let line = said.err.lines().last().unwrap_or_default();
        let value: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        assert!(value["message"].as_str().is_some_and(|text| !text.is_empty()), "{value}");
    }
    assert_eq!(scene.seen(), before);
}

#[test]
fn payloads() {
    let deep = "[".repeat(100_000);
    let enqueue = |payload| ["enqueue", "q", "k", payload];
    check(
        &scene(),
        &[
            (&enqueue(""), 2, &["not JSON", "EOF"]),
            (&enqueue("{"), 2, &["not JSON", "line 1 column 1", "--content-type"]),
            (&enqueue("{\"a\":1,\n\"a\":2}"), 2, &["`a` comes twice", "line 2"]),
            (&enqueue(&deep), 2, &["recursion limit"]),
            (&enqueue("1e400"), 2, &["out of range"]),
            (&enqueue("hello"), 2, &["not JSON", "quote text"]),
            (&enqueue("\"\\ud800\""), 2, &["hex escape"]),
            (&enqueue("@nowhere.json"), 2, &["nowhere.json", "No such file"]),
            (&enqueue("@/dev/zero"), 2, &["larger than 4194304 bytes", "store it elsewhere"]),
            (&["enqueue", "q", "k", "x", "--content-type", ""], 2, &["content_type"]),
        ],
    );
}

#[test]
fn payloads_on_standard_input() {
    let scene = scene();
    let before = scene.seen();
    for (input, word) in [(&b"\xff\xfe"[..], "not JSON"), (b"", "EOF"), (&vec![b' '; 64 << 20], "larger than 4194304")]
    {
        scene.run_with(&["enqueue", "q", "k", "-"], input).fails(2, &[word]);
    }
    assert_eq!(scene.seen(), before);
    // Bytes of any kind are fine when they do not pretend to be JSON.
    scene.run_with(&["enqueue", "q", "k", "-", "--content-type", "application/octet-stream"], b"\xff\xfe").ok();
}

#[test]
fn names_and_numbers() {
    let long = "x".repeat(10_000);
    let labels: Vec<String> = (0..10_000).map(|n| format!("label-{n}")).collect();
    let mut labelled = vec!["enqueue", "q", "k"];
    labels.iter().for_each(|label| labelled.extend(["--label", label.as_str()]));
    let with = |flag, value| ["enqueue", "q", "k", flag, value];
    check(
        &scene(),
        &[
            (&["enqueue", &long, "k"], 2, &["10000", "at most 255"]),
            (&["enqueue", "", "k"], 2, &["empty"]),
            (&["enqueue", "q", "a\u{7}b"], 2, &["control character"]),
            (&["enqueue", "q"], 2, &["kind"]),
            (&["enqueue"], 2, &["queue"]),
            (&labelled, 2, &["labels is 10000, at most 16"]),
            (&with("--priority", "9223372036854775808"), 2, &["--priority"]),
            (&with("--priority", "-32769"), 2, &["-32768..=32767"]),
            (&with("--attempts", "0"), 2, &["attempts", "at least 1"]),
            (&with("--attempts", "-1"), 2, &["-1"]),
            (&with("--timeout", "0s"), 2, &["timeout", "leave it out"]),
            (&with("--timeout", "18446744073709551615ms"), 2, &["timeout", "at most"]),
            (&with("--delay", "5"), 2, &["no unit", "500ms, 30s, 5m, 2h or 7d"]),
            (&with("--delay", "99999d"), 2, &["at most"]),
            (&with("--run-at", "9999-01-01T00:00:00Z"), 2, &["1970 to 2200"]),
            (&with("--run-at", "-1"), 2, &["2026-11-15T20:00:00Z"]),
            (&with("--run-at", "1969-12-31T23:59:59Z"), 2, &["1970 to 2200"]),
            (&["enqueue", "q", "k", "--wait", "30s"], 2, &["would be the payload", "--wait=30s"]),
            (&with("--retry", "sometimes"), 2, &["no retry policy", "fixed:5s"]),
            (&with("--retry", "exponential:1s..99999999d"), 2, &["at most"]),
            (&with("--retry", "fixed:99999999999999999999s"), 2, &["longer than I can count"]),
            (&with("--dedup", "often"), 2, &["reject", "replace", "throttle", "keep_last"]),
            (&with("--dedup", "throttle"), 2, &["throttle needs it"]),
            (&with("--dedup-key", "k"), 2, &["--dedup"]),
            (&with("--dedup-ttl", "5s"), 2, &["without a mode"]),
            (&with("--metadata", "novalue"), 2, &["key=value"]),
            (&["enqueue", "q", "k", "--delay", "5s", "--run-at", "2026-11-15T20:00:00Z"], 2, &["cannot be used with"]),
        ],
    );
}

#[test]
fn strange_names_are_names() {
    let scene = Scene::new();
    for name in ["a}b{c", "../../etc/passwd", "%2e%2e%2f", "<script>alert(1)</script>", "é", "a*"] {
        let id = scene.enqueue(&[name, name, "--id", name, "--group", name]).to_string();
        let job = scene.run(&["jobs", "show", &id, "--json"]).ok().one();
        assert_eq!((&job["queue"], &job["custom_id"]), (&name.into(), &name.into()));
        scene.run(&["queues", "show", name]).ok().shows(&[name]);
    }
    assert_eq!(scene.run(&["queues", "list", "--json"]).ok().json().len(), 6);
}

#[test]
fn ids_cursors_and_filters() {
    let scene = scene();
    let listed = scene.run(&["jobs", "list", "--limit", "1", "--json"]).ok().json();
    let cursor = listed[1]["cursor"].as_str().unwrap().to_owned();
    let digit = if cursor.ends_with('0') { "1" } else { "0" };
    let tampered = format!("{}{digit}", &cursor[..cursor.len() - 1]);
    let nobody = "0-01k9z3v8q2f7t8x6m5n4p3r2s1";
    check(
        &scene,
        &[
            (&["jobs", "show", "../../etc/passwd"], 4, &["an id looks like 0-0000"]),
            (&["jobs", "show", "a\r\nb"], 2, &["an id looks like"]),
            (&["jobs", "show", ""], 2, &["value"]),
            (&["jobs", "show", "01k9z3v8"], 4, &["an id looks like", "windlass jobs list --text 01k9z3v8"]),
            (&["explain", "x"], 4, &["an id looks like", "windlass jobs list --text x"]),
            (&["explain", nobody], 4, &["not found", nobody]),
            (&["jobs", "show", nobody], 4, &["no job", nobody]),
            (&["jobs", "logs", nobody], 4, &["no job", nobody]),
            (&["jobs", "watch", nobody], 4, &["no job", nobody]),
            (&["jobs", "retry", "x"], 2, &["an id looks like"]),
            (&["jobs", "retry"], 2, &["ID"]),
            (&["jobs", "retry", nobody, "--state", "failed"], 2, &["cannot be used with"]),
            (&["jobs", "list", "--cursor", &tampered], 2, &["cursor", "begin without a cursor"]),
            (&["jobs", "list", "--cursor", &cursor, "--newest"], 2, &["begin without a cursor"]),
            (&["jobs", "list", "--cursor", "x"], 2, &["cursor"]),
            (&["jobs", "list", "--limit", "-1"], 2, &["1..=1000"]),
            (&["jobs", "list", "--limit", "0"], 2, &["1..=1000"]),
            (&["jobs", "list", "--limit", "1000000000"], 2, &["1..=1000"]),
            (&["jobs", "list", "--state", "dead"], 2, &["`dead` is none of scheduled, ready"]),
            (&["jobs", "list", "--text", ""], 2, &["text"]),
            (&["jobs", "cancel", "--kind", "welcome", "--yes"], 2, &["--queue is missing", "--all-queues"]),
            (&["jobs", "retry", "--queue", "mail", "--state", "ready", "--yes"], 2, &["--state failed"]),
            (&["jobs", "cancel", "--queue", "mail", "--state", "failed", "--yes"], 2, &["ended already"]),
            (&["jobs", "remove", "--queue", "mail", "--yes"], 2, &["--state is missing"]),
            (&["jobs", "remove", "--queue", "mail", "--state", "active", "--yes"], 2, &["cancel them first"]),
            (&["jobs", "cancel", "--queue", "mial", "--yes"], 4, &["no queue `mial`", "did you mean `mail`?"]),
        ],
    );
    // The right cursor goes on.
    assert_eq!(scene.run(&["jobs", "list", "--cursor", &cursor, "--json"]).ok().json().len(), 1);
}

#[test]
fn queues_groups_and_what_destroys() {
    let scene = scene();
    let id = scene.enqueue(&["mail", "welcome"]).to_string();
    check(
        &scene,
        &[
            (&["queues", "show", "nowhere"], 4, &["no queue `nowhere`", "windlass queues list"]),
            (&["queues", "pause", "mial"], 4, &["did you mean `mail`?"]),
            (&["queues", "drain", "mail"], 2, &["say --yes"]),
            (&["queues", "clean", "mail"], 2, &["say --yes"]),
            (&["queues", "obliterate", "mail"], 2, &["say --yes"]),
            (&["jobs", "remove", &id], 2, &["say --yes"]),
            (&["jobs", "cancel", "--queue", "mail"], 2, &["say --yes"]),
            (&["schedules", "remove", "nightly"], 2, &["say --yes"]),
            (&["queues", "clean", "mail", "--state", "ready", "--yes"], 2, &["have not ended", "drain"]),
            (&["queues", "clean", "mail", "--older-than", "yesterday", "--yes"], 2, &["30s"]),
            (&["queues", "set", "mail"], 2, &["nothing is to be changed"]),
            (&["queues", "set", "mail", "--cap", "0"], 2, &["pause instead"]),
            (&["queues", "set", "mail", "--cap", "many"], 2, &["`none` to clear it"]),
            (&["queues", "set", "mail", "--rate", "100"], 2, &["100/1m"]),
            (&["queues", "set", "mail", "--rate", "0/1m"], 2, &["pause instead"]),
            (&["queues", "set", "mail", "--rate", "5/32d"], 2, &["at most"]),
            (&["queues", "set", "mail", "--group-weight", "1001"], 2, &["at most 1000"]),
            (&["groups", "list", "nowhere"], 4, &["no queue"]),
            (&["groups", "set", "mail", "acme"], 2, &["nothing is to be changed"]),
            (&["groups", "set", "mail", "acme", "--weight", "0"], 2, &["1 or more"]),
        ],
    );
}

#[test]
fn an_active_job_is_in_the_way() {
    let scene = scene();
    let claimed = wait(async { support::claim(&scene.store(), "mail", 60_000).await });
    let id = claimed.lease.job.to_string();
    check(&scene, &[(&["queues", "obliterate", "mail", "--yes"], 5, &["active", "--force"])]);
    for verb in ["remove", "retry"] {
        scene.run(&["jobs", verb, &id, "--yes"]).fails(5, &["a job that is active cannot"]);
    }
    scene.run(&["queues", "obliterate", "mail", "--yes", "--force"]).ok().shows(&["2 jobs removed"]);
}

#[test]
fn schedules() {
    let add = |rule, value| ["schedules", "add", "s", "q", "k", rule, value];
    check(
        &scene(),
        &[
            (&add("--cron", "60 * * * *"), 2, &["60", "minute"]),
            (&add("--cron", "0 0 30 2 *"), 2, &["never comes"]),
            (&add("--cron", "every day"), 2, &["has 2 fields"]),
            (&add("--cron", ""), 2, &["5 or 6"]),
            (
                &["schedules", "add", "s", "q", "k", "--cron", "0 3 * * *", "--zone", "Europe/Berln"],
                2,
                &["Europe/Berln"],
            ),
            (&add("--every", "0s"), 2, &["at least one second"]),
            (&add("--every", "400d"), 2, &["at most"]),
            (&["schedules", "add", "s", "q", "k"], 2, &["--cron", "--every"]),
            (&["schedules", "add", "s", "q", "k", "--every", "5m", "--cron", "0 3 * * *"], 2, &["cannot be used with"]),
            (&["schedules", "add", "s", "q", "--every", "5m"], 2, &["kind"]),
            (&["schedules", "add", "s", "q", "k", "{", "--every", "5m"], 2, &["not JSON"]),
            (&["schedules", "add", "s", "q", "k", "--every", "5m", "--limit", "0"], 2, &["limit"]),
            (&["schedules", "add", "s", "q", "k", "--every", "5m", "--catch-up", "all:0"], 2, &["catch_up"]),
            (&["schedules", "add", "s", "q", "k", "--every", "5m", "--catch-up", "some"], 2, &["all:MAX"]),
            (&["schedules", "add", "s", "q", "k", "--every", "5m", "--id", "x"], 2, &["custom_id"]),
            (&["schedules", "add", "s", "q", "k", "--every", "5m", "--delay", "5s"], 2, &["--delay"]),
            (
                &[
                    "schedules",
                    "add",
                    "s",
                    "q",
                    "k",
                    "--every",
                    "5m",
                    "--start",
                    "2030-01-02T00:00:00Z",
                    "--end",
                    "2030-01-01T00:00:00Z",
                ],
                2,
                &["before the start"],
            ),
            (&["schedules", "show", "nightl"], 4, &["did you mean `nightly`?"]),
            (&["schedules", "run", "weekly"], 4, &["no schedule `weekly`"]),
            (&["schedules", "pause", "weekly"], 4, &["no schedule"]),
            (&["schedules", "remove", "weekly", "--yes"], 4, &["no schedule"]),
        ],
    );
}

#[test]
fn hours_that_are_left_out_or_come_twice_are_said() {
    let scene = Scene::new();
    let add = |name, cron, start| {
        let args =
            ["schedules", "add", name, "q", "k", "--cron", cron, "--zone", "Europe/Berlin", "--start", start, "--json"];
        scene.run(&args).ok().one()["next_ticks"].clone()
    };
    // 02:30 is left out on 28 March 2027: it ticks at the moment of the change, 03:00 summer time.
    let ticks = add("gap", "30 2 * * *", "2027-03-28T00:00:00Z");
    assert_eq!(ticks[0], "2027-03-28T01:00:00.000Z");
    assert_eq!(ticks[1], "2027-03-29T00:30:00.000Z");
    // 02:30 comes twice on 31 October 2027: the first of them ticks.
    let ticks = add("twice", "30 2 * * *", "2027-10-31T00:00:00Z");
    assert_eq!(ticks[0], "2027-10-31T00:30:00.000Z");
    assert_eq!(ticks[1], "2027-11-01T01:30:00.000Z");
}

#[test]
fn flags_commands_and_configuration() {
    let scene = scene();
    check(
        &scene,
        &[
            (&["jobs", "list", "--limitt", "3"], 2, &["--limitt", "'--limit'"]),
            (&["jbos"], 2, &["'jobs'"]),
            (&["jobs", "lst"], 2, &["'list'"]),
            (&["enqueue", "q", "k", "--priorty", "3"], 2, &["'--priority'"]),
            (&["jobs", "list", "--store", "sqllite://jobs.db"], 2, &["no kind of store", "did you mean `sqlite://`?"]),
            (&["jobs", "list", "--store", "jobs.db"], 2, &["sqlite://jobs.db"]),
            (&["jobs", "list", "--store", "redis:/localhost:6379"], 2, &["did you mean `redis://localhost:6379`?"]),
            (&["jobs", "list", "--store", "mongo://x"], 2, &["rediss://, redis+sentinel://, redis+cluster://"]),
            (&["doctor", "jobs.db"], 2, &["sqlite://jobs.db"]),
            (&["doctor", "sqlite://a.db", "--store", "sqlite://b.db"], 2, &["two stores are named"]),
            (&["top", "sqlite://jobs.db"], 2, &["unexpected argument"]),
            (&["jobs", "list", "--store", "sqlite://"], 2, &["names no file"]),
            (&["jobs", "list", "--store", "sqlite://jobs.db?syncronous=full"], 2, &["did you mean `synchronous`?"]),
            (&["jobs", "list", "--store", "sqlite://jobs.db?busy_ms=soon"], 2, &["milliseconds"]),
            (&["jobs", "list", "--store", "sqlite://%zz"], 2, &["%20"]),
            (&["enqueue", "q", "k", "--store", "memory://x"], 2, &["memory://"]),
            (&["enqueue", "q", "k", "--bulk", "x.ndjson"], 2, &["cannot be used with"]),
            (&["enqueue", "--bulk", "nowhere.ndjson"], 2, &["nowhere.ndjson"]),
            (&["enqueue", "--bulk", "."], 2, &["folder"]),
            (&["watch"], 2, &["unrecognized"]),
        ],
    );
    scene.run(&["--store"]).fails(2, &["--store"]);
    scene.run(&[]).fails(2, &["Usage: windlass"]);
    scene.run(&["--json"]).fails(2, &["requires a subcommand"]);
    for (text, words) in [
        ("stroe = \"sqlite://jobs.db\"", &["windlass.toml", "line 1", "did you mean `store`?"][..]),
        ("store = 5", &["line 1", "expected a string"]),
        ("\nstore = \"sqlite://jobs.db", &["line 2"]),
        ("store = \"a\"\nstore = \"b\"", &["line 2", "duplicate"]),
    ] {
        std::fs::write(scene.path("windlass.toml"), text).unwrap();
        check(&scene, &[(&["jobs", "list"], 2, words)]);
    }
    std::fs::write(scene.path("windlass.toml"), "store = \"sqlite://jobs.db\"\n").unwrap();
    let mut command = scene.command(&["queues", "list"]);
    support::said(command.env_remove("WINDLASS_STORE").output().unwrap()).ok().shows(&["mail"]);
    std::fs::remove_file(scene.path("windlass.toml")).unwrap();
    let mut command = scene.command(&["queues", "list"]);
    support::said(command.env_remove("WINDLASS_STORE").output().unwrap())
        .fails(2, &["no store is named", "WINDLASS_STORE"]);
}

#[test]
fn files_that_are_no_stores() {
    let scene = scene();
    std::fs::write(scene.path("text.db"), "this is not a database, and it is long enough to be looked at".repeat(20))
        .unwrap();
    std::fs::create_dir(scene.path("folder.db")).unwrap();
    std::fs::create_dir(scene.path("shut")).unwrap();
    std::fs::copy(scene.path("jobs.db"), scene.path("newer.db")).unwrap();
    let newer = windlass_sqlite::rusqlite::Connection::open(scene.path("newer.db")).unwrap();
    newer.execute("UPDATE windlass_meta SET value=99 WHERE key='layout'", []).unwrap();
    drop(newer);
    let other = windlass_sqlite::rusqlite::Connection::open(scene.path("other.db")).unwrap();
    other.execute_batch("CREATE TABLE customers (id INTEGER)").unwrap();
    drop(other);
    let list = |store| ["jobs", "list", "--store", store];
    check(
        &scene,
        &[
            (&list("sqlite://missing.db"), 3, &["no such file: missing.db", "windlass enqueue"]),
            (&list("sqlite://no/such/folder/jobs.db"), 3, &["no such file"]),
            (&["doctor", "--store", "sqlite://missing.db?busy_ms=10"], 3, &["no such file"]),
            (&["enqueue", "q", "k", "--store", "sqlite://no/such/folder/jobs.db"], 3, &["folder must exist"]),
            (&list("sqlite://text.db"), 3, &["not an SQLite database"]),
            (&list("sqlite://folder.db"), 3, &["is a folder; name a file in it"]),
            (&list("sqlite://newer.db"), 3, &["layout 99", "newer program"]),
            (&list("sqlite://other.db"), 3, &["another application", "adopt=true"]),
        ],
    );
    assert!(!scene.path("missing.db").exists(), "who only looks makes no file");
    // Another process holds the file.
    let holder = scene.raw();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    scene.run(&["enqueue", "q", "k", "--store", "sqlite://jobs.db?busy_ms=50"]).fails(3, &["another process holds"]);
    drop(holder);
    for command in [&["queues", "pause", "mail"][..], &["schedules", "list"], &["workers"], &["groups", "list", "q"]] {
        let args: Vec<&str> = command.iter().copied().chain(["--store", "sqlite://missing.db"]).collect();
        scene.run(&args).fails(3, &["no such file"]);
        assert!(!scene.path("missing.db").exists(), "{command:?}");
    }
    // What is refused before the store is opened makes no file, either.
    for command in [
        &["enqueue", "q", "k", "{"][..],
        &["queues", "set", "q", "--cap", "0"],
        &["schedules", "add", "s", "q", "k", "--cron", "x"],
    ] {
        let args: Vec<&str> = command.iter().copied().chain(["--store", "sqlite://missing.db"]).collect();
        scene.run(&args).fails(2, &[]);
        assert!(!scene.path("missing.db").exists(), "{command:?}");
    }
}

/// A folder that may not be written: only where permissions count, which is not so for the administrator.
#[cfg(unix)]
#[test]
fn a_folder_that_may_not_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let shut = scene.path("shut");
    std::fs::create_dir(&shut).unwrap();
    std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o500)).unwrap();
    let counts = std::fs::write(shut.join("probe"), "").is_err();
    let said = scene.run(&["enqueue", "q", "k", "--store", "sqlite://shut/jobs.db"]);
    std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o700)).unwrap();
    if counts {
        said.fails(3, &["allowed to write"]);
    } else {
        // As the administrator everything may be written; the kernel's own folder may not.
        scene.run(&["enqueue", "q", "k", "--store", "sqlite:///proc/jobs.db"]).fails(3, &["cannot be opened"]);
    }
}

#[test]
fn bulk_files() {
    let scene = scene();
    let before = scene.seen();
    let job = |rest: &str| format!("{{\"queue\":\"q\",\"kind\":\"k\"{rest}}}");
    let long = job(&format!(",\"group\":\"{}\"", "x".repeat(10_000)));
    let labels = job(&format!(",\"labels\":[{}\"z\"]", (0..10_000).map(|n| format!("\"{n}\",")).collect::<String>()));
    let deep = job(&format!(",\"payload\":{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    for (line, words) in [
        ("{", &["EOF", "column 1"][..]),
        ("null", &["null"]),
        ("[]", &["queue"]),
        ("\"x\"", &["string"]),
        ("{}", &["`queue` is missing"]),
        ("{\"queue\":\"q\"}", &["`kind` is missing"]),
        (&job(",\"prioritty\":1"), &["unknown field `prioritty`", "did you mean `priority`?"]),
        (&job(",\"queue\":\"other\""), &["duplicate field `queue`"]),
        (&job(",\"priority\":9223372036854775808"), &["9223372036854775808"]),
        (&job(",\"priority\":1e400"), &["out of range"]),
        (&job(",\"payload\":1e400"), &["out of range"]),
        (&job(",\"payload\":{\"a\":1,\"a\":2}"), &["comes twice"]),
        (&job(",\"payload\":\"\\ud800\""), &["hex escape"]),
        (&job(",\"group\":\"a\\u0000b\""), &["control character U+0000"]),
        (&job(",\"attempts\":0"), &["at least 1"]),
        (&job(",\"attempts\":-1"), &["-1"]),
        (&job(",\"timeout\":\"0s\""), &["leave it out"]),
        (&job(",\"timeout\":5"), &["expected a string"]),
        (&job(",\"run_at\":\"9999-01-01T00:00:00Z\""), &["1970 to 2200"]),
        (&job(",\"run_at\":-1"), &["-1"]),
        (&job(",\"delay\":\"5m\",\"run_at\":\"2026-11-15T20:00:00Z\""), &["contradict"]),
        (&job(",\"dedup\":\"often\""), &["often", "keep_last"]),
        (&job(",\"unique\":\"a\",\"dedup\":\"reject\""), &["contradict"]),
        (&job(",\"retry\":\"sometimes\""), &["no retry policy"]),
        (&job(",\"content_type\":\"text/plain\",\"payload\":5"), &["must be a text"]),
        (&long, &["at most 255"]),
        (&labels, &["labels is 10001, at most 16"]),
        (&deep, &["recursion limit"]),
    ] {
        // A good line before it, which a bad file must not enqueue.
        std::fs::write(scene.path("jobs.ndjson"), format!("{}\n\n{line}\n", job(""))).unwrap();
        let said = scene.run(&["enqueue", "--bulk", "jobs.ndjson"]);
        let said = said.fails(2, &["line 3: ", "1 bad line; nothing was enqueued"]).fails(2, words);
        assert_eq!((said.out.as_str(), scene.seen() == before), ("", true), "{line}");
    }
    std::fs::write(scene.path("jobs.ndjson"), [b"\xff\xfe\n".as_slice(), &[b'x'; 6 << 20], b"\n{\n"].concat()).unwrap();
    let said = scene
        .run(&["enqueue", "--bulk", "jobs.ndjson", "--json"])
        .fails(2, &["\"line\":1", "\"line\":2", "\"line\":3"]);
    assert!(said.err.contains("3 bad lines"), "{said:?}");
    assert_eq!(scene.seen(), before);
}

#[test]
fn a_bad_line_of_standard_input_ends_it_there() {
    let scene = Scene::new();
    let good = "{\"queue\":\"q\",\"kind\":\"k\"}\n";
    let input = format!("{}{{\"queue\":\"q\"}}\n{good}", good.repeat(1_500));
    let said = scene.run_with(&["enqueue", "--bulk", "-"], input.as_bytes());
    said.fails(2, &["line 1501", "`kind` is missing", "enqueued before it: 1500 jobs", "go on from line 1501"])
        .shows(&["1500 created"]);
    let filter = Filter { queue: Some("q".try_into().unwrap()), ..Filter::default() };
    let first =
        wait(async { scene.store().list(ListRequest { filter, limit: 1_000, ..Default::default() }).await.unwrap() });
    assert_eq!(first.jobs.len(), 1_000);
}

#[test]
fn what_the_store_refuses_is_counted_and_named() {
    let scene = Scene::new();
    scene.run(&["queues", "set", "small", "--max-length", "2"]).ok();
    let input = "{\"queue\":\"small\",\"kind\":\"k\"}\n".repeat(4) + "{\"queue\":\"big\",\"kind\":\"k\"}\n";
    let said = scene
        .run_with(&["enqueue", "--bulk", "-", "--json"], input.as_bytes())
        .fails(1, &["\"line\":3", "\"line\":4", "full"]);
    let summary = said.one();
    assert_eq!((&summary["created"], &summary["refused"]), (&3.into(), &2.into()));
    scene.run(&["enqueue", "small", "k"]).fails(1, &["full", "raise the limit"]);
    scene.enqueue(&["ids", "k", "1", "--id", "x"]);
    scene.run(&["enqueue", "ids", "k", "2", "--id", "x"]).fails(5, &["taken by a job with another content"]);
}
