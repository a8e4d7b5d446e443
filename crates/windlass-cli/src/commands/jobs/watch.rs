//! `windlass jobs watch`: follows the feed.

use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use serde_json::json;
use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;
use windlass::core::id::JobId;
use windlass::core::job::State;
use windlass::core::name::QueueName;
use windlass::core::store::{FeedCursor, FeedEntry, FeedEvent, FeedRequest, Store, Transition, WaitFor};
use windlass_operate::job_view::transition_text;
use windlass_operate::names::JobName;
use windlass_operate::text::printable;
use windlass_operate::values::Span;

/// Entries of one page.
const PAGE: u32 = 1_000;
/// How long a wait goes without a look of its own, in case a wake-up gets lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

const AFTER: &str = "\
With an id it ends when the job has ended, with exit code 0 if it succeeded and 1 otherwise. Without one it goes on until \
it is interrupted, or for as long as --for says.

Examples:
  windlass jobs watch --queue mail --state failed
  windlass jobs watch 0-01k9z3v8q2f7t8x6m5n4p3r2s1 && echo done
  windlass jobs watch --for 1m --json";

/// Follow what happens to jobs, as it happens.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Watch {
    /// Only this job, until it has ended: its id, or the one that it was given with --id
    id: Option<JobName>,
    /// Only jobs of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
    /// Only what leads to this state
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// End after so long
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Span>,
}

impl Watch {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let id = match &self.id {
            Some(name) => Some(name.find(store.as_ref()).await?),
            None => None,
        };
        let watcher = Watcher { id, queue: self.queue, state: self.state, last: Cell::new(None) };
        let follow = watcher.follow(app, store.as_ref());
        let code = match self.time {
            None => follow.await?,
            Some(time) => match tokio::time::timeout(time.duration(), follow).await {
                Ok(code) => code?,
                Err(_) => watcher.over(time)?,
            },
        };
        Ok(code)
    }
}

/// What is watched.
struct Watcher {
    id: Option<JobId>,
    queue: Option<QueueName>,
    state: Option<State>,
    /// The last state of the one job that is watched, by the feed.
    last: Cell<Option<State>>,
}

/// What a look at the job has found.
enum Look {
    Open,
    Ended(State),
    Removed(JobId),
}

fn code(state: State) -> ExitCode {
    if state == State::Succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Watcher {
    fn over(&self, time: Span) -> Result<ExitCode, Failure> {
        match self.id {
            None => Ok(ExitCode::SUCCESS),
            Some(id) => Err(Failure::failed(format!("the job {id} has not ended within {time}"))
                .hint(format!("windlass explain {id} says why"))),
        }
    }

    async fn follow(&self, app: &App, store: &dyn Store) -> Result<ExitCode, Failure> {
        let mut cursor = store.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
        if self.id.is_none() {
            app.ui.note("watching from now on; Ctrl-C ends it");
        }
        // Looked at after the feed's end was noted: whatever comes later is in the feed.
        match self.look(app, store, true).await? {
            Look::Open => {}
            Look::Ended(state) => return Ok(code(state)),
            Look::Removed(id) => return Err(Failure::not_found(format!("there is no job {id}"))),
        }
        loop {
            cursor = self.read_on(app, store, cursor).await?;
            let look = self.look(app, store, false).await?;
            if !matches!(look, Look::Open) {
                self.read_on(app, store, cursor).await?;
            }
            match (look, self.last.get()) {
                (Look::Open, _) => {}
                (Look::Ended(state), _) => return Ok(code(state)),
                // It is not kept after its end, which the feed has told.
                (Look::Removed(_), Some(state)) if state.is_terminal() => return Ok(code(state)),
                (Look::Removed(id), _) => return Err(Failure::failed(format!("the job {id} was removed"))),
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, store.wait(WaitFor::Feed(cursor))).await;
        }
    }

    async fn look(&self, app: &App, store: &dyn Store, first: bool) -> Result<Look, Failure> {
        let Some(id) = self.id else { return Ok(Look::Open) };
        match store.get(vec![id]).await?.pop().flatten() {
            None => Ok(Look::Removed(id)),
            Some(job) if !job.state.is_terminal() => Ok(Look::Open),
            Some(job) => {
                if first && app.ui.json {
                    app.ui.json(&json!({ "event": "job", "job": id, "queue": job.spec.queue, "to": job.state }))?;
                } else if first {
                    app.ui.line(format_args!("{id} {}", job.state))?;
                }
                if let Some(failure) = job.failures.last().filter(|_| job.state == State::Failed) {
                    app.ui.note(format_args!("error: {}", printable(&failure.message)));
                }
                Ok(Look::Ended(job.state))
            }
        }
    }

    async fn read_on(&self, app: &App, store: &dyn Store, mut cursor: FeedCursor) -> Result<FeedCursor, Failure> {
        loop {
            let page = store.read_feed(FeedRequest { after: Some(cursor), max: PAGE }).await?;
            if page.gap {
                app.ui.note("note: it went faster than I could read; some changes are not shown");
            }
            for entry in &page.entries {
                self.print(app, entry)?;
            }
            let end = page.entries.is_empty() || page.next == cursor;
            cursor = page.next;
            if end {
                return Ok(cursor);
            }
        }
    }

    fn print(&self, app: &App, entry: &FeedEntry) -> Result<(), Failure> {
        for event in &entry.events {
            let FeedEvent::Job(job) = event else { continue };
            if self.id == Some(job.job) && job.to.is_some() {
                self.last.set(job.to);
            }
            if !self.wants(job) {
                continue;
            }
            if app.ui.json {
                let mut value = json!(event);
                value["at"] = json!(entry.at);
                value["cursor"] = json!(entry.cursor);
                app.ui.json(&value)?;
            } else {
                app.ui.line(format_args!("{} {} {}: {}", entry.at, job.job, job.queue, transition_text(job)))?;
            }
        }
        Ok(())
    }

    fn wants(&self, job: &Transition) -> bool {
        self.id.is_none_or(|id| id == job.job)
            && self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.state.is_none_or(|state| Some(state) == job.to)
    }
}
