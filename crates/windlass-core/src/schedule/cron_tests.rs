use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(zone: &str, expression: &str) -> Cron {
    Cron::parse(expression, zone).unwrap()
}

/// All ticks from `from` on, before `to`, as the clock on the wall shows them.
fn ticks(zone: &str, expression: &str, from: &str, to: &str) -> Vec<String> {
    let (cron, mut after, mut shown) = (cron(zone, expression), at(from).minus_ms(1), Vec::new());
    while let Some(tick) = cron.next_after(after).filter(|tick| *tick < at(to)) {
        assert!(tick > after);
        let moment = Moment::from_millisecond(tick.as_ms()).unwrap().to_zoned(cron.zone.clone());
        shown.push(moment.strftime("%d %H:%M:%S %:z").to_string());
        after = tick;
    }
    shown
}

#[test]
fn what_is_left_out_in_spring_ticks_at_the_change_and_once() {
    let berlin =
        |expression| ticks("Europe/Berlin", expression, "2026-03-28T12:00:00+01:00", "2026-03-30T12:00:00+02:00");
    assert_eq!(berlin("30 2 * * *"), ["29 03:00:00 +02:00", "30 02:30:00 +02:00"]);
    assert_eq!(berlin("0 2 * * *"), ["29 03:00:00 +02:00", "30 02:00:00 +02:00"]);
    assert_eq!(berlin("59 59 2 * * *"), ["29 03:00:00 +02:00", "30 02:59:59 +02:00"]);
    // Several times of the hour that is left out are one moment.
    assert_eq!(berlin("0,30 2 * * *"), ["29 03:00:00 +02:00", "30 02:00:00 +02:00", "30 02:30:00 +02:00"]);
    assert_eq!(berlin("0 2,3 * * *"), ["29 03:00:00 +02:00", "30 02:00:00 +02:00", "30 03:00:00 +02:00"]);
    // On Sundays only: the change is on a Sunday.
    assert_eq!(berlin("30 2 * * SUN"), ["29 03:00:00 +02:00"]);
    assert_eq!(berlin("30 2 30 * *"), ["30 02:30:00 +02:00"]);

    let new_york =
        |expression| ticks("America/New_York", expression, "2026-03-07T12:00:00-05:00", "2026-03-09T12:00:00-04:00");
    assert_eq!(new_york("30 2 * * *"), ["08 03:00:00 -04:00", "09 02:30:00 -04:00"]);
    assert_eq!(
        new_york("30 1,2 * * *"),
        ["08 01:30:00 -05:00", "08 03:00:00 -04:00", "09 01:30:00 -04:00", "09 02:30:00 -04:00"]
    );
}

#[test]
fn what_comes_twice_in_autumn_ticks_the_first_time_only() {
    let berlin =
        |expression| ticks("Europe/Berlin", expression, "2026-10-24T12:00:00+02:00", "2026-10-26T12:00:00+01:00");
    assert_eq!(berlin("30 2 * * *"), ["25 02:30:00 +02:00", "26 02:30:00 +01:00"]);
    assert_eq!(berlin("0 2 * * *"), ["25 02:00:00 +02:00", "26 02:00:00 +01:00"]);
    assert_eq!(
        berlin("0,30 2,3 * * *"),
        [
            "25 02:00:00 +02:00",
            "25 02:30:00 +02:00",
            "25 03:00:00 +01:00",
            "25 03:30:00 +01:00",
            "26 02:00:00 +01:00",
            "26 02:30:00 +01:00",
            "26 03:00:00 +01:00",
            "26 03:30:00 +01:00",
        ]
    );
    let new_york =
        |expression| ticks("America/New_York", expression, "2026-10-31T12:00:00-04:00", "2026-11-02T12:00:00-05:00");
    assert_eq!(new_york("30 1 * * *"), ["01 01:30:00 -04:00", "02 01:30:00 -05:00"]);
    assert_eq!(new_york("0 2 * * *"), ["01 02:00:00 -05:00", "02 02:00:00 -05:00"]);
}

