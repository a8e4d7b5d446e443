//! Checks of runs.

use crate::error::OperateError;
use crate::run_view::{list_runs, listed_note};
use crate::text::{count, printable};
use windlass::core::finding::Finding;
use windlass::core::store::{LIST_MAX, RunList, RunState, Store};

/// Runs that are stuck: nothing of them is lost, and nothing of them goes on.
pub(super) async fn stuck(store: &dyn Store) -> Result<Vec<Finding>, OperateError> {
    let list = RunList { state: Some(RunState::Running), stuck: Some(true), ..RunList::new(LIST_MAX) };
    let page = list_runs(store, list).await?;
    let Some(first) = page.runs.first() else { return Ok(vec![Finding::ok("runs", "none is stuck")]) };
    let more = if page.cursor.is_some() { " and more" } else { "" };
    let name = if first.name.is_empty() { first.id.to_string() } else { first.name.clone() };
    let text = format!("{}{more} stuck, such as {name}: {}", count(page.runs.len() as u64, "run"), listed_note(first));
    let hint = format!("windlass runs show {} says why and what to do; windlass runs list --stuck has all", first.id);
    Ok(vec![Finding::warning("runs", printable(&text)).hint(hint)])
}
