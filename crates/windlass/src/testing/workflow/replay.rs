//! Shadow replay: a second instance is fed from the records of the first one and must do the same.

use super::host::BUILD;
use super::run::{SimRun, is_start};
use super::simulation::{Fault, Simulation};
use std::sync::Arc;
use windlass_core::time::Timestamp;
use windlass_durable::{End, Entry, NoHost, Record, Run, RunOptions};

/// Up to so many events of a segment, every turn is followed by a replay.
const EVENTS_MAX: usize = 200;
/// How many prefixes of a longer segment are replayed.
const SPREAD: usize = 200;

const ADVICE: &str = "the code must do the same in every replay: look for a HashMap, a clock, randomness, global state or \
                      `tokio::select!`, and take such values from `wf` or from a local step";

impl Simulation {
    /// Replays the current history of a run.
    pub(super) fn check_shadow(&self, index: usize) -> Result<(), Fault> {
        let run = &self.runs[index];
        if run.events() > EVENTS_MAX {
            return Ok(());
        }
        let segment = run.segments.len() - 1;
        check_prefix(run, segment, run.segment_records(segment).0.len())
    }

    /// Replays a segment that was followed by another one, up to its end: the code must end it once more in the same way.
    pub(super) fn check_end_of_segment(&self, index: usize, segment: usize) -> Result<(), Fault> {
        let run = &self.runs[index];
        check_prefix(run, segment, run.segment_records(segment).1)
    }

    /// Replays prefixes of the segments that have more events than are replayed after every turn.
    pub(super) fn check_long_segments(&self) -> Result<(), Fault> {
        let is_long = |run: &SimRun, segment| {
            run.segment_records(segment).0.iter().filter(|record| record.is_event()).count() > EVENTS_MAX
        };
        self.check_spread(SPREAD, is_long)
    }

    /// Replays `count` prefixes of each segment, the whole one included.
    pub(super) fn check_spread(&self, count: usize, selects: impl Fn(&SimRun, usize) -> bool) -> Result<(), Fault> {
        for run in &self.runs {
            for segment in (0..run.segments.len()).filter(|segment| selects(run, *segment)) {
                let len = run.segment_records(segment).0.len();
                let mut last = 0;
                for nth in 1..=count {
                    let cut = len * nth / count;
                    if cut > last {
                        last = cut;
                        check_prefix(run, segment, cut)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Replays the first `cut` records of a segment. What the code does then must be what the next records say.
fn check_prefix(run: &SimRun, segment: usize, cut: usize) -> Result<(), Fault> {
    let (records, own) = run.segment_records(segment);
    let started = records.iter().position(is_start);
    // The copies of messages and the record of the end stand in one commit: no history ends between them.
    if started.is_none_or(|started| cut <= started) || (own + 1..records.len()).contains(&cut) {
        return Ok(());
    }
    let host = Arc::new(NoHost { build: BUILD.to_owned() });
    let text = |what: String| Fault(format!("in a replay of {cut} records {what}\n{ADVICE}"));
    let options = RunOptions { retry: run.retry.clone(), ..RunOptions::default() };
    let opened = Run::open_with(run.opening(segment, cut, host), options, |_| ());
    let mut shadow = opened.map_err(|stuck| text(stuck.to_string()))?;
    if let Some(warning) = shadow.warnings().first() {
        return Err(text(warning.clone()));
    }
    let turn = shadow.turn(Vec::new(), Timestamp::from_ms(i64::MIN)).map_err(|stuck| text(stuck.to_string()))?;
    let rest = records.iter().enumerate().skip(cut).take_while(|(at, record)| *at >= own || !record.is_event());
    let rest: Vec<&Record> = rest.map(|(_, record)| record).collect();
    let first_difference =
        (0..rest.len().max(turn.records.len())).find(|at| turn.records.get(*at) != rest.get(*at).copied());
    if let Some(at) = first_difference {
        let describe = |record: Option<&Record>| record.map_or_else(|| "nothing".to_owned(), describe);
        let (was, is) = (describe(rest.get(at).copied()), describe(turn.records.get(at)));
        return Err(text(format!("the code made {is}, and at first it made {was}")));
    }
    check_end(&shadow, records).map_err(text)
}

/// The executor accepts another value than that of the history, because it may be of another build.
fn check_end(shadow: &Run, records: &[Record]) -> Result<(), String> {
    let (Some(ended), Some(Record { entry: Entry::End { end, .. }, .. })) = (shadow.ended(), records.last()) else {
        return Ok(());
    };
    let value = |end: &End| format!("{end:?}");
    if ended == *end {
        Ok(())
    } else {
        Err(format!("the code ended with {}, and at first with {}", value(&ended), value(end)))
    }
}

fn describe(record: &Record) -> String {
    if let Entry::End { end, .. } = &record.entry {
        return format!("the end {end:?}");
    }
    let place = record.place().filter(|place| !place.is_empty());
    record.describe() + &place.map(|place| format!(" at {place}")).unwrap_or_default()
}
