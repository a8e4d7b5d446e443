//! Files that cannot be used: each is refused with a typed error that says what to do, and nothing panics.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use support::{
    Other, block, claim, counts, enqueue, enqueue_one, job, job_with, open, quick, raw, report, tests, try_open,
};
use windlass_core::Error;
use windlass_core::payload::Payload;
use windlass_core::store::{EnqueueRequest, JobQueue, ListRequest};
use windlass_sqlite::Options;

fn main() -> ExitCode {
    support::main(
        tests![
            a_file_that_is_no_database_is_refused,
            a_damaged_header_is_refused,
            a_truncated_file_is_noticed,
            slow_damaged_pages_are_noticed_when_they_are_read,
            a_folder_and_a_missing_folder_are_told_apart,
            an_empty_file_becomes_a_store,
            a_database_of_another_application_is_refused_until_it_is_adopted,
            a_newer_layout_is_refused,
            a_file_that_another_process_holds_is_unavailable_and_comes_back,
            a_file_that_another_process_keeps_for_itself_cannot_be_opened,
            a_read_only_file_is_refused,
            a_read_only_folder_is_refused,
            slow_a_full_disk_loses_nothing_that_was_acknowledged,
        ],
        |role, path| match role {
            "open" => say_what_comes_of_opening(path),
            "fill" => fill_the_disk(path),
            "hold" => hold_the_file(path),
            other => panic!("no part {other}"),
        },
    )
}

/// A closed store with some hundred jobs in its file.
fn filled(path: &Path) {
    block(async {
        let store = open(path);
        let large = || job_with(|spec| spec.payload = Payload::new("text/plain", vec![b'x'; 2_000]));
        enqueue(&store, (0..500).map(|_| large()).collect()).await;
    });
    // When its connections are closed at the same moment, the log may stay behind, and would mend what is damaged here.
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

fn refusal(path: &Path) -> Error {
    let error = try_open(quick(path)).unwrap_err();
    assert!(error.to_string().contains(&path.display().to_string()), "{error} does not name the file");
    error
}

fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    let text = "Dear diary, today I enqueued nothing at all.\n".repeat(100);
    fs::write(&path, &text).unwrap();
    let error = refusal(&path);
    assert!(matches!(&error, Error::Incompatible { what } if what.contains("name another file")), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "what is not ours is left alone");
}

fn a_damaged_header_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    filled(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes[3] ^= 0x10;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(refusal(&path), Error::Incompatible { .. }));
}

/// Opens and reads everything there is; answers the first error.
fn first_error(path: &Path) -> Option<Error> {
    let store = match try_open(quick(path)) {
        Ok(store) => store,
        Err(error) => return Some(error),
    };
    block(async {
        let mut request = ListRequest { limit: 100, ..ListRequest::default() };
        loop {
            let page = match store.list(request.clone()).await {
                Ok(page) => page,
                Err(error) => return Some(error),
            };
            let ids = page.jobs.iter().map(|job| job.id).collect();
            if let Err(error) = store.get(ids).await {
                return Some(error);
            }
            request.cursor = Some(page.cursor?);
        }
    })
}

fn assert_damage_is_told(path: &Path, error: Option<Error>) {
    match error {
        Some(Error::Corrupt { what }) => assert!(what.contains("restore it from a backup"), "{what}"),
        other => panic!("{}: {other:?}", path.display()),
    }
}

fn a_truncated_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    filled(&path);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    assert_damage_is_told(&path, first_error(&path));
}

fn slow_damaged_pages_are_noticed_when_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.db");
    filled(&whole);
    let bytes = fs::read(&whole).unwrap();
    let pages = bytes.len() / 4_096;
    for from in [pages / 4, pages / 2, pages * 3 / 4] {
        let path = dir.path().join(format!("damaged-{from}.db"));
        let mut damaged = bytes.clone();
        for byte in &mut damaged[from * 4_096..(from + pages / 8) * 4_096] {
            *byte = !*byte;
        }
        fs::write(&path, damaged).unwrap();
        assert_damage_is_told(&path, first_error(&path));
        // Whoever writes is told the same or succeeds elsewhere in the file; nobody panics, and the store still answers.
        if let Ok(store) = try_open(quick(&path)) {
            block(async {
                let _ = enqueue_one(&store, job()).await;
                let _ = store.claim(support::claim_request("w", 1_000)).await;
                match store.queues().await {
                    Ok(_) | Err(Error::Corrupt { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            });
        }
    }
}

fn a_folder_and_a_missing_folder_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let error = refusal(dir.path());
    assert!(matches!(&error, Error::Invalid { reason, .. } if reason.contains("is a folder")), "{error}");
    let error = refusal(&dir.path().join("no/such/jobs.db"));
    assert!(matches!(&error, Error::Invalid { reason, .. } if reason.contains("folder must exist")), "{error}");
}

fn an_empty_file_becomes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    fs::write(&path, "").unwrap();
    block(async { enqueue(&open(&path), vec![job()]).await });
}

