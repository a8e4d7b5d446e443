use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The contract, written down a second time: it must not be derived from the code that it checks.
const TABLE: &str = "
from      | promote | claim  | renew  | progress | log    | complete             | fail                              | release                  | cancel    | reap                     | retry            | reschedule       | reprioritise | update_payload | remove
scheduled | ready   | -      | lost   | lost     | lost   | lost                 | lost                              | lost                     | cancelled | -                        | -                | ready, scheduled | scheduled    | scheduled      | gone
ready     | -       | active | lost   | lost     | lost   | lost                 | lost                              | lost                     | cancelled | -                        | -                | ready, scheduled | ready        | ready          | gone
active    | -       | -      | active | active   | active | cancelled, succeeded | cancelled, failed, ready, scheduled | cancelled, failed, ready | active    | cancelled, failed, ready | -                | -                | -            | -              | -
succeeded | -       | -      | lost   | lost     | lost   | lost                 | lost                              | lost                     | -         | -                        | ready, scheduled | -                | -            | -              | gone
failed    | -       | -      | lost   | lost     | lost   | lost                 | lost                              | lost                     | -         | -                        | ready, scheduled | -                | -            | failed         | gone
cancelled | -       | -      | lost   | lost     | lost   | lost                 | lost                              | lost                     | -         | -                        | ready, scheduled | -                | -            | -              | gone
";

const NOW: Timestamp = Timestamp::from_ms(1_000_000);
const LEASE_MS: u64 = 30_000;
const MINE: Token = Token::from_bits(7);
const OTHER: Token = Token::from_bits(8);

/// What the table says: from state and verb to what may come of it.
fn table() -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut lines = TABLE.trim().lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let verbs = lines.next().unwrap();
    let cell = |text: &str| text.split(", ").map(str::to_owned).collect();
    lines
        .flat_map(|line| {
            let from = line[0].to_owned();
            let cells = verbs.iter().zip(line).skip(1);
            cells.map(move |(verb, text)| ((from.clone(), (*verb).to_owned()), cell(text))).collect::<Vec<_>>()
        })
        .collect()
}

fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

fn claim_with(token: Token) -> Event {
    Event::Claim { worker: worker(), token, lease_ms: LEASE_MS }
}

/// A fresh job with three attempts and one stall.
fn ready() -> Life {
    Life::new(Some(NOW), NOW, 3, 1)
}

fn after(life: &Life, event: &Event, now: Timestamp) -> Life {
    ordered(life, event, now).0
}

fn ordered(life: &Life, event: &Event, now: Timestamp) -> (Life, Order) {
    match next(life, event, now).unwrap() {
        Next::Becomes(life, order) => (life, order),
        Next::Gone => panic!("gone"),
    }
}

fn active() -> Life {
    after(&ready(), &claim_with(MINE), NOW)
}

/// Lives in this state that differ in all that a transition may depend on.
fn lives(state: State) -> Vec<Life> {
    match state {
        State::Scheduled => vec![Life::new(Some(NOW.plus_ms(9)), NOW, 3, 1), Life::new(None, NOW, 3, 1)],
        State::Ready => vec![ready()],
        State::Active => {
            let lease = NOW.minus_ms(LEASE_MS);
            [(1, 0, false), (3, 0, false), (1, 1, false), (3, 1, false), (1, 0, true), (3, 1, true)]
                .into_iter()
                .map(|(attempt, stalls, cancel_requested)| Life {
                    attempt,
                    stalls,
                    cancel_requested,
                    ..after(&ready(), &claim_with(MINE), lease)
                })
                .collect()
        }
        State::Succeeded => vec![after(&active(), &Event::Complete { token: MINE }, NOW)],
        State::Failed => vec![after(&active(), &Event::Fail { token: MINE, retry: Retry::Never }, NOW)],
        State::Cancelled => vec![after(&ready(), &Event::Cancel, NOW)],
    }
}

