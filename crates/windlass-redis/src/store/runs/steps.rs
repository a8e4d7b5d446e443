//! Steps of runs, as `lua/lib/steps.lua` reads them.

use super::items::job_refusal;
use super::text::{hash_text, labels_text, state_letter};
use crate::link::Call;
use crate::record::{due_text, escape, new_job_fields, new_job_rest, only_result_text};
use crate::reply::odd;
use crate::store::enqueue::{ATOMIC_BYTES_MAX, Lanes};
use std::fmt::Write as _;
use windlass_core::job::Due;
use windlass_core::store::{NewRun, RUN_KEPT_MS, RunCommit, RunMessage, RunReuse, RunStep};
use windlass_core::{Error, Result};

/// Beyond this the scripts do not count exactly, and nothing is so long.
const COUNT_MAX: u64 = 1 << 46;

/// The arguments of one run or commit, and what they weigh. Lanes are those of the whole call.
pub(super) struct Told {
    args: Vec<Vec<u8>>,
    /// Their bytes together.
    pub(super) bytes: usize,
    /// Single items that it takes from an inbox.
    items: usize,
}

impl Told {
    fn new() -> Self {
        Self { args: Vec::new(), bytes: 0, items: 0 }
    }

    fn add(&mut self, arg: impl Into<Vec<u8>>) {
        let arg = arg.into();
        self.bytes += arg.len();
        self.args.push(arg);
    }

    /// How many there are, and how many single items the commit takes.
    pub(super) fn len(&self) -> usize {
        self.args.len() + self.items
    }

    pub(super) fn add_to(&self, call: &mut Call<'_>) {
        call.args(&self.args);
    }

    /// Refuses a step that no server would take in one call.
    fn checked(self) -> Result<Self> {
        if self.bytes as u64 > ATOMIC_BYTES_MAX {
            return Err(Error::limit("a step of a run, in bytes,", ATOMIC_BYTES_MAX, self.bytes as u64));
        }
        Ok(self)
    }

    fn add_step(&mut self, step: &RunStep, lanes: &mut Lanes) -> Result<()> {
        self.add(state_letter(step.state));
        self.add(match step.wake {
            None => "-".to_owned(),
            Some(Due::Now) => "now".to_owned(),
            Some(due) => due_text(due),
        });
        self.add(step.stuck.as_ref().map_or_else(|| "-".to_owned(), |why| format!("+{}", escape(why))));
        self.add(escape(&step.summary));
        self.add(step.history.len().to_string());
        for entry in &step.history {
            self.add(&entry[..]);
        }
        self.add(step.cancel.len().to_string());
        for job in &step.cancel {
            self.add(job.to_string());
        }
        self.add(step.messages.len().to_string());
        for message in &step.messages {
            self.add_message(message);
        }
        self.add(step.jobs.len().to_string());
        for job in &step.jobs {
            let fields = new_job_fields(job, job.fingerprint(), lanes.number(job));
            self.add("J");
            self.add(job.effective_id().to_string());
            self.add(fields.ok_or_else(|| odd("a job of a run without fields"))?);
            self.add(new_job_rest(job)?);
        }
        self.add_rare(step, lanes)
    }

    /// What few steps have: letters, and what they stand for.
    fn add_rare(&mut self, step: &RunStep, lanes: &mut Lanes) -> Result<()> {
        let RunStep { published, labels, result, error, segment, runs, cancel_unclaimed, .. } = step;
        let all = [
            (published.is_some(), 'p'),
            (labels.is_some(), 'l'),
            (result.is_some(), 'r'),
            (error.is_some(), 'e'),
            (segment.is_some(), 's'),
            (!runs.is_empty(), 'c'),
            (!cancel_unclaimed.is_empty(), 'u'),
        ];
        let letters: String = all.iter().filter(|(is_there, _)| *is_there).map(|(_, letter)| letter).collect();
        self.add(if letters.is_empty() { "-".to_owned() } else { letters });
        if let Some(published) = published {
            self.add(serde_json::to_vec(published).map_err(|error| odd(&error.to_string()))?);
        }
        if let Some(labels) = labels {
            self.add(labels_text(labels)?);
        }
        if let Some(result) = result {
            self.add(only_result_text(result));
        }
        if let Some(error) = error {
            self.add(escape(error));
        }
        if let Some(segment) = segment {
            self.add(segment.kind.as_str());
            self.add(&segment.input[..]);
            self.add(segment.entries_before.to_string());
        }
        if !runs.is_empty() {
            self.add(runs.len().to_string());
            runs.iter().try_for_each(|run| self.add_run(run, lanes))?;
        }
        if !cancel_unclaimed.is_empty() {
            self.add(cancel_unclaimed.len().to_string());
            cancel_unclaimed.iter().for_each(|job| self.add(job.to_string()));
        }
        Ok(())
    }

