//! A store, a clock and workers, all in memory and without threads: what an engine does around the executor.

use super::{body, hash};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use windlass_core::id::{JobId, RunId};
use windlass_core::time::Timestamp;
use windlass_durable::{
    AnyWorkflow, Body, CallError, Chunk, End, Entry, Event, Host, Item, ItemBody, Key, Limits, NextSegment, NoHost,
    Opening, Outcome, Record, Request, Run, RunOptions, RunRetry, Signal, Start, Stuck, Turn,
};

/// A job that was started.
#[derive(Clone, Debug)]
pub(crate) struct JobStarted {
    pub(crate) key: Key,
    pub(crate) input: Body,
    pub(crate) start: Start,
}

/// The kind of jobs that no worker claims.
pub(crate) const NEVER_CLAIMED: &str = "never claimed";

/// After how many milliseconds a job ends, and how.
pub(crate) type Activity = Arc<dyn Fn(&JobStarted) -> (i64, Outcome) + Send + Sync>;

/// Returns the input after 1 to 50 ms.
pub(crate) fn echo() -> Activity {
    Arc::new(|job| (1 + i64::try_from(hash(&job.key.to_string()) % 50).unwrap(), Ok(job.input.clone())))
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Ended(End),
    Waiting,
    Stuck(Stuck),
}

/// One segment of the history.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) input: Body,
    /// The number of its first record.
    pub(crate) first: u64,
    /// The number of the first record of the next segment.
    pub(crate) next: Option<u64>,
    /// How many items were taken when it ended.
    pub(crate) taken: usize,
}

pub(crate) fn opening(workflow: &Arc<dyn AnyWorkflow>, history: Vec<Record>) -> Opening {
    Opening {
        workflow: workflow.clone(),
        id: RunId::from_parts(0, 1),
        input: body(&()).to_bytes(),
        created_at: Timestamp::from_ms(0),
        host: Arc::new(NoHost { build: "b1".into() }),
        limits: Limits::default(),
        first: 0,
        history,
    }
}

pub(crate) struct World {
    pub(crate) workflow: Arc<dyn AnyWorkflow>,
    /// Workflows of children, by kind; others run the same one.
    pub(crate) others: HashMap<String, Arc<dyn AnyWorkflow>>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) limits: Limits,
    pub(crate) retry: RunRetry,
    pub(crate) id: RunId,
    /// All records of all segments.
    pub(crate) history: Vec<Record>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) inbox: VecDeque<Item>,
    pub(crate) schedule: BTreeMap<(i64, u64), ItemBody>,
    due: HashMap<String, (i64, u64)>,
    order: u64,
    items: u64,
    pub(crate) now: i64,
    pub(crate) run: Option<Run>,
    pub(crate) activity: Activity,
    /// All items that were taken, in order.
    pub(crate) tape: Vec<Item>,
    pub(crate) commits: usize,
    /// Records of a commit at most.
    pub(crate) chunk: usize,
    pub(crate) batch: usize,
    /// Evict after every commit.
    pub(crate) evict: bool,
    /// After every commit a second instance is replayed from the records.
    pub(crate) shadow: bool,
    /// Called with the number of the commit: true kills the process after it.
    pub(crate) crash: Box<dyn FnMut(usize) -> bool + Send>,
    /// Steps that are woken go before items; else they take turns.
    pub(crate) eager_steps: bool,
    pub(crate) started: Vec<JobStarted>,
    pub(crate) children: Vec<Start>,
    pub(crate) cancelled: usize,
    pub(crate) cancelled_outside: usize,
}

impl World {
    pub(crate) fn new(workflow: Arc<dyn AnyWorkflow>, input: &impl serde::Serialize) -> Self {
        let segment = Segment { input: body(input), first: 0, next: None, taken: 0 };
        Self {
            workflow,
            others: HashMap::new(),
            host: Arc::new(NoHost { build: "b1".into() }),
            limits: Limits::default(),
            retry: RunRetry::default(),
            id: RunId::from_parts(0, 1),
            history: Vec::new(),
            segments: vec![segment],
            inbox: VecDeque::new(),
            schedule: BTreeMap::new(),
            due: HashMap::new(),
            order: 0,
            items: 0,
            now: 0,
            run: None,
            activity: echo(),
            tape: Vec::new(),
            commits: 0,
            chunk: 500,
            batch: 1,
            evict: false,
            shadow: false,
            crash: Box::new(|_| false),
            eager_steps: true,
            started: Vec::new(),
            children: Vec::new(),
            cancelled: 0,
            cancelled_outside: 0,
        }
    }

    pub(crate) fn at(&mut self, at: i64, item: ItemBody) -> (i64, u64) {
        self.order += 1;
        self.schedule.insert((at, self.order), item);
        (at, self.order)
    }

