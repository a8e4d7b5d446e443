//! The crash test: real processes on one store, killed -9 in a loop, and an audit of what they left behind.
//!
//! A parent starts workers and enqueuers, which are this program again. Each writes what it did to a ledger of its own,
//! outside the store and synced before it goes on. The parent kills them at moments drawn from a seed, mostly while
//! they hold leases, and starts others in their place. In the end nobody is killed any more, the rest is worked off, and
//! the ledgers are compared with the store ([`windlass_audit`]): nothing acknowledged may be lost, nothing may be completed
//! twice, nothing may run that nobody enqueued.
//!
//! The storm ([`storm`]) is the other way round: the workers live, and the servers of a Redis store are broken under them.
//!
//! With `workflows` the processes execute durable workflows ([`WorkflowReport`]).
//!
//! The promise is at-least-once, so a job may well be delivered twice; that is counted and not a fault.

mod args;
mod child;
mod enqueuer;
mod fleet;
mod hand;
mod library_worker;
mod parent;
pub mod recount;
pub mod storm;
mod watch;
mod worker;
mod workflows;

pub use args::{Blow, Bug, Config, Role, StoreKind, StormConfig, parse, usage};
pub use parent::{Report, run};
pub use workflows::WorkflowReport;

/// The queue that everything happens on.
pub(crate) const QUEUE: &str = "crash";

/// What can stop the crash test itself.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of its parts.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Plays the part that the arguments name. True when nothing was lost, doubled or made up.
pub fn play(role: Role) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match role {
        Role::Parent(config) => {
            let report = runtime.block_on(run(&config))?;
            println!("{}", serde_json::to_string(&report)?);
            Ok(report.is_clean())
        }
        Role::Workflows(config) => {
            let report = runtime.block_on(workflows::storm(&config))?;
            println!("{}", serde_json::to_string(&report)?);
            Ok(report.is_clean())
        }
        Role::Storm(config) => storm::run_all(&config),
        Role::Worker(part) => {
            windlass_audit::end_with_parent()?;
            runtime.block_on(async {
                let hand = child::hand(part)?;
                child::note_clock(&hand).await?;
                worker::work(hand).await.map(|()| true)
            })
        }
        Role::LibraryWorker(part) => {
            windlass_audit::end_with_parent()?;
            runtime.block_on(library_worker::work(part)).map(|()| true)
        }
        Role::WorkflowWorker(part) => {
            windlass_audit::end_with_parent()?;
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(workflows::work(part)).map(|()| true)
        }
        Role::Enqueuer(part) => {
            windlass_audit::end_with_parent()?;
            runtime.block_on(enqueuer::enqueue(child::hand(part)?)).map(|()| true)
        }
    }
}
