//! `windlass queues pause`, `resume`, `drain`, `clean` and `obliterate`.

use crate::app::App;
use crate::failure::Failure;
use crate::many::{self, Many};
use clap::Args;
use serde_json::json;
use windlass::core::job::State;
use windlass::core::name::{Kind, QueueName};
use windlass::core::store::{ChangeManyOp, Filter, Setting};
use windlass_operate::change::expected;
use windlass_operate::names::find_queue;
use windlass_operate::values::Span;

// Arguments of `pause` and `resume`, which are described where they are listed.
#[derive(Debug, Args)]
pub(crate) struct SetPaused<const PAUSED: bool> {
    /// The queue
    queue: QueueName,
    /// Only jobs of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
}

impl<const PAUSED: bool> SetPaused<PAUSED> {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let (queue, kind) = (self.queue, self.kind);
        let status = find_queue(store.as_ref(), &queue).await?;
        let before = match &kind {
            Some(kind) => status.settings.paused_kinds.contains(kind),
            None => status.settings.paused,
        };
        store
            .configure(match kind.clone() {
                Some(kind) => Setting::KindPaused { queue: queue.clone(), kind, paused: PAUSED },
                None => Setting::Paused { queue: queue.clone(), paused: PAUSED },
            })
            .await?;
        if app.ui.json {
            app.ui.json(&json!({ "queue": queue, "kind": kind, "paused": PAUSED, "before": before }))?;
        } else {
            let what =
                kind.map_or(format!("the queue `{queue}`"), |kind| format!("the kind `{kind}` of the queue `{queue}`"));
            let (done, already) =
                (if PAUSED { "paused" } else { "resumed" }, if PAUSED { "paused" } else { "running" });
            let text =
                if before == PAUSED { format!("{what} was {already} already") } else { format!("{what} is {done}") };
            app.ui.line(text)?;
        }
        Ok(())
    }
}

/// Remove what waits on a queue.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass queues drain mail --yes\n  windlass queues drain mail --scheduled --yes")]
pub(crate) struct Drain {
    /// The queue
    queue: QueueName,
    /// Scheduled jobs too
    #[arg(long)]
    scheduled: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Drain {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let op = ChangeManyOp::Drain { scheduled: self.scheduled };
        let what = if self.scheduled { "ready and scheduled" } else { "ready" };
        Removal { queue: self.queue, op, state: None, what, yes: self.yes }.run(app).await
    }
}

/// Remove ended jobs of a queue.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass queues clean mail --state succeeded --yes\n  windlass queues clean mail --older-than 7d --yes"
)]
pub(crate) struct Clean {
    /// The queue
    queue: QueueName,
    /// Only those in this state: succeeded, failed or cancelled
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// Only those that ended at least so long ago
    #[arg(long, value_name = "TIME", default_value = "0s")]
    older_than: Span,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Clean {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        if let Some(state) = self.state.filter(|state| !state.is_terminal()) {
            return Err(Failure::invalid(format!("jobs that are {state} have not ended"))
                .hint("clean removes succeeded, failed or cancelled ones; drain removes what waits"));
        }
        let op = ChangeManyOp::Clean { older_than_ms: self.older_than.ms };
        let what = self.state.map_or("ended", State::as_str);
        Removal { queue: self.queue, op, state: self.state, what, yes: self.yes }.run(app).await
    }
}

/// Remove a queue with all its jobs and settings.
#[derive(Debug, Args)]
#[command(
    after_help = "Refused while jobs are active, unless --force is given: then their workers lose them.\n\nExamples:\n  windlass queues obliterate old-mail --yes\n  windlass queues obliterate old-mail --force --yes"
)]
pub(crate) struct Obliterate {
    /// The queue
    queue: QueueName,
    /// Active jobs too
    #[arg(long)]
    force: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Obliterate {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let op = ChangeManyOp::Obliterate { force: self.force };
        Removal { queue: self.queue, op, state: None, what: "", yes: self.yes }.run(app).await
    }
}

struct Removal {
    queue: QueueName,
    op: ChangeManyOp,
    state: Option<State>,
    what: &'static str,
    yes: bool,
}

impl Removal {
    async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let queue = find_queue(store.as_ref(), &self.queue).await?;
        let filter = Filter { queue: Some(self.queue), state: self.state, ..Filter::default() };
        let total = expected(self.op, &filter, &queue);
        let name = &queue.name;
        match self.op {
            ChangeManyOp::Obliterate { force: false } if queue.counts.active > 0 => {
                return Err(Failure::conflict(format!("{} jobs of `{name}` are active", queue.counts.active))
                    .hint("wait for them, or say --force and let their workers lose them"));
            }
            ChangeManyOp::Obliterate { .. } => {
                app.ui
                    .confirm(format_args!("remove the queue `{name}` with {total} jobs and its settings"), self.yes)?;
            }
            _ => app.ui.confirm(format_args!("remove the {} jobs of `{name}`, up to {total}", self.what), self.yes)?,
        }
        let changed = Many { app, store: store.as_ref(), what: "removing", total }.run(self.op, filter).await?;
        many::report(app, "removed", changed)
    }
}
