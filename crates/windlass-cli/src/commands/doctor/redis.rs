//! The server of a Redis store: the store's crate looks, and what it found is shown like the rest.

use super::{Finding, Severity};
use crate::failure::Failure;
use windlass_redis::Options;
use windlass_redis::doctor::{self, Depth, examine};

/// What was found, and whether a store works there at all.
pub(super) struct Server {
    pub(super) findings: Vec<Finding>,
    pub(super) usable: bool,
}

pub(super) async fn look(options: &Options, deep: bool) -> Result<Server, Failure> {
    let examination = examine(options, Depth { whole: deep }).await?;
    Ok(Server { findings: examination.findings.into_iter().map(finding).collect(), usable: examination.usable })
}

fn finding(found: doctor::Finding) -> Finding {
    let severity = match found.severity {
        doctor::Severity::Ok => Severity::Ok,
        doctor::Severity::Info => Severity::Info,
        doctor::Severity::Warning => Severity::Warning,
        doctor::Severity::Error => Severity::Error,
    };
    Finding { severity, check: found.check, message: found.message, hint: found.hint }
}
