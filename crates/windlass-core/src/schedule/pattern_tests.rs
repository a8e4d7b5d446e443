use super::*;
use proptest::prelude::*;
use std::str::FromStr;

/// `None` when the expression is refused.
fn own(fields: &[String; 6], from: DateTime) -> Option<Option<DateTime>> {
    Some(Pattern::parse(fields.each_ref().map(String::as_str)).ok()?.first_from(from))
}

/// What croner, a cron library in wide use, finds.
fn reference(fields: &[String; 6], from: DateTime) -> Option<Option<DateTime>> {
    let cron = croner::Cron::from_str(&format!("{} 1970-2200", fields.join(" "))).ok()?;
    Some(cron.find_next_occurrence(&from, true).ok())
}

fn same_as_the_reference(fields: &[String; 6], mut from: DateTime) -> Result<(), TestCaseError> {
    for _ in 0..5 {
        let found = own(fields, from);
        prop_assert_eq!(found, reference(fields, from), "{:?} from {}", fields, from);
        let Some(Some(time)) = found else { break };
        from = time.saturating_add(jiff::SignedDuration::from_secs(1));
    }
    Ok(())
}

/// Items as people write them.
fn item(low: u8, high: u8) -> impl Strategy<Value = String> {
    let range = (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    prop_oneof![
        3 => (low..=high).prop_map(|number| number.to_string()),
        2 => range.clone(),
        1 => (range, 1..40u8).prop_map(|(range, step)| format!("{range}/{step}")),
        1 => (1..40u8).prop_map(|step| format!("*/{step}")),
    ]
}

fn list(item: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop_oneof![1 => Just("*".to_owned()), 3 => prop::collection::vec(item, 1..3).prop_map(|items| items.join(","))]
}

fn days() -> impl Strategy<Value = String> {
    let special =
        prop_oneof![Just("L".to_owned()), Just("LW".to_owned()), (1..=31u8).prop_map(|day| format!("{day}W"))];
    prop_oneof![Just("?".to_owned()), list(item(1, 31)), list(special), list(item(1, 31))]
}

fn weekdays() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec!["sun", "Mon", "TUE", "wed", "thu", "fri", "sat", "FRI-SUN", "sun-tue"]);
    let nth = (item(0, 6), prop::sample::select(vec!["#1", "#2", "#3", "#4", "#5", "#L"]));
    let special = prop_oneof![
        nth.prop_map(|(item, nth)| item + nth),
        (0..=6u8).prop_map(|day| format!("{day}L")),
        names.prop_map(str::to_owned)
    ];
    let field = prop_oneof![Just("?".to_owned()), list(item(0, 7)), list(special)];
    (prop::bool::weighted(0.3), field).prop_map(|(both, field)| if both { format!("+{field}") } else { field })
}

fn time() -> impl Strategy<Value = DateTime> {
    (1960..=2205i16, 1..=12i8, 1..=28i8, 0..=23i8, 0..=59i8, 0..=59i8).prop_map(
        |(year, month, day, hour, minute, second)| jiff::civil::datetime(year, month, day, hour, minute, second, 0),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_times_are_those_of_the_reference(
        second in list(item(0, 59)), minute in list(item(0, 59)), hour in list(item(0, 23)), day in days(),
        month in list(item(1, 12)), weekday in weekdays(), from in time(),
    ) {
        same_as_the_reference(&[second, minute, hour, day, month, weekday], from)?;
    }

    /// The two differ where the reference reads over what nobody can have meant: `7L`, and signs behind a `#`.
    #[test]
    fn what_the_reference_refuses_is_refused(
        day in "[0-9*/,\\-?LW#+]{1,5}|[0-9]{1,2}W?L?", month in "[0-9*/,\\-]{1,4}|[a-zA-Z]{3}|jan-[a-z]{3}",
        weekday in "[+]?[0-6*/,\\-?LW#]{1,5}|[+]?[0-6][#L][0-6L]", from in time(),
    ) {
        let odd = |item: &str| item.split_once('#').is_some_and(|(_, nth)| nth.contains(['/', '-']));
        prop_assume!(!weekday.split(',').any(odd));
        same_as_the_reference(&["0".to_owned(), "0".to_owned(), "0".to_owned(), day, month, weekday], from)?;
    }
}

#[test]
fn the_last_sunday_of_a_month_is_written_with_0_or_7() {
    let first = |weekday: &str| {
        let fields = ["0", "0", "0", "*", "*", weekday].map(str::to_owned);
        own(&fields, jiff::civil::date(2026, 1, 1).at(0, 0, 0, 0)).flatten().map(|time| time.to_string())
    };
    for weekday in ["0L", "7L", "sunL", "7#L", "0#4"] {
        assert_eq!(first(weekday).as_deref(), Some("2026-01-25T00:00:00"), "{weekday}");
    }
}
