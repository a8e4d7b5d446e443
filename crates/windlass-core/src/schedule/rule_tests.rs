use super::*;
use proptest::prelude::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn an_interval_ticks_at_its_anchor_and_every_multiple_from_there() {
    let rule = Rule::every_ms(1_500);
    let next = |after| rule.next_after(at(after), at(10_000)).unwrap().unwrap().as_ms();
    assert_eq!(next(-1), 10_000);
    assert_eq!(next(9_999), 10_000);
    assert_eq!(next(10_000), 11_500);
    assert_eq!(next(11_499), 11_500);
    assert_eq!(next(11_500), 13_000);
    assert_eq!(rule.next_after(Timestamp::MAX, at(0)).unwrap(), None);
    assert_eq!(rule.next_after(at(i64::MAX), at(i64::MIN)).unwrap(), None);
    assert_eq!(rule.next_after(at(0), at(i64::MAX)).unwrap(), None);
    assert!(Rule::every_ms(0).next_after(at(0), at(0)).is_err(), "damaged rules are errors, not loops");
    assert_eq!(Rule::every_ms(u64::MAX).next_after(at(5), at(5)).unwrap(), None);
}

#[test]
fn intervals_that_cannot_be_meant_are_refused() {
    for ms in [0, 1, 999] {
        assert!(matches!(Rule::every_ms(ms).check(), Err(Error::Invalid { field, .. }) if field == "rule.ms"), "{ms}");
    }
    for ms in [EVERY_MS_MAX + 1, u64::MAX] {
        assert_eq!(Rule::every_ms(ms).check(), Err(Error::limit("rule.ms", EVERY_MS_MAX, ms)));
    }
    for ms in [1_000, EVERY_MS_MAX] {
        Rule::every_ms(ms).check().unwrap();
    }
}

