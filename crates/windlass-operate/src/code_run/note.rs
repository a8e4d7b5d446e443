//! Operations in words: what each is, and what it waits for or became.

use super::operation::{CallJob, Operation, OperationKind, OperationState};
use super::{read_code_run, short_json};
use crate::error::OperateError;
use crate::explain::{NodeWait, RunExplanation};
use crate::run_view::resume_hint;
use crate::text::relative_time;
use windlass::core::id::RunId;
use windlass::core::job::State;
use windlass::core::store::{Run, RunState, Store};
use windlass::core::time::Timestamp;

impl Operation {
    /// What it is: `call charge`, `timer`, `signal approve`.
    pub fn title(&self) -> String {
        let mut title = self.kind.name().to_owned();
        if !self.name.is_empty() && self.kind != OperationKind::CancelRequest {
            title = format!("{title} {}", self.name);
        }
        if !self.key.is_empty() {
            title = format!("{title} ({})", self.key);
        }
        if self.nth > 0 {
            title = format!("{title} #{}", self.nth);
        }
        title
    }

    /// The state in a word: that of the job or of the child while it is open, else that of the operation.
    pub fn state_name(&self) -> String {
        if let (OperationState::Open, Some(job)) = (self.state, &self.job) {
            return job.state.to_string();
        }
        let name = match (self.state, self.kind, &self.child) {
            (OperationState::Open, _, Some(child)) if child.stuck.is_some() => "stuck",
            (OperationState::Open, _, Some(child)) => child.state.name(),
            (OperationState::Open, OperationKind::Timer, _) => "waiting",
            (OperationState::Done, OperationKind::Timer, _) => "fired",
            (OperationState::Done, OperationKind::Signal | OperationKind::CancelRequest, _) => "received",
            (OperationState::Done, OperationKind::Promise, _) => "resolved",
            (state, ..) => state.name(),
        };
        name.to_owned()
    }

    /// What it waits for or became, in one line.
    pub fn note(&self, now: Timestamp) -> String {
        if let Some(error) = &self.error {
            let attempts = self.job.as_ref().filter(|job| job.attempt > 1).map(attempts).unwrap_or_default();
            return format!("{}: {}{attempts}", error.class, error.message);
        }
        if let Some(value) = &self.value {
            return short_json(value.get());
        }
        match (self.kind, self.state) {
            (OperationKind::CancelRequest, _) => self.name.clone(),
            (OperationKind::Timer, OperationState::Open) => {
                let time = |at: Timestamp| format!("fires {} at {at}", relative_time(at, now));
                self.fires_at.map(time).unwrap_or_default()
            }
            (OperationKind::Call, OperationState::Open) => self.job.as_ref().map_or_else(
                || "the store does not have its job any more".to_owned(),
                |job| waiting(job).unwrap_or_else(|| active(job)),
            ),
            (OperationKind::Child, OperationState::Open) => match &self.child {
                Some(child) => child.stuck.clone().unwrap_or_else(|| child.summary.clone()),
                None => "the store does not have its run".to_owned(),
            },
            _ => String::new(),
        }
    }
}

fn attempts(job: &CallJob) -> String {
    format!(" (attempt {} of {})", job.attempt, job.attempts_max)
}

/// Why a job waits, and what went wrong before; `None` if it does not wait.
fn waiting(job: &CallJob) -> Option<String> {
    let reason = job.reason.clone()?;
    Some(match &job.last_error {
        Some(error) => format!("attempt {} of {} failed: {error}; {reason}", job.attempt, job.attempts_max),
        None => reason,
    })
}

fn active(job: &CallJob) -> String {
    match job.state {
        State::Active => {
            let error = job.last_error.as_ref().map(|error| format!("; the one before failed: {error}"));
            format!(
                "a worker works on it, attempt {} of {}{}",
                job.attempt,
                job.attempts_max,
                error.unwrap_or_default()
            )
        }
        state if state.is_terminal() => "its job has ended; the run has not read that yet".to_owned(),
        _ => String::new(),
    }
}

/// Explains the state of a code run: what each open operation waits for.
pub(crate) async fn explain_code_run(store: &dyn Store, run: RunId) -> Result<RunExplanation, OperateError> {
    let view = read_code_run(store, run).await?;
    let now = store.now().await?;
    let open = view.operations.iter().filter(|operation| operation.state == OperationState::Open);
    let wait = |operation: &Operation| {
        let subject = match (operation.job_id, operation.run_id) {
            (Some(job), _) => format!("job {job}: "),
            (_, Some(run)) => format!("run {run}: "),
            _ => String::new(),
        };
        NodeWait { node: operation.title(), reason: subject + &operation.note(now) }
    };
    let waits = if view.run.state.is_terminal() { Vec::new() } else { open.map(wait).collect() };
    Ok(RunExplanation { run, state: view.run.state, text: sentence(&view.run), waits })
}

fn sentence(run: &Run) -> String {
    if let Some(stuck) = run.stuck.as_ref().filter(|_| !run.state.is_terminal()) {
        let hint = resume_hint(run).map(|hint| format!("; {hint}")).unwrap_or_default();
        let why: Vec<&str> = stuck.lines().map(str::trim).collect();
        return format!("it is stuck: {}{hint}", why.join("; "));
    }
    match &run.error {
        // Its summary has the reason, once a worker has cleaned up.
        Some(_) if run.state == RunState::Terminated && run.summary.starts_with("terminated: ") => {
            format!("it has ended as {}", run.summary)
        }
        Some(error) => format!("it has ended as {}: {error}", run.state.name()),
        None if run.state.is_terminal() => format!("it has ended as {}", run.state.name()),
        None => run.summary.clone(),
    }
}
