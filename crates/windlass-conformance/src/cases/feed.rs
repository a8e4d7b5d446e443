//! The feed: one entry per step, without gap or duplicate, from any cursor on.

use super::mixed::{assert_lively, mixed_run};
use crate::ctx::{Ctx, queue_name};
use crate::look::{cap, on};
use crate::runner::cases;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Due, JobSpec, Retry, State, Verb};
use windlass_core::name::{GroupName, Kind, ScheduleName};
use windlass_core::payload::Payload;
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{
    Change, ChangeManyOp, ChangeOp, EnqueueRequest, FEED_EVENTS_DEFAULT, FEED_EVENTS_MAX, FEED_EVENTS_MIN, FeedCursor,
    FeedEntry, FeedEvent, FeedRequest, Fire, Setting, SweepKind, Transition,
};

cases!("feed":
    every_step_is_one_entry_with_its_transitions,
    a_bulk_is_one_entry,
    jobs_of_one_call_are_in_the_order_of_the_call_whatever_their_lanes_and_groups,
    what_changes_nothing_is_no_entry,
    entries_come_without_gap_or_duplicate,
    concurrent_writers_leave_no_gap,
    a_reader_resumes_from_its_cursor,
    a_snapshot_and_later_events_equal_the_state,
    settings_and_schedules_are_told,
    removal_and_retention_are_told,
    the_pause_of_an_obliteration_is_told_once,
    slow_a_cursor_that_is_too_old_is_told_of_the_gap,
    a_cursor_from_the_future_is_refused,
    the_end_of_an_empty_feed_is_zero,
    the_length_is_100_000_until_it_is_set_and_holds_for_every_handle,
    a_length_that_is_out_of_range_is_refused,
    setting_the_length_is_no_entry_and_loses_nothing_that_is_within_it,
    a_feed_that_is_set_shorter_forgets_the_oldest_entries,
    a_short_feed_keeps_its_length_and_tells_older_cursors_of_the_gap,
    slow_a_longer_feed_keeps_more,
);

fn transitions(entries: &[FeedEntry]) -> Vec<Transition> {
    let events = entries.iter().flat_map(|entry| &entry.events);
    events.filter_map(|event| if let FeedEvent::Job(job) = event { Some(job.clone()) } else { None }).collect()
}

async fn every_step_is_one_entry_with_its_transitions(ctx: Ctx) {
    use State::{Active, Cancelled, Failed, Ready, Scheduled, Succeeded};
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(60_000))).await.id();
    ctx.change(id, ChangeOp::Promote).await.unwrap();
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::AfterMs(0)).await.unwrap();
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::Never).await.unwrap();
    ctx.change(id, ChangeOp::Retry(Due::Now)).await.unwrap();
    ctx.work_one("w", "q").await;
    ctx.change(id, ChangeOp::Retry(Due::Now)).await.unwrap();
    ctx.change(id, ChangeOp::Cancel).await.unwrap();
    ctx.change(id, ChangeOp::Remove).await.unwrap();
    let entries = ctx.feed_after(FeedCursor(0)).await;
    assert!(entries.iter().all(|entry| entry.events.len() == 1));
    let told: Vec<_> = transitions(&entries).into_iter().map(|t| (t.verb, t.from, t.to, t.attempt)).collect();
    let expected = [
        (Verb::Enqueue, None, Some(Scheduled), 0),
        (Verb::Promote, Some(Scheduled), Some(Ready), 0),
        (Verb::Claim, Some(Ready), Some(Active), 1),
        (Verb::Fail, Some(Active), Some(Ready), 1),
        (Verb::Claim, Some(Ready), Some(Active), 2),
        (Verb::Fail, Some(Active), Some(Failed), 2),
        (Verb::Retry, Some(Failed), Some(Ready), 0),
        (Verb::Claim, Some(Ready), Some(Active), 1),
        (Verb::Complete, Some(Active), Some(Succeeded), 1),
        (Verb::Retry, Some(Succeeded), Some(Ready), 0),
        (Verb::Cancel, Some(Ready), Some(Cancelled), 0),
        (Verb::Remove, Some(Cancelled), None, 0),
    ];
    assert_eq!(told, expected);
    assert!(transitions(&entries).iter().all(|t| t.job == id && t.queue == queue_name("q")));
}

