//! A connection, with its statements kept and its first failure remembered.

use crate::error::translate;
use rusqlite::{Connection, Params, Row};
use std::borrow::Borrow;
use windlass_core::{Error, Result};

/// A connection that runs statements.
///
/// A statement that fails spoils the transaction it is part of, whatever the engine makes of the error. So the first
/// failure is remembered, and whoever runs the transaction asks for it before it commits.
#[derive(Debug)]
pub(crate) struct Db<C> {
    conn: C,
    failure: Option<Error>,
}

impl<C: Borrow<Connection>> Db<C> {
    pub(crate) fn new(conn: C) -> Self {
        Self { conn, failure: None }
    }

    pub(crate) fn conn(&self) -> &Connection {
        self.conn.borrow()
    }

    /// The first failure since this was last asked.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
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
    pub(crate) fn run(&mut self, sql: &str, params: impl Params) -> Result<usize> {
        let outcome = self.conn.borrow().prepare_cached(sql).and_then(|mut statement| statement.execute(params));
        Self::note(&mut self.failure, outcome)
    }

    /// The first row of a query.
    pub(crate) fn one<R>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Option<R>> {
        let outcome = self.conn.borrow().prepare_cached(sql).and_then(|mut statement| {
            let mut rows = statement.query(params)?;
            rows.next()?.map(read).transpose()
        });
        Self::note(&mut self.failure, outcome)
    }

    /// The first row of a query, or `None` when it is not there or cannot be read: for what can be done without.
    pub(crate) fn one_readable<R>(
        &mut self,
        sql: &str,
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
        sql: &str,
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
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        let outcome = self.conn.borrow().prepare_cached(sql).and_then(|mut statement| {
            let mut rows = statement.query(params)?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push(read(row)?);
            }
            Ok(all)
        });
        Self::note(&mut self.failure, outcome)
    }
}

/// A value that we cannot read, in contrast to damage that SQLite itself found.
fn is_damaged_value(error: &Error) -> bool {
    matches!(error, Error::Corrupt { what } if !what.starts_with("the database file"))
}
