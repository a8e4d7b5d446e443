//! Following a run: its history, the log lines of its jobs, their retries, and what it waits for, in one order.

mod retries;
mod waiting;

use crate::error::OperateError;
use crate::run_view::{NodeState, is_shown, node_label, node_reason, node_state, resume_hint};
use crate::store_wait::{StoreNotice, wait_for_store};
use crate::text::{count, printable, rough_duration};
use retries::Retries;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use waiting::Waiting;
use windlass::Error;
use windlass::core::graph::{End, Event, NodeProgress, Outcome};
use windlass::core::id::JobId;
use windlass::core::job::{Failure, Job, State};
use windlass::core::store::{FeedCursor, FeedRequest, LogLine, LogPage, LogRequest, RunState, Store, WaitFor};
use windlass::core::time::Timestamp;
use windlass::runs::RunStatus;

/// Log lines of one page.
const LINES_PER_PAGE: u32 = 1_000;
/// How often active jobs are asked for new log lines: stores do not wake anybody for those.
const POLL: Duration = Duration::from_millis(200);
/// Jobs whose log lines are followed at once. Those of the others are read when jobs before them end.
const JOBS_FOLLOWED: usize = 64;

/// Receives what a [`Follower`] finds, in order.
pub trait FollowOutput {
    /// Takes one update.
    fn update(&self, update: RunUpdate<'_>) -> Result<(), OperateError>;

    /// Called while a call waits for a store that does not answer.
    fn store_notice(&self, notice: StoreNotice);
}

/// Something that happened to a run.
#[derive(Clone, Debug)]
pub enum RunUpdate<'a> {
    /// An entry of the history.
    Event {
        /// When it was recorded.
        at: Timestamp,
        /// The event as JSON, with nodes by name instead of by number.
        event: Value,
        /// The event as a line for people; `None` for those that people need not see.
        line: Option<NodeLine>,
    },
    /// A line that a job logged.
    Log {
        /// The name of the node, with the values of its row.
        label: &'a str,
        /// The job.
        job: JobId,
        /// The number of the line, from 0.
        number: u64,
        /// The attempt that logged it.
        attempt: u32,
        /// The line.
        line: &'a LogLine,
    },
    /// Log lines that the store does not have any more.
    LogGap {
        /// The name of the node, with the values of its row.
        label: &'a str,
        /// The number of the first missing line.
        from: u64,
        /// The number of the last missing line.
        to: u64,
    },
    /// An attempt that failed and is followed by another.
    Retry {
        /// The name of the node, with the values of its row.
        label: &'a str,
        /// The job.
        job: JobId,
        /// Why the attempt failed.
        failure: &'a Failure,
        /// When the next attempt begins, where that is known.
        due_at: Option<Timestamp>,
        /// The same as a sentence.
        text: String,
    },
    /// Nothing has happened for a while, for this reason.
    Waits {
        /// Who waits and why, as a sentence.
        text: String,
    },
}

/// A line about a node, or about the run as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLine {
    /// The state that the line reports.
    pub state: NodeState,
    /// The name of the node with the values of its row, or words about the run.
    pub label: String,
    /// A note: a duration, an error, a reason. It may have several lines.
    pub note: String,
}

/// Follows one run.
pub struct Follower<'a, O> {
    output: &'a O,
    store: &'a dyn Store,
    /// The run, as far as its history was passed on.
    pub status: RunStatus,
    /// Jobs that have not ended, and how far their log lines were passed on.
    tails: BTreeMap<JobId, Tail>,
    waiting: Waiting,
    /// Pass on the history alone: no log lines, no retries, no reasons for waiting.
    pub events_only: bool,
}

impl<O> std::fmt::Debug for Follower<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("run", &self.status.run.id).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Tail {
    label: String,
    /// The number of the next log line.
    next: u64,
    retries: Retries,
}

impl Tail {
    /// Adds the failed attempts of its job that were followed by another. The last failure of a failed job is not a retry:
    /// the event of its end shows it.
    fn add_failures(&mut self, job: &Job) {
        let retried = match job.failures.split_last() {
            Some((_, before)) if job.state == State::Failed => before,
            _ => &job.failures[..],
        };
        self.retries.add(retried, job.due_at.filter(|_| job.state == State::Scheduled));
    }
}

