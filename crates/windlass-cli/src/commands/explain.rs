//! `windlass explain`: why a job is not running.

use crate::app::App;
use crate::failure::Failure;
use crate::job_name::JobName;
use crate::run_view::{RunName, named};
use crate::ui::STRONG;
use crate::values::{clean, count, relative};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use std::str::FromStr;
use windlass::core::id::{JobId, RunId};
use windlass::core::job::State;
use windlass::core::name::Label;
use windlass::core::store::{Explanation, Reason, Store};
use windlass::core::time::Timestamp;

const AFTER: &str = "\
One exact reason, and what to do about it. When several hold, the one that must be mended first is named. \
With --json: {id, state, queue, reason, …, text, hint}; `…` are the details of the reason.

Examples:
  windlass explain 0-01k9z3v8q2f7t8x6m5n4p3r2s1
  windlass explain r0-01k9z3v8q2f7t8x6m5n4p3r2s1          what a run waits for, node by node
  windlass explain 0-01k9z3v8q2f7t8x6m5n4p3r2s1 --json | jq -r .reason";

/// Say why a job, or a run, stands where it stands, and what to do about it.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Explain {
    /// The job's id, or the one that it was given with --id; or a run: its id, `latest`, or the name from --id
    id: Named,
}

/// What is to be explained. A name that somebody gave may be that of a job or of a run.
#[derive(Clone, Debug)]
enum Named {
    Job(JobName),
    Run(RunName),
}

impl FromStr for Named {
    type Err = <JobName as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(name @ (RunName::Id(_) | RunName::Latest)) => Ok(Self::Run(name)),
            _ => text.parse().map(Self::Job),
        }
    }
}

enum Found {
    Job(JobId),
    Run(RunId),
}

/// A job; or a run of this name, when there is no such job.
async fn find(name: &JobName, store: &dyn Store) -> Result<Found, Failure> {
    let missing = match name.find(store).await {
        Ok(id) => return Ok(Found::Job(id)),
        Err(missing) => missing,
    };
    let run = match name {
        JobName::Custom(custom) if missing.is_not_found() => named(store, custom.as_str()).await?,
        _ => None,
    };
    run.map(Found::Run).ok_or(missing)
}

