//! `windlass jobs logs`.

use crate::app::App;
use crate::failure::Failure;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::Duration;
use windlass::core::id::JobId;
use windlass::core::job::State;
use windlass::core::store::{LogPage, LogRequest, Store, WaitFor};
use windlass_operate::ErrorKind;
use windlass_operate::names::JobName;
use windlass_operate::text::printable_with_colours;

/// Lines of one page.
const PAGE: u32 = 1_000;
/// New lines wake nobody, so they are looked for at this pace; the job's end is waited for.
const PACE: Duration = Duration::from_millis(250);

const AFTER: &str = "\
On a terminal the colours of a line are kept, and nothing else in it is obeyed; elsewhere a line is the bytes that were written. \
With --json a line that is not UTF-8 has them in base64, as `bytes`.

Examples:
  windlass jobs logs 0-01k9z3v8q2f7t8x6m5n4p3r2s1
  windlass jobs logs 0-01k9z3v8q2f7t8x6m5n4p3r2s1 --follow";

/// Print what a job has logged.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Logs {
    /// The job's id, or the one that it was given with --id
    id: JobName,
    /// Go on until the job has ended
    #[arg(long, short)]
    follow: bool,
}

impl Logs {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let id = self.id.find(store.as_ref()).await?;
        let mut from = 0;
        // Looked at before the lines are read: what was logged before the end is not missed.
        let mut state = state(store.as_ref(), id).await?;
        if state.is_none() {
            return Err(Failure::not_found(format!("there is no job {id}")));
        }
        loop {
            match read_on(app, store.as_ref(), id, &mut from).await {
                // Its lines were removed with it, those that were not read yet included.
                Err(failure) if failure.kind == ErrorKind::NotFound => state = None,
                read => read?,
            }
            if state.is_none() {
                app.ui.note(format_args!("note: the job {id} ended and was removed; its last lines may be missing"));
                break;
            }
            if !self.follow || state.is_some_and(State::is_terminal) {
                break;
            }
            let _ = tokio::time::timeout(PACE, store.wait(WaitFor::Job(id))).await;
            state = self::state(store.as_ref(), id).await?;
        }
        if from == 0 && state.is_some() {
            app.ui.note("no lines");
        }
        Ok(())
    }
}

/// The job's state; `None` when there is no such job.
async fn state(store: &dyn Store, id: JobId) -> Result<Option<State>, Failure> {
    Ok(store.get(vec![id]).await?.pop().flatten().map(|job| job.state))
}

async fn read_on(app: &App, store: &dyn Store, job: JobId, from: &mut u64) -> Result<(), Failure> {
    loop {
        let page = store.read_logs(LogRequest { job, from: *from, limit: PAGE }).await?;
        if page.lines.is_empty() {
            *from = page.next.max(*from);
            return Ok(());
        }
        if page.first > *from {
            app.ui.note(format_args!("note: lines {from} to {} are gone", page.first - 1));
        }
        *from = page.first + page.lines.len() as u64;
        print(app, page)?;
    }
}

fn print(app: &App, page: LogPage) -> Result<(), Failure> {
    let terminal = std::io::stdout().is_terminal();
    for (number, (attempt, line)) in (page.first..).zip(page.lines) {
        let text = String::from_utf8_lossy(&line.text);
        if app.ui.json {
            let (at, stream) = (line.at, line.stream);
            let mut shown = json!({ "number": number, "attempt": attempt, "at": at, "stream": stream, "text": text });
            if std::str::from_utf8(&line.text).is_err() {
                shown["bytes"] = Value::String(BASE64_STANDARD.encode(&line.text));
            }
            app.ui.json(&shown)?;
        } else if terminal {
            app.ui.line(format_args!("{} #{attempt} {}", line.at, for_terminal(&text)))?;
        } else {
            let mut bytes = format!("{} #{attempt} ", line.at).into_bytes();
            bytes.extend_from_slice(&line.text);
            app.ui.bytes(&bytes)?;
        }
    }
    Ok(())
}

/// What a line looks like to people; its colours end with it.
fn for_terminal(text: &str) -> String {
    let text = printable_with_colours(text);
    if text.contains('\x1b') { text + "\x1b[0m" } else { text }
}

#[cfg(test)]
mod tests {
    use super::for_terminal;

    #[test]
    fn colours_end_with_their_line_and_nothing_else_is_obeyed() {
        assert_eq!(for_terminal("\x1b[31mred"), "\x1b[31mred\x1b[0m");
        assert_eq!(for_terminal("plain\x07\x1b[2J"), "plain  [2J");
    }
}
