use super::*;
use crate::name::Label;
use crate::retry::RetryPolicy;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn spec() -> JobSpec {
    JobSpec::new(QueueName::new("mail").unwrap(), Kind::new("send").unwrap(), Payload::json("hello").unwrap())
}

fn job(change: impl FnOnce(&mut NewJob)) -> NewJob {
    let mut job = NewJob::new(JobId::from_parts(0, 1), spec());
    change(&mut job);
    job
}

fn labels(n: usize) -> Labels {
    Labels::parse((0..n).map(|i| format!("label-{i}"))).unwrap()
}

fn metadata(n: usize) -> BTreeMap<String, String> {
    (0..n).map(|i| (format!("key-{i}"), "value".to_owned())).collect()
}

fn dedup(by: DedupBy, mode: DedupMode, ttl_ms: Option<u64>) -> Option<Dedup> {
    Some(Dedup { by, mode, ttl_ms })
}

fn key(text: &str) -> DedupBy {
    DedupBy::Key(DedupKey::new(text).unwrap())
}

fn trace(parent: &str, state: Option<&str>) -> Option<TraceContext> {
    Some(TraceContext { parent: parent.to_owned(), state: state.map(str::to_owned) })
}

type Change = fn(&mut NewJob);

#[test]
fn the_defaults_are_those_of_the_contract() {
    let job = job(|_| {});
    job.check().unwrap();
    assert_eq!((job.due, job.spec.priority, job.spec.attempts, job.spec.stalls), (Due::Now, 0, 3, 1));
    assert_eq!((job.spec.timeout_ms, &job.spec.retry), (None, &RetryPolicy::default()));
    assert!(!job.spec.lifo && job.spec.labels.is_empty() && job.spec.metadata.is_empty());
}

#[test]
fn what_makes_no_sense_is_refused_by_the_name_of_its_field() {
    let cases: [(&str, Change); 16] = [
        ("attempts", |j| j.spec.attempts = 0),
        ("timeout_ms", |j| j.spec.timeout_ms = Some(0)),
        ("heartbeat_ms", |j| j.spec.heartbeat_ms = Some(0)),
        ("run_at", |j| j.due = Due::At(Timestamp::from_ms(-1))),
        ("run_at", |j| j.due = Due::At("9999-01-01T00:00:00Z".parse().unwrap())),
        ("run_at", |j| j.due = Due::At(Timestamp::from_ms(i64::MAX))),
        ("payload.content_type", |j| j.spec.payload.content_type = "".into()),
        ("payload.content_type", |j| j.spec.payload.content_type = "text/plain\r\nSet-Cookie: a".into()),
        ("payload.content_type", |j| j.spec.payload.content_type = "x".repeat(256).into()),
        ("dedup.ttl_ms", |j| j.spec.dedup = dedup(key("k"), DedupMode::Throttle, None)),
        ("dedup.ttl_ms", |j| j.spec.dedup = dedup(key("k"), DedupMode::Throttle, Some(0))),
        ("dedup.ttl_ms", |j| j.spec.dedup = dedup(DedupBy::Payload, DedupMode::Reject, Some(0))),
        ("retry.factor", |j| {
            j.spec.retry = RetryPolicy::Exponential { base_ms: 1, factor: 0, cap_ms: 1, jitter_percent: 0 };
        }),
        ("retry.cap_ms", |j| {
            j.spec.retry = RetryPolicy::Exponential { base_ms: 2, factor: 2, cap_ms: 1, jitter_percent: 0 };
        }),
        ("retry.delays_ms", |j| j.spec.retry = RetryPolicy::Delays { delays_ms: vec![] }),
        ("attempts", |j| (j.spec.attempts, j.spec.stalls) = (0, u32::MAX)),
    ];
    for (expected, change) in cases {
        let error = job(change).check().unwrap_err();
        assert!(matches!(&error, Error::Invalid { field, .. } if field == expected), "{expected}: {error}");
    }
}

