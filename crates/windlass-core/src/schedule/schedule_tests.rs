use super::*;
use crate::job::{Dedup, DedupBy, DedupMode};
use crate::name::{CustomId, Kind, QueueName};
use crate::payload::Payload;

pub(super) fn sample(rule: Rule) -> Schedule {
    let spec = JobSpec::new(QueueName::new("mail").unwrap(), Kind::new("digest").unwrap(), Payload::default());
    Schedule::new(ScheduleName::new("nightly").unwrap(), rule, spec)
}

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

const NOW: &str = "2026-06-01T12:00:00Z";

#[test]
fn a_schedule_that_says_little_has_the_defaults() {
    let schedule = sample(Rule::every_ms(60_000));
    assert_eq!((schedule.overlap, schedule.catch_up), (Overlap::Allow, CatchUp::Latest));
    schedule.check().unwrap();
    let spec = serde_json::to_value(&schedule.spec).unwrap();
    let short = serde_json::json!({ "name": "nightly", "rule": { "every": { "ms": 60_000 } }, "spec": spec });
    assert_eq!(serde_json::from_value::<Schedule>(short).unwrap(), schedule);
}

#[test]
fn a_schedule_comes_back_from_its_text() {
    let mut schedule = sample(Rule::cron_in("Europe/Berlin", "30 2 * * *")).arm(None, at(NOW)).unwrap();
    schedule.start = Some(at(NOW));
    schedule.end = Some(at("2027-01-01T00:00:00Z"));
    schedule.limit = Some(7);
    schedule.overlap = Overlap::Skip;
    schedule.catch_up = CatchUp::All { max: 3 };
    schedule.paused = true;
    schedule.last_tick = Some(at(NOW));
    schedule.last_job = Some(JobId::from_parts(0, 9));
    (schedule.fired, schedule.revision) = (2, 5);
    let text = serde_json::to_string(&schedule).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
    let catch_up = |text| serde_json::from_str::<CatchUp>(text).unwrap();
    assert_eq!(catch_up("\"skip\""), CatchUp::Skip);
    assert_eq!(catch_up("\"latest\""), CatchUp::Latest);
    assert_eq!(catch_up(r#"{"all":{"max":3}}"#), CatchUp::All { max: 3 });
}

type Spoil = fn(&mut Schedule);

#[test]
fn what_cannot_be_meant_is_refused_by_the_name_of_its_field() {
    let invalid: [(&str, Spoil); 12] = [
        ("rule.ms", |s| s.rule = Rule::every_ms(0)),
        ("rule.expression", |s| s.rule = Rule::cron("60 * * * *")),
        ("rule.zone", |s| s.rule = Rule::cron_in("Europe/Berln", "* * * * *")),
        ("spec.custom_id", |s| s.spec.custom_id = Some(CustomId::new("x").unwrap())),
        ("attempts", |s| s.spec.attempts = 0),
        ("dedup.ttl_ms", |s| {
            s.spec.dedup = Some(Dedup { by: DedupBy::Payload, mode: DedupMode::Throttle, ttl_ms: None });
        }),
        ("start", |s| s.start = Some(Timestamp::from_ms(-1))),
        ("end", |s| s.end = Some(at("9999-01-01T00:00:00Z"))),
        ("limit", |s| s.limit = Some(0)),
        ("catch_up.max", |s| s.catch_up = CatchUp::All { max: 0 }),
        ("end", |s| (s.start, s.end) = (Some(at(NOW)), Some(at(NOW).minus_ms(1)))),
        ("end", |s| {
            s.rule = Rule::cron("0 0 1 1 *");
            (s.start, s.end) = (Some(at(NOW)), Some(at("2026-12-31T23:59:59Z")));
        }),
    ];
    for (expected, spoil) in invalid {
        let mut schedule = sample(Rule::every_ms(60_000));
        spoil(&mut schedule);
        let error = schedule.check().unwrap_err();
        assert!(matches!(&error, Error::Invalid { field, .. } if field == expected), "{expected}: {error}");
        assert_eq!(schedule.arm(None, at(NOW)).unwrap_err(), error, "nothing is armed that would be refused");
    }
}

#[test]
fn bounds_are_refused_with_the_bound() {
    let mut many = sample(Rule::every_ms(60_000));
    many.catch_up = CatchUp::All { max: CATCH_UP_MAX + 1 };
    assert_eq!(many.check(), Err(Error::limit("catch_up.max", 1_000, 1_001)));

    let mut full = sample(Rule::every_ms(60_000));
    full.spec.metadata = (0..62).map(|i| (i.to_string(), String::new())).collect();
    full.spec.metadata.insert(METADATA_TICK.to_owned(), "mine".to_owned());
    full.check().unwrap();
    full.spec.metadata.insert("62".to_owned(), String::new());
    let what = "spec.metadata, beside the two entries of the schedule,";
    assert_eq!(full.check(), Err(Error::limit(what, 62, 63)));
}

#[test]
fn what_can_be_meant_passes_at_its_bounds() {
    let good: [Spoil; 5] = [
        |s| (s.start, s.end) = (Some(at(NOW)), Some(at(NOW))),
        |s| s.limit = Some(u64::MAX),
        |s| s.catch_up = CatchUp::All { max: CATCH_UP_MAX },
        |s| s.rule = Rule::cron("0 0 29 2 *"),
        |s| {
            s.rule = Rule::cron("0 0 1 1 *");
            (s.start, s.end) = (Some(at(NOW)), Some(at("2027-01-01T00:00:00Z")));
        },
    ];
    for change in good {
        let mut schedule = sample(Rule::every_ms(60_000));
        change(&mut schedule);
        schedule.check().unwrap();
    }
}

#[test]
fn the_first_tick_is_the_start_or_the_first_one_after_now() {
    let hour = 3_600_000;
    let first = |start: Option<&str>, rule: Rule| {
        let mut schedule = sample(rule);
        schedule.start = start.map(at);
        schedule.first_tick(at(NOW)).unwrap().unwrap().to_string()
    };
    assert_eq!(first(None, Rule::every_ms(hour)), "2026-06-01T13:00:00.000Z");
    assert_eq!(first(Some(NOW), Rule::every_ms(hour)), "2026-06-01T12:00:00.000Z");
    assert_eq!(first(Some("2026-06-01T12:20:00Z"), Rule::every_ms(hour)), "2026-06-01T12:20:00.000Z");
    assert_eq!(first(Some("2026-01-01T00:20:00Z"), Rule::every_ms(hour)), "2026-06-01T12:20:00.000Z");
    assert_eq!(first(None, Rule::cron("0 12 * * *")), "2026-06-02T12:00:00.000Z");
    assert_eq!(first(Some(NOW), Rule::cron("0 12 * * *")), "2026-06-01T12:00:00.000Z");
    assert_eq!(first(Some("2026-07-01T00:00:00Z"), Rule::cron("0 12 * * *")), "2026-07-01T12:00:00.000Z");
    let mut over = sample(Rule::every_ms(hour));
    over.end = Some(at("2026-06-01T12:59:59Z"));
    assert_eq!(over.first_tick(at(NOW)).unwrap(), None);
}

#[test]
fn a_program_that_puts_its_schedules_at_every_start_does_not_set_them_back() {
    let hour = 3_600_000;
    let stored = sample(Rule::every_ms(24 * hour)).arm(None, at(NOW)).unwrap();
    assert_eq!(stored.next_tick, Some(at("2026-06-02T12:00:00Z")));
    let mut stored = Schedule { fired: 3, revision: 8, last_tick: Some(at(NOW)), ..stored };
    stored.last_job = Some(JobId::from_parts(0, 1));

    // Restarted before the tick, and after it, when catching up is still to be done.
    for later in [at("2026-06-02T11:00:00Z"), at("2026-06-05T11:00:00Z")] {
        let mut again = sample(Rule::every_ms(24 * hour));
        again.spec.priority = -5;
        let again = again.arm(Some(&stored), later).unwrap();
        assert_eq!(again.next_tick, stored.next_tick);
        assert_eq!(again.spec.priority, -5);
        assert_eq!((again.fired, again.revision, again.last_tick), (3, 8, stored.last_tick));
        assert_eq!(again.last_job, stored.last_job);
    }
    let other = sample(Rule::every_ms(hour)).arm(Some(&stored), at("2026-06-02T11:30:00Z")).unwrap();
    assert_eq!(other.next_tick, Some(at("2026-06-02T12:30:00Z")), "another rule begins anew");
}

#[test]
fn ticks_that_pass_while_paused_are_gone_and_the_beat_stays() {
    let hour = 3_600_000;
    let armed = sample(Rule::every_ms(24 * hour)).arm(None, at(NOW)).unwrap();
    let paused = Schedule { paused: true, ..armed.clone() };
    let later = at("2026-06-05T20:00:00Z");
    let resumed = sample(Rule::every_ms(24 * hour)).arm(Some(&paused), later).unwrap();
    assert_eq!(resumed.next_tick, Some(at("2026-06-06T12:00:00Z")));
    let still = Schedule { paused: true, ..sample(Rule::every_ms(24 * hour)) }.arm(Some(&paused), later).unwrap();
    assert_eq!(still.next_tick, armed.next_tick);
    let early = sample(Rule::every_ms(24 * hour)).arm(Some(&paused), at("2026-06-01T13:00:00Z")).unwrap();
    assert_eq!(early.next_tick, armed.next_tick);
}

#[test]
fn a_raised_limit_wakes_a_schedule_that_was_over() {
    let limited = |limit| Schedule { limit: Some(limit), ..sample(Rule::every_ms(3_600_000)) };
    let over = Schedule { fired: 2, last_tick: Some(at("2026-06-01T12:30:00Z")), ..limited(2) };
    assert!(over.is_over());
    let same = limited(2).arm(Some(&over), at("2026-06-02T00:00:00Z")).unwrap();
    assert!(same.next_tick.is_none() && same.is_over());
    let more = limited(3).arm(Some(&over), at("2026-06-02T00:00:00Z")).unwrap();
    assert_eq!(more.next_tick, Some(at("2026-06-02T00:30:00Z")));
    assert!(!more.is_over());
    let shortened = Schedule { end: Some(at(NOW)), ..more.clone() };
    assert!(shortened.is_over());
    assert_eq!(shortened.arm(Some(&more), at(NOW)).unwrap().next_tick, None, "what waits is beyond the new end");
}
