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

/// A connection that runs statements.
///
/// A statement that fails spoils the transaction it is part of, whatever the engine makes of the error. So the first
/// failure is remembered, and whoever runs the transaction asks for it before it commits.
#[derive(Debug)]
pub(crate) struct Db<C> {
    source: C,
    failure: Option<Error>,
}

impl<C: Source> Db<C> {
    pub(crate) fn new(source: C) -> Self {
        Self { source, failure: None }
    }

    pub(crate) fn conn(&self) -> &Connection {
        self.source.conn()
    }

    /// The first failure since this was last asked.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// What was written cannot stay, whatever the engine makes of it.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.failure.get_or_insert(error).clone()
    }

    fn note<R>(failure: &mut Option<Error>, outcome: rusqlite::Result<R>) -> Result<R> {
        outcome.map_err(|error| {
            let error = translate(&error);
            if !is_damaged_value(&error) && failure.is_none() {
                *failure = Some(error.clone());
            }
            error
        })
    }

    /// Runs a statement; answers how many rows it changed.
    pub(crate) fn run(&mut self, sql: &'static str, params: impl Params) -> Result<usize> {
        let outcome = self.source.with(sql, |statement| statement.execute(params));
        Self::note(&mut self.failure, outcome)
    }

    /// The same, for a statement whose parameters are bound one by one.
    pub(crate) fn run_bound(
        &mut self,
        sql: &'static str,
        bind: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<()>,
    ) -> Result<usize> {
        let outcome = self.source.with(sql, |statement| {
            bind(statement)?;
            statement.raw_execute()
        });
        Self::note(&mut self.failure, outcome)
    }

    /// The first row of a query.
    pub(crate) fn one<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Option<R>> {
        let outcome = self.source.with(sql, |statement| {
            let mut rows = statement.query(params)?;
            rows.next()?.map(read).transpose()
        });
        Self::note(&mut self.failure, outcome)
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
        let outcome = self.source.with(sql, |statement| collect(statement, params, read));
        Self::note(&mut self.failure, outcome)
    }

    /// The rows of a query, until `read` has enough.
    pub(crate) fn each(
        &mut self,
        sql: &'static str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
    ) -> Result<()> {
        let outcome = self.source.with(sql, |statement| {
            let mut rows = statement.query(params)?;
            while let Some(row) = rows.next()? {
                if !read(row)? {
                    break;
                }
            }
            Ok(())
        });
        Self::note(&mut self.failure, outcome)
    }

    /// All rows of a query that was put together.
    pub(crate) fn all_of<R>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        let outcome = self.conn().prepare_cached(sql).and_then(|mut statement| collect(&mut statement, params, read));
        Self::note(&mut self.failure, outcome)
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
