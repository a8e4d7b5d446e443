//! What happens to a call.

use super::Method;
use parking_lot::Mutex;
use std::fmt;
use windlass_core::Error;
use windlass_core::random::{Random, StrongRandom};

/// What happens to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It passes.
    Pass,
    /// It is refused before it reaches the store: `Unavailable`, nothing is applied.
    Before,
    /// It is refused in other words; nothing is applied.
    Refused(Error),
    /// It is applied and its reply is lost: `Unknown`.
    Lost,
    /// It passes, but only after others had so many chances to overtake it; its reply is as late.
    Delay(u32),
    /// It is never answered, and nothing is applied.
    Hang,
}

type Choose = Box<dyn Fn(Method) -> Fault + Send + Sync>;

/// What happens to which call.
pub struct FaultPlan(Mutex<Plan>);

enum Plan {
    Calm,
    /// How often which fault happens, out of a thousand calls.
    Storm {
        before: u64,
        lost: u64,
        delayed: u64,
        random: Box<StrongRandom>,
    },
    By(Choose),
}

impl FaultPlan {
    /// Everything passes.
    pub fn calm() -> Self {
        Self(Mutex::new(Plan::Calm))
    }

    /// Out of a thousand calls, 120 are refused, 120 lose their reply, and 200 are late.
    pub fn stormy(seed: u64) -> Self {
        let random = Box::new(StrongRandom::seeded(seed));
        Self(Mutex::new(Plan::Storm { before: 120, lost: 120, delayed: 200, random }))
    }

    /// Each call as `choose` says.
    pub fn by(choose: impl Fn(Method) -> Fault + Send + Sync + 'static) -> Self {
        Self(Mutex::new(Plan::By(Box::new(choose))))
    }

    /// From now on everything passes.
    pub fn calm_down(&self) {
        *self.0.lock() = Plan::Calm;
    }

    pub(crate) fn next(&self, method: Method) -> Fault {
        match &*self.0.lock() {
            Plan::Calm => Fault::Pass,
            Plan::By(choose) => choose(method),
            Plan::Storm { before, lost, delayed, random } => {
                let (roll, pause) = (random.next_u64() % 1_000, random.next_u64() % 4);
                if roll < *before {
                    Fault::Before
                } else if roll < before + lost {
                    Fault::Lost
                } else if roll < before + lost + delayed {
                    Fault::Delay(u32::try_from(pause + 1).unwrap_or(1))
                } else {
                    Fault::Pass
                }
            }
        }
    }
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0.lock() {
            Plan::Calm => "calm",
            Plan::Storm { .. } => "stormy",
            Plan::By(_) => "by choice",
        })
    }
}
