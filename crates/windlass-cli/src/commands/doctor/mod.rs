//! `windlass doctor`: what is wrong with a store, and what to do about it.

mod file;
mod jobs;
mod redis;
mod time;

use crate::app::App;
use crate::failure::Failure;
use crate::ui::{ERROR, GOOD, STRONG, WARNING};
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;
use windlass::core::store::{Durability, Store, StoreInfo};
use windlass_operate::text::printable;

const AFTER: &str = "\
Changes nothing. Each finding has a severity (ok, info, warning, error) and says what to do; the exit code is 1 when there \
is an error among them. With --json each finding is a line: {severity, check, message, hint}.

Jobs are looked at in samples of up to 1,000 of each queue and state, so that it is quick on a large store. On Redis the \
server is examined, too: persistence, memory, replicas, rights, latency, and whether up to 10,000 entries of each container \
fit together.

Examples:
  windlass doctor
  windlass doctor --deep
  windlass doctor redis://localhost:6379
  windlass doctor --json | jq 'select(.severity == \"error\")'";

/// Look for what is wrong with a store, and say what to do about it.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Doctor {
    /// The store, by its URL; the same as --store URL
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Check the whole file, or every entry on a server, however large it is
    #[arg(long)]
    deep: bool,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    Ok,
    Info,
    Warning,
    Error,
}

/// Something that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    check: &'static str,
    message: String,
    hint: Option<String>,
}

impl Finding {
    fn new(severity: Severity, check: &'static str, message: impl Into<String>) -> Self {
        Self { severity, check, message: message.into(), hint: None }
    }

    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, message)
    }

    fn info(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Info, check, message)
    }

    fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, check, message)
    }

    fn error(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, check, message)
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl Doctor {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let mut worst = Severity::Ok;
        if let Some(options) = app.redis()? {
            let server = redis::look(&options, self.deep).await?;
            for finding in server.findings {
                worst = worst.max(finding.severity);
                print(app, &finding)?;
            }
            if !server.usable {
                // What else there is to see cannot be seen from here.
                return Ok(exit(worst));
            }
        }
        let info = store.info().await?;
        for step in [Step::Store, Step::File, Step::Time, Step::Queues, Step::Workers, Step::Jobs, Step::Schedules] {
            let findings = self
                .look(step, store.as_ref(), &info)
                .await
                .unwrap_or_else(|failure| vec![Finding::error(step.name(), failure.to_string())]);
            for finding in findings {
                worst = worst.max(finding.severity);
                print(app, &finding)?;
            }
        }
        store.close().await?;
        Ok(exit(worst))
    }

    /// One part of it; what one part stumbles over must not hide the others.
    async fn look(&self, step: Step, store: &dyn Store, info: &StoreInfo) -> Result<Vec<Finding>, Failure> {
        match step {
            Step::Store => Ok(vec![about(info)]),
            Step::File => Ok(file::look(info, self.deep)),
            Step::Time => time::look(store, info).await,
            Step::Queues => jobs::queues(store).await,
            Step::Workers => jobs::workers(store).await,
            Step::Jobs => jobs::samples(store).await,
            Step::Schedules => jobs::schedules(store, info).await,
        }
    }
}

fn exit(worst: Severity) -> ExitCode {
    if worst == Severity::Error { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Store,
    File,
    Time,
    Queues,
    Workers,
    Jobs,
    Schedules,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::File => "file",
            Self::Time => "time",
            Self::Queues => "queues",
            Self::Workers => "workers",
            Self::Jobs => "jobs",
            Self::Schedules => "schedules",
        }
    }
}

fn print(app: &App, finding: &Finding) -> Result<(), Failure> {
    if app.ui.json {
        return app.ui.json(finding);
    }
    let (style, word) = match finding.severity {
        Severity::Ok => (GOOD, "ok"),
        Severity::Info => (STRONG, "info"),
        Severity::Warning => (WARNING, "warning"),
        Severity::Error => (ERROR, "error"),
    };
    app.ui.line(format_args!("{style}{word:<8}{style:#}{:<12}{}", finding.check, printable(&finding.message)))?;
    match &finding.hint {
        Some(hint) => app.ui.line(format_args!("{:20}next: {}", "", printable(hint))),
        None => Ok(()),
    }
}

/// The store's durability class, and what it means.
pub(crate) fn promise(info: &StoreInfo) -> (&'static str, &'static str) {
    match info.durability {
        Durability::None if info.store == "redis" => {
            ("none", "the end of the server may lose all, or all since its last snapshot")
        }
        Durability::None => ("none", "nothing survives the end of the process"),
        Durability::Process => ("process", "acknowledged work survives a crash of our processes, not a power cut"),
        Durability::Power => ("power", "acknowledged work survives a power cut"),
        Durability::FailoverBestEffort => (
            "failover-best-effort",
            "acknowledged work survives a power cut of one server; a failover may lose the last of it",
        ),
    }
}

/// What the store is and promises.
fn about(info: &StoreInfo) -> Finding {
    let details: Vec<String> = info.details.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let (class, meaning) = promise(info);
    let text = format!("{}, layout {}, {}; durability {class}: {meaning}", info.store, info.layout, details.join(", "));
    match info.durability {
        Durability::Power | Durability::FailoverBestEffort => Finding::ok("store", text),
        // What to do about it stands beside the settings of the server.
        Durability::None | Durability::Process if info.store == "redis" => Finding::info("store", text),
        Durability::None => Finding::warning("store", text).hint("for work that matters use sqlite://FILE"),
        Durability::Process => {
            Finding::info("store", text).hint("leave out ?synchronous=normal to survive a power cut")
        }
    }
}