#[test]
fn what_is_too_much_is_refused_with_its_bound() {
    let year = RETRY_DELAY_MS_MAX;
    let cases: [(&str, u64, u64, Change); 18] = [
        ("attempts", 10_000, 10_001, |j| j.spec.attempts = 10_001),
        ("attempts", 10_000, u64::from(u32::MAX), |j| j.spec.attempts = u32::MAX),
        ("stalls", 10_000, 10_001, |j| j.spec.stalls = 10_001),
        ("timeout_ms", TIMEOUT_MS_MAX, TIMEOUT_MS_MAX + 1, |j| j.spec.timeout_ms = Some(TIMEOUT_MS_MAX + 1)),
        ("timeout_ms", TIMEOUT_MS_MAX, u64::MAX, |j| j.spec.timeout_ms = Some(u64::MAX)),
        ("heartbeat_ms", TIMEOUT_MS_MAX, TIMEOUT_MS_MAX + 1, |j| j.spec.heartbeat_ms = Some(TIMEOUT_MS_MAX + 1)),
        ("delay_ms", year, year + 1, |j| j.due = Due::DelayMs(RETRY_DELAY_MS_MAX + 1)),
        ("delay_ms", year, u64::MAX, |j| j.due = Due::DelayMs(u64::MAX)),
        ("labels", 16, 17, |j| j.spec.labels = labels(17)),
        ("labels", 16, 10_000, |j| j.spec.labels = labels(10_000)),
        ("payload, in bytes,", PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, |j| {
            j.spec.payload = Payload::new("application/octet-stream", vec![0; (4 << 20) + 1]);
        }),
        ("metadata", 64, 65, |j| j.spec.metadata = metadata(65)),
        ("metadata, in bytes,", 4_096, 4_097, |j| drop(j.spec.metadata.insert("k".to_owned(), "v".repeat(4_097)))),
        ("metadata, in bytes,", 4_096, 4_097, |j| drop(j.spec.metadata.insert("k".repeat(4_097), String::new()))),
        ("metadata, in bytes,", 4_096, 4_097, |j| j.spec.trace = trace(&"p".repeat(4_097), None)),
        ("metadata, in bytes,", 4_096, 4_097, |j| j.spec.trace = trace("p", Some(&"s".repeat(4_097)))),
        ("dedup.ttl_ms", year, u64::MAX, |j| j.spec.dedup = dedup(key("k"), DedupMode::Replace, Some(u64::MAX))),
        ("retry.delay_ms", year, u64::MAX, |j| j.spec.retry = RetryPolicy::Fixed { delay_ms: u64::MAX }),
    ];
    for (what, max, got, change) in cases {
        assert_eq!(job(change).check(), Err(Error::limit(what, max, got)), "{what} {got}");
    }
}

#[test]
fn everything_passes_at_its_bound() {
    let cases: [Change; 16] = [
        |j| (j.spec.attempts, j.spec.stalls) = (1, 0),
        |j| (j.spec.attempts, j.spec.stalls) = (10_000, 10_000),
        |j| j.spec.timeout_ms = Some(1),
        |j| j.spec.timeout_ms = Some(TIMEOUT_MS_MAX),
        |j| j.spec.heartbeat_ms = Some(TIMEOUT_MS_MAX),
        |j| j.due = Due::At(Timestamp::from_ms(0)),
        |j| j.due = Due::At(Timestamp::MAX),
        |j| j.due = Due::DelayMs(RETRY_DELAY_MS_MAX),
        |j| j.spec.labels = labels(16),
        |j| j.spec.payload = Payload::new("x", vec![0; 4 << 20]),
        |j| j.spec.metadata = metadata(64),
        |j| j.spec.trace = trace(&"p".repeat(4_096), Some(&"s".repeat(4_096))),
        |j| j.spec.dedup = dedup(DedupBy::Payload, DedupMode::Reject, None),
        |j| j.spec.dedup = dedup(DedupBy::Payload, DedupMode::Throttle, Some(RETRY_DELAY_MS_MAX)),
        |j| j.spec.priority = i16::MIN,
        |j| j.spec.keep_for = KeepFor { succeeded_ms: Some(0), failed_ms: Some(u64::MAX) },
    ];
    for (i, change) in cases.into_iter().enumerate() {
        job(change).check().unwrap_or_else(|error| panic!("case {i}: {error}"));
    }
}

#[test]
fn a_due_time_is_counted_from_the_stores_clock() {
    let now = Timestamp::from_ms(1_000);
    assert_eq!(Due::Now.resolve(now), now);
    assert_eq!(Due::DelayMs(5).resolve(now), Timestamp::from_ms(1_005));
    assert_eq!(Due::DelayMs(u64::MAX).resolve(now), Timestamp::from_ms(i64::MAX));
    assert_eq!(Due::At(Timestamp::from_ms(3)).resolve(now), Timestamp::from_ms(3), "the past is allowed");
}

