use super::super::codec::{decode, encode};
use super::super::feed::{FeedEnds, Packed};
use super::super::memos::Memo;
use super::*;
use crate::error::Error;
use crate::job::{Dedup, DedupBy, DedupMode, Failure, FailureClass, Progress};
use crate::rate::Rate;
use crate::schedule::Rule;
use crate::store::{Beat, GroupSettings, Kinds};
use proptest::prelude::*;
use std::fmt::Debug;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn record() -> Record {
    let worker = WorkerId::new("wörker").unwrap();
    let mut life = Life::new(Some(at(5)), at(1), 3, 1);
    life.state = State::Active;
    life.held = Some(Held { token: Token::from_bits(u64::MAX), worker, expires_at: at(i64::MAX) });
    life.last_report = Some(LastReport { token: Token::from_bits(1), state: State::Cancelled });
    life.claimed_at = Some(at(-1));
    Record {
        row: Row(1 << 40),
        id: JobId::from_parts(7, u128::MAX - 1),
        queue: QueueId(1),
        lane: LaneId(2),
        group: Some(GroupId(3)),
        grouped: true,
        priority: -32_768,
        lifo: true,
        ord: Ord64(-5),
        life,
        created_at: at(1_700_000_000_000),
        ready_at: at(0),
        fingerprint: 42,
        dedup: Some([9; 16]),
        keeps_itself: true,
        remove_at: Some(at(77)),
        quarantined: true,
        run: Some(RunId::from_parts(0, 3)),
    }
}

fn spec() -> JobSpec {
    let mut spec = JobSpec::new(
        QueueName::new("q*{}").unwrap(),
        Kind::new("mail@2").unwrap(),
        Payload::new("image/png", vec![0, 255, 10]),
    );
    spec.labels = Labels::parse(["gpu", "eu"]).unwrap();
    spec.group = Some(GroupName::new("g").unwrap());
    spec.dedup = Some(Dedup { by: DedupBy::Payload, mode: DedupMode::KeepLast, ttl_ms: Some(5) });
    spec.metadata.insert("a".to_owned(), "\"b\"".to_owned());
    spec
}

fn meter() -> Meter {
    let mut meter = Meter::default();
    meter.take(Rate { limit: 2, per_ms: 1_000 }, at(5), 1);
    meter
}

fn queue() -> Queue {
    let settings = QueueSettings { paused: true, cap: Some(3), ..QueueSettings::default() };
    let (id, name, plain) = (QueueId(1), QueueName::new("q").unwrap(), GroupId(4));
    Queue { id, name, settings, counts: [1, 2, 3, 4, 5, u64::MAX], vtime: 9, meter: meter(), plain, named_ready: 8 }
}

fn lane() -> Lane {
    let (kind, labels) = (Kind::new("k").unwrap(), Labels::parse(["x"]).unwrap());
    Lane { id: LaneId(1), queue: QueueId(2), kind, labels, jobs: 3, ready: 4, head: Ord64(i64::MIN) }
}

fn group() -> Group {
    Group {
        id: GroupId(1),
        queue: QueueId(2),
        name: Some(GroupName::new("tenant").unwrap()),
        limits: GroupLimits {
            cap: Some(1),
            rate: Some(Rate { limit: 2, per_ms: 3 }),
            weight: Some(4),
            run_cap: Some(5),
        },
        ready: 5,
        active: 6,
        vtime: 7,
        meter: meter(),
        parked: Parked::Rate,
        wake_at: Some(at(8)),
    }
}

fn extra() -> Extra {
    let failure = Failure { attempt: 1, at: at(1), ..Failure::new(FailureClass::Error, "no") };
    Extra {
        progress: Some(Progress { percent: 50, message: "half".to_owned() }),
        result: Some(Payload::new("text/plain", vec![0; 5])),
        outputs: [("k".to_owned(), "v".to_owned())].into(),
        failures: vec![failure],
        held_due_at: Some(at(3)),
    }
}

fn memo() -> Memo {
    let claim = ClaimMemo { request_id: 1, fingerprint: 2, token: 3, rows: vec![Row(4), Row(5)] };
    let report = vec![(JobId::from_parts(1, 2), Token::from_bits(3), State::Failed)];
    Memo { at: at(1), claim: Some(claim), report }
}