async fn a_bulk_is_one_entry(ctx: Ctx) {
    let made = ctx.enqueue_plain("q", 50).await;
    let jobs = ctx.claim("w", "q", 50).await;
    ctx.complete_all("w", &jobs[..1]).await;
    let entries = ctx.feed_after(FeedCursor(0)).await;
    let sizes: Vec<_> = entries.iter().map(|entry| entry.events.len()).collect();
    assert_eq!(sizes, [50, 50, 1]);
    let order: Vec<_> = transitions(&entries[..1]).into_iter().map(|t| t.job).collect();
    assert_eq!(order, made, "in the order of the batch");
    let cursor = ctx.feed_end().await;
    ctx.enqueue_plain("q", 20).await;
    ctx.change_all(ChangeManyOp::CancelAll, on("q"), 1_000).await;
    let sizes: Vec<_> = ctx.feed_after(cursor).await.iter().map(|entry| entry.events.len()).collect();
    assert_eq!(sizes, [20, 20 + 49], "waiting jobs end, active ones are told");
}

async fn jobs_of_one_call_are_in_the_order_of_the_call_whatever_their_lanes_and_groups(ctx: Ctx) {
    let group = GroupName::new("acme").unwrap();
    let grouped = || ctx.job_with("q", |spec| spec.group = Some(group.clone()));
    // So that the queues and their lanes are there.
    ctx.enqueue_all(vec![ctx.job("q", "a"), ctx.job("q", "b"), ctx.job("p", "a")]).await;
    for last in [ctx.job("q", "a"), grouped()] {
        let cursor = ctx.feed_end().await;
        let jobs =
            vec![ctx.job("q", "a"), ctx.job("q", "b"), ctx.job("p", "a"), ctx.job("q", "a"), ctx.job("p", "a"), last];
        let made = ctx.enqueue_all(jobs).await;
        let entries = ctx.feed_after(cursor).await;
        let order: Vec<_> = transitions(&entries).into_iter().map(|t| t.job).collect();
        assert_eq!(order, made, "in the order of the call");
    }
}

async fn what_changes_nothing_is_no_entry(ctx: Ctx) {
    let job = ctx.job("q", "work");
    let id = ctx.enqueue(job.clone()).await.id();
    let claimed = ctx.claim_one("w", "q").await;
    ctx.complete("w", claimed.lease).await.unwrap();
    let end = ctx.feed_end().await;
    ctx.enqueue(job).await;
    ctx.complete("w", claimed.lease).await.unwrap();
    ctx.claim("w", "q", 10).await;
    assert!(ctx.change(id, ChangeOp::Cancel).await.is_err());
    ctx.store.enqueue(EnqueueRequest::new(vec![])).await.unwrap();
    for kind in SweepKind::ALL {
        ctx.sweep(kind).await;
    }
    ctx.get(id).await;
    ctx.list_all(on("q")).await;
    assert_eq!(ctx.feed_end().await, end);
}

