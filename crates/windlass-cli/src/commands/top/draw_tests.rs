use super::super::frame_as_text;
use super::super::state::Event;
use super::*;
use std::path::PathBuf;
use windlass::core::id::JobId;
use windlass::core::rate::Rate;
use windlass::core::store::{QueueCounts, QueueSettings};
use windlass::core::time::Timestamp;
use windlass_operate::overview::{FailureLine, QueueLine, Rates, WorkerLine};

fn queue(name: &str, counts: [u64; 6], settings: QueueSettings) -> QueueLine {
    let rates = Rates { enqueued: 12.4, succeeded: 11.8, went_wrong: 0.2 };
    QueueLine { name: name.try_into().unwrap(), counts: QueueCounts::from_array(counts), rates, settings }
}

fn worker(id: &str, live: bool) -> WorkerLine {
    WorkerLine {
        id: id.to_owned(),
        live,
        running: 12,
        slots: 64,
        seen_ms_ago: if live { 400 } else { 95_000 },
        queues: vec!["mail".to_owned(), "media".to_owned()],
        labels: Vec::new(),
        about: "pid 12, windlass 0.1.0".to_owned(),
    }
}

pub(in super::super) fn snapshot() -> Snapshot {
    let failure = |kind: &str, error: &str, count, ms| FailureLine {
        queue: "mail".try_into().unwrap(),
        kind: kind.to_owned(),
        error: error.to_owned(),
        count,
        last_job: JobId::from_parts(0, u128::from(count)),
        last_ms_ago: ms,
    };
    let capped =
        QueueSettings { cap: Some(8), rate: Some(Rate { limit: 100, per_ms: 1_000 }), ..QueueSettings::default() };
    let paused = QueueSettings { paused: true, ..QueueSettings::default() };
    Snapshot {
        at: Timestamp::from_ms(1_000_000),
        store: "sqlite://jobs.db".to_owned(),
        durability: "sqlite, survives a power cut".to_owned(),
        rates: Rates { enqueued: 37.2, succeeded: 35.4, went_wrong: 0.6 },
        ended: (0..60).map(|second| 30 + second % 7).collect(),
        queues: vec![
            queue("billing", [0, 3, 8, 1_204, 0, 0], capped),
            queue("mail", [12, 48_231, 64, 1_203_441, 23, 1], QueueSettings::default()),
            queue("media-with-a-long-name", [0, 0, 0, 0, 0, 0], paused),
        ],
        workers: vec![worker("web-1-4711-00c0ffee", true), worker("web-2-4712-deadbeef", false)],
        failures: vec![failure("email", "421 mailbox busy", 19, 2_000), failure("welcome", "no such user", 4, 400_000)],
        failures_seen: 23,
    }
}

fn state() -> State {
    let mut state = State::default();
    state.update(Event::Looked(Box::new(snapshot())));
    state
}

/// Compares with the golden file of this name; `UPDATE_GOLDEN=1` writes it.
fn check(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/commands/top/golden").join(name);
    let text = format!("{text}\n");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name} has changed; look at it, then run the test with UPDATE_GOLDEN=1");
}

#[test]
fn the_view_looks_as_it_did() {
    for (width, height) in [(80, 24), (120, 40), (40, 10)] {
        check(&format!("{width}x{height}.txt"), &frame_as_text(&state(), width, height).unwrap());
    }
}

#[test]
fn what_lies_over_it_looks_as_it_did() {
    let mut help = state();
    help.over = Over::Help;
    check("help.txt", &frame_as_text(&help, 80, 24).unwrap());
    let mut job = state();
    let lines =
        vec!["kind      email on mail".to_owned(), "state     failed: ended (error 421 mailbox busy)".to_owned()];
    job.update(Event::Inspected { title: "job 0-1".to_owned(), lines });
    check("inspect.txt", &frame_as_text(&job, 80, 24).unwrap());
}

#[test]
fn a_long_line_is_cut_and_nothing_of_it_is_lost() {
    assert_eq!(cut("abcdefgh", 4), ["abcd", "  ef", "  gh"]);
    assert_eq!((cut("abcd", 4), cut("", 4)), (vec!["abcd".to_owned()], vec![String::new()]));
}

#[test]
fn no_size_breaks_it() {
    let mut states = [State::default(), state(), state(), state()];
    states[2].over = Over::Help;
    states[3].over = Over::Text { title: "x".to_owned(), lines: Vec::new(), from: 9 };
    for state in &states {
        for (width, height) in [(1, 1), (2, 40), (20, 5), (40, 10), (79, 13), (300, 100)] {
            frame_as_text(state, width, height).unwrap();
        }
    }
}

#[test]
fn the_selected_row_stays_in_sight() {
    let mut state = state();
    let many = (0..100).map(|at| queue(&format!("queue-{at:03}"), [0; 6], QueueSettings::default())).collect();
    state.update(Event::Looked(Box::new(Snapshot { queues: many, ..snapshot() })));
    state.at[0] = 99;
    let text = frame_as_text(&state, 80, 24).unwrap();
    assert!(text.contains("queue-099") && !text.contains("queue-000"), "{text}");
}

#[test]
fn trouble_is_said_and_goes_when_the_store_answers() {
    let mut state = state();
    state.update(Event::Trouble("the store is unavailable".to_owned()));
    assert!(frame_as_text(&state, 80, 24).unwrap().contains("the store is unavailable"));
    state.update(Event::Looked(Box::new(snapshot())));
    assert!(!frame_as_text(&state, 80, 24).unwrap().contains("unavailable"));
}
