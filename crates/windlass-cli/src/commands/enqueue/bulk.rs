//! `enqueue --bulk`: many jobs from a file or from standard input.
//!
//! A file can be read twice, so it is checked as a whole first and a bad one changes nothing. Standard input cannot: it
//! is enqueued in batches as it comes, and the first bad line ends it. Lines are read on a thread of their own, so that
//! an interrupt is noticed while there is nothing to read.

use super::{ids, lost_answer, send};
use crate::app::App;
use crate::failure::{Failure, say};
use crate::job_input::JobInput;
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use windlass::core::id::Ids;
use windlass::core::job::{NewJob, PAYLOAD_BYTES_MAX};
use windlass::core::store::{Enqueued, Store};
use windlass_operate::text::{count, unknown_field_hint};

/// Jobs of one call.
const BATCH: usize = 1_000;
/// Bytes of payload of one call.
const BATCH_BYTES: usize = 8 << 20;
/// After so long without a line, what is at hand is enqueued.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest line: the largest payload with everything that may stand beside it.
const LINE_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX + (1 << 20);
/// So many bad lines are named, the others counted.
const NAMED_MAX: usize = 20;

/// What became of the jobs.
#[derive(Debug, Default, Serialize)]
struct Summary {
    created: u64,
    existing: u64,
    deduplicated: u64,
    replaced: u64,
    held: u64,
    refused: u64,
}

impl Summary {
    fn accepted(&self) -> u64 {
        self.created + self.existing + self.deduplicated + self.replaced + self.held
    }

    fn note(&mut self, enqueued: Enqueued) {
        let counter = match enqueued {
            Enqueued::Created { .. } => &mut self.created,
            Enqueued::Existing { .. } => &mut self.existing,
            Enqueued::Deduplicated { .. } => &mut self.deduplicated,
            Enqueued::Replaced { .. } => &mut self.replaced,
            Enqueued::Held { .. } => &mut self.held,
        };
        *counter += 1;
    }
}

/// A line, or why there is none.
type Line = Result<(u64, NewJob, usize), (u64, Failure)>;

pub(super) async fn run(app: &App, file: &Path) -> Result<ExitCode, Failure> {
    let cannot = |error: std::io::Error| Failure::usage(format!("{}: {error}", file.display()));
    let stdin = file.as_os_str() == "-";
    let mut size = 0;
    if !stdin {
        let about = std::fs::metadata(file).map_err(cannot)?;
        if about.is_dir() {
            return Err(Failure::usage(format!("{} is a folder; name a file", file.display())));
        }
        if about.is_file() {
            size = about.len();
            check(app, File::open(file).map_err(cannot)?, size)?;
        }
    }
    let store = app.store()?;
    let source: Box<dyn Read + Send> =
        if stdin { Box::new(std::io::stdin()) } else { Box::new(File::open(file).map_err(cannot)?) };
    let mut upload = Upload { app, summary: Summary::default(), refusals: 0, bar: app.ui.bar(size, "enqueueing") };
    let outcome = upload.all(store.as_ref(), start(source)?).await;
    upload.bar.finish_and_clear();
    upload.report()?;
    outcome?;
    store.close().await?;
    Ok(if upload.summary.refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads the whole file and changes nothing.
fn check(app: &App, file: File, size: u64) -> Result<(), Failure> {
    let (bar, ids) = (app.ui.bar(size, "checking"), ids());
    let mut bad = 0;
    for line in Lines::new(file, ids) {
        match line {
            Ok((_, _, bytes)) => bar.inc(bytes as u64),
            Err((number, failure)) => {
                bad += 1;
                name(app, number, &failure, bad);
            }
        }
    }
    bar.finish_and_clear();
    match bad {
        0 => Ok(()),
        _ => Err(Failure::usage(format!("{}; nothing was enqueued", count(bad as u64, "bad line")))
            .hint("mend them and run it again")),
    }
}

/// Says what is wrong with a line, unless too much has been said already.
fn name(app: &App, number: u64, failure: &Failure, nth: usize) {
    if nth > NAMED_MAX {
        return;
    }
    if app.ui.json {
        let mut value = failure.to_json();
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
    summary: Summary,
    refusals: usize,
    bar: indicatif::ProgressBar,
}

impl Upload<'_> {
    async fn all(&mut self, store: &dyn Store, mut lines: mpsc::Receiver<Line>) -> Result<(), Failure> {
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
                    batch.take(line);
                    if batch.is_full() {
                        self.send(store, &mut batch).await?;
                    }
                }
                Next::Pause => self.send(store, &mut batch).await?,
                Next::Line(Err((number, failure))) => {
                    self.send(store, &mut batch).await?;
                    name(self.app, number, &failure, 1);
                    let done = count(self.summary.accepted(), "job");
                    return Err(Failure::usage(format!("line {number} is bad; enqueued before it: {done}"))
                        .hint(format!("mend it and go on from line {number}")));
                }
                Next::End => return self.send(store, &mut batch).await,
            }
        }
    }

    async fn send(&mut self, store: &dyn Store, batch: &mut Batch) -> Result<(), Failure> {
        let Batch { jobs, numbers, bytes } = std::mem::take(batch);
        let answers = send(store, jobs).await.map_err(|error| self.broken(&numbers, error))?;
        for (number, answer) in numbers.into_iter().zip(answers) {
            self.take(number, answer);
        }
        self.bar.inc(bytes as u64);
        Ok(())
    }

    fn take(&mut self, number: u64, answer: windlass::Result<Enqueued>) {
        match answer {
            Ok(enqueued) => self.summary.note(enqueued),
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
            .says(format!("whether {lines} enqueued is not known: {reason}"))
            .hint(format!("{done}; look before you repeat the others. A line with an `id` can be repeated at any time"))
    }

    fn report(&self) -> Result<(), Failure> {
        if self.app.ui.json {
            return self.app.ui.json(&self.summary);
        }
        let Summary { created, existing, deduplicated, replaced, held, refused } = self.summary;
        let parts = [
            (created, "created"),
            (existing, "there already"),
            (deduplicated, "deduplicated"),
            (replaced, "replaced another"),
            (held, "held behind another"),
            (refused, "refused"),
        ];
        let said: Vec<String> = parts
            .iter()
            .filter(|(count, name)| *count > 0 || *name == "created")
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        self.app.ui.line(said.join(", "))
    }
}

