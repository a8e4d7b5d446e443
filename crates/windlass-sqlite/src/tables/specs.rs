//! What jobs were asked to be, and what they left behind.

use super::moves::States;
use super::{SqliteTables, limit};
use crate::db::{Db, Source};
use crate::values::{Col, Json, json};
use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{Row as SqlRow, params};
use std::borrow::Cow;
use std::sync::Arc;
use windlass_core::engine::{Extra, JobTables, LogTables, QueueTables, Record, Row};
use windlass_core::job::{JobSpec, SparseSpec};
use windlass_core::name::{Kind, Labels, QueueName};
use windlass_core::payload::{JSON, Payload};
use windlass_core::store::{LogLine, LogStream};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// Payloads up to this size stand with the record: one row to write and one to read.
const SMALL_BYTES_MAX: usize = 1_024;

fn content_type(text: &str) -> Option<&str> {
    Some(text).filter(|text| *text != JSON)
}

fn read_type(text: Option<String>) -> Cow<'static, str> {
    text.map_or(Cow::Borrowed(JSON), Cow::Owned)
}

/// A spec as it is stored: what is not in the record or the lane.
#[derive(Debug)]
pub(super) struct Stored {
    /// `None` when it is too large to stand with the record.
    bytes: Option<Bytes>,
    content_type: Cow<'static, str>,
    rest: Option<SparseSpec>,
}

/// What a job that exists was asked to be.
pub(super) fn get<C: Source>(tables: &mut SqliteTables<C>, row: Row) -> Result<Arc<JobSpec>> {
    let record = tables.record(row)?.ok_or_else(|| Error::missing_record("job row", row.0))?;
    let missing = || Error::corrupt(format!("job row {} has no payload", row.0));
    let mut stored = match tables.recent.take_spec(row) {
        Some(stored) => stored,
        None => {
            let sql = "SELECT payload,content_type,rest FROM windlass_job WHERE row=?1";
            tables.db.settled()?.one(sql, [Col(row.0)], |row| read_at(row, 0))?.ok_or_else(missing)?
        }
    };
    if stored.bytes.is_none() {
        let sql = "SELECT payload FROM windlass_payload WHERE row=?1";
        let read = |row: &SqlRow<'_>| Ok(Bytes::copy_from_slice(row.get_ref(0)?.as_blob()?));
        stored.bytes = tables.db.settled()?.one(sql, [Col(row.0)], read)?;
    }
    let bytes = stored.bytes.take().ok_or_else(missing)?;
    let lane = tables.lane(record.lane)?;
    let (kind, labels) = (lane.kind.clone(), lane.labels.clone());
    let queue = tables.queue(record.queue)?.name.clone();
    Ok(Arc::new(assemble(&record, (queue, kind, labels), stored, bytes)))
}

fn assemble(record: &Record, of: (QueueName, Kind, Labels), stored: Stored, bytes: Bytes) -> JobSpec {
    let (queue, kind, labels) = of;
    let payload = Payload { content_type: stored.content_type, bytes };
    stored.rest.unwrap_or_default().complete(JobSpec {
        priority: record.priority,
        lifo: record.lifo,
        attempts: record.life.attempts_max,
        stalls: record.life.stalls_max,
        labels,
        run: record.run,
        ..JobSpec::new(queue, kind, payload)
    })
}

/// Payload, content type and rest, from column `at` on.
pub(super) fn read_at(row: &SqlRow<'_>, at: usize) -> rusqlite::Result<Stored> {
    let bytes = row.get_ref(at)?.as_blob_or_null()?.map(Bytes::copy_from_slice);
    let rest = row.get::<_, Option<Json<SparseSpec>>>(at + 2)?.map(|rest| rest.0);
    if let Some(field) = rest.as_ref().and_then(|rest| rest.unknown.keys().next()) {
        let why = format!("unknown field `{field}`");
        return Err(rusqlite::Error::FromSqlConversionFailure(at + 2, Type::Text, why.into()));
    }
    Ok(Stored { bytes, content_type: read_type(row.get(at + 1)?), rest })
}

/// The columns of a spec.
pub(super) struct Columns<'s> {
    /// `None` when it is too large to stand with the record.
    pub(super) payload: Option<&'s [u8]>,
    pub(super) content_type: Option<&'s str>,
    pub(super) rest: Option<String>,
}

pub(super) fn columns(spec: &JobSpec) -> Result<Columns<'_>> {
    Ok(Columns {
        payload: Some(spec.payload.bytes.as_ref()).filter(|bytes| bytes.len() <= SMALL_BYTES_MAX),
        content_type: content_type(&spec.payload.content_type),
        rest: SparseSpec::of(spec).to_json()?,
    })
}

pub(super) fn put_payload<C: Source>(db: &mut Db<C>, row: Row, bytes: &[u8]) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO windlass_payload(row,payload) VALUES(?1,?2)";
    db.run(sql, params![Col(row.0), bytes])
}

