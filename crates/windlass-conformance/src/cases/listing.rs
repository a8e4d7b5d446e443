//! Listing and looking up.

use crate::ctx::{Ctx, queue_name};
use crate::look::{group, on, on_in};
use crate::runner::cases;
use std::collections::HashMap;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Due, Lease, State};
use windlass_core::name::{CustomId, Kind, Label, Labels};
use windlass_core::payload::Payload;
use windlass_core::store::{ChangeOp, Filter, LIST_MAX, ListOrder, ListRequest};

cases!("listing":
    jobs_that_stay_appear_once_in_each_state,
    jobs_that_stay_appear_once_over_states_and_queues,
    one_direction_is_the_other_reversed,
    scheduled_by_time_active_and_ended_by_age,
    a_page_is_never_longer_than_asked,
    limits_are_bounded,
    filters_by_queue_state_kind_and_label,
    filters_by_group,
    filters_by_text,
    filters_together,
    a_page_without_matches_may_go_on,
    a_cursor_of_another_question_is_refused,
    a_tampered_cursor_is_refused,
    an_unknown_queue_has_no_jobs,
    a_summary_says_what_the_job_says,
    get_answers_in_order_with_gaps,
);

async fn page(
    ctx: &Ctx,
    filter: &Filter,
    order: ListOrder,
    cursor: Option<String>,
    limit: u32,
) -> (Vec<JobId>, Option<String>) {
    let request = ListRequest { filter: filter.clone(), order, cursor, limit };
    let page = ctx.store.list(request).await.unwrap();
    assert!(page.jobs.len() <= limit as usize);
    (page.jobs.into_iter().map(|job| job.id).collect(), page.cursor)
}

/// Pages through, three at a time, and counts how often each job appears.
struct Pages {
    filter: Filter,
    order: ListOrder,
    cursor: Option<String>,
    seen: HashMap<JobId, usize>,
    rounds: usize,
}

impl Pages {
    fn new(filter: Filter, order: ListOrder) -> Self {
        Self { filter, order, cursor: None, seen: HashMap::new(), rounds: 0 }
    }

    /// Reads a page; answers its number, or `None` when it was the last one.
    async fn next(&mut self, ctx: &Ctx) -> Option<usize> {
        let (jobs, next) = page(ctx, &self.filter, self.order, self.cursor.take(), 3).await;
        for id in jobs {
            *self.seen.entry(id).or_insert(0) += 1;
        }
        self.cursor = next;
        self.rounds += 1;
        assert!(self.rounds < 500, "the listing never ends");
        self.cursor.is_some().then_some(self.rounds - 1)
    }
}

/// Takes a job out of its state.
async fn take_out(ctx: &Ctx, id: JobId, lease: Option<Lease>) {
    match lease {
        Some(lease) => drop(ctx.complete("maker", lease).await.unwrap()),
        None => drop(ctx.change(id, ChangeOp::Remove).await.unwrap()),
    }
}

async fn make_in(ctx: &Ctx, queue: &str, state: State) -> (JobId, Option<Lease>) {
    if state != State::Active {
        return (ctx.job_in(queue, state).await, None);
    }
    let lease = ctx.active_on(queue).await.lease;
    (lease.job, Some(lease))
}

async fn jobs_that_stay_appear_once_in_each_state(ctx: Ctx) {
    for (n, order) in [ListOrder::Ascending, ListOrder::Descending].into_iter().enumerate() {
        for state in State::ALL {
            let queue = format!("{state}-{n}");
            let (mut stay, mut go) = (Vec::new(), Vec::new());
            for _ in 0..10 {
                go.push(make_in(&ctx, &queue, state).await);
                stay.push(make_in(&ctx, &queue, state).await.0);
                ctx.advance_ms(1).await;
            }
            let mut pages = Pages::new(on_in(&queue, state), order);
            while let Some(round) = pages.next(&ctx).await {
                if round < 5 {
                    make_in(&ctx, &queue, state).await;
                    for (id, lease) in [go[round], go[9 - round]] {
                        take_out(&ctx, id, lease).await;
                    }
                }
            }
            for id in stay {
                assert_eq!(pages.seen.get(&id), Some(&1), "{state} {order:?}");
            }
            assert!(pages.seen.values().all(|times| *times == 1), "{state} {order:?}: nothing appears twice");
        }
    }
}

