//! How long an answer takes, and which of our calls the server found slow.

use super::ask::{ask, list, number, text};
use super::{Finding, count};
use crate::store::RedisStore;
use std::time::{Duration, Instant};

const PINGS: usize = 100;
/// An answer that takes longer is slow, for a server that is meant to be near.
const SLOW: Duration = Duration::from_millis(20);
/// A script of ours that runs longer holds up everybody.
const LONG_US: u64 = 100_000;

pub(super) async fn look(store: &RedisStore, findings: &mut Vec<Finding>) {
    // In this order: on a server that notes every call, the pings would push the others out.
    let slow = slow_calls(store).await;
    findings.extend(pings(store).await);
    findings.extend(slow);
}

#[expect(clippy::disallowed_methods, reason = "the latency of a real server is measured with the real clock")]
async fn pings(store: &RedisStore) -> Option<Finding> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        ask(&store.caller.link, &["PING"]).await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let at = |hundredth: usize| times.get(hundredth * times.len() / 100).copied().unwrap_or_default();
    let (half, most) = (at(50), at(99));
    let text = format!("{PINGS} pings: p50 {} µs, p99 {} µs", half.as_micros(), most.as_micros());
    Some(if most > SLOW {
        Finding::warning("ping", text).hint("is the server busy (redis-cli --latency, SLOWLOG GET), or far away?")
    } else {
        Finding::ok("ping", text)
    })
}

/// Entries of the server's slow log that are calls of this store.
async fn slow_calls(store: &RedisStore) -> Option<Finding> {
    let log = ask(&store.caller.link, &["SLOWLOG", "GET", "128"]).await?;
    let begin = format!("{{{}}}:", store.options().prefix);
    let (mut ours, mut worst, mut name) = (0_u64, 0_u64, String::new());
    for entry in list(&log) {
        let [_, _, micros, words, ..] = list(entry) else { continue };
        let words: Vec<String> = list(words).iter().filter_map(text).collect();
        // An examination's own questions have our keys, too.
        let asks = words.first().is_some_and(|first| first.eq_ignore_ascii_case("ACL"));
        if asks || !words.iter().any(|word| word.starts_with(&begin)) {
            continue;
        }
        ours += 1;
        let micros = number(micros).unwrap_or(0);
        if micros > worst {
            (worst, name) = (micros, call_name(&words));
        }
    }
    let text = format!("{} of this store, the longest {worst} µs ({name})", count(ours, "slow call"));
    Some(match (ours, worst) {
        (0, _) => Finding::ok("slowlog", "no slow calls of this store"),
        (_, 0..LONG_US) => Finding::info("slowlog", text),
        _ => Finding::warning("slowlog", text)
            .hint("while it runs, the server does nothing else: smaller batches, a faster or less busy machine"),
    })
}

/// The script that a slow call ran, or its command.
fn call_name(words: &[String]) -> String {
    let script = words.get(1).and_then(|sha| crate::scripts::all().iter().find(|script| script.sha() == sha));
    script.map_or_else(|| words.first().cloned().unwrap_or_default(), |script| format!("script {}", script.name()))
}
