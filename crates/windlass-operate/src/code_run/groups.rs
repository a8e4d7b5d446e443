//! Operations by kind and name: how many there are in which state.

use super::operation::{Operation, OperationKind, OperationState};
use serde::Serialize;
use std::collections::HashMap;

/// The operations of one kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationGroup {
    /// What they are.
    pub kind: OperationKind,
    /// The kind of the jobs, the name of the workflow, steps, signals or markers; empty for timers.
    pub name: String,
    /// How many there are.
    pub total: u64,
    /// Requested and not ended.
    pub open: u64,
    /// Ended with a value; fired; delivered.
    pub done: u64,
    /// Ended with an error.
    pub failed: u64,
    /// Cancelled by the code or with the run.
    pub cancelled: u64,
    /// Dropped by an operator.
    pub discarded: u64,
}

impl OperationGroup {
    /// What they are: `call resize`, `timer`.
    pub fn title(&self) -> String {
        let kind = self.kind.name();
        if self.name.is_empty() { kind.to_owned() } else { format!("{kind} {}", self.name) }
    }

    /// In one line: `950 done, 50 open`.
    pub fn counts_text(&self) -> String {
        let counts = [
            (self.done, OperationState::Done),
            (self.open, OperationState::Open),
            (self.failed, OperationState::Failed),
            (self.cancelled, OperationState::Cancelled),
            (self.discarded, OperationState::Discarded),
        ];
        let words = counts.into_iter().filter(|(number, _)| *number > 0);
        let words: Vec<String> = words.map(|(number, state)| format!("{number} {}", state.name())).collect();
        words.join(", ")
    }
}

/// Groups operations, in the order of their first ones.
pub(super) fn groups_of(operations: &[Operation]) -> Vec<OperationGroup> {
    let mut groups: Vec<OperationGroup> = Vec::new();
    let mut known: HashMap<(OperationKind, &str), usize> = HashMap::new();
    for row in operations {
        // The name of a request to cancel is its reason.
        let name = if row.kind == OperationKind::CancelRequest { "" } else { row.name.as_str() };
        let at = *known.entry((row.kind, name)).or_insert_with(|| {
            let (kind, name) = (row.kind, name.to_owned());
            groups.push(OperationGroup {
                kind,
                name,
                total: 0,
                open: 0,
                done: 0,
                failed: 0,
                cancelled: 0,
                discarded: 0,
            });
            groups.len() - 1
        });
        let group = &mut groups[at];
        group.total += 1;
        match row.state {
            OperationState::Open => group.open += 1,
            OperationState::Done => group.done += 1,
            OperationState::Failed => group.failed += 1,
            OperationState::Cancelled => group.cancelled += 1,
            OperationState::Discarded => group.discarded += 1,
        }
    }
    groups
}