/// Every event of a verb that a transition may tell apart.
fn events(verb: Verb, token: Token) -> Vec<Event> {
    let dues = [NOW.minus_ms(1), NOW, NOW.plus_ms(1)];
    match verb {
        Verb::Enqueue => vec![],
        Verb::Promote => vec![Event::Promote],
        Verb::Claim => vec![claim_with(token)],
        Verb::Renew => vec![Event::Renew { token, lease_ms: LEASE_MS }],
        Verb::Progress => vec![Event::Progress { token }],
        Verb::Log => vec![Event::Log { token }],
        Verb::Complete => vec![Event::Complete { token }],
        Verb::Fail => [Retry::AfterMs(0), Retry::AfterMs(5), Retry::AfterMs(u64::MAX), Retry::Never]
            .map(|retry| Event::Fail { token, retry })
            .to_vec(),
        Verb::Release => [false, true].map(|started| Event::Release { token, started }).to_vec(),
        Verb::Cancel => vec![Event::Cancel],
        Verb::Reap => vec![Event::Reap],
        Verb::Retry => dues.map(|due_at| Event::Retry { due_at }).to_vec(),
        Verb::Reschedule => dues.map(|due_at| Event::Reschedule { due_at }).to_vec(),
        Verb::Reprioritise => vec![Event::Reprioritise],
        Verb::UpdatePayload => vec![Event::UpdatePayload],
        Verb::Remove => vec![Event::Remove],
    }
}

/// What holds of every life, whatever happened to it.
fn assert_sound(life: &Life) {
    assert_eq!(life.held.is_some(), life.state == State::Active, "{life:?}");
    assert_eq!(life.finished_at.is_some(), life.state.is_terminal(), "{life:?}");
    assert!(life.due_at.is_none() || life.state == State::Scheduled, "{life:?}");
    assert!(life.attempt <= life.attempts_max, "{life:?}");
}

#[test]
fn every_pair_of_state_and_verb_does_what_the_table_says() {
    let table = table();
    assert_eq!(table.len(), State::ALL.len() * Verb::ALL.len());
    for ((from, verb), expected) in table {
        let state: State = from.parse().unwrap();
        let verb = Verb::ALL.into_iter().find(|v| v.as_str() == verb).unwrap();
        let mut found = BTreeSet::new();
        for life in lives(state) {
            assert_eq!(life.state, state);
            assert_sound(&life);
            for event in events(verb, MINE) {
                assert_eq!(event.verb(), verb);
                found.insert(match next(&life, &event, NOW) {
                    Ok(Next::Becomes(life, _)) => {
                        assert_sound(&life);
                        life.state.to_string()
                    }
                    Ok(Next::Gone) => "gone".to_owned(),
                    Err(Error::LeaseLost) => "lost".to_owned(),
                    Err(error) => {
                        assert_eq!(error, Error::IllegalTransition { from: state, verb });
                        "-".to_owned()
                    }
                });
            }
        }
        assert_eq!(found, expected, "{state} {verb:?}");
        let listed = targets(state, verb).iter().map(|to| to.map_or("gone".to_owned(), |to| to.to_string()));
        let legal = expected.into_iter().filter(|text| text != "-" && text != "lost");
        assert_eq!(listed.collect::<BTreeSet<_>>(), legal.collect(), "targets of {state} {verb:?}");
    }
}

#[test]
fn the_verbs_of_the_worker_need_the_current_token_and_no_others_do() {
    let needs: Vec<&str> = Verb::ALL.into_iter().filter(|verb| verb.needs_lease()).map(Verb::as_str).collect();
    assert_eq!(needs, ["renew", "progress", "log", "complete", "fail", "release"]);
    for state in State::ALL {
        for verb in Verb::ALL.into_iter().filter(|verb| verb.needs_lease()) {
            for (life, event) in lives(state).iter().zip(events(verb, OTHER)) {
                assert_eq!(next(life, &event, NOW), Err(Error::LeaseLost), "{state} {verb}");
            }
        }
    }
}

#[test]
fn a_claim_spends_an_attempt_and_gives_a_lease() {
    let job = active();
    assert_eq!((job.attempt, job.stalls, job.claimed_at), (1, 0, Some(NOW)));
    assert_eq!(job.held, Some(Held { token: MINE, worker: worker(), expires_at: NOW.plus_ms(LEASE_MS) }));
    assert!(job.is_held_by(MINE) && !job.is_held_by(OTHER) && !ready().is_held_by(MINE));
}

#[test]
fn failures_spend_attempts_until_none_is_left() {
    let fail = Event::Fail { token: MINE, retry: Retry::AfterMs(0) };
    let mut job = ready();
    let mut states = Vec::new();
    while job.state == State::Ready && states.len() < 9 {
        job = after(&after(&job, &claim_with(MINE), NOW), &fail, NOW);
        states.push((job.state, job.attempt));
    }
    assert_eq!(states, [(State::Ready, 1), (State::Ready, 2), (State::Failed, 3)]);
    assert_eq!((job.stalls, job.finished_at), (0, Some(NOW)));
}

