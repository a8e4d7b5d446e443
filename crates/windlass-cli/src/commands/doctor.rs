//! `windlass doctor`: what is wrong with a store, and what to do about it.

use crate::app::App;
use crate::failure::Failure;
use crate::ui::{ERROR, GOOD, STRONG, WARNING};
use clap::Args;
use std::process::ExitCode;
use windlass::core::finding::{Finding, Severity};
use windlass_operate::doctor::{check_all, examine_redis, worst};
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

impl Doctor {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let mut all = Severity::Ok;
        if let Some(options) = app.redis()? {
            let server = examine_redis(&options, self.deep).await?;
            server.findings.iter().try_for_each(|finding| print(app, finding))?;
            all = worst(&server.findings);
            if !server.usable {
                // What else there is to see cannot be seen from here.
                return Ok(exit(all));
            }
        }
        check_all(store.as_ref(), &store.info().await?, self.deep, |findings| {
            all = all.max(worst(&findings));
            findings.iter().try_for_each(|finding| print(app, finding))
        })
        .await?;
        Ok(exit(all))
    }
}

fn exit(worst: Severity) -> ExitCode {
    if worst == Severity::Error { ExitCode::FAILURE } else { ExitCode::SUCCESS }
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
