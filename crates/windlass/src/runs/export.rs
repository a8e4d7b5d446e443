//! A whole run as one JSON document: for people who look into it elsewhere, and for replays without a store.
//!
//! The format only grows: fields are never renamed or reused, and a reader ignores fields that it does not have.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use windlass_core::id::RunId;
use windlass_core::payload::{JSON, Payload};
use windlass_core::store::{InboxItem, Run, RunRead, RunView, Store};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// What the field `format` of an exported run says.
pub const EXPORT_FORMAT: &str = "windlass.run";
/// The version that this crate writes and the newest one it reads.
pub const EXPORT_VERSION: u32 = 1;
/// Entries of a history that are read at once.
const ENTRIES_READ: u32 = 1_000;

/// A run with all that the store has of it, as it was when it was read. Its jobs and children are not part of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunExport {
    /// [`EXPORT_FORMAT`].
    pub format: String,
    /// [`EXPORT_VERSION`].
    pub version: u32,
    /// When it was read.
    pub exported_at: Timestamp,
    /// The run as a listing shows it.
    pub run: Run,
    /// What is run: the graph, or the options of a workflow in code.
    pub definition: Payload,
    /// What the present segment of the run was given.
    pub input: Payload,
    /// The values that the run publishes.
    #[serde(default)]
    pub published: BTreeMap<String, Payload>,
    /// Its result.
    #[serde(default)]
    pub result: Option<Payload>,
    /// All entries of its history, over all segments, in their order.
    #[serde(default)]
    pub history: Vec<StoredEntry>,
    /// The items of its inbox, oldest first, without those that cannot be read.
    #[serde(default)]
    pub inbox: Vec<InboxItem>,
}

/// An entry of a history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredEntry {
    /// Its number, from 0.
    pub number: u64,
    /// The entry as it is stored.
    pub entry: Payload,
}

impl RunExport {
    /// Reads a run with its whole history. `None` if it is not there.
    pub async fn read(store: &dyn Store, run: RunId) -> Result<Option<Self>> {
        let exported_at = store.now().await?;
        let all = RunRead {
            definition: true,
            input: true,
            published: true,
            result: true,
            history_max: ENTRIES_READ,
            inbox_from: Some(0),
            ..RunRead::brief(run)
        };
        let Some(first) = store.read_runs(vec![all]).await?.pop().flatten() else { return Ok(None) };
        let RunView { run: brief, definition, input, mut history, published, result, inbox, inbox_to } = first;
        // The run may go on meanwhile: what comes later is left out.
        let wanted = usize::try_from(brief.history_len).unwrap_or(usize::MAX);
        while history.len() < wanted {
            let read = RunRead { history_from: history.len() as u64, history_max: ENTRIES_READ, ..RunRead::brief(run) };
            let part = store.read_runs(vec![read]).await?.pop().flatten().map(|view| view.history).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            history.extend(part);
        }
        history.truncate(wanted);
        let inbox = rest_of_inbox(store, &brief, inbox, inbox_to).await?;
        let entry = |(number, bytes): (u64, Bytes)| StoredEntry { number, entry: Payload::new(JSON, bytes) };
        Ok(Some(Self {
            format: EXPORT_FORMAT.to_owned(),
            version: EXPORT_VERSION,
            exported_at,
            run: brief,
            definition: Payload::new(JSON, definition.unwrap_or_default()),
            input: Payload::new(JSON, input.unwrap_or_default()),
            published: published.unwrap_or_default(),
            result,
            history: (0..).zip(history).map(entry).collect(),
            inbox,
        }))
    }

    /// Reads an exported run.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            format: String,
            #[serde(default)]
            version: u32,
        }
        let wrong = |error: serde_json::Error| Error::invalid("export", format!("is no exported run: {error}"));
        let Head { format, version } = serde_json::from_slice(text).map_err(wrong)?;
        if format != EXPORT_FORMAT {
            return Err(Error::invalid("export", format!("is no exported run: its format is not `{EXPORT_FORMAT}`")));
        }
        if version > EXPORT_VERSION {
            let what = format!(
                "the exported run has version {version} of its format, and this program reads {EXPORT_VERSION}"
            );
            return Err(Error::Incompatible { what });
        }
        serde_json::from_slice(text).map_err(wrong)
    }

    /// Reads an exported run from a file.
    pub fn of_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read(path);
        Self::from_json(&text.map_err(|error| Error::invalid("file", format!("{}: {error}", path.display())))?)
    }

    /// The run as JSON, each entry of its history on a line of its own.
    pub fn to_json(&self) -> Result<String> {
        let mut text = String::from("{");
        let fields = [
            ("format", json(&self.format)?),
            ("version", json(&self.version)?),
            ("exported_at", json(&self.exported_at)?),
            ("run", json(&self.run)?),
            ("definition", json(&self.definition)?),
            ("input", json(&self.input)?),
            ("published", json(&self.published)?),
            ("result", json(&self.result)?),
            ("history", list(&self.history)?),
            ("inbox", list(&self.inbox)?),
        ];
        for (at, (name, value)) in fields.into_iter().enumerate() {
            // Writing into text cannot fail.
            let _ = write!(text, "{}\"{name}\":{value}", if at == 0 { "" } else { ",\n" });
        }
        text.push_str("}\n");
        Ok(text)
    }
}

async fn rest_of_inbox(
    store: &dyn Store,
    run: &Run,
    mut inbox: Vec<InboxItem>,
    mut from: u64,
) -> Result<Vec<InboxItem>> {
    while (inbox.len() as u64) < run.inbox_len {
        let read = RunRead { inbox_from: Some(from), ..RunRead::brief(run.id) };
        let Some(part) = store.read_runs(vec![read]).await?.pop().flatten() else { break };
        if part.inbox_to <= from {
            break;
        }
        inbox.extend(part.inbox);
        from = part.inbox_to;
    }
    Ok(inbox)
}

fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::corrupt(error.to_string()))
}

fn list<T: Serialize>(values: &[T]) -> Result<String> {
    let lines: Vec<String> = values.iter().map(json).collect::<Result<_>>()?;
    Ok(if lines.is_empty() { "[]".to_owned() } else { format!("[\n {}\n]", lines.join(",\n ")) })
}
