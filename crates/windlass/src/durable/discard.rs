//! Drops messages that a stuck run cannot read.
//!
//! The run is claimed as an engine claims it, so no engine decides about it meanwhile. One commit takes the message from the inbox,
//! adds a record of it, and lets the run go on. A message that a record of the history has already is not taken out of the history:
//! the new record says that no replay delivers it. If this process ends between the two calls, the run stays stuck, and is tried
//! again when the lease has ended.

use super::client::RunHandle;
use super::message::Message;
use serde_json::value::{RawValue, to_raw_value};
use std::time::Duration;
use windlass_core::id::RunId;
use windlass_core::job::Due;
use windlass_core::name::WorkerId;
use windlass_core::store::{
    InboxItem, RUN_PART_BYTES_MAX, Run, RunClaim, RunCommit, RunItem, RunLease, RunRead, RunState, RunStep, RunsClaimed,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};
use windlass_durable::Unreadable;
use windlass_durable::record::{Body, DiscardedMessage, Entry, Event, Record};

/// The lease of the run while its message is dropped.
const LEASE_MS: u64 = 10_000;
/// How often a run is claimed that an engine holds.
const CLAIMS: u32 = 20;
/// The pause between two claims.
const PAUSE: Duration = Duration::from_millis(50);
/// Pages of an inbox that are looked through. An inbox holds 10,000 messages, and the ends of jobs.
const PAGES_MAX: u32 = 1_000;

/// Which message of a stuck run to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discard {
    /// The one that the reason names.
    Unreadable,
    /// The one with this number in the inbox.
    Item(u64),
    /// The one that this record has, if it is the one that the reason names.
    Record(u64),
    /// The oldest signal of this name in the inbox.
    Signal(String),
}

/// A message of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its number in the inbox, if it stands there.
    pub item: Option<u64>,
    /// The number of its record, if the history has it.
    pub record: Option<u64>,
    /// When it came.
    pub at: Timestamp,
    /// The name of the signal; `None` for other messages and for those that are not understood.
    pub signal: Option<String>,
    /// The id that its sender gave it.
    pub id: Option<String>,
    /// What was sent: the body of a signal or the value of a promise if the history has it, else the whole message.
    pub text: String,
}

impl<W> RunHandle<W> {
    /// Finds a message that [`discard`](Self::discard) would drop.
    pub async fn find_discardable(&self, which: &Discard) -> Result<StoredMessage> {
        let run = self.describe().await?;
        check(&run)?;
        self.find(&run, which).await
    }

    /// Drops a message of a stuck run that the code cannot read, and lets the run go on without it. A record of the history keeps
    /// the message. Returns what was dropped.
    ///
    /// A signal that the history has already is not delivered in any replay from now on. If code of an earlier build has received
    /// it, it cannot be dropped: what followed from it is in the history, too.
    pub async fn discard(&self, which: &Discard) -> Result<StoredMessage> {
        let before = self.describe().await?;
        check(&before)?;
        let found = self.find(&before, which).await?;
        let lease = self.claim_for_discard(&before).await?;
        // What an engine has done meanwhile decides.
        let run = self.describe().await?;
        let again = match check(&run) {
            Ok(()) => self.find(&run, which).await,
            Err(error) => Err(error),
        };
        let (step, taken) = match again {
            Ok(again) if again == found => (discarding(&found, self.client_now().await?), found.item),
            Ok(_) => (left_alone(&run), None),
            Err(error) => {
                self.commit(lease, &run, left_alone(&run), None).await?;
                return Err(error);
            }
        };
        let is_dropped = !step.history.is_empty();
        self.commit(lease, &run, step, taken).await?;
        if !is_dropped {
            return Err(changed(run.id));
        }
        tracing::warn!(run = %run.id, item = found.item, record = found.record, "a message was discarded");
        Ok(found)
    }

    async fn client_now(&self) -> Result<Timestamp> {
        self.client().store().now().await
    }

