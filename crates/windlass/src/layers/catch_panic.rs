//! Panics as errors.

use super::service::{Attempt, Inner, Wrap};
use super::{Ctx, JobError};
use crate::error::words_of;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use windlass_core::job::FailureClass;

/// Turns a panic into an error, so that the layers outside of it see one. The worker catches panics without it, too; in
/// both cases the failure counts as a panic.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchPanic;

impl CatchPanic {
    /// One.
    pub fn new() -> Self {
        Self
    }
}

impl Wrap for CatchPanic {
    fn call<S: Inner>(&self, inner: &mut S, ctx: Ctx) -> Attempt<S> {
        let panicked =
            |panic: Box<dyn std::any::Any + Send>| JobError::classed(FailureClass::Panic, words_of(panic.as_ref()));
        // A handler may panic before it has a future.
        match std::panic::catch_unwind(AssertUnwindSafe(|| inner.call(ctx))) {
            Ok(call) => Box::pin(AssertUnwindSafe(call).catch_unwind().map(move |ended| ended.map_err(panicked)?)),
            Err(panic) => Box::pin(std::future::ready(Err(panicked(panic)))),
        }
    }
}
