//! Which jobs are tried.

use super::op::{group, kind, label, queue};
use super::side::START;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use windlass_core::id::RunId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, KeepFor};
use windlass_core::name::{CustomId, DedupKey, Labels};
use windlass_core::payload::Payload;

pub(super) fn due() -> impl Strategy<Value = Due> {
    prop_oneof![
        6 => Just(Due::Now),
        3 => select(vec![1u64, 100, 1_000, 60_000]).prop_map(Due::DelayMs),
        1 => select(vec![0u64, 1_000, 100_000]).prop_map(|ms| Due::At(START.plus_ms(ms))),
    ]
}

pub(super) fn payload() -> impl Strategy<Value = Payload> {
    select(vec!["1", "\"x\"", "{}"]).prop_map(|text| Payload::new("application/json", text.as_bytes()))
}

fn dedup() -> impl Strategy<Value = Dedup> {
    let key = |text: &'static str| DedupBy::Key(DedupKey::new(text).unwrap());
    let by = prop_oneof![6 => Just(key("k1")), 1 => Just(key("k2")), 1 => Just(DedupBy::Payload)];
    let modes =
        vec![DedupMode::Reject, DedupMode::Replace, DedupMode::Throttle, DedupMode::KeepLast, DedupMode::KeepLast];
    let ttl = option::weighted(0.4, select(vec![100u64, 1_000, 60_000]));
    (by, select(modes), ttl).prop_map(|(by, mode, ttl_ms)| {
        let ttl_ms = if mode == DedupMode::Throttle { ttl_ms.or(Some(1_000)) } else { ttl_ms };
        Dedup { by, mode, ttl_ms }
    })
}

/// A key or none, and whether its job has no group: keys count within a group, and should meet each other.
fn keyed() -> impl Strategy<Value = (Option<Dedup>, bool)> {
    prop_oneof![
        2 => Just((None, false)),
        1 => (dedup(), prop::bool::weighted(0.7)).prop_map(|(dedup, alone)| (Some(dedup), alone)),
    ]
}

fn keep_for() -> impl Strategy<Value = KeepFor> {
    let ms = || option::of(select(vec![0u64, 500, 60_000]));
    prop_oneof![
        6 => Just(KeepFor::default()),
        1 => (ms(), ms()).prop_map(|(succeeded_ms, failed_ms)| KeepFor { succeeded_ms, failed_ms }),
    ]
}

pub(super) fn spec() -> impl Strategy<Value = JobSpec> {
    let names = (
        prop_oneof![3 => Just(0usize), 1 => 0..3usize],
        prop_oneof![3 => Just(0usize), 1 => 0..3usize],
        option::weighted(0.7, 0..4usize),
        prop_oneof![4 => Just(vec![]), 1 => subsequence(vec![0usize, 1, 2], 1..=2)],
        option::weighted(0.1, select(vec!["c1", "c2"])),
    );
    let order = (prop_oneof![3 => Just(0i16), 2 => -2i16..=2], prop::bool::weighted(0.2));
    let attempts = prop_oneof![20 => 1u32..=3, 1 => Just(0)];
    (names, order, attempts, 0u32..=1, keyed(), keep_for(), payload(), prop::bool::weighted(0.01)).prop_map(
        |(
            (q, k, g, labels, custom),
            (priority, lifo),
            attempts,
            stalls,
            (dedup, alone),
            keep_for,
            payload,
            of_a_run,
        )| JobSpec {
            priority,
            lifo,
            attempts,
            stalls,
            labels: Labels::new(labels.into_iter().map(label)),
            group: g.filter(|_| !alone).map(group),
            custom_id: custom.map(|text| CustomId::new(text).unwrap()),
            dedup,
            keep_for,
            run: of_a_run.then(|| RunId::from_parts(0, 1)),
            ..JobSpec::new(queue(q), kind(k), payload)
        },
    )
}
