//! Following a run: what its nodes did and do, and what its jobs say, from its beginning or from where it stands.

mod retries;
mod waiting;

use crate::app::App;
use crate::draw_graph::Mark;
use crate::failure::Failure;
use crate::patience::patiently;
use crate::run_view::{mark, read, reason, way_on};
use crate::ui::{DIM, STRONG, Ui};
use crate::values::{about, clean};
use retries::Retries;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use waiting::Waiting;
use windlass::core::graph::{End, Event, Outcome};
use windlass::core::id::JobId;
use windlass::core::job::{Job, State};
use windlass::core::store::{
    FeedCursor, FeedRequest, LogLine, LogPage, LogRequest, LogStream, RunState, Store, WaitFor,
};
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};

/// Lines of one page.
const PAGE: u32 = 1_000;
/// How often running jobs are asked for new lines: nobody is told of those.
const LOOK: Duration = Duration::from_millis(200);
/// Jobs whose lines are followed at once. Those of the others are shown when it is their turn.
const FOLLOWED: usize = 64;

/// A run that is followed.
pub(crate) struct Follower<'a> {
    app: &'a App,
    ui: Ui,
    store: &'a dyn Store,
    /// As far as it was told.
    pub(crate) status: RunStatus,
    /// Jobs that have not ended, and how far they were told.
    tails: BTreeMap<JobId, Tail>,
    waiting: Waiting,
    ascii: bool,
    /// Only what went wrong is shown.
    pub(crate) quiet: bool,
}

#[derive(Default)]
struct Tail {
    label: String,
    /// The next line.
    next: u64,
    retries: Retries,
}

impl Tail {
    /// Adds the attempts of its job that failed and were tried again. The last failure of a job that has failed is shown
    /// by the line about its end.
    fn take_failures(&mut self, job: &Job) {
        let retried = match job.failures.split_last() {
            Some((_, before)) if job.state == State::Failed => before,
            _ => &job.failures[..],
        };
        self.retries.learn(retried, job.due_at.filter(|_| job.state == State::Scheduled));
    }
}

impl<'a> Follower<'a> {
    /// Tells what comes after this status; of one that is rewound, everything.
    pub(crate) fn new(app: &'a App, store: &'a dyn Store, status: RunStatus, ascii: bool) -> Self {
        let (tails, waiting) = (BTreeMap::new(), Waiting::new());
        let mut follower = Self { app, ui: app.ui.undeterred(), store, status, tails, waiting, ascii, quiet: false };
        for (node, instance, job) in follower.running() {
            follower.begin(node, instance, job);
        }
        follower
    }

    fn running(&self) -> Vec<(usize, usize, JobId)> {
        let nodes = self.status.progress.nodes.iter().enumerate();
        let of = |(node, progress): (usize, &windlass::core::graph::NodeProgress)| {
            let open = progress.instances.iter().enumerate().filter(|(_, one)| one.outcome.is_none());
            open.filter_map(|(instance, one)| Some((node, instance, one.job?))).collect::<Vec<_>>()
        };
        nodes.flat_map(of).collect()
    }

    fn begin(&mut self, node: usize, instance: usize, job: JobId) {
        self.tails.insert(job, Tail { label: self.label(node, instance), ..Tail::default() });
    }

    fn label(&self, node: usize, instance: usize) -> String {
        let id = clean(&self.status.graph.nodes[node].id);
        let rows = &self.status.progress.nodes[node].rows;
        match rows.get(instance) {
            None => id,
            Some(row) => {
                let values: Vec<String> = row.values().map(windlass::core::graph::expr::text).collect();
                format!("{id} ({})", clean(&values.join(", ")))
            }
        }
    }

    /// Until the run has ended. Answers how.
    pub(crate) async fn follow(&mut self) -> Result<RunState, Failure> {
        let mut looked = None;
        loop {
            let end = FeedRequest { after: None, max: 1 };
            let seen = self.ask(async || self.store.read_feed(end).await).await?.next;
            self.take_in().await?;
            self.pass_on(looked != Some(seen)).await?;
            looked = Some(seen);
            if self.status.run.state.is_terminal() {
                return Ok(self.status.run.state);
            }
            if let Some(stuck) = &self.status.run.stuck {
                let failure = Failure::failed(format!("the run {} is stuck: {stuck}", self.status.run.id));
                // A store in memory goes with this process.
                let way = way_on(&self.status.run).filter(|_| self.app.url().is_some());
                return Err(match way {
                    Some(way) => failure.hint(way),
                    None => failure,
                });
            }
            if self.waiting.is_long() && !self.quiet {
                self.say_what_waits().await?;
            }
            self.rest(seen).await;
        }
    }

    /// Waits for something to happen. With lines to come, nobody can be waited for.
    async fn rest(&self, seen: FeedCursor) {
        let time = if self.tails.is_empty() { Duration::from_secs(1) } else { LOOK };
        let _ = tokio::time::timeout(time, self.store.wait(WaitFor::Feed(seen))).await;
    }

