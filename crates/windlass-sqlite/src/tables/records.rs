//! How a record stands in its rows: one that says what the job is, and one of the table of its state.

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
/// The partition of ids that stand in for unreadable ones; no job is made there.
pub(super) const NAMELESS: u16 = u16::MAX;

const LIFO: i64 = 1;
const CANCEL: i64 = 2;
const GROUPED: i64 = 4;
const KEEPS_ITSELF: i64 = 8;
const QUARANTINED: i64 = 16;

/// In which of the four tables a row was found.
const IN_SCHEDULED: i64 = 1;
const IN_READY: i64 = 2;
const IN_ACTIVE: i64 = 4;
const IN_ENDED: i64 = 8;

/// What a job is, after its place and its row.
macro_rules! job {
    () => {
        "j.id,j.queue,j.lane,j.grp,j.priority,j.flags,j.attempts_max,j.stalls_max,j.created_at,j.fingerprint,j.dedup,j.run"
    };
}

/// Where it stands, if it may be in any state.
macro_rules! standing {
    () => {
        "(s.row IS NOT NULL)+2*(r.row IS NOT NULL)+4*(a.row IS NOT NULL)+8*(e.row IS NOT NULL),\
         coalesce(r.attempt,a.attempt,e.attempt,s.attempt) AS attempt,coalesce(r.stalls,a.stalls,e.stalls,s.stalls) AS stalls,\
         coalesce(r.retries,a.retries,e.retries,s.retries) AS retries,coalesce(r.ready_at,a.ready_at,e.ready_at,s.ready_at) AS ready_at,\
         coalesce(r.claimed_at,a.claimed_at,e.claimed_at,s.claimed_at) AS claimed_at,\
         coalesce(r.last_token,a.last_token,e.last_token,s.last_token) AS last_token,\
         coalesce(r.last_state,a.last_state,e.last_state,s.last_state) AS last_state,\
         s.due_at,a.worker,a.token,a.expires_at,e.state,e.finished_at,e.remove_at"
    };
}

macro_rules! others {
    () => {
        " LEFT JOIN windlass_scheduled s ON s.row=j.row LEFT JOIN windlass_active a ON a.row=j.row \
          LEFT JOIN windlass_ended e ON e.row=j.row WHERE j.row=?1"
    };
}

pub(super) const SELECT: &str = concat!(
    "SELECT j.ord,j.row,",
    job!(),
    ",",
    standing!(),
    " FROM windlass_job j LEFT JOIN windlass_ready r ON r.lane=j.lane AND r.grp=j.grp AND r.ord=j.ord AND r.row=j.row",
    others!()
);
/// With the places that the tables of the states know of. (This one looks through all ready jobs.)
pub(super) const SELECT_DAMAGED: &str = concat!(
    "SELECT coalesce(r.ord,j.ord),j.row,",
    job!(),
    ",",
    standing!(),
    ",coalesce(r.lane,a.lane,e.lane,s.lane),r.grp FROM windlass_job j LEFT JOIN windlass_ready r ON r.row=j.row",
    others!()
);
/// With the place that the job itself knows of, its payload, the payload's type and the rest behind the record.
pub(super) const SELECT_READY: &str = concat!(
    "SELECT r.ord,r.row,",
    job!(),
    ",2,r.attempt,r.stalls,r.retries,r.ready_at,r.claimed_at,r.last_token,r.last_state,j.ord,j.payload,j.content_type,\
     j.rest FROM windlass_ready r LEFT JOIN windlass_job j ON j.row=r.row \
     WHERE r.lane=?1 AND r.grp=?2 AND r.ord>?3 ORDER BY r.ord LIMIT ?4"
);
/// The first column behind the record in [`SELECT_READY`].
pub(super) const BEHIND_READY: usize = 22;

