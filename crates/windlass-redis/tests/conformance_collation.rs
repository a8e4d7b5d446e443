//! The whole suite on servers of hosts with other locales. Redis takes the order of texts from its host, and Lua's `<` follows
//! it: in Czech, digits come behind letters, and in Danish, `aa` comes last. What the store does must not depend on that.

#![allow(clippy::unwrap_used, reason = "a test that cannot begin should stop")]

mod support;

use support::suite::{On, run_all};
use windlass_servers::Redis;

/// Runs the suite on a server with this locale, under which Lua finds the first of two texts to come behind the second.
fn run_with(locale: &str, first: &str, second: &str) {
    let server = Redis::builder().collation(locale).start().unwrap();
    let compares = "return ARGV[1] < ARGV[2] and 1 or 0";
    // Otherwise the locale has no effect, and the suite would show nothing.
    assert_eq!(server.command(&["EVAL", compares, "0", first, second]).unwrap(), "0", "{locale}");
    run_all(On { url: server.url(), scripts: Box::new(windlass_redis::scripts::all) });
}

#[test]
fn slow_the_whole_suite_passes_on_a_server_with_czech_collation() {
    run_with("cs_CZ", "9", "a");
}

#[test]
fn slow_the_whole_suite_passes_on_a_server_with_danish_collation() {
    run_with("da_DK", "aa", "b");
}
