//! Records: the entries of a run's history.
//!
//! A record is an event, a command, a set of cancelled commands, a patch marker, or the end. Events come from outside or from
//! a local step and carry their time; commands come from the code. The number of a record is its index in the whole history of
//! the run, over all segments, and is not stored. [`Record::encode`] defines the stored form.

mod body;
mod codec;
mod hash;
mod source_line;

pub use body::Body;
pub use codec::{DecodeError, decode_history};
pub(crate) use hash::{fnv, input_hash, mix};
pub use source_line::SourceLine;

use crate::error::CallError;
use std::borrow::Cow;
use std::fmt;
use windlass_core::id::{JobId, RunId};
use windlass_core::time::Timestamp;

/// A name that is static in compiled code and owned when it was decoded.
pub type Name = Cow<'static, str>;

/// What a command, a local step or a scope is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OpKind {
    /// A job.
    Call,
    /// A timer.
    Sleep,
    /// A local step.
    Run,
    /// A receiver of signals; it has no record.
    Recv,
    /// A child workflow.
    Child,
    /// A promise; it has no record.
    Promise,
    /// A patch marker.
    Patch,
    /// A random number; it has no record.
    Random,
    /// The scope of `join!` and `join_all`.
    Join,
    /// The scope of `select!`.
    Select,
    /// The scope of a `JoinSet`.
    Set,
}

impl OpKind {
    /// The name of the `Wf` method that makes it, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Sleep => "sleep",
            Self::Run => "run",
            Self::Recv => "recv",
            Self::Child => "child",
            Self::Promise => "promise",
            Self::Patch => "patched",
            Self::Random => "random",
            Self::Join => "join",
            Self::Select => "select",
            Self::Set => "set",
        }
    }
}

/// The identity of an operation within its run, independent of the order in which the code makes operations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The path of combinators around the operation; empty outside of them.
    pub scope: Name,
    /// The kind of operation.
    pub kind: OpKind,
    /// The kind of the job, the name of the workflow, step or marker; empty for timers.
    pub name: Name,
    /// The key that the code gave by `.key(...)`; empty when it gave none.
    pub user: Name,
    /// Counts operations that are equal in all other fields, from 0.
    pub nth: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if !self.name.is_empty() {
            write!(f, " `{}`", self.name)?;
        }
        if !self.user.is_empty() {
            write!(f, " key `{}`", self.user)?;
        }
        if self.nth > 0 || self.user.is_empty() {
            write!(f, " #{}", self.nth)?;
        }
        if !self.scope.is_empty() {
            write!(f, " in {}", self.scope)?;
        }
        Ok(())
    }
}

/// The result of a call, a child or a local step.
pub type Outcome = Result<Body, CallError>;

/// Something that happened to the run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The code of this segment started. The input is not part of the history.
    Started {
        /// The source of all random numbers of the segment.
        seed: u64,
    },
    /// A call or a child ended.
    Done {
        /// The number of its command.
        of: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// A timer fired.
    Fired {
        /// The number of its command.
        of: u64,
    },
    /// The `schedule_to_start` of a call passed. The job is cancelled unless a worker has claimed it; then the call goes on.
    StartExpired {
        /// The number of its command.
        of: u64,
    },
    /// The `schedule_to_close` of a call passed. The call has ended, and its job is cancelled.
    Expired {
        /// The number of its command.
        of: u64,
        /// The error of the call.
        error: CallError,
    },
    /// A local step ended. Steps have no command: this is their only record.
    Stepped {
        /// The step.
        key: Key,
        /// How it ended.
        outcome: Outcome,
        /// Where the code made the step.
        place: SourceLine,
    },
    /// A message arrived.
    Signal {
        /// The name of the signal.
        name: Name,
        /// The message.
        body: Body,
        /// The id that its sender gave it; empty for none.
        id: String,
    },
    /// A promise was resolved.
    Resolved {
        /// The token of the promise.
        token: u64,
        /// The value.
        body: Body,
    },
    /// The cancellation of the run was requested.
    CancelRequested {
        /// The reason that was given.
        reason: String,
    },
    /// The deadline of the run passed.
    TimedOut,
    /// The cap on the length of this segment was raised.
    CapRaised {
        /// The most records of the segment.
        cap: u64,
    },
}

impl Event {
    /// The number of the command that the event ends, if it ends one.
    pub const fn ends(&self) -> Option<u64> {
        match self {
            Self::Done { of, .. } | Self::Fired { of } | Self::Expired { of, .. } => Some(*of),
            _ => None,
        }
    }
}

/// A request that the code made.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The identity of the operation. Its kind is the kind of `request`.
    pub key: Key,
    /// A hash of the input; 0 when there is none.
    pub hash: u32,
    /// Where the code made the operation.
    pub place: SourceLine,
    /// What was requested.
    pub request: Request,
}

/// What a command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// A job.
    Call {
        /// The id of the job.
        job: JobId,
        /// Until when it has to start and to end.
        deadlines: Deadlines,
    },
    /// A timer.
    Sleep {
        /// When it fires.
        until: Timestamp,
    },
    /// A child workflow.
    Child {
        /// The id of the child's run.
        run: RunId,
        /// What becomes of the child when the parent does not wait for it any more.
        policy: ParentClosePolicy,
    },
}

/// Points in time that limit a call. `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// A job that no worker has claimed by then is cancelled.
    pub start_by: Option<Timestamp>,
    /// A call that has not ended by then ends, and its job is cancelled.
    pub close_by: Option<Timestamp>,
}

