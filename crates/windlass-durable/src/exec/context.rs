//! The run that the current thread polls.

use super::{NodeId, Scope, Shared, wakers::WakeQueue};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Once};

/// Where in its run the current thread is.
#[derive(Clone)]
pub(crate) struct Ctx {
    pub(crate) shared: Arc<Shared>,
    pub(crate) scope: Arc<Scope>,
    /// The scope of cancellation.
    pub(crate) node: NodeId,
}

thread_local! {
    static CTX: RefCell<Option<Ctx>> = const { RefCell::new(None) };
    /// The address of the wake queue of the run that is polled on this thread; 0 for none.
    static POLLED: Cell<usize> = const { Cell::new(0) };
    /// The future of a local step is polled on this thread.
    static IN_STEP: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of this thread was.
    static PANIC_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The context of the run that this thread polls.
pub(crate) fn current() -> Option<Ctx> {
    CTX.with_borrow(Clone::clone)
}

/// True when this thread polls the run with this queue.
pub(super) fn is_polled_here(queue: &Arc<WakeQueue>) -> bool {
    POLLED.get() == Arc::as_ptr(queue).addr()
}

/// True when this thread polls the future of a local step.
pub(super) fn is_in_step() -> bool {
    IN_STEP.get()
}

/// While it lives, this thread polls the run.
pub(crate) struct PollGuard {
    ctx: Option<Ctx>,
    polled: usize,
    in_step: bool,
}

impl PollGuard {
    pub(crate) fn enter(shared: &Arc<Shared>, scope: &Arc<Scope>, node: NodeId) -> Self {
        let ctx = Ctx { shared: shared.clone(), scope: scope.clone(), node };
        Self {
            ctx: CTX.replace(Some(ctx)),
            polled: POLLED.replace(Arc::as_ptr(&shared.queue).addr()),
            in_step: IN_STEP.replace(false),
        }
    }
}

impl Drop for PollGuard {
    fn drop(&mut self) {
        drop(CTX.replace(self.ctx.take()));
        POLLED.set(self.polled);
        IN_STEP.set(self.in_step);
    }
}

fn with_ctx<R>(change: impl FnOnce(&mut Ctx) -> R) -> Option<R> {
    CTX.with_borrow_mut(|ctx| ctx.as_mut().map(change))
}

/// While it lives, operations belong to another scope.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "internal to the macros")]
pub struct ScopeGuard(Option<Arc<Scope>>);

impl ScopeGuard {
    pub(crate) fn enter(scope: &Arc<Scope>) -> Self {
        Self(with_ctx(|ctx| std::mem::replace(&mut ctx.scope, scope.clone())))
    }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        if let Some(scope) = self.0.take() {
            // The replaced scope is dropped outside of the borrow.
            drop(with_ctx(|ctx| std::mem::replace(&mut ctx.scope, scope)));
        }
    }
}

/// While it lives, operations belong to another scope of cancellation.
pub(crate) struct CancelGuard(Option<NodeId>);

impl CancelGuard {
    pub(crate) fn enter(node: NodeId) -> Self {
        Self(with_ctx(|ctx| std::mem::replace(&mut ctx.node, node)))
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some(node) = self.0.take() {
            with_ctx(|ctx| ctx.node = node);
        }
    }
}

/// While it lives, this thread polls or drops the future of a local step.
pub(crate) struct StepGuard(bool);

impl StepGuard {
    pub(crate) fn enter() -> Self {
        Self(IN_STEP.replace(true))
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        IN_STEP.set(self.0);
    }
}

/// Installs, once per process, a panic hook that remembers where workflow code panics. Panics of other threads go to the hook
/// that was there before.
pub(super) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if POLLED.get() == 0 {
                return before(info);
            }
            PANIC_AT.set(info.location().map(|place| format!("{}:{}", place.file(), place.line())));
        }));
    });
}

/// The message and the place of a panic that was caught on this thread.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let text = text.unwrap_or_else(|| "a panic without text".to_owned());
    match PANIC_AT.take() {
        Some(place) => format!("{text} at {place}"),
        None => text,
    }
}
