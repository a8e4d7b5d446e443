//! What is said in the end.

use crate::failure::Failure;
use crate::ui::Ui;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use windlass_audit::{Counts, Findings};
use windlass_operate::text::printable as clean;

/// The demo in numbers. The names are documented: programs read them.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Summary {
    /// Jobs whose enqueue was acknowledged.
    pub(super) enqueued: u64,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) deduplicated: u64,
    pub(super) not_enqueued: u64,
    /// Handlers that were started.
    pub(super) executed: u64,
    pub(super) kills: u64,
    pub(super) freezes: u64,
    /// Acknowledged, in the store, and not ended when the demo gave up.
    pub(super) waiting: u64,
    /// Acknowledged and not there, or not as it ended.
    pub(super) lost: u64,
    pub(super) double_completed: u64,
    pub(super) faults: Vec<String>,
    /// The last error that a worker wrote, when something went wrong.
    pub(super) worker_error: Option<String>,
    /// The store's durability class.
    pub(super) durability: &'static str,
    /// What the class means, where it does not promise what the demo expects.
    #[serde(skip)]
    pub(super) excuse: Option<&'static str>,
    pub(super) seconds: f64,
    pub(super) seed: u64,
    pub(super) store: String,
}

impl Summary {
    pub(super) fn of(findings: &Findings) -> Self {
        Self {
            enqueued: findings.jobs,
            counts: findings.counts,
            executed: findings.executed,
            waiting: findings.waiting,
            lost: findings.lost,
            double_completed: findings.double,
            // A sentence, whose subject is the job.
            faults: findings.faults.iter().map(|fault| fault.replacen(": ", " ", 1)).collect(),
            ..Self::default()
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.waiting == 0 && self.lost == 0 && self.double_completed == 0
    }

    pub(super) fn print(&self, ui: Ui) -> Result<(), Failure> {
        if ui.json {
            return ui.json(self);
        }
        ui.line(self.table())?;
        for fault in &self.faults {
            ui.line(format_args!("  {fault}"))?;
        }
        if let Some(error) = &self.worker_error {
            ui.line(format_args!("  the last error of a worker: {}", clean(error)))?;
        }
        ui.line(self.sentence())
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        let rows = [
            ("enqueued", self.enqueued, "acknowledged by the store"),
            ("succeeded", self.counts.succeeded, ""),
            ("failed", self.counts.failed, "dead letters, kept with their payload"),
            ("retried", self.counts.retried, "attempts that failed and were tried again"),
            ("timed out", self.counts.timed_out, "attempts that hung"),
            ("reaped", self.counts.reaped, "leases of workers that died or froze"),
            ("refused", self.counts.refused, "leases of frozen workers that came too late"),
            ("turned away", self.deduplicated, "second invoices for an unpaid bill"),
            ("executed", self.executed, "handlers started, by the workers' ledgers"),
            ("kills", self.kills, "SIGKILL"),
            ("freezes", self.freezes, "SIGSTOP beyond the lease"),
            ("still waiting", self.waiting, "not ended when the demo gave up"),
            ("lost", self.lost, "must be 0"),
            ("double completed", self.double_completed, "must be 0"),
        ];
        for (what, number, note) in rows {
            table.add_row([what, &number.to_string(), note]);
        }
        if let Some(numbers) = table.column_mut(1) {
            numbers.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn sentence(&self) -> String {
        let Self { enqueued, seconds, kills, freezes, waiting, lost, double_completed, seed, .. } = self;
        let workers = if *kills == 1 { "worker" } else { "workers" };
        let what =
            format!("{enqueued} jobs in {seconds:.1} s, {kills} {workers} killed, {freezes} frozen (seed {seed}):");
        let wait = match waiting {
            0 => String::new(),
            1 => " 1 job still waits; windlass jobs list shows it, windlass explain says why.".to_owned(),
            _ => format!(" {waiting} jobs still wait; windlass jobs list shows them, windlass explain says why."),
        };
        if *lost == 0 && *double_completed == 0 {
            return format!("{what} nothing lost, nothing completed twice.{wait}");
        }
        let verdict = match self.excuse {
            None => "This is a bug; please report it.".to_owned(),
            Some(meaning) => format!("The durability class of this store is {}: {meaning}.", self.durability),
        };
        format!("{what} {lost} LOST, {double_completed} COMPLETED TWICE. {verdict}{wait}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_store_promised_is_called_a_bug() {
        let clean = Summary { enqueued: 9, durability: "power", ..Summary::default() };
        assert!(clean.is_clean() && clean.sentence().ends_with("nothing lost, nothing completed twice."));
        let lost = Summary { lost: 2, ..clean.clone() };
        assert!(!lost.is_clean());
        assert!(lost.sentence().ends_with("2 LOST, 0 COMPLETED TWICE. This is a bug; please report it."));
        let excuse = Some("a failover may lose the last of it");
        let excused = Summary { excuse, durability: "failover-best-effort", ..lost }.sentence();
        assert!(excused.ends_with("failover-best-effort: a failover may lose the last of it."), "{excused}");
        assert!(!excused.contains("bug"), "{excused}");
        let waits = Summary { waiting: 3, ..clean };
        assert!(!waits.is_clean());
        assert!(waits.sentence().contains("nothing lost, nothing completed twice. 3 jobs still wait"));
        assert!(!waits.sentence().contains("bug"));
    }
}
