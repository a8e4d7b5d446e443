//! The history of a code run, record by record.

use crate::error::OperateError;
use serde::Serialize;
use serde_json::value::RawValue;
use windlass::core::id::RunId;
use windlass::core::store::{Run, RunRead, RunView, Store};
use windlass::core::time::Timestamp;
use windlass::durable::record::{Body, End, Entry, Event, Record, Request};

/// Records of one call.
const RECORDS_PER_CALL: u32 = 1_000;

/// A record and its number in the history of the run.
#[derive(Clone, Debug)]
pub struct NumberedRecord {
    /// Its number, from 0.
    pub number: u64,
    /// The record.
    pub record: Record,
}

/// A record as `windlass runs history --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryRecord {
    /// The number of the record, from 0.
    pub number: u64,
    /// Its type, as it is stored: `started`, `call`, `done` and so on.
    pub kind: String,
    /// When it happened; only events and ends have a time.
    pub at: Option<Timestamp>,
    /// A description for people.
    pub text: String,
    /// The line of the source that made it, `file:line`.
    pub place: Option<String>,
    /// The build of the code that wrote this record and those after it, where it changes.
    pub build: Option<String>,
    /// A value, a message, an error or a reason.
    pub body: Option<Box<RawValue>>,
    /// The stored form.
    pub stored: Box<RawValue>,
}

/// The records of a page, decoded and as they are shown.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    /// The run, as it was when the records were read.
    pub run: Run,
    /// The records.
    pub records: Vec<HistoryRecord>,
    /// The number of the record that the next page begins with.
    pub next: u64,
}

impl HistoryPage {
    /// True when there are more records.
    pub fn has_more(&self) -> bool {
        self.next < self.run.history_len && !self.records.is_empty()
    }
}

/// Reads at most 1,000 records from this number on.
pub async fn read_history(store: &dyn Store, run: RunId, from: u64) -> Result<HistoryPage, OperateError> {
    let view = read_part(store, run, from).await?;
    super::check_is_code(&view.run)?;
    let records = numbered(&view, from)?;
    let records =
        records.iter().zip(&view.history).map(|(record, stored)| shown(record, stored)).collect::<Result<_, _>>()?;
    Ok(HistoryPage { next: from + view.history.len() as u64, run: view.run, records })
}

pub(super) async fn read_part(store: &dyn Store, run: RunId, from: u64) -> Result<RunView, OperateError> {
    let read = RunRead { history_from: from, history_max: RECORDS_PER_CALL, ..RunRead::brief(run) };
    let view = store.read_runs(vec![read]).await?.pop().flatten();
    view.ok_or_else(|| OperateError::not_found(format!("there is no run {run}")))
}

pub(super) fn numbered(view: &RunView, from: u64) -> Result<Vec<NumberedRecord>, OperateError> {
    let decode = |(number, entry): (u64, &_)| {
        let record = Record::decode(AsRef::<[u8]>::as_ref(entry))
            .map_err(|error| damaged(view.run.id, number, &error.reason))?;
        Ok(NumberedRecord { number, record })
    };
    (from..).zip(&view.history).map(decode).collect()
}

fn damaged(run: RunId, number: u64, reason: &str) -> OperateError {
    OperateError::failed(format!("record {number} of the run {run} cannot be read: {reason}"))
        .hint("update windlass if a newer version wrote it")
}

pub(super) fn shown(numbered: &NumberedRecord, stored: &[u8]) -> Result<HistoryRecord, OperateError> {
    let NumberedRecord { number, record } = numbered;
    let stored: Box<RawValue> =
        serde_json::from_slice(stored).map_err(|error| OperateError::failed(format!("record {number}: {error}")))?;
    let (at, place) = (time(&record.entry), record.place().map(ToString::to_string).filter(|place| !place.is_empty()));
    Ok(HistoryRecord {
        number: *number,
        kind: stored_kind(&stored),
        at,
        text: text(record),
        place,
        build: record.build.as_deref().map(str::to_owned),
        body: body(&stored),
        stored,
    })
}

/// Fields of the stored form that are shown as they are.
#[derive(serde::Deserialize)]
struct Fields<'a> {
    r: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    d: Option<&'a RawValue>,
}

fn fields(stored: &RawValue) -> Option<Fields<'_>> {
    serde_json::from_str(stored.get()).ok()
}

fn stored_kind(stored: &RawValue) -> String {
    fields(stored).map(|fields| fields.r.into_owned()).unwrap_or_default()
}

fn body(stored: &RawValue) -> Option<Box<RawValue>> {
    fields(stored).and_then(|fields| fields.d.map(RawValue::to_owned))
}

fn time(entry: &Entry) -> Option<Timestamp> {
    match entry {
        Entry::Event { at, .. } | Entry::End { at, .. } | Entry::Discarded { at, .. } => Some(*at),
        _ => None,
    }
}

/// The description of a record with the ids and times that it names.
fn text(record: &Record) -> String {
    let detail = match &record.entry {
        Entry::Command(command) => match command.request {
            Request::Call { job, .. } => format!(", job {job}"),
            Request::Sleep { until } => format!(" until {until}"),
            Request::Child { run, .. } => format!(", run {run}"),
            _ => String::new(),
        },
        Entry::Event { event, .. } => event_detail(event),
        Entry::Discarded { message, .. } if !message.body.is_null() => format!(" with {}", short(&message.body)),
        Entry::End { end: End::Continued { kind, .. }, .. } => format!(" as {kind}"),
        Entry::End { end: End::Ok(value), .. } => format!(" with {}", short(value)),
        Entry::End { end: End::Failed(error) | End::Cancelled(error) | End::TimedOut(error), .. } => {
            format!(", {error}")
        }
        Entry::End { end: End::Retried { message, attempt, at }, .. } => {
            format!(", attempt {attempt} at {at}: {message}")
        }
        _ => String::new(),
    };
    record.describe() + &detail
}

fn event_detail(event: &Event) -> String {
    match event {
        Event::Done { outcome: Ok(value), .. } | Event::Stepped { outcome: Ok(value), .. } => {
            format!(" with {}", short(value))
        }
        Event::Done { outcome: Err(error), .. } | Event::Stepped { outcome: Err(error), .. } => {
            format!(" with the error `{}`: {}", error.class, error.message)
        }
        Event::Expired { error, .. } => format!(" with the error {}: {}", error.class, error.message),
        Event::Signal { body, .. } | Event::Resolved { body, .. } => format!(" with {}", short(body)),
        Event::CancelRequested { reason } => format!(": {reason}"),
        _ => String::new(),
    }
}

fn short(body: &Body) -> String {
    super::short_json(body.as_json())
}
