//! Following a code run: its history record by record, and how it ended.

use crate::app::App;
use crate::draw_graph::style;
use crate::failure::Failure;
use crate::follow_run::patiently;
use crate::ui::{DIM, Ui};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass::core::id::RunId;
use windlass::core::store::{FeedRequest, Run, RunRead, RunState, Store, WaitFor};
use windlass_operate::code_run::{HistoryPage, HistoryRecord, read_brief, read_history, short_json};
use windlass_operate::job_view::payload_json;
use windlass_operate::run_view::resume_hint;
use windlass_operate::text::{printable, rough_duration};

/// Poll interval: the longest delay that a lost wake-up can cause.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Follows a code run to its end and prints how it ended. With `quiet` the records of its history are not printed.
pub(crate) async fn follow_code(
    app: &App,
    store: &Arc<dyn Store>,
    run: RunId,
    quiet: bool,
) -> Result<RunState, Failure> {
    let ui = app.ui.undeterred();
    let mut from = read_brief(store.as_ref(), run).await?.segment_from;
    loop {
        let feed = FeedRequest { after: None, max: 1 };
        let seen = patiently(ui, async || store.read_feed(feed).await).await?.next;
        let page = read_patiently(ui, store.as_ref(), run, from).await?;
        if !quiet {
            page.records.iter().try_for_each(|record| print_record(ui, record))?;
        }
        from = page.next;
        if page.has_more() {
            continue;
        }
        if page.run.state.is_terminal() {
            print_end(ui, store.as_ref(), &page.run).await?;
            return Ok(page.run.state);
        }
        if let Some(stuck) = &page.run.stuck {
            let failure = Failure::failed(format!("the run {run} is stuck: {stuck}"));
            return Err(resume_hint(&page.run).into_iter().fold(failure, Failure::hint));
        }
        // Whatever woke it, the next read tells.
        let _ = tokio::time::timeout(LOOK_AGAIN, store.wait(WaitFor::Feed(seen))).await;
    }
}

/// Reads on, and waits for a store that is away.
async fn read_patiently(ui: Ui, store: &dyn Store, run: RunId, from: u64) -> Result<HistoryPage, Failure> {
    loop {
        match read_history(store, run, from).await {
            Err(failure) if failure.cause.as_ref().is_some_and(windlass::Error::is_retryable) => {
                patiently(ui, async || store.now().await).await?;
            }
            read => return read,
        }
    }
}

/// One record of a history: a line for people, an object for programs.
pub(crate) fn print_record(ui: Ui, record: &HistoryRecord) -> Result<(), Failure> {
    if ui.json {
        return ui.json(record);
    }
    let time = record.at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let place = record.place.as_deref().map(|place| format!("  {DIM}{}{DIM:#}", printable(place))).unwrap_or_default();
    let build = record.build.as_deref().map(|build| format!("  {DIM}build {}{DIM:#}", printable(build)));
    let (number, text) = (record.number, printable(&record.text));
    ui.line(format_args!("{number:>6}  {time:24}  {text}{place}{}", build.unwrap_or_default()))
}

async fn print_end(ui: Ui, store: &dyn Store, run: &Run) -> Result<(), Failure> {
    let read = RunRead { result: true, ..RunRead::brief(run.id) };
    let view = patiently(ui, async || store.read_runs(vec![read]).await).await?.pop().flatten();
    let result = view.and_then(|view| view.result).as_ref().and_then(payload_json);
    if ui.json {
        return ui.json(&json!({ "run": run.id, "state": run.state, "result": result, "error": run.error }));
    }
    let took = run.finished_at.map(|at| rough_duration(at.ms_since(run.created_at))).unwrap_or_default();
    let end = match (&run.error, &result) {
        (Some(error), _) => format!(": {}", printable(error)),
        (None, Some(result)) => format!(": {}", short_json(result.get())),
        (None, None) => String::new(),
    };
    let style = style(run.state.into());
    ui.line(format_args!("{style}{}{style:#} in {took}{end}", run.state.name()))
}
