//! The jobs of the demo: four kinds on four queues, as an application would write them.

use serde::{Deserialize, Serialize};
use windlass::Job;
use windlass::core::retry::RetryPolicy;

/// Where the demo's jobs wait. The names are its own, so that it can share a store with others.
pub(super) const QUEUES: [&str; 4] = ["demo-mail", "demo-hooks", "demo-media", "demo-billing"];

/// What the demo's jobs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Email,
    Webhook,
    Thumbnail,
    Invoice,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Email, Self::Webhook, Self::Thumbnail, Self::Invoice];

    /// Of ten jobs, two are thumbnails.
    pub(super) const THUMBNAILS: f64 = 0.2;

    /// The kind of the job with this number.
    pub(super) fn of(number: u64) -> Self {
        match number % 10 {
            0 | 4 | 6 | 8 => Self::Email,
            1 | 5 => Self::Webhook,
            2 | 7 => Self::Thumbnail,
            _ => Self::Invoice,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Email => Email::KIND,
            Self::Webhook => Webhook::KIND,
            Self::Thumbnail => Thumbnail::KIND,
            Self::Invoice => Invoice::KIND,
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// Short, because nobody watches a demo for an hour.
fn soon() -> RetryPolicy {
    RetryPolicy::Exponential { base_ms: 200, factor: 2, cap_ms: 2_000, jitter_percent: 20 }
}

/// How often a job may lose its worker: kills and freezes may meet the same job more than once.
const STALLS: u32 = 9;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "email", queue = "demo-mail", attempts = 5, stalls = STALLS, group = &self.tenant, retry = soon())]
pub(super) struct Email {
    pub(super) number: u64,
    pub(super) tenant: String,
    pub(super) to: String,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "webhook", queue = "demo-hooks", attempts = 5, stalls = STALLS, group = &self.tenant, retry = soon())]
#[job(priority = 5)]
pub(super) struct Webhook {
    pub(super) number: u64,
    pub(super) tenant: String,
    pub(super) url: String,
}

/// May hang, and therefore has a timeout. What is said when it is enqueued takes the place of this one.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "thumbnail", queue = "demo-media", attempts = 5, stalls = STALLS, group = &self.tenant, retry = soon())]
#[job(timeout = "2s", output = String)]
pub(super) struct Thumbnail {
    pub(super) number: u64,
    pub(super) tenant: String,
    pub(super) image: String,
}

/// One unfinished job per bill: a second one is turned away.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "invoice", queue = "demo-billing", attempts = 5, stalls = STALLS, group = &self.tenant, retry = soon())]
#[job(priority = -5, unique = self.bill.clone())]
pub(super) struct Invoice {
    pub(super) number: u64,
    pub(super) tenant: String,
    pub(super) bill: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_ten_jobs_are_thumbnails() {
        let thumbnails = (0..100).filter(|number| Kind::of(*number) == Kind::Thumbnail).count();
        assert!((Kind::THUMBNAILS * 100.0 - f64::from(u32::try_from(thumbnails).unwrap())).abs() < 1e-9);
    }

    #[test]
    fn every_kind_waits_on_a_queue_of_the_demo() {
        for queue in [Email::QUEUE, Webhook::QUEUE, Thumbnail::QUEUE, Invoice::QUEUE] {
            assert!(QUEUES.contains(&queue), "{queue}");
        }
    }
}