    /// Asks the store, with patience: the run goes on without it being looked at.
    async fn ask<T>(&self, ask: impl AsyncFnMut() -> windlass::Result<T>) -> Result<T, Failure> {
        patiently(self.ui, ask).await.map_err(|failure| self.advise(failure))
    }

    fn advise(&self, failure: Failure) -> Failure {
        let may_pass = failure.error().is_some_and(windlass::Error::is_retryable);
        match self.app.url().filter(|_| may_pass) {
            Some(_) => failure.hint(format!("the run may go on: windlass runs follow {}", self.status.run.id)),
            None => failure,
        }
    }

    /// Tells all that has happened since.
    async fn take_in(&mut self) -> Result<(), Failure> {
        loop {
            let (status, store) = (&mut self.status, self.store);
            let read = patiently(self.ui, async || status.read_on(store).await).await;
            let Some(events) = read.map_err(|failure| self.advise(failure))? else {
                return Err(Failure::failed(format!("the run {} was removed", self.status.run.id)));
            };
            let some = !events.is_empty();
            for (at, event) in events {
                self.waiting.is_over();
                self.status.take_in(at, &event);
                self.show(at, &event).await?;
            }
            if !some || !self.status.is_behind() {
                return Ok(());
            }
        }
    }

    async fn show(&mut self, at: Timestamp, event: &Event) -> Result<(), Failure> {
        if let Event::Ended { node, instance, end } = event {
            // Its last lines come before the word of its end.
            self.finish(*node, *instance, end).await?;
        }
        if self.ui.json && !self.quiet {
            self.ui.json(&json!({ "at": at, "event": event_json(event, &self.status) }))?;
        }
        match event {
            &Event::Started { node, instance, job } => {
                self.begin(node, instance, job);
                self.say(Mark::Running, &self.label(node, instance), "")
            }
            Event::Ended { node, instance, end } => {
                let took = self.status.times[*node].started_at.map(|from| about(at.ms_since(from)));
                self.say_end(&self.label(*node, *instance), took, end)
            }
            Event::Settled { node, skip: Some(_), .. } => {
                let (mark, why) = (mark(&self.status, *node), reason(&self.status, *node).unwrap_or_default());
                self.say(mark, &self.label(*node, usize::MAX), &format!("{}: {why}", mark.word()))
            }
            Event::Cancelled { reason } => self.say(Mark::Cancelled, "the run is cancelled", &clean(reason)),
            Event::TimedOut => self.say(Mark::Failed, "the run took too long", ""),
            Event::Rerun { nodes, .. } => {
                let shown = nodes.iter().filter(|&&node| crate::run_view::is_shown(&self.status.graph, node)).count();
                let what = crate::values::count(shown as u64, "node");
                self.say(Mark::Running, "once more", &what)
            }
            _ => Ok(()),
        }
    }

    fn say_end(&self, label: &str, took: Option<String>, end: &End) -> Result<(), Failure> {
        let mark = match end.outcome {
            Outcome::Succeeded => Mark::Succeeded,
            Outcome::Failed => Mark::Failed,
            Outcome::Cancelled => Mark::Cancelled,
            Outcome::Skipped => Mark::Skipped,
        };
        let error = end.error.as_deref().unwrap_or_default();
        let note = match (took, error.is_empty()) {
            (Some(took), true) => took,
            (Some(took), false) => format!("{took}: {error}"),
            (None, _) => error.to_owned(),
        };
        self.say(mark, label, &note)
    }

    fn say(&self, mark: Mark, label: &str, note: &str) -> Result<(), Failure> {
        if self.ui.json || (self.quiet && mark != Mark::Failed) {
            return Ok(());
        }
        let (style, sign) = (mark.style(), mark.sign(self.ascii));
        let note = note.lines().map(clean).collect::<Vec<_>>().join("\n    ");
        self.ui.line(format_args!("{style}{sign}{style:#} {STRONG}{label}{STRONG:#} {DIM}{note}{DIM:#}"))
    }

