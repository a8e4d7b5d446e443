//! What a simulation does with the decisions of a turn: records, jobs, children, ends.

use super::attempts::{MockedChild, without_jitter};
use super::mock::OpPath;
use super::run::SimRun;
use super::schedule::Action;
use super::simulation::{CallMade, Fault, JobMade, Simulation};
use bytes::Bytes;
use std::sync::Arc;
use windlass_core::id::{JobId, RunId};
use windlass_core::name::Kind;
use windlass_core::time::Timestamp;
use windlass_durable::{
    AnyWorkflow, CallError, CancelTarget, Chunk, End, Entry, ErrorClass, ItemBody, NextSegment, Outcome, RunRetry,
    Start, Turn,
};

/// A child to start.
struct NewChild {
    run: RunId,
    kind: Kind,
    op: OpPath,
    input: Bytes,
    timeout_ms: Option<u64>,
    retry: RunRetry,
}

impl Simulation {
    /// Commits a turn record by record, so that each prefix of the history is the history as of some commit.
    pub(super) fn commit(&mut self, index: usize, mut turn: Turn) -> Result<(), Fault> {
        let (next, end) = (turn.next.clone(), turn.ended.take());
        for chunk in turn.chunks(1) {
            let is_last = !chunk.has_more;
            self.apply(index, chunk)?;
            if is_last {
                match (&next, &end) {
                    (Some(next), _) => self.begin_segment(index, next)?,
                    (None, Some(end)) => self.end_run(index, end),
                    (None, None) => {}
                }
            }
            self.commit_times.push(self.now);
        }
        Ok(())
    }

    fn apply(&mut self, index: usize, chunk: Chunk) -> Result<(), Fault> {
        let commit = self.commit_number();
        for record in chunk.records {
            self.runs[index].append(record, commit);
        }
        for number in chunk.takes {
            self.schedule.remove(commit, usize::try_from(number).unwrap_or(usize::MAX));
        }
        for start in chunk.starts {
            self.start(index, start)?;
        }
        for job in chunk.cancel_jobs {
            self.schedule.cancel(commit, &CancelTarget::Job(job));
        }
        for job in chunk.cancel_unclaimed {
            self.cancel_unclaimed(index, job);
        }
        for child in chunk.cancel_children {
            self.cancel_child(index, child);
        }
        Ok(())
    }

    /// Cancels a job unless a worker has claimed it: unless its first attempt has begun.
    fn cancel_unclaimed(&mut self, index: usize, job: JobId) {
        if !self.schedule.is_unclaimed(job) {
            return;
        }
        self.schedule.cancel(self.commit_number(), &CancelTarget::Job(job));
        let body = ItemBody::JobEnded { job, outcome: Err(CallError::cancelled()) };
        let action = Action::Item { run: self.runs[index].id, body };
        self.schedule.add(self.commit_number(), self.now, action);
    }

    /// The key of a command of this run, as text.
    fn key_of(&self, index: usize, number: u64) -> String {
        let record = usize::try_from(number).ok().and_then(|number| self.runs[index].records.get(number));
        match record.map(|record| &record.entry) {
            Some(Entry::Command(command)) => command.key.to_string(),
            _ => format!("command {number}"),
        }
    }

    fn start(&mut self, index: usize, start: Start) -> Result<(), Fault> {
        let (number, at_ms) = (start.number(), self.elapsed_ms());
        match start {
            // The executor has the timers of `schedule_to_start` and `schedule_to_close`. Mocks are never silent, so the timeout of
            // heartbeats does not pass.
            Start::Job { job, spec, due, .. } => {
                let (kind, input) = (spec.kind.as_str().to_owned(), spec.payload.bytes.clone());
                let claimed_after_ms = self.setup.mocks.lock().jobs.get(&kind).map(|mock| mock.claimed_after_ms);
                let Some(claimed_after_ms) = claimed_after_ms else {
                    return Err(no_mock_of_job(&kind, &String::from_utf8_lossy(&input)));
                };
                self.calls.push(CallMade { kind, input, at_ms });
                let op = self.runs[index].op(self.key_of(index, number));
                self.jobs.insert(job, Arc::new(JobMade { run: index, op, spec: *spec }));
                // Nothing is planned for a job that no worker claims.
                if let Some(ms) = claimed_after_ms {
                    let at = due.resolve(self.time()).max(self.time()).plus_ms(ms).as_ms();
                    self.schedule.add(self.commit_number(), at, Action::Attempt { job, number: 1 });
                }
                Ok(())
            }
            Start::Child { run, name, kind, input, timeout_ms, retry, .. } => {
                self.calls.push(CallMade { kind: kind.as_str().to_owned(), input: input.clone(), at_ms });
                if name.is_some() && self.index_of(run).is_some() {
                    let error = CallError::new(ErrorClass::Taken, format!("the run {run} exists"));
                    self.plan_end_of_child(index, run, self.time(), Err(error));
                    return Ok(());
                }
                let (op, retry) = (self.runs[index].op(self.key_of(index, number)), without_jitter(&retry));
                self.start_child(index, NewChild { run, kind, op, input, timeout_ms, retry })
            }
            _ => Err("the workflow starts something that the test kit does not support".into()),
        }
    }

