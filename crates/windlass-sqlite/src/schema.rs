//! Opening a file: whose is it, which layout has it, and bringing it up to date.

use crate::error::translate;
use crate::options::Options;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, ffi};
use std::path::Path;
use std::time::Duration;
use windlass_core::{Error, Result};

/// The layout this program writes.
pub(crate) const LAYOUT: u32 = 3;
/// What leads to each layout from the one before.
pub(crate) const MIGRATIONS: [&str; LAYOUT as usize] =
    [include_str!("../migrations/1.sql"), include_str!("../migrations/2.sql"), include_str!("../migrations/3.sql")];
/// Statements that a connection keeps ready.
const STATEMENTS_KEPT: usize = 256;
/// Pages of the log after which it is written back: 16 MiB, so that a burst is not slowed down by writing twice.
const CHECKPOINT_PAGES: u32 = 4_096;
/// The longest wait for another process: one hour.
const BUSY_MS_MAX: u64 = 3_600_000;
const SET_UP_AGAIN_MS: u64 = 5;

/// Opens a connection. The first one also brings the file's layout up to date.
pub(crate) fn connect(options: &Options) -> Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, options.create);
    if options.path.is_dir() {
        return Err(Error::invalid("store", format!("{} is a folder; name a file in it", options.path.display())));
    }
    if options.path.as_os_str().is_empty() || options.path.as_os_str() == ":memory:" {
        return Err(Error::invalid(
            "store",
            "names no file; for a store without one use `windlass_core::memory::MemoryStore`",
        ));
    }
    if options.busy_ms > BUSY_MS_MAX {
        return Err(Error::limit("busy_ms", BUSY_MS_MAX, options.busy_ms));
    }
    if !options.create && !options.path.exists() {
        return Err(Error::not_found(format!("the file {}", options.path.display())));
    }
    let name_file = |error: rusqlite::Error| open_failed(&error, &options.path);
    let conn = Connection::open_with_flags(&options.path, flags).map_err(name_file)?;
    // SQLite opens a file that it may not write without a word; the first write would be the first to know.
    if conn.is_readonly("main").map_err(name_file)? {
        return Err(name_file(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY), None)));
    }
    conn.busy_timeout(Duration::from_millis(options.busy_ms)).map_err(name_file)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // Without this SQLite prepares a statement again whenever a limit has another value, which costs more than running it.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(name_file)?;
    let pragmas = format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={}; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-65536; \
         PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES};",
        options.synchronous.as_sql()
    );
    set_up(&conn, &pragmas, options.busy_ms).map_err(name_file)?;
    let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(name_file)?;
    if journal != "wal" {
        let what = format!("{}: its file system allows no write-ahead log; use a local disk", options.path.display());
        return Err(Error::Incompatible { what });
    }
    Ok(conn)
}

/// Turning the log on needs the file for itself for a moment, and SQLite does not wait for that: when two processes make
/// one store at once, one of them has to ask again.
#[expect(clippy::disallowed_methods, reason = "opening is not a step: there is no thread to leave the waiting to")]
fn set_up(conn: &Connection, pragmas: &str, busy_ms: u64) -> rusqlite::Result<()> {
    for _ in 0..busy_ms / SET_UP_AGAIN_MS {
        match conn.execute_batch(pragmas) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                std::thread::sleep(Duration::from_millis(SET_UP_AGAIN_MS));
            }
            done => return done,
        }
    }
    conn.execute_batch(pragmas)
}