    async fn claim_for_discard(&self, run: &Run) -> Result<RunLease> {
        let engine = WorkerId::new(format!("discard-{}", self.client().ids().next_run()))?;
        let claim = RunClaim {
            run: Some(run.id),
            even_stuck: true,
            lease_ms: LEASE_MS,
            ..RunClaim::new(engine, vec![run.kind.clone()])
        };
        for _ in 0..CLAIMS {
            let RunsClaimed { mut runs, .. } = self.client().store().claim_runs(claim.clone()).await?;
            if let Some(claimed) = runs.pop() {
                return Ok(claimed.lease);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Error::run_refused(run.id, "is held by an engine; try again"))
    }

    async fn commit(&self, lease: RunLease, run: &Run, step: RunStep, taken: Option<u64>) -> Result<()> {
        let commit =
            RunCommit { inbox_taken: taken.into_iter().collect(), ..RunCommit::new(lease, run.history_len, step) };
        let store = self.client().store();
        let call = |_| store.commit_runs(vec![commit.clone()]);
        let answer = crate::repeat::repeat(Error::is_outcome_unknown, call).await?.pop();
        answer.unwrap_or_else(|| Err(Error::too_few_answers())).map(drop)
    }

    async fn find(&self, run: &Run, which: &Discard) -> Result<StoredMessage> {
        match which {
            Discard::Item(number) => self.find_item(run.id, |item, _| item.number == *number).await,
            Discard::Signal(name) => self.find_item(run.id, |_, found| found.signal.as_ref() == Some(name)).await,
            Discard::Unreadable | Discard::Record(_) => {
                let reason = run.stuck.as_deref().unwrap_or_default();
                let message = Unreadable::of_reason(reason).ok_or_else(|| {
                    Error::run_refused(run.id, format!("is stuck for a reason that names no message: {reason}"))
                })?;
                if matches!(which, Discard::Record(number) if message.record != Some(*number)) {
                    return Err(changed(run.id));
                }
                match (message.record.filter(|record| *record < run.history_len), message.item) {
                    (Some(_), _) if message.was_received => Err(Error::run_refused(run.id, RECEIVED)),
                    (Some(record), _) => self.find_record(run, record).await,
                    (None, Some(number)) => self.find_item(run.id, |item, _| item.number == number).await,
                    (None, None) => Err(changed(run.id)),
                }
            }
        }
    }

    async fn find_item(&self, run: RunId, is_it: impl Fn(&InboxItem, &StoredMessage) -> bool) -> Result<StoredMessage> {
        let mut from = 0;
        for _ in 0..PAGES_MAX {
            let view = self.view(RunRead { inbox_from: Some(from), ..RunRead::brief(run) }).await?;
            let messages = view.inbox.iter().filter_map(|item| Some((item, message_of(item)?)));
            if let Some((_, found)) = messages.into_iter().find(|(item, found)| is_it(item, found)) {
                return Ok(found);
            }
            if view.inbox_to <= from {
                break;
            }
            from = view.inbox_to;
        }
        Err(Error::not_found(format!("such a message in the inbox of the run {run}")))
    }

    async fn find_record(&self, run: &Run, number: u64) -> Result<StoredMessage> {
        let missing = || Error::not_found(format!("a message in record {number} of the run {}", run.id));
        if number < run.segment_from {
            return Err(missing());
        }
        let read = RunRead { history_from: number, history_max: 1, ..RunRead::brief(run.id) };
        let entry = self.view(read).await?.history.pop().ok_or_else(missing)?;
        let record =
            Record::decode(&entry).map_err(|error| Error::corrupt(format!("record {number}: {}", error.reason)))?;
        let Entry::Event { at, event } = record.entry else { return Err(missing()) };
        let (signal, id, body) = match event {
            Event::Signal { name, body, id } => (Some(name.into_owned()), Some(id).filter(|id| !id.is_empty()), body),
            Event::Resolved { body, .. } => (None, None, body),
            _ => return Err(missing()),
        };
        Ok(StoredMessage { item: None, record: Some(number), at, signal, id, text: body.as_json().to_owned() })
    }
}

const RECEIVED: &str = "has a history that goes on from this message: an earlier build has received it; \
                        deploy code that reads both forms of it";

fn changed(run: RunId) -> Error {
    Error::run_refused(run, "has changed meanwhile; look at it, and decide again")
}

fn check(run: &Run) -> Result<()> {
    let refused = |why: String| Err(Error::run_refused(run.id, why));
    match (run.state, &run.stuck) {
        _ if !run.kind.as_str().contains('@') => {
            refused("is no workflow in code: it has no messages to discard".to_owned())
        }
        (RunState::Running, Some(_)) => Ok(()),
        (RunState::Running, None) => refused("is not stuck: its code reads its messages".to_owned()),
        (ended, _) => refused(format!("has ended: {}; there is nothing to discard", ended.name())),
    }
}

/// A message; `None` for the ends of jobs and runs, which only the store sends.
fn message_of(item: &InboxItem) -> Option<StoredMessage> {
    let RunItem::Message { at, id, body } = &item.item else { return None };
    let signal = match Message::parse(body) {
        Ok(Message::Signal { name, .. }) => Some(name),
        _ => None,
    };
    Some(StoredMessage { item: Some(item.number), record: None, at: *at, signal, id: id.clone(), text: body.clone() })
}

/// The step that drops a message.
fn discarding(message: &StoredMessage, now: Timestamp) -> RunStep {
    let StoredMessage { record, signal, id, text, .. } = message;
    let body = if record.is_some() { Body::null() } else { body_of(text) };
    let (name, id) = (signal.clone().unwrap_or_default().into(), id.clone().unwrap_or_default());
    let entry = Entry::Discarded { at: now, message: DiscardedMessage { of: *record, name, id, body } };
    let record = Record { build: None, entry };
    let summary = "goes on without a message that was discarded".to_owned();
    RunStep { history: vec![record.encode().into()], wake: Some(Due::Now), summary, ..RunStep::nothing() }
}

/// The text as JSON: as it is, or as text; `null` if that is too large for a record.
fn body_of(text: &str) -> Body {
    let json = serde_json::from_str::<Box<RawValue>>(text).or_else(|_| to_raw_value(text));
    json.ok()
        .filter(|json| json.get().len() <= RUN_PART_BYTES_MAX)
        .and_then(|json| Body::from_json(json.get().as_bytes()).ok())
        .unwrap_or_else(Body::null)
}

/// The step that leaves a run as it was.
fn left_alone(run: &Run) -> RunStep {
    let (stuck, summary) = (run.stuck.clone(), run.summary.clone());
    let wake = if stuck.is_some() { run.wake_at.map(Due::At) } else { Some(Due::Now) };
    RunStep { stuck, wake, summary, ..RunStep::nothing() }
}
