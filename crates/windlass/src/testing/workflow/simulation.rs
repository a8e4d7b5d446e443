//! One execution of a workflow and of its children in virtual time, without a store.

use super::attempts::MockedChild;
use super::host::TestHost;
use super::mock::{Effect, Mocks, OpPath};
use super::report::duration;
use super::run::SimRun;
use super::schedule::{Action, Schedule};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::JobSpec;
use windlass_core::time::Timestamp;
use windlass_durable::{AnyWorkflow, End, Item, ItemBody, Record, RunRetry, Turn};

/// Events after which a test fails: it does not end.
const EVENTS_MAX: u64 = 1_000_000;

/// What does not change from one execution of a test to the next.
pub(super) struct Setup {
    pub(super) workflow: Arc<dyn AnyWorkflow>,
    pub(super) input: bytes::Bytes,
    pub(super) begin: Timestamp,
    /// How often the workflow under test is started again when it fails.
    pub(super) retry: RunRetry,
    /// Workflows whose code runs, by kind.
    pub(super) workflows: HashMap<String, Arc<dyn AnyWorkflow>>,
    /// Items of the workflow, by their time since the begin.
    pub(super) items: Vec<(u64, ItemBody)>,
    pub(super) mocks: Mutex<Mocks>,
    pub(super) host: Arc<TestHost>,
    /// When to stop, counted from the begin.
    pub(super) until_ms: Option<u64>,
}

/// How an execution differs from others of the same test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mode {
    /// Simultaneous events are ordered by this seed; `None` for the order in which they were planned.
    pub(super) order_seed: Option<u64>,
    pub(super) pokes: bool,
    /// A second instance is replayed after every turn, up to a number of events.
    pub(super) shadows: bool,
    /// Local steps that have ended in an earlier execution are not executed again.
    pub(super) reuses_steps: bool,
}

/// Why an execution cannot go on: the reason, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault(pub(super) String);

impl<T: Into<String>> From<T> for Fault {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// A job of a run.
pub(super) struct JobMade {
    /// The index of its run.
    pub(super) run: usize,
    pub(super) op: OpPath,
    pub(super) spec: JobSpec,
}

/// A call or a child that was started.
#[derive(Clone, Debug)]
pub(super) struct CallMade {
    pub(super) kind: String,
    pub(super) input: bytes::Bytes,
    pub(super) at_ms: u64,
}

/// How an execution stopped.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stop {
    Ended(End),
    /// Nothing will happen any more, or the time is over.
    Waiting,
}

pub(super) struct Simulation {
    pub(super) setup: Arc<Setup>,
    pub(super) mode: Mode,
    /// In the order of creation; the first one is the workflow under test.
    pub(super) runs: Vec<SimRun>,
    pub(super) schedule: Schedule,
    pub(super) jobs: HashMap<JobId, Arc<JobMade>>,
    pub(super) mocked_children: HashMap<RunId, Arc<MockedChild>>,
    pub(super) now: i64,
    /// The time of each commit.
    pub(super) commit_times: Vec<i64>,
    pub(super) calls: Vec<CallMade>,
    pub(super) events: u64,
    /// Local steps that were executed, not mocked.
    pub(super) real_steps: u64,
    /// When the executed local steps began.
    pub(super) steps_begun: HashMap<OpPath, i64>,
}

impl Simulation {
    pub(super) fn new(setup: Arc<Setup>, mode: Mode) -> Self {
        let begin = setup.begin.as_ms();
        let root = SimRun::new(RunId::named("the workflow under test"), "".into(), Arc::clone(&setup.workflow));
        let root = root.with_input(setup.input.clone(), setup.begin).with_retry(setup.retry.clone());
        let mut schedule = Schedule::new(mode.order_seed);
        schedule.add(0, begin, Action::Start { run: root.id });
        for (after_ms, body) in &setup.items {
            let at = Timestamp::from_ms(begin).plus_ms(*after_ms).as_ms();
            schedule.add(0, at, Action::Item { run: root.id, body: body.clone() });
        }
        Self {
            setup,
            mode,
            runs: vec![root],
            schedule,
            jobs: HashMap::new(),
            mocked_children: HashMap::new(),
            now: begin,
            commit_times: Vec::new(),
            calls: Vec::new(),
            events: 0,
            real_steps: 0,
            steps_begun: HashMap::new(),
        }
    }

