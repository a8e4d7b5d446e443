//! The whole suite on a primary that Sentinels watch over.

#![allow(clippy::unwrap_used, reason = "a test that cannot begin should stop")]

mod support;

use support::suite::{On, run_all};
use windlass_servers::Sentinel;

#[test]
fn slow_the_whole_suite_passes_behind_sentinels() {
    let sentinel = Sentinel::start().unwrap();
    // A busy machine is no reason to change the primary in the middle of a case.
    for one in sentinel.sentinels() {
        one.command(&["SENTINEL", "SET", "mymaster", "down-after-milliseconds", "120000"]).unwrap();
    }
    run_all(On { url: sentinel.url(), scripts: Box::new(windlass_redis::scripts::all) });
}