impl<'a, O: FollowOutput> Follower<'a, O> {
    /// Passes on what comes after `status`; see [`RunStatus::rewound`] to begin at the beginning.
    pub fn new(output: &'a O, store: &'a dyn Store, status: RunStatus) -> Self {
        let (tails, waiting) = (BTreeMap::new(), Waiting::new());
        let mut follower = Self { output, store, status, tails, waiting, events_only: false };
        for (node, instance, job) in follower.open_jobs() {
            follower.add_tail(node, instance, job);
        }
        follower
    }

    fn open_jobs(&self) -> Vec<(usize, usize, JobId)> {
        let nodes = self.status.progress.nodes.iter().enumerate();
        let of = |(node, progress): (usize, &NodeProgress)| {
            let open = progress.instances.iter().enumerate().filter(|(_, one)| one.outcome.is_none());
            open.filter_map(|(instance, one)| Some((node, instance, one.job?))).collect::<Vec<_>>()
        };
        nodes.flat_map(of).collect()
    }

    fn add_tail(&mut self, node: usize, instance: usize, job: JobId) {
        self.tails.insert(job, Tail { label: node_label(&self.status, node, instance), ..Tail::default() });
    }

    /// Passes everything on until the run has ended, and returns its last state. A run that is stuck or removed is an error.
    pub async fn follow(&mut self) -> Result<RunState, OperateError> {
        let mut last_seen = None;
        loop {
            let end = FeedRequest { after: None, max: 1 };
            let seen = self.call(async || self.store.read_feed(end).await).await?.next;
            self.read_history().await?;
            self.read_tails(last_seen != Some(seen)).await?;
            last_seen = Some(seen);
            let run = &self.status.run;
            if run.state.is_terminal() {
                return Ok(run.state);
            }
            if let Some(stuck) = &run.stuck {
                let hint = resume_hint(run);
                let error = OperateError::failed(format!("the run {} is stuck: {stuck}", run.id));
                return Err(OperateError { hint, ..error });
            }
            if self.waiting.is_long() && !self.events_only {
                self.report_waits().await?;
            }
            self.wait(seen).await;
        }
    }

    /// Waits for a change of the store, at most as long as log lines may be late.
    async fn wait(&self, seen: FeedCursor) {
        let time = if self.tails.is_empty() { Duration::from_secs(1) } else { POLL };
        let _ = tokio::time::timeout(time, self.store.wait(WaitFor::Feed(seen))).await;
    }

    /// Calls the store, and waits for it while it is away: the run goes on without being followed.
    async fn call<T>(&self, call: impl AsyncFnMut() -> windlass::Result<T>) -> Result<T, OperateError> {
        wait_for_store(|notice| self.output.store_notice(notice), call).await
    }

    /// Passes on the history that is new.
    async fn read_history(&mut self) -> Result<(), OperateError> {
        loop {
            let (status, store, output) = (&mut self.status, self.store, self.output);
            let read = wait_for_store(|notice| output.store_notice(notice), async || status.read_on(store).await);
            let Some(events) = read.await? else {
                return Err(OperateError::failed(format!("the run {} was removed", self.status.run.id)));
            };
            let some = !events.is_empty();
            for (at, event) in events {
                self.waiting.restart();
                self.status.take_in(at, &event);
                self.pass_event(at, &event).await?;
            }
            if !some || !self.status.is_behind() {
                return Ok(());
            }
        }
    }

    async fn pass_event(&mut self, at: Timestamp, event: &Event) -> Result<(), OperateError> {
        if let Event::Ended { node, instance, end } = event {
            // The last log lines of a job come before its end.
            self.finish_tail(*node, *instance, end).await?;
        }
        let (line, value) = (self.event_line(at, event), event_json(event, &self.status));
        self.output.update(RunUpdate::Event { at, event: value, line })?;
        if let &Event::Started { node, instance, job } = event {
            self.add_tail(node, instance, job);
        }
        Ok(())
    }