async fn jobs_that_stay_appear_once_over_states_and_queues(ctx: Ctx) {
    for order in [ListOrder::Ascending, ListOrder::Descending] {
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for queue in ["a", "b", "c"] {
            for state in State::ALL {
                stay.push(ctx.job_in(queue, state).await);
                go.push(make_in(&ctx, queue, state).await);
                stay.push(ctx.job_in(queue, state).await);
            }
        }
        let mut pages = Pages::new(Filter::default(), order);
        while let Some(round) = pages.next(&ctx).await {
            if let Some((id, lease)) = go.pop() {
                take_out(&ctx, id, lease).await;
                make_in(&ctx, ["a", "b", "c"][round % 3], State::ALL[round % 6]).await;
            }
            if round == 2 {
                ctx.enqueue_plain("between", 2).await;
            }
        }
        for id in stay {
            assert_eq!(pages.seen.get(&id), Some(&1), "{order:?}");
        }
    }
}

async fn one_direction_is_the_other_reversed(ctx: Ctx) {
    for queue in ["a", "b"] {
        for state in State::ALL {
            for n in 0..4u64 {
                ctx.job_in(queue, state).await;
                ctx.advance_ms(n % 2).await;
            }
        }
    }
    ctx.enqueue_grouped("a", "g", 3).await;
    let mut filters = vec![Filter::default(), on("a")];
    filters.extend(State::ALL.map(|state| on_in("a", state)));
    filters.extend(State::ALL.map(|state| Filter { state: Some(state), ..Filter::default() }));
    for filter in filters {
        let mut both = Vec::new();
        for (order, limit) in [(ListOrder::Ascending, 2), (ListOrder::Descending, 5)] {
            let (mut all, mut cursor) = (Vec::new(), None);
            loop {
                let (jobs, next) = page(&ctx, &filter, order, cursor, limit).await;
                all.extend(jobs);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            both.push(all);
        }
        both[1].reverse();
        assert_eq!(both[0], both[1], "{filter:?}");
        assert!(!both[0].is_empty());
    }
}

async fn scheduled_by_time_active_and_ended_by_age(ctx: Ctx) {
    let mut jobs = Vec::new();
    for n in [3u64, 1, 2] {
        jobs.push((n, ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(n * 100_000))).await.id()));
    }
    jobs.sort_unstable();
    let order: Vec<_> = jobs.into_iter().map(|(_, id)| id).collect();
    assert_eq!(page(&ctx, &on_in("q", State::Scheduled), ListOrder::Ascending, None, 10).await.0, order);
    for state in [State::Active, State::Succeeded, State::Failed, State::Cancelled] {
        let mut made = Vec::new();
        for _ in 0..4 {
            made.push(ctx.job_in("q", state).await);
            ctx.advance_ms(2).await;
        }
        assert_eq!(page(&ctx, &on_in("q", state), ListOrder::Ascending, None, 10).await.0, made, "{state}");
        made.reverse();
        assert_eq!(page(&ctx, &on_in("q", state), ListOrder::Descending, None, 2).await.0, made[..2], "{state}");
    }
}

async fn a_page_is_never_longer_than_asked(ctx: Ctx) {
    ctx.enqueue_plain("q", 1_500).await;
    let (jobs, cursor) = page(&ctx, &on("q"), ListOrder::Ascending, None, LIST_MAX).await;
    assert_eq!(jobs.len(), 1_000);
    let (rest, cursor) = page(&ctx, &on("q"), ListOrder::Ascending, cursor, LIST_MAX).await;
    assert_eq!((rest.len(), cursor), (500, None));
    assert_eq!(page(&ctx, &on("q"), ListOrder::Ascending, None, 1).await.0, jobs[..1]);
}

async fn limits_are_bounded(ctx: Ctx) {
    for limit in [0, LIST_MAX + 1, u32::MAX] {
        let refused = ctx.store.list(ListRequest { limit, ..ListRequest::default() }).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{limit}: {refused:?}");
    }
    for text in [String::new(), "x".repeat(1_001)] {
        let filter = Filter { text: Some(text), ..Filter::default() };
        assert!(ctx.store.list(ListRequest { filter, limit: 1, ..ListRequest::default() }).await.is_err());
    }
}

