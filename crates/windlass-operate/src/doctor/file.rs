//! The file of an embedded store: whether it is intact, its size, and the free space of its disk.

use crate::text::byte_size;
use std::path::{Path, PathBuf};
use windlass::core::finding::Finding;
use windlass::core::store::StoreInfo;
use windlass_sqlite::rusqlite::{Connection, OpenFlags};

/// A file up to this size is read within a second or two.
const QUICK_BYTES: u64 = 256 << 20;
/// A longer write-ahead log is not written back to the file.
const LOG_BYTES: u64 = 256 << 20;
/// Less free space than this is a warning.
const FREE_BYTES: u64 = 1 << 30;

pub(super) fn check(info: &StoreInfo, deep: bool) -> Vec<Finding> {
    let Some(path) = path(info) else { return Vec::new() };
    let size = std::fs::metadata(&path).map_or(0, |about| about.len());
    vec![integrity(&path, size, deep), sizes(&path, size), free_space(&path)]
}

/// The path of the file; `None` for stores without one.
pub(super) fn path(info: &StoreInfo) -> Option<PathBuf> {
    let found = info.details.iter().find(|(name, _)| name == "path" && info.store == "sqlite");
    found.map(|(_, path)| PathBuf::from(path))
}

/// A read-only connection beside those of the store.
pub(super) fn connect(path: &Path) -> Result<Connection, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| error.to_string())
}

fn integrity(path: &Path, size: u64, deep: bool) -> Finding {
    if size > QUICK_BYTES && !deep {
        return Finding::info("integrity", format!("not checked, because the file has {}", byte_size(size)))
            .hint("windlass doctor --deep checks it all the same");
    }
    let answer = connect(path).and_then(|conn| {
        conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0)).map_err(|error| error.to_string())
    });
    match answer {
        Ok(answer) if answer == "ok" => Finding::ok("integrity", "the file is whole"),
        Ok(why) | Err(why) => Finding::error("integrity", format!("the file is damaged: {why}"))
            .hint("stop all workers, then restore a backup, or save what sqlite3's `.recover` finds"),
    }
}

fn sizes(path: &Path, size: u64) -> Finding {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = std::fs::metadata(PathBuf::from(log)).map_or(0, |about| about.len());
    let text = format!("the file has {}, its log {}", byte_size(size), byte_size(log));
    match log {
        0..=LOG_BYTES => Finding::ok("size", text),
        _ => Finding::warning("size", text)
            .hint("some process keeps an old snapshot open; the log shrinks when it ends (a backup, a sqlite3 shell?)"),
    }
}

fn free_space(path: &Path) -> Finding {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match rustix::fs::statvfs(folder) {
        Ok(about) => {
            let free = about.f_bavail.saturating_mul(about.f_frsize);
            let text = format!("{} are free on its disk", byte_size(free));
            match free {
                0..FREE_BYTES => Finding::warning("disk", text).hint("make room; a full disk refuses every enqueue"),
                _ => Finding::ok("disk", text),
            }
        }
        Err(error) => Finding::info("disk", format!("the room on its disk is not known: {error}")),
    }
}
