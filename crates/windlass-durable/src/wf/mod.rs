//! `Wf`: what the code of a workflow sees.

mod call;
mod cancel;
mod child;
mod leaf;
mod promise;
mod saga;
mod signal;
mod step;
mod step_future;
mod timer;

pub use call::Call;
pub use cancel::{CancelHandle, Scoped};
pub use child::Child;
pub use promise::{Promise, PromiseToken};
pub use saga::Saga;
pub use signal::{Recv, Signals};
pub use step::{Blocking, Infallible, Step};
pub use timer::Sleep;

use crate::exec::{Closing, Ctx, Shared, lock};
use crate::record::{Body, End, Key, Name, OpKind, fnv, input_hash, mix};
use crate::workflow::{Running, Workflow, kind_of};
use leaf::Leaf;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use windlass_core::id::RunId;
use windlass_core::time::Timestamp;

/// The handle of a workflow to its run: calls, timers, signals, time and randomness.
///
/// It may be cloned and moved freely within its run. Its methods panic, and the run becomes stuck with the place as reason,
/// when they are used outside of the code of their run: in a local step, in a task of a runtime, on another thread, or while
/// another run is polled. After the run was dropped they do nothing.
#[derive(Clone)]
pub struct Wf {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Wf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wf({})", self.shared.id)
    }
}

impl Wf {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The key of the next operation of this kind and name. Keys are counted when operations are made, not when they are polled.
    fn key(ctx: Option<&Ctx>, kind: OpKind, name: Name) -> Key {
        let user = Name::Borrowed("");
        match ctx {
            Some(ctx) => {
                let nth = ctx.scope.count(kind, &name, &user);
                Key { scope: ctx.scope.path(), kind, name, user, nth }
            }
            None => Key { scope: Name::Borrowed(""), kind, name, user, nth: 0 },
        }
    }

    fn leaf(&self, kind: OpKind, place: &'static Location<'static>) -> (Leaf, Option<Ctx>) {
        let ctx = self.shared.check_at(kind.name(), place);
        (Leaf::new(self.shared.clone(), kind, place), ctx)
    }

    /// The id of the run.
    pub fn run_id(&self) -> RunId {
        self.shared.id
    }

    /// The time of the last event. It does not move while the code runs, and is the same in every replay.
    #[track_caller]
    pub fn now(&self) -> Timestamp {
        self.shared.check("now");
        lock(&self.shared.state).now
    }

    /// The number of the attempt of the code, from 1. It is greater than 1 if the run was started with attempts and has failed
    /// before. A segment that continued as new begins with 1.
    #[track_caller]
    pub fn attempt(&self) -> u32 {
        self.shared.check("attempt");
        lock(&self.shared.state).failed_attempts + 1
    }

    /// A random number that is the same in every replay.
    #[track_caller]
    pub fn random(&self) -> u64 {
        let Some(ctx) = self.shared.check("random") else { return 0 };
        let key = Self::key(Some(&ctx), OpKind::Random, Name::Borrowed(""));
        let seed = lock(&self.shared.state).seed;
        mix(fnv(seed, key.to_string().as_bytes()))
    }

    /// A random UUID, version 4, that is the same in every replay. Made before a local step, it serves as the idempotency key of
    /// the step.
    #[track_caller]
    pub fn uuid(&self) -> String {
        let (a, b) = (self.random(), self.random());
        let (first, second, third) = (a >> 32, a >> 16 & 0xffff, a & 0xfff);
        let (fourth, fifth) = (b >> 48 & 0x3fff | 0x8000, b & 0xffff_ffff_ffff);
        format!("{first:08x}-{second:04x}-4{third:03x}-{fourth:04x}-{fifth:012x}")
    }

    /// True in runs that reach this place for the first time under code that has it, false in runs that passed it before. The
    /// answer is recorded for each pass of a loop, and the marker may be removed from the code once no run needs the old branch.
    #[track_caller]
    pub fn patched(&self, id: &'static str) -> bool {
        let Some(ctx) = self.shared.check("patched") else { return false };
        let key = Self::key(Some(&ctx), OpKind::Patch, Name::Borrowed(id));
        lock(&self.shared.state).patched(key)
    }

    /// True when the run, or the scope of cancellation around this place, was cancelled.
    #[track_caller]
    pub fn is_cancelled(&self) -> bool {
        match self.shared.check("is_cancelled") {
            Some(ctx) => lock(&self.shared.state).tree.is_cancelled(ctx.node),
            None => false,
        }
    }

    /// Ends this segment and starts the run anew with another input, under the same id and with the same inbox.
    ///
    /// Open calls are cancelled, children follow their [`ParentClosePolicy`](crate::ParentClosePolicy), and messages that were
    /// not received are delivered to the next segment. Sagas end without their compensations. The future never completes.
    pub async fn continue_as_new<W: Workflow>(
        &self,
        _function: impl FnOnce(Self, W::Input) -> Running<W>,
        input: W::Input,
    ) -> ! {
        self.begin_next(kind_of::<W>(), Body::of(&input));
        drop(input);
        loop {
            std::future::pending::<()>().await;
        }
    }

    fn begin_next(&self, kind: String, input: Result<Body, serde_json::Error>) {
        if self.shared.check("continue_as_new").is_none() {
            return;
        }
        let bytes_max = self.shared.limits.input_bytes_max;
        let mut state = lock(&self.shared.state);
        let closing = match input {
            Ok(input) if input.len() <= bytes_max => {
                let end = End::Continued { kind: kind.into(), hash: input_hash(input.as_json()) };
                Closing::new(end, Some(input))
            }
            Ok(input) => {
                let message = format!("the input of the next segment has {} bytes, at most {bytes_max}", input.len());
                Closing::new(End::Failed(message), None)
            }
            Err(error) => {
                let message = format!("the input of the next segment cannot be encoded as JSON: {error}");
                Closing::new(End::Failed(message), None)
            }
        };
        state.closing.get_or_insert(closing);
    }

    /// Runs a future in a scope of cancellation of its own. The handle cancels what is open in the scope and what is asked for
    /// in it later, except within shields.
    #[track_caller]
    pub fn cancellable<F: Future + Send>(&self, future: F) -> (CancelHandle, Scoped<F>) {
        let scoped = self.scoped(future, false);
        (CancelHandle::new(self.clone(), &scoped), scoped)
    }

    /// Runs a future that cancellation from outside of it does not reach.
    #[track_caller]
    pub fn shield<F: Future + Send>(&self, future: F) -> Scoped<F> {
        self.scoped(future, true)
    }

    #[track_caller]
    fn scoped<F: Future + Send>(&self, future: F, shield: bool) -> Scoped<F> {
        let parent = self.shared.check("scope").map_or(0, |ctx| ctx.node);
        let node = lock(&self.shared.state).tree.add(parent, shield);
        Scoped::new(self.shared.clone(), node, future)
    }
}
