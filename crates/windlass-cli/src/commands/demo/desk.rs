//! The handlers of the demo: they take their time, and fail and hang as the dice say.

use super::jobs::{Email, Invoice, Kind, Thumbnail, Webhook};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Ctx, JobError, State};
use windlass_audit::{Entry, Ledger};

/// What a worker's handlers share.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) ledger: Arc<Ledger>,
    pub(super) chances: Chances,
    pub(super) latency: Duration,
}

/// How likely it is that something goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chances {
    pub(super) seed: u64,
    pub(super) fail_rate: f64,
    pub(super) hang_rate: f64,
}

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Succeed,
    /// It may work the next time.
    Fail,
    /// It never will.
    Die,
    /// It never ends by itself.
    Hang,
}

impl Chances {
    /// The same seed makes the same attempts fail, whoever makes them and whenever.
    pub(super) fn fate(&self, number: u64, attempt: u32) -> Fate {
        let kind = Kind::of(number);
        if let (Some(fate), 1) = (self.showpiece(number), attempt) {
            return fate;
        }
        let roll = |salt: u64| fraction(mix(self.seed ^ mix(number ^ mix(u64::from(attempt) ^ mix(salt)))));
        if kind == Kind::Thumbnail && roll(1) < self.hang_rate / Kind::THUMBNAILS {
            Fate::Hang
        } else if roll(2) >= self.fail_rate {
            Fate::Succeed
        } else if kind == Kind::Webhook && roll(3) < 0.2 {
            Fate::Die
        } else {
            Fate::Fail
        }
    }

    /// The first jobs are cast, so that the shortest demo shows a retry, a dead letter and a timeout.
    fn showpiece(&self, number: u64) -> Option<Fate> {
        match number {
            0 if self.fail_rate > 0.0 => Some(Fate::Fail),
            1 if self.fail_rate > 0.0 => Some(Fate::Die),
            2 if self.hang_rate > 0.0 => Some(Fate::Hang),
            _ => None,
        }
    }
}

/// Spreads a number's bits (splitmix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// From 0 to below 1.
fn fraction(bits: u64) -> f64 {
    let high = u32::try_from(bits >> 32).unwrap_or(0);
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

pub(super) async fn email(job: Email, ctx: Ctx, desk: State<Desk>) -> Result<(), JobError> {
    ctx.log(format!("to {} of {}", job.to, job.tenant));
    attend(job.number, &ctx, &desk, "421 mailbox busy").await
}

pub(super) async fn webhook(job: Webhook, ctx: Ctx, desk: State<Desk>) -> Result<(), JobError> {
    ctx.log(format!("POST {}", job.url));
    attend(job.number, &ctx, &desk, "502 bad gateway").await
}

pub(super) async fn thumbnail(job: Thumbnail, ctx: Ctx, desk: State<Desk>) -> Result<String, JobError> {
    ctx.log(format!("reading {}", job.image));
    attend(job.number, &ctx, &desk, "not an image").await?;
    ctx.output("size", "320x200");
    Ok(format!("{}.small", job.image))
}

pub(super) async fn invoice(job: Invoice, ctx: Ctx, desk: State<Desk>) -> Result<(), JobError> {
    ctx.log(format!("bill {} for {}", job.bill, job.tenant));
    attend(job.number, &ctx, &desk, "the ledger is locked").await
}

/// One attempt, written to the ledger when it starts.
async fn attend(number: u64, ctx: &Ctx, desk: &Desk, complaint: &str) -> Result<(), JobError> {
    desk.ledger.note(&[Entry::Executed { job: ctx.id(), attempt: ctx.attempt() }]);
    let half = desk.latency.mul_f64(0.25 + 0.5 * fraction(mix(desk.chances.seed ^ number)));
    tokio::time::sleep(half).await;
    ctx.progress(50, "half of it");
    let fate = desk.chances.fate(number, ctx.attempt());
    if fate == Fate::Hang {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(half).await;
    match fate {
        Fate::Succeed | Fate::Hang => Ok(()),
        Fate::Fail => Err(JobError::new(complaint)),
        Fate::Die => Err(JobError::fatal("410 gone")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANCES: Chances = Chances { seed: 7, fail_rate: 0.1, hang_rate: 0.02 };

    fn share(chances: Chances, wanted: &[Fate]) -> f64 {
        let hits = (100..10_100).filter(|number| wanted.contains(&chances.fate(*number, 1))).count();
        f64::from(u32::try_from(hits).unwrap()) / 10_000.0
    }

    #[test]
    fn about_as_many_fail_and_hang_as_was_asked_for() {
        let failed = share(CHANCES, &[Fate::Fail, Fate::Die]);
        assert!((0.08..0.12).contains(&failed), "{failed}");
        let hung = share(CHANCES, &[Fate::Hang]);
        assert!((0.015..0.025).contains(&hung), "{hung}");
        let calm = Chances { fail_rate: 0.0, hang_rate: 0.0, ..CHANCES };
        assert!((0..1_000).all(|number| calm.fate(number, 1) == Fate::Succeed));
    }

    #[test]
    fn the_shortest_demo_shows_a_retry_a_dead_letter_and_a_timeout() {
        assert_eq!([0, 1, 2].map(|number| CHANCES.fate(number, 1)), [Fate::Fail, Fate::Die, Fate::Hang]);
        assert_eq!([0, 1, 2].map(Kind::of), [Kind::Email, Kind::Webhook, Kind::Thumbnail]);
    }
}
