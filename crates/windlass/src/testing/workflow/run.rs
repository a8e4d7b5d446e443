//! One run of a simulation: its history, and its code in memory.

use super::host::TestHost;
use super::mock::OpPath;
use super::simulation::Fault;
use bytes::Bytes;
use std::sync::Arc;
use windlass_core::id::RunId;
use windlass_core::time::Timestamp;
use windlass_durable::{
    AnyWorkflow, End, Entry, Event, Host, Limits, NextSegment, OpKind, Opening, PendingOp, Record, Run, RunOptions,
    RunRetry,
};

/// A segment of a run.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) workflow: Arc<dyn AnyWorkflow>,
    pub(super) input: Bytes,
    /// The number of its first record.
    pub(super) first: usize,
    /// The number of the commit that began it.
    begun: u64,
}

pub(super) struct SimRun {
    pub(super) id: RunId,
    /// Where its parents made it; the same whatever the order of simultaneous events.
    pub(super) path: Arc<str>,
    pub(super) parent: Option<usize>,
    pub(super) created_at: Timestamp,
    pub(super) retry: RunRetry,
    /// The number of the commit that created it.
    pub(super) created: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) records: Vec<Record>,
    /// The number of the commit of each record.
    commits: Vec<u64>,
    /// Its code, from its start to its end.
    pub(super) live: Option<Run>,
}

impl SimRun {
    pub(super) fn new(id: RunId, path: Arc<str>, workflow: Arc<dyn AnyWorkflow>) -> Self {
        let segment = Segment { workflow, input: Bytes::new(), first: 0, begun: 0 };
        let (created_at, retry) = (Timestamp::from_ms(0), RunRetry::default());
        let (segments, records, commits) = (vec![segment], Vec::new(), Vec::new());
        Self { id, path, parent: None, created_at, retry, created: 0, segments, records, commits, live: None }
    }

    pub(super) fn with_input(mut self, input: Bytes, created_at: Timestamp) -> Self {
        if let Some(segment) = self.segments.first_mut() {
            segment.input = input;
        }
        self.created_at = created_at;
        self
    }

    pub(super) fn with_retry(mut self, retry: RunRetry) -> Self {
        self.retry = retry;
        self
    }

    pub(super) fn with_parent(mut self, parent: usize, commit: u64) -> Self {
        (self.parent, self.created) = (Some(parent), commit);
        self
    }

    /// The run as it was after `commits` commits, without its code in memory.
    pub(super) fn after_crash(&self, commits: u64) -> Self {
        let len = self.commits.partition_point(|commit| *commit <= commits);
        let segments = self.segments.iter().take_while(|segment| segment.begun <= commits);
        Self {
            id: self.id,
            path: Arc::clone(&self.path),
            parent: self.parent,
            created_at: self.created_at,
            retry: self.retry.clone(),
            created: self.created,
            segments: segments.cloned().collect(),
            records: self.records.iter().take(len).cloned().collect(),
            commits: self.commits.iter().take(len).copied().collect(),
            live: None,
        }
    }

    pub(super) fn append(&mut self, record: Record, commit: u64) {
        self.records.push(record);
        self.commits.push(commit);
    }

    /// How it ended, once it has.
    pub(super) fn end(&self) -> Option<&End> {
        match self.records.last().map(|record| &record.entry) {
            Some(Entry::End { end, .. }) if !matches!(end, End::Continued { .. } | End::Retried { .. }) => Some(end),
            _ => None,
        }
    }

    /// It has started, has not ended, and is not in memory.
    pub(super) fn is_to_be_opened(&self) -> bool {
        self.live.is_none() && !self.records.is_empty() && self.end().is_none()
    }

    pub(super) fn op(&self, key: impl Into<String>) -> OpPath {
        OpPath { run: Arc::clone(&self.path), segment: self.segments.len() - 1, key: key.into() }
    }

    /// The records of a segment, with those that the next one repeats, and how many of them belong to the segment alone.
    pub(super) fn segment_records(&self, index: usize) -> (&[Record], usize) {
        let first = self.segments[index].first;
        let Some(next) = self.segments.get(index + 1) else {
            let records = &self.records[first..];
            return (records, records.len());
        };
        // Copies of messages, and the record of the end.
        let copies = self.records[next.first..].iter().take_while(|record| record.is_event()).count();
        (&self.records[first..next.first + copies + 1], next.first - first)
    }

    /// What is needed to open segment `index` with the first `len` of its records.
    pub(super) fn opening(&self, index: usize, len: usize, host: Arc<dyn Host>) -> Opening {
        let Segment { workflow, input, first, .. } = &self.segments[index];
        let (records, _) = self.segment_records(index);
        Opening {
            workflow: Arc::clone(workflow),
            id: self.id,
            input: input.clone(),
            created_at: self.created_at,
            host,
            limits: Limits::default(),
            first: *first as u64,
            history: records.iter().take(len).cloned().collect(),
        }
    }

    /// Replays the current segment.
    pub(super) fn open(&self, host: &Arc<TestHost>, clock: Timestamp) -> Result<Run, Fault> {
        let host = Arc::clone(host) as Arc<dyn Host>;
        let opening = self.opening(self.segments.len() - 1, usize::MAX, host);
        let options = RunOptions { clock, retry: self.retry.clone() };
        Run::open_with(opening, options, |_| ()).map_err(|stuck| Fault::from(format!("the run is stuck: {stuck}")))
    }

    pub(super) fn begin_segment(&mut self, next: NextSegment, workflow: Arc<dyn AnyWorkflow>, commit: u64) {
        let first = usize::try_from(next.from).unwrap_or(usize::MAX);
        self.segments.push(Segment { workflow, input: next.input, first, begun: commit });
        self.live = None;
    }

    /// How many events the current segment has.
    pub(super) fn events(&self) -> usize {
        let (records, _) = self.segment_records(self.segments.len() - 1);
        records.iter().filter(|record| record.is_event()).count()
    }

    /// What the code waits for, for people.
    pub(super) fn waits_for(&self) -> Vec<String> {
        let Some(live) = &self.live else { return Vec::new() };
        let attempt = live.attempt();
        if let Some(at) = live.next_timer().filter(|_| !live.has_started()) {
            return vec![format!("attempt {attempt} at {at}")];
        }
        live.pending(20).iter().map(waits_for).collect()
    }
}

fn waits_for(op: &PendingOp) -> String {
    let PendingOp { kind, name, place, until, .. } = op;
    let what = match kind {
        OpKind::Recv => "signal",
        OpKind::Run => "local step",
        OpKind::Sleep => "timer",
        other => other.name(),
    };
    match (name.is_empty(), until) {
        (true, Some(until)) => format!("{what} until {until} at {place}"),
        (true, None) => format!("{what} at {place}"),
        (false, _) => format!("{what} `{name}` at {place}"),
    }
}

/// True for the record of the start of a segment.
pub(super) fn is_start(record: &Record) -> bool {
    matches!(record.entry, Entry::Event { event: Event::Started { .. }, .. })
}
