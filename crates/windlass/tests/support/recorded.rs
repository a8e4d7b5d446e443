//! Runs a future under a recorder of its own, and tells what was recorded.

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use std::collections::{BTreeMap, BTreeSet};
use windlass::observe::names::MetricType;

/// What was recorded, by `name{label=value,…}` with sorted labels.
pub(crate) struct Recorded(BTreeMap<String, (MetricType, BTreeSet<String>, DebugValue)>);

/// On a clock that moves when all is idle.
pub(crate) fn record(future: impl Future<Output = ()>) -> Recorded {
    record_with(tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true), future)
}

pub(crate) fn record_in_real_time(future: impl Future<Output = ()>) -> Recorded {
    record_with(tokio::runtime::Builder::new_current_thread().enable_all(), future)
}

fn record_with(runtime: &mut tokio::runtime::Builder, future: impl Future<Output = ()>) -> Recorded {
    let recorder = DebuggingRecorder::new();
    let runtime = runtime.build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(future));
    let mut found = BTreeMap::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        let kind = match key.kind() {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        let mut labels: Vec<(String, String)> =
            key.key().labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
        labels.sort();
        let texts: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let name = match texts.is_empty() {
            true => key.key().name().to_owned(),
            false => format!("{}{{{}}}", key.key().name(), texts.join(",")),
        };
        // Handles are made for all counters of a kind at once; one that never moved tells nothing.
        if !matches!(value, DebugValue::Counter(0)) {
            found.insert(name, (kind, labels.into_iter().map(|(key, _)| key).collect(), value));
        }
    }
    Recorded(found)
}

impl Recorded {
    fn value(&self, name: &str) -> Option<&DebugValue> {
        self.0.get(name).map(|(.., value)| value)
    }

    /// The value of a counter, 0 when it is not there.
    pub(crate) fn get(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(DebugValue::Counter(count)) => *count,
            Some(other) => panic!("{name} is {other:?}"),
            None => 0,
        }
    }

    #[track_caller]
    pub(crate) fn counter(&self, name: &str, expected: u64) {
        assert_eq!(self.get(name), expected, "{name} among {:#?}", self.0.keys());
    }

    #[track_caller]
    pub(crate) fn gauge(&self, name: &str, expected: f64) {
        match self.value(name) {
            Some(DebugValue::Gauge(value)) => assert!((value.0 - expected).abs() < 1e-9, "{name} is {value}"),
            other => panic!("{name} is {other:?} among {:#?}", self.0.keys()),
        }
    }

    #[track_caller]
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        match self.value(name) {
            Some(DebugValue::Histogram(values)) => values.iter().map(|value| value.0).collect(),
            other => panic!("{name} is {other:?} among {:#?}", self.0.keys()),
        }
    }

    #[track_caller]
    pub(crate) fn histogram(&self, name: &str, expected: &[f64]) {
        let mut values = self.values(name);
        values.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(values, expected, "{name}");
    }

    #[track_caller]
    pub(crate) fn count_of(&self, name: &str, expected: usize) {
        assert_eq!(self.values(name).len(), expected, "{name}");
    }

    #[track_caller]
    pub(crate) fn nothing_of(&self, prefix: &str) {
        let found: Vec<_> = self.0.keys().filter(|name| name.starts_with(prefix)).collect();
        assert!(found.is_empty(), "{found:?}");
    }

    /// The types and label names under which a metric was recorded.
    pub(crate) fn labels_of(&self, metric: &str) -> Vec<(MetricType, BTreeSet<String>)> {
        let of = |name: &str| name.split('{').next() == Some(metric);
        self.0.iter().filter(|(name, _)| of(name)).map(|(_, (kind, labels, _))| (*kind, labels.clone())).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.keys().filter_map(|name| name.split('{').next()).map(str::to_owned).collect()
    }
}
