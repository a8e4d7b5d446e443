//! What no case of the suite can see: damaged bytes, an engine that fails, steps that are taken back.

use super::keys::Key;
use super::{Entry, KvTables, OrderedKv, Scan, keys};
use crate::engine::{
    Effects, FeedTables, JobTables, PreparedCommit, PreparedRun, QueueTables, Row, ScheduleTables, Step,
};
use crate::error::{Error, Result};
use crate::id::{JobId, RunId};
use crate::job::{Dedup, DedupBy, DedupMode, Job, JobSpec, NewJob, State};
use crate::name::{DedupKey, Kind, Labels, QueueName, ScheduleName, WorkerId};
use crate::payload::Payload;
use crate::random::StrongRandom;
use crate::schedule::{Rule, Schedule};
use crate::store::{
    ChangeOp, ClaimRequest, ClaimedJob, EnqueueRequest, Kinds, NewRun, Outcome, OutcomeKind, ReportRequest, RunClaim,
    RunCommit, RunMessage, RunStep, Sweep, SweepKind,
};
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;

/// An engine that can be told to fail, and that checks what it is asked.
#[derive(Clone, Debug, Default)]
struct Map {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Writes that still work before one does not.
    writes_left: Option<usize>,
}

impl Map {
    fn write(&mut self) -> Result<()> {
        match self.writes_left {
            Some(0) => {
                self.writes_left = None;
                Err(Error::Unavailable { reason: "the disk was away".to_owned() })
            }
            left => {
                self.writes_left = left.map(|left| left - 1);
                Ok(())
            }
        }
    }
}

impl OrderedKv for Map {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.entries.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write()?;
        self.entries.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write()?;
        self.entries.remove(key);
        Ok(())
    }

    fn scan(&mut self, scan: Scan<'_>) -> Result<Vec<Entry>> {
        assert!(scan.from < scan.to && (1..=1_000).contains(&scan.limit), "{scan:?}");
        let range = self.entries.range::<[u8], _>((Bound::Included(scan.from), Bound::Excluded(scan.to)));
        let mut found: Vec<Entry> = range.map(|(key, value)| (key.clone(), value.clone())).collect();
        if scan.reverse {
            found.reverse();
        }
        found.truncate(scan.limit);
        Ok(found)
    }
}

struct Bench {
    tables: KvTables<Map>,
    random: StrongRandom,
    now: Timestamp,
    requests: u64,
}

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

impl Bench {
    fn new() -> Self {
        let tables = KvTables::open(Map::default()).unwrap();
        Self { tables, random: StrongRandom::seeded(1), now: NOW, requests: 0 }
    }