async fn filters_by_queue_state_kind_and_label(ctx: Ctx) {
    let mail = ctx.enqueue(ctx.job("a", "mail")).await.id();
    let sms = ctx.enqueue(ctx.job("a", "sms").due(Due::DelayMs(60_000))).await.id();
    let mut job = ctx.job("b", "mail");
    job.spec.labels = Labels::parse(["gpu", "linux"]).unwrap();
    let labelled = ctx.enqueue(job).await.id();
    let sorted = |mut ids: Vec<JobId>| {
        ids.sort();
        ids
    };
    assert_eq!(ctx.ids_where(on("a")).await, sorted(vec![mail, sms]));
    let ready = Filter { state: Some(State::Ready), ..Filter::default() };
    assert_eq!(ctx.ids_where(ready).await, sorted(vec![mail, labelled]));
    let of_kind = Filter { kind: Some(Kind::new("mail").unwrap()), ..Filter::default() };
    assert_eq!(ctx.ids_where(of_kind.clone()).await, sorted(vec![mail, labelled]));
    assert_eq!(ctx.ids_where(Filter { queue: Some(queue_name("a")), ..of_kind }).await, [mail]);
    let with = |label: &str| Filter { label: Some(Label::new(label).unwrap()), ..Filter::default() };
    assert_eq!(ctx.ids_where(with("linux")).await, [labelled]);
    assert_eq!(ctx.ids_where(with("lin")).await, [], "labels are whole");
}

async fn filters_by_group(ctx: Ctx) {
    ctx.enqueue_grouped("q", "other", 3).await;
    ctx.enqueue_plain("q", 3).await;
    let mut mine = ctx.enqueue_grouped("q", "g", 3).await;
    let job = ctx.claim_kinds("w", "q", &["work"], 9).await;
    ctx.complete_all("w", &job[..5]).await;
    mine.sort();
    let filter = Filter { group: Some(group("g")), ..on("q") };
    assert_eq!(ctx.ids_where(filter).await, mine, "in whatever state");
}

async fn filters_by_text(ctx: Ctx) {
    let custom = ctx.job_with("q", |spec| spec.custom_id = Some(CustomId::new("invoice-4711*").unwrap()));
    let custom = ctx.enqueue(custom).await.id();
    let payload = ctx.job_with("q", |spec| spec.payload = Payload::json("größe 100%_").unwrap());
    let payload = ctx.enqueue(payload).await.id();
    let binary = ctx.job_with("q", |spec| spec.payload = Payload::new("application/x", vec![0, 255, b'n', b'e', b'e']));
    ctx.enqueue(binary).await;
    let failing = ctx.enqueue(ctx.job_with("q", |spec| spec.priority = -1)).await.id();
    let job = ctx.claim_one("w", "q").await;
    ctx.report("w", job.lease, crate::ctx::fail("Ölpumpe klemmt", windlass_core::job::Retry::Never)).await.unwrap();
    let find = |text: &str| ctx.ids_where(Filter { text: Some(text.to_owned()), ..on("q") });
    assert_eq!(find("4711").await, [custom]);
    assert_eq!(find("4711*").await, [custom], "text is text, not a pattern");
    assert_eq!(find("größe").await, [payload]);
    assert_eq!(find("0%_").await, [payload]);
    assert_eq!(find("pumpe").await, [failing]);
    assert_eq!(find("nee").await.len(), 1, "bytes are searched, too");
    assert_eq!(find("%").await, [payload]);
    assert_eq!(find("nothing of this").await, []);
}

async fn filters_together(ctx: Ctx) {
    let mut wanted = Vec::new();
    for n in 0..40usize {
        let mut job = ctx.job(["a", "b"][n % 2], ["mail", "sms"][n / 2 % 2]);
        job.spec.group = [Some(group("g")), None][n / 4 % 2].clone();
        job.spec.payload = Payload::json(["needle", "hay"][n / 8 % 2]).unwrap();
        if n % 16 == 0 {
            wanted.push(job.id);
        }
        ctx.enqueue(job).await;
    }
    wanted.sort();
    let filter = Filter {
        state: Some(State::Ready),
        kind: Some(Kind::new("mail").unwrap()),
        group: Some(group("g")),
        text: Some("needle".to_owned()),
        ..on("a")
    };
    assert_eq!(ctx.ids_where(filter.clone()).await, wanted);
    assert_eq!(ctx.ids_where(Filter { state: Some(State::Failed), ..filter }).await, []);
}

async fn a_page_without_matches_may_go_on(ctx: Ctx) {
    ctx.enqueue_plain("q", 300).await;
    let last = ctx.enqueue(ctx.grouped("q", "g")).await.id();
    let filter = Filter { group: Some(group("g")), ..on("q") };
    assert_eq!(ctx.ids_where(filter).await, [last], "whoever follows the cursor finds it");
}

