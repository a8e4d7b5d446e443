//! `windlass jobs show`.

use crate::app::App;
use crate::failure::Failure;
use crate::ui::STRONG;
use clap::Args;
use std::fmt::Display;
use windlass::core::job::Job;
use windlass::core::time::Timestamp;
use windlass_operate::explain::{hint, sentence};
use windlass_operate::job_view::{JobView, payload_text};
use windlass_operate::names::JobName;
use windlass_operate::text::{printable, relative_time};
use windlass_operate::values::Span;

const AFTER: &str = "\
Examples:
  windlass jobs show 0-01k9z3v8q2f7t8x6m5n4p3r2s1
  windlass jobs show 0-01k9z3v8q2f7t8x6m5n4p3r2s1 --json | jq .payload";

/// Show everything about one job.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Show {
    /// The job's id, or the one that it was given with --id
    id: JobName,
}

impl Show {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let id = self.id.find(store.as_ref()).await?;
        let job = store.get(vec![id]).await?.pop().flatten();
        let job = job.ok_or_else(|| Failure::not_found(format!("there is no job {id}")))?;
        let (explanation, now) = (store.explain(id).await?, store.now().await?);
        let text = sentence(&explanation, now);
        if app.ui.json {
            app.ui.json(&JobView { job: &job, explanation: &explanation, text: &text })?;
        } else {
            let sheet = Sheet { app, now };
            sheet.head(&job, &text)?;
            if let Some(hint) = hint(&explanation, job.spec.queue.as_str()) {
                sheet.field("next", Some(hint))?;
            }
            sheet.options(&job)?;
            sheet.life(&job)?;
        }
        Ok(())
    }
}

struct Sheet<'a> {
    app: &'a App,
    now: Timestamp,
}

impl Sheet<'_> {
    fn field(&self, name: &str, value: Option<impl Display>) -> Result<(), Failure> {
        let Some(value) = value else { return Ok(()) };
        self.app.ui.line(format_args!("{STRONG}{name:<12}{STRONG:#} {}", printable(&value.to_string())))
    }

    fn time(&self, name: &str, time: Option<Timestamp>) -> Result<(), Failure> {
        self.field(name, time.map(|time| format!("{time} ({})", relative_time(time, self.now))))
    }

    fn block(&self, name: &str, text: &str) -> Result<(), Failure> {
        self.app.ui.line(format_args!("{STRONG}{name}{STRONG:#}"))?;
        text.lines().try_for_each(|line| self.app.ui.line(format_args!("  {}", printable(line))))
    }

    fn head(&self, job: &Job, text: &str) -> Result<(), Failure> {
        self.field("id", Some(job.id))?;
        self.field("queue", Some(&job.spec.queue))?;
        self.field("kind", Some(&job.spec.kind))?;
        self.field("state", Some(job.state))?;
        self.field("why", Some(text))
    }

    fn options(&self, job: &Job) -> Result<(), Failure> {
        let spec = &job.spec;
        let span = |ms: Option<u64>| ms.map(|ms| Span { ms });
        self.field("attempts", Some(format_args!("{} of {}", job.attempt, spec.attempts)))?;
        self.field("stalls", Some(format_args!("{} of {}", job.stall_count, spec.stalls)))?;
        self.field("retries", Some(job.retry_count).filter(|retries| *retries > 0))?;
        self.field("priority", Some(spec.priority).filter(|priority| *priority != 0))?;
        self.field("lifo", Some("yes").filter(|_| spec.lifo))?;
        self.field("group", spec.group.as_ref())?;
        self.field("custom id", spec.custom_id.as_ref())?;
        let labels: Vec<&str> = spec.labels.iter().map(AsRef::as_ref).collect();
        self.field("labels", Some(labels.join(", ")).filter(|text| !text.is_empty()))?;
        self.field("timeout", span(spec.timeout_ms))?;
        self.field("retry", serde_json::to_string(&spec.retry).ok())?;
        self.field("dedup", spec.dedup.as_ref().and_then(|dedup| serde_json::to_string(dedup).ok()))?;
        self.field("keep", span(spec.keep_for.succeeded_ms).map(|span| format!("{span} after success")))?;
        self.field("keep", span(spec.keep_for.failed_ms).map(|span| format!("{span} after failure")))?;
        for (key, value) in &spec.metadata {
            self.field("metadata", Some(format_args!("{key}={value}")))?;
        }
        self.field("trace", spec.trace.as_ref().map(|trace| &trace.parent))
    }

    fn life(&self, job: &Job) -> Result<(), Failure> {
        self.time("created", Some(job.created_at))?;
        self.time("due", job.due_at)?;
        self.time("claimed", job.claimed_at)?;
        self.field("worker", job.lease.as_ref().map(|lease| &lease.worker))?;
        self.time("lease until", job.lease.as_ref().map(|lease| lease.expires_at))?;
        self.time("finished", job.finished_at)?;
        let progress = job.progress.as_ref();
        self.field("progress", progress.map(|progress| format!("{}% {}", progress.percent, progress.message)))?;
        self.field("quarantined", job.quarantined.as_ref())?;
        self.block(
            &format!("payload ({})", printable(&job.spec.payload.content_type)),
            &payload_text(&job.spec.payload),
        )?;
        if let Some(result) = &job.result {
            self.block(&format!("result ({})", printable(&result.content_type)), &payload_text(result))?;
        }
        for (name, value) in &job.outputs {
            self.field("output", Some(format_args!("{name}={value}")))?;
        }
        for failure in &job.failures {
            let when = relative_time(failure.at, self.now);
            let class = serde_json::to_string(&failure.class).unwrap_or_default();
            let class = class.trim_matches('"');
            self.field(
                "failure",
                Some(format_args!("attempt {} ({class}, {when}): {}", failure.attempt, failure.message)),
            )?;
        }
        Ok(())
    }
}