fn a_database_of_another_application_is_refused_until_it_is_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    raw(&path).execute_batch("CREATE TABLE orders (item TEXT); INSERT INTO orders VALUES ('rope')").unwrap();
    let error = refusal(&path);
    assert!(matches!(&error, Error::Incompatible { what } if what.contains("adopt=true")), "{error}");
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'windlass%'";
    assert_eq!(raw(&path).query_row(tables, [], |row| row.get::<_, u32>(0)).unwrap(), 0, "it is left alone");

    let store = try_open(Options { adopt: true, ..quick(&path) }).unwrap();
    block(async { enqueue(&store, vec![job()]).await });
    drop(store);
    let item: String = raw(&path).query_row("SELECT item FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(item, "rope");
    // Once adopted it is ours, too.
    assert_eq!(block(async { counts(&open(&path)).await }).ready, 1);
}

fn a_newer_layout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    drop(open(&path));
    raw(&path).execute("UPDATE windlass_meta SET value=999 WHERE key='layout'", []).unwrap();
    let error = refusal(&path);
    assert!(matches!(&error, Error::Incompatible { what } if what.contains("newer program")), "{error}");
}

/// Holds the file's write lock from when it says so until it is told to let go.
fn hold_the_file(path: &Path) {
    let conn = raw(path);
    conn.execute_batch("BEGIN EXCLUSIVE").unwrap();
    println!("held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    conn.execute_batch("COMMIT").unwrap();
    println!("free");
}

fn a_file_that_another_process_holds_is_unavailable_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    block(async {
        let store = try_open(Options { busy_ms: 30, ..quick(&path) }).unwrap();
        enqueue(&store, vec![job()]).await;
        let mut other = Other::start("hold", &path);
        assert_eq!(other.hear(), "held");
        let error = store.enqueue(plain_request()).await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { reason } if reason.contains("another process")), "{error}");
        assert!(error.is_retryable());
        // Readers are not in its way.
        assert_eq!(counts(&store).await.ready, 1);
        other.tell("let go");
        assert_eq!(other.hear(), "free");
        // As anybody would: again, while the error says that it may help. The other process may still be leaving.
        let late = job();
        let mut answer = store.enqueue(EnqueueRequest::new(vec![late.clone()])).await;
        for _ in 0..1_000 {
            if !answer.as_ref().is_err_and(Error::is_retryable) {
                break;
            }
            answer = store.enqueue(EnqueueRequest::new(vec![late.clone()])).await;
        }
        answer.unwrap().remove(0).unwrap();
        assert_eq!(counts(&store).await.ready, 2);
    });
}

fn plain_request() -> EnqueueRequest {
    EnqueueRequest::new(vec![job()])
}

fn a_file_that_another_process_keeps_for_itself_cannot_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    filled(&path);
    let conn = raw(&path);
    conn.execute_batch("PRAGMA locking_mode=EXCLUSIVE; BEGIN IMMEDIATE; COMMIT").unwrap();
    let error = try_open(Options { busy_ms: 30, ..quick(&path) }).unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason } if reason.contains("another process")), "{error}");
    drop(conn);
    drop(open(&path));
}

/// Opens and enqueues, and says what comes of it.
fn say_what_comes_of_opening(path: &Path) {
    let outcome = try_open(quick(path)).and_then(|store| block(enqueue_one(&store, job())));
    match outcome {
        Ok(_) => println!("ok"),
        Err(Error::Unavailable { reason }) => println!("unavailable: {reason}"),
        Err(Error::Invalid { field, reason }) => println!("invalid {field}: {reason}"),
        Err(error) => println!("other: {error}"),
    }
}

