//! `enqueue --bulk`: many jobs from a file or from standard input.
//!
//! A file can be read twice, so it is checked as a whole first and a bad one changes nothing. Standard input cannot: it
//! is enqueued in batches as it comes, and the first bad line ends it. Lines are read on a thread of their own, so that
//! an interrupt is noticed while there is nothing to read.

use crate::app::App;
use crate::failure::{Failure, say, to_json};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use windlass::Client;
use windlass::core::store::Enqueued;
use windlass_operate::OperateError;
use windlass_operate::enqueue::{BATCH_JOBS, Batch, BulkSummary, JobLine, JobLines, lost_answer};
use windlass_operate::text::count;

/// After so long without a line, what is at hand is enqueued.
const PAUSE: Duration = Duration::from_millis(100);
/// So many bad lines are named, the others counted.
const NAMED_MAX: usize = 20;

/// A line, or why there is none.
type Line = Result<JobLine, (u64, OperateError)>;

pub(super) async fn run(app: &App, file: &Path) -> Result<ExitCode, Failure> {
    let cannot = |error: std::io::Error| Failure::invalid(format!("{}: {error}", file.display()));
    let stdin = file.as_os_str() == "-";
    let mut size = 0;
    if !stdin {
        let about = std::fs::metadata(file).map_err(cannot)?;
        if about.is_dir() {
            return Err(Failure::invalid(format!("{} is a folder; name a file", file.display())));
        }
        if about.is_file() {
            size = about.len();
            check(app, File::open(file).map_err(cannot)?, size)?;
        }
    }
    let store = app.store()?;
    let source: Box<dyn Read + Send> =
        if stdin { Box::new(std::io::stdin()) } else { Box::new(File::open(file).map_err(cannot)?) };
    let mut upload = Upload { app, summary: BulkSummary::default(), refusals: 0, bar: app.ui.bar(size, "enqueueing") };
    let outcome = upload.all(&Client::new(store), start(source)?).await;
    upload.bar.finish_and_clear();
    upload.report()?;
    outcome?;
    Ok(if upload.summary.refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads the whole file and changes nothing.
fn check(app: &App, file: File, size: u64) -> Result<(), Failure> {
    let bar = app.ui.bar(size, "checking");
    let mut bad = 0;
    for line in JobLines::new(file) {
        match line {
            Ok(line) => bar.inc(line.bytes as u64),
            Err((number, failure)) => {
                bad += 1;
                name(app, number, &failure, bad);
            }
        }
    }
    bar.finish_and_clear();
    match bad {
        0 => Ok(()),
        _ => Err(Failure::invalid(format!("{}; nothing was enqueued", count(bad as u64, "bad line")))
            .hint("mend them and run it again")),
    }
}

/// Says what is wrong with a line, unless too much has been said already.
fn name(app: &App, number: u64, failure: &Failure, nth: usize) {
    if nth > NAMED_MAX {
        return;
    }
    if app.ui.json {
        let mut value = to_json(failure);
        value["line"] = number.into();
        say(value);
    } else {
        say(format_args!("line {number}: {failure}"));
        if nth == NAMED_MAX {
            say("… further ones are counted only");
        }
    }
}

struct Upload<'a> {
    app: &'a App,
    summary: BulkSummary,
    refusals: usize,
    bar: indicatif::ProgressBar,
}

impl Upload<'_> {
    async fn all(&mut self, client: &Client, mut lines: mpsc::Receiver<Line>) -> Result<(), Failure> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut batch = Batch::default();
        loop {
            let next = tokio::select! {
                biased;
                _ = interrupts.recv() => return Err(self.interrupted()),
                next = next(&mut lines, batch.jobs.is_empty()) => next,
            };
            match next {
                Next::Line(Ok(line)) => {
                    batch.add(line);
                    if batch.is_full() {
                        self.send(client, &mut batch).await?;
                    }
                }
                Next::Pause => self.send(client, &mut batch).await?,
                Next::Line(Err((number, failure))) => {
                    self.send(client, &mut batch).await?;
                    name(self.app, number, &failure, 1);
                    let done = count(self.summary.accepted(), "job");
                    return Err(Failure::invalid(format!("line {number} is bad; enqueued before it: {done}"))
                        .hint(format!("mend it and go on from line {number}")));
                }
                Next::End => return self.send(client, &mut batch).await,
            }
        }
    }

    async fn send(&mut self, client: &Client, batch: &mut Batch) -> Result<(), Failure> {
        let Batch { jobs, numbers, bytes } = std::mem::take(batch);
        let answers = client.enqueue_new(jobs).await.map_err(|error| self.broken(&numbers, error))?;
        for (number, answer) in numbers.into_iter().zip(answers) {
            self.take(number, answer);
        }
        self.bar.inc(bytes as u64);
        Ok(())
    }

    fn take(&mut self, number: u64, answer: windlass::Result<Enqueued>) {
        match answer {
            Ok(enqueued) => self.summary.add(&enqueued),
            Err(error) => {
                self.summary.refused += 1;
                self.refusals += 1;
                self.bar.suspend(|| name(self.app, number, &error.into(), self.refusals));
            }
        }
    }

    fn interrupted(&self) -> Failure {
        Failure::interrupted().hint(format!("enqueued before that: {}", count(self.summary.accepted(), "job")))
    }

    fn broken(&self, lines: &[u64], error: windlass::Error) -> Failure {
        let done = format!("enqueued before that: {}", count(self.summary.accepted(), "job"));
        let Some(reason) = lost_answer(&error) else { return Failure::from(error).hint(done) };
        let lines = match lines {
            [first, .., last] => format!("lines {first} to {last} are"),
            [line] => format!("line {line} is"),
            [] => "the last lines are".to_owned(),
        };
        Failure::from(error)
            .with_message(format!("whether {lines} enqueued is not known: {reason}"))
            .hint(format!("{done}; look before you repeat the others. A line with an `id` can be repeated at any time"))
    }

    fn report(&self) -> Result<(), Failure> {
        if self.app.ui.json {
            return self.app.ui.json(&self.summary);
        }
        self.app.ui.line(self.summary.text())
    }
}

/// What comes next.
#[expect(clippy::large_enum_variant, reason = "there is one of it at a time")]
enum Next {
    Line(Line),
    /// Nothing has come for a while.
    Pause,
    End,
}

/// The next line. Jobs that are at hand are not kept waiting for it: whoever writes them may write one an hour.
async fn next(lines: &mut mpsc::Receiver<Line>, idle: bool) -> Next {
    let line = match idle {
        true => lines.recv().await,
        false => match tokio::time::timeout(PAUSE, lines.recv()).await {
            Ok(line) => line,
            Err(_) => return Next::Pause,
        },
    };
    line.map_or(Next::End, Next::Line)
}

/// Reads and checks lines on a thread of their own, a little ahead of whoever takes them.
fn start(source: Box<dyn Read + Send>) -> Result<mpsc::Receiver<Line>, Failure> {
    let (to, lines) = mpsc::channel(BATCH_JOBS);
    let read = move || {
        for line in JobLines::new(source) {
            let bad = line.is_err();
            if to.blocking_send(line).is_err() || bad {
                break;
            }
        }
    };
    std::thread::Builder::new().name("windlass-bulk-reader".to_owned()).spawn(read)?;
    Ok(lines)
}