/// Brings the layout up to date, if the file is ours or empty. Refuses a newer one and one of another application.
pub(crate) fn migrate(conn: &mut Connection, options: &Options) -> Result<()> {
    let name_file = |error: rusqlite::Error| open_failed(&error, &options.path);
    // Only a file that needs it is locked for writing.
    if layout(conn).map_err(name_file)? == Some(LAYOUT) {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(name_file)?;
    let from = match layout(&tx).map_err(name_file)? {
        Some(found) if found > LAYOUT => {
            let what = format!(
                "{} has layout {found}, this program knows {LAYOUT}; use the newer program that wrote it",
                options.path.display()
            );
            return Err(Error::Incompatible { what });
        }
        Some(found) => found,
        None if !options.adopt && has_tables(&tx).map_err(name_file)? => {
            let what = format!(
                "{} is a database of another application; name another file, or add ?adopt=true to put the store's \
                 tables beside the others",
                options.path.display()
            );
            return Err(Error::Incompatible { what });
        }
        None => 0,
    };
    for migration in MIGRATIONS.iter().skip(from as usize) {
        tx.execute_batch(migration).map_err(name_file)?;
    }
    tx.execute("UPDATE windlass_meta SET value=?1 WHERE key='layout'", [LAYOUT]).map_err(name_file)?;
    tx.commit().map_err(name_file)
}

fn layout(conn: &Connection) -> rusqlite::Result<Option<u32>> {
    let ours: bool = conn.query_row(
        "SELECT EXISTS(SELECT 1 FROM sqlite_schema WHERE type='table' AND name='windlass_meta')",
        [],
        |row| row.get(0),
    )?;
    if !ours {
        return Ok(None);
    }
    let found =
        conn.query_row("SELECT value FROM windlass_meta WHERE key='layout'", [], |row| row.get(0)).optional()?;
    Ok(Some(found.unwrap_or(0)))
}

fn has_tables(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("SELECT EXISTS(SELECT 1 FROM sqlite_schema WHERE type='table')", [], |row| row.get(0))
}

/// Says which file it is about.
/// Why a file cannot be opened. What nobody mends by trying again is not called unavailable.
fn open_failed(error: &rusqlite::Error, path: &Path) -> Error {
    let permanent = [ErrorCode::ReadOnly, ErrorCode::CannotOpen, ErrorCode::PermissionDenied];
    match name_file(translate(error), path) {
        Error::Unavailable { reason } if error.sqlite_error_code().is_some_and(|code| permanent.contains(&code)) => {
            Error::invalid("store", reason)
        }
        other => other,
    }
}

fn name_file(error: Error, path: &Path) -> Error {
    let named = |text: String| format!("{}: {text}", path.display());
    match error {
        Error::Unavailable { reason } => Error::Unavailable { reason: named(reason) },
        Error::Unknown { reason } => Error::Unavailable { reason: named(reason) },
        Error::Corrupt { what } => Error::Corrupt { what: named(what) },
        Error::Incompatible { what } => Error::Incompatible { what: named(what) },
        Error::Full { what } => Error::Full { what: named(what) },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_and_a_wait_without_end_are_refused() {
        for path in ["", ":memory:"] {
            assert!(matches!(connect(&Options::new(path)), Err(Error::Invalid { .. })), "{path:?}");
        }
        let patient = Options { busy_ms: BUSY_MS_MAX + 1, ..Options::new("nowhere.db") };
        assert!(matches!(connect(&patient), Err(Error::Limit { .. })));
    }

    #[test]
    fn a_missing_file_is_made_only_when_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("jobs.db");
        let only_look = Options { create: false, ..Options::new(&at) };
        assert!(matches!(connect(&only_look), Err(Error::NotFound { .. })));
        assert!(!at.exists());
        connect(&Options::new(&at)).unwrap();
        connect(&only_look).unwrap();
    }

    #[test]
    fn a_file_that_can_have_no_log_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("jobs.db");
        // SQLite takes a path that begins like this for a URL. The first has no shared memory, the second no file.
        for path in [format!("file:{}?vfs=unix-none", at.display()), "file:jobs?mode=memory".to_owned()] {
            let refused = connect(&Options::new(&path));
            let Err(Error::Incompatible { what }) = refused else { panic!("{path}: {refused:?}") };
            assert!(what.contains("write-ahead log") && what.contains(&path), "{what}");
        }
    }
}