#[test]
fn expressions_that_cannot_be_meant_are_refused_with_advice() {
    for (expression, part) in [
        ("", "has 0 fields, not 5 or 6"),
        ("   ", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("@fortnightly", "has 1 fields"),
        ("60 * * * *", "`60 * * * *` cannot be read"),
        ("* 24 * * *", "cannot be read"),
        ("* * 0 * *", "cannot be read"),
        ("* * 32 * *", "cannot be read"),
        ("* * * 13 *", "cannot be read"),
        ("* * * * 8", "cannot be read"),
        ("-1 * * * *", "cannot be read"),
        ("*/0 * * * *", "cannot be read"),
        ("5-1 * * * *", "cannot be read"),
        ("1,,2 * * * *", "a list has an empty item"),
        (", , , , ,", "a list has an empty item"),
        ("a * * * *", "cannot be read"),
        ("99999999999999999999 * * * *", "cannot be read"),
        ("\u{1b}[31m * * * *", "` [31m * * * *`"),
        ("0 0 30 2 *", "a day that never comes"),
        ("0 0 31 4,6,9,11 *", "a day that never comes"),
        ("*\n* 30 2 *", "`* * 30 2 *` names a day that never comes"),
    ] {
        let Err(Error::Invalid { field, reason }) = Rule::cron(expression).check() else {
            panic!("{expression:?} passed")
        };
        assert_eq!(field, "rule.expression", "{expression:?}");
        assert!(reason.contains(part), "{expression:?}: {reason}");
        assert!(!reason.chars().any(char::is_control), "{expression:?}: {reason}");
    }
    let long = "0,".repeat(5_000) + "0 * * * *";
    assert_eq!(Rule::cron(&long).check(), Err(Error::limit("rule.expression, in bytes,", 255, long.len() as u64)));
    assert!(
        matches!(Rule::cron_in("Nowhere", "* * * * *").check(), Err(Error::Invalid { field, .. }) if field == "rule.zone")
    );
    for good in ["* * * * *", "*/5 * * * * *", "0 0 29 2 *", "@daily"] {
        Rule::cron_in("Europe/Berlin", good).check().unwrap();
    }
}

#[test]
fn a_rule_as_json_is_what_a_person_would_write() {
    let json = |text: &str| serde_json::from_str::<Rule>(text);
    assert_eq!(json(r#"{"every":{"ms":5000}}"#).unwrap(), Rule::every_ms(5_000));
    assert_eq!(json(r#"{"cron":{"expression":"@daily"}}"#).unwrap(), Rule::cron("@daily"));
    let berlin = Rule::cron_in("Europe/Berlin", "0 9 * * 1-5");
    assert_eq!(json(&serde_json::to_string(&berlin).unwrap()).unwrap(), berlin);
}

#[test]
fn the_last_tick_is_found_without_walking() {
    let ticks = Rule::every_ms(1_000).ticks(at(0)).unwrap();
    assert_eq!(ticks.last_before(at(31_536_000_000), at(0)).unwrap(), Some(at(31_535_999_000)));
    let daily = Rule::cron_in("Europe/Berlin", "30 2 * * *").ticks(at(0)).unwrap();
    let floor = time("2020-01-01T00:00:00Z");
    assert_eq!(daily.last_before(time("2026-03-29T12:00:00Z"), floor).unwrap(), Some(time("2026-03-29T01:00:00Z")));
    assert_eq!(daily.last_before(time("2026-03-29T01:00:00Z"), floor).unwrap(), Some(time("2026-03-28T01:30:00Z")));
    assert_eq!(daily.last_before(time("2020-01-01T01:00:00Z"), floor).unwrap(), None);
    // Many ticks lie between the place where the search turns round and the last one.
    let office = Rule::cron_in("Europe/Berlin", "*/5 * 9-17 * * 1-5").ticks(at(0)).unwrap();
    let friday = office.last_before(time("2026-06-01T08:00:00+02:00"), floor).unwrap();
    assert_eq!(friday, Some(time("2026-05-29T17:59:55+02:00")));
    let leap = Rule::cron("0 0 29 2 *").ticks(at(0)).unwrap();
    assert_eq!(leap.last_before(time("2026-01-01T00:00:00Z"), floor).unwrap(), Some(time("2024-02-29T00:00:00Z")));
}

/// Rules of every density, in zones whose clocks change.
pub(in crate::schedule) fn any_rule() -> impl Strategy<Value = Rule> {
    let zones = prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]);
    let expressions = prop::sample::select(vec![
        "* * * * * *",
        "*/7 * * * * *",
        "* * * * *",
        "0,30 2 * * *",
        "30 1 * * *",
        "0 * * * *",
        "*/15 2 * * *",
        "0 0 1 * *",
        "10 3 * * 1-5",
        "0 0 29 2 *",
        "* 12 * * 0",
    ]);
    prop_oneof![
        (zones, expressions).prop_map(|(zone, expression)| Rule::cron_in(zone, expression)),
        (EVERY_MS_MIN..200_000_000).prop_map(Rule::every_ms),
    ]
}

/// A time in 2026, the year whose changes of the clock the tests are about.
pub(in crate::schedule) fn in_2026() -> impl Strategy<Value = Timestamp> {
    (1_767_225_600_000i64..1_798_761_600_000).prop_map(Timestamp::from_ms)
}

proptest! {
    #[test]
    fn each_tick_lies_after_the_one_before_and_nothing_lies_between(
        rule in any_rule(), after in in_2026(), anchor in in_2026(), probe in 0.0f64..1.0,
    ) {
        let ticks = rule.ticks(anchor).unwrap();
        let mut last = after;
        for _ in 0..20 {
            let Some(tick) = rule.next_after(last, anchor).unwrap() else { break };
            prop_assert!(tick > last);
            // Asked from anywhere in between, the answer is the same.
            #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
            let between = last.plus_ms((tick.ms_since(last) as f64 * probe) as u64).min(tick.minus_ms(1));
            prop_assert_eq!(rule.next_after(between, anchor).unwrap(), Some(tick));
            prop_assert_eq!(ticks.last_before(tick.plus_ms(1), tick).unwrap(), Some(tick));
            if last > after {
                prop_assert_eq!(ticks.last_before(tick, after).unwrap(), Some(last));
            }
            last = tick;
        }
    }
}