#[test]
fn a_look_from_within_the_second_of_two_equal_hours_finds_what_comes_after_both() {
    let twice = cron("America/New_York", "*/20 0-59 1 * * *");
    for after in ["2026-11-01T01:00:00-05:00", "2026-11-01T01:30:10-05:00", "2026-11-01T01:59:59.999-05:00"] {
        assert_eq!(twice.next_after(at(after)), Some(at("2026-11-02T01:00:00-05:00")), "{after}");
    }
    let next = cron("America/New_York", "0,10 1,2 * * *").next_after(at("2026-11-01T01:05:00-05:00"));
    assert_eq!(next, Some(at("2026-11-01T02:00:00-05:00")), "what lies just behind them is not passed over");
}

#[test]
fn what_follows_the_clock_ticks_in_both_equal_hours_and_not_in_one_that_is_left_out() {
    let berlin =
        |expression| ticks("Europe/Berlin", expression, "2026-10-25T01:00:00+02:00", "2026-10-25T04:00:00+01:00");
    let hours = ["25 01:00:00 +02:00", "25 02:00:00 +02:00", "25 02:00:00 +01:00", "25 03:00:00 +01:00"];
    assert_eq!(berlin("0 * * * *"), hours);
    assert_eq!(berlin("@hourly"), hours);
    assert_eq!(berlin("*/30 2 * * *").len(), 4);
    assert_eq!(berlin("*/10 * * * *").len(), 4 * 6);
    assert_eq!(berlin("* * * * * *").len(), 4 * 3_600);

    let new_york =
        |expression| ticks("America/New_York", expression, "2026-03-08T01:00:00-05:00", "2026-03-08T05:00:00-04:00");
    assert_eq!(new_york("30 * * * *"), ["08 01:30:00 -05:00", "08 03:30:00 -04:00", "08 04:30:00 -04:00"]);
    assert_eq!(new_york("0 */2 * * *"), ["08 04:00:00 -04:00"]);
    assert_eq!(new_york("*/30 2 * * *"), [] as [&str; 0]);
}

#[test]
fn odd_changes_of_the_clock_are_no_exception() {
    // Lord Howe changes by half an hour, Santiago at midnight, Troll by two hours.
    let lord_howe =
        ticks("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00+10:30", "2026-10-05T12:00:00+11:00");
    assert_eq!(lord_howe, ["04 02:30:00 +11:00", "05 02:15:00 +11:00"]);
    let santiago = ticks("America/Santiago", "0 0 * * *", "2026-09-05T12:00:00-04:00", "2026-09-07T12:00:00-03:00");
    assert_eq!(santiago, ["06 01:00:00 -03:00", "07 00:00:00 -03:00"]);
    let troll = ticks("Antarctica/Troll", "30 1 * * *", "2026-10-24T12:00:00+02:00", "2026-10-26T12:00:00Z");
    assert_eq!(troll, ["25 01:30:00 +02:00", "26 01:30:00 +00:00"]);
}

#[test]
fn expressions_mean_what_cron_says() {
    let first = |expression: &str| cron("UTC", expression).next_after(at("2026-01-01T00:00:00Z")).unwrap().to_string();
    for (expression, expected) in [
        ("* * * * *", "2026-01-01T00:01:00.000Z"),
        ("* * * * * *", "2026-01-01T00:00:01.000Z"),
        ("  5   4 * *  * ", "2026-01-01T04:05:00.000Z"),
        ("15 5 4 * * *", "2026-01-01T04:05:15.000Z"),
        ("0 0 1 * *", "2026-02-01T00:00:00.000Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00.000Z"),
        ("0 0 * * 0", "2026-01-04T00:00:00.000Z"),
        ("0 0 * * 7", "2026-01-04T00:00:00.000Z"),
        ("0 0 * * sun", "2026-01-04T00:00:00.000Z"),
        ("0 12 * feb-mar mon", "2026-02-02T12:00:00.000Z"),
        // Either day will do when both are named.
        ("0 0 13 * 5", "2026-01-02T00:00:00.000Z"),
        ("0 0 ? * 5", "2026-01-02T00:00:00.000Z"),
        ("0 0 L * *", "2026-01-31T00:00:00.000Z"),
        ("0 0 * * 5#2", "2026-01-09T00:00:00.000Z"),
        ("@yearly", "2027-01-01T00:00:00.000Z"),
        ("@annually", "2027-01-01T00:00:00.000Z"),
        ("@Monthly", "2026-02-01T00:00:00.000Z"),
        ("@weekly", "2026-01-04T00:00:00.000Z"),
        ("@daily", "2026-01-02T00:00:00.000Z"),
        ("@midnight", "2026-01-02T00:00:00.000Z"),
        ("@hourly", "2026-01-01T01:00:00.000Z"),
    ] {
        assert_eq!(first(expression), expected, "{expression}");
    }
}

