//! Code runs as a kind of runs of the engine.

use super::decision::Decision;
use super::host::Executor;
use super::message::Message;
use super::start::CodeDefinition;
use crate::runs::{RunKind, Turn};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::store::{BATCH_MAX, ClaimedRun, RunState, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};
use windlass_durable::{AnyWorkflow, Limits, OpenWork, Opening, ParentClosePolicy, Record, Run, decode_history};

/// Runs whose stuck decisions are counted.
const STUCK_COUNTS_MAX: usize = 10_000;

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
    pub(super) input: Bytes,
    /// The number of the first record of the segment.
    pub(super) first: u64,
    pub(super) history: Vec<Record>,
    /// The code, once it has replayed `history`.
    pub(super) run: Option<Run>,
    pub(super) summary: String,
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
            input: Bytes::copy_from_slice(input),
            first: claimed.segment_from,
            history: Vec::new(),
            run: None,
            summary: String::new(),
        })
    }

    fn replay(&self, state: &mut CodeState, entries: &[Bytes]) -> Result<()> {
        let records = decode_history(entries).map_err(|error| Error::corrupt(format!("its history: {error}")))?;
        state.history.extend(records);
        Ok(())
    }

    async fn decide(&self, state: &mut CodeState, turn: &mut Turn) -> Result<Vec<RunStep>> {
        Decision::new(self, state, turn).make().await?;
        Ok(Vec::new())
    }

    async fn clean_up(&self, state: &mut CodeState, _turn: &mut Turn) -> Result<Vec<RunStep>> {
        let open = OpenWork::of(state.first, &state.history);
        let cancel = Message::Cancel { reason: format!("its parent run {} was terminated", state.id) };
        let children = open.children.iter().filter(|(_, policy)| *policy != ParentClosePolicy::Abandon);
        let step = RunStep {
            cancel: open.jobs.into_iter().take(BATCH_MAX).collect(),
            messages: children.map(|(child, _)| cancel.to(*child)).take(BATCH_MAX).collect(),
            state: RunState::Terminated,
            ..RunStep::nothing()
        };
        state.summary = "terminated".to_owned();
        Ok(vec![step])
    }

    fn summarize(&self, state: &CodeState) -> String {
        state.summary.clone()
    }

    fn size(&self, state: &CodeState) -> usize {
        state.run.as_ref().map_or(1_024, Run::memory_bytes)
    }
}