#[test]
fn a_retry_waits_its_delay_and_a_final_failure_does_not() {
    let waits = after(&active(), &Event::Fail { token: MINE, retry: Retry::AfterMs(5) }, NOW);
    assert_eq!((waits.state, waits.due_at, waits.held), (State::Scheduled, Some(NOW.plus_ms(5)), None));
    let over = after(&active(), &Event::Fail { token: MINE, retry: Retry::Never }, NOW);
    assert_eq!((over.state, over.due_at, over.attempt), (State::Failed, None, 1));
}

#[test]
fn stalls_have_a_budget_of_their_own() {
    let late = NOW.plus_ms(LEASE_MS);
    let stalled = after(&active(), &Event::Reap, late);
    assert_eq!((stalled.state, stalled.attempt, stalled.stalls), (State::Ready, 0, 1));
    let again = after(&after(&stalled, &claim_with(OTHER), late), &Event::Reap, late.plus_ms(LEASE_MS));
    assert_eq!((again.state, again.attempt, again.stalls), (State::Failed, 0, 2));
    let none = Life { stalls_max: 0, ..active() };
    assert_eq!(after(&none, &Event::Reap, late).state, State::Failed);
}

#[test]
fn a_release_gives_the_attempt_back_unless_the_job_had_started() {
    let unstarted = after(&active(), &Event::Release { token: MINE, started: false }, NOW);
    assert_eq!((unstarted.state, unstarted.attempt), (State::Ready, 0));
    let started = after(&active(), &Event::Release { token: MINE, started: true }, NOW);
    assert_eq!((started.state, started.attempt), (State::Ready, 1));
    let last = Life { attempt: 3, ..active() };
    assert_eq!(after(&last, &Event::Release { token: MINE, started: false }, NOW).state, State::Ready);
    let stalled = after(&last, &Event::Release { token: MINE, started: true }, NOW);
    assert_eq!((stalled.state, stalled.attempt, stalled.stalls), (State::Ready, 2, 1), "as if its worker had vanished");
    let over = after(&Life { stalls: 1, ..last }, &Event::Release { token: MINE, started: true }, NOW);
    assert_eq!((over.state, over.attempt, over.stalls), (State::Failed, 3, 1));
}

#[test]
fn a_lease_is_reaped_only_when_it_has_expired() {
    let refused = Err(Error::IllegalTransition { from: State::Active, verb: Verb::Reap });
    for early in [NOW.minus_ms(99), NOW, NOW.plus_ms(LEASE_MS - 1)] {
        assert_eq!(next(&active(), &Event::Reap, early), refused);
    }
    assert_eq!(after(&active(), &Event::Reap, NOW.plus_ms(LEASE_MS)).state, State::Ready);
}

#[test]
fn a_renewal_never_shortens_a_lease() {
    let until = |now: Timestamp, lease_ms| {
        after(&active(), &Event::Renew { token: MINE, lease_ms }, now).held.unwrap().expires_at
    };
    let promised = NOW.plus_ms(LEASE_MS);
    assert_eq!(until(NOW.plus_ms(10_000), LEASE_MS), promised.plus_ms(10_000));
    assert_eq!(until(NOW.minus_ms(500_000), LEASE_MS), promised, "the clock jumped back");
    assert_eq!(until(NOW, 10), promised, "a shorter lease was asked for");
    assert_eq!(until(NOW, u64::MAX), Timestamp::from_ms(i64::MAX));
    // An expired lease that nobody has taken away is still the worker's.
    assert_eq!(until(promised.plus_ms(1), LEASE_MS), promised.plus_ms(1 + LEASE_MS));
}

#[test]
fn a_cancel_wins_over_whatever_the_worker_says() {
    let cancelled = after(&active(), &Event::Cancel, NOW);
    assert_eq!((cancelled.state, cancelled.cancel_requested), (State::Active, true));
    assert!(cancelled.is_held_by(MINE), "its worker may still speak for it");
    assert_eq!(after(&cancelled, &Event::Cancel, NOW), cancelled, "twice is once");
    assert!(after(&cancelled, &Event::Renew { token: MINE, lease_ms: 1 }, NOW).cancel_requested);
    let ends = [Verb::Complete, Verb::Fail, Verb::Release, Verb::Reap];
    for event in ends.into_iter().flat_map(|verb| events(verb, MINE)) {
        let (job, order) = ordered(&cancelled, &event, NOW.plus_ms(LEASE_MS));
        assert_eq!((job.state, order), (State::Cancelled, Order::Keep), "{event:?}");
        assert_eq!(job.finished_at, Some(NOW.plus_ms(LEASE_MS)));
    }
    for state in [State::Scheduled, State::Ready] {
        let job = after(&lives(state)[0], &Event::Cancel, NOW);
        assert_eq!((job.state, job.cancel_requested, job.due_at), (State::Cancelled, false, None));
    }
}

