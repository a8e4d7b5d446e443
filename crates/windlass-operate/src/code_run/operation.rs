//! The history of a code run, grouped by operation: one row for each call, timer, child, step, signal and promise.

use super::history::NumberedRecord;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use windlass::core::id::{JobId, RunId};
use windlass::core::job::State;
use windlass::core::store::RunState;
use windlass::core::time::Timestamp;
use windlass::durable::CallError;
use windlass::durable::record::{Body, Command, DiscardedMessage, Entry, Event, Key, Outcome, Request, SourceLine};

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// A job.
    Call,
    /// A timer.
    Timer,
    /// A child run.
    Child,
    /// A local step.
    Step,
    /// A signal that was delivered.
    Signal,
    /// The resolution of a promise.
    Promise,
    /// A patch marker.
    Patch,
    /// A request to cancel the run.
    CancelRequest,
    /// The deadline of the run passed.
    Deadline,
}

impl OperationKind {
    /// The name of the kind for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Timer => "timer",
            Self::Child => "child",
            Self::Step => "step",
            Self::Signal => "signal",
            Self::Promise => "promise",
            Self::Patch => "patch",
            Self::CancelRequest => "cancel request",
            Self::Deadline => "deadline",
        }
    }
}

/// The state of an operation by the history of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// Requested and not ended.
    Open,
    /// Ended with a value; fired; delivered.
    Done,
    /// Ended with an error.
    Failed,
    /// Cancelled by the code or with the run.
    Cancelled,
    /// Dropped by an operator: the code never gets it.
    Discarded,
}

impl OperationState {
    /// The name of the state, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
        }
    }
}

/// The error of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationError {
    /// The class of the error: `failed`, `timed_out`, `cancelled` and so on.
    pub class: &'static str,
    /// The message, for people.
    pub message: String,
}

/// The job of a call, as far as the store still has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallJob {
    /// The queue of the job.
    pub queue: String,
    /// The state of the job.
    pub state: State,
    /// Attempts so far, with the one that a worker works at.
    pub attempt: u32,
    /// Attempts at most.
    pub attempts_max: u32,
    /// Why it waits, as a sentence; `None` when it does not wait, and beyond the first 20 that wait.
    pub reason: Option<String>,
    /// The error of the last attempt that failed.
    pub last_error: Option<String>,
    /// When the next attempt may begin, of a job that waits for that time.
    pub next_attempt_at: Option<Timestamp>,
    /// When it was last claimed.
    pub claimed_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// The run of a child, as far as the store still has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChildRun {
    /// The kind of the child, `name@version`.
    pub kind: String,
    /// The state of the child.
    pub state: RunState,
    /// Why no engine can advance it.
    pub stuck: Option<String>,
    /// What it waits for, in short.
    pub summary: String,
}

/// One operation of a code run.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// The number of its first record in the history of the run.
    pub number: u64,
    /// What it is.
    pub kind: OperationKind,
    /// The kind of the job, the name of the workflow, step, signal or marker; empty for timers.
    pub name: String,
    /// The key that the code gave it; empty for none.
    pub key: String,
    /// The combinators around it; empty for none.
    pub scope: String,
    /// Counts operations that are equal in kind, name, key and scope, from 0.
    pub nth: u32,
    /// The line of the source that made it, `file:line`; empty when it is unknown.
    pub place: String,
    /// Its state by the history.
    pub state: OperationState,
    /// The time of the event that the code acted on when it made the operation. `None` for local steps and for what came from
    /// outside.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When a timer fires.
    pub fires_at: Option<Timestamp>,
    /// The id of the job of a call.
    pub job_id: Option<JobId>,
    /// The id of the run of a child.
    pub run_id: Option<RunId>,
    /// The id of a signal, or the token of a promise within the run; empty for none.
    pub id: String,
    /// Its value.
    pub value: Option<Box<RawValue>>,
    /// Its error.
    pub error: Option<OperationError>,
    /// The job of a call. The history does not have it: [`read_code_run`](super::read_code_run) adds it.
    pub job: Option<CallJob>,
    /// The run of a child. The history does not have it.
    pub child: Option<ChildRun>,
}

impl Operation {
    fn new(number: u64, kind: OperationKind, state: OperationState) -> Self {
        Self {
            number,
            kind,
            name: String::new(),
            key: String::new(),
            scope: String::new(),
            nth: 0,
            place: String::new(),
            state,
            started_at: None,
            ended_at: None,
            fires_at: None,
            job_id: None,
            run_id: None,
            id: String::new(),
            value: None,
            error: None,
            job: None,
            child: None,
        }
    }

