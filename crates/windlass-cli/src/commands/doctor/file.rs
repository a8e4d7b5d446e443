//! The file of an embedded store: is it whole, how large is it, is there room for more.

use super::Finding;
use std::path::{Path, PathBuf};
use windlass::core::store::StoreInfo;
use windlass_sqlite::rusqlite::{Connection, OpenFlags};

/// A file up to this size is checked in well under a second or two.
const CHEAP_BYTES: u64 = 256 << 20;
/// A log that is longer than this is not being written back.
const LOG_BYTES: u64 = 256 << 20;
/// Less room than this is little.
const ROOM_BYTES: u64 = 1 << 30;

pub(super) fn look(info: &StoreInfo, deep: bool) -> Vec<Finding> {
    let Some(path) = path(info) else { return Vec::new() };
    let size = std::fs::metadata(&path).map_or(0, |about| about.len());
    vec![integrity(&path, size, deep), sizes(&path, size), room(&path)]
}

/// Where the file is, if the store has one.
pub(super) fn path(info: &StoreInfo) -> Option<PathBuf> {
    let found = info.details.iter().find(|(name, _)| name == "path" && info.store == "sqlite");
    found.map(|(_, path)| PathBuf::from(path))
}

/// A connection of our own that can change nothing.
pub(super) fn connect(path: &Path) -> Result<Connection, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| error.to_string())
}

fn integrity(path: &Path, size: u64, deep: bool) -> Finding {
    if size > CHEAP_BYTES && !deep {
        return Finding::info("integrity", format!("not checked, because the file has {}", bytes(size)))
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
    let text = format!("the file has {}, its log {}", bytes(size), bytes(log));
    match log {
        0..=LOG_BYTES => Finding::ok("size", text),
        _ => Finding::warning("size", text)
            .hint("some process keeps an old snapshot open; the log shrinks when it ends (a backup, a sqlite3 shell?)"),
    }
}

fn room(path: &Path) -> Finding {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match rustix::fs::statvfs(folder) {
        Ok(about) => {
            let free = about.f_bavail.saturating_mul(about.f_frsize);
            let text = format!("{} are free on its disk", bytes(free));
            match free {
                0..ROOM_BYTES => Finding::warning("disk", text).hint("make room; a full disk refuses every enqueue"),
                _ => Finding::ok("disk", text),
            }
        }
        Err(error) => Finding::info("disk", format!("the room on its disk is not known: {error}")),
    }
}

/// For people.
fn bytes(count: u64) -> String {
    match count {
        0..10_240 => format!("{count} bytes"),
        10_240..10_485_760 => format!("{} KiB", count >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", count >> 20),
        _ => format!("{} GiB", count >> 30),
    }
}
