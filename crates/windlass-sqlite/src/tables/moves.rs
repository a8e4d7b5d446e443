//! The two moves that every job makes, to active and from there to its end, written many at a time: a statement costs
//! more than a row, so those of one claim and of one report share theirs.
//!
//! They are written before anything else looks at the tables of the states, and at the end of the transaction.

use super::places;
use crate::db::{Db, Source};
use crate::values::Col;
use rusqlite::{Statement, params};
use std::sync::LazyLock;
use windlass_core::Result;
use windlass_core::engine::{GroupId, LaneId, Ord64, Record, Row};
use windlass_core::job::State;

/// Rows of one statement.
const ROWS: usize = 8;

static TAKE_ACTIVE: LazyLock<String> =
    LazyLock::new(|| format!("DELETE FROM windlass_active WHERE row IN ({})", marks(ROWS)));
static PUT_ACTIVE: LazyLock<String> = LazyLock::new(|| many(places::PUT_ACTIVE, places::ACTIVE_COLUMNS));
static PUT_ENDED: LazyLock<String> = LazyLock::new(|| many(places::PUT_ENDED, places::ENDED_COLUMNS));

fn marks(n: usize) -> String {
    vec!["?"; n].join(",")
}

/// `INSERT INTO … VALUES(…)` for many rows.
fn many(one: &str, columns: usize) -> String {
    let row = format!(",({})", marks(columns));
    format!("{one}{}", row.repeat(ROWS - 1))
}

/// Neighbours among the ready jobs of a group in a lane: all between the first and the last.
#[derive(Clone, Copy, Debug)]
struct Run {
    of: (LaneId, GroupId),
    first: Ord64,
    last: Ord64,
}

#[derive(Debug, Default)]
pub(super) struct Moves {
    from_ready: Vec<Run>,
    from_active: Vec<Row>,
    to_active: Vec<Record>,
    to_ended: Vec<Record>,
}

impl Moves {
    /// Keeps a move for later, if it is one of the two. `follows` is the ready job just before this one.
    pub(super) fn keep(&mut self, before: &Record, after: &Record, follows: Option<Ord64>) -> bool {
        match (before.state(), after.state(), before.group) {
            (State::Ready, State::Active, Some(group)) => {
                let of = (before.lane, group);
                match self.from_ready.last_mut() {
                    Some(run) if run.of == of && Some(run.last) == follows => run.last = before.ord,
                    _ => self.from_ready.push(Run { of, first: before.ord, last: before.ord }),
                }
                self.to_active.push(after.clone());
                true
            }
            // One that has only just become active has to be written as that first.
            (State::Active, to, _) if to.is_terminal() && self.to_active.is_empty() => {
                self.from_active.push(before.row);
                self.to_ended.push(after.clone());
                true
            }
            _ => false,
        }
    }

    /// Writes them.
    pub(super) fn settle<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        for Run { of: (lane, group), first, last } in self.from_ready.drain(..) {
            let sql = "DELETE FROM windlass_ready WHERE lane=?1 AND grp=?2 AND ord>=?3 AND ord<=?4";
            db.run(sql, params![Col(lane.0), Col(group.0), first.0, last.0])?;
        }
        let rows = std::mem::take(&mut self.from_active);
        let (eights, rest) = rows.as_chunks::<ROWS>();
        for rows in eights {
            db.run(&TAKE_ACTIVE, rows.map(|row| Col(row.0)))?;
        }
        for row in rest {
            places::take_active(db, *row)?;
        }
        put_all(db, &PUT_ACTIVE, &std::mem::take(&mut self.to_active), places::bind_active)?;
        put_all(db, &PUT_ENDED, &std::mem::take(&mut self.to_ended), places::bind_ended)
    }
}

/// Puts jobs into their states, `ROWS` at a time.
fn put_all<C: Source>(
    db: &mut Db<C>,
    sql: &'static str,
    records: &[Record],
    bind: fn(&mut Statement<'_>, usize, &Record) -> rusqlite::Result<usize>,
) -> Result<()> {
    let (eights, rest) = records.as_chunks::<ROWS>();
    for records in eights {
        let put = db.run_bound(sql, |statement| {
            let mut at = 1;
            for record in records {
                at = bind(statement, at, record)?;
            }
            Ok(())
        })?;
        if put < ROWS {
            // A damaged row says to be one of these jobs'.
            for record in records {
                places::take_everywhere(db, record.row)?;
                places::put(db, record)?;
            }
        }
    }
    rest.iter().try_for_each(|record| places::put(db, record))
}
