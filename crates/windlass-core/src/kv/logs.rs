//! The lines of jobs: one entry per line.

use super::codec::decode;
use super::keys::{Parts, Table};
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{LogTables, Row};
use crate::error::Result;
use crate::store::LogLine;

fn number(key: &[u8]) -> Result<u64> {
    let mut parts = Parts::of(Table::Log, key)?;
    parts.take::<Row>()?;
    parts.take()
}

impl<K: OrderedKv> LogTables for KvTables<K> {
    fn log_range(&mut self, row: Row) -> Result<(u64, u64)> {
        let lines = keys::log(row).under();
        let first = self.db.first(lines.clone())?.map(|(key, _)| number(&key)).transpose()?;
        let last = self.db.first(lines.backwards())?.map(|(key, _)| number(&key)).transpose()?;
        Ok((first.unwrap_or(0), last.map_or(0, |last| last.saturating_add(1))))
    }

    fn append_log(&mut self, row: Row, first: u64, attempt: u32, lines: Vec<LogLine>) -> Result<()> {
        (first..).zip(lines).try_for_each(|(number, line)| self.db.put(&keys::line(row, number), &(attempt, line)))
    }

    fn log(&mut self, row: Row, from: u64, limit: usize) -> Result<Vec<(u32, LogLine)>> {
        let lines = self.db.some(keys::log(row).under().from(&keys::line(row, from)), limit)?;
        lines.iter().map(|(_, value)| decode(value)).collect()
    }

    fn trim_log(&mut self, row: Row, before: u64) -> Result<()> {
        self.db.clear(keys::log(row).under().below(&keys::line(row, before)))
    }
}
