//! The keys: the only place where one is put together or taken apart.
//!
//! A key is a byte for its table and then parts, each written so that keys sort as the parts do, and so that no part is
//! the beginning of another: numbers big-endian in a fixed width (signed ones with their sign bit turned), names with a
//! zero byte behind them, which sorts before everything that may stand in a name.

use crate::engine::{GroupId, LaneId, Ord64, QueueId, Row};
use crate::error::{Error, Result};
use crate::id::{JobId, RunId};
use crate::job::State;
use crate::name::{GroupName, Kind, ScheduleName, WorkerId};
use crate::store::RunState;
use crate::time::Timestamp;

/// The tables. Numbers are never used again for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Table {
    /// What there is one of: the layout, the sequence, the ends and the length of the feed.
    Meta = 1,
    Queue = 2,
    Lane = 3,
    Group = 4,
    GroupName = 5,
    Parked = 6,
    Wake = 7,
    Sub = 8,
    Ring = 9,
    JobId = 10,
    Record = 11,
    Spec = 12,
    Extra = 13,
    Log = 14,
    Ready = 15,
    Due = 16,
    Lease = 17,
    Active = 18,
    Cancelling = 19,
    Ended = 20,
    Removable = 21,
    Dedup = 22,
    DedupEnd = 23,
    Memo = 24,
    MemoAt = 25,
    Minute = 26,
    Feed = 27,
    Worker = 28,
    Schedule = 29,
    Tick = 30,
    Run = 31,
    RunDefinition = 32,
    RunInput = 33,
    RunHistory = 34,
    RunInbox = 35,
    RunReady = 36,
    RunLook = 37,
    RunSeq = 38,
    RunState = 39,
    RunRemovable = 40,
    RunValue = 41,
    RunMessageSlot = 42,
    RunMessageId = 43,
}

/// What a key is made of.
pub(super) trait Part: Sized {
    /// Writes it so that it sorts as it should.
    fn put(&self, key: &mut Vec<u8>);
    /// Takes it from the front of what is left of a key.
    fn take(rest: &mut &[u8]) -> Option<Self>;
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

impl Part for u64 {
    fn put(&self, key: &mut Vec<u8>) {
        key.extend(self.to_be_bytes());
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        array(rest).map(Self::from_be_bytes)
    }
}

/// Negative numbers have their highest bit set and would sort last.
const SIGN: u64 = 1 << 63;

impl Part for i64 {
    fn put(&self, key: &mut Vec<u8>) {
        (self.cast_unsigned() ^ SIGN).put(key);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        u64::take(rest).map(|bits| (bits ^ SIGN).cast_signed())
    }
}

impl Part for [u8; 16] {
    fn put(&self, key: &mut Vec<u8>) {
        key.extend(self);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        array(rest)
    }
}

impl Part for Timestamp {
    fn put(&self, key: &mut Vec<u8>) {
        self.as_ms().put(key);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        i64::take(rest).map(Self::from_ms)
    }
}

impl Part for JobId {
    fn put(&self, key: &mut Vec<u8>) {
        key.extend(self.partition().to_be_bytes());
        key.extend(self.bits().to_be_bytes());
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let partition = u16::from_be_bytes(array(rest)?);
        Some(Self::from_parts(partition, u128::from_be_bytes(array(rest)?)))
    }
}

impl Part for RunId {
    fn put(&self, key: &mut Vec<u8>) {
        JobId::from_parts(self.partition(), self.bits()).put(key);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        JobId::take(rest).map(|id| Self::from_parts(id.partition(), id.bits()))
    }
}

impl Part for RunState {
    fn put(&self, key: &mut Vec<u8>) {
        let place = Self::ALL.iter().position(|state| state == self);
        key.push(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX));
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let [index] = array(rest)?;
        Self::ALL.get(usize::from(index)).copied()
    }
}

impl Part for State {
    fn put(&self, key: &mut Vec<u8>) {
        key.push(u8::try_from(self.index()).unwrap_or(u8::MAX));
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let [index] = array(rest)?;
        Self::ALL.get(usize::from(index)).copied()
    }
}

macro_rules! number_parts {
    ($($name:ident),+) => {
        $(impl Part for $name {
            fn put(&self, key: &mut Vec<u8>) {
                self.0.put(key);
            }

            fn take(rest: &mut &[u8]) -> Option<Self> {
                Part::take(rest).map(Self)
            }
        })+
    };
}
number_parts!(QueueId, LaneId, GroupId, Row, Ord64);

