//! The store's clock, and how long its answers take.

use crate::error::OperateError;
use std::time::{Duration, Instant};
use windlass::core::finding::Finding;
use windlass::core::store::{Filter, ListRequest, Store, StoreInfo};
use windlass::core::time::{Clock, SystemClock, Timestamp};

/// A larger difference between the clocks is a warning.
const SKEW_MS: u64 = 2_000;
/// A call that takes longer is slow.
const SLOW: Duration = Duration::from_millis(250);
/// The year 2020: an earlier clock was never set.
const PAST: Timestamp = Timestamp::from_ms(1_577_836_800_000);

pub(super) async fn check(store: &dyn Store, info: &StoreInfo) -> Result<Vec<Finding>, OperateError> {
    let (theirs, ours) = (store.now().await?, SystemClock.now());
    let skew_ms = theirs.ms_since(ours).max(ours.ms_since(theirs));
    let clock = if theirs < PAST {
        Finding::error("clock", format!("the store's clock shows {theirs}"))
            .hint("set the clock; leases and delays go by it")
    } else if skew_ms > SKEW_MS {
        Finding::warning("clock", format!("the store's clock and this one differ by {skew_ms} ms"))
            .hint("run NTP on both")
    } else {
        Finding::ok("clock", format!("the store's clock shows {theirs}"))
    };

    let began = stopwatch();
    store.list(ListRequest { filter: Filter::default(), limit: 1, ..ListRequest::default() }).await?;
    let read = began();
    let began = stopwatch();
    // A write without changes: it passes through the writer.
    store.change(Vec::new()).await?;
    let write = began();
    let text = format!("a read takes {} µs, a call to the writer {} µs", read.as_micros(), write.as_micros());
    let latency = if read.max(write) > SLOW {
        Finding::warning("latency", text).hint(match info.store.as_str() {
            "redis" => "is the server busy, or far away?",
            _ => "is the disk busy, or another process writing without a pause?",
        })
    } else {
        Finding::ok("latency", text)
    };
    Ok(vec![clock, latency])
}

/// Returns a function that returns the time since.
#[expect(clippy::disallowed_methods, reason = "the latency of a real store is measured with the real clock")]
fn stopwatch() -> impl Fn() -> Duration {
    let began = Instant::now();
    move || began.elapsed()
}