async fn entries_come_without_gap_or_duplicate(ctx: Ctx) {
    mixed_run(&ctx, 500).await;
    let entries = ctx.feed_after(FeedCursor(0)).await;
    let cursors: Vec<_> = entries.iter().map(|entry| entry.cursor).collect();
    assert!(cursors.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
    assert!(entries.iter().all(|entry| !entry.events.is_empty()));
    assert_eq!(cursors.last(), Some(&ctx.feed_end().await));
    assert!(entries.windows(2).all(|pair| pair[0].at <= pair[1].at));
    // Page by page, whatever their size, it is the same.
    for max in [1, 7, 10_000] {
        let (mut after, mut paged) = (FeedCursor(0), Vec::new());
        loop {
            let page = ctx.store.read_feed(FeedRequest { after: Some(after), max }).await.unwrap();
            assert!(page.entries.len() <= max as usize && !page.gap);
            if page.entries.is_empty() {
                assert_eq!(page.next, after);
                break;
            }
            after = page.next;
            paged.extend(page.entries);
        }
        assert_eq!(paged, entries);
    }
}

async fn concurrent_writers_leave_no_gap(ctx: Ctx) {
    let ctx = std::sync::Arc::new(ctx);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let ctx = std::sync::Arc::clone(&ctx);
        tasks.spawn(async move {
            for _ in 0..25 {
                ctx.enqueue_plain("q", 2).await;
            }
        });
    }
    // A reader that follows meanwhile sees each entry once, though others are being written.
    let (mut after, mut seen) = (FeedCursor(0), BTreeMap::new());
    while seen.len() < 400 {
        let page = ctx.store.read_feed(FeedRequest { after: Some(after), max: 7 }).await.unwrap();
        for transition in transitions(&page.entries) {
            assert!(seen.insert(transition.job, transition.to).is_none(), "told twice");
        }
        after = page.next;
        tokio::task::yield_now().await;
        if tasks.is_empty() && page.entries.is_empty() {
            break;
        }
        while tasks.try_join_next().is_some() {}
    }
    assert_eq!(seen.len(), 400);
}

async fn a_reader_resumes_from_its_cursor(ctx: Ctx) {
    ctx.enqueue_plain("q", 3).await;
    let first = ctx.feed_end().await;
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    let entries = ctx.feed_after(first).await;
    assert_eq!(transitions(&entries)[0].job, id);
    assert_eq!(entries.len(), 1);
    assert_eq!(ctx.feed_after(entries[0].cursor).await, []);
}

async fn a_snapshot_and_later_events_equal_the_state(ctx: Ctx) {
    mixed_run(&ctx, 400).await;
    // Asked first, so that whatever happens between cursor and snapshot is told again, not lost.
    let cursor = ctx.feed_end().await;
    let snapshot = state_of(&ctx).await;
    mixed_run(&ctx, 600).await;
    assert_lively(&ctx).await;
    let state = state_of(&ctx).await;
    for (mut map, from) in [(snapshot, cursor), (BTreeMap::new(), FeedCursor(0))] {
        for transition in transitions(&ctx.feed_after(from).await) {
            let known = map.get(&transition.job).map(|(_, state, _)| *state);
            assert_eq!(known, transition.from, "{transition:?}");
            match transition.to {
                Some(to) => drop(map.insert(transition.job, (transition.queue.to_string(), to, transition.attempt))),
                None => drop(map.remove(&transition.job)),
            }
        }
        assert_eq!(map, state);
    }
}

async fn state_of(ctx: &Ctx) -> BTreeMap<JobId, (String, State, u32)> {
    let all = ctx.list_all(Default::default()).await;
    all.into_iter().map(|job| (job.id, (job.queue.to_string(), job.state, job.attempt))).collect()
}

