//! When to look again.

use std::time::Duration;
use windlass_core::Result;
use windlass_core::name::WorkerId;
use windlass_core::random::Random;
use windlass_core::store::{FeedCursor, FeedRequest, MaintenanceClaim, Store, Sweep, SweepKind, WaitFor};
use windlass_core::time::Timestamp;

/// Items of one step.
pub(super) const STEP_MAX: u32 = 1_000;
/// However soon something is due, there is a pause between two looks.
const SHORTEST: Duration = Duration::from_millis(20);
/// For how long the timekeeper holds its hint without a renewal. When it dies, its deputy takes over after at most this
/// long and sweeps at once; with [`LEASES_LATE`](super::LEASES_LATE) it bounds how late a lease is reaped.
const KEEPER_MS: u64 = 1_500;
/// How often the timekeeper renews its hint.
const KEEPER_RENEWS: Duration = Duration::from_millis(KEEPER_MS / 2);
/// How long a loop that follows the feed goes without a look.
const FOLLOWING: Duration = Duration::from_secs(3_600);

/// How long a loop rests: `first` after it has found something, then twice as long each time, up to `longest`. A
/// quarter of it is left to chance, so that processes that were started together do not look together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Pace {
    fn next(self, rest: Duration, found: bool) -> Duration {
        if found { self.first } else { (rest * 2).min(self.longest) }
    }
}

/// What a look has found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) any: bool,
    pub(super) more: bool,
    pub(super) next_at: Option<Timestamp>,
}

/// What all loops need.
pub(super) struct Rounds<'m> {
    pub(super) store: &'m dyn Store,
    pub(super) random: &'m dyn Random,
    pub(super) follow: bool,
}

impl Rounds<'_> {
    /// Looks again and again.
    pub(super) async fn repeat<F: Future<Output = Result<Found>>>(
        &self,
        what: &'static str,
        pace: Pace,
        look: impl Fn() -> F,
    ) {
        let (mut rest, mut failing) = (pace.first, false);
        loop {
            let seen = self.feed_end().await;
            let found = look().await;
            let failed = found.is_err();
            match &found {
                // Once is enough: the worker beside it says the same.
                Err(error) if !failing => tracing::warn!(what, %error, "maintenance failed; it is tried again"),
                Ok(_) if failing => tracing::info!(what, "maintenance works again"),
                Ok(_) | Err(_) => {}
            }
            failing = failed;
            let found = found.unwrap_or_default();
            if found.more {
                // A store in memory answers at once; others want to run, too.
                tokio::task::yield_now().await;
            } else {
                rest = pace.next(rest, found.any);
                self.pause(rest, found.next_at, seen.filter(|_| !failed)).await;
            }
        }
    }

    pub(super) async fn sweep(&self, kind: SweepKind) -> Result<Found> {
        let swept = self.store.sweep(Sweep { kind, max: STEP_MAX }).await?;
        Ok(Found { any: swept.handled > 0, more: swept.more, next_at: swept.next_at })
    }

    async fn pause(&self, rest: Duration, next_at: Option<Timestamp>, seen: Option<FeedCursor>) {
        let longest = if seen.is_some() { FOLLOWING } else { self.jittered(rest) };
        let time = match next_at {
            Some(at) => self.until(at).await.clamp(SHORTEST, longest),
            None => longest,
        };
        let changed = async {
            match seen {
                Some(seen) => drop(self.store.wait(WaitFor::Feed(seen)).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = changed => {}
        }
    }

    /// The feed's end before the look, if the feed is followed.
    async fn feed_end(&self) -> Option<FeedCursor> {
        if !self.follow {
            return None;
        }
        self.store.read_feed(FeedRequest { after: None, max: 1 }).await.ok().map(|page| page.next)
    }

    /// Returns when this process keeps time, or when the store does not answer: sweeping then is better than resting. Asks
    /// for the first time after `rest`.
    pub(super) async fn until_keeper(&self, keeper: &WorkerId, mut rest: Duration) {
        loop {
            tokio::time::sleep(rest).await;
            match self.store.claim_maintenance(keeper.clone(), KEEPER_MS).await {
                Ok(MaintenanceClaim::HeldByOther { retry_after_ms }) => rest = Duration::from_millis(retry_after_ms),
                Ok(MaintenanceClaim::Granted) | Err(_) => return,
            }
        }
    }

    /// Returns when another process keeps time, with the time after which to ask again.
    pub(super) async fn while_keeper(&self, keeper: &WorkerId) -> Duration {
        loop {
            tokio::time::sleep(KEEPER_RENEWS).await;
            if let Ok(MaintenanceClaim::HeldByOther { retry_after_ms }) =
                self.store.claim_maintenance(keeper.clone(), KEEPER_MS).await
            {
                return Duration::from_millis(retry_after_ms);
            }
        }
    }

    /// By the store's clock, which need not be ours.
    async fn until(&self, at: Timestamp) -> Duration {
        match self.store.now().await {
            Ok(now) => Duration::from_millis(at.ms_since(now)),
            Err(_) => Duration::MAX,
        }
    }

    /// From three quarters of it to all of it.
    fn jittered(&self, rest: Duration) -> Duration {
        let bits = u32::try_from(self.random.next_u64() >> 32).unwrap_or(0);
        rest.mul_f64(1.0 - f64::from(bits) / f64::from(u32::MAX) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use std::time::Duration;

    #[test]
    fn a_loop_that_finds_nothing_comes_rarer_and_one_that_does_comes_soon() {
        let pace = Pace { first: Duration::from_secs(1), longest: Duration::from_secs(4) };
        let mut rest = pace.first;
        let mut rests = Vec::new();
        for found in [false, false, false, true, false] {
            rest = pace.next(rest, found);
            rests.push(rest.as_secs());
        }
        assert_eq!(rests, [2, 4, 4, 1, 2]);
    }
}
