//! What the rules of a schedule come to through the store: catch-up, limits, ends, and the clocks on the wall.

use super::schedule_help::{every, find, job_ticks, put};
use crate::ctx::Ctx;
use crate::runner::cases;
use windlass_core::schedule::{CatchUp, Rule, Schedule, tick};
use windlass_core::time::Timestamp;

cases!("schedule_rules":
    catch_up_latest_makes_one_job_of_many_ticks,
    catch_up_skip_loses_what_is_older_than_the_grace,
    catch_up_all_makes_up_for_each,
    catch_up_all_is_bounded,
    a_limit_ends_a_schedule,
    an_end_ends_a_schedule,
    one_that_cannot_be_handled_stops_no_other,
    daylight_saving_time_in_spring_and_autumn,
    ticks_keep_their_beat_when_they_are_late,
);

async fn late(ctx: &Ctx, late_ms: u64, catch_up: CatchUp) -> Timestamp {
    let first = ctx.now().await.minus_ms(late_ms);
    put(ctx, Schedule { next_tick: Some(first), catch_up, ..every("s", 60_000) }).await;
    first
}

async fn catch_up_latest_makes_one_job_of_many_ticks(ctx: Ctx) {
    let first = late(&ctx, 600_100, CatchUp::Latest).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 1);
    assert_eq!(job_ticks(&ctx, "s").await, [first.plus_ms(600_000)]);
    let after = find(&ctx, "s").await;
    assert_eq!(after.next_tick, Some(first.plus_ms(660_000)));
    assert_eq!(after.fired, 1);
}

async fn catch_up_skip_loses_what_is_older_than_the_grace(ctx: Ctx) {
    let first = late(&ctx, 610_000, CatchUp::Skip).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 1);
    assert_eq!(job_ticks(&ctx, "s").await, [first.plus_ms(600_000)], "ten seconds are late, not missed");
    let first = ctx.now().await.minus_ms(10 * 3_600_000 - 120_000);
    let rule = Rule::every_ms(10 * 3_600_000);
    let rare = Schedule { rule, next_tick: Some(first), catch_up: CatchUp::Skip, ..every("rare", 60_000) };
    put(&ctx, rare).await;
    let ticked = tick(&*ctx.store, 10).await.unwrap();
    assert_eq!((ticked.handled, ticked.jobs), (1, 0), "it is lost, and the schedule moves on");
    assert_eq!(find(&ctx, "rare").await.next_tick, Some(first.plus_ms(10 * 3_600_000)));
}

async fn catch_up_all_makes_up_for_each(ctx: Ctx) {
    let first = late(&ctx, 240_100, CatchUp::All { max: 100 }).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 5);
    let expected: Vec<_> = (0..5).map(|n| first.plus_ms(n * 60_000)).collect();
    assert_eq!(job_ticks(&ctx, "s").await, expected);
    assert_eq!(find(&ctx, "s").await.fired, 5);
}

async fn catch_up_all_is_bounded(ctx: Ctx) {
    let first = late(&ctx, 60_000 * 1_000_000 + 100, CatchUp::All { max: 3 }).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 3);
    let expected: Vec<_> = (999_998..=1_000_000).map(|n| first.plus_ms(n * 60_000)).collect();
    assert_eq!(job_ticks(&ctx, "s").await, expected, "the latest ones");
}

async fn a_limit_ends_a_schedule(ctx: Ctx) {
    let first = ctx.now().await.minus_ms(600_100);
    let catch_up = CatchUp::All { max: 100 };
    put(&ctx, Schedule { next_tick: Some(first), catch_up, limit: Some(4), ..every("s", 60_000) }).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 4);
    let after = find(&ctx, "s").await;
    assert_eq!((after.next_tick, after.fired), (None, 4));
    assert!(after.is_over());
    assert_eq!(ctx.store.due_schedules(10).await.unwrap(), []);
}

async fn an_end_ends_a_schedule(ctx: Ctx) {
    let first = ctx.now().await.minus_ms(600_100);
    let end = Some(first.plus_ms(120_000));
    let catch_up = CatchUp::All { max: 100 };
    put(&ctx, Schedule { next_tick: Some(first), catch_up, end, ..every("s", 60_000) }).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 3, "the end itself is a tick");
    assert_eq!(find(&ctx, "s").await.next_tick, None);
}

async fn one_that_cannot_be_handled_stops_no_other(ctx: Ctx) {
    let now = ctx.now().await;
    ctx.set_queue("full", |settings| settings.len_max = Some(0)).await;
    for n in 0..5 {
        let spec = super::schedule_help::spec("full");
        let next_tick = Some(now.minus_ms(1_000));
        put(&ctx, Schedule { spec, next_tick, ..every(&format!("stuck-{n}"), 60_000) }).await;
    }
    put(&ctx, Schedule { next_tick: Some(now), ..every("fine", 60_000) }).await;
    let ticked = tick(&*ctx.store, 2).await.unwrap();
    assert_eq!(ticked.jobs, 1, "the others are more overdue and must not hide it");
    assert_eq!(job_ticks(&ctx, "fine").await, [now]);
    assert!(!ticked.failed.is_empty());
    assert_eq!(find(&ctx, "stuck-0").await.next_tick, Some(now.minus_ms(1_000)), "what failed stays due");
}

async fn daylight_saving_time_in_spring_and_autumn(ctx: Ctx) {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let rows = [
        // The clocks in Berlin leave 02:30 out on March 26.
        (
            "30 2 * * *",
            "2023-03-25T01:30:00Z",
            "2023-03-27T12:00:00Z",
            vec!["2023-03-25T01:30:00Z", "2023-03-26T01:00:00Z", "2023-03-27T00:30:00Z"],
        ),
        // They show 02:30 twice on October 30.
        (
            "30 2 * * *",
            "2022-10-29T00:30:00Z",
            "2022-10-31T12:00:00Z",
            vec!["2022-10-29T00:30:00Z", "2022-10-30T00:30:00Z", "2022-10-31T01:30:00Z"],
        ),
    ];
    for (n, (expression, first, end, expected)) in rows.into_iter().enumerate() {
        let name = format!("berlin-{n}");
        let rule = Rule::cron_in("Europe/Berlin", expression);
        let (next_tick, end) = (Some(at(first)), Some(at(end)));
        put(&ctx, Schedule { rule, next_tick, end, catch_up: CatchUp::All { max: 100 }, ..every(&name, 1_000) }).await;
        tick(&*ctx.store, 10).await.unwrap();
        assert_eq!(job_ticks(&ctx, &name).await, expected.into_iter().map(at).collect::<Vec<_>>(), "{expression}");
    }
}

async fn ticks_keep_their_beat_when_they_are_late(ctx: Ctx) {
    let now = ctx.now().await;
    put(&ctx, every("s", 1_000).arm(None, now).unwrap()).await;
    ctx.advance_ms(1_300).await;
    tick(&*ctx.store, 10).await.unwrap();
    assert_eq!(job_ticks(&ctx, "s").await, [now.plus_ms(1_000)]);
    let next = find(&ctx, "s").await.next_tick.unwrap();
    assert_eq!(next.ms_since(now) % 1_000, 0, "not 300 ms later for ever");
}