/// One change of every field, and of every part of a field. A field that is added to a job must be added here; the
/// pattern below does not compile without it.
fn single_changes() -> Vec<Change> {
    let JobSpec {
        queue: _,
        kind: _,
        payload: Payload { content_type: _, bytes: _ },
        priority: _,
        lifo: _,
        attempts: _,
        stalls: _,
        timeout_ms: _,
        heartbeat_ms: _,
        retry: _,
        labels: _,
        group: _,
        custom_id: _,
        dedup: _,
        keep_for: KeepFor { succeeded_ms: _, failed_ms: _ },
        metadata: _,
        trace: _,
        run: _,
        group_cap: _,
    } = spec();
    vec![
        |j| j.spec.queue = QueueName::new("mail2").unwrap(),
        |j| j.spec.kind = Kind::new("send2").unwrap(),
        |j| j.spec.payload.bytes = "\"hello \"".into(),
        |j| j.spec.payload.bytes = "".into(),
        |j| j.spec.payload.content_type = "text/plain".into(),
        |j| j.spec.priority = 1,
        |j| j.spec.priority = -1,
        |j| j.spec.lifo = true,
        |j| j.spec.attempts = 4,
        |j| j.spec.stalls = 4,
        |j| j.spec.timeout_ms = Some(1),
        |j| j.spec.timeout_ms = Some(2),
        |j| j.spec.heartbeat_ms = Some(1),
        |j| j.spec.heartbeat_ms = Some(2),
        |j| j.spec.retry = RetryPolicy::None,
        |j| j.spec.retry = RetryPolicy::Fixed { delay_ms: 1 },
        |j| j.spec.retry = RetryPolicy::Delays { delays_ms: vec![1] },
        |j| j.spec.labels = Labels::parse(["a"]).unwrap(),
        |j| j.spec.labels = Labels::parse(["ab"]).unwrap(),
        |j| j.spec.labels = Labels::parse(["a", "b"]).unwrap(),
        |j| j.spec.group = Some(GroupName::new("a").unwrap()),
        |j| j.spec.group = Some(GroupName::new("b").unwrap()),
        |j| j.spec.dedup = dedup(DedupBy::Payload, DedupMode::Reject, None),
        |j| j.spec.dedup = dedup(key("k"), DedupMode::Reject, None),
        |j| j.spec.dedup = dedup(key("l"), DedupMode::Reject, None),
        |j| j.spec.dedup = dedup(key("k"), DedupMode::Replace, None),
        |j| j.spec.dedup = dedup(key("k"), DedupMode::KeepLast, None),
        |j| j.spec.dedup = dedup(key("k"), DedupMode::Reject, Some(5)),
        |j| j.spec.keep_for.succeeded_ms = Some(0),
        |j| j.spec.keep_for.failed_ms = Some(0),
        |j| drop(j.spec.metadata.insert("a".to_owned(), "b".to_owned())),
        |j| drop(j.spec.metadata.insert("ab".to_owned(), String::new())),
        |j| j.spec.run = Some(RunId::from_parts(0, 1)),
        |j| j.spec.run = Some(RunId::from_parts(0, 2)),
        |j| j.spec.group_cap = Some(1),
        |j| j.spec.group_cap = Some(2),
        |j| j.due = Due::DelayMs(0),
        |j| j.due = Due::DelayMs(1),
        |j| j.due = Due::At(Timestamp::from_ms(0)),
        |j| j.due = Due::At(Timestamp::from_ms(1)),
    ]
}

#[test]
fn jobs_that_differ_in_anything_have_different_fingerprints() {
    let changes = single_changes();
    let mut seen = BTreeSet::from([job(|_| {}).fingerprint()]);
    for (i, change) in changes.iter().enumerate() {
        let changed = job(change);
        assert_eq!(changed.fingerprint(), changed.clone().fingerprint());
        assert!(seen.insert(changed.fingerprint()), "change {i} is not seen: {changed:?}");
    }
    // And so have jobs that differ in two things.
    for (i, first) in changes.iter().enumerate() {
        for second in changes.get(i + 1..).unwrap() {
            let both = job(|j| {
                first(j);
                second(j);
            });
            // The second of two changes to the same field undoes the first.
            if both != job(second) {
                assert!(seen.insert(both.fingerprint()), "{both:?}");
            }
        }
    }
}