async fn settings_and_schedules_are_told(ctx: Ctx) {
    let name = ScheduleName::new("nightly").unwrap();
    let settings = [
        Setting::Queue { queue: queue_name("q"), settings: Default::default() },
        Setting::Paused { queue: queue_name("q"), paused: true },
        Setting::KindPaused { queue: queue_name("q"), kind: Kind::new("mail").unwrap(), paused: true },
        Setting::Group { queue: queue_name("q"), group: crate::look::group("g"), settings: cap(1) },
    ];
    for setting in &settings {
        ctx.store.configure(setting.clone()).await.unwrap();
    }
    let spec = JobSpec::new(queue_name("q"), Kind::new("work").unwrap(), Payload::default());
    let now = ctx.now().await;
    let schedule =
        Schedule { next_tick: Some(now), ..Schedule::new(name.clone(), Rule::every_ms(60_000), spec.clone()) };
    ctx.store.put_schedule(schedule).await.unwrap();
    let revision = ctx.store.schedules().await.unwrap()[0].revision;
    let job = windlass_core::job::NewJob::new(ctx.ids.next(), spec);
    let fire = Fire {
        name: name.clone(),
        expected_tick: Some(now),
        revision,
        jobs: vec![job.clone()],
        next_tick: None,
        skip_if_running: false,
    };
    ctx.store.fire(fire).await.unwrap();
    ctx.store.remove_schedule(name.clone()).await.unwrap();
    ctx.store.remove_schedule(name.clone()).await.unwrap();
    let entries = ctx.feed_after(FeedCursor(0)).await;
    let told: Vec<Vec<FeedEvent>> = entries.into_iter().map(|entry| entry.events).collect();
    let mut expected: Vec<Vec<FeedEvent>> = settings.map(|setting| vec![FeedEvent::Settings(setting)]).into();
    expected.push(vec![FeedEvent::SchedulePut { schedule: name.clone() }]);
    let (queue, to) = (queue_name("q"), Some(State::Ready));
    let made = Transition { job: job.id, queue, verb: Verb::Enqueue, from: None, to, attempt: 0 };
    expected.push(vec![FeedEvent::Job(made), FeedEvent::ScheduleFired { schedule: name.clone(), tick: now }]);
    expected.push(vec![FeedEvent::ScheduleRemoved { schedule: name }]);
    assert_eq!(told, expected);
}

async fn removal_and_retention_are_told(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.retention.succeeded.age_ms = Some(0)).await;
    ctx.enqueue_plain("q", 2).await;
    let id = ctx.work_one("w", "q").await;
    let cursor = ctx.feed_end().await;
    ctx.sweep(SweepKind::Prune).await;
    let told = transitions(&ctx.feed_after(cursor).await);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].job, told[0].from, told[0].to), (id, Some(State::Succeeded), None));
    ctx.change_all(ChangeManyOp::Obliterate { force: false }, on("q"), 100).await;
    let events = ctx.feed_after(cursor).await.into_iter().flat_map(|entry| entry.events).collect::<Vec<_>>();
    assert_eq!(events.last(), Some(&FeedEvent::QueueRemoved { queue: queue_name("q") }));
}

async fn the_pause_of_an_obliteration_is_told_once(ctx: Ctx) {
    let queue = queue_name("q");
    let paused = FeedEvent::Settings(Setting::Paused { queue: queue.clone(), paused: true });
    for paused_before in [false, true] {
        ctx.enqueue_plain("q", 3).await;
        if paused_before {
            ctx.store.configure(Setting::Paused { queue: queue.clone(), paused: true }).await.unwrap();
        }
        let cursor = ctx.feed_end().await;
        ctx.change_all(ChangeManyOp::Obliterate { force: false }, on("q"), 1).await;
        let entries = ctx.feed_after(cursor).await;
        let told: Vec<_> = entries.iter().flat_map(|entry| &entry.events).collect();
        assert_eq!(transitions(&entries).len(), 3);
        assert_eq!(told.iter().position(|event| **event == paused), (!paused_before).then_some(0), "{told:?}");
        assert_eq!(told.len(), 4 + usize::from(!paused_before), "{told:?}");
        assert_eq!(told.last(), Some(&&FeedEvent::QueueRemoved { queue: queue.clone() }));
    }
}

async fn slow_a_cursor_that_is_too_old_is_told_of_the_gap(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(3_600_000))).await.id();
    let mut cursors = vec![FeedCursor(0), ctx.feed_end().await];
    for round in 0..11i16 {
        let change = |n: i16| Change { id, op: ChangeOp::Reprioritise(n % 100 + round) };
        let answers = ctx.store.change((0..10_000).map(change).collect()).await.unwrap();
        assert!(answers.iter().all(Result::is_ok));
        cursors.push(ctx.feed_end().await);
    }
    ctx.sweep(SweepKind::Prune).await;
    let gap = ctx.store.read_feed(FeedRequest { after: Some(cursors[0]), max: 10 }).await.unwrap();
    assert!(gap.gap, "110,001 events, of which about 100,000 are kept");
    assert_eq!(
        (gap.entries.len(), gap.next),
        (0, *cursors.last().unwrap()),
        "go on from here, after a look at the state"
    );
    let kept = cursors[cursors.len() - 9];
    let entries = ctx.feed_after(kept).await;
    assert_eq!(entries.iter().map(|entry| entry.events.len()).sum::<usize>(), 80_000, "the last ones are all there");
}