fn worker() -> Worker {
    let beat = Beat {
        worker: WorkerId::new("w").unwrap(),
        queues: vec![QueueName::new("q").unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        slots: 4,
        running: 0,
        about: "host".to_owned(),
        ttl_ms: 10,
    };
    Worker { beat, since: at(1), seen_at: at(2) }
}

fn line() -> (u32, LogLine) {
    (2, LogLine { at: at(1), stream: LogStream::Stderr, text: vec![0, 159, 146, 150].into() })
}

/// Asks the same of every type that is a value.
fn every_value(check: &mut impl Check) {
    check.one(&record());
    check.one(&queue());
    check.one(&lane());
    check.one(&group());
    check.one(&Sub { ready: 1, vtime: Some(2) });
    check.one(&DedupRow { owner: JobId::from_parts(0, 1), until: Some(at(2)), sticky: true, successor: None });
    check.one(&spec());
    check.one(&extra());
    check.one(&memo());
    check.one(&line());
    check.one(&worker());
    check.one(&schedule());
    check.one(&MinuteMetrics { minute: at(60_000), enqueued: 1, ran_ms: u64::MAX, ..MinuteMetrics::default() });
    check.one(&FeedEnds { begin: 1, end: 2, events: 3 });
    check.one(&Packed { at: at(1), count: 2, events: Bytes::from_static(&[1, 2, 3]) });
    check.one(&(LaneId(1), GroupId(2)));
    check.one(&JobId::from_parts(1, 2));
    check.one(&Row(1));
    check.one(&GroupId(1));
    check.one(&LaneId(1));
    check.one(&true);
    check.one(&7u64);
}

trait Check {
    fn one<T: Stored + PartialEq + Debug>(&mut self, value: &T);
}

fn is_corrupt<T: Debug>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Corrupt { .. }))
}

struct ComesBack;

impl Check for ComesBack {
    fn one<T: Stored + PartialEq + Debug>(&mut self, value: &T) {
        assert_eq!(decode::<T>(&encode(value).unwrap()).as_ref(), Ok(value));
    }
}

#[test]
fn values_come_back() {
    every_value(&mut ComesBack);
    for (state, parked) in State::ALL.into_iter().zip([Parked::No, Parked::Cap, Parked::Rate].into_iter().cycle()) {
        ComesBack.one(&state);
        ComesBack.one(&parked);
    }
    ComesBack.one(&Extra::default());
    ComesBack.one(&Memo::default());
    ComesBack.one(&JobSpec::new(QueueName::new("q").unwrap(), Kind::new("k").unwrap(), Payload::default()));
}

#[test]
fn a_result_without_its_bytes_and_bytes_without_a_result_are_corrupt() {
    let mut bytes = encode(&Extra::default()).unwrap();
    bytes.pop();
    bytes.extend([1, 0, 0, 0, 0]);
    assert!(is_corrupt(&decode::<Extra>(&bytes)));
    let result = Some(Payload::new("text/plain", Bytes::new()));
    let mut bytes = encode(&Extra { result, ..Extra::default() }).unwrap();
    bytes.truncate(bytes.len() - 5);
    bytes.push(0);
    assert!(is_corrupt(&decode::<Extra>(&bytes)));
}

struct CutOrLengthened;