#[test]
fn the_same_job_has_the_same_fingerprint_whoever_makes_it() {
    let base = job(|_| {}).fingerprint();
    assert_eq!(job(|j| j.id = JobId::from_parts(9, 9)).fingerprint(), base, "the id is what it is compared under");
    let custom = job(|j| j.spec.custom_id = Some(CustomId::new("c").unwrap()));
    assert_eq!(custom.fingerprint(), base, "and so is the custom id");
    for state in [None, Some("a=b")] {
        let traced = job(|j| j.spec.trace = trace("00-1-2-01", state));
        assert_eq!(traced.fingerprint(), base, "a trace tells who asks, not what for");
        let late = |parent| {
            job(|j| {
                j.due = Due::DelayMs(5);
                j.spec.trace = trace(parent, state);
            })
        };
        assert_eq!(late("00-1-2-01").fingerprint(), late("00-1-3-01").fingerprint(), "also beside rare fields");
    }
    let sorted = job(|j| j.spec.labels = Labels::parse(["b", "a", "b"]).unwrap());
    assert_eq!(sorted.fingerprint(), job(|j| j.spec.labels = Labels::parse(["a", "b"]).unwrap()).fingerprint());
}

/// Labels must not be able to play the part of the fields that follow them.
#[test]
fn a_label_that_looks_like_other_fields_is_still_a_label() {
    let with_timeout = job(|j| j.spec.timeout_ms = Some(5));
    let (spec, due) = (&with_timeout.spec, with_timeout.due);
    let rest = (&spec.timeout_ms, &spec.retry, &spec.dedup, &spec.keep_for, &spec.metadata, &spec.trace, due);
    let label = Label::new(serde_json::to_string(&rest).unwrap()).unwrap();
    let disguised = job(|j| j.spec.labels = Labels::new([label]));
    disguised.check().unwrap();
    assert_ne!(disguised.fingerprint(), with_timeout.fingerprint());
}

#[test]
fn a_dedup_key_counts_within_its_queue_and_group() {
    let hash = |change: Change| {
        let base = |j: &mut NewJob| j.spec.dedup = dedup(key("k"), DedupMode::Reject, None);
        job(|j| {
            base(j);
            change(j);
        })
        .spec
        .dedup_hash()
        .unwrap()
    };
    let base = hash(|_| {});
    let others: [Change; 5] = [
        |j| j.spec.queue = QueueName::new("other").unwrap(),
        |j| j.spec.group = Some(GroupName::new("g").unwrap()),
        |j| j.spec.group = Some(GroupName::new("h").unwrap()),
        |j| j.spec.dedup = dedup(key("l"), DedupMode::Reject, None),
        |j| j.spec.dedup = dedup(DedupBy::Payload, DedupMode::Reject, None),
    ];
    let all: BTreeSet<[u8; 16]> = others.into_iter().map(hash).chain([base]).collect();
    assert_eq!(all.len(), 6);
    let same: [Change; 5] = [
        |j| j.spec.kind = Kind::new("other").unwrap(),
        |j| j.spec.payload.bytes = "1".into(),
        |j| j.spec.priority = 5,
        |j| j.spec.dedup = dedup(key("k"), DedupMode::Throttle, Some(5)),
        |j| j.id = JobId::from_parts(0, 77),
    ];
    assert!(same.into_iter().all(|change| hash(change) == base));
    assert_eq!(spec().dedup_hash(), None);
}

#[test]
fn dedup_by_payload_tells_kinds_and_content_apart() {
    let hash = |change: fn(&mut JobSpec)| {
        let mut spec = JobSpec { dedup: dedup(DedupBy::Payload, DedupMode::Reject, None), ..spec() };
        change(&mut spec);
        spec.dedup_hash().unwrap()
    };
    let changes: [fn(&mut JobSpec); 6] = [
        |_| {},
        |s| s.kind = Kind::new("other").unwrap(),
        |s| s.payload.bytes = "1".into(),
        |s| s.payload.content_type = "text/plain".into(),
        |s| s.queue = QueueName::new("other").unwrap(),
        |s| s.group = Some(GroupName::new("g").unwrap()),
    ];
    assert_eq!(changes.into_iter().map(hash).collect::<BTreeSet<_>>().len(), 6);
    assert_eq!(hash(|s| s.priority = 9), hash(|_| {}));
}