async fn a_cursor_from_the_future_is_refused(ctx: Ctx) {
    ctx.enqueue_plain("q", 1).await;
    let end = ctx.feed_end().await;
    for ahead in [1, 1_000_000] {
        let request = FeedRequest { after: Some(FeedCursor(end.0 + ahead)), max: 10 };
        let refused = ctx.store.read_feed(request).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    let request = FeedRequest { after: Some(FeedCursor(u64::MAX)), max: 10 };
    assert!(ctx.store.read_feed(request).await.is_err());
    for max in [0, 10_001] {
        assert!(ctx.store.read_feed(FeedRequest { after: Some(end), max }).await.is_err());
    }
}

async fn the_end_of_an_empty_feed_is_zero(ctx: Ctx) {
    assert_eq!(ctx.feed_end().await, FeedCursor(0));
    let page = ctx.store.read_feed(FeedRequest { after: Some(FeedCursor(0)), max: 10 }).await.unwrap();
    assert_eq!((page.gap, page.entries.len(), page.next), (false, 0, FeedCursor(0)));
}

/// Makes `entries` entries of 20 events each.
async fn add_entries(ctx: &Ctx, entries: usize) {
    for _ in 0..entries {
        ctx.enqueue_plain("q", 20).await;
    }
}

/// Adds events to the feed, 10,000 to an entry.
async fn add_changes(ctx: &Ctx, entries: i16) {
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(3_600_000))).await.id();
    for round in 0..entries {
        let change = |n: i16| Change { id, op: ChangeOp::Reprioritise(n % 100 + round) };
        let answers = ctx.store.change((0..10_000).map(change).collect()).await.unwrap();
        assert!(answers.iter().all(Result::is_ok));
    }
}

async fn is_gap(ctx: &Ctx, after: FeedCursor) -> bool {
    ctx.store.read_feed(FeedRequest { after: Some(after), max: 1 }).await.unwrap().gap
}

