//! Following a run: what its nodes do, and what its jobs say, as it happens.

use crate::app::App;
use crate::draw_graph::Mark;
use crate::failure::Failure;
use crate::run_view::{mark, read, reason, way_on};
use crate::ui::{DIM, STRONG};
use crate::values::{about, clean};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass::core::graph::Event;
use windlass::core::id::JobId;
use windlass::core::store::{FeedRequest, LogPage, LogRequest, LogStream, RunState, Store, WaitFor};
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
    store: &'a dyn Store,
    pub(crate) status: RunStatus,
    /// Jobs whose lines are not all shown: by job, their node, the next line, and whether the job has ended.
    tails: BTreeMap<JobId, Tail>,
    ascii: bool,
    /// Lines are shown.
    pub(crate) logs: bool,
}

struct Tail {
    label: String,
    next: u64,
    ended: bool,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(app: &'a App, store: &'a dyn Store, status: RunStatus, ascii: bool) -> Self {
        let mut follower = Self { app, store, status, tails: BTreeMap::new(), ascii, logs: true };
        let running: Vec<(usize, usize, JobId)> = follower.running();
        for (node, instance, job) in running {
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
        if self.logs {
            self.tails.insert(job, Tail { label: self.label(node, instance), next: 0, ended: false });
        }
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
        loop {
            let seen = self.store.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
            let Some(events) = self.status.refresh(self.store).await? else {
                return Err(Failure::failed(format!("the run {} was removed", self.status.run.id)));
            };
            for (at, event) in events {
                self.show(at, &event).await?;
            }
            self.pass_on().await?;
            if self.status.run.state.is_terminal() && self.tails.is_empty() {
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
            // With lines to come, nobody can be waited for.
            let time = if self.tails.is_empty() { Duration::from_secs(1) } else { LOOK };
            let _ = tokio::time::timeout(time, self.store.wait(WaitFor::Feed(seen))).await;
        }
    }

    async fn show(&mut self, at: Timestamp, event: &Event) -> Result<(), Failure> {
        if self.app.ui.json {
            self.app.ui.json(&json!({ "at": at, "event": event_json(event, &self.status) }))?;
        }
        match event {
            &Event::Started { node, instance, job } => {
                self.begin(node, instance, job);
                self.say(Mark::Running, &self.label(node, instance), "")
            }
            Event::Ended { node, instance, end } => {
                let job = self.status.progress.nodes[*node].instances.get(*instance).and_then(|one| one.job);
                if let Some(tail) = job.and_then(|job| self.tails.get_mut(&job)) {
                    tail.ended = true;
                }
                // Its last lines come before the word of its end.
                if let Some(job) = job {
                    self.read_on(job).await?;
                }
                let mark = match end.outcome {
                    windlass::core::graph::Outcome::Succeeded => Mark::Succeeded,
                    windlass::core::graph::Outcome::Failed => Mark::Failed,
                    windlass::core::graph::Outcome::Cancelled => Mark::Cancelled,
                    windlass::core::graph::Outcome::Skipped => Mark::Skipped,
                };
                let took = self.status.times[*node].started_at.map(|from| about(at.ms_since(from)));
                let error = end.error.as_deref().unwrap_or_default();
                let note = match (took, error.is_empty()) {
                    (Some(took), true) => took,
                    (Some(took), false) => format!("{took}: {error}"),
                    (None, _) => error.to_owned(),
                };
                self.say(mark, &self.label(*node, *instance), &note)
            }
            Event::Settled { node, skip: Some(_), .. } => {
                let (mark, why) = (mark(&self.status, *node), reason(&self.status, *node).unwrap_or_default());
                self.say(mark, &self.label(*node, usize::MAX), &format!("{}: {why}", mark.word()))
            }
            Event::Cancelled { reason } => self.say(Mark::Cancelled, "the run is cancelled", &clean(reason)),
            Event::TimedOut => self.say(Mark::Failed, "the run took too long", ""),
            Event::Rerun { nodes } => {
                let shown = nodes.iter().filter(|&&node| crate::run_view::is_shown(&self.status.graph, node)).count();
                let what = crate::values::count(shown as u64, "node");
                self.say(Mark::Running, "once more", &what)
            }
            _ => Ok(()),
        }
    }

    fn say(&self, mark: Mark, label: &str, note: &str) -> Result<(), Failure> {
        if self.app.ui.json {
            return Ok(());
        }
        let (style, sign) = (mark.style(), mark.sign(self.ascii));
        let note = note.lines().map(clean).collect::<Vec<_>>().join("\n    ");
        self.app.ui.line(format_args!("{style}{sign}{style:#} {STRONG}{label}{STRONG:#} {DIM}{note}{DIM:#}"))
    }

    async fn pass_on(&mut self) -> Result<(), Failure> {
        let some: Vec<JobId> = self.tails.keys().copied().take(FOLLOWED).collect();
        for job in some {
            self.read_on(job).await?;
        }
        Ok(())
    }

    /// Shows what a job has said since; forgets it when it has ended.
    async fn read_on(&mut self, job: JobId) -> Result<(), Failure> {
        let Some(tail) = self.tails.get(&job) else { return Ok(()) };
        let (mut next, ended, label) = (tail.next, tail.ended, tail.label.clone());
        loop {
            let page = match self.store.read_logs(LogRequest { job, from: next, limit: PAGE }).await {
                Ok(page) => page,
                // It was removed; its lines went with it.
                Err(windlass::Error::NotFound { .. }) => LogPage::default(),
                Err(error) => return Err(error.into()),
            };
            if page.lines.is_empty() {
                break;
            }
            if page.first > next {
                self.app.ui.note(format_args!("note: {label}: lines {next} to {} are gone", page.first - 1));
            }
            next = page.first + page.lines.len() as u64;
            self.print(&label, job, page)?;
        }
        if ended {
            self.tails.remove(&job);
        } else if let Some(tail) = self.tails.get_mut(&job) {
            tail.next = next;
        }
        Ok(())
    }

    fn print(&self, label: &str, job: JobId, page: LogPage) -> Result<(), Failure> {
        for (number, (attempt, line)) in (page.first..).zip(page.lines) {
            let text = String::from_utf8_lossy(&line.text);
            if self.app.ui.json {
                let (at, stream) = (line.at, line.stream);
                self.app.ui.json(&json!({
                    "log": { "node": label, "job": job, "number": number, "attempt": attempt, "at": at, "stream": stream, "text": text }
                }))?;
                continue;
            }
            let bar = if self.ascii { '|' } else { '│' };
            let text = colours_only(&text);
            match line.stream {
                LogStream::Log => self.app.ui.line(format_args!("{DIM}{label} {bar} {text}{DIM:#}"))?,
                LogStream::Stdout | LogStream::Stderr => {
                    self.app.ui.line(format_args!("{DIM}{label} {bar}{DIM:#} {text}\x1b[0m"))?;
                }
            }
        }
        Ok(())
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
fn colours_only(text: &str) -> String {
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

/// Follows a run that is there, to its end.
pub(crate) async fn follow(app: &App, runs: &Runs, run: windlass::core::id::RunId) -> Result<RunState, Failure> {
    let status = read(runs, run).await?;
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