async fn a_cursor_of_another_question_is_refused(ctx: Ctx) {
    ctx.enqueue_plain("q", 5).await;
    ctx.enqueue_plain("other", 5).await;
    let cursor = page(&ctx, &on("q"), ListOrder::Ascending, None, 2).await.1;
    assert!(cursor.is_some());
    for (filter, order) in [
        (on("other"), ListOrder::Ascending),
        (Filter::default(), ListOrder::Ascending),
        (on_in("q", State::Ready), ListOrder::Ascending),
        (on("q"), ListOrder::Descending),
    ] {
        let request = ListRequest { filter, order, cursor: cursor.clone(), limit: 2 };
        let refused = ctx.store.list(request).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    assert_eq!(page(&ctx, &on("q"), ListOrder::Ascending, cursor, 10).await.0.len(), 3);
}

async fn a_tampered_cursor_is_refused(ctx: Ctx) {
    ctx.enqueue_plain("q", 5).await;
    let good = page(&ctx, &on("q"), ListOrder::Ascending, None, 2).await.1.unwrap();
    let mut bad =
        vec![String::new(), "x".to_owned(), "'; DROP TABLE jobs --".to_owned(), "é".repeat(43), good.repeat(2)];
    bad.push(good[..good.len() - 1].to_owned());
    for at in 0..good.len() {
        let old = &good[at..=at];
        let mut other = good.clone();
        other.replace_range(at..=at, if old == "0" { "1" } else { "0" });
        bad.push(other);
    }
    for cursor in bad {
        let request =
            ListRequest { filter: on("q"), order: ListOrder::Ascending, cursor: Some(cursor.clone()), limit: 2 };
        let refused = ctx.store.list(request).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{cursor}: {refused:?}");
    }
}

async fn an_unknown_queue_has_no_jobs(ctx: Ctx) {
    ctx.enqueue_plain("q", 2).await;
    assert_eq!(page(&ctx, &on("none"), ListOrder::Ascending, None, 10).await, (vec![], None));
}

async fn only(ctx: &Ctx) -> windlass_core::job::JobSummary {
    let mut all = ctx.list_all(on("q")).await;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

async fn a_summary_says_what_the_job_says(ctx: Ctx) {
    let mut job = ctx.grouped_kind("q", "g", "mail");
    job.spec.priority = -3;
    job.spec.attempts = 7;
    job.spec.custom_id = Some(CustomId::new("mine").unwrap());
    let id = ctx.enqueue(job).await.id();
    let ready = only(&ctx).await;
    assert_eq!(
        (ready.id, ready.state, ready.priority, ready.attempt, ready.attempts_max),
        (id, State::Ready, -3, 0, 7)
    );
    assert_eq!((ready.queue.as_str(), ready.kind.as_str(), ready.group), ("q", "mail", Some(group("g"))));
    assert_eq!((ready.custom_id.as_deref(), ready.worker, ready.last_error), (Some("mine"), None, None));
    let claimed = ctx.claim_one("w", "q").await;
    assert_eq!(only(&ctx).await.worker.unwrap().as_str(), "w");
    ctx.fail("w", claimed.lease, windlass_core::job::Retry::AfterMs(60_000)).await.unwrap();
    let (summary, job) = (only(&ctx).await, ctx.get(id).await.unwrap());
    assert_eq!((summary.state, summary.due_at, summary.attempt), (State::Scheduled, job.due_at, 1));
    assert_eq!((summary.worker, summary.last_error.as_deref()), (None, Some("boom")));
    ctx.change(id, ChangeOp::Cancel).await.unwrap();
    let (summary, job) = (only(&ctx).await, ctx.get(id).await.unwrap());
    assert_eq!((summary.created_at, summary.claimed_at), (job.created_at, job.claimed_at));
    assert_eq!((summary.finished_at, summary.quarantined), (job.finished_at, false));
    assert!(job.finished_at.is_some());
}

async fn get_answers_in_order_with_gaps(ctx: Ctx) {
    let made = ctx.enqueue_plain("q", 3).await;
    let unknown = ctx.ids.next();
    let asked = vec![made[2], unknown, made[0], made[2]];
    let got = ctx.store.get(asked).await.unwrap();
    let ids: Vec<_> = got.iter().map(|job| job.as_ref().map(|job| job.id)).collect();
    assert_eq!(ids, [Some(made[2]), None, Some(made[0]), Some(made[2])]);
    assert_eq!(ctx.store.get(vec![]).await.unwrap(), []);
    assert!(matches!(ctx.store.get(vec![unknown; 10_001]).await, Err(Error::Limit { .. })));
    assert_eq!(ctx.store.get(vec![unknown; 10_000]).await.unwrap().len(), 10_000);
}
