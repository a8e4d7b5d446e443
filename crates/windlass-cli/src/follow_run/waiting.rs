//! What a run waits for when nothing happens.

use super::Follower;
use crate::commands::explain::sentence;
use crate::failure::Failure;
use crate::values::clean;
use std::collections::BTreeMap;
use windlass::core::store::{Explanation, Reason};
use windlass::core::time::{Clock, SystemClock, Timestamp};

/// Nothing happens for so long before it is told what is waited for.
const LONG_MS: u64 = 5_000;
/// Jobs that are asked after.
const JOBS_MAX: usize = 32;
/// Nodes that are named.
const NAMES_MAX: usize = 3;

/// Since when nothing happens, and why, as far as that was said.
pub(super) struct Waiting {
    since: Timestamp,
    said: Vec<Reason>,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { since: SystemClock.now(), said: Vec::new() }
    }

    /// Something happened.
    pub(super) fn is_over(&mut self) {
        self.since = SystemClock.now();
    }

    pub(super) fn is_long(&self) -> bool {
        SystemClock.now().ms_since(self.since) >= LONG_MS
    }
}

/// Whether this is about workers, and not about the job or its time.
fn is_told(reason: &Reason) -> bool {
    use Reason as R;
    !matches!(
        reason,
        R::Running { .. } | R::Ended { .. } | R::Cancelling { .. } | R::BackingOff { .. } | R::Delayed { .. } | R::Due
    )
}

impl Follower<'_> {
    /// Says for what jobs wait, unless that was said.
    pub(super) async fn say_what_waits(&mut self) -> Result<(), Failure> {
        // Asked again when as much time is over.
        self.waiting.is_over();
        let mut found: Vec<(Explanation, BTreeMap<usize, String>)> = Vec::new();
        for (node, instance, job) in self.running().into_iter().take(JOBS_MAX) {
            let explained = self.ask(async || match self.store.explain(job).await {
                Err(windlass::Error::NotFound { .. }) => Ok(None),
                explained => explained.map(Some),
            });
            let Some(explanation) = explained.await?.filter(|explanation| is_told(&explanation.reason)) else {
                continue;
            };
            let label = self.label(node, instance);
            match found.iter_mut().find(|(other, _)| other.reason == explanation.reason) {
                Some((_, labels)) => drop(labels.insert(node, label)),
                None => found.push((explanation, BTreeMap::from([(node, label)]))),
            }
        }
        let now = self.ask(async || self.store.now().await).await?;
        for (explanation, labels) in &found {
            if !self.waiting.said.contains(&explanation.reason) {
                self.ui.note(format_args!("note: {}: {}", names(labels), clean(&sentence(explanation, now))));
            }
        }
        self.waiting.said = found.into_iter().map(|(explanation, _)| explanation.reason).collect();
        Ok(())
    }
}

fn names(labels: &BTreeMap<usize, String>) -> String {
    let some: Vec<&str> = labels.values().take(NAMES_MAX).map(String::as_str).collect();
    let (some, more) = (some.join(", "), labels.len().saturating_sub(NAMES_MAX));
    let wait = if labels.len() == 1 { "waits" } else { "wait" };
    if more == 0 { format!("{some} {wait}") } else { format!("{some} and {more} more {wait}") }
}