    fn keyed(self, key: &Key, place: &SourceLine) -> Self {
        let Key { scope, name, user, nth, .. } = key;
        let (scope, name, key) = (scope.to_string(), name.to_string(), user.to_string());
        Self { scope, name, key, nth: *nth, place: place.to_string(), ..self }
    }

    /// An operation that one event began and ended.
    fn event(number: u64, at: Timestamp, kind: OperationKind) -> Self {
        Self { ended_at: Some(at), ..Self::new(number, kind, OperationState::Done) }
    }

    fn command(number: u64, at: Option<Timestamp>, command: &Command) -> Self {
        let of = |kind| Self { started_at: at, ..Self::new(number, kind, OperationState::Open) };
        let operation = match command.request {
            Request::Call { job, .. } => Self { job_id: Some(job), ..of(OperationKind::Call) },
            Request::Sleep { until } => Self { fires_at: Some(until), ..of(OperationKind::Timer) },
            Request::Child { run, .. } => Self { run_id: Some(run), ..of(OperationKind::Child) },
            // A request of a later version.
            _ => of(OperationKind::Call),
        };
        operation.keyed(&command.key, &command.place)
    }

    fn end(&mut self, at: Timestamp, outcome: &Outcome) {
        self.ended_at = Some(at);
        match outcome {
            Ok(body) => (self.state, self.value) = (OperationState::Done, raw(body)),
            Err(error) => {
                let CallError { class, message, .. } = error;
                self.error = Some(OperationError { class: class.name(), message: message.clone() });
                let is_cancelled = class.name() == "cancelled";
                self.state = if is_cancelled { OperationState::Cancelled } else { OperationState::Failed };
            }
        }
    }

    /// Calls and timers that were open when their run ended are cancelled with it.
    pub(super) fn end_with_run(&mut self, at: Option<Timestamp>) {
        let is_ended =
            self.state == OperationState::Open && matches!(self.kind, OperationKind::Call | OperationKind::Timer);
        if is_ended {
            (self.state, self.ended_at) = (OperationState::Cancelled, at);
        }
    }

    /// How long it took, or takes until `now`. For calls from the last claim of the job, where the store still has it.
    pub fn duration_ms(&self, now: Timestamp) -> Option<u64> {
        if let Some(job) = &self.job {
            return Some(job.finished_at.or(self.ended_at).unwrap_or(now).ms_since(job.claimed_at?));
        }
        Some(self.ended_at.unwrap_or(now).ms_since(self.started_at?))
    }
}

pub(super) fn raw(body: &Body) -> Option<Box<RawValue>> {
    RawValue::from_string(body.as_json().to_owned()).ok()
}

/// Groups the records of a segment by operation, in the order of their first records.
pub fn group(records: &[NumberedRecord]) -> Vec<Operation> {
    let mut operations = BTreeMap::new();
    let mut now = None;
    for NumberedRecord { number, record } in records {
        match &record.entry {
            Entry::Command(command) => {
                operations.insert(*number, Operation::command(*number, now, command));
            }
            Entry::Event { at, event } => {
                now = Some(*at);
                apply(&mut operations, *number, *at, event);
            }
            Entry::Cancel(numbers) => {
                for number in numbers {
                    // A call that has expired is cancelled, too.
                    let open = operations.get_mut(number).filter(|operation| operation.state == OperationState::Open);
                    if let Some(operation) = open {
                        (operation.state, operation.ended_at) = (OperationState::Cancelled, now);
                    }
                }
            }
            Entry::Discarded { at, message } => discard(&mut operations, *number, *at, message),
            Entry::Patch(key) => {
                let patch =
                    Operation { ended_at: now, ..Operation::new(*number, OperationKind::Patch, OperationState::Done) };
                operations.insert(*number, patch.keyed(key, &SourceLine::stored("")));
            }
            _ => {}
        }
    }
    operations.into_values().collect()
}