/// Jobs that go together.
#[derive(Debug, Default)]
struct Batch {
    jobs: Vec<NewJob>,
    numbers: Vec<u64>,
    bytes: usize,
}

impl Batch {
    fn take(&mut self, (number, job, bytes): (u64, NewJob, usize)) {
        self.jobs.push(job);
        self.numbers.push(number);
        self.bytes += bytes;
    }

    fn is_full(&self) -> bool {
        self.jobs.len() >= BATCH || self.bytes >= BATCH_BYTES
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
    let (to, lines) = mpsc::channel(BATCH);
    let read = move || {
        for line in Lines::new(source, ids()) {
            let bad = line.is_err();
            if to.blocking_send(line).is_err() || bad {
                break;
            }
        }
    };
    std::thread::Builder::new().name("windlass-bulk-reader".to_owned()).spawn(read)?;
    Ok(lines)
}

/// The jobs of a file, one a line; empty lines are nothing.
struct Lines<R> {
    source: BufReader<R>,
    number: u64,
    ids: Ids,
    /// The source is broken.
    over: bool,
}

impl<R: Read> Lines<R> {
    fn new(source: R, ids: Ids) -> Self {
        Self { source: BufReader::new(source), number: 0, ids, over: false }
    }

    fn read(&mut self, line: &mut Vec<u8>) -> Result<(), Failure> {
        let over = &mut self.over;
        let mut cannot = |error: std::io::Error| {
            *over = true;
            Failure::failed(format!("cannot be read: {error}"))
        };
        (&mut self.source).take(LINE_BYTES_MAX).read_until(b'\n', line).map_err(&mut cannot)?;
        if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
            self.source.skip_until(b'\n').map_err(cannot)?;
            return Err(Failure::usage(format!("is longer than {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn parse(&self, line: &[u8]) -> Result<NewJob, Failure> {
        let input: JobInput = serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            let place = format!(" at line {} column", error.line());
            let text = text.replace(&place, " at column");
            match unknown_field_hint(&text) {
                // All the fields there are would hide the one that was meant.
                Some(advice) => Failure::usage(text.split(", expected").next().unwrap_or(&text)).hint(advice),
                None => Failure::usage(text),
            }
        })?;
        let (spec, due) = input.into_spec()?;
        Ok(NewJob::new(self.ids.next(), spec).due(due))
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            if self.over {
                return None;
            }
            let mut line = Vec::new();
            self.number += 1;
            if let Err(failure) = self.read(&mut line) {
                return Some(Err((self.number, failure)));
            }
            if line.is_empty() {
                return None;
            }
            if !line.trim_ascii().is_empty() {
                let job = self.parse(line.trim_ascii_end()).map(|job| (self.number, job, line.len()));
                return Some(job.map_err(|failure| (self.number, failure)));
            }
        }
    }
}