/// What becomes of a child run when the future of the child is dropped, or when its parent ends.
///
/// The cancellation of a scope around the child counts as a drop. A request to cancel the parent's run also cancels the
/// children that the parent waits for under [`Wait`](Self::Wait).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParentClosePolicy {
    /// The child is cancelled.
    #[default]
    Cancel,
    /// The child goes on, and the parent does not end before the child has ended.
    Wait,
    /// The child goes on by itself.
    Abandon,
}

/// How a run, or a segment of it, ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum End {
    /// The workflow returned a value.
    Ok(Body),
    /// The workflow returned an error.
    Failed(String),
    /// The workflow returned `Cancelled` after a request to cancel the run.
    Cancelled(String),
    /// The workflow returned `Cancelled` after the deadline of the run had passed.
    TimedOut(String),
    /// The workflow returned an error, and its code is started again as a new segment with the same input.
    Retried {
        /// The error.
        message: String,
        /// The number of the next attempt; the first one is 1.
        attempt: u32,
        /// When it starts.
        at: Timestamp,
    },
    /// The workflow continued as a new segment. The input of that segment is not part of the history.
    Continued {
        /// The kind of the next segment, `name@version`.
        kind: Name,
        /// A hash of its input.
        hash: u32,
    },
}

impl End {
    /// The name of the end, as it stands in records.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ok(_) => "ok",
            Self::Failed(_) => "failed",
            Self::Cancelled(_) => "cancelled",
            Self::TimedOut(_) => "timed_out",
            Self::Retried { .. } => "retried",
            Self::Continued { .. } => "continued",
        }
    }
}

/// A message that an operator dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscardedMessage {
    /// The number of its record, if the history had it. Otherwise it stood in the inbox, and `body` has it.
    pub of: Option<u64>,
    /// The name of the signal; empty if it is none.
    pub name: Name,
    /// The id that its sender gave it; empty for none.
    pub id: String,
    /// The message as it was sent; `null` if the history has it, and if it is too large for a record.
    pub body: Body,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Entry {
    /// An event and its time. Times never decrease within a segment.
    Event {
        /// When it happened.
        at: Timestamp,
        /// What happened.
        event: Event,
    },
    /// A request of the code.
    Command(Command),
    /// The numbers of commands that are cancelled, in ascending order.
    Cancel(Vec<u64>),
    /// The code took the new branch of `patched`.
    Patch(Key),
    /// An operator dropped a message that the code cannot read. The code never gets it, in no replay.
    Discarded {
        /// When it was dropped.
        at: Timestamp,
        /// The message.
        message: DiscardedMessage,
    },
    /// The end of the run or of the segment. After [`End::Continued`] and [`End::Retried`] the next segment follows in the same history.
    End {
        /// When it was decided.
        at: Timestamp,
        /// How it ended.
        end: End,
    },
}

/// One entry of the history of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The build of the code that wrote this record and those after it. `None`: the same as the record before.
    pub build: Option<Box<str>>,
    /// The content.
    pub entry: Entry,
}

impl Record {
    pub(crate) fn new(entry: Entry) -> Self {
        Self { build: None, entry }
    }

    /// Records that say that these commands are cancelled. The numbers rise.
    pub fn cancels(numbers: &[u64]) -> impl Iterator<Item = Self> {
        numbers.chunks(crate::CANCELS_PER_RECORD_MAX).map(|numbers| Self::new(Entry::Cancel(numbers.to_vec())))
    }

    /// True for an event.
    pub fn is_event(&self) -> bool {
        matches!(self.entry, Entry::Event { .. })
    }

    /// The place in the source that made the record, where the record has one.
    pub fn place(&self) -> Option<&SourceLine> {
        match &self.entry {
            Entry::Command(command) => Some(&command.place),
            Entry::Event { event: Event::Stepped { place, .. }, .. } => Some(place),
            _ => None,
        }
    }

    /// A description for messages.
    pub fn describe(&self) -> String {
        match &self.entry {
            Entry::Event { event, .. } => describe_event(event),
            Entry::Command(command) => command.key.to_string(),
            Entry::Cancel(of) => match &of[..] {
                [one] => format!("the cancellation of command {one}"),
                many => format!("the cancellation of {} commands", many.len()),
            },
            Entry::Patch(key) => key.to_string(),
            Entry::Discarded { message, .. } => describe_discarded(message),
            Entry::End { end, .. } => format!("the end: {}", end.name()),
        }
    }
}

fn describe_discarded(message: &DiscardedMessage) -> String {
    let name = if message.name.is_empty() { "a message".to_owned() } else { format!("the signal `{}`", message.name) };
    match message.of {
        Some(number) => format!("the discard of {name}, record {number}"),
        None => format!("the discard of {name}"),
    }
}

fn describe_event(event: &Event) -> String {
    match event {
        Event::Started { .. } => "the start".into(),
        Event::Done { of, .. } => format!("the end of command {of}"),
        Event::Fired { of } => format!("the firing of timer {of}"),
        Event::StartExpired { of } => format!("the schedule_to_start of command {of}"),
        Event::Expired { of, .. } => format!("the schedule_to_close of command {of}"),
        Event::Stepped { key, .. } => format!("the end of {key}"),
        Event::Signal { name, .. } => format!("the signal `{name}`"),
        Event::Resolved { token, .. } => format!("the resolution of promise {token:016x}"),
        Event::CancelRequested { .. } => "the request to cancel".into(),
        Event::TimedOut => "the deadline".into(),
        Event::CapRaised { cap } => format!("the cap of the history, {cap} records"),
    }
}
