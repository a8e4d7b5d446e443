//! Programs of two versions on one store: each brings its own scripts, and both understand what the other one stored.
//!
//! `golden/scripts-v2.txt` has the scripts of the first version with layout 2. Here they are called by the present
//! program, so:
//!
//! - The arguments or answers of a script changed, and nothing that is stored: write the file again, with
//!   `WINDLASS_WRITE_GOLDEN=1 cargo nextest run -p windlass-redis --test versions`.
//! - What is stored changed, and older scripts go on with it: leave the file as it is. These tests show it.
//! - What is stored changed, and older scripts cannot go on: raise the layout (`src/scripts.rs`), then write the file again
//!   under the new number.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::suite::{On, run_all};
use support::{block, claim, enqueue, fresh_url, get, job, keep, open_at, open_with_scripts, report, virtual_clock};
use windlass_core::Error;
use windlass_core::job::State;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{EnqueueRequest, JobQueue, Store};
use windlass_redis::link::Script;
use windlass_redis::options::Options;
use windlass_redis::scripts;
use windlass_servers::Redis;

/// Between the scripts of the file: `==== name shared-lines earlier-script`. Scripts have most of their parts in common, so
/// each begins with so many lines of an earlier one, behind its flags.
const MARK: &str = "==== ";

fn golden_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/scripts-v2.txt")
}

fn write_golden() {
    let mut text = String::from("The scripts of layout 2. tests/versions.rs says when to write this anew.\n");
    for (i, script) in scripts::all().iter().enumerate() {
        let lines: Vec<&str> = script.text().lines().collect();
        let same = |earlier: &Script| {
            let both = lines[1..].iter().zip(earlier.text().lines().skip(1));
            (both.take_while(|(mine, theirs)| *mine == theirs).count(), earlier.name())
        };
        let (shared, earlier) = scripts::all()[..i].iter().map(same).max().unwrap_or((0, "-"));
        writeln!(text, "{MARK}{} {shared} {earlier}\n{}", script.name(), lines[0]).unwrap();
        for line in &lines[1 + shared..] {
            writeln!(text, "{line}").unwrap();
        }
    }
    std::fs::write(golden_path(), text).unwrap();
}

/// The texts of the file by name.
fn read_golden() -> HashMap<String, String> {
    let text = std::fs::read_to_string(golden_path()).unwrap();
    let mut texts: HashMap<String, String> = HashMap::new();
    for part in text.split(&format!("\n{MARK}")).skip(1) {
        let (head, body) = part.split_once('\n').unwrap();
        let words: Vec<&str> = head.split(' ').collect();
        let (flags, rest) = body.split_once('\n').unwrap_or((body, ""));
        let mut lines = vec![flags];
        let earlier = texts.get(words[2]).cloned().unwrap_or_default();
        lines.extend(earlier.lines().skip(1).take(words[1].parse().unwrap()));
        lines.extend(rest.lines());
        texts.insert(words[0].to_owned(), lines.join("\n"));
    }
    texts
}

/// The scripts of the file, in the order in which the present program knows them.
static GOLDEN: LazyLock<&'static [Script]> = LazyLock::new(|| {
    let texts = read_golden();
    let old = |script: &Script| match texts.get(script.name()) {
        Some(text) => Script::new(script.name(), text.clone()),
        // One that came since.
        None => script.clone(),
    };
    keep(scripts::all().iter().map(old).collect())
});

#[test]
fn the_golden_scripts_are_complete() {
    if std::env::var_os("WINDLASS_WRITE_GOLDEN").is_some() {
        write_golden();
        for script in scripts::all() {
            assert_eq!(read_golden()[script.name()], script.text(), "{} is read as it was written", script.name());
        }
    }
    let texts = read_golden();
    assert!(texts.len() >= 25, "the file has {} scripts", texts.len());
    for (name, text) in texts {
        assert!(text.starts_with("#!lua"), "{name}");
        assert!(text.contains("\nE.LAYOUT = 2\n"), "{name} is of another layout");
    }
}

#[test]
fn slow_the_whole_suite_passes_with_old_and_new_scripts_mixed() {
    let server = Redis::start().unwrap();
    let seed = std::env::var("WINDLASS_VERSIONS_SEED").map_or(20_260_101, |seed| seed.parse::<u64>().unwrap());
    println!("WINDLASS_VERSIONS_SEED={seed}");
    let random = StrongRandom::seeded(seed);
    // Which transition is old and which is new: each mix is two programs that take turns.
    let mut mixes: Vec<&'static [Script]> = vec![&GOLDEN];
    for _ in 0..15 {
        let either = |(old, new): (&Script, &Script)| {
            if random.next_u64().is_multiple_of(2) { old.clone() } else { new.clone() }
        };
        mixes.push(keep(GOLDEN.iter().zip(scripts::all()).map(either).collect()));
    }
    let stores = AtomicUsize::new(0);
    let pick = move || mixes[stores.fetch_add(1, Ordering::Relaxed) % mixes.len()];
    run_all(On { url: server.url(), scripts: Box::new(pick) });
}

