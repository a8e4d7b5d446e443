//! Code runs as a kind of runs of the engine.

use super::decision::Decision;
use super::host::Executor;
use super::length::raised_cap;
use super::message::Message;
use super::start::CodeDefinition;
use super::threads::PollThreads;
use crate::runs::{RunKind, Takes, Turn, TurnCommit};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::store::{ClaimedRun, InboxItem, RUN_TEXT_BYTES_MAX, RunItem, RunState, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};
use windlass_durable::{
    AnyWorkflow, CancelTarget, Item, ItemBody, Limits, OpenWork, Opening, ParentClosePolicy, Record, Run, RunRetry,
    decode_history,
};

/// Runs whose stuck decisions are counted.
const STUCK_COUNTS_MAX: usize = 10_000;

/// The most jobs and children that one commit cancels after a run was terminated.
const CLEANED_MAX: usize = 5_000;

/// The runs of one workflow in one version.
pub(crate) struct CodeRuns {
    pub(super) workflow: Arc<dyn AnyWorkflow>,
    pub(super) executor: Executor,
    stuck: Mutex<HashMap<RunId, u32>>,
}

impl CodeRuns {
    pub(crate) fn new(workflow: Arc<dyn AnyWorkflow>, executor: &Executor) -> Self {
        Self { workflow, executor: executor.clone(), stuck: Mutex::default() }
    }

    /// How often this engine has found the run stuck in a row, this time included.
    pub(super) fn count_stuck(&self, run: RunId) -> u32 {
        let mut counts = self.stuck.lock();
        if counts.len() >= STUCK_COUNTS_MAX && !counts.contains_key(&run) {
            counts.clear();
        }
        let count = counts.entry(run).or_default();
        *count = count.saturating_add(1);
        *count
    }

    pub(super) fn forget_stuck(&self, run: RunId) {
        self.stuck.lock().remove(&run);
    }
}

/// A code run: its stored history until the code has replayed it, then the code itself.
pub(crate) struct CodeState {
    pub(super) id: RunId,
    pub(super) created_at: Timestamp,
    pub(super) deadline: Option<Timestamp>,
    pub(super) retry: RunRetry,
    pub(super) input: Bytes,
    /// The number of the first record of the segment.
    pub(super) first: u64,
    pub(super) history: Vec<Record>,
    /// The cap on the length of this segment, if it was raised.
    pub(super) cap: Option<u64>,
    /// Why the history cannot be read.
    pub(super) damage: Option<String>,
    /// The code, once it has replayed `history`.
    pub(super) run: Option<Run>,
    /// Jobs and children that the run has cancelled and whose ends have not come.
    cancelled: HashSet<CancelTarget>,
    pub(super) summary: String,
    threads: Arc<PollThreads>,
}

impl CodeState {
    pub(super) fn opening(&self, kind: &CodeRuns, history: Vec<Record>) -> Opening {
        Opening {
            workflow: Arc::clone(&kind.workflow),
            id: self.id,
            input: self.input.clone(),
            created_at: self.created_at,
            host: Arc::clone(&kind.executor.host) as Arc<_>,
            limits: Limits::default(),
            first: self.first,
            history,
        }
    }

    /// Drops the code where it was polled: destructors of users may block, and need the large stack.
    pub(super) fn drop_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.threads.drop_there(run);
        }
    }

    /// Keeps account of jobs and children that were cancelled, when a commit has taken `items`.
    pub(super) fn note_ends<'i>(
        &mut self,
        items: impl Iterator<Item = &'i Item>,
        cancelled: impl Iterator<Item = CancelTarget>,
    ) {
        for item in items {
            match &item.body {
                ItemBody::JobEnded { job, .. } => drop(self.cancelled.remove(&CancelTarget::Job(*job))),
                ItemBody::ChildEnded { run, .. } => drop(self.cancelled.remove(&CancelTarget::Child(*run))),
                _ => {}
            }
        }
        self.cancelled.extend(cancelled);
    }
}

impl Drop for CodeState {
    fn drop(&mut self) {
        // A run that has ended has dropped its code.
        if self.run.as_ref().is_some_and(|run| run.ended().is_none()) {
            self.drop_run();
        }
    }
}

impl RunKind for CodeRuns {
    type Definition = CodeDefinition;
    type State = CodeState;

    const REPLAYS_PARTS: bool = false;

    fn kind(&self) -> Result<Kind> {
        Kind::new(self.workflow.kind().as_ref())
    }

