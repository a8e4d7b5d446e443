//! How a record stands in its row.

use crate::values::{Col, Name};
use rusqlite::Row as SqlRow;
use rusqlite::types::{FromSql, FromSqlError, ValueRef};
use windlass_core::engine::{GroupId, LaneId, Ord64, QueueId, Record, Row};
use windlass_core::id::{JobId, Token};
use windlass_core::job::{Held, LastReport, Life, State};
use windlass_core::name::WorkerId;
use windlass_core::time::Timestamp;

/// The time of a job that waits behind another, so that one index serves both.
pub(super) const HELD: i64 = i64::MAX;

const LIFO: i64 = 1;
const CANCEL: i64 = 2;
const GROUPED: i64 = 4;
const KEEPS_ITSELF: i64 = 8;
const QUARANTINED: i64 = 16;

/// The columns of a record; `ord` and `row` come first.
macro_rules! columns {
    () => {
        "ord,j.row,id,queue,lane,grp,state,priority,flags,attempt,attempts_max,stalls,stalls_max,retries,due_at,worker,token,\
         expires_at,last_token,last_state,created_at,ready_at,claimed_at,finished_at,remove_at,fingerprint,dedup"
    };
}

/// The partition of ids that stand in for unreadable ones; no job is made there.
pub(super) const NAMELESS: u16 = u16::MAX;

pub(super) const SELECT: &str = concat!("SELECT ", columns!(), " FROM windlass_job j WHERE j.row=?1");
/// With what says which index a damaged record stands in.
pub(super) const SELECT_DAMAGED: &str =
    concat!("SELECT ", columns!(), ",rdy,outcome FROM windlass_job j WHERE j.row=?1");
/// With the payload, its type and the rest behind the record.
pub(super) const SELECT_READY: &str = concat!(
    "SELECT ",
    columns!(),
    ",payload,content_type,rest FROM windlass_job j \
     WHERE rdy IS NOT NULL AND rdy=?1 AND grp=?2 AND ord>?3 ORDER BY ord LIMIT ?4"
);

pub(super) fn read(row: &SqlRow<'_>) -> rusqlite::Result<Record> {
    let flags: i64 = row.get(8)?;
    let worker: Option<Name<WorkerId>> = row.get(15)?;
    let token: Option<Col<Token>> = row.get(16)?;
    let expires_at: Option<Col<Timestamp>> = row.get(17)?;
    let held = match (worker, token, expires_at) {
        (Some(Name(worker)), Some(Col(token)), Some(Col(expires_at))) => Some(Held { token, worker, expires_at }),
        _ => None,
    };
    let last_token: Option<Col<Token>> = row.get(18)?;
    let last_state: Option<Col<State>> = row.get(19)?;
    let last_report = last_token.zip(last_state).map(|(Col(token), Col(state))| LastReport { token, state });
    let time =
        |at: usize| -> rusqlite::Result<Option<Timestamp>> { Ok(row.get::<_, Option<Col<_>>>(at)?.map(|at| at.0)) };
    let state = row.get::<_, Col<State>>(6)?.0;
    let fits = (state == State::Active) == held.is_some()
        && (state == State::Scheduled) == time(14)?.is_some()
        && state.is_terminal() == time(23)?.is_some();
    if !fits {
        return Err(FromSqlError::Other(format!("the state {state} does not fit the times beside it").into()).into());
    }
    Ok(Record {
        row: Row(row.get::<_, Col<u64>>(1)?.0),
        id: row.get::<_, Col<_>>(2)?.0,
        queue: QueueId(row.get::<_, Col<u64>>(3)?.0),
        lane: LaneId(row.get::<_, Col<u64>>(4)?.0),
        group: row.get::<_, Option<Col<u64>>>(5)?.map(|id| GroupId(id.0)),
        grouped: flags & GROUPED != 0,
        priority: row.get(7)?,
        lifo: flags & LIFO != 0,
        ord: Ord64(row.get(0)?),
        life: Life {
            state,
            due_at: time(14)?.filter(|at| at.as_ms() != HELD),
            attempt: row.get(9)?,
            attempts_max: row.get(10)?,
            stalls: row.get(11)?,
            stalls_max: row.get(12)?,
            retries: row.get(13)?,
            held,
            cancel_requested: flags & CANCEL != 0,
            last_report,
            claimed_at: time(22)?,
            finished_at: time(23)?,
        },
        created_at: row.get::<_, Col<_>>(20)?.0,
        ready_at: row.get::<_, Col<_>>(21)?.0,
        remove_at: time(24)?,
        fingerprint: row.get::<_, Col<u64>>(25)?.0,
        dedup: row.get(26)?,
        keeps_itself: flags & KEEPS_ITSELF != 0,
        quarantined: flags & QUARANTINED != 0,
    })
}

/// What can be read of a record, with something harmless in place of the rest.
pub(super) fn salvage(row: &SqlRow<'_>) -> rusqlite::Result<Record> {
    fn get<T: FromSql>(row: &SqlRow<'_>, at: usize) -> Option<T> {
        row.get_ref(at).ok().filter(|value| *value != ValueRef::Null).and_then(|value| T::column_result(value).ok())
    }
    let number = |at: usize| get::<Col<u64>>(row, at).map_or(0, |number| number.0);
    let place = number(1);
    let there = |at: usize| row.get_ref(at).is_ok_and(|value| value != ValueRef::Null);
    // The indexes and the counters follow these columns, so they know best which state it left.
    let state = match () {
        () if there(27) => State::Ready,
        () if there(17) => State::Active,
        () if there(14) => State::Scheduled,
        () => get::<Col<State>>(row, 28).or_else(|| get(row, 6)).map_or(State::Failed, |state| state.0),
    };
    let flags: i64 = get(row, 8).unwrap_or(0);
    let life = Life::new(Some(Timestamp::from_ms(0)), Timestamp::from_ms(0), 1, 0);
    Ok(Record {
        row: Row(place),
        // An id that cannot be read gets one by which the row can be named and removed.
        id: get::<Col<JobId>>(row, 2).map_or(JobId::from_parts(NAMELESS, u128::from(place)), |id| id.0),
        queue: QueueId(number(3)),
        lane: LaneId(if there(27) { number(27) } else { number(4) }),
        group: get::<Col<u64>>(row, 5).map(|id| GroupId(id.0)),
        grouped: flags & GROUPED != 0,
        priority: get(row, 7).unwrap_or(0),
        lifo: false,
        ord: Ord64(get(row, 0).unwrap_or(0)),
        life: Life { state, attempt: get(row, 9).unwrap_or(0), ..life },
        created_at: get::<Col<_>>(row, 20).map_or(Timestamp::from_ms(0), |at| at.0),
        ready_at: Timestamp::from_ms(0),
        remove_at: None,
        fingerprint: number(25),
        dedup: get(row, 26),
        keeps_itself: false,
        quarantined: false,
    })
}

pub(super) fn flags(record: &Record) -> i64 {
    let bits = [
        (record.lifo, LIFO),
        (record.life.cancel_requested, CANCEL),
        (record.grouped, GROUPED),
        (record.keeps_itself, KEEPS_ITSELF),
        (record.quarantined, QUARANTINED),
    ];
    bits.into_iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum()
}

pub(super) fn due(record: &Record) -> Option<i64> {
    let waits = record.state() == State::Scheduled;
    waits.then(|| record.life.due_at.map_or(HELD, Timestamp::as_ms))
}

/// Its state, once it has ended.
pub(super) fn outcome(record: &Record) -> Option<Col<State>> {
    Some(record.state()).filter(|state| state.is_terminal()).map(Col)
}