    fn add_message(&mut self, message: &RunMessage) {
        self.add(message.run.to_string());
        self.add(message_flags(message, 's'));
        self.add(message.body.as_str());
    }

    pub(super) fn of_run(run: &NewRun, lanes: &mut Lanes) -> Result<Self> {
        run.check()?;
        let mut told = Self::new();
        told.add_run(run, lanes)?;
        told.checked()
    }

    fn add_run(&mut self, run: &NewRun, lanes: &mut Lanes) -> Result<()> {
        let hash = run.definition_hash();
        self.add(run.id.to_string());
        self.add(format!("{:016x}", run.fingerprint_with(&hash)));
        self.add(run.kind.as_str());
        self.add(escape(&run.name));
        self.add(hash_text(hash));
        self.add(keep_and_rare(run)?);
        self.add(&run.definition[..]);
        self.add(&run.input[..]);
        self.add_step(&run.step, lanes)?;
        if !run.messages.is_empty() {
            self.add(run.messages.len().to_string());
            for message in &run.messages {
                self.add(message_flags(message, '-'));
                self.add(message.body.as_str());
            }
        }
        Ok(())
    }

    pub(super) fn of_commit(commit: &RunCommit, lanes: &mut Lanes) -> Result<Self> {
        commit.check()?;
        let mut told = Self::new();
        told.add(commit.lease.run.to_string());
        told.add(commit.lease.token.to_string());
        told.add(commit.history_len.min(COUNT_MAX).to_string());
        told.add(inbox_text(commit));
        told.items = commit.inbox_taken.len();
        told.add(commit.lease_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string()));
        told.add_step(&commit.step, lanes)?;
        told.checked()
    }
}

/// How long a run is kept, and behind it what few runs have.
fn keep_and_rare(run: &NewRun) -> Result<String> {
    let keep = run.keep_ms.unwrap_or(RUN_KEPT_MS);
    let reuse = match run.reuse {
        RunReuse::Never => "",
        RunReuse::IfEnded => "a",
        RunReuse::IfNotSucceeded => "s",
    };
    let results = if run.job_results { "j" } else { "" };
    let letters = format!("{reuse}{results}{}", if run.messages.is_empty() { "" } else { "m" });
    if letters.is_empty() && run.parent.is_none() && run.labels.is_empty() {
        return Ok(keep.to_string());
    }
    let letters = if letters.is_empty() { "-" } else { &letters };
    let parent = run.parent.map_or_else(|| "-".to_owned(), |parent| parent.to_string());
    let labels = if run.labels.is_empty() { "-".to_owned() } else { labels_text(&run.labels)? };
    Ok(format!("{keep} {letters} {parent} {labels}"))
}

/// What a commit takes from the inbox: all before a number; `!` when no message may be left; numbers of further items.
fn inbox_text(commit: &RunCommit) -> String {
    let mut text = commit.inbox_to.min(COUNT_MAX).to_string();
    if commit.requires_read_messages {
        text.push('!');
    }
    for number in &commit.inbox_taken {
        let _ = write!(text, " {}", (*number).min(COUNT_MAX));
    }
    text
}

/// What a message does besides; `plain` if nothing.
pub(super) fn message_flags(message: &RunMessage, plain: char) -> String {
    let all =
        [(message.interrupts, 'i'), (message.reopens, 'r'), (message.terminates, 't'), (message.only_if_stuck, 'k')];
    let mut flags: String = all.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter).collect();
    if flags.is_empty() {
        flags.push(plain);
    }
    if let Some(len) = message.expected_history_len {
        let _ = write!(flags, "e{}", len.min(COUNT_MAX));
    }
    if let Some(id) = &message.id {
        let _ = write!(flags, "#{id}");
    }
    flags
}

/// `<job> <why>`, the job by its number from 1.
pub(super) fn refused(rest: &str, step: &RunStep) -> Error {
    let parts = rest.split_once(' ').and_then(|(at, why)| Some((at.parse::<usize>().ok()?.checked_sub(1)?, why)));
    match parts.and_then(|(at, why)| Some((step.jobs.get(at)?, why))) {
        Some((job, why)) => job_refusal(why, job.effective_id(), &job.spec.queue),
        None => odd(rest),
    }
}
