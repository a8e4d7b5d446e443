//! One form for the results: names and figures, in an order that people like to read.

use crate::meter::Spending;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Counted.
    Count(u64),
    /// Measured; rounded, because its last digits say nothing.
    Real(f64),
    /// Measured at several sizes.
    Reals(Vec<f64>),
    /// The sizes.
    Counts(Vec<u64>),
    /// Said.
    Text(String),
}

impl Figure {
    /// For people.
    pub fn text(&self) -> String {
        match self {
            Self::Count(n) => grouped(&n.to_string()),
            Self::Real(x) => number(*x),
            Self::Reals(all) => all.iter().map(|x| number(*x)).collect::<Vec<_>>().join(" "),
            Self::Counts(all) => all.iter().map(|n| grouped(&n.to_string())).collect::<Vec<_>>().join(" "),
            Self::Text(text) => text.clone(),
        }
    }
}

impl From<u64> for Figure {
    fn from(n: u64) -> Self {
        Self::Count(n)
    }
}

impl From<u32> for Figure {
    fn from(n: u32) -> Self {
        Self::Count(n.into())
    }
}

impl From<usize> for Figure {
    fn from(n: usize) -> Self {
        Self::Count(n as u64)
    }
}

impl From<f64> for Figure {
    fn from(x: f64) -> Self {
        Self::Real(x)
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(n) => serializer.serialize_u64(*n),
            Self::Real(x) => serializer.serialize_f64(rounded(*x)),
            Self::Reals(all) => serializer.collect_seq(all.iter().map(|x| rounded(*x))),
            Self::Counts(all) => serializer.collect_seq(all),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// To the digits that say something: four of a small number, none after the point of a large one.
fn rounded(x: f64) -> f64 {
    let scale = match x.abs() {
        1_000.0.. => 1.0,
        1.0.. => 1e3,
        0.001.. => 1e5,
        _ => 1e8,
    };
    (x * scale).round() / scale
}

fn number(x: f64) -> String {
    grouped(&rounded(x).to_string())
}

/// Commas between the thousands.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// What one scenario has found out.
#[derive(Clone, Debug, PartialEq)]
pub struct Line(Vec<(&'static str, Figure)>);

impl Line {
    /// A scenario on a store.
    pub fn new(scenario: &str, store: &str) -> Self {
        Self(vec![("scenario", scenario.into()), ("store", store.into())])
    }

    /// With one more figure.
    #[must_use]
    pub fn with(mut self, name: &'static str, figure: impl Into<Figure>) -> Self {
        self.0.push((name, figure.into()));
        self
    }

    /// With jobs per second, ours and the floor's, and the ratio of the two: 1 is the floor itself.
    #[must_use]
    pub fn beside(self, ours: f64, floor: f64) -> Self {
        self.with("jobs_per_s", ours).with("floor_per_s", floor).with("ratio", ours / floor)
    }

    /// With what the server has spent, where there is one.
    #[must_use]
    pub fn spending(self, spending: &Spending) -> Self {
        spending.onto(self)
    }

    /// Names and figures.
    pub fn figures(&self) -> &[(&'static str, Figure)] {
        &self.0
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, figure) in &self.0 {
            map.serialize_entry(name, figure)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_thousands() {
        let read = [1.0, 999.5, 1_000.4, -123_456.0, 1_234_567.0].map(|x| Figure::Real(x).text());
        assert_eq!(read, ["1", "999.5", "1,000", "-123,456", "1,234,567"]);
    }

    #[test]
    fn a_line_is_json_in_its_own_order() {
        let line = Line::new("drain", "memory").with("jobs", 10_u32).beside(123_456.7, 493_826.8);
        let text = serde_json::to_string(&line).unwrap();
        let wanted = r#"{"scenario":"drain","store":"memory","jobs":10,"jobs_per_s":123457.0,"floor_per_s":493827.0,"ratio":0.25}"#;
        assert_eq!(text, wanted);
    }
}
