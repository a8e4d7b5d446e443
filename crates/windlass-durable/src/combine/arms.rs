//! The scopes of the arms of a combinator.

use crate::exec::{Scope, ScopeGuard, current};
use crate::record::{Name, OpKind};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Makes the scopes of one combinator.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "internal to the macros")]
pub struct Arms {
    parent: Option<Arc<Scope>>,
    kind: OpKind,
    nth: u32,
}

/// The scope of one arm.
#[doc(hidden)]
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "internal to the macros")]
pub struct ArmScope(Option<Arc<Scope>>);

impl Arms {
    /// The arms of a `join!`.
    pub fn join() -> Self {
        Self::new(OpKind::Join)
    }

    /// The arms of a `select!`.
    pub fn select() -> Self {
        Self::new(OpKind::Select)
    }

    pub(super) fn new(kind: OpKind) -> Self {
        let parent = current().map(|ctx| ctx.scope);
        let none = Name::Borrowed("");
        let nth = parent.as_ref().map_or(0, |scope| scope.count(kind, &none, &none));
        Self { parent, kind, nth }
    }

    /// The scope of the arm with this name.
    pub fn arm(&self, name: impl Into<Name>) -> ArmScope {
        ArmScope(self.parent.as_ref().map(|parent| parent.arm(self.kind, self.nth, name.into())))
    }
}

impl ArmScope {
    /// Makes operations belong to the arm, while the guard lives.
    pub fn enter(&self) -> Option<ScopeGuard> {
        self.0.as_ref().map(ScopeGuard::enter)
    }

    pub(super) fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _scope = self.enter();
        future.poll(cx)
    }

    pub(super) fn into_scope(self) -> Option<Arc<Scope>> {
        self.0
    }
}

/// The name of an arm by its position.
pub(super) fn arm_name(position: usize) -> Name {
    const NAMES: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    NAMES.get(position).map_or_else(|| Name::Owned(position.to_string()), |name| Name::Borrowed(name))
}

/// Polls an arm of `select!` or `join!` once, and drops it when it is done.
#[doc(hidden)]
pub fn poll_arm<F: Future>(scope: &ArmScope, arm: &mut Pin<&mut Option<F>>, cx: &mut Context<'_>) -> Option<F::Output> {
    match arm.as_mut().as_pin_mut().map(|future| scope.poll(future, cx)) {
        Some(Poll::Ready(output)) => {
            let _scope = scope.enter();
            arm.set(None);
            Some(output)
        }
        _ => None,
    }
}
