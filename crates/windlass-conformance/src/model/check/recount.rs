//! Counters, groups, lanes, listings and metrics, counted again from the jobs and the feed (1, 23).

use super::super::side::Side;
use super::super::view::counts;
use super::limits::Settings;
use super::{Step, Verdict, ensure};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::id::JobId;
use windlass_core::job::{Job, State, Verb};
use windlass_core::name::QueueName;
use windlass_core::store::{
    FeedEvent, Filter, GroupsRequest, JobQueue, ListRequest, MetricsRequest, MinuteMetrics, QueueCounts,
};

/// Metrics are kept for two days; this much of them is counted again.
const METRICS_BACK_MS: u64 = 47 * 3_600_000;

/// What happened per queue and minute, by the feed.
#[derive(Debug, Default)]
pub(crate) struct Counters(BTreeMap<(QueueName, i64), [u64; 7]>);

impl Counters {
    pub(super) fn note(&mut self, step: &Step<'_>) {
        for (at, event) in step.events {
            match event {
                FeedEvent::Job(job) => {
                    let row = self.0.entry((job.queue.clone(), at.minute())).or_default();
                    let moved = job.from != job.to && job.from.is_some();
                    let counted = [
                        job.verb == Verb::Enqueue,
                        job.verb == Verb::Claim,
                        moved && job.to == Some(State::Succeeded),
                        moved && job.to == Some(State::Failed),
                        moved && job.to == Some(State::Cancelled),
                        job.verb == Verb::Fail && matches!(job.to, Some(State::Ready | State::Scheduled)),
                        job.verb == Verb::Reap,
                    ];
                    row.iter_mut().zip(counted).for_each(|(count, counts)| *count += u64::from(counts));
                }
                FeedEvent::QueueRemoved { queue } => self.0.retain(|(name, _), _| name != queue),
                _ => {}
            }
        }
    }
}

fn numbers(minute: &MinuteMetrics) -> [u64; 7] {
    let MinuteMetrics { enqueued, claimed, succeeded, failed, cancelled, retried, stalled, .. } = *minute;
    [enqueued, claimed, succeeded, failed, cancelled, retried, stalled]
}

pub(super) async fn check(
    side: &Side,
    jobs: &BTreeMap<JobId, Job>,
    settings: &Settings,
    counters: &Counters,
) -> Verdict {
    let mut counted: BTreeMap<QueueName, [u64; 6]> = BTreeMap::new();
    for job in jobs.values() {
        counted.entry(job.spec.queue.clone()).or_default()[job.state.index()] += 1;
    }
    let queues = side.store.queues().await.map_err(|error| error.to_string())?;
    let missing = counted.keys().find(|name| !queues.iter().any(|queue| queue.name == **name));
    ensure!(missing.is_none(), "the queue {missing:?} has jobs and is not listed");
    for queue in queues {
        let expected = QueueCounts::from_array(counted.remove(&queue.name).unwrap_or_default());
        ensure!(queue.counts == expected, "{} counts {:?}, a recount {expected:?}", queue.name, queue.counts);
        let wanted = settings.get(&queue.name).map(|(settings, _)| settings.clone()).unwrap_or_default();
        ensure!(queue.settings == wanted, "{} is set to {:?}, asked was {wanted:?}", queue.name, queue.settings);
        let mine = || jobs.values().filter(|job| job.spec.queue == queue.name);
        let lanes: BTreeSet<_> = mine().map(|job| (&job.spec.kind, &job.spec.labels)).collect();
        ensure!(queue.lanes as usize == lanes.len(), "{} has {} lanes, not {}", queue.name, lanes.len(), queue.lanes);
        check_groups(side, &queue.name, jobs, settings).await?;
        check_metrics(side, &queue.name, counters).await?;
    }
    check_lists(side, jobs).await
}

async fn check_groups(side: &Side, queue: &QueueName, jobs: &BTreeMap<JobId, Job>, settings: &Settings) -> Verdict {
    let request = GroupsRequest { queue: queue.clone(), after: None, limit: 1_000 };
    let page = side.store.groups(request).await.map_err(|error| error.to_string())?;
    let own = settings.get(queue).map(|(_, groups)| groups.clone()).unwrap_or_default();
    let shown: BTreeMap<_, _> =
        page.groups.iter().filter(|group| counts(group)).map(|group| (group.name.clone(), group)).collect();
    let mine = || jobs.values().filter(|job| job.spec.queue == *queue);
    let busy = mine().filter(|job| matches!(job.state, State::Ready | State::Active));
    let names: BTreeSet<_> = busy.filter_map(|job| job.spec.group.clone()).chain(own.keys().cloned()).collect();
    ensure!(names == shown.keys().cloned().collect(), "{queue} has the groups {names:?}, shown are {:?}", shown.keys());
    for (name, group) in shown {
        let count =
            |state| mine().filter(|job| job.state == state && job.spec.group.as_ref() == Some(&name)).count() as u64;
        let expected = (count(State::Ready), count(State::Active), own.get(&name).copied().unwrap_or_default());
        ensure!(
            (group.ready, group.active, group.settings) == expected,
            "{queue}: {group:?}, a recount says {expected:?}"
        );
    }
    Ok(())
}

async fn check_metrics(side: &Side, queue: &QueueName, counters: &Counters) -> Verdict {
    let (from, to) = (side.now().minus_ms(METRICS_BACK_MS), side.now());
    let request = MetricsRequest { queue: queue.clone(), from, to };
    let shown = side.store.metrics(request).await.map_err(|error| error.to_string())?;
    let minutes = from.minute()..=to.minute();
    let counted = counters.0.iter().filter(|((name, minute), _)| name == queue && minutes.contains(minute));
    let counted: BTreeMap<i64, [u64; 7]> =
        counted.map(|((_, minute), row)| (*minute, *row)).filter(|(_, row)| row.iter().sum::<u64>() > 0).collect();
    let shown: BTreeMap<i64, [u64; 7]> = shown
        .iter()
        .map(|row| (row.minute.minute(), numbers(row)))
        .filter(|(_, row)| row.iter().sum::<u64>() > 0)
        .collect();
    ensure!(shown == counted, "the metrics of {queue} are {shown:?}, the feed says {counted:?}");
    Ok(())
}

/// Every job is listed in the one state that it has, and in no other.
async fn check_lists(side: &Side, jobs: &BTreeMap<JobId, Job>) -> Verdict {
    for state in State::ALL {
        let filter = Filter { state: Some(state), ..Filter::default() };
        let listed = side.list_all(ListRequest { filter, limit: 5, ..ListRequest::default() }).await;
        let mut listed: Vec<JobId> = listed.map_err(|error| error.to_string())?.iter().map(|job| job.id).collect();
        listed.sort();
        let expected: Vec<JobId> = jobs.values().filter(|job| job.state == state).map(|job| job.id).collect();
        ensure!(listed == expected, "{listed:?} are listed as {state}, not {expected:?}");
    }
    Ok(())
}
