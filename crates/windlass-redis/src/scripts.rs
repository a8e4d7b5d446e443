//! The scripts: one file per transition, put together with the parts that they share.
//!
//! # Versions
//!
//! A script is called by the hash of its text, so programs of different versions work on one store side by side, each with
//! its own scripts. What they share is what is stored: its **layout**. Its number stands in `meta` as `layout`, written by
//! the first step that changes something. A program that finds a higher number than it knows refuses the store, when it
//! connects and in every step that counts something; a lower number, or none, it accepts.
//!
//! Without a new layout may change: what scripts compute, their arguments and answers, which of them there are; further
//! keys and fields that an older program may leave alone, and that a newer one does not need to find. A new layout is
//! needed when an older program would misread, lose or contradict what a newer one writes: another form of a record, a
//! life, an index entry or a counter, or a rule that all must keep. `tests/versions.rs` runs the scripts of
//! `tests/golden/scripts-v1.txt` beside the present ones on the same stores; a change that turns it red needs a new layout.

use crate::link::Script;
use std::sync::LazyLock;

macro_rules! lib {
    ($($name:literal),*) => { [$(include_str!(concat!("../lua/lib/", $name, ".lua"))),*] };
}

/// The layout of what is stored; the same number as in `lua/lib/base.lua`.
pub(crate) const LAYOUT: u32 = 1;

/// What every script knows.
const TABLES: [&str; 3] = lib!["base", "tables", "jobs"];
/// What they do with it. Each of these is a block of its own, because Lua allows 200 names in one; they know each other
/// by the table `E`.
pub(crate) const ENGINE: [&str; 6] = lib!["groups", "apply", "dedup", "quarantine", "due", "bells"];
const CLAIM: [&str; 3] = lib!["select", "claim", "report"];
const MAKE: [&str; 1] = lib!["make"];
const CREATE: [&str; 2] = lib!["make", "create"];

/// What a script may do.
#[derive(Clone, Copy)]
pub(crate) enum Flags {
    /// It changes things, and is refused when the server's memory is full.
    Writes,
    /// It lets go of more than it takes, or must go through in any case: with a full memory, too, jobs are worked off.
    Finishes,
    /// It changes nothing.
    Reads,
}

/// Puts a script together.
pub(crate) fn script(name: &'static str, flags: Flags, blocks: &[&[&str]], body: &str) -> Script {
    let flags = match flags {
        Flags::Writes => "#!lua",
        Flags::Finishes => "#!lua flags=allow-oom",
        Flags::Reads => "#!lua flags=no-writes",
    };
    let mut text = String::from(flags);
    for part in TABLES {
        text.push('\n');
        text.push_str(&strip(part));
    }
    for block in blocks.iter().flat_map(|block| block.iter()) {
        text.push_str("\ndo\n");
        text.push_str(&strip(block));
        text.push_str("\nend");
    }
    text.push('\n');
    text.push_str(&strip(body));
    Script::new(name, text)
}

/// A part without its comments: the server keeps the text, and parses it after every restart.
fn strip(part: &str) -> String {
    let lines = part.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

macro_rules! scripts {
    ($($field:ident: $flags:ident [$($part:expr),*]),* $(,)?) => {
        #[derive(Debug)]
        pub(crate) struct Scripts { $(pub(crate) $field: usize),* }

        /// The place of each script among all.
        pub(crate) const AT: Scripts = {
            let mut n = 0;
            $(let $field = n; n += 1;)*
            let _ = n;
            Scripts { $($field),* }
        };

        static ALL: LazyLock<Vec<Script>> = LazyLock::new(|| vec![
            $(script(
                stringify!($field),
                Flags::$flags,
                &[$(&$part),*],
                include_str!(concat!("../lua/", stringify!($field), ".lua")),
            )),*
        ]);
    };
}

scripts! {
    enqueue: Writes [ENGINE, CREATE],
    claim: Finishes [ENGINE, CLAIM],
    report: Finishes [ENGINE, CLAIM],
    renew: Finishes [ENGINE],
    change: Finishes [ENGINE],
    reap: Finishes [ENGINE],
    promote: Finishes [ENGINE],
    prune: Finishes [ENGINE],
    configure: Finishes [ENGINE, MAKE],
    obliterate: Finishes [ENGINE, MAKE],
    watch: Finishes [ENGINE],
    get: Reads [ENGINE],
    walk: Reads [ENGINE],
    queues: Reads [ENGINE],
    groups: Reads [ENGINE],
    metrics: Reads [ENGINE],
    explain: Reads [ENGINE],
    append_logs: Writes [ENGINE],
    read_logs: Reads [ENGINE],
    heartbeat: Finishes [ENGINE],
    deregister: Finishes [ENGINE],
    put_schedule: Writes [ENGINE],
    remove_schedule: Finishes [ENGINE],
    due_schedules: Reads [ENGINE],
    fire: Writes [ENGINE, CREATE],
    read_feed: Reads [ENGINE],
}

/// All of them, as the server is to keep them.
pub fn all() -> &'static [Script] {
    &ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_know_the_layout() {
        assert!(all().iter().all(|script| script.text().contains(&format!("\nE.LAYOUT = {LAYOUT}\n"))));
    }

    #[test]
    fn a_script_is_its_flags_and_its_parts_without_comments() {
        let report = &all()[AT.report];
        assert!(report.text().starts_with("#!lua flags=allow-oom\n"));
        assert!(report.text().contains("E.report()"));
        assert!(!report.text().lines().skip(1).any(|line| line.starts_with("--")));
    }
}
