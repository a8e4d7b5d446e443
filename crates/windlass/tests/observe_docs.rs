//! What `docs/observability.md` says about metrics is what the code says, both ways.

#![allow(clippy::unwrap_used, reason = "a failed check is a panic")]

use std::collections::BTreeMap;
use windlass::observe::names::{ALL, MetricType};

const GUIDE: &str = include_str!("../../../docs/observability.md");

/// Type, labels and meaning of each metric, by name.
type Table = BTreeMap<String, (String, Vec<String>, String)>;

fn of_the_guide() -> Table {
    let rows = GUIDE.lines().filter(|line| line.starts_with("| `windlass_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let labels = cells[2].split(", ").filter(|label| !label.is_empty()).map(bare).collect();
        (bare(cells[0]), (cells[1].to_owned(), labels, cells[3].to_owned()))
    })
    .collect()
}

fn bare(text: &str) -> String {
    text.trim_matches('`').to_owned()
}

fn of_the_code() -> Table {
    let kind = |kind| match kind {
        MetricType::Counter => "counter",
        MetricType::Gauge => "gauge",
        MetricType::Histogram => "histogram",
    };
    let row = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
    ALL.iter().map(|m| (m.name.to_owned(), (kind(m.kind).to_owned(), row(m.labels), m.help.to_owned()))).collect()
}

#[test]
fn the_guide_and_the_code_name_the_same_metrics() {
    let (guide, code) = (of_the_guide(), of_the_code());
    assert!(guide.len() > 10, "the table was not found");
    for (name, row) in &code {
        assert_eq!(guide.get(name), Some(row), "{name} in the guide");
    }
    for name in guide.keys() {
        assert!(code.contains_key(name), "{name} is in the guide only");
    }
}

/// Every metric that the guide speaks of elsewhere, as in its alerts, exists.
#[test]
fn the_guide_speaks_of_no_other_metric() {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    for name in GUIDE.split(word).filter(|text| text.starts_with("windlass_")) {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(ALL.iter().any(|metric| metric.name == name), "{name}");
    }
}
