//! Time zones by name.

use crate::error::{Error, Result};
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The longest name of a zone.
const ZONE_BYTES_MAX: usize = 64;
/// So many letters may be wrong for a name to be suggested.
const WRONG_LETTERS_MAX: usize = 3;

/// Finds a zone. The machine's own data comes first, because its owner keeps it up to date when a country changes its
/// clocks; what is built in serves machines that have none.
pub(super) fn find(name: &str) -> Result<TimeZone> {
    find_in(jiff::tz::db(), name)
}

fn find_in(machine: &TimeZoneDatabase, name: &str) -> Result<TimeZone> {
    if name.len() > ZONE_BYTES_MAX {
        return Err(Error::limit("rule.zone, in bytes,", ZONE_BYTES_MAX as u64, name.len() as u64));
    }
    let found = machine.get(name).or_else(|_| TimeZoneDatabase::bundled().get(name));
    // `Etc/Unknown` exists and stands for no zone at all.
    found.ok().filter(|zone| !zone.is_unknown()).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    let shown: String = name.escape_debug().collect();
    let advice = match suggest(name) {
        Some(near) => format!("did you mean {near}?"),
        None => "use an IANA name such as Europe/Berlin or UTC".to_owned(),
    };
    Error::invalid("rule.zone", format!("there is no time zone `{shown}`; {advice}"))
}

/// The name that was probably meant: that of the city, or else the one that takes the fewest changes.
fn suggest(name: &str) -> Option<String> {
    let wanted = name.trim().replace(' ', "_").to_ascii_lowercase();
    // An offset, not a name. Nobody should be led to Etc/GMT+2 and its like, whose signs are the other way round.
    let is_number = |c: char| c.is_ascii_digit();
    if wanted.contains(is_number) {
        return None;
    }
    let zones = TimeZoneDatabase::bundled();
    let names = zones.available().map(|zone| zone.to_string()).filter(|zone| !zone.contains(is_number));
    let near = names.filter_map(|zone| {
        let lower = zone.to_ascii_lowercase();
        let city = lower.rsplit('/').next().unwrap_or(&lower);
        let wrong = distance(&wanted, &lower).min(distance(&wanted, city).saturating_add(usize::from(city != wanted)));
        (wrong <= WRONG_LETTERS_MAX && wrong.saturating_mul(2) < wanted.len()).then_some((wrong, zone))
    });
    near.min().map(|(_, zone)| zone)
}

/// How many letters must be changed, added or left out to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.bytes().enumerate() {
        let (mut diagonal, mut left) = (i, i + 1);
        let mut cells = row.iter_mut();
        if let Some(first) = cells.next() {
            *first = left;
        }
        for (cell, other) in cells.zip(b.bytes()) {
            let best = (diagonal + usize::from(letter != other)).min(left + 1).min(*cell + 1);
            diagonal = *cell;
            (*cell, left) = (best, best);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_on_a_machine_without_files() {
        for name in ["Europe/Berlin", "America/New_York", "UTC", "asia/kolkata"] {
            find_in(&TimeZoneDatabase::none(), name).unwrap();
            find(name).unwrap();
        }
    }

    #[test]
    fn an_unknown_zone_is_refused_with_a_suggestion() {
        let cases = [
            ("Europe/Berln", Some("Europe/Berlin")),
            ("Berlin", Some("Europe/Berlin")),
            ("new york", Some("America/New_York")),
            ("America/NewYork", Some("America/New_York")),
            ("Mars/Olympus", None),
            ("GMT+2", None),
            ("", None),
            ("../../etc/passwd", None),
            ("/etc/localtime", None),
            ("Etc/Unknown", None),
            ("Europe/Berlin\0", Some("Europe/Berlin")),
            ("é", None),
        ];
        for (name, near) in cases {
            let Err(Error::Invalid { field, reason }) = find(name) else { panic!("{name:?} was found") };
            assert_eq!(field, "rule.zone");
            assert!(!reason.contains('\0'));
            match near {
                Some(near) => assert!(reason.ends_with(&format!("did you mean {near}?")), "{name:?}: {reason}"),
                None => {
                    assert!(reason.ends_with("use an IANA name such as Europe/Berlin or UTC"), "{name:?}: {reason}");
                }
            }
        }
        let long = "x".repeat(10_000);
        assert_eq!(find(&long).unwrap_err(), Error::limit("rule.zone, in bytes,", 64, 10_000));
    }

    #[test]
    fn the_distance_counts_changed_added_and_missing_letters() {
        for (a, b, wrong) in [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("abc", "abc", 0)]
        {
            assert_eq!(distance(a, b), wrong, "{a} {b}");
        }
    }
}