/// The oldest cursor from which the feed can be read on, and how many events come after it.
async fn kept(ctx: &Ctx) -> (FeedCursor, usize) {
    let (mut low, mut high) = (0, ctx.feed_end().await.0);
    while low < high {
        let middle = low.midpoint(high);
        if is_gap(ctx, FeedCursor(middle)).await {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let entries = ctx.feed_after(FeedCursor(low)).await;
    (FeedCursor(low), entries.iter().map(|entry| entry.events.len()).sum())
}

async fn the_length_is_100_000_until_it_is_set_and_holds_for_every_handle(ctx: Ctx) {
    let detail = async || {
        let info = ctx.store.info().await.unwrap();
        info.details.into_iter().find(|(name, _)| name == "feed events").map(|(_, value)| value)
    };
    assert_eq!(FEED_EVENTS_DEFAULT, 100_000);
    assert_eq!(ctx.store.feed_events().await.unwrap(), 100_000);
    assert_eq!(detail().await.as_deref(), Some("100000"));
    let other = ctx.handles(2).await.remove(1);
    for events in [FEED_EVENTS_MIN, FEED_EVENTS_MAX, 5_000] {
        ctx.store.set_feed_events(events).await.unwrap();
        assert_eq!(ctx.store.feed_events().await.unwrap(), events);
        assert_eq!(other.feed_events().await.unwrap(), events, "another process has the same length");
        assert_eq!(detail().await, Some(events.to_string()));
    }
    other.set_feed_events(2_000).await.unwrap();
    assert_eq!(ctx.store.feed_events().await.unwrap(), 2_000, "the last one that was set counts");
}

async fn a_length_that_is_out_of_range_is_refused(ctx: Ctx) {
    ctx.store.set_feed_events(7_000).await.unwrap();
    for events in [0, 1, FEED_EVENTS_MIN - 1] {
        let refused = ctx.store.set_feed_events(events).await;
        assert!(matches!(&refused, Err(Error::Invalid { field, .. }) if field == "feed_events"), "{refused:?}");
    }
    for events in [FEED_EVENTS_MAX + 1, u64::MAX] {
        let refused = ctx.store.set_feed_events(events).await;
        assert!(matches!(refused, Err(Error::Limit { max: FEED_EVENTS_MAX, .. })), "{refused:?}");
    }
    assert_eq!(ctx.store.feed_events().await.unwrap(), 7_000, "nothing was changed");
}

async fn setting_the_length_is_no_entry_and_loses_nothing_that_is_within_it(ctx: Ctx) {
    for _ in 0..3 {
        ctx.enqueue_plain("q", 400).await;
    }
    let end = ctx.feed_end().await;
    ctx.store.set_feed_events(1_000).await.unwrap();
    assert_eq!(ctx.feed_end().await, end);
    // The oldest entry is needed: without it 800 events would be left.
    assert_eq!(kept(&ctx).await, (FeedCursor(0), 1_200));
    ctx.enqueue_plain("q", 199).await;
    assert_eq!(kept(&ctx).await, (FeedCursor(0), 1_399));
    ctx.enqueue_plain("q", 1).await;
    let (oldest, events) = kept(&ctx).await;
    assert!(events == 1_000 || events == 1_400, "{events} events after {oldest:?}");
}

async fn a_feed_that_is_set_shorter_forgets_the_oldest_entries(ctx: Ctx) {
    add_entries(&ctx, 150).await;
    assert_eq!(kept(&ctx).await, (FeedCursor(0), 3_000));
    ctx.store.set_feed_events(1_010).await.unwrap();
    // Some stores forget when the length is set, others with the next step.
    add_entries(&ctx, 1).await;
    let (oldest, events) = kept(&ctx).await;
    assert!((1_010..=1_040).contains(&events), "{events} events after {oldest:?}");
    assert_eq!(ctx.feed_end().await.0 - oldest.0, events as u64 / 20, "no entry is missing among those that stay");
    for forgotten in [0, oldest.0 - 1] {
        assert!(is_gap(&ctx, FeedCursor(forgotten)).await, "{forgotten}");
    }
}

async fn a_short_feed_keeps_its_length_and_tells_older_cursors_of_the_gap(ctx: Ctx) {
    ctx.store.set_feed_events(1_000).await.unwrap();
    for round in 0..12 {
        ctx.enqueue_plain("q", 900).await;
        ctx.enqueue_plain("q", 1).await;
        let (oldest, events) = kept(&ctx).await;
        assert!(events >= 1_000.min(901 * (round + 1)), "{events} events after {oldest:?}");
        assert!(events <= 1_000 + 900 + 5_000, "{events} events after {oldest:?}");
    }
    let page = ctx.store.read_feed(FeedRequest { after: Some(FeedCursor(0)), max: 10 }).await.unwrap();
    assert_eq!((page.gap, page.entries.len(), page.next), (true, 0, ctx.feed_end().await));
}

async fn slow_a_longer_feed_keeps_more(ctx: Ctx) {
    ctx.store.set_feed_events(115_000).await.unwrap();
    add_changes(&ctx, 11).await;
    assert_eq!(kept(&ctx).await, (FeedCursor(0), 110_001), "the default would keep about 100,000");
    ctx.store.set_feed_events(20_000).await.unwrap();
    add_changes(&ctx, 1).await;
    let (_, events) = kept(&ctx).await;
    assert!((20_000..=40_001).contains(&events), "{events}");
}