    fn start_child(&mut self, parent: usize, child: NewChild) -> Result<(), Fault> {
        let NewChild { run, kind, op, input, timeout_ms, retry } = child;
        let (commit, now) = (self.commit_number(), self.time());
        let deadline = timeout_ms.map(|ms| now.plus_ms(ms));
        if self.setup.mocks.lock().workflows.contains_key(kind.as_str()) {
            let child = MockedChild { parent, op, kind, input, retry, deadline };
            self.mocked_children.insert(run, Arc::new(child));
            self.start_child_attempt(run, 1);
            return Ok(());
        }
        let Some(workflow) = self.code_of(kind.as_str()) else { return Err(no_code_of_child(kind.as_str())) };
        let child_path = format!("{}/{} segment {}", op.run, op.key, op.segment);
        let child = SimRun::new(run, child_path.into(), workflow).with_input(input, now).with_retry(retry);
        self.runs.push(child.with_parent(parent, commit));
        self.schedule.add(commit, self.now, Action::Start { run });
        if let Some(deadline) = deadline {
            self.schedule.add(commit, deadline.as_ms(), Action::Item { run, body: ItemBody::TimedOut });
        }
        Ok(())
    }

    fn code_of(&self, kind: &str) -> Option<Arc<dyn AnyWorkflow>> {
        let is_own = self.setup.workflow.kind() == kind;
        if is_own { Some(Arc::clone(&self.setup.workflow)) } else { self.setup.workflows.get(kind).cloned() }
    }

    pub(super) fn plan_end_of_child(&mut self, parent: usize, run: RunId, at: Timestamp, outcome: Outcome) {
        let action = Action::Item { run: self.runs[parent].id, body: ItemBody::ChildEnded { run, outcome } };
        self.schedule.add(self.commit_number(), at.as_ms(), action);
    }

    fn cancel_child(&mut self, parent: usize, child: RunId) {
        let reason = "its parent does not wait for it any more".to_owned();
        if self.index_of(child).is_some() {
            let action = Action::Item { run: child, body: ItemBody::CancelRequested { reason } };
            self.schedule.add(self.commit_number(), self.now, action);
        } else if self.schedule.cancel(self.commit_number(), &CancelTarget::Child(child)) {
            self.plan_end_of_child(parent, child, self.time(), Err(CallError::cancelled()));
        }
    }

    fn begin_segment(&mut self, index: usize, next: &NextSegment) -> Result<(), Fault> {
        let commit = self.commit_number();
        let Some(workflow) = self.code_of(&next.kind) else {
            let kind = &next.kind;
            return Err(
                format!("the run continues as `{kind}`, whose code is unknown: add `.workflow(..)` for it").into()
            );
        };
        self.runs[index].begin_segment(next.clone(), workflow, commit);
        Ok(())
    }

    fn end_run(&mut self, index: usize, end: &End) {
        self.runs[index].live = None;
        let Some(parent) = self.runs[index].parent else { return };
        let failed = |class, message: &String| Err(CallError { attempts: 1, ..CallError::new(class, message.clone()) });
        let outcome = match end {
            End::Ok(value) => Ok(value.clone()),
            End::Cancelled(message) => failed(ErrorClass::Cancelled, message),
            End::TimedOut(message) => failed(ErrorClass::TimedOut, message),
            End::Failed(message) => failed(ErrorClass::Failed, message),
            other => failed(ErrorClass::Failed, &other.name().to_owned()),
        };
        self.plan_end_of_child(parent, self.runs[index].id, self.time(), outcome);
    }
}

/// The name of a job's type, guessed from its kind.
fn type_name(kind: &str) -> String {
    let words = kind.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let capitalized = words.map(|word| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    });
    capitalized.collect()
}

fn no_mock_of_job(kind: &str, input: &str) -> Fault {
    let name = type_name(kind);
    format!("no mock for `{kind}`, which was called with {input}: add `.mock(|job: {name}| Ok(..))`").into()
}

fn no_code_of_child(kind: &str) -> Fault {
    let name = kind.split('@').next().unwrap_or(kind);
    format!(
        "neither code nor a mock for the child workflow `{kind}`: add `.workflow({name})`, which runs its code, \
         or `.mock_workflow({name}, |input| Ok(..))`"
    )
    .into()
}
