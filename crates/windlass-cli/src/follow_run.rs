//! Printing a run while it is followed: its nodes, what its jobs log, and what it waits for.

use crate::app::App;
use crate::draw_graph::{Canvas, sign, style};
use crate::failure::Failure;
use crate::ui::{DIM, STRONG, Ui};
use serde_json::json;
use windlass::core::id::{JobId, RunId};
use windlass::core::store::{LogLine, LogStream, RunState};
use windlass::runs::{RunStatus, Runs};
use windlass_operate::follow::{FollowOutput, Follower, NodeLine, RunUpdate};
use windlass_operate::run_view::{NodeState, read_run};
use windlass_operate::store_url::hide_passwords;
use windlass_operate::store_wait::{StoreNotice, wait_for_store};
use windlass_operate::text::{printable, printable_with_colours};

/// Where a followed run is printed.
pub(crate) struct Printer<'a> {
    app: &'a App,
    ui: Ui,
    ascii: bool,
    /// Only what failed is printed.
    quiet: bool,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(app: &'a App, ascii: bool, quiet: bool) -> Self {
        Self { app, ui: app.ui.undeterred(), ascii, quiet }
    }

    /// Follows a run to its end, and returns it with its last state.
    pub(crate) async fn follow(&self, runs: &Runs, status: RunStatus) -> Result<(RunStatus, RunState), Failure> {
        let run = status.run.id;
        let mut follower = Follower::new(self, runs.store().as_ref(), status);
        follower.events_only = self.quiet;
        let done = follower.follow().await.map_err(|failure| match self.app.url() {
            // A store in memory goes with this process.
            None => Failure { hint: None, ..failure },
            Some(_) if failure.cause.as_ref().is_some_and(windlass::Error::is_retryable) => {
                failure.hint(format!("the run may go on: windlass runs follow {run}"))
            }
            Some(_) => failure,
        });
        Ok((follower.status, done?))
    }

    fn line(&self, line: &NodeLine) -> Result<(), Failure> {
        if self.ui.json || (self.quiet && line.state != NodeState::Failed) {
            return Ok(());
        }
        let (style, sign) = (style(line.state), sign(line.state, self.ascii));
        let note = line.note.lines().map(printable).collect::<Vec<_>>().join("\n    ");
        self.ui.line(format_args!("{style}{sign}{style:#} {STRONG}{}{STRONG:#} {DIM}{note}{DIM:#}", line.label))
    }

    fn log(&self, label: &str, job: JobId, (number, attempt): (u64, u32), line: &LogLine) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(&line.text);
        if self.ui.json {
            let (at, stream) = (line.at, line.stream);
            return self.ui.json(&json!({
                "log": { "node": label, "job": job, "number": number, "attempt": attempt, "at": at, "stream": stream, "text": text }
            }));
        }
        let bar = if self.ascii { '|' } else { '│' };
        let text = printable_with_colours(&text);
        match line.stream {
            LogStream::Log => self.ui.line(format_args!("{DIM}{label} {bar} {text}{DIM:#}")),
            LogStream::Stdout | LogStream::Stderr => {
                self.ui.line(format_args!("{DIM}{label} {bar}{DIM:#} {text}\x1b[0m"))
            }
        }
    }
}

impl FollowOutput for Printer<'_> {
    fn update(&self, update: RunUpdate<'_>) -> Result<(), Failure> {
        match update {
            RunUpdate::Event { at, event, .. } if self.ui.json && !self.quiet => {
                self.ui.json(&json!({ "at": at, "event": event }))
            }
            RunUpdate::Event { line, .. } => line.map_or(Ok(()), |line| self.line(&line)),
            RunUpdate::Log { label, job, number, attempt, line } => self.log(label, job, (number, attempt), line),
            RunUpdate::LogGap { label, from, to } => {
                self.ui.note(format_args!("note: {label}: lines {from} to {to} are gone"));
                Ok(())
            }
            RunUpdate::Retry { label, job, failure, due_at, text } if self.ui.json => self.ui.json(&json!({
                "retry": { "node": label, "job": job, "failure": failure, "due_at": due_at, "text": text }
            })),
            RunUpdate::Retry { label, text, .. } => {
                self.line(&NodeLine { state: NodeState::Running, label: label.to_owned(), note: text })
            }
            RunUpdate::Waits { text } => {
                self.ui.note(format_args!("note: {text}"));
                Ok(())
            }
        }
    }

    fn store_notice(&self, notice: StoreNotice) {
        print_notice(self.ui, notice);
    }
}

fn print_notice(ui: Ui, notice: StoreNotice) {
    match notice {
        StoreNotice::Away { reason } => {
            ui.note(hide_passwords(&format!("note: the store is away ({reason}); waiting for it")));
        }
        StoreNotice::Back => ui.note("note: the store is back"),
    }
}

/// Calls the store, and waits for it while it is away.
pub(crate) async fn patiently<T>(ui: Ui, call: impl AsyncFnMut() -> windlass::Result<T>) -> Result<T, Failure> {
    wait_for_store(|notice| print_notice(ui, notice), call).await
}

/// Follows a run from its beginning to its end, whatever of it is over.
pub(crate) async fn follow(app: &App, runs: &Runs, run: RunId) -> Result<RunState, Failure> {
    let status = read_run(runs, run).await?.rewound();
    go_on(app, runs, status).await
}

/// Follows a run to its end, from where it stood.
pub(crate) async fn go_on(app: &App, runs: &Runs, status: RunStatus) -> Result<RunState, Failure> {
    let printer = Printer::new(app, Canvas::of_terminal(false).ascii, false);
    Ok(printer.follow(runs, status).await?.1)
}
