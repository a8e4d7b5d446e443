//! Settings, time, medians, lines.

use std::path::PathBuf;
use std::time::Instant;

/// How to measure.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) quick: bool,
    pub(crate) dir: Option<PathBuf>,
}

impl Settings {
    /// `n`, or a tenth of it.
    pub(crate) fn jobs(&self, n: usize) -> usize {
        if self.quick { n / 10 } else { n }
    }

    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// A fresh folder on the file system that is to be measured.
    pub(crate) fn folder(&self) -> tempfile::TempDir {
        match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        }
        .unwrap()
    }

    /// The median of what `measure` says.
    pub(crate) fn median(&self, mut measure: impl FnMut() -> f64) -> f64 {
        let mut all: Vec<f64> = (0..self.rounds()).map(|_| measure()).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }
}

/// Seconds that `work` takes.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// `n` as a number to divide.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) fn real(n: usize) -> f64 {
    n as f64
}

/// Prints one line: the scenario, then figures rounded for people.
pub(crate) fn line(scenario: &str, store: &str, figures: &[(&str, f64)]) {
    let mut object = serde_json::Map::new();
    object.insert("scenario".into(), scenario.into());
    object.insert("store".into(), store.into());
    for (name, value) in figures {
        let rounded = if value.abs() >= 100.0 { value.round() } else { (value * 1_000.0).round() / 1_000.0 };
        object.insert((*name).into(), rounded.into());
    }
    println!("{}", serde_json::Value::Object(object));
}
