//! Waiting for something outside of this process, which gives no signal.

use std::time::{Duration, Instant};

use crate::error::ServerError;

/// Short, because a test waits for it; long enough not to keep a server busy with questions.
const STEP: Duration = Duration::from_millis(10);

/// Asks until the answer is `Ok`. Its `Err` tells what is still amiss.
pub(crate) fn until<T>(
    what: &str,
    within: Duration,
    mut ask: impl FnMut() -> Result<T, String>,
) -> Result<T, ServerError> {
    let deadline = Deadline::after(within);
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(last) if deadline.is_over() => {
                return Err(ServerError::TimedOut { within, until: what.to_owned(), last });
            }
            Err(_) => pause(),
        }
    }
}

/// A point in real time: servers do not run on a test's virtual clock.
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(clippy::disallowed_methods, reason = "servers run in real time")]
    pub(crate) fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }

    #[expect(clippy::disallowed_methods, reason = "servers run in real time")]
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }
}

/// Between two questions.
#[expect(clippy::disallowed_methods, reason = "another process gives no signal")]
pub(crate) fn pause() {
    std::thread::sleep(STEP);
}