    fn event_line(&self, at: Timestamp, event: &Event) -> Option<NodeLine> {
        let status = &self.status;
        let (state, label, note) = match event {
            Event::Started { node, instance, .. } => {
                (NodeState::Running, node_label(status, *node, *instance), String::new())
            }
            Event::Ended { node, instance, end } => {
                let took = status.times[*node].started_at.map(|from| rough_duration(at.ms_since(from)));
                let error = end.error.as_deref().unwrap_or_default();
                let note = match (took, error.is_empty()) {
                    (Some(took), true) => took,
                    (Some(took), false) => format!("{took}: {error}"),
                    (None, _) => error.to_owned(),
                };
                (end.outcome.into(), node_label(status, *node, *instance), note)
            }
            Event::Settled { node, skip: Some(_), .. } => {
                let (state, why) = (node_state(status, *node), node_reason(status, *node).unwrap_or_default());
                (state, printable(&status.graph.nodes[*node].id), format!("{}: {why}", state.name()))
            }
            Event::Cancelled { reason } => (NodeState::Cancelled, "the run is cancelled".to_owned(), printable(reason)),
            Event::TimedOut => (NodeState::Failed, "the run took too long".to_owned(), String::new()),
            Event::Rerun { nodes, .. } => {
                let shown = nodes.iter().filter(|&&node| is_shown(&status.graph, node)).count();
                (NodeState::Running, "once more".to_owned(), count(shown as u64, "node"))
            }
            _ => return None,
        };
        Some(NodeLine { state, label, note })
    }

    /// Passes on the new log lines of some open jobs, and with `changed` also their failed attempts.
    async fn read_tails(&mut self, changed: bool) -> Result<(), OperateError> {
        if self.events_only {
            return Ok(());
        }
        let some: Vec<JobId> = self.tails.keys().copied().take(JOBS_FOLLOWED).collect();
        if changed && !some.is_empty() {
            let jobs = self.call(async || self.store.get(some.clone()).await).await?;
            for job in jobs.into_iter().flatten() {
                if let Some(tail) = self.tails.get_mut(&job.id) {
                    tail.add_failures(&job);
                }
            }
        }
        for job in some {
            self.read_tail(job).await?;
        }
        Ok(())
    }

    /// Passes on the rest of what a job logged, and stops following it.
    async fn finish_tail(&mut self, node: usize, instance: usize, end: &End) -> Result<(), OperateError> {
        let job = self.status.progress.nodes[node].instances.get(instance).and_then(|one| one.job);
        let Some(job) = job.filter(|job| self.tails.contains_key(job)) else { return Ok(()) };
        if !self.events_only {
            let ended = self.call(async || self.store.get(vec![job]).await).await?.pop().flatten();
            if let (Some(mut ended), Some(tail)) = (ended, self.tails.get_mut(&job)) {
                if end.outcome == Outcome::Failed && ended.state != State::Failed {
                    // The event of the end shows this failure.
                    ended.failures.pop();
                }
                tail.add_failures(&ended);
            }
            self.read_tail(job).await?;
        }
        self.tails.remove(&job);
        Ok(())
    }

    /// Passes on what a job has logged since, and its failed attempts between the lines.
    async fn read_tail(&mut self, job: JobId) -> Result<(), OperateError> {
        let Some(mut tail) = self.tails.remove(&job) else { return Ok(()) };
        loop {
            let request = LogRequest { job, from: tail.next, limit: LINES_PER_PAGE };
            let page = self
                .call(async || match self.store.read_logs(request).await {
                    // The job was removed, and its lines with it.
                    Err(Error::NotFound { .. }) => Ok(LogPage::default()),
                    page => page,
                })
                .await?;
            if page.lines.is_empty() {
                break;
            }
            // Read after the lines, so that every failure before one of them is included.
            if let Some(job) = self.call(async || self.store.get(vec![job]).await).await?.pop().flatten() {
                tail.add_failures(&job);
            }
            self.waiting.restart();
            if page.first > tail.next {
                let (label, from, to) = (tail.label.as_str(), tail.next, page.first - 1);
                self.output.update(RunUpdate::LogGap { label, from, to })?;
            }
            tail.next = page.first + page.lines.len() as u64;
            for (number, (attempt, line)) in (page.first..).zip(&page.lines) {
                while let Some(retry) = tail.retries.before(*attempt, line.at) {
                    self.output.update(retry.update(&tail.label, job))?;
                }
                self.output.update(RunUpdate::Log { label: &tail.label, job, number, attempt: *attempt, line })?;
            }
        }
        while let Some(retry) = tail.retries.next() {
            self.waiting.restart();
            self.output.update(retry.update(&tail.label, job))?;
        }
        self.tails.insert(job, tail);
        Ok(())
    }
}

/// The event as JSON, with its nodes by name.
fn event_json(event: &Event, status: &RunStatus) -> Value {
    let mut value = json!(event);
    for pointer in ["/node", "/skip/need/node"] {
        if let Some(node) = value.pointer_mut(pointer)
            && let Some(at) = node.as_u64().and_then(|at| usize::try_from(at).ok())
            && let Some(named) = status.graph.nodes.get(at)
        {
            *node = json!(named.id);
        }
    }
    value
}