impl Explain {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let found = match self.id {
            Named::Job(name) => find(&name, store.as_ref()).await?,
            Named::Run(name) => Found::Run(name.find(store.as_ref()).await?),
        };
        let id = match found {
            Found::Job(id) => id,
            Found::Run(run) => {
                super::explain_run::explain(app, &store, run).await?;
                store.close().await?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        let explanation = store.explain(id).await?;
        let now = store.now().await?;
        let queue = store.get(vec![id]).await?.pop().flatten().map(|job| job.spec.queue.to_string());
        let queue = queue.unwrap_or_default();
        let (text, hint) = (sentence(&explanation, now), hint(&explanation, &queue));
        if app.ui.json {
            let mut value = json!(explanation.reason);
            value["id"] = json!(explanation.id);
            value["state"] = json!(explanation.state);
            value["queue"] = json!(queue);
            value["text"] = json!(text);
            value["hint"] = json!(hint);
            app.ui.json(&value)?;
        } else {
            app.ui.line(format_args!("{STRONG}{}{STRONG:#}: {}", explanation.state, clean(&text)))?;
            if let Some(hint) = hint {
                app.ui.line(format_args!("{STRONG}next{STRONG:#}: {}", clean(&hint)))?;
            }
        }
        store.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The reason in plain words.
pub(crate) fn sentence(explanation: &Explanation, now: Timestamp) -> String {
    let when = |time: &Timestamp| format!("{time} ({})", relative(*time, now));
    match &explanation.reason {
        Reason::Delayed { until } => format!("its time has not come; it becomes ready at {}", when(until)),
        Reason::BackingOff { until, attempt, error } => {
            format!("attempt {attempt} failed with `{error}`; the next one begins at {}", when(until))
        }
        Reason::Due => "its time has come; the next claim or sweep makes it ready".to_owned(),
        Reason::HeldBehind { job } => format!("it waits until the job {job}, which has the same dedup key, has ended"),
        Reason::QueuePaused => "its queue is paused, so nothing of it is claimed".to_owned(),
        Reason::KindPaused { kind } => format!("jobs of the kind `{kind}` are paused on its queue"),
        Reason::QueueAtCap { cap } => {
            format!("its queue has {}, which is as many as it may have at once", count(u64::from(*cap), "active job"))
        }
        Reason::QueueRateLimited { until } => {
            format!("its queue has started as many jobs as its rate allows; the next one may start at {}", when(until))
        }
        Reason::GroupAtCap { group, cap } => {
            format!(
                "its group `{group}` has {}, which is as many as it may have at once",
                count(u64::from(*cap), "active job")
            )
        }
        Reason::GroupRateLimited { group, until } => {
            format!(
                "its group `{group}` has started as many jobs as its rate allows; the next one may start at {}",
                when(until)
            )
        }
        Reason::NoWorkerForQueue => "no live worker works on its queue".to_owned(),
        Reason::NoWorkerForKind { kind } => format!("workers are there, but none has a handler for the kind `{kind}`"),
        Reason::NoWorkerWithLabels { missing } => {
            format!("workers are there, but the best of them lacks {}", labels(missing))
        }
        Reason::WaitsItsTurn => "nothing is in its way; it waits for its turn behind the jobs before it".to_owned(),
        Reason::Running { worker, until } => {
            format!("the worker {worker} works on it, with a lease until {}", when(until))
        }
        Reason::Cancelling { worker } => format!("it was cancelled, and the worker {worker} is being told"),
        Reason::LeaseExpired { worker } => {
            format!("the worker {worker} has vanished; the next sweep takes the job away from it")
        }
        Reason::Ended { error: Some(error) } => format!("it has ended as {}: {error}", explanation.state),
        Reason::Ended { error: None } => format!("it has ended as {}", explanation.state),
        Reason::Quarantined { why } => format!("its stored form cannot be read, so it is never claimed: {why}"),
        other => format!("{other:?}"),
    }
}

fn labels(missing: &[Label]) -> String {
    let names: Vec<String> = missing.iter().map(|label| format!("`{label}`")).collect();
    format!("the label{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}

/// What to do next, as a command where there is one. Nothing, when there is nothing to do.
pub(crate) fn hint(explanation: &Explanation, queue: &str) -> Option<String> {
    let id = explanation.id;
    let queue = quoted(queue);
    Some(match &explanation.reason {
        Reason::Delayed { .. } | Reason::Due | Reason::WaitsItsTurn | Reason::Running { .. } => {
            format!("windlass jobs watch {id}")
        }
        Reason::BackingOff { .. } => format!("windlass jobs show {id}  # all that went wrong so far"),
        Reason::HeldBehind { job } => format!("windlass explain {job}"),
        Reason::QueuePaused => format!("windlass queues resume {queue}"),
        Reason::KindPaused { kind } => format!("windlass queues resume {queue} --kind {}", quoted(kind.as_str())),
        Reason::QueueAtCap { cap } => {
            format!("windlass queues set {queue} --cap {}  # or wait until one has ended", cap.saturating_mul(2))
        }
        Reason::QueueRateLimited { .. } => format!("windlass queues set {queue} --rate none  # or wait"),
        Reason::GroupAtCap { group, cap } => {
            let (group, cap) = (quoted(group.as_str()), cap.saturating_mul(2));
            format!("windlass groups set {queue} {group} --cap {cap}  # or wait until one has ended")
        }
        Reason::GroupRateLimited { group, .. } => {
            format!("windlass groups set {queue} {} --rate none  # or wait", quoted(group.as_str()))
        }
        Reason::NoWorkerForQueue => {
            format!("start a worker for the queue {queue}; windlass workers shows who is there")
        }
        Reason::NoWorkerForKind { kind } => {
            let kind = quoted(kind.as_str());
            format!(
                "start a worker with a handler for {kind}, or check its spelling; windlass workers shows who does what"
            )
        }
        Reason::NoWorkerWithLabels { missing } => {
            format!("start a worker that offers {}; windlass workers shows what they offer", labels(missing))
        }
        Reason::Cancelling { .. } => format!("windlass jobs watch {id}  # it ends once its handler has stopped"),
        Reason::LeaseExpired { .. } => {
            "start a worker: any one takes back what others left; windlass doctor says more".to_owned()
        }
        Reason::Ended { .. } if explanation.state == State::Failed => format!("windlass jobs retry {id}"),
        Reason::Ended { .. } => return None,
        Reason::Quarantined { .. } => format!("windlass jobs show {id}  # and then: windlass jobs remove {id} --yes"),
        _ => return None,
    })
}

/// Ready to be copied into a shell.
pub(crate) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@+,".contains(c);
    match !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn what_is_copied_means_the_same_in_a_shell() {
        assert_eq!(quoted("mail"), "mail");
        assert_eq!(quoted("a}b{c"), "'a}b{c'");
        assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
    }
}
