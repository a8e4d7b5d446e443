//! What a simulation does with the decisions of a turn: records, jobs, children, ends.

use super::mock::{Attempt, AttemptError, AttemptPath};
use super::run::SimRun;
use super::schedule::Action;
use super::simulation::{CallMade, Fault, JobMade, Simulation};
use crate::error::Then;
use std::sync::Arc;
use windlass_core::id::{JobId, RunId};
use windlass_core::name::Kind;
use windlass_core::retry::RetryAdvice;
use windlass_durable::{
    AnyWorkflow, CallError, CancelTarget, Chunk, End, Entry, ErrorClass, ItemBody, NextSegment, Outcome, Start, Turn,
};

/// A child to start.
struct NewChild {
    run: RunId,
    kind: Kind,
    path: AttemptPath,
    timeout_ms: Option<u64>,
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
        for child in chunk.cancel_children {
            self.cancel_child(index, child);
        }
        Ok(())
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
            Start::Job { job, spec, due, timeouts, .. } => {
                if timeouts.schedule_to_start_ms.is_some() || timeouts.schedule_to_close_ms.is_some() {
                    return Err(
                        "the workflow sets schedule_to_start or schedule_to_close, which no engine enforces yet".into(),
                    );
                }
                let (kind, input) = (spec.kind.as_str().to_owned(), spec.payload.bytes.clone());
                if !self.setup.mocks.lock().jobs.contains_key(&kind) {
                    return Err(no_mock_of_job(&kind, &String::from_utf8_lossy(&input)));
                }
                self.calls.push(CallMade { kind, input, at_ms });
                let op = self.runs[index].op(self.key_of(index, number));
                self.jobs.insert(job, Arc::new(JobMade { run: index, op, spec: *spec }));
                let at = due.resolve(self.time()).max(self.time()).as_ms();
                self.schedule.add(self.commit_number(), at, Action::Attempt { job, number: 1 });
                Ok(())
            }
            Start::Child { run, name, kind, input, timeout_ms, .. } => {
                self.calls.push(CallMade { kind: kind.as_str().to_owned(), input: input.clone(), at_ms });
                if name.is_some() && self.index_of(run).is_some() {
                    let error = CallError::new(ErrorClass::Taken, format!("the run {run} exists"));
                    self.plan_end_of_child(index, run, 0, Err(error));
                    return Ok(());
                }
                let path = AttemptPath { op: self.runs[index].op(self.key_of(index, number)), attempt: 1, input };
                self.start_child(index, NewChild { run, kind, path, timeout_ms })
            }
            _ => Err("the workflow starts something that the test kit does not support".into()),
        }
    }

    fn start_child(&mut self, parent: usize, child: NewChild) -> Result<(), Fault> {
        let NewChild { run, kind, path, timeout_ms } = child;
        let mocked = self.setup.mocks.lock().workflow(kind.as_str(), path.clone());
        if let Some(Attempt { takes_ms, result, effects }) = mocked {
            self.plan_effects(parent, effects);
            let late = timeout_ms.filter(|timeout| *timeout < takes_ms);
            let result = match late {
                Some(_) => {
                    Err(CallError { attempts: 1, ..CallError::new(ErrorClass::TimedOut, "the child timed out") })
                }
                None => result.map_err(|failed| failed.error),
            };
            self.plan_end_of_child(parent, run, late.unwrap_or(takes_ms), result);
            return Ok(());
        }
        let Some(workflow) = self.code_of(kind.as_str()) else { return Err(no_code_of_child(kind.as_str())) };
        let (commit, now) = (self.commit_number(), self.time());
        let child_path = format!("{}/{} segment {}", path.op.run, path.op.key, path.op.segment);
        let child = SimRun::new(run, child_path.into(), workflow).with_input(path.input, now);
        self.runs.push(child.with_parent(parent, commit));
        self.schedule.add(commit, self.now, Action::Start { run });
        if let Some(ms) = timeout_ms {
            self.schedule.add(commit, now.plus_ms(ms).as_ms(), Action::Item { run, body: ItemBody::TimedOut });
        }
        Ok(())
    }

    fn code_of(&self, kind: &str) -> Option<Arc<dyn AnyWorkflow>> {
        let is_own = self.setup.workflow.kind() == kind;
        if is_own { Some(Arc::clone(&self.setup.workflow)) } else { self.setup.workflows.get(kind).cloned() }
    }

    fn plan_end_of_child(&mut self, parent: usize, run: RunId, after_ms: u64, outcome: Outcome) {
        let action = Action::Item { run: self.runs[parent].id, body: ItemBody::ChildEnded { run, outcome } };
        self.schedule.add(self.commit_number(), self.time().plus_ms(after_ms).as_ms(), action);
    }

    fn cancel_child(&mut self, parent: usize, child: RunId) {
        let reason = "its parent does not wait for it any more".to_owned();
        if self.index_of(child).is_some() {
            let action = Action::Item { run: child, body: ItemBody::CancelRequested { reason } };
            self.schedule.add(self.commit_number(), self.now, action);
        } else if self.schedule.cancel(self.commit_number(), &CancelTarget::Child(child)) {
            self.plan_end_of_child(parent, child, 0, Err(CallError::cancelled()));
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
        self.plan_end_of_child(parent, self.runs[index].id, 0, outcome);
    }

    /// Calls the mock of a job, and plans its end or the next attempt.
    pub(super) fn start_attempt(&mut self, job: JobId, number: u32) -> Result<(), Fault> {
        let Some(made) = self.jobs.get(&job).cloned() else { return Ok(()) };
        let JobMade { run, op, spec } = &*made;
        let path = AttemptPath { op: op.clone(), attempt: number, input: spec.payload.bytes.clone() };
        let attempt = self.setup.mocks.lock().job(spec.kind.as_str(), path);
        let Some(Attempt { takes_ms, result, effects }) = attempt else { return Ok(()) };
        self.plan_effects(*run, effects);
        let late = spec.timeout_ms.filter(|timeout| *timeout < takes_ms);
        let result = match late {
            Some(ms) => Err(AttemptError {
                error: CallError::new(
                    ErrorClass::TimedOut,
                    format!("the attempt took longer than its timeout, {ms} ms"),
                ),
                then: Then::Policy,
            }),
            None => result,
        };
        let ended = self.time().plus_ms(late.unwrap_or(takes_ms));
        let pause = match &result {
            Err(failed) if number < spec.attempts => match failed.then {
                Then::Never => None,
                Then::After(time) => Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
                // Without jitter: the longest pause that the policy allows.
                Then::Policy => match spec.retry.advise(number, 0) {
                    RetryAdvice::AfterMs(ms) => Some(ms),
                    RetryAdvice::AskKind => Some(1_000),
                    RetryAdvice::Never => None,
                },
            },
            _ => None,
        };
        let (at, action) = match (pause, result) {
            (Some(ms), _) => (ended.plus_ms(ms), Action::Attempt { job, number: number + 1 }),
            (None, result) => {
                let outcome = result.map_err(|failed| CallError { attempts: number, ..failed.error });
                (ended, Action::Item { run: self.runs[*run].id, body: ItemBody::JobEnded { job, outcome } })
            }
        };
        self.schedule.add(self.commit_number(), at.as_ms(), action);
        Ok(())
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