    fn step<R>(&mut self, work: impl FnOnce(&mut Step<'_, KvTables<Map>>) -> Result<R>) -> Result<(R, Effects)> {
        let mut step = Step::new(&mut self.tables, &self.random, self.now);
        let done = work(&mut step).and_then(|outcome| Ok((outcome, step.finish()?)));
        done.and_then(|done| self.tables.flush().map(|()| done))
    }

    fn enqueue(&mut self, id: u128, edit: impl FnOnce(&mut NewJob)) -> JobId {
        let id = JobId::from_parts(0, id);
        let spec = JobSpec::new(QueueName::new("q").unwrap(), Kind::new("k").unwrap(), Payload::default());
        let mut job = NewJob::new(id, spec);
        edit(&mut job);
        self.step(|step| step.enqueue(EnqueueRequest::new(vec![job]))).unwrap().0.remove(0).unwrap();
        id
    }

    fn claim(&mut self, max: u32) -> Vec<ClaimedJob> {
        self.requests += 1;
        let request = ClaimRequest {
            worker: WorkerId::new("w").unwrap(),
            request_id: self.requests,
            queues: vec![QueueName::new("q").unwrap()],
            kinds: Kinds::Any,
            labels: Labels::default(),
            max,
            lease_ms: 30_000,
        };
        self.step(|step| step.claim(&request)).unwrap().0.jobs
    }

    fn complete(&mut self, job: &ClaimedJob) {
        let kind = OutcomeKind::Complete { result: None, outputs: BTreeMap::new() };
        let request =
            ReportRequest { worker: WorkerId::new("w").unwrap(), outcomes: vec![Outcome { lease: job.lease, kind }] };
        self.step(|step| step.report(request)).unwrap().0.remove(0).unwrap();
    }

    fn get(&mut self, id: JobId) -> Option<Job> {
        self.step(|step| step.get(&[id])).unwrap().0.remove(0)
    }

    /// Jobs per state, as the queue counts them.
    fn counts(&mut self) -> [u64; 6] {
        let queue = self.tables.queues().unwrap()[0];
        self.tables.queue(queue).unwrap().counts
    }

    fn row(&mut self, id: JobId) -> Row {
        self.tables.find_job(id).unwrap().unwrap()
    }

    fn damage(&mut self, key: &Key) {
        let value = self.tables.kv_mut().entries.get_mut(key.bytes()).expect("there is something to damage");
        value.truncate(3);
        self.tables.forget();
    }

    /// No index names the row, except the one of ended jobs.
    fn assert_set_aside(&mut self, id: JobId) {
        let job = self.get(id).expect("a damaged job is shown");
        assert_eq!((job.state, job.quarantined.is_some()), (State::Failed, true), "{job:?}");
        let counted: u64 = self.counts().iter().sum();
        assert_eq!(
            counted,
            self.tables.kv_mut().entries.keys().filter(|key| key[0] == keys::Table::Record as u8).count() as u64
        );
        self.tables.forget();
        assert!(self.claim(10).iter().all(|claimed| claimed.lease.job != id));
        // It can be removed, and nothing of it stays.
        let row = self.row(id);
        let change = crate::store::Change { id, op: ChangeOp::Remove };
        self.step(|step| step.change(vec![change])).unwrap().0.remove(0).unwrap();
        assert_eq!(self.get(id), None);
        let left: Vec<_> = self.tables.kv_mut().entries.keys().filter(|key| names(key, row)).cloned().collect();
        assert_eq!(left, Vec::<Vec<u8>>::new());
    }
}

/// A key of a table that is about one job, and ends with this row.
fn names(key: &[u8], row: Row) -> bool {
    (keys::Table::Record as u8..=keys::Table::Removable as u8).contains(&key[0]) && key.ends_with(&row.0.to_be_bytes())
}

#[test]
fn a_ready_job_that_cannot_be_read_is_set_aside_and_the_next_one_is_claimed() {
    let mut bench = Bench::new();
    let (bad, good) = (bench.enqueue(1, |_| {}), bench.enqueue(2, |_| {}));
    let row = bench.row(bad);
    bench.damage(&keys::record(row));
    assert!(matches!(bench.tables.record(row), Err(Error::Corrupt { .. })));
    assert!(bench.get(bad).unwrap().quarantined.is_some());
    let claimed = bench.claim(10);
    assert_eq!(claimed.iter().map(|job| job.lease.job).collect::<Vec<_>>(), [good]);
    assert_eq!(bench.counts(), [0, 0, 1, 0, 1, 0]);
    bench.assert_set_aside(bad);
    bench.complete(&claimed[0]);
    assert_eq!(bench.counts(), [0, 0, 0, 1, 0, 0]);
}

#[test]
fn so_is_a_scheduled_one_an_active_one_and_an_ended_one() {
    let mut bench = Bench::new();
    let scheduled = bench.enqueue(1, |job| job.due = crate::job::Due::DelayMs(1_000));
    let row = bench.row(scheduled);
    bench.damage(&keys::record(row));
    bench.now = NOW.plus_ms(1_000);
    bench.step(|step| step.sweep(Sweep { kind: SweepKind::Promote, max: 10 })).unwrap();
    assert_eq!(bench.counts(), [0, 0, 0, 0, 1, 0]);
    bench.assert_set_aside(scheduled);

    let active = bench.enqueue(2, |_| {});
    assert_eq!(bench.claim(1).len(), 1);
    bench.step(|step| step.change(vec![crate::store::Change { id: active, op: ChangeOp::Cancel }])).unwrap();
    let row = bench.row(active);
    bench.damage(&keys::record(row));
    bench.now = bench.now.plus_ms(30_000);
    bench.step(|step| step.sweep(Sweep { kind: SweepKind::Reap, max: 10 })).unwrap();
    assert_eq!(bench.counts(), [0, 0, 0, 0, 1, 0]);
    assert_eq!(bench.tables.cancelling(&WorkerId::new("w").unwrap()).unwrap(), []);
    bench.assert_set_aside(active);

    let ended = bench.enqueue(3, |job| job.spec.keep_for.succeeded_ms = Some(1));
    let job = bench.claim(1).remove(0);
    bench.complete(&job);
    let row = bench.row(ended);
    bench.damage(&keys::record(row));
    bench.now = bench.now.plus_ms(10);
    bench.step(|step| step.sweep(Sweep { kind: SweepKind::Prune, max: 10 })).unwrap();
    assert_eq!(bench.counts(), [0, 0, 0, 0, 1, 0]);
    bench.assert_set_aside(ended);
}

#[test]
fn a_job_whose_spec_cannot_be_read_or_whose_index_is_wrong_is_set_aside() {
    let mut bench = Bench::new();
    let id = bench.enqueue(1, |_| {});
    let row = bench.row(id);
    bench.damage(&keys::spec(row));
    assert_eq!(bench.claim(1), []);
    bench.assert_set_aside(id);

    let id = bench.enqueue(2, |_| {});
    let job = bench.claim(1).remove(0);
    let ready = bench.tables.kv_mut().clone();
    bench.complete(&job);
    let row = bench.row(id);
    // The index of leases as it was before: it names a job that has ended.
    let lease = keys::lease(job.expires_at, row);
    bench.tables.kv_mut().entries.insert(lease.bytes().to_vec(), ready.entries[lease.bytes()].clone());
    bench.tables.forget();
    bench.now = NOW.plus_ms(60_000);
    bench.step(|step| step.sweep(Sweep { kind: SweepKind::Reap, max: 10 })).unwrap();
    assert_eq!(bench.step(|step| step.sweep(Sweep { kind: SweepKind::Reap, max: 10 })).unwrap().0.handled, 0);
    bench.assert_set_aside(id);
}

#[test]
fn a_key_that_only_the_table_of_keys_remembers_is_freed() {
    let mut bench = Bench::new();
    let by = || DedupBy::Key(DedupKey::new("once").unwrap());
    let keyed = |job: &mut NewJob| job.spec.dedup = Some(Dedup { by: by(), mode: DedupMode::Reject, ttl_ms: None });
    let bad = bench.enqueue(1, keyed);
    let row = bench.row(bad);
    bench.damage(&keys::record(row));
    bench.damage(&keys::spec(row));
    assert_eq!(bench.claim(1), []);
    let next = bench.enqueue(2, keyed);
    assert_eq!(bench.get(next).unwrap().state, State::Ready);
    bench.assert_set_aside(bad);
}

#[test]
fn a_record_under_the_row_of_another_is_damaged() {
    let mut bench = Bench::new();
    let (one, other) = (bench.enqueue(1, |_| {}), bench.enqueue(2, |_| {}));
    let (one, other) = (bench.row(one), bench.row(other));
    let entries = &mut bench.tables.kv_mut().entries;
    let bytes = entries[keys::record(other).bytes()].clone();
    entries.insert(keys::record(one).bytes().to_vec(), bytes);
    assert!(matches!(bench.tables.record(one), Err(Error::Corrupt { .. })));
    assert_eq!(bench.tables.salvage(one).unwrap().unwrap().row, one);
}

#[test]
fn a_damaged_schedule_can_be_replaced_and_leaves_no_tick_behind() {
    let mut bench = Bench::new();
    let spec = JobSpec::new(QueueName::new("q").unwrap(), Kind::new("k").unwrap(), Payload::default());
    let mut schedule = Schedule::new(ScheduleName::new("s").unwrap(), Rule::every_ms(1_000), spec);
    schedule.next_tick = Some(NOW);
    bench.tables.put_schedule(schedule.clone()).unwrap();
    bench.damage(&keys::schedule(schedule.name.clone()));
    assert!(matches!(bench.tables.due_schedules(NOW, 10), Err(Error::Corrupt { .. })));
    schedule.next_tick = Some(NOW.plus_ms(5));
    bench.tables.put_schedule(schedule.clone()).unwrap();
    assert_eq!(bench.tables.due_schedules(NOW, 10).unwrap(), []);
    assert_eq!(bench.tables.due_schedules(NOW.plus_ms(5), 10).unwrap(), [schedule.clone()]);
    bench.tables.remove_schedule(&schedule.name).unwrap();
    assert_eq!(bench.tables.due_schedules(NOW.plus_ms(5), 10).unwrap(), []);
}

#[test]
fn a_step_that_the_engine_failed_is_not_to_be_committed_whatever_its_items_say() {
    let mut bench = Bench::new();
    bench.enqueue(1, |_| {});
    for writes in 0..200 {
        let before = bench.tables.kv_mut().clone();
        bench.tables.kv_mut().writes_left = Some(writes);
        let spec = JobSpec::new(QueueName::new("q").unwrap(), Kind::new("other").unwrap(), Payload::default());
        let job = NewJob::new(JobId::from_parts(0, 2), spec);
        let outcome = bench.step(|step| step.enqueue(EnqueueRequest::new(vec![job])));
        if bench.tables.kv_mut().writes_left.is_some() {
            assert_eq!(outcome.unwrap().0.len(), 1);
            assert!(writes > 3, "a job takes more than {writes} writes");
            return;
        }
        assert!(matches!(outcome, Err(Error::Unavailable { .. })), "write {writes}: {outcome:?}");
        *bench.tables.kv_mut() = before;
        bench.tables.forget();
        assert_eq!(bench.counts(), [0, 1, 0, 0, 0, 0]);
        assert_eq!(bench.get(JobId::from_parts(0, 2)), None);
    }
    panic!("it never worked");
}

#[test]
fn tables_of_another_layout_are_refused_and_ones_own_are_opened_again() {
    let mut bench = Bench::new();
    let id = bench.enqueue(1, |_| {});
    let mut kv = bench.tables.into_kv();
    let mut again = Bench { tables: KvTables::open(kv.clone()).unwrap(), ..Bench::new() };
    assert_eq!(again.get(id).unwrap().state, State::Ready);
    kv.entries.insert(keys::layout().bytes().to_vec(), super::codec::encode(&9u64).unwrap());
    assert!(matches!(KvTables::open(kv.clone()), Err(Error::Incompatible { .. })));
    kv.entries.insert(keys::layout().bytes().to_vec(), b"nonsense".to_vec());
    assert!(matches!(KvTables::open(kv), Err(Error::Corrupt { .. })));
}

#[test]
fn the_feed_lets_go_of_its_oldest_and_gets_past_what_it_cannot_read() {
    let mut bench = Bench::new();
    for id in 1..=5 {
        bench.enqueue(id, |_| {});
    }
    bench.tables.trim_feed(3).unwrap();
    assert_eq!(
        (bench.tables.feed_begin().unwrap(), bench.tables.feed_end().unwrap()),
        (3, 5),
        "what stays holds at least three"
    );
    bench.tables.flush().unwrap();
    bench.damage(&keys::feed_entry(4));
    let entries = bench.tables.feed(2, 10).unwrap();
    assert_eq!(
        entries.iter().map(|entry| (entry.cursor.0, entry.events.len())).collect::<Vec<_>>(),
        [(3, 1), (4, 0), (5, 1)]
    );
}

#[test]
fn ranges_of_many_pages_are_read_in_order_both_ways() {
    let mut db = super::db::Db::new(Map::default());
    for number in 1..=2_500u64 {
        db.put(&keys::feed_entry(number), &number).unwrap();
    }
    let numbers = |entries: Vec<Entry>| -> Vec<u64> {
        entries.iter().map(|(_, value)| super::codec::decode(value).unwrap()).collect()
    };
    let range = keys::feed().under();
    assert!(numbers(db.all(range.clone()).unwrap()).into_iter().eq(1..=2_500));
    assert!(numbers(db.all(range.clone().backwards()).unwrap()).into_iter().eq((1..=2_500).rev()));
    assert!(numbers(db.some(range.clone().backwards(), 1_500).unwrap()).into_iter().eq((1_001..=2_500).rev()));
    assert_eq!(db.some(range, 0).unwrap(), []);
}

#[test]
fn a_step_forgets_a_bounded_number_of_feed_entries() {
    let mut bench = Bench::new();
    for id in 1..=3_000 {
        bench.enqueue(id, |_| {});
    }
    for begin in [1_001, 2_001, 2_996] {
        bench.tables.trim_feed(5).unwrap();
        assert_eq!((bench.tables.feed_begin().unwrap(), bench.tables.feed_end().unwrap()), (begin, 3_000));
    }
}

#[test]
fn a_length_of_the_feed_that_cannot_be_read_is_the_default() {
    let mut bench = Bench::new();
    bench.step(|step| step.set_feed_events(2_000)).unwrap();
    bench.tables.forget();
    assert_eq!(bench.tables.feed_events().unwrap(), Some(2_000), "it is stored");
    bench.damage(&keys::feed_events());
    assert_eq!(bench.tables.feed_events().unwrap(), None);
    for events in [0u64, 999, 10_000_001] {
        let stored = super::codec::encode(&events).unwrap();
        bench.tables.kv_mut().entries.insert(keys::feed_events().bytes().to_vec(), stored);
        bench.tables.forget();
        assert_eq!(bench.tables.feed_events().unwrap(), None, "{events} is out of range");
    }
    assert_eq!(Step::new(&mut bench.tables, &bench.random, NOW).feed_events().unwrap(), 100_000);
}

#[test]
fn a_damaged_item_of_a_long_inbox_hides_no_other() {
    let (run, kind) = (RunId::from_parts(0, 7), Kind::new("graph").unwrap());
    let mut bench = Bench::new();
    let (name, definition, input) = ("a".into(), "d".into(), "{}".into());
    let new = NewRun { name, definition, input, ..NewRun::new(run, kind.clone()) };
    bench.step(|step| step.create_runs(PreparedRun::batch(vec![new])?)).unwrap().0.remove(0).unwrap();
    let message = |n: u32| RunMessage::new(run, n.to_string());
    bench.step(|step| step.send_to_runs((0..1_500).map(message).collect())).unwrap();
    bench.tables.kv_mut().entries.insert(keys::run_item(run, 3).bytes().to_vec(), b"{".to_vec());
    let engine = WorkerId::new("e").unwrap();
    let claim = RunClaim { run: Some(run), lease_ms: 60_000, ..RunClaim::new(engine, vec![kind]) };
    let (mut items, mut taken) = (0, 0);
    for _ in 0..2 {
        let claimed = bench.step(|step| step.claim_runs(&claim)).unwrap().0.runs.remove(0);
        items += claimed.inbox.len();
        taken += claimed.inbox_taken;
        let (lease, history_len, inbox_to) = (claimed.lease, claimed.history_len, claimed.inbox_to);
        let commit = RunCommit { inbox_to, ..RunCommit::new(lease, history_len, RunStep::nothing()) };
        bench.step(|step| step.commit_runs(PreparedCommit::batch(vec![commit])?)).unwrap().0.remove(0).unwrap();
    }
    assert_eq!((items, taken), (1_499, 1_500));
}

#[test]
fn a_damaged_message_does_not_count_as_unread() {
    let (run, kind) = (RunId::from_parts(0, 7), Kind::new("graph").unwrap());
    let mut bench = Bench::new();
    bench.step(|step| step.create_runs(PreparedRun::batch(vec![NewRun::new(run, kind.clone())])?)).unwrap();
    bench.step(|step| step.send_to_runs((0..3).map(|n| RunMessage::new(run, n.to_string())).collect())).unwrap();
    bench.tables.kv_mut().entries.insert(keys::run_item(run, 1).bytes().to_vec(), b"{".to_vec());
    let claim = RunClaim { run: Some(run), ..RunClaim::new(WorkerId::new("e").unwrap(), vec![kind]) };
    let claimed = bench.step(|step| step.claim_runs(&claim)).unwrap().0.runs.remove(0);
    let numbers: Vec<u64> = claimed.inbox.iter().map(|item| item.number).collect();
    assert_eq!((numbers, claimed.inbox_to, claimed.inbox_taken), (vec![0, 2], 3, 3));
    let mut commit = |inbox_taken: Vec<u64>| {
        let commit = RunCommit::new(claimed.lease, claimed.history_len, RunStep::nothing());
        let commit = RunCommit { requires_read_messages: true, inbox_taken, ..commit };
        bench.step(|step| step.commit_runs(PreparedCommit::batch(vec![commit])?)).unwrap().0.remove(0)
    };
    assert_eq!(commit(vec![0]), Err(Error::UnreadMessages { run, unread: 1 }));
    commit(vec![0, 2]).unwrap();
}
