//! Code runs as people and programs see them: state, operations, history, and the tree of their children.

mod groups;
mod history;
mod lookup;
mod note;
mod operation;
mod replay;
mod tree;

pub use groups::OperationGroup;
pub use history::{HistoryPage, HistoryRecord, NumberedRecord, read_history};
pub(crate) use note::explain_code_run;
pub use operation::{CallJob, ChildRun, Operation, OperationError, OperationKind, OperationState, group};
pub use replay::{RunAt, Step, read_run_at, read_steps};
pub use tree::{CHILDREN_MAX, DEPTH_MAX, RunTree, read_tree};

use crate::error::OperateError;
use crate::job_view::payload_json;
use history::{numbered, read_part};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use windlass::core::id::RunId;
use windlass::core::store::{InboxItem, Run, RunItem, RunRead, RunView, Store};
use windlass::core::time::Timestamp;

/// Records of a segment that are grouped into operations. Later ones are left out.
pub const RECORDS_MAX: u64 = 100_000;
/// Characters of a value in a line for people.
const SHORT_MAX: usize = 80;

/// A code run with its operations, as `windlass runs show --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct CodeRunView {
    /// The run as a listing shows it.
    #[serde(flatten)]
    pub run: Run,
    /// The name of the workflow.
    pub workflow: String,
    /// The version of the workflow.
    pub version: String,
    /// The input, unless it is no JSON.
    pub input: Option<Box<RawValue>>,
    /// When the run times out.
    pub deadline: Option<Timestamp>,
    /// The result of a run that succeeded.
    pub result: Option<Box<RawValue>>,
    /// The values that the run publishes.
    pub published: BTreeMap<String, Option<Box<RawValue>>>,
    /// The oldest messages that the code has not read, such as `signal approve`.
    pub unread: Vec<String>,
    /// The operations of the present segment by kind and name: how many there are in which state.
    pub groups: Vec<OperationGroup>,
    /// The operations of the present segment, in the order of their first records.
    pub operations: Vec<Operation>,
    /// Operations that were left out by [`shorten`](Self::shorten).
    pub operations_omitted: u64,
    /// Records of the present segment that are not among the operations because there are too many.
    pub records_omitted: u64,
}

impl CodeRunView {
    /// Leaves out operations if there are more than `max`: those that are open or failed stay first, at most half of `max`, and the
    /// last ones.
    pub fn shorten(&mut self, max: usize) {
        self.operations_omitted += shorten(&mut self.operations, max);
    }

    /// Operations that have not ended, and those that failed.
    pub fn remarkable(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(|row| is_remarkable(row))
    }
}

/// True for an operation that has not ended, and for one that failed.
pub fn is_remarkable(operation: &Operation) -> bool {
    matches!(operation.state, OperationState::Open | OperationState::Failed)
}

/// Leaves out operations if there are more than `max`, and returns how many.
fn shorten(operations: &mut Vec<Operation>, max: usize) -> u64 {
    if operations.len() <= max {
        return 0;
    }
    let remarkable = operations.iter().filter(|row| is_remarkable(row));
    let mut kept: BTreeSet<u64> = remarkable.take(max / 2).map(|row| row.number).collect();
    let room = max - kept.len();
    kept.extend(operations.iter().rev().take(room).map(|row| row.number));
    let before = operations.len();
    operations.retain(|row| kept.contains(&row.number));
    (before - operations.len()) as u64
}

/// True when a run executes a workflow in code. The kind of such a run is `name@version`.
pub fn is_code(run: &Run) -> bool {
    run.damaged.is_none() && run.kind.as_str().contains('@')
}

/// Refuses a run that does not execute a workflow in code.
pub(crate) fn check_is_code(run: &Run) -> Result<(), OperateError> {
    if is_code(run) {
        return Ok(());
    }
    let (id, kind) = (run.id, &run.kind);
    let message = match &run.damaged {
        Some(damage) => format!("the run {id} is damaged: {damage}"),
        None => format!("the run {id} is of the kind `{kind}`, which is no workflow in code"),
    };
    Err(OperateError::conflict(message).hint(format!("windlass runs show {id} shows what it is")))
}

