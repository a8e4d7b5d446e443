//! Local steps of a run.

use super::{CodePlace, OpId};
use crate::record::{Key, Outcome};
use std::collections::{HashMap, VecDeque};

/// The end of a step that is not recorded yet.
pub(crate) struct EndedStep {
    pub(crate) key: Key,
    pub(crate) outcome: Outcome,
    pub(crate) place: CodePlace,
}

#[derive(Default)]
pub(crate) struct Steps {
    /// Steps that have been polled and whose ends are not recorded.
    pub(crate) open: HashMap<Key, OpId>,
    /// Steps that wait until everything before them is committed.
    pub(crate) unbegun: Vec<OpId>,
    pub(crate) ended: VecDeque<EndedStep>,
    /// Everything that led to the open steps is committed: they may begin.
    pub(crate) may_begin: bool,
}
