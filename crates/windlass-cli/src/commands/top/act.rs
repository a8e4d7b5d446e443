//! What the user asks of the store.

use super::state::{Action, Event};
use std::sync::Arc;
use windlass::Error;
use windlass::core::id::JobId;
use windlass::core::job::{Due, Job, State};
use windlass::core::name::QueueName;
use windlass::core::store::{
    Change, ChangeManyOp, ChangeOp, Explanation, Filter, GroupsRequest, ListRequest, LogPage, LogRequest, Setting,
    Store,
};
use windlass_operate::OperateError;
use windlass_operate::change::change_all;

type Result<T> = std::result::Result<T, OperateError>;

/// Groups and log lines that are shown.
const GROUPS_MAX: u32 = 20;
const LOG_LINES_MAX: u32 = 50;
/// Jobs of each state that are shown with a queue.
const JOBS_MAX: u32 = 5;

pub(super) async fn act(store: &Arc<dyn Store>, action: Action) -> Result<Event> {
    match action {
        Action::Quit => Ok(Event::Said(String::new())),
        Action::Pause { queue, paused } => {
            let words = if paused { "is paused" } else { "goes on" };
            let said = format!("queue {queue} {words}");
            store.configure(Setting::Paused { queue, paused }).await?;
            Ok(Event::Said(said))
        }
        Action::RetryJob(id) => retry(store, id).await,
        Action::RetryAll(queue) => retry_all(store, queue).await,
        Action::InspectJob(id) => inspect_job(store, id).await,
        Action::InspectQueue(queue) => inspect_queue(store, queue).await,
    }
}

async fn retry(store: &Arc<dyn Store>, id: JobId) -> Result<Event> {
    let mut answers = store.change(vec![Change { id, op: ChangeOp::Retry(Due::Now) }]).await?;
    match answers.pop() {
        Some(answer) => Ok(answer.map(|_| Event::Said(format!("{id} is tried again")))?),
        None => Err(Error::not_found(id.to_string()).into()),
    }
}

async fn retry_all(store: &Arc<dyn Store>, queue: QueueName) -> Result<Event> {
    let filter = Filter { queue: Some(queue.clone()), ..Filter::default() };
    let changed = change_all(store.as_ref(), ChangeManyOp::RetryFailed, filter, |_| {}).await?;
    Ok(Event::Said(format!("{changed} failed jobs of {queue} are tried again")))
}

async fn inspect_job(store: &Arc<dyn Store>, id: JobId) -> Result<Event> {
    let job = store.get(vec![id]).await?.pop().flatten().ok_or_else(|| Error::not_found(id.to_string()))?;
    let explanation = store.explain(id).await?;
    let request = |from| LogRequest { job: id, from, limit: LOG_LINES_MAX };
    let mut logs = store.read_logs(request(0)).await?;
    let last = logs.next.saturating_sub(u64::from(LOG_LINES_MAX));
    if last > 0 {
        logs = store.read_logs(request(last)).await?;
    }
    Ok(Event::Inspected { title: format!("job {id}"), lines: job_lines(&job, &explanation, &logs) })
}

fn job_lines(job: &Job, explanation: &Explanation, logs: &LogPage) -> Vec<String> {
    let spec = &job.spec;
    let mut lines = vec![
        format!("kind      {} on {}", spec.kind, spec.queue),
        format!("state     {}: {}", job.state, reason(explanation)),
        format!("attempts  {} of {}, {} stalls of {}", job.attempt, spec.attempts, job.stall_count, spec.stalls),
        format!("enqueued  {}", job.created_at),
    ];
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("{name:<9} {value}"));
        }
    };
    line("group", spec.group.as_ref().map(ToString::to_string));
    line("ended", job.finished_at.map(|at| at.to_string()));
    line("progress", job.progress.as_ref().map(|progress| format!("{}% {}", progress.percent, progress.message)));
    line("payload", Some(String::from_utf8_lossy(&spec.payload.bytes).chars().take(400).collect()));
    line(
        "result",
        job.result.as_ref().map(|result| String::from_utf8_lossy(&result.bytes).chars().take(400).collect()),
    );
    for failure in &job.failures {
        line("failure", Some(format!("{} attempt {}: {}", failure.at, failure.attempt, failure.message)));
    }
    for (attempt, log) in &logs.lines {
        line("log", Some(format!("{attempt}  {}", String::from_utf8_lossy(&log.text))));
    }
    lines
}

/// The reason as the store gives it, in one line.
fn reason(explanation: &Explanation) -> String {
    let value = serde_json::to_value(&explanation.reason).unwrap_or_default();
    let Some(fields) = value.as_object() else { return value.to_string() };
    let name = fields.get("reason").and_then(|name| name.as_str()).unwrap_or_default().replace('_', " ");
    let rest = fields.iter().filter(|(key, value)| *key != "reason" && !value.is_null());
    let rest: Vec<String> = rest.map(|(key, value)| format!("{key} {}", value.to_string().trim_matches('"'))).collect();
    if rest.is_empty() { name } else { format!("{name} ({})", rest.join(", ")) }
}

async fn inspect_queue(store: &Arc<dyn Store>, name: QueueName) -> Result<Event> {
    let queues = store.queues().await?;
    let queue = queues.into_iter().find(|queue| queue.name == name);
    let queue = queue.ok_or_else(|| Error::not_found(name.to_string()))?;
    let (counts, settings) = (queue.counts, &queue.settings);
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    let rate = settings.rate.map(|rate| format!("{} per {} ms", rate.limit, rate.per_ms));
    let mut lines = vec![
        format!("waiting    {} ready, {} scheduled", counts.ready, counts.scheduled),
        format!("active     {}", counts.active),
        format!("ended      {} succeeded, {} failed, {} cancelled", counts.succeeded, counts.failed, counts.cancelled),
        format!("paused     {}", if settings.paused { "yes" } else { "no" }),
        format!("cap        {}", or_none(settings.cap.map(|cap| cap.to_string()))),
        format!("rate       {}", or_none(rate)),
        format!("length     {}", settings.len_max.map_or("no limit".to_owned(), |len| format!("at most {len}"))),
        format!("lanes      {}", queue.lanes),
    ];
    for kind in &settings.paused_kinds {
        lines.push(format!("paused     kind {kind}"));
    }
    let groups = store.groups(GroupsRequest { queue: name.clone(), after: None, limit: GROUPS_MAX }).await?;
    for group in groups.groups {
        lines.push(format!("group      {}: {} ready, {} active", group.name, group.ready, group.active));
    }
    lines.extend(first_jobs(store, &name).await?);
    Ok(Event::Inspected { title: format!("queue {name}"), lines })
}

/// The jobs that are or should be worked on first, each with the reason why it stands where it stands.
async fn first_jobs(store: &Arc<dyn Store>, queue: &QueueName) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for state in [State::Active, State::Ready, State::Scheduled] {
        let filter = Filter { queue: Some(queue.clone()), state: Some(state), ..Filter::default() };
        let page = store.list(ListRequest { filter, limit: JOBS_MAX, ..ListRequest::default() }).await?;
        for job in page.jobs {
            let why = match store.explain(job.id).await {
                Ok(explanation) => reason(&explanation),
                // It has gone since.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            lines.push(format!("{:<10} {} {}: {why}", job.state.as_str(), job.id, job.kind));
        }
    }
    Ok(lines)
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;
