//! Checks of queues, workers, jobs and schedules.

use super::file;
use crate::error::OperateError;
use crate::explain::{hint, sentence};
use crate::text::{count, printable, relative_time, rough_duration, shell_quoted};
use std::collections::{BTreeMap, BTreeSet};
use windlass::core::finding::Finding;
use windlass::core::job::{JobSummary, State};
use windlass::core::name::QueueName;
use windlass::core::schedule::Rule;
use windlass::core::store::{Filter, LIST_MAX, ListOrder, ListRequest, Reason, Store, StoreInfo};
use windlass::core::time::Timestamp;

/// Kinds of a queue of which one ready job is explained.
const KINDS_MAX: usize = 20;
/// Different errors of a queue that are named.
const ERRORS_MAX: usize = 5;
/// Maintenance runs every second: what is later than this was left by everybody.
const LATE_MS: u64 = 15_000;

/// Paused queues with jobs, and queues that are full.
pub(super) async fn queues(store: &dyn Store) -> Result<Vec<Finding>, OperateError> {
    let mut findings = Vec::new();
    let queues = store.queues().await?;
    for queue in &queues {
        let (name, settings) = (&queue.name, &queue.settings);
        let waiting = queue.counts.ready + queue.counts.scheduled;
        if settings.paused && waiting > 0 {
            findings.push(
                Finding::warning("paused", format!("`{name}` is paused, and {} on it", count(waiting, "job")))
                    .hint(format!("windlass queues resume {}", shell_quoted(name.as_str()))),
            );
        }
        for kind in settings.paused_kinds.iter().filter(|_| queue.counts.ready > 0) {
            findings.push(Finding::warning("paused", format!("the kind `{kind}` of `{name}` is paused")).hint(
                format!(
                    "windlass queues resume {} --kind {}",
                    shell_quoted(name.as_str()),
                    shell_quoted(kind.as_str())
                ),
            ));
        }
        if settings.len_max.is_some_and(|max| waiting >= max) {
            findings.push(
                Finding::error("full", format!("`{name}` holds {waiting} waiting jobs and refuses more")).hint(
                    format!(
                        "add workers, or raise it: windlass queues set {} --max-length none",
                        shell_quoted(name.as_str())
                    ),
                ),
            );
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            "queues",
            format!("{}, none paused with jobs or full", count(queues.len() as u64, "queue")),
        ));
    }
    Ok(findings)
}

/// Workers that are dead, and queues with work that nobody works on.
pub(super) async fn workers(store: &dyn Store) -> Result<Vec<Finding>, OperateError> {
    let (workers, now) = (store.workers().await?, store.now().await?);
    let mut findings = Vec::new();
    for dead in workers.iter().filter(|worker| !worker.live) {
        let seen = relative_time(dead.seen_at, now);
        findings.push(
            Finding::warning(
                "workers",
                format!("{} was last heard of {seen} and did not say goodbye", dead.beat.worker),
            )
            .hint("it crashed, froze or was killed; what it held is taken back by itself"),
        );
    }
    let live: Vec<_> = workers.iter().filter(|worker| worker.live).collect();
    let served: BTreeSet<&QueueName> = live.iter().flat_map(|worker| &worker.beat.queues).collect();
    for queue in store.queues().await? {
        if queue.counts.ready > 0 && !queue.settings.paused && !served.contains(&queue.name) {
            findings.push(
                Finding::error(
                    "workers",
                    format!(
                        "{} ready on `{}`, and no live worker works on it",
                        count(queue.counts.ready, "job"),
                        queue.name
                    ),
                )
                .hint(format!("start a worker for the queue `{}`", queue.name)),
            );
        }
    }
    let text = count(live.len() as u64, "live worker");
    findings.push(if live.is_empty() { Finding::info("workers", text) } else { Finding::ok("workers", text) });
    Ok(findings)
}