    /// Tells what some of the running jobs have said since, and where `changed` is true, what went wrong with them.
    async fn pass_on(&mut self, changed: bool) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let some: Vec<JobId> = self.tails.keys().copied().take(FOLLOWED).collect();
        if changed && !some.is_empty() {
            let jobs = self.ask(async || self.store.get(some.clone()).await).await?;
            for job in jobs.into_iter().flatten() {
                if let Some(tail) = self.tails.get_mut(&job.id) {
                    tail.take_failures(&job);
                }
            }
        }
        for job in some {
            self.read_on(job).await?;
        }
        Ok(())
    }

    /// Tells all that a job has said, and forgets it.
    async fn finish(&mut self, node: usize, instance: usize, end: &End) -> Result<(), Failure> {
        let job = self.status.progress.nodes[node].instances.get(instance).and_then(|one| one.job);
        let Some(job) = job.filter(|job| self.tails.contains_key(job)) else { return Ok(()) };
        if !self.quiet {
            let ended = self.ask(async || self.store.get(vec![job]).await).await?.pop().flatten();
            if let (Some(mut ended), Some(tail)) = (ended, self.tails.get_mut(&job)) {
                if end.outcome == Outcome::Failed && ended.state != State::Failed {
                    // The line about the end of the instance shows this one.
                    ended.failures.pop();
                }
                tail.take_failures(&ended);
            }
            self.read_on(job).await?;
        }
        self.tails.remove(&job);
        Ok(())
    }

    /// Shows what a job has said since, and between its lines why it was tried again.
    async fn read_on(&mut self, job: JobId) -> Result<(), Failure> {
        let Some(mut tail) = self.tails.remove(&job) else { return Ok(()) };
        loop {
            let request = LogRequest { job, from: tail.next, limit: PAGE };
            let page = self
                .ask(async || match self.store.read_logs(request).await {
                    // It was removed; its lines went with it.
                    Err(windlass::Error::NotFound { .. }) => Ok(LogPage::default()),
                    page => page,
                })
                .await?;
            if page.lines.is_empty() {
                break;
            }
            // Asked for after the lines: whatever went wrong before one of them is known then.
            if let Some(job) = self.ask(async || self.store.get(vec![job]).await).await?.pop().flatten() {
                tail.take_failures(&job);
            }
            self.waiting.is_over();
            if page.first > tail.next {
                let (from, to) = (tail.next, page.first - 1);
                self.ui.note(format_args!("note: {}: lines {from} to {to} are gone", tail.label));
            }
            tail.next = page.first + page.lines.len() as u64;
            for (number, (attempt, line)) in (page.first..).zip(page.lines) {
                while let Some(retry) = tail.retries.before(attempt, line.at) {
                    self.say_retry(&tail.label, job, &retry)?;
                }
                self.print(&tail.label, job, (number, attempt), &line)?;
            }
        }
        while let Some(retry) = tail.retries.next() {
            self.waiting.is_over();
            self.say_retry(&tail.label, job, &retry)?;
        }
        self.tails.insert(job, tail);
        Ok(())
    }

    fn print(&self, label: &str, job: JobId, at: (u64, u32), line: &LogLine) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(&line.text);
        if self.ui.json {
            let ((number, attempt), at, stream) = (at, line.at, line.stream);
            return self.ui.json(&json!({
                "log": { "node": label, "job": job, "number": number, "attempt": attempt, "at": at, "stream": stream, "text": text }
            }));
        }
        let bar = if self.ascii { '|' } else { '│' };
        let text = colours_only(&text);
        match line.stream {
            LogStream::Log => self.ui.line(format_args!("{DIM}{label} {bar} {text}{DIM:#}")),
            LogStream::Stdout | LogStream::Stderr => {
                self.ui.line(format_args!("{DIM}{label} {bar}{DIM:#} {text}\x1b[0m"))
            }
        }
    }
}

/// The event, with its nodes by name.
fn event_json(event: &Event, status: &RunStatus) -> serde_json::Value {
    let mut value = json!(event);
    for place in ["/node", "/skip/need/node"] {
        if let Some(node) = value.pointer_mut(place)
            && let Some(at) = node.as_u64().and_then(|at| usize::try_from(at).ok())
            && let Some(named) = status.graph.nodes.get(at)
        {
            *node = json!(named.id);
        }
    }
    value
}

/// A line of a command for a terminal: its colours are kept, and nothing else in it is obeyed.
pub(crate) fn colours_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\x1b[") {
            let end = sequence.find(|c: char| !(c.is_ascii_digit() || matches!(c, ';' | ':')));
            if let Some(end) = end.filter(|&end| sequence[end..].starts_with('m')) {
                out.push_str(&rest[..end + 3]);
                rest = &rest[end + 3..];
                continue;
            }
        }
        rest = &rest[c.len_utf8()..];
        if c == '\t' {
            out.push_str("    ");
        } else {
            out.push(if c.is_control() { ' ' } else { c });
        }
    }
    out
}

/// Follows a run from its beginning to its end, whatever of it is over.
pub(crate) async fn follow(app: &App, runs: &Runs, run: windlass::core::id::RunId) -> Result<RunState, Failure> {
    let status = read(runs, run).await?.rewound();
    go_on(app, runs, status).await
}

/// Follows a run to its end, from where it stood.
pub(crate) async fn go_on(app: &App, runs: &Runs, status: RunStatus) -> Result<RunState, Failure> {
    let ascii = crate::draw_graph::Canvas::of_terminal(false).ascii;
    Follower::new(app, runs.store().as_ref(), status, ascii).follow().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_kept_and_nothing_else_is_obeyed() {
        assert_eq!(colours_only("\x1b[1;31mred\x1b[0m"), "\x1b[1;31mred\x1b[0m");
        assert_eq!(colours_only("\x1b[2Jgone\x07"), " [2Jgone ");
        assert_eq!(colours_only("\x1b]0;title\x07"), " ]0;title ");
        assert_eq!(colours_only("a\tü\x1b["), "a    ü [");
    }
}
