//! A connection, with its statements kept and its first failure remembered.

use crate::error::translate;
use rusqlite::{Connection, Params, Row, Statement};
use std::collections::hash_map::Entry;
use windlass_core::engine::NumberMap;
use windlass_core::{Error, Result};

/// Where statements come from.
pub trait Source {
    /// The connection.
    fn conn(&self) -> &Connection;

    /// Gives the statement of this text, prepared.
    fn with<R>(
        &mut self,
        sql: &'static str,
        work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<R>;
}

/// The caller's own connection keeps statements as the caller has set it.
impl Source for &Connection {
    fn conn(&self) -> &Connection {
        self
    }

    fn with<R>(
        &mut self,
        sql: &'static str,
        work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<R> {
        work(&mut *self.prepare_cached(sql)?)
    }
}

/// By where its text lies in the program, which is found faster than the text itself. The same text may lie in two
/// places; then it is prepared twice.
type Statements<'c> = NumberMap<(usize, usize), Statement<'c>>;

#[allow(clippy::mem_forget, reason = "the macro's own doing: it moves what it drops itself")]
mod kept {
    use super::Statements;
    use rusqlite::Connection;
    use self_cell::self_cell;

    self_cell! {
        /// A connection and the statements that it has prepared.
        pub struct Kept {
            owner: Connection,
            #[covariant]
            dependent: Statements,
        }
    }
}

pub(crate) use kept::Kept;

impl Kept {
    pub(crate) fn over(conn: Connection) -> Self {
        Self::new(conn, |_| Statements::default())
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kept").field(self.borrow_owner()).finish()
    }
}

impl Source for Kept {
    fn conn(&self) -> &Connection {
        self.borrow_owner()
    }

    fn with<R>(
        &mut self,
        sql: &'static str,
        work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<R> {
        self.with_dependent_mut(|conn, statements| {
            let statement = match statements.entry((sql.as_ptr().addr(), sql.len())) {
                Entry::Occupied(kept) => kept.into_mut(),
                Entry::Vacant(place) => place.insert(conn.prepare(sql)?),
            };
            work(statement)
        })
    }
}

/// A connection that runs the statements of one transaction after another.
///
/// SQLite rolls a transaction back by itself after some errors (I/O errors, a full disk), and every later statement would
/// then commit on its own. So the first failure is remembered, and all methods return it without a call of SQLite until the
/// transaction is rolled back or the next one begins. A statement outside a transaction is such a failure, too.
#[derive(Debug)]
pub(crate) struct Db<C> {
    source: C,
    failure: Option<Error>,
}

impl<C: Source> Db<C> {
    pub(crate) fn new(source: C) -> Self {
        Self { source, failure: None }
    }

    /// Begins a transaction with `sql`. Ends one that an earlier failure has left open, and forgets that failure.
    pub(crate) fn begin(&mut self, sql: &str) -> Result<()> {
        self.roll_back();
        self.source.conn().execute_batch(sql).map_err(|error| translate(&error))
    }

    /// Commits the transaction, unless a statement of it has failed.
    pub(crate) fn commit(&mut self) -> Result<()> {
        self.check()?;
        self.source.conn().execute_batch("COMMIT").map_err(|error| translate(&error))
    }

    /// Ends the transaction, if SQLite has not done so already, and forgets its failure.
    pub(crate) fn roll_back(&mut self) {
        self.failure = None;
        if !self.source.conn().is_autocommit() {
            // A transaction that stays open all the same is ended by the next `begin`.
            let _ = self.source.conn().execute_batch("ROLLBACK");
        }
    }

    /// Refuses to go on after a failure, and outside a transaction.
    fn check(&mut self) -> Result<()> {
        if self.failure.is_none() && self.source.conn().is_autocommit() {
            let reason = "SQLite has ended the transaction; nothing of it is stored".to_owned();
            self.failure = Some(Error::Unavailable { reason });
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The first failure of the transaction.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.clone()
    }

    /// Fails the transaction: it cannot be committed, whatever the engine makes of the error.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.failure.get_or_insert(error).clone()
    }

    /// Runs one statement: the only place where a step reaches the connection.
    fn statement<R>(&mut self, work: impl FnOnce(&mut C) -> rusqlite::Result<R>) -> Result<R> {
        self.check()?;
        work(&mut self.source).map_err(|error| {
            let error = translate(&error);
            if is_damaged_value(&error) { error } else { self.fail(error) }
        })
    }

    /// Runs a statement.
    pub(crate) fn run(&mut self, sql: &'static str, params: impl Params) -> Result<()> {
        self.run_counted(sql, params).map(drop)
    }

    /// Runs a statement; answers how many rows it changed.
    pub(crate) fn run_counted(&mut self, sql: &'static str, params: impl Params) -> Result<usize> {
        self.statement(|source| source.with(sql, |statement| statement.execute(params)))
    }

    /// The same, for a statement whose parameters are bound one by one.
    pub(crate) fn run_bound(
        &mut self,
        sql: &'static str,
        bind: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<()>,
    ) -> Result<usize> {
        self.statement(|source| {
            source.with(sql, |statement| {
                bind(statement)?;
                statement.raw_execute()
            })
        })
    }

