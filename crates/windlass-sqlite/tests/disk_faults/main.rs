//! What stays of a store whose disk fails: a workload is run once for every read, write and sync that it makes, and that
//! one fails. Whatever call it meets is then stored as a whole or not at all, and can be repeated.
//!
//! A run without faults gives the whole content of the file after every call. After a fault the file must have the content
//! before or after the call that failed, byte for byte: jobs, counters, memos, runs and the feed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]
#![allow(clippy::print_stdout, reason = "the table of what was done")]

mod vfs;
mod work;

use std::path::{Path, PathBuf};
use tempfile::TempDir;
use vfs::{Fault, Plan};
use windlass_sqlite::rusqlite::Connection;
use windlass_sqlite::rusqlite::types::Value;
use work::{CALLS, Known, Session};

/// Bytes that SQLite uses for its pages: so few that large transactions write and read them before they commit.
const HEAP_BYTES: u32 = 300_000;
/// Runs for each kind of fault, unless `ALL` is set.
const RUNS: u64 = 16;
/// Set to let every operation fail with every fault, which takes about half an hour.
const ALL: &str = "WINDLASS_TEST_DISK_FAULTS_ALL";

/// What a call without faults answers and leaves behind.
struct Reference {
    before: Known,
    answer: String,
    content: String,
    /// The answer and the content when the same call is made again.
    repeated: (String, String),
}

/// The whole content of a file, as text.
fn content(path: &Path) -> String {
    let conn = Connection::open(path).unwrap();
    let list = |sql: &str| -> Vec<Vec<Value>> {
        let mut ask = conn.prepare(sql).unwrap();
        let columns = ask.column_count();
        let rows = ask.query_map([], |row| (0..columns).map(|at| row.get(at)).collect()).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let mut text = String::new();
    for table in list("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY name") {
        let Value::Text(table) = &table[0] else { panic!("{table:?}") };
        let mut rows: Vec<String> =
            list(&format!("SELECT * FROM {table}")).iter().map(|row| format!("{row:?}")).collect();
        rows.sort();
        text.push_str(&format!("{table}\n{}\n", rows.join("\n")));
    }
    let whole = list("PRAGMA integrity_check");
    assert_eq!(whole, vec![vec![Value::Text("ok".to_owned())]]);
    text
}

/// A copy of the file as it is now, as if the process had been killed.
fn image(path: &Path, dir: &Path, name: &str) -> PathBuf {
    let copy = dir.join(name);
    for end in ["", "-wal", "-shm"] {
        let named = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        let (from, to) = (named(path), named(&copy));
        // None of the three has to be there, and what an earlier image has left must not be.
        let _ = std::fs::remove_file(&to);
        if end != "-shm" && from.exists() {
            std::fs::copy(from, to).unwrap();
        }
    }
    copy
}

/// A file with a table of the caller's.
fn new_file(dir: &TempDir, name: &str) -> PathBuf {
    let path = image(Path::new("/nonexistent"), dir.path(), name);
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(&format!("PRAGMA soft_heap_limit={HEAP_BYTES}; CREATE TABLE orders (item TEXT PRIMARY KEY)"))
        .unwrap();
    path
}

async fn repeat(path: &Path, known: Known, call: usize) -> (String, String) {
    let mut session = Session::new(path, known);
    let answer = session.call(call).await.unwrap();
    let after = content(path);
    session.close().await;
    (answer, after)
}

async fn references(dir: &TempDir) -> Vec<Reference> {
    let path = new_file(dir, "reference.db");
    let mut session = Session::new(&path, Known::default());
    let mut all = Vec::new();
    for call in 0..CALLS {
        let before = session.known.clone();
        let answer = session.call(call).await.unwrap();
        let content = content(&path);
        let repeated = repeat(&image(&path, dir.path(), "image.db"), before.clone(), call).await;
        all.push(Reference { before, answer, content, repeated });
    }
    session.close().await;
    all
}

/// What one fault led to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    faults: u64,
    failed_calls: u64,
    stored: u64,
    audited: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.faults += other.faults;
        self.failed_calls += other.failed_calls;
        self.stored += other.stored;
        self.audited += other.audited;
    }
}