#[test]
fn a_tick_lies_after_the_time_given_to_the_millisecond() {
    let minute = cron("UTC", "* * * * *");
    for (after, expected) in [
        ("2026-01-01T00:00:59.999Z", "2026-01-01T00:01:00Z"),
        ("2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"),
        ("2026-01-01T00:01:00.001Z", "2026-01-01T00:02:00Z"),
    ] {
        assert_eq!(minute.next_after(at(after)), Some(at(expected)), "{after}");
    }
    assert_eq!(minute.next_after(Timestamp::from_ms(i64::MIN)), Some(Timestamp::from_ms(0)));
    assert_eq!(minute.next_after(Timestamp::from_ms(i64::MAX)), None);
}

/// A day that comes once in decades is found, and one that never comes ends the search soon.
#[test]
fn rare_days_are_found_and_the_search_ends() {
    for expression in ["* * 29 2 +MON", "0 0 29 2 +MON"] {
        let rare = cron("Africa/Casablanca", expression);
        let mut after = at("2026-01-01T00:00:00Z");
        let mut days = BTreeSet::new();
        while let Some(tick) = rare.next_after(after).filter(|_| days.len() < 4) {
            let date = rare.zone.to_datetime(Moment::from_millisecond(tick.as_ms()).unwrap()).date();
            days.insert(date.to_string());
            after = tick.plus_ms(24 * 3_600_000);
        }
        assert_eq!(Vec::from_iter(days), ["2044-02-29", "2072-02-29", "2112-02-29", "2140-02-29"], "{expression}");
    }
    for expression in ["0 0 30 2 *", "* * 31 4,6,9,11 *"] {
        assert_eq!(cron("Europe/Berlin", expression).next_after(at("2026-01-01T00:00:00Z")), None);
    }
}

/// One field of a generated expression: its text, and the values that it stands for.
fn field(low: u32, high: u32) -> impl Strategy<Value = (String, BTreeSet<u32>)> {
    let all = move |step: u32| (low..=high).step_by(step as usize).collect::<BTreeSet<u32>>();
    prop_oneof![
        2 => Just(("*".to_owned(), all(1))),
        1 => (2u32..=high.div_ceil(2)).prop_map(move |step| (format!("*/{step}"), all(step))),
        2 => (low..=high).prop_map(|value| (value.to_string(), BTreeSet::from([value]))),
        2 => (low..=high, low..=high).prop_map(|(a, b)| {
            let (a, b) = (a.min(b), a.max(b));
            (format!("{a}-{b}"), (a..=b).collect())
        }),
        2 => prop::collection::btree_set(low..=high, 1..4).prop_map(|values| {
            let texts: Vec<String> = values.iter().map(u32::to_string).collect();
            (texts.join(","), values)
        }),
    ]
}

