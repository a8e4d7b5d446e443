//! What the pump waits for.

use super::{Answered, Call, LOOK_AFTER, POLL_MS_MAX, Seen};
use crate::worker::Shared;
use crate::worker::health::now;
use crate::worker::turns::Turns;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::store::WaitFor;

/// When to look whether jobs stand still.
pub(super) fn looks() -> tokio::time::Interval {
    let mut looks = tokio::time::interval(LOOK_AFTER);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    looks
}

pub(super) async fn maybe(call: &mut Option<Call>) -> Answered {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

pub(super) async fn maybe_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

pub(super) async fn maybe_sleep(pause: &mut Option<std::pin::Pin<Box<tokio::time::Sleep>>>) {
    match pause {
        Some(pause) => pause.await,
        None => std::future::pending().await,
    }
}

/// Returns when there may be something to claim.
pub(super) async fn until_work(shared: &Shared, seen: &Seen, turns: &Turns) {
    let poll_at = seen.poll_at.unwrap_or_else(now);
    let soon = match seen.next_at {
        Some(at) => match shared.store.now().await {
            Ok(store_now) => poll_at.min(now() + Duration::from_millis(at.ms_since(store_now).min(POLL_MS_MAX))),
            Err(_) => poll_at,
        },
        None => poll_at,
    };
    let wait = WaitFor::Work { queues: turns.queues.clone(), mark: seen.mark };
    tokio::select! {
        // A store that cannot say waits as long as the others.
        answer = shared.store.wait(wait) => if answer.is_err() { tokio::time::sleep_until(soon).await },
        () = tokio::time::sleep_until(soon) => {}
    }
}
