//! `windlass enqueue`: one job, or many.

mod bulk;

use crate::app::App;
use crate::commands::unless_interrupted;
use crate::failure::Failure;
use crate::job_args::JobArgs;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::process::{ExitCode, Termination};
use std::sync::Arc;
use std::time::Duration;
use windlass::core::id::JobId;
use windlass::core::job::{Job, NewJob, State};
use windlass::core::store::{Enqueued, Store, WaitFor};
use windlass::{Client, Error};
use windlass_operate::enqueue::{ids, lost_answer};
use windlass_operate::error::connection_failure;
use windlass_operate::values::Span;

/// How long a wait goes without a look of its own, in case a wake-up gets lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

const AFTER: &str = "\
Prints the job's id. A job that is there already, or that another one stands for, is no failure: the id is that of the \
job that does the work.

A bulk file has one JSON object a line: queue, kind, payload, and the job options above under the same names, with _ \
for - (labels is a list, metadata an object). A file is checked as a whole before anything is enqueued; standard input \
is enqueued as it comes, up to the first bad line. Prints {created, existing, deduplicated, replaced, held, refused}.

Examples:
  windlass enqueue mail welcome '{\"to\":\"ada@example.org\"}'
  windlass enqueue mail digest --delay 2h --attempts 5 --retry exponential:5s..10m
  windlass enqueue billing invoice @invoice.json --group acme --unique invoice-4711
  generate-report | windlass enqueue reports render - --content-type text/csv
  windlass enqueue thumbs resize '{\"id\":7}' --wait=30s
  windlass enqueue --bulk jobs.ndjson
  echo '{\"queue\":\"mail\",\"kind\":\"digest\",\"delay\":\"5m\"}' | windlass enqueue --bulk -";

/// Enqueue a job, or many from a file.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Enqueue {
    #[command(flatten)]
    job: JobArgs,
    /// Wait until the job has ended, print its result, and fail if it failed; for ever, or for so long: --wait=30s
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, conflicts_with = "bulk")]
    wait: Option<Option<Span>>,
    /// Enqueue the jobs of this file, one JSON object a line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["job", "payload"])]
    bulk: Option<PathBuf>,
}

impl Enqueue {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        match &self.bulk {
            Some(file) => bulk::run(app, file).await,
            None => unless_interrupted(app, self.one(app)).await.map(Termination::report),
        }
    }

    async fn one(self, app: &App) -> Result<(), Failure> {
        if self.wait == Some(None)
            && let Some(time) = self.job.payload_as::<Span>()
        {
            // What everybody types, and what no payload is.
            let words = format!("`{time}` would be the payload");
            return Err(Failure::invalid(words).hint(format!("say --wait={time}, with an equals sign")));
        }
        let (spec, due) = self.job.read()?.into_spec()?;
        let store = app.store()?;
        let job = NewJob::new(ids().next(), spec).due(due);
        let answer = Client::new(Arc::clone(&store)).enqueue_new(vec![job.clone()]).await;
        let answer = answer.and_then(|mut answers| answers.pop().unwrap_or_else(|| Err(Error::too_few_answers())));
        let enqueued = answer.map_err(|error| failed(&job, error))?;
        say(app, &enqueued, self.wait.is_some())?;
        match self.wait {
            None => Ok(()),
            Some(time) => show_result(app, enqueued.id(), wait(store.as_ref(), enqueued.id(), time).await?),
        }
    }
}

/// Why an enqueue failed. One whose answer was lost names the job, so that it can be looked for.
fn failed(job: &NewJob, error: Error) -> Failure {
    let (id, custom) = (job.effective_id(), job.spec.custom_id.is_some());
    let Some(reason) = lost_answer(&error) else { return error.into() };
    let hint = match custom {
        true => "repeat the command: a job with the same --id is enqueued once".to_owned(),
        false => format!(
            "windlass jobs show {id} finds it if it is; enqueue it again only if not. A command with --id NAME can be \
             repeated at any time"
        ),
    };
    let words = format!("whether the job {id} is enqueued is not known: {reason}");
    Failure::from(error).with_message(words).hint(hint)
}

fn say(app: &App, enqueued: &Enqueued, waits: bool) -> Result<(), Failure> {
    let id = enqueued.id();
    if app.ui.json {
        let mut value = json!(enqueued);
        value["id"] = json!(id);
        return app.ui.json(&value);
    }
    match enqueued {
        Enqueued::Created { .. } => {}
        Enqueued::Existing { .. } => app.ui.note("note: this very job was there already"),
        Enqueued::Deduplicated { .. } => {
            app.ui.note("note: another job with its dedup key stands for it; this is its id");
        }
        Enqueued::Replaced { old, .. } => app.ui.note(format_args!("note: it took the place of {old}")),
        Enqueued::Held { behind, .. } => app.ui.note(format_args!("note: it waits until {behind} has ended")),
    }
    if waits {
        app.ui.note(format_args!("waiting for {id}"));
        return Ok(());
    }
    app.ui.line(id)
}

/// The ended job; `None` when it is gone.
async fn wait(store: &dyn Store, id: JobId, time: Option<Span>) -> Result<Option<Job>, Failure> {
    let ended = async {
        loop {
            match store.get(vec![id]).await.map_err(|error| cannot_wait(id, error))?.pop().flatten() {
                Some(job) if !job.state.is_terminal() => {}
                done => return Ok(done),
            }
            // Whatever comes of the wait, the next look tells.
            let _ = tokio::time::timeout(LOOK_AGAIN, store.wait(WaitFor::Job(id))).await;
        }
    };
    let Some(time) = time else { return ended.await };
    tokio::time::timeout(time.duration(), ended).await.unwrap_or_else(|_| {
        Err(Failure::failed(format!("the job {id} has not ended within {time}"))
            .hint(format!("windlass explain {id} says why; windlass jobs watch {id} waits on")))
    })
}

/// The enqueue is done, whatever the store says about a look at the job.
fn cannot_wait(id: JobId, error: Error) -> Failure {
    let why = connection_failure(&error);
    Failure::from(error)
        .with_message(format!("the job {id} is enqueued, but waiting for it failed: {why}"))
        .hint(format!("do not enqueue it again; once the store answers, windlass jobs watch {id} waits on"))
}

fn show_result(app: &App, id: JobId, job: Option<Job>) -> Result<(), Failure> {
    let Some(job) = job else {
        return Err(Failure::failed(format!("the job {id} ended and is gone, so its result is lost"))
            .hint("keep it for a while with --keep-succeeded 5m"));
    };
    if app.ui.json {
        let result = job.result.as_ref().map(windlass_operate::job_view::payload_json);
        app.ui.json(&json!({ "id": id, "state": job.state, "result": result, "failure": job.failures.last() }))?;
    }
    match job.state {
        State::Succeeded => {
            if let Some(result) = job.result.filter(|_| !app.ui.json) {
                app.ui.bytes(&result.bytes)?;
            }
            Ok(())
        }
        state => {
            let why =
                job.failures.last().map(|failure| format!(": {}", windlass_operate::text::printable(&failure.message)));
            Err(Failure::failed(format!("the job {id} is {state}{}", why.unwrap_or_default()))
                .hint(format!("windlass jobs show {id}")))
        }
    }
}
