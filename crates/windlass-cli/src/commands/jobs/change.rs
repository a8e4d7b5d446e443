//! `windlass jobs retry`, `cancel` and `remove`: by id, or all that match.

use super::Which;
use crate::app::App;
use crate::failure::{self, Failure};
use crate::many::{self, Many};
use clap::Args;
use serde_json::json;
use std::io::Read;
use std::process::{ExitCode, Termination};
use windlass::core::id::JobId;
use windlass::core::job::{Due, State};
use windlass::core::store::{BATCH_MAX, Change, ChangeManyOp, ChangeOp, Changed, Filter};
use windlass_operate::change::expected;
use windlass_operate::names::find_queue;
use windlass_operate::text::count;

const RETRY_AFTER: &str = "\
The job gets all its attempts again; its failures and logs are kept. With --json each id is a line, {id, state} or \
{id, error}; a filter prints {changed}.

Examples:
  windlass jobs retry 0-01k9z3v8q2f7t8x6m5n4p3r2s1
  windlass jobs retry --queue mail --state failed --yes
  windlass jobs list --text timeout --state failed --all --json | windlass jobs retry -";

const CANCEL_AFTER: &str = "\
A job that waits ends at once. An active one is told: its handler stops, and it ends as cancelled. \
With --json each id is a line, {id, state} or {id, error}; a filter prints {changed}.

Examples:
  windlass jobs cancel 0-01k9z3v8q2f7t8x6m5n4p3r2s1
  windlass jobs cancel --queue mail --kind newsletter --yes";

const REMOVE_AFTER: &str = "\
A removed job is gone, its payload, result and logs with it. An active job cannot be removed; cancel it first. \
With --json each id is a line, {id, state} or {id, error}; a filter prints {changed}.

Examples:
  windlass jobs remove 0-01k9z3v8q2f7t8x6m5n4p3r2s1 --yes
  windlass jobs remove --queue mail --state failed --yes";

/// Which jobs to change.
#[derive(Debug, Args)]
struct Target {
    /// The jobs' ids; `-` reads them from standard input, one a line or as listed with --json
    #[arg(value_name = "ID", required_unless_present = "filter", conflicts_with = "filter")]
    ids: Vec<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    which: Which,
    /// On every queue
    #[arg(long, conflicts_with_all = ["queue", "ids"])]
    all_queues: bool,
}

/// Give ended jobs a new life.
#[derive(Debug, Args)]
#[command(after_help = RETRY_AFTER)]
pub(crate) struct Retry {
    #[command(flatten)]
    target: Target,
}

/// Cancel jobs.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_AFTER)]
pub(crate) struct Cancel {
    #[command(flatten)]
    target: Target,
}

/// Remove jobs.
#[derive(Debug, Args)]
#[command(after_help = REMOVE_AFTER)]
pub(crate) struct Remove {
    #[command(flatten)]
    target: Target,
}

impl Retry {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let words = Words { verb: "retry", done: "retried", asks: false };
        if !self.target.ids.is_empty() {
            return self.target.by_id(app, words, ChangeOp::Retry(Due::Now)).await;
        }
        match self.target.which.state {
            None | Some(State::Failed) => self.target.by_filter(app, words, ChangeManyOp::RetryFailed).await,
            Some(state) => Err(Failure::invalid(format!("jobs that are {state} are not retried all at once"))
                .hint("all that failed are: --state failed; others are retried by id")),
        }
    }
}

impl Cancel {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let words = Words { verb: "cancel", done: "cancelled", asks: false };
        if !self.target.ids.is_empty() {
            return self.target.by_id(app, words, ChangeOp::Cancel).await;
        }
        match self.target.which.state {
            Some(state) if state.is_terminal() => {
                Err(Failure::invalid(format!("jobs that are {state} have ended already")))
            }
            _ => self.target.by_filter(app, words, ChangeManyOp::CancelAll).await,
        }
    }
}

impl Remove {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let words = Words { verb: "remove", done: "removed", asks: true };
        if !self.target.ids.is_empty() {
            return self.target.by_id(app, words, ChangeOp::Remove).await;
        }
        let op = match self.target.which.state {
            Some(State::Ready) => ChangeManyOp::Drain { scheduled: false },
            Some(State::Scheduled) => ChangeManyOp::Drain { scheduled: true },
            Some(State::Succeeded | State::Failed | State::Cancelled) => ChangeManyOp::Clean { older_than_ms: 0 },
            Some(State::Active) => {
                return Err(
                    Failure::invalid("active jobs cannot be removed").hint("cancel them first: windlass jobs cancel")
                );
            }
            None => return Err(Failure::invalid("--state is missing").hint("say which ones: --state failed")),
        };
        self.target.by_filter(app, words, op).await
    }
}