/// A message that an operator dropped: from the history, or from the inbox.
fn discard(operations: &mut BTreeMap<u64, Operation>, number: u64, at: Timestamp, message: &DiscardedMessage) {
    if let Some(known) = message.of.and_then(|of| operations.get_mut(&of)) {
        known.state = OperationState::Discarded;
        return;
    }
    let signal = Operation::new(number, OperationKind::Signal, OperationState::Discarded);
    let (name, id, value) = (message.name.to_string(), message.id.clone(), raw(&message.body));
    operations.insert(number, Operation { name, id, value, ended_at: Some(at), ..signal });
}

fn apply(operations: &mut BTreeMap<u64, Operation>, number: u64, at: Timestamp, event: &Event) {
    let new = match event {
        Event::Done { of, outcome } => {
            if let Some(operation) = operations.get_mut(of) {
                operation.end(at, outcome);
            }
            return;
        }
        Event::Expired { of, error } => {
            if let Some(operation) = operations.get_mut(of) {
                operation.end(at, &Err(error.clone()));
            }
            return;
        }
        Event::Fired { of } => {
            if let Some(timer) = operations.get_mut(of) {
                (timer.state, timer.ended_at) = (OperationState::Done, Some(at));
            }
            return;
        }
        Event::Stepped { key, outcome, place } => {
            let mut step = Operation::event(number, at, OperationKind::Step).keyed(key, place);
            step.end(at, outcome);
            step
        }
        Event::Signal { name, body, id } => {
            let signal = Operation::event(number, at, OperationKind::Signal);
            Operation { name: name.to_string(), id: id.clone(), value: raw(body), ..signal }
        }
        Event::Resolved { token, body } => {
            let promise = Operation::event(number, at, OperationKind::Promise);
            Operation { id: format!("{token:016x}"), value: raw(body), ..promise }
        }
        Event::CancelRequested { reason } => {
            Operation { name: reason.clone(), ..Operation::event(number, at, OperationKind::CancelRequest) }
        }
        Event::TimedOut => Operation::event(number, at, OperationKind::Deadline),
        // The start of the segment, a call that may go on if its job has started, and events of a later version.
        _ => return,
    };
    operations.insert(number, new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::durable::record::Record;

    fn records(lines: &[&str]) -> Vec<NumberedRecord> {
        let decode =
            |(number, line): (u64, &&str)| NumberedRecord { number, record: Record::decode(line.as_bytes()).unwrap() };
        (0..).zip(lines).map(decode).collect()
    }

    #[test]
    fn records_of_one_operation_become_one_row() {
        let job = JobId::from_parts(0, 7);
        let call = format!(r#"{{"r":"call","n":"charge","p":"order.rs:7","id":"{job}"}}"#);
        let rows = group(&records(&[
            r#"{"r":"started","t":1000,"x":"00000000000000ff"}"#,
            &call,
            r#"{"r":"sleep","at":9000,"p":"order.rs:8"}"#,
            r#"{"r":"done","t":3000,"of":1,"d":70}"#,
            r#"{"r":"cancel","l":[2]}"#,
            r#"{"r":"signal","t":4000,"n":"approve","id":"m1","d":{"by":"ada"}}"#,
            r#"{"r":"stepped","t":5000,"n":"slip","p":"order.rs:9","c":"failed","d":{"message":"no paper","attempts":2}}"#,
            r#"{"r":"discarded","t":6000,"n":"approve","of":5}"#,
            r#"{"r":"discarded","t":7000,"d":"dance"}"#,
        ]));
        let kinds: Vec<_> = rows.iter().map(|row| (row.number, row.kind, row.state)).collect();
        assert_eq!(
            kinds,
            [
                (1, OperationKind::Call, OperationState::Done),
                (2, OperationKind::Timer, OperationState::Cancelled),
                (5, OperationKind::Signal, OperationState::Discarded),
                (6, OperationKind::Step, OperationState::Failed),
                (8, OperationKind::Signal, OperationState::Discarded),
            ]
        );
        let call = &rows[0];
        assert_eq!((call.job_id, call.name.as_str(), call.place.as_str()), (Some(job), "charge", "order.rs:7"));
        assert_eq!(call.duration_ms(Timestamp::from_ms(0)), Some(2_000));
        assert_eq!(call.value.as_ref().map(|value| value.get()), Some("70"));
        assert_eq!(rows[1].fires_at, Some(Timestamp::from_ms(9_000)));
        assert_eq!((rows[2].name.as_str(), rows[2].id.as_str()), ("approve", "m1"));
        assert_eq!(rows[3].error.as_ref().unwrap().message, "no paper");
    }
}
