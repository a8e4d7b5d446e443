//! Steps of runs, as `lua/lib/steps.lua` reads them.

use super::text::{hash_text, state_letter};
use crate::link::Call;
use crate::record::{due_text, escape, new_job_fields, new_job_rest};
use crate::reply::odd;
use crate::store::enqueue::{ATOMIC_BYTES_MAX, Lanes, enqueued};
use windlass_core::job::Due;
use windlass_core::store::{NewRun, RUN_KEPT_MS, RunCommit, RunMessage, RunStep};
use windlass_core::{Error, Result};

/// Beyond this the scripts do not count exactly, and nothing is so long.
const COUNT_MAX: u64 = 1 << 46;

/// The arguments of one run or commit, and what they weigh. Lanes are those of the whole call.
pub(super) struct Told {
    args: Vec<Vec<u8>>,
    /// Their bytes together.
    pub(super) bytes: usize,
}

impl Told {
    fn new() -> Self {
        Self { args: Vec::new(), bytes: 0 }
    }

    fn add(&mut self, arg: impl Into<Vec<u8>>) {
        let arg = arg.into();
        self.bytes += arg.len();
        self.args.push(arg);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.args.len()
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
        Ok(())
    }

    fn add_message(&mut self, message: &RunMessage) {
        self.add(message.run.to_string());
        self.add(message_flags(message));
        self.add(message.body.as_str());
    }

    pub(super) fn of_run(run: &NewRun, lanes: &mut Lanes) -> Result<Self> {
        run.check()?;
        let mut told = Self::new();
        told.add(run.id.to_string());
        told.add(format!("{:016x}", run.fingerprint()));
        told.add(run.kind.as_str());
        told.add(escape(&run.name));
        told.add(hash_text(run.definition_hash()));
        told.add(run.keep_ms.unwrap_or(RUN_KEPT_MS).to_string());
        told.add(&run.definition[..]);
        told.add(&run.input[..]);
        told.add_step(&run.step, lanes)?;
        told.checked()
    }

    pub(super) fn of_commit(commit: &RunCommit, lanes: &mut Lanes) -> Result<Self> {
        commit.check()?;
        let mut told = Self::new();
        told.add(commit.lease.run.to_string());
        told.add(commit.lease.token.to_string());
        told.add(commit.history_len.min(COUNT_MAX).to_string());
        told.add(commit.inbox_to.min(COUNT_MAX).to_string());
        told.add(commit.lease_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string()));
        told.add_step(&commit.step, lanes)?;
        told.checked()
    }
}

/// What a message does besides.
pub(super) fn message_flags(message: &RunMessage) -> String {
    let flags = match (message.interrupts, message.reopens) {
        (false, false) => "-",
        (true, false) => "i",
        (false, true) => "r",
        (true, true) => "ir",
    };
    match message.expected_history_len {
        Some(len) => format!("{flags}e{}", len.min(COUNT_MAX)),
        None => flags.to_owned(),
    }
}

/// `<job> <why>`, the job by its number from 1.
pub(super) fn refused(rest: &str, step: &RunStep) -> Error {
    let parts = rest.split_once(' ').and_then(|(at, why)| Some((at.parse::<usize>().ok()?.checked_sub(1)?, why)));
    match parts.and_then(|(at, why)| Some((step.jobs.get(at)?, why))) {
        Some((job, "damaged")) => Error::corrupt(format!("the queue `{}` cannot be read", job.spec.queue)),
        Some((job, why)) => match enqueued(why, job.effective_id(), &job.spec.queue) {
            Err(error) => error,
            Ok(_) => odd(why),
        },
        None => odd(rest),
    }
}