pub(super) fn replace<C: Source>(states: &mut States<'_, C>, row: Row, spec: &JobSpec) -> Result<()> {
    let db = states.db();
    let Columns { payload, content_type, rest } = columns(spec)?;
    let sql = "UPDATE windlass_job SET payload=?2,content_type=?3,rest=?4 WHERE row=?1";
    db.run(sql, params![Col(row.0), payload, content_type, rest])?;
    match payload {
        Some(_) => db.run("DELETE FROM windlass_payload WHERE row=?1", [Col(row.0)]),
        None => put_payload(db, row, &spec.payload.bytes),
    }
}

pub(super) fn extra<C: Source>(db: &mut Db<C>, row: Row) -> Result<Extra> {
    let sql = "SELECT progress,result,result_type,outputs,failures,held_due_at FROM windlass_extra WHERE row=?1";
    let found = db.one(sql, [Col(row.0)], |row| {
        let result: Option<Vec<u8>> = row.get(1)?;
        let content_type = read_type(row.get(2)?);
        Ok(Extra {
            progress: row.get::<_, Option<Json<_>>>(0)?.map(|progress| progress.0),
            result: result.map(|bytes| Payload { content_type, bytes: bytes.into() }),
            outputs: row.get::<_, Option<Json<_>>>(3)?.map(|outputs| outputs.0).unwrap_or_default(),
            failures: row.get::<_, Option<Json<_>>>(4)?.map(|failures| failures.0).unwrap_or_default(),
            held_due_at: row.get::<_, Option<Col<_>>>(5)?.map(|at| at.0),
        })
    })?;
    Ok(found.unwrap_or_default())
}

pub(super) fn put_extra<C: Source>(db: &mut Db<C>, row: Row, extra: &Extra) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO windlass_extra(row,progress,result,result_type,outputs,failures,held_due_at) \
               VALUES(?1,?2,?3,?4,?5,?6,?7)";
    let result = extra.result.as_ref();
    let outputs = if extra.outputs.is_empty() { None } else { Some(json(&extra.outputs)?) };
    let failures = if extra.failures.is_empty() { None } else { Some(json(&extra.failures)?) };
    let progress = extra.progress.as_ref().map(json).transpose()?;
    let bytes = result.map(|result| result.bytes.as_ref());
    let kind = result.and_then(|result| content_type(&result.content_type));
    let held = extra.held_due_at.map(Col);
    db.run(sql, params![Col(row.0), progress, bytes, kind, outputs, failures, held])
}

fn stream_code(stream: LogStream) -> i64 {
    match stream {
        LogStream::Log => 0,
        LogStream::Stdout => 1,
        LogStream::Stderr => 2,
    }
}

impl<C: Source> LogTables for SqliteTables<C> {
    fn log_range(&mut self, row: Row) -> Result<(u64, u64)> {
        let number = |row: &SqlRow<'_>| Ok(row.get::<_, Col<u64>>(0)?.0);
        let first = self.db.others().one(
            "SELECT number FROM windlass_log WHERE row=?1 ORDER BY number LIMIT 1",
            [Col(row.0)],
            number,
        )?;
        let last = self.db.others().one(
            "SELECT number FROM windlass_log WHERE row=?1 ORDER BY number DESC LIMIT 1",
            [Col(row.0)],
            number,
        )?;
        Ok((first.unwrap_or(0), last.map_or(0, |last| last.saturating_add(1))))
    }

    fn append_log(&mut self, row: Row, first: u64, attempt: u32, lines: Vec<LogLine>) -> Result<()> {
        let sql = "INSERT INTO windlass_log(row,number,attempt,at,stream,text) VALUES(?1,?2,?3,?4,?5,?6)";
        for (number, line) in (first..).zip(lines) {
            let text = line.text.as_ref();
            self.db
                .others()
                .run(sql, params![Col(row.0), Col(number), attempt, Col(line.at), stream_code(line.stream), text])?;
        }
        Ok(())
    }

    fn log(&mut self, row: Row, from: u64, max: usize) -> Result<Vec<(u32, LogLine)>> {
        let sql =
            "SELECT attempt,at,stream,text FROM windlass_log WHERE row=?1 AND number>=?2 ORDER BY number LIMIT ?3";
        self.db.others().all(sql, params![Col(row.0), Col(from), limit(max)], |row| {
            let stream = match row.get::<_, i64>(2).unwrap_or_default() {
                1 => LogStream::Stdout,
                2 => LogStream::Stderr,
                _ => LogStream::Log,
            };
            let text = Bytes::copy_from_slice(row.get_ref(3)?.as_bytes_or_null()?.unwrap_or_default());
            let at = Timestamp::from_ms(row.get(1).unwrap_or_default());
            Ok((row.get(0).unwrap_or_default(), LogLine { at, stream, text }))
        })
    }

    fn trim_log(&mut self, row: Row, before: u64) -> Result<()> {
        self.db.others().run("DELETE FROM windlass_log WHERE row=?1 AND number<?2", [Col(row.0), Col(before)])
    }
}