    pub(crate) fn signal<T: Signal>(&mut self, at: i64, value: &T) {
        self.at(at, ItemBody::Signal { name: T::NAME.into(), body: body(value), id: String::new() });
    }

    pub(crate) fn cancel(&mut self, at: i64) {
        self.at(at, ItemBody::CancelRequested { reason: "user".into() });
    }

    /// How many jobs of this kind were started.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.started.iter().filter(|job| job.key.name == kind).count()
    }

    pub(crate) fn segment(&self) -> &Segment {
        self.segments.last().unwrap()
    }

    pub(crate) fn opening(&self) -> Opening {
        let Segment { input, first, .. } = self.segment().clone();
        Opening {
            id: self.id,
            input: input.to_bytes(),
            host: self.host.clone(),
            limits: self.limits,
            first,
            ..opening(&self.workflow, self.history[usize::try_from(first).unwrap()..].to_vec())
        }
    }

    /// The records of a segment, with those that the next one repeats.
    pub(crate) fn records(&self, segment: usize) -> &[Record] {
        let first = usize::try_from(self.segments[segment].first).unwrap();
        let mut end = self.history.len();
        if let Some(next) = self.segments[segment].next {
            // Copies of messages, and the record of the end.
            let next = usize::try_from(next).unwrap();
            end = next + 1 + self.history[next..].iter().take_while(|record| record.is_event()).count();
        }
        &self.history[first..end]
    }

    /// Goes on until the run ends, is stuck, or nothing will ever happen.
    pub(crate) fn go(&mut self) -> State {
        loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return State::Waiting,
                Err(stuck) => {
                    self.run = None;
                    return State::Stuck(stuck);
                }
            }
            if let Some(end) = self.ended() {
                return State::Ended(end);
            }
        }
    }

    pub(crate) fn ended(&self) -> Option<End> {
        match &self.history.last()?.entry {
            Entry::End { end, .. } if !matches!(end, End::Continued { .. } | End::Retried { .. }) => Some(end.clone()),
            _ => None,
        }
    }

    /// One turn and its commits; false when there is nothing to do.
    pub(crate) fn step(&mut self) -> Result<bool, Stuck> {
        let now = Timestamp::from_ms(self.now);
        if self.run.is_none() {
            let options = RunOptions { retry: self.retry.clone(), ..RunOptions::default() };
            let mut run = Run::open_with(self.opening(), options, |_| ())?;
            // The start, or what the history lacks of its last turn.
            let turn = run.turn(Vec::new(), now)?;
            self.run = Some(run);
            if !turn.is_empty() {
                self.commit(turn)?;
                return Ok(true);
            }
        }
        let Some(run) = self.run.as_mut() else { return Ok(false) };
        while run.has_steps() {
            let turn = run.poll_steps(now)?;
            if !turn.is_empty() {
                self.commit(turn)?;
                return Ok(true);
            }
            if !self.eager_steps || !run.steps_woken() {
                break;
            }
        }
        if self.inbox.is_empty() {
            let next = self.schedule.keys().next().map(|key| key.0);
            let timer = run.next_timer().map(Timestamp::as_ms);
            let Some(at) = next.into_iter().chain(timer).min() else { return Ok(run.steps_woken()) };
            self.now = self.now.max(at);
            self.deliver();
        }
        let items: Vec<Item> = self.inbox.iter().take(self.batch).cloned().collect();
        let turn = self.run.as_mut().unwrap().turn(items, Timestamp::from_ms(self.now))?;
        self.commit(turn)?;
        Ok(true)
    }

    /// Moves what is due into the inbox.
    fn deliver(&mut self) {
        while let Some(entry) = self.schedule.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let at = Timestamp::from_ms(entry.key().0);
            self.items += 1;
            self.inbox.push_back(Item { number: Some(self.items), at, body: entry.remove() });
        }
    }

    /// In chunks; each takes from the inbox the items whose events it holds.
    fn commit(&mut self, turn: Turn) -> Result<(), Stuck> {
        let next = turn.next.clone();
        let mut complete = true;
        for chunk in turn.chunks(self.chunk) {
            complete = !chunk.has_more;
            self.apply(chunk);
            self.commits += 1;
            if (self.crash)(self.commits) || self.evict {
                self.run = None;
                break;
            }
        }
        match next {
            Some(next) if complete => self.roll(&next),
            _ => self.check_shadow(complete)?,
        }
        Ok(())
    }

    fn apply(&mut self, chunk: Chunk) {
        assert_eq!(chunk.first, self.history.len() as u64);
        for record in chunk.records {
            if let Entry::Event { at, .. } = &record.entry {
                self.now = self.now.max(at.as_ms());
            }
            if let Entry::Cancel(numbers) = &record.entry {
                self.cancelled += numbers.len();
            }
            // What the store holds is bytes.
            self.history.push(Record::decode(&record.encode()).unwrap());
        }
        for number in chunk.takes {
            let item = self.inbox.pop_front().unwrap();
            assert_eq!(item.number, Some(number));
            self.tape.push(item);
        }
        chunk.starts.into_iter().for_each(|start| self.start(start));
        for job in chunk.cancel_unclaimed {
            let job_of = |started: &&JobStarted| matches!(&started.start, Start::Job { job: id, .. } if *id == job);
            let started = self.started.iter().find(job_of).unwrap();
            if started.key.name == NEVER_CLAIMED {
                let key = self.due.remove(&job.to_string()).unwrap();
                self.schedule.remove(&key);
                self.at(self.now, ItemBody::JobEnded { job, outcome: Err(CallError::cancelled()) });
            }
        }
        let jobs = chunk.cancel_jobs.iter().map(JobId::to_string);
        for id in jobs.chain(chunk.cancel_children.iter().map(RunId::to_string)) {
            self.cancelled_outside += 1;
            if let Some(key) = self.due.remove(&id) {
                self.schedule.remove(&key);
            }
        }
    }

    fn start(&mut self, start: Start) {
        let Entry::Command(command) = &self.history[usize::try_from(start.number()).unwrap()].entry else { panic!() };
        let (key, request) = (command.key.clone(), command.request);
        match &start {
            Start::Job { job, spec, .. } => {
                assert!(matches!(request, Request::Call { job: id, .. } if id == *job));
                let input = Body::from_json(&spec.payload.bytes).unwrap();
                let job = *job;
                let started = JobStarted { key, input, start };
                let (after, outcome) = (self.activity)(&started);
                self.started.push(started);
                let due = self.at(self.now + after, ItemBody::JobEnded { job, outcome });
                self.due.insert(job.to_string(), due);
            }
            Start::Child { run, kind, input, .. } => {
                let outcome = self.child(kind.as_str(), &Body::from_json(input).unwrap());
                let due = self.at(self.now + 3, ItemBody::ChildEnded { run: *run, outcome });
                self.due.insert(run.to_string(), due);
                self.children.push(start);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Delivers the end of the last child, which was cancelled.
    pub(crate) fn end_cancelled_child(&mut self) {
        let Some(Start::Child { run, .. }) = self.children.last() else { panic!("no child was started") };
        let ended = ItemBody::ChildEnded { run: *run, outcome: Err(CallError::cancelled()) };
        self.at(4, ended);
    }

    fn child(&self, kind: &str, input: &Body) -> Outcome {
        let workflow = self.others.get(kind).unwrap_or(&self.workflow).clone();
        let mut world = Self::new(workflow, &input.read::<serde_json::Value>().unwrap());
        world.others.clone_from(&self.others);
        world.activity = self.activity.clone();
        world.evict = self.evict;
        match world.go() {
            State::Ended(End::Ok(value)) => Ok(value),
            State::Ended(End::Failed(message)) => Err(CallError::failed(message)),
            other => Err(CallError::failed(format!("{other:?}"))),
        }
    }

    fn check_shadow(&mut self, complete: bool) -> Result<(), Stuck> {
        let first = usize::try_from(self.segment().first).unwrap();
        let is_started = |record: &Record| matches!(record.entry, Entry::Event { event: Event::Started { .. }, .. });
        if !self.shadow || !self.history[first..].iter().any(is_started) {
            return Ok(());
        }
        let host = Arc::new(NoHost { build: "b1".into() });
        let options = RunOptions { retry: self.retry.clone(), ..RunOptions::default() };
        let mut run = Run::open_with(Opening { host, ..self.opening() }, options, |_| ())?;
        if complete && self.run.is_some() {
            let turn = run.turn(Vec::new(), Timestamp::from_ms(i64::MIN))?;
            assert_eq!(turn.records, [], "a replay makes what the run did not");
        }
        Ok(())
    }

    fn roll(&mut self, next: &NextSegment) {
        self.run = None;
        let last = self.segments.last_mut().unwrap();
        (last.next, last.taken) = (Some(next.from), self.tape.len());
        let input = Body::from_json(&next.input).unwrap();
        self.segments.push(Segment { input, first: next.from, next: None, taken: 0 });
    }

    pub(crate) fn print(&self) -> String {
        let line = |(number, record): (usize, &Record)| {
            format!("{number:>4} {}\n", String::from_utf8(record.encode()).unwrap())
        };
        self.history.iter().enumerate().map(line).collect()
    }
}
