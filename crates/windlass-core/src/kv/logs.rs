//! The lines of jobs: one entry per line.

use super::codec::decode;
use super::db::Db;
use super::keys::{Parts, Table};
use super::{OrderedKv, keys};
use crate::engine::Row;
use crate::error::Result;
use crate::store::LogLine;

fn number(key: &[u8]) -> Result<u64> {
    let mut parts = Parts::of(Table::Log, key)?;
    parts.take::<Row>()?;
    parts.take()
}

pub(super) fn range(db: &mut Db<impl OrderedKv>, row: Row) -> Result<(u64, u64)> {
    let lines = keys::log(row).under();
    let first = db.first(lines.clone())?.map(|(key, _)| number(&key)).transpose()?;
    let last = db.first(lines.backwards())?.map(|(key, _)| number(&key)).transpose()?;
    Ok((first.unwrap_or(0), last.map_or(0, |last| last.saturating_add(1))))
}

pub(super) fn append(
    db: &mut Db<impl OrderedKv>,
    row: Row,
    (first, attempt): (u64, u32),
    lines: Vec<LogLine>,
) -> Result<()> {
    (first..).zip(lines).try_for_each(|(number, line)| db.put(&keys::line(row, number), &(attempt, line)))
}

pub(super) fn read(db: &mut Db<impl OrderedKv>, row: Row, from: u64, limit: usize) -> Result<Vec<(u32, LogLine)>> {
    let lines = db.some(keys::log(row).under().from(&keys::line(row, from)), limit)?;
    lines.iter().map(|(_, value)| decode(value)).collect()
}

pub(super) fn trim(db: &mut Db<impl OrderedKv>, row: Row, before: u64) -> Result<()> {
    db.clear(keys::log(row).under().below(&keys::line(row, before)))
}
