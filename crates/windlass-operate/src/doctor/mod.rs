//! What is wrong with a store, and what to do about it.

mod file;
mod jobs;
mod latency;
mod runs;

use crate::error::OperateError;
use windlass::core::finding::{Finding, Severity};
use windlass::core::store::{Durability, Store, StoreInfo};
use windlass_redis::Options;
use windlass_redis::doctor::{Depth, Examination, examine};

/// Runs every check of a store, and passes the findings of each to `found`. Each check runs for itself, so that an error in
/// one, which becomes a finding, does not hide the others. With `deep` the whole file is read, however large it is.
pub async fn check_all(
    store: &dyn Store,
    info: &StoreInfo,
    deep: bool,
    mut found: impl FnMut(Vec<Finding>) -> Result<(), OperateError>,
) -> Result<(), OperateError> {
    let or_error = |check: &'static str, findings: Result<Vec<Finding>, OperateError>| {
        findings.unwrap_or_else(|error| vec![Finding::error(check, error.to_string())])
    };
    found(vec![store_finding(info)])?;
    found(file::check(info, deep))?;
    found(or_error("time", latency::check(store, info).await))?;
    found(or_error("queues", jobs::queues(store).await))?;
    found(or_error("workers", jobs::workers(store).await))?;
    found(or_error("jobs", jobs::samples(store).await))?;
    found(or_error("runs", runs::stuck(store).await))?;
    found(or_error("schedules", jobs::schedules(store, info).await))
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