/// How it is called.
#[derive(Clone, Copy, Debug)]
struct Words {
    verb: &'static str,
    done: &'static str,
    /// Also a few by id are not done without asking.
    asks: bool,
}

impl Target {
    async fn by_id(self, app: &App, words: Words, op: ChangeOp) -> Result<ExitCode, Failure> {
        let ids = read_ids(&self.ids)?;
        let store = app.existing()?;
        if words.asks {
            app.ui.confirm(format_args!("{} {}", words.verb, count(ids.len() as u64, "job")), self.yes)?;
        }
        let bar = app.ui.bar(ids.len() as u64, words.verb);
        let mut answers = Vec::with_capacity(ids.len());
        for batch in ids.chunks(BATCH_MAX.min(1_000)) {
            let changes = batch.iter().map(|id| Change { id: *id, op: op.clone() }).collect();
            answers.extend(batch.iter().zip(store.change(changes).await?));
            bar.inc(batch.len() as u64);
        }
        bar.finish_and_clear();
        let mut code = ExitCode::SUCCESS;
        for (id, answer) in answers {
            match answer {
                Ok(changed) if app.ui.json => app.ui.json(&json!({ "id": id, "state": changed.state }))?,
                Ok(Changed { state: Some(State::Active) }) => {
                    app.ui.line(format_args!("{id} is asked to stop; still active"))?;
                }
                Ok(changed) => {
                    let state = changed.state.filter(|state| state.as_str() != words.done);
                    let now = state.map_or(String::new(), |state| format!(", now {state}"));
                    app.ui.line(format_args!("{id} {}{now}", words.done))?;
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    code = ExitCode::from(failure::code(&failure));
                    if app.ui.json {
                        app.ui.json(&json!({ "id": id, "error": failure::to_json(&failure) }))?;
                    } else {
                        app.ui.note(format_args!("{id} not {}: {failure}", words.done));
                    }
                }
            }
        }
        Ok(code)
    }

    async fn by_filter(self, app: &App, words: Words, op: ChangeManyOp) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let queues = match &self.which.queue {
            Some(queue) => vec![find_queue(store.as_ref(), queue).await?],
            None if self.all_queues => store.queues().await?,
            None => {
                return Err(Failure::invalid("--queue is missing").hint("name it with --queue, or say --all-queues"));
            }
        };
        app.ui.confirm(format_args!("{} {}", words.verb, self.which.words()), self.yes)?;
        let mut changed = 0;
        for queue in queues {
            let filter = Filter { queue: Some(queue.name.clone()), ..self.which.clone().filter() };
            let total = expected(op, &filter, &queue);
            changed += Many { app, store: store.as_ref(), what: words.verb, total }.run(op, filter).await?;
        }
        many::report(app, words.done, changed).map(Termination::report)
    }
}

/// Ids as they were typed; `-` stands for standard input.
fn read_ids(given: &[String]) -> Result<Vec<JobId>, Failure> {
    let mut ids = Vec::new();
    for text in given {
        if text == "-" {
            let mut input = String::new();
            let read = std::io::stdin().lock().read_to_string(&mut input);
            read.map_err(|error| Failure::invalid(format!("standard input: {error}")))?;
            for (at, line) in input.lines().enumerate() {
                let id =
                    id_of(line.trim()).map_err(|failure| Failure::invalid(format!("line {}: {failure}", at + 1)))?;
                ids.extend(id);
            }
        } else {
            ids.push(text.parse()?);
        }
    }
    if ids.is_empty() {
        return Err(Failure::invalid("no ids were given"));
    }
    Ok(ids)
}

/// The id in a line: bare, or in the JSON of a listing, whose last line may be a cursor.
fn id_of(line: &str) -> Result<Option<JobId>, Failure> {
    if line.is_empty() {
        return Ok(None);
    }
    if !line.starts_with('{') {
        return Ok(Some(line.parse()?));
    }
    let value: serde_json::Value = serde_json::from_str(line).map_err(|error| Failure::invalid(error.to_string()))?;
    match value.get("id").and_then(serde_json::Value::as_str) {
        Some(id) => Ok(Some(id.parse()?)),
        None if value.get("cursor").is_some() => Ok(None),
        None => Err(Failure::invalid("has no `id`")),
    }
}
