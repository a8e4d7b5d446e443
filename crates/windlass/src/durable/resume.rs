//! Resumes runs that became stuck under another build, when an engine starts.
//!
//! The reason of a stuck run names the build under which it became stuck. A run that is stuck under the build of this engine is left
//! alone: the same code would find it stuck again. All others are opened, each once for every time that it became stuck, however many
//! workers start: the message has an id, and the store drops repeats.
//!
//! Runs are read page by page, with a pause after each, beside the work of the engine. A store that is unavailable is waited for.

use super::message::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::Result;
use windlass_core::name::Kind;
use windlass_core::store::{RUN_TEXT_BYTES_MAX, Run, RunList, RunMessage, RunState, Store};

/// The most runs that are resumed at once.
const PAGE: u32 = 500;
/// The shortest pause after each page.
const PAGE_PAUSE_MIN: Duration = Duration::from_millis(100);
/// The pause is at least so many times as long as the store took for the page: a fleet that starts must not keep a store busy that has
/// many runs.
const PAGE_PAUSE_FACTOR: u32 = 20;
/// The pauses before the passes over all runs. During a deploy a worker of the old build may take what the first pass resumes.
const PASSES: [Duration; 2] = [Duration::ZERO, Duration::from_secs(300)];
/// The pause after a call for which the store was not available.
const STORE_PAUSE: Duration = Duration::from_secs(2);
/// The most bytes of the name of a build that are compared.
const BUILD_BYTES_MAX: usize = 100;

/// The end of the reason of a run that became stuck under this build.
fn suffix(build: &str) -> String {
    let build = &build[..build.floor_char_boundary(BUILD_BYTES_MAX)];
    let build: String = build.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("\nstuck under build {build}")
}

/// The reason for which a run is stuck, with the build under which it became stuck. A long reason is cut off.
pub(crate) fn stuck_under(build: &str, why: &str) -> String {
    let suffix = suffix(build);
    let why = &why[..why.floor_char_boundary(RUN_TEXT_BYTES_MAX - suffix.len())];
    format!("{why}{suffix}")
}

/// Resumes the runs of these kinds that are stuck under another build.
pub(crate) struct Resumer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) build: Arc<str>,
}

impl Resumer {
    pub(crate) async fn run(self) {
        for pause in PASSES {
            tokio::time::sleep(pause).await;
            if let Err(error) = self.pass().await {
                tracing::warn!(%error, "runs that are stuck under another build could not be resumed; each is tried again by itself");
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the time that the store takes, by the clock of the runtime")]
    async fn pass(&self) -> Result<()> {
        let mut list = RunList { state: Some(RunState::Running), stuck: Some(true), ..RunList::new(PAGE) };
        let mut resumed = 0;
        loop {
            let begun = Instant::now();
            let page = self.until_available(|| self.store.list_runs(list.clone())).await?;
            let pause = (begun.elapsed() * PAGE_PAUSE_FACTOR).max(PAGE_PAUSE_MIN);
            let messages: Vec<RunMessage> = page.runs.iter().filter_map(|run| self.message(run)).collect();
            if !messages.is_empty() {
                let answers = self.until_available(|| self.store.send_to_runs(messages.clone())).await?;
                // A run may have ended or be gone.
                resumed += answers.iter().filter(|answer| answer.is_ok()).count();
            }
            list.cursor = page.cursor;
            if list.cursor.is_none() {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        if resumed > 0 {
            tracing::info!(resumed, build = %self.build, "runs that were stuck under another build are resumed");
        }
        Ok(())
    }

    /// The message that resumes the run; `None` if it is of another kind or stuck under this build.
    fn message(&self, run: &Run) -> Option<RunMessage> {
        let stuck = run.stuck.as_ref()?;
        if !self.kinds.contains(&run.kind) || stuck.ends_with(&suffix(&self.build)) {
            return None;
        }
        let id = format!("resume {} {}", run.changed_at.as_ms(), suffix(&self.build).trim_start());
        Some(RunMessage { id: Some(id), ..Message::Resume { cap: None }.to(run.id) })
    }

    /// Repeats a call until the store is available.
    async fn until_available<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        loop {
            match call().await {
                Err(error) if error.is_retryable() => tokio::time::sleep(STORE_PAUSE).await,
                answer => return answer,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_its_build_and_fits_however_long_both_are() {
        let reason = stuck_under("b1", "the code panicked");
        assert_eq!(reason, "the code panicked\nstuck under build b1");
        assert!(!reason.ends_with(&suffix("1")) && !reason.ends_with(&suffix("b2")));
        let (build, why) = ("é".repeat(300), "ü".repeat(5_000));
        let reason = stuck_under(&build, &why);
        assert!(reason.len() <= RUN_TEXT_BYTES_MAX && reason.ends_with(&suffix(&build)));
        assert!(stuck_under("a\nb", "x").ends_with("build a b"));
    }
}