    /// The simulation as it was after `commits` commits, when all that was in memory is lost.
    pub(super) fn after_crash(&self, commits: u64) -> Self {
        let runs = self.runs.iter().take_while(|run| run.created <= commits).map(|run| run.after_crash(commits));
        let last = usize::try_from(commits).ok().and_then(|commits| commits.checked_sub(1));
        let now = last.and_then(|last| self.commit_times.get(last)).copied();
        Self {
            setup: Arc::clone(&self.setup),
            mode: Mode::default(),
            runs: runs.collect(),
            schedule: self.schedule.after(commits),
            jobs: self.jobs.clone(),
            mocked_children: self.mocked_children.clone(),
            now: now.unwrap_or(self.setup.begin.as_ms()),
            commit_times: self
                .commit_times
                .iter()
                .take(usize::try_from(commits).unwrap_or(usize::MAX))
                .copied()
                .collect(),
            calls: Vec::new(),
            events: 0,
            real_steps: 0,
            steps_begun: HashMap::new(),
        }
    }

    pub(super) fn commits(&self) -> u64 {
        self.commit_times.len() as u64
    }

    /// The number of the next commit, or of the one that is being made.
    pub(super) fn commit_number(&self) -> u64 {
        self.commits() + 1
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        Timestamp::from_ms(self.now).ms_since(self.setup.begin)
    }

    pub(super) fn time(&self) -> Timestamp {
        Timestamp::from_ms(self.now)
    }

    pub(super) fn index_of(&self, run: RunId) -> Option<usize> {
        self.runs.iter().position(|candidate| candidate.id == run)
    }

    /// Goes on until the workflow ends, or nothing will happen any more, or the time is over.
    pub(super) fn go(&mut self) -> Result<Stop, Fault> {
        loop {
            if let Some(end) = self.runs[0].end() {
                return Ok(Stop::Ended(end.clone()));
            }
            if !self.advance()? {
                return Ok(Stop::Waiting);
            }
            self.setup.host.note_progress();
            self.events += 1;
            if self.events > EVENTS_MAX {
                return Err(format!(
                    "the workflow does not end: {EVENTS_MAX} events; use `run_for` for one that goes on for ever"
                )
                .into());
            }
        }
    }

    /// One turn, or one step in time. False when nothing will happen any more.
    fn advance(&mut self) -> Result<bool, Fault> {
        if let Some(index) = self.runs.iter().position(SimRun::is_to_be_opened) {
            self.open(index)?;
            return Ok(true);
        }
        if self.advance_steps()? {
            return Ok(true);
        }
        let planned = self.schedule.next().map(|(at, _)| at);
        let timer = self.next_timer();
        let next = planned.into_iter().chain(timer.map(|(at, _)| at)).min();
        let until = self.setup.until_ms.map(|ms| self.setup.begin.plus_ms(ms).as_ms());
        let next = next.filter(|next| until.is_none_or(|until| *next <= until));
        if self.wait_for_steps(next)? {
            return Ok(true);
        }
        let Some(next) = next else {
            self.now = until.unwrap_or(self.now).max(self.now);
            return Ok(false);
        };
        self.now = self.now.max(next);
        match timer {
            // A timer fires before an event of the same time, as in an engine.
            Some((at, index)) if planned.is_none_or(|planned| at <= planned) => self.turn(index, Vec::new())?,
            _ => self.take_planned()?,
        }
        Ok(true)
    }

    /// The time and the run of the next timer.
    fn next_timer(&self) -> Option<(i64, usize)> {
        let timers = self.runs.iter().enumerate().filter_map(|(index, run)| {
            let at = run.live.as_ref()?.next_timer()?;
            Some((at.as_ms(), index))
        });
        timers.min()
    }

    fn take_planned(&mut self) -> Result<(), Fault> {
        let Some((entry, action)) = self.schedule.due() else { return Ok(()) };
        match action {
            Action::Start { run } => {
                self.schedule.remove(self.commit_number(), entry);
                self.index_of(run).map_or(Ok(()), |index| self.open(index))
            }
            Action::Attempt { job, number } => {
                self.schedule.remove(self.commit_number(), entry);
                self.start_attempt(job, number);
                Ok(())
            }
            Action::ChildAttempt { run, number } => {
                self.schedule.remove(self.commit_number(), entry);
                self.start_child_attempt(run, number);
                Ok(())
            }
            Action::Item { run, body } => {
                let index = self.index_of(run).filter(|index| self.runs[*index].live.is_some());
                let Some(index) = index else {
                    // A run that has ended takes nothing.
                    self.schedule.remove(self.commit_number(), entry);
                    return Ok(());
                };
                let item = Item { number: Some(entry as u64), at: self.time(), body };
                self.turn(index, vec![item])
            }
        }
    }

