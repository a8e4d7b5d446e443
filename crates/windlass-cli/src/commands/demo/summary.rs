//! What is said in the end.

use super::audit::Findings;
use crate::failure::Failure;
use crate::ui::Ui;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// The demo in numbers. The names are documented: programs read them.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Summary {
    /// Jobs whose enqueue was acknowledged.
    pub(super) enqueued: u64,
    pub(super) succeeded: u64,
    /// Jobs whose completion a worker wrote down; one that was killed could not.
    pub(super) confirmed: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    /// Attempts that failed and were followed by another one.
    pub(super) retried: u64,
    pub(super) timed_out: u64,
    /// Leases that ran out.
    pub(super) reaped: u64,
    /// Leases whose holder came too late.
    pub(super) refused: u64,
    pub(super) deduplicated: u64,
    pub(super) not_enqueued: u64,
    /// Handlers that were started.
    pub(super) executed: u64,
    pub(super) kills: u64,
    pub(super) freezes: u64,
    /// Acknowledged and not ended, or not there.
    pub(super) lost: u64,
    pub(super) double_completed: u64,
    pub(super) faults: Vec<String>,
    pub(super) seconds: f64,
    pub(super) seed: u64,
    pub(super) store: String,
}

impl Summary {
    pub(super) fn of(findings: Findings) -> Self {
        Self {
            enqueued: findings.enqueued,
            succeeded: findings.succeeded,
            confirmed: findings.confirmed,
            failed: findings.failed,
            cancelled: findings.cancelled,
            retried: findings.retried,
            timed_out: findings.timed_out,
            reaped: findings.reaped,
            refused: findings.refused,
            executed: findings.executed,
            lost: findings.lost,
            double_completed: findings.double_completed,
            faults: findings.faults,
            ..Self::default()
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.lost == 0 && self.double_completed == 0
    }

    pub(super) fn print(&self, ui: Ui) -> Result<(), Failure> {
        if ui.json {
            return ui.json(self);
        }
        ui.line(self.table())?;
        for fault in &self.faults {
            ui.line(format_args!("  {fault}"))?;
        }
        ui.line(self.sentence())
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        let rows = [
            ("enqueued", self.enqueued, "acknowledged by the store"),
            ("succeeded", self.succeeded, ""),
            ("failed", self.failed, "dead letters, kept with their payload"),
            ("retried", self.retried, "attempts that failed and were tried again"),
            ("timed out", self.timed_out, "attempts that hung"),
            ("reaped", self.reaped, "leases of workers that died or froze"),
            ("refused", self.refused, "leases of frozen workers that came too late"),
            ("turned away", self.deduplicated, "second invoices for an unpaid bill"),
            ("executed", self.executed, "handlers started, by the workers' ledgers"),
            ("kills", self.kills, "SIGKILL"),
            ("freezes", self.freezes, "SIGSTOP beyond the lease"),
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
        let Self { enqueued, seconds, kills, freezes, lost, double_completed, seed, .. } = self;
        let workers = if *kills == 1 { "worker" } else { "workers" };
        let what =
            format!("{enqueued} jobs in {seconds:.1} s, {kills} {workers} killed, {freezes} frozen (seed {seed}):");
        if self.is_clean() {
            format!("{what} nothing lost, nothing completed twice.")
        } else {
            format!("{what} {lost} LOST, {double_completed} COMPLETED TWICE. This is a bug; please report it.")
        }
    }
}
