//! What happens to a call.

use parking_lot::Mutex;
use windlass_core::random::{Random, StrongRandom};

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It passes.
    Pass,
    /// It is refused before it reaches the store: `Unavailable`, nothing is applied.
    Before,
    /// It is applied and its reply is lost: `Unknown`.
    Lost,
    /// It passes, but only after others had so many chances to overtake it; its reply is as late.
    Delay(u32),
}

/// How often which fault happens, out of a thousand calls.
#[derive(Debug)]
pub struct FaultPlan {
    before: u64,
    lost: u64,
    delayed: u64,
    random: Mutex<Option<StrongRandom>>,
}

impl FaultPlan {
    /// Everything passes.
    pub fn calm() -> Self {
        Self { before: 0, lost: 0, delayed: 0, random: Mutex::new(None) }
    }

    /// Out of a thousand calls, 120 are refused, 120 lose their reply, and 200 are late.
    pub fn stormy(seed: u64) -> Self {
        Self { before: 120, lost: 120, delayed: 200, random: Mutex::new(Some(StrongRandom::seeded(seed))) }
    }

    /// From now on everything passes.
    pub fn calm_down(&self) {
        *self.random.lock() = None;
    }

    pub(crate) fn next(&self) -> Fault {
        let random = self.random.lock();
        let Some(random) = random.as_ref() else { return Fault::Pass };
        let (roll, pause) = (random.next_u64() % 1_000, random.next_u64() % 4);
        if roll < self.before {
            Fault::Before
        } else if roll < self.before + self.lost {
            Fault::Lost
        } else if roll < self.before + self.lost + self.delayed {
            Fault::Delay(u32::try_from(pause + 1).unwrap_or(1))
        } else {
            Fault::Pass
        }
    }
}