fn meta(url: &str) -> String {
    format!("{{{}}}:meta", Options::from_url(url).unwrap().prefix)
}

/// Sets the layout that a store says to have.
fn set_layout(server: &Redis, url: &str, layout: &str) {
    server.command(&["HSET", &meta(url), "layout", layout]).unwrap();
}

/// The layout that a store says to have; empty when it says none.
fn layout(server: &Redis, url: &str) -> String {
    server.command(&["HGET", &meta(url), "layout"]).unwrap()
}

#[test]
fn the_first_change_writes_the_layout_and_a_look_does_not() {
    let server = Redis::start().unwrap();
    block(async {
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        let store = open_at(&url, &clock);
        assert_eq!(store.queues().await.unwrap().len(), 0);
        assert_eq!(layout(&server, &url), "");
        enqueue(&store, vec![job()]).await;
        assert_eq!(layout(&server, &url), "2");
        assert_eq!(store.info().await.unwrap().layout, 2);
    });
}

#[test]
fn a_store_of_a_newer_layout_is_refused() {
    let server = Redis::start().unwrap();
    block(async {
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        let before = open_at(&url, &clock);
        let id = enqueue(&before, vec![job()]).await[0];
        set_layout(&server, &url, "3");
        // Whoever connects is told, whatever it asks for.
        let after = open_at(&url, &clock);
        for refused in [after.queues().await.map(drop), after.get(vec![id]).await.map(drop)] {
            let Err(Error::Incompatible { what }) = refused else { panic!("{refused:?}") };
            assert!(what.contains("layout 3") && what.contains("upgrade this program"), "{what}");
        }
        // Whoever was connected may change nothing more.
        let refused = before.enqueue(EnqueueRequest::new(vec![job()])).await.unwrap_err();
        assert!(matches!(&refused, Error::Incompatible { what } if what.contains("layout 3")), "{refused}");
        let refused = before.claim(support::claim_request("w", 1)).await.unwrap_err();
        assert!(matches!(&refused, Error::Incompatible { .. }), "{refused}");
        assert_eq!(layout(&server, &url), "3", "it is not set back");
    });
}

#[test]
fn a_store_of_an_older_layout_or_of_none_is_accepted() {
    let server = Redis::start().unwrap();
    block(async {
        for old in ["0", "1"] {
            let (url, clock) = (fresh_url(&server.url()), virtual_clock());
            enqueue(&open_at(&url, &clock), vec![job()]).await;
            set_layout(&server, &url, old);
            let store = open_at(&url, &clock);
            let claimed = claim(&store, "w", 1).await;
            report(&store, "w", claimed[0].lease).await.unwrap();
            assert_eq!(layout(&server, &url), "2", "what was written since is of this layout");
        }
    });
}

#[test]
fn a_worker_of_the_old_version_and_one_of_the_new_share_the_work() {
    let server = Redis::start().unwrap();
    block(async {
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        let (old, new) = (open_with_scripts(&url, &clock, &GOLDEN), open_at(&url, &clock));
        let mut ids = enqueue(&old, (0..20).map(|_| job()).collect()).await;
        ids.extend(enqueue(&new, (0..20).map(|_| job()).collect()).await);
        for _ in 0..10 {
            let (of_old, of_new) = (claim(&old, "old", 2).await, claim(&new, "new", 2).await);
            assert_eq!((of_old.len(), of_new.len()), (2, 2));
            // Also what the other one has claimed: a process that was upgraded goes on with what it holds.
            for (store, job, worker) in [
                (&old, &of_old[0], "old"),
                (&new, &of_old[1], "old"),
                (&old, &of_new[0], "new"),
                (&new, &of_new[1], "new"),
            ] {
                assert!(!report(store, worker, job.lease).await.unwrap().repeated);
            }
            // What one has done, the other one remembers.
            assert!(report(&new, "old", of_old[0].lease).await.unwrap().repeated);
        }
        for id in ids {
            assert_eq!(get(&old, id).await.unwrap().state, State::Succeeded);
        }
    });
}