/// Unread messages that are named.
const UNREAD_MAX: usize = 20;

/// What the messages of an inbox are: `signal approve`.
fn unread(inbox: &[InboxItem]) -> Vec<String> {
    let name = |item: &InboxItem| {
        let RunItem::Message { body, .. } = &item.item else { return None };
        let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let words: Vec<&str> = ["say", "name"].iter().filter_map(|field| body.get(field)?.as_str()).collect();
        Some(if words.is_empty() { format!("message {}", item.number) } else { words.join(" ") })
    };
    inbox.iter().filter_map(name).take(UNREAD_MAX).collect()
}

/// Reads a run as a listing shows it.
pub async fn read_brief(store: &dyn Store, run: RunId) -> Result<Run, OperateError> {
    let view = store.read_runs(vec![RunRead::brief(run)]).await?.pop().flatten();
    Ok(view.ok_or_else(|| OperateError::not_found(format!("there is no run {run}")))?.run)
}

/// Reads a code run with its operations, their jobs and their children.
pub async fn read_code_run(store: &dyn Store, run: RunId) -> Result<CodeRunView, OperateError> {
    let read = RunRead {
        definition: true,
        input: true,
        published: true,
        result: true,
        inbox_from: Some(0),
        ..RunRead::brief(run)
    };
    let view = store.read_runs(vec![read]).await?.pop().flatten();
    let view = view.ok_or_else(|| OperateError::not_found(format!("there is no run {run}")))?;
    check_is_code(&view.run)?;
    let (mut operations, records_omitted) = read_operations(store, &view.run).await?;
    let now = store.now().await?;
    if view.run.state.is_terminal() {
        operations.iter_mut().for_each(|operation| operation.end_with_run(view.run.finished_at));
    }
    lookup::add_jobs(store, &mut operations, now).await?;
    lookup::add_children(store, &mut operations).await?;
    assemble(view, operations, records_omitted)
}

async fn read_operations(store: &dyn Store, run: &Run) -> Result<(Vec<Operation>, u64), OperateError> {
    let (mut records, mut from) = (Vec::new(), run.segment_from);
    let end = run.history_len.min(run.segment_from + RECORDS_MAX);
    while from < end {
        let part = read_part(store, run.id, from).await?;
        let some = numbered(&part, from)?;
        if some.is_empty() {
            break;
        }
        from += some.len() as u64;
        records.extend(some);
    }
    Ok((group(&records), run.history_len.saturating_sub(from)))
}

fn assemble(view: RunView, operations: Vec<Operation>, records_omitted: u64) -> Result<CodeRunView, OperateError> {
    let RunView { run, definition, input, published, result, inbox, .. } = view;
    let timeout_ms = match definition {
        Some(definition) => windlass::durable::timeout_ms_of(&definition)?,
        None => None,
    };
    let (workflow, version) = run.kind.as_str().split_once('@').unwrap_or((run.kind.as_str(), ""));
    let published = published.unwrap_or_default();
    Ok(CodeRunView {
        workflow: workflow.to_owned(),
        version: version.to_owned(),
        input: input.and_then(|input| serde_json::from_slice(&input).ok()),
        deadline: timeout_ms.map(|timeout| run.created_at.plus_ms(timeout)),
        result: result.as_ref().and_then(payload_json),
        published: published.into_iter().map(|(name, value)| (name, payload_json(&value))).collect(),
        unread: if run.state.is_terminal() { Vec::new() } else { unread(&inbox) },
        groups: groups::groups_of(&operations),
        operations,
        operations_omitted: 0,
        records_omitted,
        run,
    })
}

/// JSON in one line of at most 80 characters.
pub fn short_json(json: &str) -> String {
    let line: String = json.chars().take(SHORT_MAX + 1).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= SHORT_MAX {
        return line;
    }
    line.chars().take(SHORT_MAX - 1).chain(['…']).collect()
}