/// Vixie cron, minute by minute: what follows the clock runs whenever the clock shows its time; the rest runs as soon as
/// the clock shows its time or has passed it for the first time.
fn simulate(fields: &[(String, BTreeSet<u32>); 5], zone: &TimeZone, from: i64, minutes: i64) -> Vec<i64> {
    let has = |i: usize, value: i8| fields[i].1.contains(&u32::try_from(value).unwrap());
    let matches = |time: DateTime| {
        let (dom, dow) = (has(2, time.day()), has(4, time.weekday().to_sunday_zero_offset()));
        let day = if fields[2].0 == "*" || fields[4].0 == "*" { dom && dow } else { dom || dow };
        has(0, time.minute()) && has(1, time.hour()) && has(3, time.month()) && day
    };
    let wild = fields[0].0.starts_with('*') || fields[1].0.starts_with('*');
    let clock = |minute: i64| zone.to_datetime(Moment::from_second((from + minute) * 60).unwrap());
    let (mut latest, mut found) = (clock(-1), Vec::new());
    for minute in 0..minutes {
        let shown = clock(minute);
        let mut runs = wild && matches(shown);
        while latest < shown {
            latest = latest.saturating_add(SignedDuration::from_mins(1));
            runs |= !wild && matches(latest);
        }
        if runs {
            found.push((from + minute) * 60_000);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_ticks_are_those_of_vixie_cron(
        minute in field(0, 59), hour in field(0, 23), dom in field(1, 31), month in field(1, 12), dow in field(0, 6),
        place in prop::sample::select(vec![
            ("Europe/Berlin", "2026-03-29T01:00:00Z"), ("Europe/Berlin", "2026-10-25T01:00:00Z"),
            ("America/New_York", "2026-03-08T07:00:00Z"), ("America/New_York", "2026-11-01T06:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"), ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
            ("America/Santiago", "2026-09-06T04:00:00Z"), ("America/Santiago", "2026-04-05T03:00:00Z"),
            ("Antarctica/Troll", "2026-03-29T01:00:00Z"), ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
            ("Africa/Casablanca", "2026-02-15T02:00:00Z"), ("Asia/Kathmandu", "2026-05-31T12:00:00Z"),
        ]),
        offset in -40i64..=0, near in prop::bool::weighted(0.5),
    ) {
        // Half of the time all hours and days are open, or few ticks would fall on the change.
        let (dom, month) = if near { field_all() } else { (dom, month) };
        let fields = [minute, hour, dom, month, dow];
        let expression = fields.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(" ");
        let cron = cron(place.0, &expression);
        let from = at(place.1).minute() + offset * 60;
        let expected = simulate(&fields, &cron.zone, from, 2_880);
        let mut after = Timestamp::from_ms(from * 60_000 - 1);
        let mut found = Vec::new();
        // The simulation knows nothing of the time before it began.
        while let Some(tick) = cron.next_after(after).filter(|tick| tick.minute() < from + 2_880) {
            found.push(tick.as_ms());
            after = tick;
        }
        prop_assert_eq!(&found, &expected, "{}", expression);
        // Asked from any minute, the next tick is the same.
        for minute in (from..from + 2_880).step_by(37) {
            let next = cron.next_after(Timestamp::from_ms(minute * 60_000)).map(Timestamp::as_ms);
            let expected = expected.iter().copied().find(|tick| *tick > minute * 60_000);
            prop_assert!(expected.is_none() || expected == next, "{} after {}: {:?} {:?}", expression, minute, next, expected);
        }
    }

    #[test]
    fn no_text_panics(text in "[0-9*/,\\-?LW#+@A-Za-zé \\t]{0,40}", zone in "[A-Za-z/_+\\-0-9.]{0,20}") {
        if let Ok(cron) = Cron::parse(&text, "Europe/Berlin") {
            let _ = cron.next_after(at("2026-01-01T00:00:00Z"));
        }
        let _ = Cron::parse("* * * * *", &zone);
    }

    #[test]
    fn no_fields_panic(fields in prop::collection::vec("[0-9*/,\\-?LW#+]{1,6}", 5..=6)) {
        if let Ok(cron) = Cron::parse(&fields.join(" "), "America/New_York") {
            let mut after = at("2026-10-31T00:00:00Z");
            for _ in 0..5 {
                let Some(tick) = cron.next_after(after) else { break };
                prop_assert!(tick > after);
                after = tick;
            }
        }
    }
}

fn field_all() -> ((String, BTreeSet<u32>), (String, BTreeSet<u32>)) {
    (("*".to_owned(), (1..=31).collect()), ("*".to_owned(), (1..=12).collect()))
}
