//! Readers: threads of their own, each with a connection, so that a long listing delays no write.

use crate::db::Kept;
use crate::tables::SqliteTables;
use crate::writer::{Shared, Work};
use parking_lot::Mutex;
use rusqlite::Connection;
use std::sync::mpsc::Receiver;
use windlass_core::Result;
use windlass_core::engine::Step;

/// Runs until nobody can ask any more. All readers take from the same queue.
pub(crate) fn run(conn: Connection, queue: &Mutex<Receiver<Box<dyn Work>>>, shared: &Shared) {
    let mut tables = SqliteTables::new(Kept::over(conn));
    loop {
        let next = queue.lock().recv();
        let Ok(mut work) = next else { return };
        let outcome = read(&mut tables, work.as_mut(), shared);
        work.answer(outcome);
    }
}

/// One consistent view of the file for one step, which changes nothing.
fn read(tables: &mut SqliteTables, work: &mut dyn Work, shared: &Shared) -> Result<()> {
    tables.db.others().begin("BEGIN")?;
    let outcome = tables.refresh().map(|_| {
        let mut step = Step::new(tables, shared.random.as_ref(), shared.clock.now());
        work.run(&mut step);
    });
    let failure = tables.db.others().failure();
    tables.db.others().roll_back();
    match failure {
        Some(error) => {
            // What was read before the failure may be half of a table.
            tables.forget();
            Err(error)
        }
        None => outcome,
    }
}
