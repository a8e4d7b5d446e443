//! How long an answer takes, and which of our calls the server found slow.

use super::ask::{Access, ask, command, list, number, text};
use super::{Finding, count};
use crate::store::RedisStore;
use std::time::{Duration, Instant};

const PINGS: usize = 100;
/// An answer that takes longer is slow, for a server that is meant to be near.
const SLOW: Duration = Duration::from_millis(20);
/// A script of ours that runs longer holds up everybody.
const LONG_US: u64 = 100_000;
/// Scripts whose work grows with what one call brings.
const BATCHES: [&str; 4] = ["enqueue", "claim", "report", "append_logs"];

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
        Finding::warning("ping", text).hint("is the server busy (redis-cli --latency), or far away?")
    } else {
        Finding::ok("ping", text)
    })
}

/// Entries of the server's slow log that are calls of this store.
async fn slow_calls(store: &RedisStore) -> Option<Finding> {
    let answer = store.caller.link.command(&command(&["SLOWLOG", "GET", "128"])).await;
    let Ok(log) = &answer else {
        let (why, next) = Access::of(&answer).refusal("SLOWLOG GET", "+slowlog|get")?;
        return Some(Finding::info("slowlog", format!("whether calls were slow is not known: {why}")).hint(next));
    };
    let begin = format!("{{{}}}:", store.options().prefix);
    let mut ours: Vec<(u64, String)> = Vec::new();
    for entry in list(log) {
        let [_, _, micros, words, ..] = list(entry) else { continue };
        let words: Vec<String> = list(words).iter().filter_map(text).collect();
        // An examination's own questions have our keys, too.
        let asks = words.first().is_some_and(|first| first.eq_ignore_ascii_case("ACL"));
        if !asks && words.iter().any(|word| word.starts_with(&begin)) {
            ours.push((number(micros).unwrap_or(0), call_name(&words)));
        }
    }
    Some(judge(&ours))
}

/// What the slow calls say: how long each took, and what it was.
fn judge(ours: &[(u64, String)]) -> Finding {
    let Some((worst, name)) = ours.iter().max_by_key(|(micros, _)| *micros) else {
        return Finding::ok("slowlog", "no slow calls of this store");
    };
    let long: Vec<_> = ours.iter().filter(|(micros, _)| *micros >= LONG_US).collect();
    if long.is_empty() {
        let calls = count(ours.len() as u64, "slow call");
        return Finding::info("slowlog", format!("{calls} of this store, the longest {worst} µs ({name})"));
    }
    let (calls, limit, worst) = (count(long.len() as u64, "call"), LONG_US / 1_000, worst / 1_000);
    let text = format!("{calls} over {limit} ms of this store, the longest {worst} ms ({name})");
    let batches = long.iter().any(|(_, name)| BATCHES.iter().any(|batch| *name == format!("script {batch}")));
    let advice = if batches { "; if large batches are sent, send smaller ones" } else { "" };
    Finding::warning("slowlog", text)
        .hint(format!("while one runs, the server does nothing else; SLOWLOG GET says when it was{advice}"))
}

/// The script that a slow call ran, or its command.
fn call_name(words: &[String]) -> String {
    let script = words.get(1).and_then(|sha| crate::scripts::all().iter().find(|script| script.sha() == sha));
    script.map_or_else(|| words.first().cloned().unwrap_or_default(), |script| format!("script {}", script.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    #[test]
    fn slow_calls_say_what_is_known_and_no_more() {
        let of = |calls: &[(u64, &str)]| {
            judge(&calls.iter().map(|(micros, name)| (*micros, (*name).to_owned())).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).severity, Severity::Ok);
        assert_eq!(of(&[(99_999, "script enqueue")]).severity, Severity::Info);
        let long = of(&[(99_999, "script enqueue"), (250_400, "script walk"), (120_000, "HSCAN")]);
        assert_eq!(long.message, "2 calls over 100 ms of this store, the longest 250 ms (script walk)");
        assert!(!long.hint.unwrap().contains("batches"));
        assert!(of(&[(100_000, "script enqueue")]).hint.unwrap().contains("batches"));
    }

    #[test]
    fn the_scripts_of_batches_are_scripts() {
        for name in BATCHES {
            assert!(crate::scripts::all().iter().any(|script| script.name() == name), "{name}");
        }
    }
}
