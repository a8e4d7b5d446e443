//! Scopes: the path of combinators around an operation.

use super::lock;
use crate::record::{Name, OpKind, fnv, mix};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Arms that a path names; a deeper path starts with a hash of what is above.
const ARMS_NAMED: usize = 6;

/// One arm of a combinator, or the root of the workflow.
pub(crate) struct Scope {
    parent: Option<Arc<Scope>>,
    kind: OpKind,
    nth: u32,
    arm: Name,
    depth: u32,
    hash: u64,
    /// How often each kind and name was used in this scope.
    counters: Mutex<HashMap<(OpKind, Name, Name), u32>>,
}

impl Scope {
    pub(crate) fn root() -> Arc<Self> {
        let arm = Name::Borrowed("");
        Arc::new(Self { parent: None, kind: OpKind::Join, nth: 0, arm, depth: 0, hash: 0, counters: Mutex::default() })
    }

    /// The scope of an arm of the combinator number `nth` of its kind in `self`.
    pub(crate) fn arm(self: &Arc<Self>, kind: OpKind, nth: u32, arm: Name) -> Arc<Self> {
        let hash = mix(fnv(self.hash ^ u64::from(nth) << 8 ^ letter(kind) as u64, arm.as_bytes()));
        let (parent, depth) = (Some(self.clone()), self.depth + 1);
        Arc::new(Self { parent, kind, nth, arm, depth, hash, counters: Mutex::default() })
    }

    /// Counts the operations of this kind, name and user key, from 0.
    pub(crate) fn count(&self, kind: OpKind, name: &Name, user: &Name) -> u32 {
        let mut counters = lock(&self.counters);
        let next = counters.entry((kind, name.clone(), user.clone())).or_insert(0);
        *next += 1;
        *next - 1
    }

    /// Takes back the last count, if it was `nth`.
    pub(crate) fn uncount(&self, kind: OpKind, name: &Name, nth: u32) {
        if let Some(next) = lock(&self.counters).get_mut(&(kind, name.clone(), Name::Borrowed("")))
            && *next == nth + 1
        {
            *next = nth;
        }
    }

    /// The text of the path. A deep one starts with a hash, so that a recursion does not write a history of quadratic size.
    pub(crate) fn path(&self) -> Name {
        if self.depth == 0 {
            return Name::Borrowed("");
        }
        let mut parts = Vec::new();
        let mut next = Some(self);
        while let Some(scope) = next.filter(|scope| scope.depth > 0) {
            if parts.len() == ARMS_NAMED {
                parts.push(format!("~{:x}", scope.hash));
                break;
            }
            parts.push(format!("{}{}.{}", letter(scope.kind), scope.nth, scope.arm));
            next = scope.parent.as_deref();
        }
        parts.reverse();
        parts.join("/").into()
    }
}

const fn letter(kind: OpKind) -> char {
    match kind {
        OpKind::Select => 's',
        OpKind::Set => 't',
        _ => 'j',
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // A deep chain must not be dropped by recursion.
        let mut next = self.parent.take();
        while let Some(scope) = next {
            match Arc::try_unwrap(scope) {
                Ok(mut scope) => next = scope.parent.take(),
                Err(_) => break,
            }
        }
    }
}
