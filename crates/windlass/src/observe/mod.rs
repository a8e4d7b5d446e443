//! What operators see: metrics, spans, traces. `docs/observability.md` has the tables.
//!
//! All of it happens in the facade over the store and in the worker, never in a store. Stores that [`open`](crate::open())
//! returns are observed; for one that you made yourself there is [`observe`]. It costs next to nothing until the
//! application installs a `metrics` recorder or a `tracing` subscriber that wants to know.

mod job;
#[cfg(feature = "metrics")]
mod meters;
#[cfg(not(feature = "metrics"))]
#[path = "silent.rs"]
mod meters;
pub mod names;
#[cfg(feature = "opentelemetry")]
mod otel;
#[cfg(feature = "metrics")]
mod sampler;
mod store;
mod trace;

use std::sync::Arc;
use windlass_core::store::{CallStore, Store};

pub(crate) use job::{Attempt, Attempts};
#[cfg(feature = "metrics")]
pub use sampler::Sampler;
pub use store::Observed;
pub(crate) use trace::in_handler as trace_in_handler;
pub use trace::{TraceId, TraceParent, current_trace, with_trace};

/// A store of your own, observed like those that [`open`](crate::open()) returns; `name` is the label `store`.
///
/// ```
/// use std::sync::Arc;
/// use windlass::core::memory::MemoryStore;
///
/// let store = windlass::observe::observe("memory", Arc::new(MemoryStore::new()));
/// # let _ = store;
/// ```
pub fn observe(name: &'static str, store: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(CallStore(Observed::new(name, store)))
}