pub(super) fn read(row: &SqlRow<'_>) -> rusqlite::Result<Record> {
    let found: i64 = row.get(14)?;
    if found.count_ones() != 1 {
        return Err(unfit("it is not in exactly one state"));
    }
    let flags: i64 = row.get(7)?;
    let last_token: Option<Col<Token>> = row.get(20)?;
    let last_state: Option<Col<State>> = row.get(21)?;
    let time =
        |at: usize| -> rusqlite::Result<Option<Timestamp>> { Ok(row.get::<_, Option<Col<_>>>(at)?.map(|at| at.0)) };
    let mut life = Life {
        state: State::Ready,
        due_at: None,
        attempt: row.get(15)?,
        attempts_max: row.get(8)?,
        stalls: row.get(16)?,
        stalls_max: row.get(9)?,
        retries: row.get(17)?,
        held: None,
        cancel_requested: flags & CANCEL != 0,
        last_report: last_token.zip(last_state).map(|(Col(token), Col(state))| LastReport { token, state }),
        claimed_at: time(19)?,
        finished_at: None,
    };
    let remove_at = match found {
        IN_SCHEDULED => {
            life.state = State::Scheduled;
            life.due_at = Some(row.get::<_, Col<Timestamp>>(22)?.0).filter(|at| at.as_ms() != HELD);
            None
        }
        IN_ACTIVE => {
            let (Name(worker), Col(token)): (Name<WorkerId>, Col<Token>) = (row.get(23)?, row.get(24)?);
            life.state = State::Active;
            life.held = Some(Held { token, worker, expires_at: row.get::<_, Col<_>>(25)?.0 });
            None
        }
        IN_ENDED => {
            life.state = ended_state(row.get::<_, Col<State>>(26)?.0)?;
            life.finished_at = Some(row.get::<_, Col<_>>(27)?.0);
            time(28)?
        }
        _ => None,
    };
    let group = row.get::<_, Option<Col<u64>>>(5)?.map(|id| GroupId(id.0));
    Ok(Record {
        row: Row(row.get::<_, Col<u64>>(1)?.0),
        id: row.get::<_, Col<_>>(2)?.0,
        queue: QueueId(row.get::<_, Col<u64>>(3)?.0),
        lane: LaneId(row.get::<_, Col<u64>>(4)?.0),
        group: group.filter(|_| matches!(life.state, State::Ready | State::Active)),
        grouped: flags & GROUPED != 0,
        priority: row.get(6)?,
        lifo: flags & LIFO != 0,
        ord: Ord64(row.get(0)?),
        life,
        created_at: row.get::<_, Col<_>>(10)?.0,
        ready_at: row.get::<_, Col<_>>(18)?.0,
        remove_at,
        fingerprint: row.get::<_, Col<u64>>(11)?.0,
        dedup: row.get(12)?,
        keeps_itself: flags & KEEPS_ITSELF != 0,
        quarantined: flags & QUARANTINED != 0,
        run: row.get::<_, Option<Col<_>>>(13)?.map(|run| run.0),
    })
}

fn unfit(why: &str) -> rusqlite::Error {
    FromSqlError::Other(why.into()).into()
}

fn ended_state(state: State) -> rusqlite::Result<State> {
    if state.is_terminal() { Ok(state) } else { Err(unfit("it has ended in a state that is no end")) }
}

/// What can be read of a record, with something harmless in place of the rest.
pub(super) fn salvage(row: &SqlRow<'_>) -> rusqlite::Result<Record> {
    fn get<T: FromSql>(row: &SqlRow<'_>, at: usize) -> Option<T> {
        row.get_ref(at).ok().filter(|value| *value != ValueRef::Null).and_then(|value| T::column_result(value).ok())
    }
    let number = |at: usize| get::<Col<u64>>(row, at).map(|number| number.0);
    let place = number(1).unwrap_or(0);
    let found: i64 = get(row, 14).unwrap_or(0);
    let state = match () {
        () if found & IN_READY != 0 => State::Ready,
        () if found & IN_ACTIVE != 0 => State::Active,
        () if found & IN_SCHEDULED != 0 => State::Scheduled,
        // What it was last reported to be says it, too, unless nobody reported it.
        () if found & IN_ENDED != 0 => {
            let ends = [26, 21].into_iter().filter_map(|at| get::<Col<State>>(row, at)).map(|state| state.0);
            ends.into_iter().find(|state| state.is_terminal()).unwrap_or(State::Failed)
        }
        // A ready job is the one that loses its place most easily.
        () => State::Ready,
    };
    let flags: i64 = get(row, 7).unwrap_or(0);
    let life = Life::new(Some(Timestamp::from_ms(0)), Timestamp::from_ms(0), 1, 0);
    Ok(Record {
        row: Row(place),
        // An id that cannot be read gets one by which the row can be named and removed.
        id: get::<Col<JobId>>(row, 2).map_or(JobId::from_parts(NAMELESS, u128::from(place)), |id| id.0),
        queue: QueueId(number(3).unwrap_or(0)),
        lane: LaneId(number(29).or(number(4)).unwrap_or(0)),
        group: number(30).or(number(5)).map(GroupId),
        grouped: flags & GROUPED != 0,
        priority: get(row, 6).unwrap_or(0),
        lifo: false,
        ord: Ord64(get(row, 0).unwrap_or(0)),
        life: Life { state, attempt: get(row, 15).unwrap_or(0), ..life },
        created_at: get::<Col<_>>(row, 10).map_or(Timestamp::from_ms(0), |at| at.0),
        ready_at: Timestamp::from_ms(0),
        remove_at: None,
        fingerprint: number(11).unwrap_or(0),
        dedup: get(row, 12),
        keeps_itself: false,
        quarantined: false,
        run: get::<Col<_>>(row, 13).map(|run| run.0),
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
