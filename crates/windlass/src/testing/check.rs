//! What was enqueued, and assertions on it.

use super::TestBed;
use crate::job::{Job, decode};
use std::fmt::Write;
use windlass_core::id::JobId;
use windlass_core::job::{Due, JobSpec, NewJob};

/// The most jobs that a failed assertion lists.
const LISTED_MAX: usize = 20;
/// The longest payload that it shows, in characters.
const SHOWN_MAX: usize = 120;

/// A job that was enqueued, by a client, a handler or a schedule.
#[derive(Clone, Debug)]
pub struct Sent<J> {
    /// Its id.
    pub id: JobId,
    /// The job.
    pub job: J,
    /// When it was to start.
    pub due: Due,
    /// How it was to be treated.
    pub spec: JobSpec,
}

impl TestBed {
    /// The jobs of this type that were enqueued since the test began or [`forget`](Self::forget) was called, in order,
    /// whatever has become of them. One that was turned away as a duplicate was not enqueued.
    ///
    /// # Panics
    ///
    /// When a payload of this kind is not one of this type.
    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    pub fn enqueued<J: Job>(&self) -> Vec<Sent<J>> {
        let sent = self.store.sent.lock().clone();
        let ours = sent.into_iter().filter(|job| job.spec.kind.as_str() == J::KIND);
        let decoded = ours.map(|NewJob { id, due, spec }| match decode(&spec.payload) {
            Ok(job) => Sent { id, job, due, spec },
            Err(error) => panic!("a `{}` was enqueued whose payload is not one: {error}", J::KIND),
        });
        decoded.collect()
    }

    /// Forgets what was enqueued up to now; the jobs themselves stay.
    pub fn forget(&self) {
        self.store.sent.lock().clear();
    }

    /// At least one job of this type was enqueued for which `is_it` holds.
    ///
    /// # Panics
    ///
    /// When there is none. The message lists what was enqueued instead.
    #[track_caller]
    pub fn assert_enqueued<J: Job>(&self, is_it: impl Fn(&J) -> bool) {
        let found = self.enqueued::<J>().iter().any(|sent| is_it(&sent.job));
        assert!(found, "no `{}` was enqueued that is as it should be; {}", J::KIND, self.listing());
    }

    /// Exactly so many jobs of this type were enqueued.
    ///
    /// # Panics
    ///
    /// When there are more or less. The message lists what was enqueued.
    #[track_caller]
    pub fn assert_enqueued_times<J: Job>(&self, times: usize) {
        let found = self.enqueued::<J>().len();
        assert!(found == times, "{found} of `{}` were enqueued, not {times}; {}", J::KIND, self.listing());
    }

    /// No job of this type was enqueued.
    ///
    /// # Panics
    ///
    /// When there is one. The message lists what was enqueued.
    #[track_caller]
    pub fn assert_not_enqueued<J: Job>(&self) {
        let found = self.enqueued::<J>().len();
        assert!(found == 0, "{found} of `{}` were enqueued; {}", J::KIND, self.listing());
    }

    fn listing(&self) -> String {
        let sent = self.store.sent.lock();
        if sent.is_empty() {
            return "nothing was enqueued at all".to_owned();
        }
        let mut text = "this was enqueued:".to_owned();
        for NewJob { due, spec, .. } in sent.iter().take(LISTED_MAX) {
            let payload = String::from_utf8_lossy(&spec.payload.bytes);
            let shown: String = payload.chars().take(SHOWN_MAX).collect();
            let cut = if shown.len() < payload.len() { "…" } else { "" };
            let when = match due {
                Due::Now => String::new(),
                Due::DelayMs(ms) => format!(", in {ms} ms"),
                Due::At(time) => format!(", at {time}"),
            };
            // A String takes whatever is written to it.
            let _ = write!(text, "\n  {} on {}{when}: {shown}{cut}", spec.kind, spec.queue);
        }
        if sent.len() > LISTED_MAX {
            let _ = write!(text, "\n  and {} more", sent.len() - LISTED_MAX);
        }
        text
    }
}