    fn decode(&self, definition: &[u8]) -> Result<CodeDefinition> {
        serde_json::from_slice(definition).map_err(|error| Error::corrupt(format!("its definition: {error}")))
    }

    fn begin(&self, claimed: &ClaimedRun, definition: &Arc<CodeDefinition>, input: &[u8]) -> Result<CodeState> {
        let created_at = definition.starts_at.unwrap_or(claimed.created_at);
        let deadline = definition.timeout_ms.map(|timeout| created_at.plus_ms(timeout));
        Ok(CodeState {
            id: claimed.lease.run,
            created_at,
            deadline,
            retry: definition.retry.clone(),
            input: Bytes::copy_from_slice(input),
            first: claimed.segment_from,
            history: Vec::new(),
            cap: None,
            damage: None,
            run: None,
            cancelled: HashSet::new(),
            summary: String::new(),
            threads: Arc::clone(&self.executor.threads),
        })
    }

    fn replay(&self, state: &mut CodeState, entries: &[Bytes]) -> Result<()> {
        match decode_history(entries) {
            Ok(records) => {
                state.cap = raised_cap(&records).or(state.cap);
                state.history.extend(records);
            }
            // A newer version may have written it: the decision makes the run stuck, to be tried again.
            Err(error) => state.damage = Some(format!("its history: {error}")),
        }
        Ok(())
    }

    async fn decide(&self, state: &mut CodeState, turn: &mut Turn) -> Result<Vec<RunStep>> {
        Decision::new(self, state, turn).make().await?;
        Ok(Vec::new())
    }

    /// Cancels jobs and children, with a limit for each commit. As long as more are open, the terminate message stays in the inbox, so
    /// that the run is claimed again; records in the history say what is done.
    async fn clean_up(&self, state: &mut CodeState, turn: &mut Turn) -> Result<Vec<RunStep>> {
        let reason = turn.claimed().inbox.iter().rev().find_map(|item| match &item.item {
            RunItem::Message { body, .. } => match Message::parse(body) {
                Ok(Message::Terminate { reason }) if !reason.is_empty() => Some(reason),
                _ => None,
            },
            _ => None,
        });
        state.summary = reason.map_or_else(|| "terminated".to_owned(), |reason| format!("terminated: {reason}"));
        state.summary.truncate(state.summary.floor_char_boundary(RUN_TEXT_BYTES_MAX));
        let commands = OpenWork::commands(state.first, &state.history);
        let (mut open, mut numbers) = (OpenWork::default(), Vec::new());
        for (number, request) in commands.iter().take(CLEANED_MAX) {
            open.add(*request);
            numbers.push(*number);
        }
        let cancel = Message::Cancel { reason: format!("its parent run {} was terminated", state.id) };
        let children = open.children.iter().filter(|(_, policy)| *policy != ParentClosePolicy::Abandon);
        let mut step = RunStep {
            messages: children.map(|(child, _)| cancel.to(*child)).collect(),
            cancel: open.jobs,
            state: RunState::Terminated,
            ..RunStep::nothing()
        };
        if commands.len() <= CLEANED_MAX {
            return Ok(vec![step]);
        }
        step.history = Record::cancels(&numbers).map(|record| record.encode().into()).collect();
        step.summary.clone_from(&state.summary);
        let takes = Takes::Items(Vec::new());
        turn.commit(TurnCommit { step, takes, keeps_lease: false, requires_read_messages: false }).await?;
        Ok(Vec::new())
    }

    /// The end of a job or child that the state does not have: a store that failed over has lost the commit that started it, or
    /// has another in its place.
    fn accepts(&self, state: &CodeState, inbox: &[InboxItem]) -> bool {
        let Some(run) = &state.run else { return true };
        inbox.iter().all(|item| {
            let target = match &item.item {
                RunItem::JobEnded(end) => CancelTarget::Job(end.job),
                RunItem::RunEnded(end) => CancelTarget::Child(end.run),
                RunItem::ChildRefused { run, .. } => CancelTarget::Child(*run),
                RunItem::Message { .. } => return true,
            };
            run.awaits(&target) || state.cancelled.contains(&target)
        })
    }

    fn is_ready(&self) -> bool {
        self.executor.threads.is_ready()
    }

    fn summarize(&self, state: &CodeState) -> String {
        state.summary.clone()
    }

    fn size(&self, state: &CodeState) -> usize {
        state.run.as_ref().map_or(1_024, Run::memory_bytes)
    }
}
