//! What the store keeps, container by container, and what of it should not have grown so.

use super::ask::{Access, ask_all, command, number};
use super::{Depth, Finding, about, bytes};
use crate::keys::NAMES;
use crate::link::{Command, Value};
use crate::store::RedisStore;
use windlass_core::store::Feed as _;
use windlass_core::{Error, Result};

/// A container with more entries blocks the server noticeably when a cluster moves it, or somebody deletes it.
const ENTRIES_MANY: u64 = 1_000_000;
/// So many entries may the feed have beyond its length: it is shortened in steps, and an entry has one or more events.
const FEED_ENTRIES_MORE: u64 = 20_000;
/// Logs of removed jobs that wait to be forgotten.
const TRASH_ENTRIES: u64 = 10_000;
/// So many log lines per job are many.
const LOG_LINES: u64 = 50_000_000;
/// So many of the largest are named.
const NAMED: usize = 5;
/// How far `MEMORY USAGE` looks: it estimates the rest.
const SAMPLES: &str = "50";

struct Container {
    name: &'static str,
    entries: u64,
    bytes: Option<u64>,
}

/// Keys of the store that hold something else: nothing of a store can be read or written there. Answers whether there are
/// any.
pub(super) async fn foreign(store: &RedisStore, findings: &mut Vec<Finding>) -> bool {
    let keys = store.caller.keys.all();
    let commands: Vec<Command> =
        keys.iter().zip(NAMES).map(|(key, name)| command(&[length_of(name), key.as_str()])).collect();
    let answers = store.caller.link.commands(&commands).await.unwrap_or_default();
    let is_foreign =
        |answer: &Result<Value>| matches!(answer, Err(Error::Corrupt { what }) if what.contains("WRONGTYPE"));
    let mut all: Vec<&str> =
        keys.iter().zip(&answers).filter(|(_, answer)| is_foreign(answer)).map(|(key, _)| key.as_str()).collect();
    let Some(first) = all.first().copied() else { return false };
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    findings.push(
        Finding::error("keys", format!("not of a store, and where its keys should be: {}{more}", all.join(", "))).hint(
            format!("choose another prefix=; or see with redis-cli TYPE '{first}' whose it is, and move it away"),
        ),
    );
    true
}

/// How the entries of a container are counted.
fn length_of(name: &str) -> &'static str {
    match name {
        "feed" => "XLEN",
        "trash" => "LLEN",
        "ready" | "ring" | "bells" | "scheduled" | "wake" | "leases" | "ended" | "removable" | "cancelling"
        | "dedup_until" | "group_names" | "parked" | "ticks" | "run_ready" | "run_wake" | "run_list"
        | "run_removable" => "ZCARD",
        _ => "HLEN",
    }
}

async fn containers(store: &RedisStore) -> Vec<Container> {
    let keys = || store.caller.keys.all().iter().zip(NAMES);
    let lengths: Vec<Vec<&str>> = keys().map(|(key, name)| vec![length_of(name), key.as_str()]).collect();
    let usages: Vec<Vec<&str>> =
        keys().map(|(key, _)| vec!["MEMORY", "USAGE", key.as_str(), "SAMPLES", SAMPLES]).collect();
    let (lengths, usages) = (ask_all(&store.caller.link, &lengths).await, ask_all(&store.caller.link, &usages).await);
    let rows = NAMES.into_iter().zip(lengths).zip(usages);
    rows.map(|((name, length), usage)| Container {
        name,
        entries: length.as_ref().and_then(number).unwrap_or(0),
        // A key that is not there is answered nothing.
        bytes: usage.map(|usage| number(&usage).unwrap_or(0)),
    })
    .collect()
}

pub(super) async fn look(store: &RedisStore, depth: Depth, findings: &mut Vec<Finding>) -> Result<()> {
    let all = containers(store).await;
    let prefix = &store.options().prefix;
    if all.iter().all(|one| one.entries == 0) {
        findings.push(Finding::info("prefix", format!("nothing is stored under the prefix `{prefix}`")).hint(
            "check prefix= and the database number in the URL; the first `windlass enqueue` makes what is needed",
        ));
        return Ok(());
    }
    let first = store.caller.keys.meta();
    let usage = Access::to(&store.caller.link, &["MEMORY", "USAGE", first]).await;
    findings.push(summary(prefix, &all, usage));
    growth(&all, store.feed_events().await?, findings);
    super::orphans::retention(store, findings).await?;
    let seen = super::orphans::records(store, depth, findings).await?;
    if let Some(ms) = seen {
        findings.push(Finding::info("age", format!("the oldest job that has not ended was made {} ago", about(ms))));
    }
    Ok(())
}

/// So many entries, for people.
pub(super) fn entries(number: u64) -> String {
    if number == 1 { "1 entry".to_owned() } else { format!("{number} entries") }
}

fn summary(prefix: &str, all: &[Container], usage: Access) -> Finding {
    let mut largest: Vec<&Container> = all.iter().filter(|one| one.entries > 0).collect();
    largest.sort_by_key(|one| std::cmp::Reverse((one.bytes, one.entries)));
    let named = largest.iter().take(NAMED).map(|one| match one.bytes {
        Some(size) => format!("{} {} ({})", one.name, bytes(size), entries(one.entries)),
        None => format!("{} ({})", one.name, entries(one.entries)),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let total: u64 = all.iter().filter_map(|one| one.bytes).sum();
    if let Some((why, next)) = usage.refusal("MEMORY USAGE", "+memory|usage") {
        return Finding::info("size", format!("`{prefix}` holds {named}; its bytes are not known: {why}")).hint(next);
    }
    Finding::ok("size", format!("`{prefix}` holds about {}: {named}", bytes(total)))
}

fn growth(all: &[Container], feed_events: u64, findings: &mut Vec<Finding>) {
    for one in all.iter().filter(|one| one.entries > ENTRIES_MANY) {
        findings
            .push(Finding::warning("big", format!("`{}` has {} entries", one.name, one.entries)).hint(
                "on a cluster, moving it blocks its node for seconds: several stores (prefixes) keep each small",
            ));
    }
    let entries = |name: &str| all.iter().find(|one| one.name == name).map_or(0, |one| one.entries);
    for (name, most, hint) in [
        ("feed", feed_events + FEED_ENTRIES_MORE, "it is cut when something is written; if it stays, report it"),
        ("trash", TRASH_ENTRIES, "maintenance empties it: does any worker run?"),
        ("logs", LOG_LINES, "keep ended jobs for less long, or log less: windlass queues set --help"),
    ] {
        if entries(name) > most {
            let text = format!("`{name}` has {} entries, more than {most}", entries(name));
            findings.push(Finding::warning("growth", text).hint(hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_grown_too_far_is_named() {
        let of = |name, entries| Container { name, entries, bytes: None };
        let mut findings = Vec::new();
        growth(&[of("feed", 120_000), of("trash", 10_000), of("jobs", 1_000_000)], 100_000, &mut findings);
        assert_eq!(findings, []);
        growth(&[of("feed", 120_001), of("trash", 10_001), of("jobs", 1_000_001)], 100_000, &mut findings);
        let checks: Vec<_> = findings.iter().map(|one| one.check).collect();
        assert_eq!(checks, ["big", "growth", "growth"], "{findings:?}");
        findings.clear();
        growth(&[of("feed", 120_001)], 200_000, &mut findings);
        assert_eq!(findings, [], "it was set longer");
    }
}
