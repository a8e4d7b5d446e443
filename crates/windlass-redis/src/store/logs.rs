//! Logs of jobs: a line each, `attempt time stream text`.

use super::RedisStore;
use crate::reply::{Items, number, odd, sound};
use crate::scripts::AT;
use async_trait::async_trait;
use bytes::Bytes;
use windlass_core::store::{LOG_LINES_MAX, LogAppend, LogLine, LogPage, LogRequest, LogSink, LogStream};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

const STREAMS: [(LogStream, u8); 3] = [(LogStream::Log, b'l'), (LogStream::Stdout, b'o'), (LogStream::Stderr, b'e')];

fn line_text(line: &LogLine) -> Vec<u8> {
    let stream = STREAMS.iter().find(|(stream, _)| *stream == line.stream).map_or(b'l', |(_, letter)| *letter);
    let mut text = format!("{} {} ", line.at.as_ms(), char::from(stream)).into_bytes();
    text.extend(&line.text);
    text
}

fn line(stored: &Bytes) -> Option<(u32, LogLine)> {
    let mut parts = stored.splitn(4, |byte| *byte == b' ');
    let attempt = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let at = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let letter = parts.next()?;
    let stream = STREAMS.iter().find(|(_, known)| [*known] == *letter)?.0;
    let text = stored.slice_ref(parts.next()?);
    Some((attempt, LogLine { at: Timestamp::from_ms(at), stream, text }))
}

/// Stands for a line that is damaged, so that those behind it keep their numbers.
fn lost_line() -> (u32, LogLine) {
    let text = Bytes::from_static("(this line is damaged)".as_bytes());
    (0, LogLine { at: Timestamp::from_ms(0), stream: LogStream::Log, text })
}

#[async_trait]
impl LogSink for RedisStore {
    async fn append_logs(&self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>> {
        LogAppend::check_batch(&appends)?;
        let (checks, sound) = sound(&appends, LogAppend::check);
        let mut call = self.caller.script(AT.append_logs);
        call.arg_fmt(LOG_LINES_MAX).arg_fmt(sound.len());
        for append in sound {
            call.arg_fmt(append.lease.job).arg_fmt(append.lease.token);
            call.arg_fmt(append.first).arg_fmt(append.lines.len());
            for line in &append.lines {
                call.arg(line_text(line));
            }
        }
        let mut items = Items::of(self.caller.run(call).await?)?;
        let answer =
            |(check, append): (Result<()>, &LogAppend)| check.and_then(|()| appended(&items.text()?, append.first));
        Ok(checks.into_iter().zip(&appends).map(answer).collect())
    }

    async fn read_logs(&self, request: LogRequest) -> Result<LogPage> {
        request.check()?;
        let mut call = self.caller.script(AT.read_logs);
        // Beyond this the scripts do not count exactly, and no log is so long.
        let from = request.from.min(1 << 53);
        call.arg_fmt(request.job).arg_fmt(from).arg_fmt(request.limit);
        let mut items = self.caller.items(call).await?;
        match items.text()?.as_str() {
            "ok" => {}
            "missing" => return Err(Error::job_not_found(request.job)),
            other => return Err(odd(other)),
        }
        let (first, next) = (items.number()?, items.number()?);
        let lines = items.all(|items| Ok(line(&items.bytes()?).unwrap_or_else(lost_line)))?;
        let first = if request.from > from { request.from } else { first };
        Ok(LogPage { first, lines, next })
    }
}

fn appended(answer: &str, first: u64) -> Result<u64> {
    match answer.split_once(' ') {
        Some(("gap", next)) => Err(Error::log_gap(first, number(next)?)),
        Some(_) => Err(odd(answer)),
        None if answer == "lost" => Err(Error::LeaseLost),
        None => number(answer),
    }
}
