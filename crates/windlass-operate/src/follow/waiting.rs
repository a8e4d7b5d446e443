//! What a run waits for when nothing happens to it.

use super::{FollowOutput, Follower, RunUpdate};
use crate::error::OperateError;
use crate::explain::sentence;
use crate::run_view::node_label;
use crate::text::printable;
use std::collections::BTreeMap;
use windlass::core::store::{Explanation, Reason};
use windlass::core::time::{Clock, SystemClock, Timestamp};

/// The time without an update after which the reasons for waiting are reported.
const LONG_MS: u64 = 5_000;
/// Open jobs whose reasons are read.
const JOBS_MAX: usize = 32;
/// Nodes that are named in one report.
const NAMES_MAX: usize = 3;

/// Since when there was no update, and the reasons that were reported last.
pub(super) struct Waiting {
    since: Timestamp,
    reported: Vec<Reason>,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { since: SystemClock.now(), reported: Vec::new() }
    }

    /// Begins the time anew: there was an update.
    pub(super) fn restart(&mut self) {
        self.since = SystemClock.now();
    }

    /// Whether it is time to report.
    pub(super) fn is_long(&self) -> bool {
        SystemClock.now().ms_since(self.since) >= LONG_MS
    }
}

/// Whether the reason is about workers and limits, and not about the job or its time.
fn is_reported(reason: &Reason) -> bool {
    use Reason as R;
    !matches!(
        reason,
        R::Running { .. } | R::Ended { .. } | R::Cancelling { .. } | R::BackingOff { .. } | R::Delayed { .. } | R::Due
    )
}

impl<O: FollowOutput> Follower<'_, O> {
    /// Reports why jobs wait. A reason that was reported last time is left out.
    pub(super) async fn report_waits(&mut self) -> Result<(), OperateError> {
        // The next report comes after as much time.
        self.waiting.restart();
        let mut found: Vec<(Explanation, BTreeMap<usize, String>)> = Vec::new();
        for (node, instance, job) in self.open_jobs().into_iter().take(JOBS_MAX) {
            let explained = self.call(async || match self.store.explain(job).await {
                Err(windlass::Error::NotFound { .. }) => Ok(None),
                explained => explained.map(Some),
            });
            let Some(explanation) = explained.await?.filter(|explanation| is_reported(&explanation.reason)) else {
                continue;
            };
            let label = node_label(&self.status, node, instance);
            match found.iter_mut().find(|(other, _)| other.reason == explanation.reason) {
                Some((_, labels)) => drop(labels.insert(node, label)),
                None => found.push((explanation, BTreeMap::from([(node, label)]))),
            }
        }
        let now = self.call(async || self.store.now().await).await?;
        for (explanation, labels) in &found {
            if !self.waiting.reported.contains(&explanation.reason) {
                let text = format!("{}: {}", names(labels), printable(&sentence(explanation, now)));
                self.output.update(RunUpdate::Waits { text })?;
            }
        }
        self.waiting.reported = found.into_iter().map(|(explanation, _)| explanation.reason).collect();
        Ok(())
    }
}

fn names(labels: &BTreeMap<usize, String>) -> String {
    let some: Vec<&str> = labels.values().take(NAMES_MAX).map(String::as_str).collect();
    let (some, more) = (some.join(", "), labels.len().saturating_sub(NAMES_MAX));
    let wait = if labels.len() == 1 { "waits" } else { "wait" };
    if more == 0 { format!("{some} {wait}") } else { format!("{some} and {more} more {wait}") }
}
