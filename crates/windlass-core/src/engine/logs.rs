//! Logs of jobs.

use super::Step;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::store::{LOG_LINES_MAX, LogAppend, LogPage, LogRequest};

impl<T: Tables> Step<'_, T> {
    /// See [`LogSink::append_logs`](crate::store::LogSink::append_logs).
    pub fn append_logs(&mut self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>> {
        LogAppend::check_batch(&appends)?;
        Ok(appends.into_iter().map(|append| self.append_log(append)).collect())
    }

    fn append_log(&mut self, append: LogAppend) -> Result<u64> {
        append.check()?;
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
            return Err(Error::log_gap(append.first, next));
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
        request.check()?;
        let limit = request.limit as usize;
        let missing = || Error::job_not_found(request.job);
        let row = self.tables.find_job(request.job)?.ok_or_else(missing)?;
        let (begin, next) = self.tables.log_range(row)?;
        let first = request.from.max(begin);
        let lines = if first < next { self.tables.log(row, first, limit)? } else { Vec::new() };
        Ok(LogPage { first, lines, next })
    }
}