    /// The first row of a query.
    pub(crate) fn one<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Option<R>> {
        self.statement(|source| {
            source.with(sql, |statement| {
                let mut rows = statement.query(params)?;
                rows.next()?.map(read).transpose()
            })
        })
    }

    /// The first row of a query, or `None` when it is not there or cannot be read: for what can be done without.
    pub(crate) fn one_readable<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Option<R>> {
        match self.one(sql, params, read) {
            Err(error) if is_damaged_value(&error) => Ok(None),
            other => other,
        }
    }

    /// All rows of a query that can be read: one that cannot must not hide the others.
    pub(crate) fn all_readable<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        let rows = self.all(sql, params, |row| match read(row) {
            Err(error) if is_damaged_value(&translate(&error)) => Ok(None),
            other => other.map(Some),
        })?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// All rows of a query.
    pub(crate) fn all<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        self.statement(|source| source.with(sql, |statement| collect(statement, params, read)))
    }

    /// The rows of a query, until `read` has enough.
    pub(crate) fn each(
        &mut self,
        sql: &'static str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
    ) -> Result<()> {
        self.statement(|source| {
            source.with(sql, |statement| {
                let mut rows = statement.query(params)?;
                while let Some(row) = rows.next()? {
                    if !read(row)? {
                        break;
                    }
                }
                Ok(())
            })
        })
    }

    /// All rows of a query that was put together.
    pub(crate) fn all_of<R>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        self.statement(|source| collect(&mut *source.conn().prepare_cached(sql)?, params, read))
    }
}

fn collect<R>(
    statement: &mut Statement<'_>,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
) -> rusqlite::Result<Vec<R>> {
    let mut rows = statement.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}

/// A value that we cannot read, in contrast to damage that SQLite itself found.
fn is_damaged_value(error: &Error) -> bool {
    matches!(error, Error::Corrupt { what } if !what.starts_with("the database file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_transaction(conn: &Connection) -> Db<&Connection> {
        conn.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY)").unwrap();
        let mut db = Db::new(conn);
        db.begin("BEGIN IMMEDIATE").unwrap();
        db.run("INSERT INTO t VALUES (1)", []).unwrap();
        db
    }

    /// Every way to run a statement.
    fn outcomes(db: &mut Db<&Connection>) -> [Result<()>; 8] {
        let number = |row: &Row<'_>| row.get::<_, i64>(0);
        [
            db.run("INSERT INTO t VALUES (2)", []),
            db.run_bound("INSERT INTO t VALUES (?)", |statement| statement.raw_bind_parameter(1, 3)).map(drop),
            db.one("INSERT INTO t VALUES (4) RETURNING x", [], number).map(drop),
            db.one_readable("INSERT INTO t VALUES (5) RETURNING x", [], number).map(drop),
            db.all_readable("INSERT INTO t VALUES (6) RETURNING x", [], number).map(drop),
            db.all("INSERT INTO t VALUES (7) RETURNING x", [], number).map(drop),
            db.each("INSERT INTO t VALUES (8) RETURNING x", [], |_| Ok(true)),
            db.all_of("INSERT INTO t VALUES (9) RETURNING x", [], number).map(drop),
        ]
    }

    fn stored(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn no_statement_runs_after_sqlite_has_rolled_the_transaction_back() {
        let conn = Connection::open_in_memory().unwrap();
        let mut db = in_transaction(&conn);
        // As SQLite does by itself after an I/O error.
        conn.execute_batch("ROLLBACK").unwrap();
        for outcome in outcomes(&mut db) {
            assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
        }
        assert!(db.commit().is_err());
        assert_eq!(stored(&conn), 0);
        assert!(db.failure().is_some());
    }

    #[test]
    fn after_a_failed_statement_the_others_return_its_failure_and_do_not_run() {
        let conn = Connection::open_in_memory().unwrap();
        let mut db = in_transaction(&conn);
        let first = db.run("INSERT INTO t VALUES (1)", []).unwrap_err();
        for outcome in outcomes(&mut db) {
            assert_eq!(outcome, Err(first.clone()));
        }
        assert_eq!(db.commit(), Err(first));
        assert_eq!(stored(&conn), 1, "only what was written before the failure");
        // The next transaction begins without that failure, although nobody has asked for it.
        db.begin("BEGIN IMMEDIATE").unwrap();
        assert_eq!(stored(&conn), 0);
        assert!(outcomes(&mut db).iter().all(Result::is_ok));
        db.commit().unwrap();
        assert_eq!(stored(&conn), 8);
    }

    #[test]
    fn a_value_that_cannot_be_read_does_not_fail_the_transaction() {
        let conn = Connection::open_in_memory().unwrap();
        let mut db = in_transaction(&conn);
        let damaged = db.one("SELECT 'x'", [], |row| row.get::<_, i64>(0));
        assert!(matches!(damaged, Err(Error::Corrupt { .. })), "{damaged:?}");
        db.run("INSERT INTO t VALUES (2)", []).unwrap();
        db.commit().unwrap();
        assert_eq!(stored(&conn), 2);
    }
}
