//! What the scripts of runs answer.

use super::items::readable_items;
use super::steps::refused;
use super::text::state;
use crate::reply::{Items, number, odd, time};
use windlass_core::id::RunId;
use windlass_core::store::{
    NewRun, RUN_CHANGED, RUN_NOT_CLEANED_UP, RUN_NOT_ENDED, RUN_NOT_STUCK, RunCommit, RunCommitted, RunCreated,
    RunRenewed, UNREAD_MESSAGES_MAX,
};
use windlass_core::{Error, Result};

/// The error for a run that cannot be read.
pub(super) fn unreadable(run: RunId) -> Error {
    Error::corrupt(format!("the run {run} cannot be read; look at it, then remove it"))
}

/// What became of a run to create.
pub(super) fn created(answer: &str, run: &NewRun) -> Result<RunCreated> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("created", _) => Ok(RunCreated::Created),
        ("existing", _) => Ok(RunCreated::Existing),
        ("restarted", _) => Ok(RunCreated::Restarted),
        ("taken", _) => Err(Error::RunTaken { run: run.id }),
        ("unclean", _) => Err(Error::run_refused(run.id, RUN_NOT_CLEANED_UP)),
        ("full", _) => Err(Error::inbox_full(run.id, UNREAD_MESSAGES_MAX)),
        ("refused", rest) => Err(refused(rest, &run.step)),
        _ => Err(odd(answer)),
    }
}

/// What became of a commit.
pub(super) fn committed(answer: &str, commit: &RunCommit) -> Result<RunCommitted> {
    let run = commit.lease.run;
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("ok", len) => Ok(RunCommitted { history_len: number(len)?, repeated: false }),
        ("same", len) => Ok(RunCommitted { history_len: number(len)?, repeated: true }),
        ("lost", _) => Err(Error::LeaseLost),
        ("missing", _) => Err(Error::run_not_found(run)),
        ("corrupt", _) => Err(unreadable(run)),
        ("beyond", _) => Err(Error::beyond_inbox("inbox_to")),
        ("beyond_taken", _) => Err(Error::beyond_inbox("inbox_taken")),
        ("terminated", _) => Err(Error::terminated_only(true)),
        ("going", _) => Err(Error::terminated_only(false)),
        ("unread", count) => Err(Error::UnreadMessages { run, unread: number(count)? }),
        ("refused", rest) => Err(refused(rest, &commit.step)),
        _ => Err(odd(answer)),
    }
}

/// What became of a renewal; `found` are the items that it returns.
pub(super) fn renewed(answer: &str, mut found: Items, run: RunId) -> Result<RunRenewed> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("ok", numbers) => {
            let mut numbers = numbers.split(' ');
            let mut next = || numbers.next().unwrap_or_default();
            let (expires_at, from) = (time(next())?, number(next())?);
            let (inbox_to, inbox_taken) = (number(next())?, number(next())?);
            let inbox = readable_items(&mut found, from)?;
            Ok(RunRenewed { expires_at, inbox, inbox_to, inbox_taken })
        }
        ("lost", _) => Err(Error::LeaseLost),
        ("missing", _) => Err(Error::run_not_found(run)),
        ("corrupt", _) => Err(unreadable(run)),
        ("beyond", _) => Err(Error::beyond_inbox("inbox_from")),
        _ => Err(odd(answer)),
    }
}

/// What became of a message.
pub(super) fn sent(answer: &str, run: RunId) -> Result<()> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("ok", _) => Ok(()),
        ("missing", _) => Err(Error::run_not_found(run)),
        ("corrupt", _) => Err(unreadable(run)),
        ("ended", letter) => Err(Error::run_ended(run, state(letter)?)),
        ("running", _) => Err(Error::run_refused(run, RUN_NOT_ENDED)),
        ("going", _) => Err(Error::run_refused(run, RUN_NOT_STUCK)),
        ("changed", _) => Err(Error::run_refused(run, RUN_CHANGED)),
        ("full", _) => Err(Error::inbox_full(run, UNREAD_MESSAGES_MAX)),
        _ => Err(odd(answer)),
    }
}

/// What became of a removal.
pub(super) fn removed(answer: &str, run: RunId) -> Result<()> {
    match answer {
        "ok" => Ok(()),
        "missing" => Err(Error::run_not_found(run)),
        "running" => Err(Error::run_not_removed(run)),
        _ => Err(odd(answer)),
    }
}
