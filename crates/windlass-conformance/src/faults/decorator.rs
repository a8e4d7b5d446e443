//! The decorator: every method of the contract, through one door.

use super::plan::{Fault, FaultPlan};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::store::{Answer, Call, CallStore, HandleCall, Method, Store};
use windlass_core::{Error, Result};

/// A store whose calls may fail, and which counts them.
pub struct Faulty {
    inner: Arc<dyn Store>,
    plan: FaultPlan,
    calls: Mutex<BTreeMap<Method, u64>>,
}

impl Faulty {
    /// `inner`, failing as planned.
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> CallStore<Self> {
        CallStore(Self { inner, plan, calls: Mutex::default() })
    }

    /// From now on everything passes.
    pub fn calm_down(&self) {
        self.plan.calm_down();
    }

    /// How often each method was called.
    pub fn calls(&self) -> BTreeMap<Method, u64> {
        self.calls.lock().clone()
    }
}

impl HandleCall for Faulty {
    async fn call(&self, call: Call) -> Result<Answer> {
        let method = call.method();
        *self.calls.lock().entry(method).or_insert(0) += 1;
        let answer = call.send(self.inner.as_ref());
        match self.plan.next(method) {
            Fault::Pass => answer.await,
            Fault::Before => Err(Error::Unavailable { reason: format!("{method:?} was refused by plan") }),
            Fault::Refused(error) => Err(error),
            Fault::Hang => std::future::pending().await,
            Fault::Lost => {
                // An error of the call is lost like any other answer.
                let _answer = answer.await;
                Err(Error::Unknown { reason: format!("the reply to {method:?} was lost by plan") })
            }
            Fault::Delay(turns) => {
                overtake_me(turns).await;
                let answer = answer.await;
                overtake_me(turns).await;
                answer
            }
        }
    }
}

async fn overtake_me(turns: u32) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("plan", &self.plan).finish_non_exhaustive()
    }
}
