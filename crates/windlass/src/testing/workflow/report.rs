//! Histories as lines for people.

use super::run::SimRun;
use super::simulation::Simulation;
use std::fmt::Write;
use windlass_core::time::Timestamp;
use windlass_durable::{CallError, Command, End, Entry, Event, Outcome, Record, Request};

/// Records of one run that are shown; with more, the first and the last ones.
const RECORDS_MAX: usize = 200;
/// Characters of a value that are shown.
const VALUE_MAX: usize = 100;

/// The histories of all runs of a simulation.
pub(super) fn history(simulation: &Simulation) -> String {
    let mut text = String::new();
    for run in &simulation.runs {
        if run.parent.is_some() {
            // A String takes whatever is written to it.
            let _ = writeln!(text, "  {}:", run.path.trim_start_matches('/'));
        }
        write_run(&mut text, run, simulation.setup.begin);
    }
    text
}

fn write_run(text: &mut String, run: &SimRun, begin: Timestamp) {
    let mut now = begin;
    let skipped = RECORDS_MAX / 2..run.records.len().saturating_sub(RECORDS_MAX / 2);
    for (number, record) in run.records.iter().enumerate() {
        if let Entry::Event { at, .. } | Entry::End { at, .. } = &record.entry {
            now = *at;
        }
        if skipped.contains(&number) {
            if number == skipped.start {
                let _ = writeln!(text, "        … {} records", skipped.len());
            }
            continue;
        }
        let time = duration(now.ms_since(begin));
        let _ = writeln!(text, "  {number:>4}  {time:<12} {}", line(record, run, begin));
    }
    if run.records.is_empty() {
        text.push_str("  (empty)\n");
    }
    for waits in run.waits_for() {
        let _ = writeln!(text, "        waits for {waits}");
    }
}

fn line(record: &Record, run: &SimRun, begin: Timestamp) -> String {
    let what = match &record.entry {
        Entry::Event { event: Event::Started { .. }, .. } => "start".to_owned(),
        Entry::Event { event: Event::Done { of, outcome }, .. } => {
            format!("end of {}: {}", command(run, *of), outcome_text(outcome))
        }
        Entry::Event { event: Event::Fired { of }, .. } => format!("{} fires", command(run, *of)),
        Entry::Event { event: Event::StartExpired { of }, .. } => {
            format!("schedule_to_start of {} has passed", command(run, *of))
        }
        Entry::Event { event: Event::Expired { of, error }, .. } => {
            format!("end of {}: {}", command(run, *of), error_text(error))
        }
        Entry::Event { event: Event::Stepped { key, outcome, .. }, .. } => {
            format!("{key}: {}", outcome_text(outcome))
        }
        Entry::Event { event: Event::Signal { name, body, .. }, .. } => {
            format!("signal `{name}` {}", cut(body.as_json()))
        }
        Entry::Event { event: Event::Resolved { body, .. }, .. } => {
            format!("promise resolved: {}", cut(body.as_json()))
        }
        Entry::Event { event: Event::CancelRequested { reason }, .. } => format!("cancellation requested: {reason}"),
        Entry::Command(Command { key, request: Request::Sleep { until }, .. }) => {
            format!("{key} until {}", duration(until.ms_since(begin)))
        }
        Entry::Cancel(of) => {
            let names: Vec<String> = of.iter().take(5).map(|of| command(run, *of)).collect();
            let more =
                if of.len() > names.len() { format!(" and {} more", of.len() - names.len()) } else { String::new() };
            format!("cancels {}{more}", names.join(", "))
        }
        Entry::End { end: End::Retried { message, attempt, at }, .. } => {
            format!("failed, attempt {attempt} follows at {}: {}", duration(at.ms_since(begin)), cut(message))
        }
        Entry::End { end, .. } => end_text(end),
        _ => record.describe(),
    };
    match record.place().filter(|place| !place.is_empty()) {
        Some(place) => format!("{what}   at {place}"),
        None => what,
    }
}

/// A command by its number.
fn command(run: &SimRun, number: u64) -> String {
    match usize::try_from(number).ok().and_then(|number| run.records.get(number)).map(|record| &record.entry) {
        Some(Entry::Command(command)) => format!("{} ({number})", command.key),
        _ => format!("command {number}"),
    }
}

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Ok(body) => cut(body.as_json()),
        Err(error) => error_text(error),
    }
}

fn error_text(CallError { class, message, attempts, detail }: &CallError) -> String {
    let detail = detail.as_ref().map(|detail| format!(", detail {}", cut(&detail.to_string()))).unwrap_or_default();
    format!("error ({class}, after {attempts} attempts): {}{detail}", cut(message))
}

pub(super) fn end_text(end: &End) -> String {
    match end {
        End::Ok(body) => format!("ended with {}", cut(body.as_json())),
        End::Failed(message) | End::Cancelled(message) | End::TimedOut(message) => {
            format!("ended as {}: {}", end.name(), cut(message))
        }
        End::Continued { kind, .. } => format!("continues as new `{kind}`"),
        other => format!("ended as {}", other.name()),
    }
}

fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(VALUE_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A time since the begin of the test.
pub(super) fn duration(ms: u64) -> String {
    let (days, hours, minutes) = (ms / 86_400_000, ms / 3_600_000 % 24, ms / 60_000 % 60);
    let (seconds, rest) = (ms / 1_000 % 60, ms % 1_000);
    let mut text = String::from("+");
    for (number, unit) in [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"), (rest, "ms")] {
        if number > 0 {
            let _ = write!(text, "{number}{unit}");
        }
    }
    if ms == 0 { "+0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration(0), "+0s");
        assert_eq!(duration(86_400_000 * 3 + 7_200_000 + 5), "+3d2h5ms");
        assert_eq!(duration(61_000), "+1m1s");
    }
}