impl Check for CutOrLengthened {
    fn one<T: Stored + PartialEq + Debug>(&mut self, value: &T) {
        let whole = encode(value).unwrap();
        for cut in 0..whole.len() {
            assert!(is_corrupt(&decode::<T>(&whole[..cut])), "{value:?} cut at {cut}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(is_corrupt(&decode::<T>(&longer)), "{value:?} with a byte too many");
        let mut newer = whole;
        newer[0] += 1;
        assert!(is_corrupt(&decode::<T>(&newer)), "{value:?} of another version");
    }
}

#[test]
fn what_is_cut_or_too_long_or_of_another_version_is_corrupt() {
    every_value(&mut CutOrLengthened);
}

/// Senseless bytes: an error or, by chance, a value, and never anything else.
struct Senseless(Vec<u8>);

impl Check for Senseless {
    fn one<T: Stored + PartialEq + Debug>(&mut self, value: &T) {
        let outcome = decode::<T>(&self.0);
        assert!(outcome.is_ok() || is_corrupt(&outcome), "{outcome:?}");
        // The same bytes over a part of a good value get much further.
        let mut bytes = encode(value).unwrap();
        let from = self.0.first().map_or(0, |byte| usize::from(*byte) % bytes.len());
        bytes.iter_mut().skip(from).zip(&self.0).for_each(|(byte, other)| *byte = *other);
        let outcome = decode::<T>(&bytes);
        assert!(outcome.is_ok() || is_corrupt(&outcome), "{outcome:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 1..120), versioned: bool) {
        if versioned {
            bytes[0] = 1;
        }
        every_value(&mut Senseless(bytes));
    }
}

/// The format is in every store that was ever written.
#[test]
fn a_record_is_as_it_was() {
    let hex: String = encode(&record()).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
}

const GOLDEN: &str = concat!(
    "0100000000000100000700feffffffffffffffffffffffffffffff010000000000000002000000000000000103000000",
    "0000000001008001fbffffffffffffff02010500000000000000000000000300000000000000010000000000000001ff",
    "ffffffffffffff0700000077c3b6726b6572ffffffffffffff7f000101000000000000000501ffffffffffffffff0000",
    "68e5cf8b01000000000000000000002a00000000000000010909090909090909090909090909090901014d0000000000",
    "00000101000003000000000000000000000000000000",
);

fn schedule() -> Schedule {
    Schedule {
        name: crate::name::ScheduleName::new("nightly").unwrap(),
        rule: Rule::every_ms(1_000),
        spec: spec(),
        start: Some(at(1)),
        end: None,
        limit: Some(3),
        overlap: crate::schedule::Overlap::Skip,
        catch_up: crate::schedule::CatchUp::All { max: 2 },
        paused: false,
        next_tick: Some(at(2_000)),
        last_tick: None,
        last_job: Some(JobId::from_parts(0, 5)),
        fired: 1,
        revision: 2,
    }
}

#[test]
fn limits_of_a_group_are_read_from_what_was_written_as_its_settings() {
    let settings = GroupSettings { cap: Some(1), rate: Some(Rate { limit: 2, per_ms: 3 }), weight: Some(4) };
    let written = serde_json::to_string(&settings).unwrap();
    let limits: GroupLimits = serde_json::from_str(&written).unwrap();
    assert_eq!(limits, GroupLimits::default().with_settings(settings));
    assert_eq!(serde_json::to_string(&limits).unwrap(), written, "without a cap of runs the form is the same");
}

#[test]
fn a_run_of_an_earlier_version_has_the_defaults_of_what_was_added() {
    let row = RunRow {
        id: RunId::from_parts(0, 1),
        seq: 2,
        kind: Kind::new("graph").unwrap(),
        name: "a".into(),
        definition_hash: [3; 16],
        fingerprint: 4,
        state: RunState::Running,
        stuck: None,
        summary: "".into(),
        history_len: 5,
        inbox_first: 6,
        inbox_next: 7,
        held: None,
        last_token: None,
        ready: None,
        wake_at: None,
        created_at: at(8),
        changed_at: at(9),
        finished_at: None,
        keep_ms: 10,
        parent: None,
        labels: Arc::default(),
        job_results: false,
        error: None,
        segment_from: 0,
        segment_bytes: u64::MAX,
        stall_count: 0,
        unread_messages: 0,
        inbox_holes: 0,
        message_ids: 0,
        committed_by: None,
    };
    let mut bytes = encode(&row).unwrap();
    assert_eq!(decode::<RunRow>(&bytes).as_ref(), Ok(&row));
    // Parent, labels, `job_results`, error, five long numbers and a short one, and the engine.
    bytes.truncate(bytes.len() - (1 + 6 + 1 + 1 + 5 * 8 + 4 + 1));
    assert_eq!(decode::<RunRow>(&bytes), Ok(row));
}