/// What an unprivileged user hears who opens `path`. Permissions do not bind root, who therefore becomes `nobody`.
fn as_unprivileged(path: &Path) -> String {
    let folder = path.parent().unwrap();
    let is_root = fs::metadata("/proc/self").is_ok_and(|us| std::os::unix::fs::MetadataExt::uid(&us) == 0);
    let mut command;
    let copy = tempfile::tempdir().unwrap();
    if is_root {
        const NOBODY: u32 = 65_534;
        for file in fs::read_dir(folder).unwrap() {
            chown(file.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        // The program itself may lie where that user cannot go.
        fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = copy.path().join("test");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        command = Command::new(program);
        Other::play(&mut command, "open", path);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    } else {
        command = Other::command("open", path);
    }
    Other::spawn(&mut command).end().concat()
}

/// A folder below one that everybody may enter.
fn open_folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = dir.path().join("data");
    fs::create_dir(&folder).unwrap();
    (dir, folder)
}

fn a_read_only_file_is_refused() {
    let (_dir, folder) = open_folder();
    let path = folder.join("jobs.db");
    drop(open(&path));
    assert_eq!(as_unprivileged(&path), "ok", "it would work without the permission that is taken away next");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let said = as_unprivileged(&path);
    assert!(said.starts_with("invalid store: ") && said.contains("read-only"), "{said}");
    assert!(said.contains("permission to write"), "{said}");
    assert!(said.contains(&path.display().to_string()), "{said}");
}

fn a_read_only_folder_is_refused() {
    let (_dir, folder) = open_folder();
    let path = folder.join("jobs.db");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let missing = as_unprivileged(&path);
    assert!(missing.starts_with("invalid store: ") && missing.contains("write to both"), "{missing}");

    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    drop(open(&path));
    // Whoever closes the file alone takes its log away; the threads of a store may close at once and leave it.
    raw(&path).query_row("SELECT count(*) FROM windlass_job", [], |row| row.get::<_, i64>(0)).unwrap();
    assert!(!folder.join("jobs.db-wal").exists());
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let there = as_unprivileged(&path);
    assert!(there.starts_with("invalid store: ") && there.contains("permission to write"), "{there}");
    // So that the temporary folder can be removed by whoever runs the test.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Enqueues until the file may not grow any more, and says what was acknowledged and what came of the rest.
fn fill_the_disk(path: &Path) {
    block(async {
        let store = open(path);
        enqueue(&store, vec![job()]).await;
        let leased = claim(&store, "w", 1).await.remove(0);
        // Two batches fit, the third does not, and what it would have needed is far more than what is left.
        let large = || job_with(|spec| spec.payload = Payload::new("text/plain", vec![b'x'; 350_000]));
        let error = loop {
            let (first, second) = (large(), large());
            let ids = format!("{} {}", first.id, second.id);
            let request = EnqueueRequest { jobs: vec![first, second], atomic: true };
            match store.enqueue(request).await {
                Ok(_) => println!("acknowledged {ids}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Full { .. } | Error::Unknown { .. }), "{error}");
        println!("refused {}", if error.is_retryable() { "retryable" } else { "for good" });
        // What is small still fits: the large batch was taken back whole and left its room.
        println!("completion {}", report(&store, "w", leased.lease).await.is_ok());
        println!("answers {}", store.queues().await.is_ok());
    });
}

fn slow_a_full_disk_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    // A limit on the size of files stands for a full disk; the shell ignores the signal that comes with it.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\""]).arg(std::env::current_exe().unwrap());
    Other::play(&mut command, "fill", &path);
    let said = Other::spawn(&mut command).end();
    let acknowledged: Vec<&str> =
        said.iter().filter_map(|line| line.strip_prefix("acknowledged ")).flat_map(|ids| ids.split(' ')).collect();
    assert!(acknowledged.len() >= 4, "{said:?}");
    assert!(said.contains(&"refused retryable".to_owned()), "{said:?}");
    assert!(said.contains(&"answers true".to_owned()), "{said:?}");
    assert!(said.contains(&"completion true".to_owned()), "{said:?}");

    block(async {
        let store = open(&path);
        for id in &acknowledged {
            support::get(&store, id.parse().unwrap()).await;
        }
        let counts = counts(&store).await;
        assert_eq!(counts, support::recount(&path));
        assert_eq!(counts.ready % 2, 0, "a batch is there as a whole or not at all");
        assert_eq!(counts.succeeded, 1);
    });
    let sound: String = raw(&path).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}
