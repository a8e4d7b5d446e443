//! What is wrong with a store, and what to do about it.

mod file;
mod jobs;
mod latency;

use crate::error::OperateError;
use windlass::core::finding::{Finding, Severity};
use windlass::core::store::{Durability, Store, StoreInfo};
use windlass_redis::Options;
use windlass_redis::doctor::{Depth, Examination, examine};

/// One part of the examination of a store. Each part runs for itself, so that an error in one does not hide the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// What the store is, and what it promises.
    Store,
    /// The file of an embedded store.
    File,
    /// The store's clock, and how long its answers take.
    Time,
    /// Queues that are paused or full.
    Queues,
    /// Workers that are dead, and queues without workers.
    Workers,
    /// Jobs that nobody handles, that are late, failed or damaged; from a sample of each queue and state.
    Jobs,
    /// Schedules that are late or damaged.
    Schedules,
}

impl Check {
    /// Every check, in the order in which their findings are shown.
    pub const ALL: [Self; 7] =
        [Self::Store, Self::File, Self::Time, Self::Queues, Self::Workers, Self::Jobs, Self::Schedules];

    fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::File => "file",
            Self::Time => "time",
            Self::Queues => "queues",
            Self::Workers => "workers",
            Self::Jobs => "jobs",
            Self::Schedules => "schedules",
        }
    }

    /// Runs the check. With `deep` the whole file is read, however large it is. An error becomes a finding.
    pub async fn run(self, store: &dyn Store, info: &StoreInfo, deep: bool) -> Vec<Finding> {
        let findings = match self {
            Self::Store => Ok(vec![store_finding(info)]),
            Self::File => Ok(file::check(info, deep)),
            Self::Time => latency::check(store, info).await,
            Self::Queues => jobs::queues(store).await,
            Self::Workers => jobs::workers(store).await,
            Self::Jobs => jobs::samples(store).await,
            Self::Schedules => jobs::schedules(store, info).await,
        };
        findings.unwrap_or_else(|error| vec![Finding::error(self.name(), error.to_string())])
    }
}

/// Examines the server of a Redis store. With `deep` every entry is read, however many there are. When the examination says
/// that the store is not usable, the other checks cannot be run.
pub async fn examine_redis(options: &Options, deep: bool) -> Result<Examination, OperateError> {
    Ok(examine(options, Depth { whole: deep }).await?)
}

/// The severity of the worst finding.
pub fn worst<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Severity {
    findings.into_iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

/// The name of the store's durability class, and what it means.
pub fn durability_text(info: &StoreInfo) -> (&'static str, &'static str) {
    match info.durability {
        Durability::None if info.store == "redis" => {
            ("none", "the end of the server may lose all, or all since its last snapshot")
        }
        Durability::None => ("none", "nothing survives the end of the process"),
        Durability::Process => ("process", "acknowledged work survives a crash of our processes, not a power cut"),
        Durability::Power => ("power", "acknowledged work survives a power cut"),
        Durability::FailoverBestEffort => (
            "failover-best-effort",
            "acknowledged work survives a power cut of one server; a failover may lose the last of it",
        ),
    }
}

/// What the store is, and what it promises.
fn store_finding(info: &StoreInfo) -> Finding {
    let details: Vec<String> = info.details.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let (class, meaning) = durability_text(info);
    let text = format!("{}, layout {}, {}; durability {class}: {meaning}", info.store, info.layout, details.join(", "));
    match info.durability {
        Durability::Power | Durability::FailoverBestEffort => Finding::ok("store", text),
        // The findings about the server say what to do about it.
        Durability::None | Durability::Process if info.store == "redis" => Finding::info("store", text),
        Durability::None => Finding::warning("store", text).hint("for work that matters use sqlite://FILE"),
        Durability::Process => {
            Finding::info("store", text).hint("leave out ?synchronous=normal to survive a power cut")
        }
    }
}
