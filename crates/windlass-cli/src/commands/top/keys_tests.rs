use super::super::draw::tests::snapshot;
use super::super::state::Event;
use super::*;
use windlass::core::id::JobId;

fn state() -> State {
    let mut state = State::default();
    state.update(Event::Looked(Box::new(snapshot())));
    state
}

fn press(state: &mut State, keys: &[KeyCode]) -> Vec<Action> {
    keys.iter().flat_map(|key| state.update(Event::Key(KeyEvent::from(*key)))).collect()
}

fn letters(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

#[test]
fn moving_stays_inside() {
    let mut state = state();
    press(&mut state, &letters("jjjjj"));
    assert_eq!(state.at, [2, 0, 0]);
    press(&mut state, &[KeyCode::Up, KeyCode::PageUp]);
    assert_eq!(state.at, [0, 0, 0]);
    press(&mut state, &[KeyCode::Tab, KeyCode::Down]);
    assert_eq!((state.pane, state.at), (Pane::Workers, [0, 1, 0]));
    press(&mut state, &[KeyCode::BackTab, KeyCode::BackTab]);
    assert_eq!(state.pane, Pane::Failures);
}

#[test]
fn a_queue_is_paused_and_resumed() {
    let mut state = state();
    let paused = press(&mut state, &letters("jp"));
    assert_eq!(paused, [Action::Pause { queue: "mail".try_into().unwrap(), paused: true }]);
    let resumed = press(&mut state, &letters("jp"));
    assert_eq!(resumed, [Action::Pause { queue: "media-with-a-long-name".try_into().unwrap(), paused: false }]);
    // Not by accident, from another pane.
    assert_eq!(press(&mut state, &[KeyCode::Tab, KeyCode::Char('p')]), []);
    assert!(matches!(&state.word, Word::Said(words) if words.contains("Tab")));
}

#[test]
fn a_failed_job_is_retried_and_all_of_them_after_a_question() {
    let mut state = state();
    press(&mut state, &[KeyCode::BackTab]);
    assert_eq!(press(&mut state, &letters("r")), [Action::RetryJob(JobId::from_parts(0, 19))]);
    assert_eq!(press(&mut state, &letters("R")), []);
    assert!(matches!(&state.over, Over::Ask { question, .. } if question.contains("all 23 failed jobs of mail")));
    assert_eq!(press(&mut state, &letters("n")), [], "anything but y is a no");
    assert_eq!(state.over, Over::Nothing);
    assert_eq!(press(&mut state, &letters("Ry")), [Action::RetryAll("mail".try_into().unwrap())]);
    // A queue without failures asks nothing.
    press(&mut state, &[KeyCode::Tab]);
    assert_eq!(press(&mut state, &letters("Ry")), []);
}

#[test]
fn enter_inspects_what_is_selected() {
    let mut state = state();
    assert_eq!(press(&mut state, &[KeyCode::Enter]), [Action::InspectQueue("billing".try_into().unwrap())]);
    assert_eq!(press(&mut state, &[KeyCode::Tab, KeyCode::Enter]), []);
    assert!(matches!(&state.over, Over::Text { title, .. } if title == "worker web-1-4711-00c0ffee"));
    let job = press(&mut state, &[KeyCode::Esc, KeyCode::Tab, KeyCode::Down, KeyCode::Enter]);
    assert_eq!(job, [Action::InspectJob(JobId::from_parts(0, 4))]);
}

#[test]
fn a_filter_is_typed_and_cleared() {
    let mut state = state();
    press(&mut state, &letters("jj/MAIq"));
    assert_eq!((state.filter.as_str(), state.typing), ("MAIq", true), "q is a letter here");
    press(&mut state, &[KeyCode::Backspace, KeyCode::Enter]);
    assert_eq!(state.queues().len(), 1);
    assert_eq!(state.at[0], 0, "the row that was selected has gone");
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!(state.queues().len(), 3);
    assert_eq!(press(&mut state, &letters("q")), [Action::Quit]);
}

#[test]
fn a_text_is_scrolled_and_any_other_key_closes_it() {
    let mut state = state();
    let lines = vec!["a".to_owned(), "b".to_owned()];
    state.update(Event::Inspected { title: "x".to_owned(), lines });
    press(&mut state, &letters("jjj"));
    assert!(matches!(&state.over, Over::Text { from: 1, .. }));
    assert_eq!(press(&mut state, &letters("q")), [], "closes the text and not the view");
    assert_eq!(state.over, Over::Nothing);
}

#[test]
fn nothing_can_be_asked_before_anything_is_known() {
    let mut state = State::default();
    let keys =
        [KeyCode::Enter, KeyCode::Char('p'), KeyCode::Char('r'), KeyCode::Char('R'), KeyCode::Tab, KeyCode::Down];
    for _ in 0..3 {
        assert_eq!(press(&mut state, &keys), []);
    }
}