/// Findings from samples of the jobs.
pub(super) async fn samples(store: &dyn Store) -> Result<Vec<Finding>, OperateError> {
    let now = store.now().await?;
    let mut findings = Vec::new();
    for queue in store.queues().await? {
        let counts = queue.counts;
        let mut quarantined = Vec::new();
        for (state, number) in [
            (State::Ready, counts.ready),
            (State::Active, counts.active),
            (State::Scheduled, counts.scheduled),
            (State::Failed, counts.failed),
        ] {
            if number == 0 {
                continue;
            }
            let jobs = sample(store, &queue.name, state).await?;
            match state {
                State::Ready => findings.extend(unhandled(store, &queue.name, &jobs, now).await?),
                State::Active => findings.extend(expired(store, &queue.name, &jobs, now).await?),
                State::Scheduled => findings.extend(overdue(&queue.name, &jobs, now)),
                _ => findings.extend(failures(&queue.name, &jobs, number)),
            }
            quarantined.extend(jobs);
        }
        quarantined.retain(|job| job.quarantined);
        if let Some(first) = quarantined.first() {
            let count = count(quarantined.len() as u64, "job");
            findings.push(
                Finding::warning(
                    "quarantine",
                    format!("{count} of `{}` not readable, such as {}", queue.name, first.id),
                )
                .hint(format!(
                    "windlass jobs show {} says why; then windlass jobs remove {} --yes",
                    first.id, first.id
                )),
            );
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("jobs", "none is stuck, failed or damaged"));
    }
    Ok(findings)
}

async fn sample(store: &dyn Store, queue: &QueueName, state: State) -> Result<Vec<JobSummary>, OperateError> {
    let filter = Filter { queue: Some(queue.clone()), state: Some(state), ..Filter::default() };
    let order = if state.is_terminal() { ListOrder::Descending } else { ListOrder::Ascending };
    Ok(store.list(ListRequest { filter, order, cursor: None, limit: LIST_MAX }).await?.jobs)
}

/// Kinds and labels that no worker handles, from one ready job of each kind.
async fn unhandled(
    store: &dyn Store,
    queue: &QueueName,
    ready: &[JobSummary],
    now: Timestamp,
) -> Result<Vec<Finding>, OperateError> {
    let mut kinds = BTreeMap::new();
    for job in ready {
        kinds.entry(&job.kind).or_insert(job.id);
    }
    let mut findings = Vec::new();
    for (kind, id) in kinds.into_iter().take(KINDS_MAX) {
        // It may be gone by now.
        let Ok(explanation) = store.explain(id).await else { continue };
        if matches!(explanation.reason, Reason::NoWorkerForKind { .. } | Reason::NoWorkerWithLabels { .. }) {
            let text = format!("`{kind}` on `{queue}`, such as {id}: {}", sentence(&explanation, now));
            let finding = Finding::error("unhandled", text);
            findings.push(match hint(&explanation, queue.as_str()) {
                Some(hint) => finding.hint(hint),
                None => finding,
            });
        }
    }
    Ok(findings)
}

/// Leases that expired and were not reaped.
async fn expired(
    store: &dyn Store,
    queue: &QueueName,
    active: &[JobSummary],
    now: Timestamp,
) -> Result<Option<Finding>, OperateError> {
    let jobs = store.get(active.iter().map(|job| job.id).collect()).await?;
    let leases = jobs.iter().flatten().filter_map(|job| job.lease.as_ref());
    let ends = leases.map(|lease| lease.expires_at);
    Ok(late(ends, now, |number, longest| {
        format!("{} of `{queue}` ran out, up to {longest} ago, and not taken back", count(number, "lease"))
    }))
}

/// Jobs that are due and were not promoted.
fn overdue(queue: &QueueName, scheduled: &[JobSummary], now: Timestamp) -> Option<Finding> {
    late(scheduled.iter().filter_map(|job| job.due_at), now, |number, longest| {
        format!("{} of `{queue}` due, up to {longest} ago, and not made ready", count(number, "job"))
    })
}