macro_rules! tuple_parts {
    ($(($($part:ident $at:tt),+))+) => {
        $(impl<$($part: Part),+> Part for ($($part,)+) {
            fn put(&self, key: &mut Vec<u8>) {
                $(self.$at.put(key);)+
            }

            fn take(rest: &mut &[u8]) -> Option<Self> {
                Some(($($part::take(rest)?,)+))
            }
        })+
    };
}
tuple_parts! { (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

/// Stands behind a name. No name contains it.
const END: u8 = 0;

fn put_text(text: &str, key: &mut Vec<u8>) {
    key.extend(text.as_bytes());
    key.push(END);
}

fn take_text<'k>(rest: &mut &'k [u8]) -> Option<&'k str> {
    let end = rest.iter().position(|byte| *byte == END)?;
    let (text, tail) = rest.split_at(end);
    *rest = tail.get(1..)?;
    std::str::from_utf8(text).ok()
}

macro_rules! name_parts {
    ($($name:ident),+) => {
        $(impl Part for $name {
            fn put(&self, key: &mut Vec<u8>) {
                put_text(self.as_str(), key);
            }

            fn take(rest: &mut &[u8]) -> Option<Self> {
                $name::new(take_text(rest)?).ok()
            }
        })+
    };
}
name_parts!(GroupName, WorkerId, ScheduleName, Kind);

/// A key, or the beginning that several have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key(Vec<u8>);

impl Key {
    fn of(table: Table) -> Self {
        Self(vec![table as u8])
    }

    fn with(mut self, part: &impl Part) -> Self {
        part.put(&mut self.0);
        self
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Everything that begins with it.
    pub(super) fn under(&self) -> Range {
        // The first byte is a table's number, far below 255, so that there always is a next one.
        let mut to = self.0.clone();
        while let Some(last) = to.pop() {
            if last < u8::MAX {
                to.push(last + 1);
                break;
            }
        }
        Range { from: self.0.clone(), to, reverse: false }
    }

    /// The first key that is above it.
    fn next(&self) -> Vec<u8> {
        let mut next = self.0.clone();
        next.push(0);
        next
    }
}

/// Keys from `from` on up to `to`, which is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) reverse: bool,
}

impl Range {
    /// The part that begins with `key` or lies above.
    pub(super) fn from(self, key: &Key) -> Self {
        Self { from: self.from.max(key.0.clone()), ..self }
    }

    /// The part above `key`.
    pub(super) fn above(self, key: &Key) -> Self {
        Self { from: self.from.max(key.next()), ..self }
    }

    /// The part below `key`.
    pub(super) fn below(self, key: &Key) -> Self {
        Self { to: self.to.min(key.0.clone()), ..self }
    }

    /// The part up to everything that begins with `key`.
    pub(super) fn through(self, key: &Key) -> Self {
        Self { to: self.to.min(key.under().to), ..self }
    }

    /// What comes after the key that was read last.
    pub(super) fn beyond(self, last: &[u8]) -> Self {
        let last = Key(last.to_vec());
        if self.reverse { self.below(&last) } else { self.above(&last) }
    }

    /// The same, from the last to the first.
    pub(super) fn backwards(self) -> Self {
        Self { reverse: true, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.from >= self.to
    }
}

/// Takes a key apart, which must be one of `table`'s. What stands behind the parts that are asked for is passed over.
pub(super) fn parts<P: Part>(table: Table, key: &[u8]) -> Result<P> {
    let mut rest = key.strip_prefix(&[table as u8]).ok_or_else(|| damaged(table))?;
    P::take(&mut rest).ok_or_else(|| damaged(table))
}

fn damaged(table: Table) -> Error {
    Error::corrupt(format!("a key of table {table:?} cannot be read"))
}

/// The functions that make keys: one line each, the parts in the order by which the table is read.
macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $table:ident ( $($part:ident : $type:ty),* );)+) => {
        $($(#[$doc])* pub(super) fn $name($($part: $type),*) -> Key {
            Key::of(Table::$table)$(.with(&$part))*
        })+
    };
}

