//! Logs of jobs.

use super::Step;
use super::enqueue::check_batch;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::store::{BATCH_MAX, LOG_LINE_BYTES_MAX, LOG_LINES_MAX, LogAppend, LogPage, LogRequest};

impl<T: Tables> Step<'_, T> {
    /// See [`LogSink::append_logs`](crate::store::LogSink::append_logs).
    pub fn append_logs(&mut self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>> {
        check_batch(appends.iter().map(|append| append.lines.len()).sum::<usize>().max(appends.len()))?;
        Ok(appends.into_iter().map(|append| self.append_log(append)).collect())
    }

    fn append_log(&mut self, append: LogAppend) -> Result<u64> {
        if let Some(line) = append.lines.iter().find(|line| line.text.len() > LOG_LINE_BYTES_MAX) {
            return Err(Error::limit("a log line, in bytes,", LOG_LINE_BYTES_MAX as u64, line.text.len() as u64));
        }
        let row = self.tables.find_job(append.lease.job)?.ok_or(Error::LeaseLost)?;
        let record = self.readable_record(row)?.ok_or(Error::LeaseLost)?;
        if !record.life.is_held_by(append.lease.token) {
            return Err(Error::LeaseLost);
        }
        let (begin, next) = self.tables.log_range(row)?;
        if append.lines.is_empty() {
            return Ok(next);
        }
        if append.first > next {
            return Err(Error::invalid("first", format!("is {}, but the next line is {next}", append.first)));
        }
        let known = usize::try_from(next - append.first).unwrap_or(usize::MAX);
        let lines: Vec<_> = append.lines.into_iter().skip(known).collect();
        let end = next.saturating_add(lines.len() as u64);
        if !lines.is_empty() {
            self.tables.append_log(row, next, record.life.attempt, lines)?;
        }
        if end.saturating_sub(begin) > LOG_LINES_MAX {
            self.tables.trim_log(row, end - LOG_LINES_MAX)?;
        }
        Ok(end)
    }

    /// See [`LogSink::read_logs`](crate::store::LogSink::read_logs).
    pub fn read_logs(&mut self, request: LogRequest) -> Result<LogPage> {
        let limit = request.limit as usize;
        if limit == 0 || limit > BATCH_MAX {
            return Err(Error::invalid("limit", format!("is {limit}; give 1 to {BATCH_MAX}")));
        }
        let missing = || Error::not_found(format!("the job {}", request.job));
        let row = self.tables.find_job(request.job)?.ok_or_else(missing)?;
        let (begin, next) = self.tables.log_range(row)?;
        let first = request.from.max(begin);
        let lines = if first < next { self.tables.log(row, first, limit)? } else { Vec::new() };
        Ok(LogPage { first, lines, next })
    }
}