/// Runs the workload with a fault. Returns `None` when the workload makes fewer operations of that kind.
async fn run(dir: &TempDir, plan: Plan, references: &[Reference], empty: &str) -> Option<Tally> {
    let path = new_file(dir, "jobs.db");
    let mut tally = Tally::default();
    let mut session = Session::new(&path, Known::default());
    vfs::start(plan);
    for (call, reference) in references.iter().enumerate() {
        let context = || format!("{plan:?}, call {call}");
        let answer = match session.call(call).await {
            Ok(answer) => answer,
            Err(error) => {
                let faults = vfs::stop();
                assert!(faults > 0, "{}: {error}", context());
                tally.add(Tally { faults, failed_calls: 1, ..Tally::default() });
                let before = call.checked_sub(1).map_or(empty, |before| &references[before].content);
                let stored = audit(dir, &path, (call, before, reference), &context()).await;
                tally.add(Tally { stored: u64::from(stored), audited: 2, ..Tally::default() });
                // The same store goes on, and its caller repeats the call.
                session.known = reference.before.clone();
                session.call(call).await.unwrap_or_else(|error| panic!("{}, repeated: {error}", context()))
            }
        };
        let done = [&reference.answer, &reference.repeated.0];
        assert!(done.contains(&&answer), "{}: answered {answer}\ninstead of {}", context(), reference.answer);
    }
    tally.faults += vfs::stop();
    session.close().await;
    check_same(&content(&path), &[&references[CALLS - 1].content], &format!("{plan:?}, at the end"));
    tally.audited += 1;
    (tally.faults > 0).then_some(tally)
}

/// Looks at the file after a failed call, as if the process had been killed, and repeats the call there. Returns whether
/// the call was stored.
async fn audit(dir: &TempDir, path: &Path, of: (usize, &str, &Reference), context: &str) -> bool {
    let (call, before, reference) = of;
    let copy = image(path, dir.path(), "image.db");
    let found = content(&copy);
    // An unopened file has no tables yet.
    check_same(&found, &[before, &reference.content, ORDERS], context);
    let stored = found == reference.content && found != before;
    let (answer, after) = repeat(&copy, reference.before.clone(), call).await;
    let expected = if stored { &reference.repeated.0 } else { &reference.answer };
    assert_eq!(&answer, expected, "{context}: the repeated call");
    check_same(&after, &[&reference.content, &reference.repeated.1], &format!("{context}, repeated"));
    stored
}

/// The content of a file that has only the caller's table.
const ORDERS: &str = "orders\n\n";

fn check_same(found: &str, allowed: &[&str], context: &str) {
    if allowed.contains(&found) {
        return;
    }
    let missing: Vec<_> = allowed[0].lines().filter(|line| !found.contains(*line)).take(20).collect();
    let extra: Vec<_> = found.lines().filter(|line| !allowed[0].contains(*line)).take(20).collect();
    panic!("{context}: half of a call is stored\nmissing: {missing:#?}\nextra: {extra:#?}");
}

/// Every how-many-th operation fails in one run, so that all runs take less than a minute.
fn stride(operations: u64) -> u64 {
    if std::env::var_os(ALL).is_some() { 1 } else { operations.div_ceil(RUNS) }
}

#[test]
fn slow_a_call_is_stored_as_a_whole_or_not_at_all_whatever_read_write_or_sync_fails() {
    vfs::register();
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let references = references(&dir).await;
        let path = new_file(&dir, "empty.db");
        Session::new(&path, Known::default()).open_and_close().await;
        let empty = content(&path);
        println!("fault     lasting  of   runs  faults  failed calls  stored all the same  states audited  lost");
        for fault in Fault::ALL {
            let none = Plan { fault, nth: u64::MAX, lasting: false };
            assert!(run(&dir, none, &references, &empty).await.is_none());
            let operations = vfs::operations();
            for lasting in [false, true] {
                let (mut total, mut runs) = (Tally::default(), 0);
                // One more or less makes no difference: a reader that has read a page before need not read it again.
                for nth in (1..=operations).step_by(usize::try_from(stride(operations)).unwrap()) {
                    if let Some(tally) = run(&dir, Plan { fault, nth, lasting }, &references, &empty).await {
                        total.add(tally);
                        runs += 1;
                    }
                }
                let Tally { faults, failed_calls, stored, audited } = total;
                println!(
                    "{:<9} {lasting:<7} {operations:>5} {runs:>5} {faults:>7} {failed_calls:>13} {stored:>20} {audited:>15}     0",
                    format!("{fault:?}")
                );
                assert!(failed_calls > 0, "{fault:?}: no call has met it");
            }
        }
    });
}