keys! {
    /// What there is one of, by number.
    meta = Meta(number: u64);
    queues = Queue();
    queue = Queue(id: QueueId);
    lanes = Lane();
    lane = Lane(id: LaneId);
    group = Group(id: GroupId);
    group_names = GroupName(queue: QueueId);
    group_name = GroupName(queue: QueueId, name: GroupName);
    parked_of = Parked(queue: QueueId);
    parked = Parked(queue: QueueId, group: GroupId);
    wakes = Wake(queue: QueueId);
    wakes_at = Wake(queue: QueueId, at: Timestamp);
    wake = Wake(queue: QueueId, at: Timestamp, group: GroupId);
    /// The group first: the lanes of a group are a range.
    subs_of = Sub(group: GroupId);
    sub = Sub(group: GroupId, lane: LaneId);
    ring = Ring(lane: LaneId);
    place = Ring(lane: LaneId, vtime: u64, group: GroupId);
    job_id = JobId(id: JobId);
    job_ids = JobId();
    record = Record(row: Row);
    spec = Spec(row: Row);
    extra = Extra(row: Row);
    log = Log(row: Row);
    line = Log(row: Row, number: u64);
    all_ready = Ready();
    ready_in_lane = Ready(lane: LaneId);
    ready_of = Ready(lane: LaneId, group: GroupId);
    ready = Ready(lane: LaneId, group: GroupId, ord: Ord64);
    all_due = Due();
    due_of = Due(queue: QueueId);
    due_at = Due(queue: QueueId, at: Timestamp);
    due = Due(queue: QueueId, at: Timestamp, row: Row);
    leases = Lease();
    leases_at = Lease(at: Timestamp);
    lease = Lease(at: Timestamp, row: Row);
    all_active = Active();
    active_of = Active(queue: QueueId);
    active = Active(queue: QueueId, row: Row);
    all_cancelling = Cancelling();
    cancelling_of = Cancelling(worker: WorkerId);
    cancelling = Cancelling(worker: WorkerId, row: Row);
    all_ended = Ended();
    ended_of = Ended(lane: LaneId, state: State);
    ended_at = Ended(lane: LaneId, state: State, at: Timestamp);
    ended = Ended(lane: LaneId, state: State, at: Timestamp, row: Row);
    all_removable = Removable();
    removable_at = Removable(at: Timestamp);
    removable = Removable(at: Timestamp, row: Row);
    all_dedup = Dedup();
    dedup = Dedup(key: [u8; 16]);
    dedup_ends = DedupEnd();
    dedup_ends_at = DedupEnd(at: Timestamp);
    dedup_end = DedupEnd(at: Timestamp, key: [u8; 16]);
    memo = Memo(worker: WorkerId);
    memos_at = MemoAt();
    memos_since = MemoAt(at: Timestamp);
    memo_at = MemoAt(at: Timestamp, worker: WorkerId);
    minutes = Minute(queue: QueueId);
    minute = Minute(queue: QueueId, minute: i64);
    feed = Feed();
    feed_entry = Feed(number: u64);
    workers = Worker();
    worker = Worker(id: WorkerId);
    schedules = Schedule();
    schedule = Schedule(name: ScheduleName);
    ticks = Tick();
    ticks_at = Tick(at: Timestamp);
    tick = Tick(at: Timestamp, name: ScheduleName);
    run = Run(id: RunId);
    run_definition = RunDefinition(id: RunId);
    run_input = RunInput(id: RunId);
    run_history = RunHistory(id: RunId);
    run_event = RunHistory(id: RunId, number: u64);
    run_inbox = RunInbox(id: RunId);
    run_item = RunInbox(id: RunId, number: u64);
    run_values = RunValue(id: RunId);
    run_value = RunValue(id: RunId, number: u64);
    run_message_slots = RunMessageSlot(id: RunId);
    run_message_slot = RunMessageSlot(id: RunId, slot: u64);
    run_message_ids = RunMessageId(id: RunId);
    run_message_id = RunMessageId(id: RunId, hash: [u8; 16]);
    runs_ready = RunReady();
    runs_ready_of = RunReady(kind: Kind);
    run_ready = RunReady(kind: Kind, place: u64, id: RunId);
    runs_look = RunLook();
    runs_look_at = RunLook(at: Timestamp);
    run_look = RunLook(at: Timestamp, id: RunId);
    runs_by_seq = RunSeq();
    runs_at_seq = RunSeq(seq: u64);
    run_seq = RunSeq(seq: u64, id: RunId);
    runs_in_state = RunState(state: RunState);
    runs_at_state = RunState(state: RunState, seq: u64);
    run_state = RunState(state: RunState, seq: u64, id: RunId);
    runs_removable = RunRemovable();
    runs_removable_at = RunRemovable(at: Timestamp);
    run_removable = RunRemovable(at: Timestamp, id: RunId);
}

/// The layout that these keys and values make up.
pub(super) fn layout() -> Key {
    meta(0)
}

/// The store's one sequence.
pub(super) fn sequence() -> Key {
    meta(1)
}

/// The ends of the feed.
pub(super) fn feed_ends() -> Key {
    meta(2)
}

/// The length of the feed.
pub(super) fn feed_events() -> Key {
    meta(3)
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
