//! The scripts: one file per transition, put together with the parts that they share.
//!
//! # Versions
//!
//! A script is called by the hash of its text, so programs of different versions work on one store side by side, each with
//! its own scripts. What they share is what is stored: its **layout**. Its number stands in `meta` as `layout`, written by
//! the first step that changes something. A program that finds a higher number than it knows refuses the store, when it
//! connects and in every step that counts something; a lower number, or none, it accepts, and the first step that changes
//! something raises it. Layout 2 brought records of runs that begin with `2`, and items that layout 1 does not know.
//!
//! Without a new layout may change: what scripts compute, their arguments and answers, which of them there are; further
//! keys and fields that an older program may leave alone, and that a newer one does not need to find. A new layout is
//! needed when an older program would misread, lose or contradict what a newer one writes: another form of a record, a
//! life, an index entry or a counter, or a rule that all must keep. `tests/versions.rs` runs the scripts of
//! `tests/golden/scripts-v2.txt` beside the present ones on the same stores; a change that turns it red needs a new layout.

use crate::link::Script;
use std::sync::LazyLock;

macro_rules! lib {
    ($($name:literal),*) => { [$(include_str!(concat!("../lua/lib/", $name, ".lua"))),*] };
}

/// The layout of what is stored; the same number as in `lua/lib/base.lua`.
pub(crate) const LAYOUT: u32 = 2;

/// What every script knows. The other parts are blocks of their own, because Lua allows 200 names in one; they know each
/// other by the table `E`.
const BASE: &str = include_str!("../lua/lib/base.lua");
/// What the quick ways need, and the long ones as well.
const COMMON: [&str; 2] = lib!["feed", "idle"];
const QUICK_ENQUEUE: [&str; 1] = lib!["quick_enqueue"];
const QUICK_REPORT: [&str; 3] = lib!["register", "plain", "quick_report"];
/// Runs, which the quick ways need when a job of one has ended.
const RUNS: [&str; 2] = lib!["writes", "runs"];
/// The long way: jobs, queues and groups as objects.
const ENGINE: [&str; 8] = lib!["tables", "jobs", "groups", "apply", "dedup", "quarantine", "due", "bells"];
const CLAIM: [&str; 3] = lib!["select", "claim", "report"];
const MAKE: [&str; 1] = lib!["make"];
const CREATE: [&str; 2] = lib!["make", "create"];
/// Refuses half a store: in every script, before anything else but the fast paths.
const WHOLE: &str = include_str!("../lua/lib/whole.lua");
const REGISTER: [&str; 1] = lib!["register"];
const INBOX: [&str; 1] = lib!["inbox"];
const MESSAGES: [&str; 1] = lib!["messages"];
const STEPS: [&str; 3] = lib!["messages", "steps", "new_runs"];
const TAKEN: [&str; 1] = lib!["taken"];

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

/// Puts a script together that knows everything but what is needed to create and to claim.
pub(crate) fn script(name: &'static str, flags: Flags, body: &str) -> Script {
    assemble(name, flags, &[], &[], body)
}

/// Puts a script together. With a quick way, the functions of the long one are made only when `long_way` is called: a call
/// makes its functions anew each time, and those would cost more than the work of the quick way.
fn assemble(name: &'static str, flags: Flags, quick: &[&[&str]], more: &[&[&str]], body: &str) -> Script {
    let flags = match flags {
        Flags::Writes => "#!lua",
        Flags::Finishes => "#!lua flags=allow-oom",
        Flags::Reads => "#!lua flags=no-writes",
    };
    let mut text = format!("{flags}\n{}", strip(BASE));
    let mut add = |part: &str| {
        text.push('\n');
        text.push_str(part);
    };
    let block = |part: &&str| format!("do\n{}\nend", strip(part));
    COMMON.iter().map(block).for_each(|part| add(&part));
    if !quick.is_empty() {
        add("local function with_runs()\nif E.runs_are_known then return end\nE.runs_are_known = true");
    }
    RUNS.iter().map(block).for_each(|part| add(&part));
    if !quick.is_empty() {
        add("end");
        quick.concat().iter().map(block).for_each(|part| add(&part));
        add("local function long_way()\nwith_runs()");
    }
    add(&block(&WHOLE));
    ENGINE.iter().chain(more.concat().iter()).map(block).for_each(|part| add(&part));
    if !quick.is_empty() {
        add("end");
    }
    add(&strip(body));
    Script::new(name, text)
}

/// A part without its comments: the server keeps the text, and parses it after every restart.
pub(crate) fn strip(part: &str) -> String {
    let lines = part.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

macro_rules! scripts {
    ($($field:ident: $flags:ident [$($quick:expr),*] [$($part:expr),*]),* $(,)?) => {
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
            $(assemble(
                stringify!($field),
                Flags::$flags,
                &[$(&$quick),*],
                &[$(&$part),*],
                include_str!(concat!("../lua/", stringify!($field), ".lua")),
            )),*
        ]);
    };
}

scripts! {
    enqueue: Writes [QUICK_ENQUEUE] [CREATE],
    claim: Finishes [QUICK_REPORT] [CLAIM],
    report: Finishes [QUICK_REPORT] [CLAIM],
    renew: Finishes [] [],
    change: Finishes [] [],
    reap: Finishes [] [],
    promote: Finishes [] [],
    prune: Finishes [] [],
    configure: Finishes [] [MAKE],
    obliterate: Finishes [] [MAKE],
    watch: Finishes [] [],
    get: Reads [] [],
    walk: Reads [] [],
    queues: Reads [] [],
    groups: Reads [] [],
    metrics: Reads [] [],
    explain: Reads [] [],
    append_logs: Writes [] [],
    read_logs: Reads [] [],
    heartbeat: Finishes [] [],
    deregister: Finishes [] [],
    put_schedule: Writes [] [],
    remove_schedule: Finishes [] [],
    due_schedules: Reads [] [],
    fire: Writes [] [CREATE],
    read_feed: Reads [] [],
    set_feed_events: Finishes [] [],
    create_runs: Writes [] [CREATE, STEPS],
    claim_runs: Finishes [] [REGISTER, INBOX],
    renew_runs: Finishes [] [INBOX],
    commit_runs: Finishes [] [CREATE, STEPS, TAKEN],
    send_to_runs: Finishes [] [MESSAGES],
    read_runs: Reads [] [INBOX],
    list_runs: Reads [] [],
    remove_runs: Finishes [] [],
    keep_time: Finishes [] [],
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
    fn every_script_checks_that_the_store_is_whole() {
        for script in all() {
            assert_eq!(script.text().matches("err = 'HALF '").count(), 1, "{}", script.name());
        }
    }

    #[test]
    fn a_script_is_its_flags_and_its_parts_without_comments() {
        let report = &all()[AT.report];
        assert!(report.text().starts_with("#!lua flags=allow-oom\n"));
        assert!(report.text().contains("E.report(outcomes)"));
        assert!(!report.text().lines().skip(1).any(|line| line.starts_with("--")));
    }
}