#[test]
fn an_explicit_retry_begins_anew() {
    let spent = Life { attempt: 3, stalls: 1, ..active() };
    let ends = [
        after(&spent, &Event::Fail { token: MINE, retry: Retry::AfterMs(1) }, NOW),
        after(&spent, &Event::Complete { token: MINE }, NOW),
        after(&after(&spent, &Event::Cancel, NOW), &Event::Complete { token: MINE }, NOW),
    ];
    assert_eq!(ends.each_ref().map(|life| life.state), [State::Failed, State::Succeeded, State::Cancelled]);
    for ended in ends {
        let (job, order) = ordered(&ended, &Event::Retry { due_at: NOW }, NOW);
        assert_eq!((job.state, job.attempt, job.stalls, job.retries), (State::Ready, 0, 0, 1));
        assert_eq!((job.cancel_requested, job.finished_at, order), (false, None, Order::Fresh));
        let later = after(&ended, &Event::Retry { due_at: NOW.plus_ms(1) }, NOW);
        assert_eq!((later.state, later.due_at), (State::Scheduled, Some(NOW.plus_ms(1))));
        let again = after(&after(&job, &Event::Cancel, NOW), &Event::Retry { due_at: NOW }, NOW);
        assert_eq!(again.retries, 2);
    }
}

#[test]
fn the_last_accepted_outcome_is_answered_again_and_no_other() {
    assert_eq!((ready().answer_again(MINE), active().answer_again(MINE)), (None, None));
    let failed = after(&active(), &Event::Fail { token: MINE, retry: Retry::AfterMs(0) }, NOW);
    assert_eq!(failed.answer_again(MINE), Some(State::Ready));
    assert_eq!(failed.answer_again(OTHER), None);
    let second = after(&failed, &claim_with(OTHER), NOW);
    assert_eq!(second.answer_again(MINE), Some(State::Ready), "while the next attempt runs");
    let renewed = after(&second, &Event::Renew { token: OTHER, lease_ms: 1 }, NOW);
    assert_eq!(renewed.answer_again(OTHER), None, "a renewal is no outcome");
    let done = after(&renewed, &Event::Complete { token: OTHER }, NOW);
    assert_eq!((done.answer_again(OTHER), done.answer_again(MINE)), (Some(State::Succeeded), None));
    let reaped = after(&active(), &Event::Reap, NOW.plus_ms(LEASE_MS));
    assert_eq!(reaped.answer_again(MINE), None, "a lease that was taken away is lost");
    let released = after(&active(), &Event::Release { token: MINE, started: false }, NOW);
    assert_eq!(released.answer_again(MINE), Some(State::Ready));
    let cancelled = after(&after(&active(), &Event::Cancel, NOW), &Event::Complete { token: MINE }, NOW);
    assert_eq!(cancelled.answer_again(MINE), Some(State::Cancelled), "what it led to, not what it said");
}

#[test]
fn what_waits_again_goes_to_the_back_and_what_was_released_keeps_its_place() {
    let late = NOW.plus_ms(LEASE_MS);
    let scheduled = Life::new(Some(late), NOW, 3, 1);
    let order = |life: &Life, event| ordered(life, &event, late).1;
    for (life, event) in [
        (&scheduled, Event::Promote),
        (&scheduled, Event::Reschedule { due_at: NOW }),
        (&ready(), Event::Reschedule { due_at: late.plus_ms(1) }),
        (&active(), Event::Fail { token: MINE, retry: Retry::AfterMs(0) }),
        (&active(), Event::Reap),
    ] {
        assert_eq!(order(life, event.clone()), Order::Fresh, "{event:?}");
    }
    for (life, event) in [
        (&active(), Event::Release { token: MINE, started: false }),
        (&active(), Event::Release { token: MINE, started: true }),
        (&active(), Event::Renew { token: MINE, lease_ms: 1 }),
        (&active(), Event::Complete { token: MINE }),
        (&active(), Event::Fail { token: MINE, retry: Retry::Never }),
        (&ready(), Event::Reprioritise),
        (&ready(), Event::UpdatePayload),
        (&ready(), Event::Cancel),
        (&ready(), claim_with(MINE)),
    ] {
        assert_eq!(order(life, event.clone()), Order::Keep, "{event:?}");
    }
}

#[test]
fn a_new_job_is_ready_when_it_is_due_and_waits_without_a_time_when_it_is_held() {
    let state = |due_at| {
        let life = Life::new(due_at, NOW, 3, 1);
        assert_sound(&life);
        (life.state, life.due_at)
    };
    assert_eq!(state(Some(NOW)), (State::Ready, None));
    assert_eq!(state(Some(NOW.minus_ms(1))), (State::Ready, None));
    assert_eq!(state(Some(NOW.plus_ms(1))), (State::Scheduled, Some(NOW.plus_ms(1))));
    assert_eq!(state(None), (State::Scheduled, None));
}

