//! The history of a graph run, entry by entry.

use crate::code_run::{HistoryPage, HistoryRecord};
use crate::error::OperateError;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;
use windlass::core::id::RunId;
use windlass::core::store::{RunRead, Store};
use windlass::core::time::Timestamp;
use windlass::runs::Runs;

/// Entries of one call.
const ENTRIES_PER_CALL: u32 = 1_000;

/// The names of the nodes of a graph run, as its history numbers them.
pub async fn read_node_names(store: &Arc<dyn Store>, run: RunId) -> Result<Vec<String>, OperateError> {
    let status = Runs::new(Arc::clone(store)).status(run).await?;
    let status = status.ok_or_else(|| OperateError::not_found(format!("there is no run {run}")))?;
    Ok(status.graph.nodes.iter().map(|node| node.id.clone()).collect())
}

/// Reads at most 1,000 entries from this number on.
pub async fn read_graph_history(
    store: &dyn Store,
    run: RunId,
    nodes: &[String],
    from: u64,
) -> Result<HistoryPage, OperateError> {
    let read = RunRead { history_from: from, history_max: ENTRIES_PER_CALL, ..RunRead::brief(run) };
    let view = store.read_runs(vec![read]).await?.pop().flatten();
    let view = view.ok_or_else(|| OperateError::not_found(format!("there is no run {run}")))?;
    let records = (from..).zip(&view.history).map(|(number, stored)| shown(number, stored, nodes));
    let records = records.collect::<Result<_, _>>()?;
    Ok(HistoryPage { next: from + view.history.len() as u64, run: view.run, records })
}

fn shown(number: u64, stored: &[u8], nodes: &[String]) -> Result<HistoryRecord, OperateError> {
    let damaged = |error: serde_json::Error| OperateError::failed(format!("entry {number} cannot be read: {error}"));
    let text: Box<RawValue> = serde_json::from_slice(stored).map_err(damaged)?;
    let (ms, mut event): (i64, Map<String, Value>) = serde_json::from_slice(stored).map_err(damaged)?;
    let kind = event.remove("event").as_ref().and_then(Value::as_str).unwrap_or("?").to_owned();
    Ok(HistoryRecord {
        number,
        at: Some(Timestamp::from_ms(ms)),
        text: words(&kind, &event, nodes),
        kind,
        place: None,
        build: None,
        body: None,
        stored: text,
    })
}

/// An entry in words: `started test, job 0-…`.
fn words(kind: &str, event: &Map<String, Value>, nodes: &[String]) -> String {
    let name = |node: &Value| {
        let index = node.as_u64().and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| nodes.get(index)).cloned().unwrap_or_else(|| node.to_string())
    };
    let nodes = event.get("node").into_iter().chain(event.get("nodes").and_then(Value::as_array).into_iter().flatten());
    let nodes: Vec<String> = nodes.map(name).collect();
    let mut words = format!("{} {}", kind.replace('_', " "), nodes.join(", ")).trim_end().to_owned();
    for (field, value) in event {
        match (field.as_str(), value) {
            ("node" | "nodes", _) => {}
            ("instance", Value::Number(number)) if number.as_u64() == Some(0) => {}
            (field, Value::String(text)) => words = format!("{words}, {field} {text}"),
            (field, value) => words = format!("{words}, {field} {value}"),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_shown_with_the_names_of_their_nodes() {
        let nodes = ["build".to_owned(), "test".to_owned()];
        for (stored, kind, text) in [
            (r#"[1000,{"event":"begun"}]"#, "begun", "begun"),
            (r#"[1000,{"event":"started","node":1,"instance":0,"job":"0-1"}]"#, "started", "started test, job 0-1"),
            (
                r#"[1000,{"event":"started","node":0,"instance":2,"job":"0-1"}]"#,
                "started",
                "started build, instance 2, job 0-1",
            ),
            (r#"[1000,{"event":"rerun","nodes":[0,1]}]"#, "rerun", "rerun build, test"),
            (r#"[1000,{"event":"timed_out","node":7}]"#, "timed_out", "timed out 7"),
        ] {
            let record = shown(3, stored.as_bytes(), &nodes).unwrap();
            assert_eq!((record.kind.as_str(), record.text.as_str(), record.number), (kind, text, 3));
            assert_eq!((record.at, record.stored.get()), (Some(Timestamp::from_ms(1_000)), stored));
        }
        shown(0, b"{}", &nodes).unwrap_err();
    }
}