#[test]
fn a_custom_id_takes_the_place_of_the_id() {
    let plain = job(|_| {});
    assert_eq!(plain.effective_id(), plain.id);
    let custom = CustomId::new("order-7").unwrap();
    let named = job(|j| j.spec.custom_id = Some(custom.clone()));
    assert_eq!(named.effective_id(), JobId::named(&named.spec.queue, None, &custom));
    let again = NewJob { id: JobId::from_parts(0, 99), ..named.clone() };
    assert_eq!(again.effective_id(), named.effective_id());
    let grouped = job(|j| {
        j.spec.custom_id = Some(custom.clone());
        j.spec.group = Some(GroupName::new("g").unwrap());
    });
    assert_ne!(grouped.effective_id(), named.effective_id());
}

fn any_retry() -> impl Strategy<Value = RetryPolicy> {
    prop_oneof![
        Just(RetryPolicy::None),
        Just(RetryPolicy::ByKind),
        any::<u64>().prop_map(|delay_ms| RetryPolicy::Fixed { delay_ms }),
        (any::<u64>(), any::<u32>(), any::<u64>(), any::<u8>()).prop_map(
            |(base_ms, factor, cap_ms, jitter_percent)| {
                RetryPolicy::Exponential { base_ms, factor, cap_ms, jitter_percent }
            }
        ),
        prop::collection::vec(any::<u64>(), 0..4).prop_map(|delays_ms| RetryPolicy::Delays { delays_ms }),
    ]
}

fn any_dedup() -> impl Strategy<Value = Dedup> {
    let by = prop_oneof![Just(DedupBy::Payload), "[a-z*{}]{1,9}".prop_map(|text| key(&text))];
    let modes = vec![DedupMode::Reject, DedupMode::Replace, DedupMode::Throttle, DedupMode::KeepLast];
    (by, prop::sample::select(modes), any::<Option<u64>>()).prop_map(|(by, mode, ttl_ms)| Dedup { by, mode, ttl_ms })
}

fn any_job() -> impl Strategy<Value = NewJob> {
    let due = prop_oneof![
        Just(Due::Now),
        any::<u64>().prop_map(Due::DelayMs),
        (0..=Timestamp::MAX.as_ms()).prop_map(|ms| Due::At(Timestamp::from_ms(ms))),
    ];
    let name = "[^\\p{Cc}]{1,20}";
    let payload = (name, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(kind, bytes)| Payload::new(kind, bytes));
    let names = (name, name, prop::option::of(name), prop::option::of(name), prop::collection::vec(name, 0..4));
    let numbers = any::<(u16, u128, i16, bool, u32, u32, Option<u64>, Option<u64>, Option<u64>)>();
    let texts = prop::collection::btree_map(".{0,8}", ".{0,8}", 0..3);
    let trace = prop::option::of((".{0,8}", prop::option::of(".{0,8}")));
    (due, payload, names, numbers, any_retry(), prop::option::of(any_dedup()), texts, trace).prop_map(
        |(due, payload, names, numbers, retry, dedup, metadata, trace)| {
            let (queue, kind, group, custom_id, labels) = names;
            let (partition, bits, priority, lifo, attempts, stalls, timeout_ms, succeeded_ms, failed_ms) = numbers;
            let spec = JobSpec {
                priority,
                lifo,
                attempts,
                stalls,
                timeout_ms,
                retry,
                labels: Labels::parse(labels).unwrap(),
                group: group.map(|text| GroupName::new(text).unwrap()),
                custom_id: custom_id.map(|text| CustomId::new(text).unwrap()),
                dedup,
                keep_for: KeepFor { succeeded_ms, failed_ms },
                metadata,
                trace: trace.map(|(parent, state)| TraceContext { parent, state }),
                ..JobSpec::new(QueueName::new(queue).unwrap(), Kind::new(kind).unwrap(), payload)
            };
            NewJob { id: JobId::from_parts(partition, bits), due, spec }
        },
    )
}

proptest! {
    #[test]
    fn every_job_comes_back_from_its_json(job in any_job()) {
        let text = serde_json::to_string(&job).unwrap();
        let back: NewJob = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(back.fingerprint(), job.fingerprint());
        prop_assert_eq!(back.effective_id(), job.effective_id());
        prop_assert_eq!(back.spec.dedup_hash(), job.spec.dedup_hash());
        prop_assert_eq!(back, job);
    }

    #[test]
    fn two_jobs_have_the_same_fingerprint_only_when_they_ask_for_the_same(a in any_job(), b in any_job()) {
        prop_assert_eq!(a.fingerprint(), NewJob { id: b.id, ..a.clone() }.fingerprint());
        prop_assert!(a.fingerprint() != b.fingerprint());
        let _ = a.check();
    }
}