#[test]
fn states_and_verbs_have_one_name_each() {
    let states = ["scheduled", "ready", "active", "succeeded", "failed", "cancelled"];
    assert_eq!(State::ALL.map(|state| state.to_string()), states);
    for (i, (state, name)) in State::ALL.into_iter().zip(states).enumerate() {
        assert_eq!((state.index(), name.parse::<State>().unwrap()), (i, state));
        assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{name}\""));
        assert_eq!(state.is_terminal(), i > 2);
    }
    for bad in ["", "Ready", "ready ", "done"] {
        let error = bad.parse::<State>().unwrap_err().to_string();
        assert!(error.ends_with("is none of scheduled, ready, active, succeeded, failed, cancelled"), "{error}");
    }
    for verb in Verb::ALL.into_iter().chain([Verb::Enqueue]) {
        assert_eq!(serde_json::to_string(&verb).unwrap(), format!("\"{verb}\"", verb = verb.as_str()));
    }
    let sentence = |from, verb| Error::IllegalTransition { from, verb }.to_string();
    assert_eq!(sentence(State::Active, Verb::Remove), "a job that is active cannot be removed");
    assert_eq!(sentence(State::Succeeded, Verb::UpdatePayload), "a job that is succeeded cannot change its payload");
    let words: Vec<String> = Verb::ALL.map(|verb| verb.to_string()).into();
    let expected = "be promoted|be claimed|renew|progress|append to its log|complete|fail|be released|be cancelled|be reaped|\
                    be retried|be rescheduled|be reprioritised|change its payload|be removed";
    assert_eq!(words.join("|"), expected);
}

/// Something to try on a job; most of it is illegal most of the time.
fn any_event() -> impl Strategy<Value = (Event, u64)> {
    let token = prop_oneof![9 => Just(MINE), 1 => Just(OTHER)];
    let retry = prop_oneof![4 => (0u64..50).prop_map(Retry::AfterMs), 1 => Just(Retry::Never)];
    let event = prop_oneof![
        6 => token.clone().prop_map(claim_with),
        3 => (token.clone(), retry).prop_map(|(token, retry)| Event::Fail { token, retry }),
        3 => (token.clone(), any::<bool>()).prop_map(|(token, started)| Event::Release { token, started }),
        3 => Just(Event::Reap),
        3 => Just(Event::Promote),
        1 => token.clone().prop_map(|token| Event::Complete { token }),
        1 => token.clone().prop_map(|token| Event::Renew { token, lease_ms: 100 }),
        1 => token.prop_map(|token| Event::Progress { token }),
        1 => Just(Event::Cancel),
        1 => (0u64..50).prop_map(|ms| Event::Reschedule { due_at: NOW.plus_ms(ms) }),
        1 => Just(Event::Reprioritise),
        1 => Just(Event::UpdatePayload),
    ];
    (event, prop_oneof![3 => 0u64..100, 2 => Just(LEASE_MS)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_job_is_delivered_more_often_than_its_budgets_allow(
        attempts in 1u32..5, stalls in 0u32..4, events in prop::collection::vec(any_event(), 1..120),
    ) {
        let mut job = Life::new(Some(NOW), NOW, attempts, stalls);
        let (mut now, mut claims, mut given_back) = (NOW, 0, 0);
        for (event, pause_ms) in events {
            now = now.plus_ms(pause_ms);
            let was = job.clone();
            match next(&was, &event, now) {
                Ok(Next::Becomes(life, _)) => job = life,
                Ok(Next::Gone) => prop_assert!(false, "nobody removed it"),
                Err(Error::LeaseLost) => prop_assert!(event.verb().needs_lease()),
                Err(error) => prop_assert_eq!(error, Error::IllegalTransition { from: was.state, verb: event.verb() }),
            }
            assert_sound(&job);
            match (&event, was.state == job.state) {
                (Event::Claim { .. }, false) => claims += 1,
                (Event::Release { started: false, .. }, false) => given_back += 1,
                _ => {}
            }
            prop_assert!(claims - given_back <= attempts + stalls, "{} claims", claims);
            if was.state.is_terminal() {
                prop_assert_eq!((job.state, job.finished_at), (was.state, was.finished_at), "only a retry brings it back");
            }
            prop_assert!(!was.cancel_requested || matches!(job.state, State::Active | State::Cancelled));
        }
    }
}
