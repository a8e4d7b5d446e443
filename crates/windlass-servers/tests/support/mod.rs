//! What the tests share.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part; a failed check is a panic"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Whether a process runs; one that only waits to be buried does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// Whether nothing is left of a process, not even one that waits to be buried.
pub(crate) fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// The processes that watch over that one.
pub(crate) fn watchdogs_of(pid: u32) -> Vec<u32> {
    let wanted = format!("\0watchdog\0{pid}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id| fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.contains(&wanted)))
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "other processes run in real time")]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + windlass_core::time::HANG_GUARD;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        // sleeps because: another process gives no signal.
        std::thread::sleep(Duration::from_millis(5));
    }
}
