//! The lines of jobs: one entry per line.

use super::keys::Table;
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{LogTables, Row};
use crate::error::Result;
use crate::store::LogLine;

impl<K: OrderedKv> LogTables for KvTables<K> {
    fn log_range(&mut self, row: Row) -> Result<(u64, u64)> {
        let lines = keys::log(row).under();
        let first: Vec<(Row, u64)> = self.db.keys(Table::Log, lines.clone(), 1)?;
        let last: Vec<(Row, u64)> = self.db.keys(Table::Log, lines.backwards(), 1)?;
        Ok((first.first().map_or(0, |first| first.1), last.first().map_or(0, |last| last.1.saturating_add(1))))
    }

    fn append_log(&mut self, row: Row, first: u64, attempt: u32, lines: Vec<LogLine>) -> Result<()> {
        (first..).zip(lines).try_for_each(|(number, line)| self.db.put(&keys::line(row, number), &(attempt, line)))
    }

    fn log(&mut self, row: Row, from: u64, limit: usize) -> Result<Vec<(u32, LogLine)>> {
        self.db.values(keys::log(row).under().from(&keys::line(row, from)), limit)
    }

    fn trim_log(&mut self, row: Row, before: u64) -> Result<()> {
        self.db.clear(keys::log(row).under().below(&keys::line(row, before)))
    }
}