/// A finding when some of the times are too long ago: `text` gets how many they are, and how long ago the first one was.
fn late(
    times: impl Iterator<Item = Timestamp>,
    now: Timestamp,
    text: impl Fn(u64, String) -> String,
) -> Option<Finding> {
    let late: Vec<u64> = times.map(|time| now.ms_since(time)).filter(|ms| *ms > LATE_MS).collect();
    let longest = late.iter().max().copied().map(rough_duration)?;
    let finding = Finding::error("maintenance", text(late.len() as u64, longest));
    Some(finding.hint("no maintenance is running: start a worker, any one does it"))
}

/// Failed jobs, grouped by their error.
fn failures(queue: &QueueName, failed: &[JobSummary], total: u64) -> Vec<Finding> {
    let mut by_error: BTreeMap<String, usize> = BTreeMap::new();
    for job in failed.iter().filter(|job| !job.quarantined) {
        let error = printable(job.last_error.as_deref().unwrap_or("no reason was given"));
        *by_error.entry(error.chars().take(100).collect()).or_default() += 1;
    }
    let mut errors: Vec<(String, usize)> = by_error.into_iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let of =
        if total > failed.len() as u64 { format!(" (of the last {} of {total})", failed.len()) } else { String::new() };
    let which = format!("--queue {} --state failed", shell_quoted(queue.as_str()));
    let say = |(error, number): (String, usize)| {
        Finding::warning("failed", format!("{} of `{queue}`{of}: {error}", count(number as u64, "failed job")))
            .hint(format!("windlass jobs list {which}; when it is mended: windlass jobs retry {which}"))
    };
    errors.into_iter().take(ERRORS_MAX).map(say).collect()
}

/// Schedules that are late, damaged, or can never tick.
pub(super) async fn schedules(store: &dyn Store, info: &StoreInfo) -> Result<Vec<Finding>, OperateError> {
    let (schedules, now) = (store.schedules().await?, store.now().await?);
    let mut findings = Vec::new();
    for schedule in schedules.iter().filter(|schedule| !schedule.paused) {
        let name = &schedule.name;
        let late_ms = schedule.next_tick.map_or(0, |tick| now.ms_since(tick));
        if late_ms > LATE_MS {
            let text = format!("`{name}` should have ticked {} ago", rough_duration(late_ms));
            findings.push(Finding::error("schedules", text)
                .hint("no maintenance is running: start a worker, any one does it; or its tick cannot be handled: see the workers' log"));
        }
        if matches!(schedule.rule, Rule::Cron { .. }) && schedule.rule.check().is_err() {
            findings.push(
                Finding::error("schedules", format!("the rule of `{name}` cannot be read any more"))
                    .hint(format!("windlass schedules add {} … replaces it", shell_quoted(name.as_str()))),
            );
        }
    }
    let readable = schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    for name in damaged(info, &readable) {
        let shell = shell_quoted(&name);
        findings.push(Finding::error("schedules", format!("`{name}` is damaged and never ticks")).hint(format!(
            "windlass schedules add {shell} … replaces it, windlass schedules remove {shell} --yes removes it"
        )));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            "schedules",
            format!("{}, none late or damaged", count(schedules.len() as u64, "schedule")),
        ));
    }
    Ok(findings)
}

/// Schedules in the file that cannot be read; the store leaves them out.
fn damaged(info: &StoreInfo, readable: &BTreeSet<&str>) -> Vec<String> {
    let names = file::path(info).and_then(|path| file::connect(&path).ok()).and_then(|conn| {
        let mut statement = conn.prepare("SELECT name FROM windlass_schedule ORDER BY name").ok()?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).ok()?;
        Some(rows.flatten().collect::<Vec<String>>())
    });
    names.unwrap_or_default().into_iter().filter(|name| !readable.contains(name.as_str())).collect()
}