    /// Opens a run: one that starts, or one that was lost in a crash.
    fn open(&mut self, index: usize) -> Result<(), Fault> {
        let run = self.runs[index].open(&self.setup.host, self.time())?;
        self.setup.host.note_probe(run.probe());
        self.runs[index].live = Some(run);
        self.turn(index, Vec::new())
    }

    pub(super) fn turn(&mut self, index: usize, items: Vec<Item>) -> Result<(), Fault> {
        let now = self.time();
        let (at, item) = (duration(self.elapsed_ms()), items.first().map(|item| item.body.clone()));
        let Some(live) = self.runs[index].live.as_mut() else { return Ok(()) };
        live.set_clock(now);
        let turn = live.turn(items, now).map_err(|stuck| {
            // The records of this turn are lost: the history does not show the event.
            let after = item.map(|body| format!(" after {}", self.describe(&body))).unwrap_or_default();
            Fault(format!("the run is stuck at {at}{after}: {stuck}"))
        })?;
        self.finish_turn(index, turn)
    }

    /// An item in words.
    fn describe(&self, body: &ItemBody) -> String {
        match body {
            ItemBody::JobEnded { job, .. } => self
                .jobs
                .get(job)
                .map_or_else(|| "the end of a job".to_owned(), |made| format!("the end of {}", made.op.key)),
            ItemBody::ChildEnded { .. } => "the end of a child".to_owned(),
            ItemBody::Signal { name, .. } => format!("signal `{name}`"),
            ItemBody::Resolved { .. } => "the resolution of a promise".to_owned(),
            ItemBody::CancelRequested { .. } => "the request to cancel".to_owned(),
            ItemBody::TimedOut => "the timeout of the run".to_owned(),
            ItemBody::StepEnded { key, .. } => format!("the end of {key}"),
            _ => "an event".to_owned(),
        }
    }

    /// Pokes the run, commits, and replays a second instance.
    pub(super) fn finish_turn(&mut self, index: usize, turn: Turn) -> Result<(), Fault> {
        if self.mode.pokes && turn.ended.is_none() {
            self.poke(index, &turn)?;
        }
        let has_records = !turn.records.is_empty();
        let (segment, begins_segment) = (self.runs[index].segments.len() - 1, turn.next.is_some());
        self.commit(index, turn)?;
        if !self.mode.shadows || !has_records {
            return Ok(());
        }
        if begins_segment { self.check_end_of_segment(index, segment) } else { self.check_shadow(index) }
    }

    fn poke(&mut self, index: usize, turn: &Turn) -> Result<(), Fault> {
        let after = turn.records.last().map_or_else(|| "an event without a record".to_owned(), Record::describe);
        let advice =
            "poll counts must not matter: hand-written futures and combinators of other crates are the usual cause";
        let Some(live) = self.runs[index].live.as_mut() else { return Ok(()) };
        match live.poke() {
            Ok(0) => Ok(()),
            Ok(records) => {
                let more = live.turn(Vec::new(), Timestamp::from_ms(i64::MIN));
                let what = more.ok().and_then(|turn| turn.records.first().map(Record::describe));
                let what = what.map_or_else(String::new, |what| format!(", the first one is {what}"));
                let text = format!("a needless poll after {after} made {records} records{what}: {advice}");
                Err(text.into())
            }
            Err(stuck) => Err(format!("a needless poll after {after} broke the run: {stuck}: {advice}").into()),
        }
    }

    /// Plans what a mock sends.
    pub(super) fn plan_effects(&mut self, caller: usize, effects: Vec<Effect>) {
        for Effect { after_ms, promise, body } in effects {
            let run = promise.map_or(self.runs[caller].id, |promise| promise.run);
            let at = self.time().plus_ms(after_ms).as_ms();
            self.schedule.add(self.commit_number(), at, Action::Item { run, body });
        }
    }
}
