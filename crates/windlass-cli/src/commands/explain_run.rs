//! `windlass explain`, of a run: what it waits for.

use super::explain::sentence;
use crate::app::App;
use crate::failure::Failure;
use crate::run_jobs::label;
use crate::run_view::{is_shown, read, reason, way_on};
use crate::ui::STRONG;
use crate::values::clean;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::core::id::RunId;
use windlass::core::store::Store;
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};

/// Jobs of one node that are asked after.
const JOBS_MAX: usize = 5;

pub(super) async fn explain(app: &App, store: &Arc<dyn Store>, run: RunId) -> Result<(), Failure> {
    let status = read(&Runs::new(Arc::clone(store)), run).await?;
    let waits = waits(&status, store.as_ref(), store.now().await?).await?;
    let why = word(&status);
    if app.ui.json {
        let waits: Vec<Value> = waits.iter().map(|(node, reason)| json!({ "node": node, "reason": reason })).collect();
        return app.ui.json(&json!({ "run": run, "state": status.run.state, "text": why, "waits": waits }));
    }
    app.ui.line(format_args!("{STRONG}{}{STRONG:#}: {}", status.run.state.name(), clean(&why)))?;
    for (node, reason) in waits {
        app.ui.line(format_args!("  {STRONG}{}{STRONG:#}: {}", clean(&node), clean(&reason)))?;
    }
    Ok(())
}

/// The run as a whole.
fn word(status: &RunStatus) -> String {
    let run = &status.run;
    let failed = || {
        let failed = (0..status.graph.nodes.len())
            .filter(|&node| status.progress.nodes[node].outcome == Some(windlass::core::graph::Outcome::Failed));
        let names: Vec<&str> = failed.map(|node| status.graph.nodes[node].id.as_str()).collect();
        if names.is_empty() { String::new() } else { format!("; failed: {}", names.join(", ")) }
    };
    if let Some(damage) = &run.damaged {
        return format!("it is damaged: {damage}; windlass runs remove {} removes it", run.id);
    }
    if let Some(stuck) = &run.stuck {
        let way = way_on(run).map(|way| format!("; {way}")).unwrap_or_default();
        return format!("it is stuck: {stuck}{way}");
    }
    match (&status.progress.cancelled, status.progress.timed_out) {
        (Some(reason), _) => format!("it was cancelled: {reason}"),
        (None, true) => format!("it took longer than its timeout{}", failed()),
        (None, false) => format!("{}{}", run.summary, failed()),
    }
}

/// What each node that has not ended waits for.
async fn waits(status: &RunStatus, store: &dyn Store, now: Timestamp) -> Result<Vec<(String, String)>, Failure> {
    let mut waits = Vec::new();
    for (node, progress) in status.progress.nodes.iter().enumerate() {
        if progress.outcome.is_some() || !is_shown(&status.graph, node) {
            continue;
        }
        let open = progress.instances.iter().enumerate().filter(|(_, one)| one.outcome.is_none());
        let jobs: Vec<_> = open.filter_map(|(row, one)| Some((row, one.job?))).take(JOBS_MAX).collect();
        if jobs.is_empty() {
            waits.push((status.graph.nodes[node].id.clone(), reason(status, node).unwrap_or_default()));
            continue;
        }
        for (row, job) in jobs {
            let why = match store.explain(job).await {
                Ok(explanation) => sentence(&explanation, now),
                Err(error) => error.to_string(),
            };
            waits.push((label(status, node, row), format!("job {job}: {why}")));
        }
    }
    Ok(waits)
}
