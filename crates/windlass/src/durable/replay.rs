//! Replays of exported runs against code, without a store: in tests, before a deploy, and to look into a run that is stuck.

use super::start::CodeDefinition;
use crate::runs::RunExport;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use windlass_core::store::Run as StoredRun;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};
use windlass_durable::{
    AnyWorkflow, Entry, Limits, NoHost, Opening, PendingOp, Record, Run, RunOptions, RunRetry, Running, Stuck, Wf,
    Workflow, decode_history,
};

/// The stack of the thread that executes the code, as in workers.
const STACK_BYTES: usize = 64 << 20;
/// Operations of [`Replayed::waits_for`].
const PENDING_MAX: usize = 1_000;

/// The exported history of a run, to be replayed. See [`RunExport`].
///
/// Nothing outside of the code is touched: no job is enqueued, no local step is executed. Of a run that has continued as new, the
/// present segment is replayed: the store does not keep the inputs of the others.
#[derive(Clone, Debug)]
pub struct Replay {
    export: RunExport,
    until: Option<u64>,
}

/// What became of a replay that fits the code.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The number behind the last record that was replayed.
    pub until: u64,
    /// What the code waits for then, in the order in which it began to wait: at most 1,000 operations.
    pub waits_for: Vec<PendingOp>,
    /// What the code adds to the history without anything new to act on. Of a whole history that is nothing in most cases; more than
    /// that means that the code goes on where an earlier build waited.
    pub adds: Vec<Record>,
    /// True if the history has the end of the run.
    pub has_ended: bool,
    /// Differences that do not make the run stuck, such as another input of a call.
    pub warnings: Vec<String>,
}

/// Why a replay failed.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayError {
    /// The run would be stuck with this code. Of a mismatch, both sides are named with their lines.
    Stuck(Stuck),
    /// There is nothing to replay: the file is no run of this workflow, or cannot be read.
    Unfit(Error),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck(stuck) => write!(f, "{stuck}"),
            Self::Unfit(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<Error> for ReplayError {
    fn from(error: Error) -> Self {
        Self::Unfit(error)
    }
}

impl Replay {
    /// Replays an exported run.
    pub fn of(export: RunExport) -> Self {
        Self { export, until: None }
    }

    /// Reads an exported run from a file that `windlass runs export` has written.
    pub fn of_file(path: impl AsRef<Path>) -> Result<Self> {
        RunExport::of_file(path).map(Self::of)
    }

    /// Replays only the records before this number.
    pub fn until(self, number: u64) -> Self {
        Self { until: Some(number), ..self }
    }

    /// Replays the history against a workflow. It fails if the run would be stuck with this code.
    pub fn against<W: Workflow>(
        &self,
        workflow: impl FnOnce(Wf, W::Input) -> Running<W>,
    ) -> std::result::Result<Replayed, ReplayError> {
        self.against_any(windlass_durable::typed(workflow))
    }

    /// The same with a workflow without types. Its kind must be that of the run.
    pub fn against_any(&self, workflow: Arc<dyn AnyWorkflow>) -> std::result::Result<Replayed, ReplayError> {
        let (opening, retry) = self.opening(workflow)?;
        // A thread without a tokio context and with a large stack, as in workers.
        let thread = std::thread::Builder::new().name("replay".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || replay(opening, retry));
        let thread = thread.map_err(|error| Error::no_thread(&error))?;
        let replayed = thread.join().map_err(|_| Error::corrupt("the executor of workflows panicked"))?;
        replayed.map_err(ReplayError::Stuck)
    }

    fn opening(&self, workflow: Arc<dyn AnyWorkflow>) -> Result<(Opening, RunRetry)> {
        let RunExport { run, definition, input, history, .. } = &self.export;
        if workflow.kind() != run.kind.as_str() {
            let why = format!("is of the kind `{}`, and the workflow is `{}`", run.kind, workflow.kind());
            return Err(Error::invalid("run", why));
        }
        let definition: CodeDefinition = definition.to_json()?;
        let entries = history.iter().filter(|entry| entry.number >= run.segment_from);
        let entries = entries.take_while(|entry| self.until.is_none_or(|until| entry.number < until));
        let history: Vec<Record> = decode_history(entries.map(|entry| &entry.entry.bytes))
            .map_err(|error| Error::corrupt(format!("the history from {} on: {error}", run.segment_from)))?;
        self.check_until(run)?;
        let opening = Opening {
            workflow,
            id: run.id,
            input: input.bytes.clone(),
            created_at: definition.starts_at.unwrap_or(run.created_at),
            host: Arc::new(NoHost { build: "replay".to_owned() }),
            limits: Limits::default(),
            first: run.segment_from,
            history,
        };
        Ok((opening, definition.retry))
    }

    fn check_until(&self, run: &StoredRun) -> Result<()> {
        let (from, to) = (run.segment_from, self.export.history.len() as u64);
        match self.until {
            Some(until) if !(from..=to).contains(&until) => {
                Err(Error::invalid("until", format!("is {until}; this segment has the records from {from} to {to}")))
            }
            _ => Ok(()),
        }
    }
}

fn replay(opening: Opening, retry: RunRetry) -> std::result::Result<Replayed, Stuck> {
    let until = opening.first + opening.history.len() as u64;
    let now = last_time(&opening.history).unwrap_or(opening.created_at);
    let mut run = Run::open_with(opening, RunOptions { clock: now, retry }, |_| ())?;
    let has_ended = run.ended().is_some();
    let adds = if has_ended { Vec::new() } else { run.turn(Vec::new(), now)?.records };
    Ok(Replayed { until, waits_for: run.pending(PENDING_MAX), adds, has_ended, warnings: run.warnings() })
}

/// The time of the last event.
fn last_time(history: &[Record]) -> Option<Timestamp> {
    history.iter().rev().find_map(|record| match &record.entry {
        Entry::Event { at, .. } => Some(*at),
        _ => None,
    })
}
