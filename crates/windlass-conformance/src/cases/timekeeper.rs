//! The hint that names the process which keeps time. A store may give it to every caller; then no one ever waits.

use crate::ctx::{Ctx, worker_id};
use crate::runner::cases;
use windlass_core::store::{MaintenanceClaim, Store};

cases!("timekeeper":
    one_process_keeps_time_and_others_cannot_take_it,
    two_keepers_on_one_handle_do_not_displace_each_other,
    a_hint_that_is_renewed_does_not_end,
    a_hint_that_is_not_renewed_goes_to_the_next_caller,
    a_waiting_process_is_asked_back_when_the_hint_ends,
    the_next_deputy_takes_the_place_of_a_dead_one,
    a_hint_that_was_given_up_is_free_at_once,
    only_its_holder_gives_the_hint_up,
);

/// Longer than any test takes.
const LONG_MS: u64 = 60_000;
/// Short enough to be waited for on a real clock.
const SHORT_MS: u64 = 600;

async fn ask(store: &dyn Store, keeper: &str, ttl_ms: u64) -> MaintenanceClaim {
    store.claim_maintenance(worker_id(keeper), ttl_ms).await.unwrap()
}

/// Checks that `keeper` is told to wait, unless this store gives the hint to every caller.
async fn waits(ctx: &Ctx, store: &dyn Store, keeper: &str, ttl_ms: u64) {
    let answer = ask(store, keeper, ttl_ms).await;
    assert!(!answer.is_granted() || everybody_keeps(ctx).await, "{keeper} took the hint from its holder");
}

/// True when the store gives the hint to every caller. Leaves no trace: two who have not asked before give it back.
async fn everybody_keeps(ctx: &Ctx) -> bool {
    let mut all = true;
    for probe in ["probe-1", "probe-2"] {
        all &= ask(ctx.store.as_ref(), probe, LONG_MS).await.is_granted();
    }
    for probe in ["probe-1", "probe-2"] {
        ask(ctx.store.as_ref(), probe, 0).await;
    }
    all
}

async fn keeps(store: &dyn Store, keeper: &str, ttl_ms: u64) {
    assert_eq!(ask(store, keeper, ttl_ms).await, MaintenanceClaim::Granted, "{keeper} was not given the hint");
}

async fn one_process_keeps_time_and_others_cannot_take_it(ctx: Ctx) {
    let handles = ctx.handles(2).await;
    for _ in 0..3 {
        keeps(handles[0].as_ref(), "a", LONG_MS).await;
        waits(&ctx, handles[1].as_ref(), "b", LONG_MS).await;
    }
    // A call that is repeated because its answer was lost.
    keeps(handles[0].as_ref(), "a", LONG_MS).await;
    keeps(handles[0].as_ref(), "a", LONG_MS).await;
}

async fn two_keepers_on_one_handle_do_not_displace_each_other(ctx: Ctx) {
    let store = ctx.store.as_ref();
    for _ in 0..3 {
        keeps(store, "a", LONG_MS).await;
        waits(&ctx, store, "b", LONG_MS).await;
    }
    keeps(store, "a", LONG_MS).await;
}

async fn a_hint_that_is_renewed_does_not_end(ctx: Ctx) {
    let handles = ctx.handles(2).await;
    keeps(handles[0].as_ref(), "a", 2 * SHORT_MS).await;
    for _ in 0..4 {
        ctx.advance_ms(SHORT_MS).await;
        keeps(handles[0].as_ref(), "a", 2 * SHORT_MS).await;
        waits(&ctx, handles[1].as_ref(), "b", 2 * SHORT_MS).await;
    }
}

async fn a_hint_that_is_not_renewed_goes_to_the_next_caller(ctx: Ctx) {
    let handles = ctx.handles(2).await;
    keeps(handles[0].as_ref(), "a", SHORT_MS).await;
    ctx.advance_ms(SHORT_MS + 1).await;
    keeps(handles[1].as_ref(), "b", LONG_MS).await;
    // It was frozen, and asks as if nothing had happened.
    waits(&ctx, handles[0].as_ref(), "a", LONG_MS).await;
    keeps(handles[1].as_ref(), "b", LONG_MS).await;
}

/// The bound on how late the work of a dead timekeeper is taken over: somebody asks when its hint ends.
async fn a_waiting_process_is_asked_back_when_the_hint_ends(ctx: Ctx) {
    let handles = ctx.handles(2).await;
    keeps(handles[0].as_ref(), "a", SHORT_MS).await;
    ctx.advance_ms(SHORT_MS / 2).await;
    let MaintenanceClaim::HeldByOther { retry_after_ms } = ask(handles[1].as_ref(), "b", SHORT_MS).await else {
        return;
    };
    assert!((1..=SHORT_MS / 2).contains(&retry_after_ms), "asked back in {retry_after_ms} ms");
    // Others are asked back as well, at any time.
    for keeper in ["c", "d"] {
        let MaintenanceClaim::HeldByOther { retry_after_ms } = ask(handles[1].as_ref(), keeper, SHORT_MS).await else {
            panic!("{keeper} took the hint from its holder")
        };
        assert!(retry_after_ms > 0);
    }
    ctx.advance_ms(retry_after_ms).await;
    keeps(handles[1].as_ref(), "b", SHORT_MS).await;
}

async fn the_next_deputy_takes_the_place_of_a_dead_one(ctx: Ctx) {
    let handles = ctx.handles(2).await;
    keeps(handles[0].as_ref(), "a", SHORT_MS).await;
    waits(&ctx, handles[1].as_ref(), "b", SHORT_MS).await;
    // b is never heard of again, a is.
    for _ in 0..20 {
        ctx.advance_ms(SHORT_MS / 2).await;
        keeps(handles[0].as_ref(), "a", SHORT_MS).await;
    }
    let MaintenanceClaim::HeldByOther { retry_after_ms } = ask(handles[1].as_ref(), "c", SHORT_MS).await else {
        return;
    };
    assert!(retry_after_ms <= SHORT_MS, "asked back in {retry_after_ms} ms");
    ctx.advance_ms(SHORT_MS + 1).await;
    keeps(handles[1].as_ref(), "c", SHORT_MS).await;
}

async fn a_hint_that_was_given_up_is_free_at_once(ctx: Ctx) {
    let handles = ctx.handles(2).await;
    for _ in 0..2 {
        keeps(handles[0].as_ref(), "a", LONG_MS).await;
        waits(&ctx, handles[1].as_ref(), "b", LONG_MS).await;
        waits(&ctx, handles[0].as_ref(), "a", 0).await;
        keeps(handles[1].as_ref(), "b", LONG_MS).await;
        // Twice, because the answer was lost.
        waits(&ctx, handles[1].as_ref(), "b", 0).await;
        waits(&ctx, handles[1].as_ref(), "b", 0).await;
    }
}

async fn only_its_holder_gives_the_hint_up(ctx: Ctx) {
    let handles = ctx.handles(2).await;
    keeps(handles[0].as_ref(), "a", LONG_MS).await;
    waits(&ctx, handles[1].as_ref(), "b", LONG_MS).await;
    waits(&ctx, handles[1].as_ref(), "b", 0).await;
    waits(&ctx, handles[1].as_ref(), "never", 0).await;
    waits(&ctx, handles[1].as_ref(), "b", LONG_MS).await;
    keeps(handles[0].as_ref(), "a", LONG_MS).await;
}
