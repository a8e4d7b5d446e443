//! A clock that calls a function of the test whenever the store reads it: once for every script that is about to be sent.

use parking_lot::Mutex;
use std::sync::Arc;
use windlass_core::random::StrongRandom;
use windlass_core::time::{Clock, Timestamp, VirtualClock};
use windlass_redis::{Options, RedisStore};

type Hook = Box<dyn FnMut() + Send>;

pub(crate) struct HookedClock {
    clock: Arc<VirtualClock>,
    hook: Mutex<Option<Hook>>,
}

impl HookedClock {
    /// A store that reads such a clock, and the clock.
    pub(crate) fn open(url: &str, clock: &Arc<VirtualClock>) -> (RedisStore, Arc<Self>) {
        let clock = Arc::new(Self { clock: Arc::clone(clock), hook: Mutex::new(None) });
        let random = Arc::new(StrongRandom::from_system());
        let (options, scripts) = (Options::from_url(url).unwrap(), windlass_redis::scripts::all());
        let store = RedisStore::open_with_scripts(options, clock.clone(), random, scripts).unwrap();
        (store, clock)
    }

    /// From now on every reading calls this first.
    pub(crate) fn set(&self, hook: impl FnMut() + Send + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }

    pub(crate) fn clear(&self) {
        *self.hook.lock() = None;
    }
}

impl Clock for HookedClock {
    fn now(&self) -> Timestamp {
        if let Some(hook) = &mut *self.hook.lock() {
            hook();
        }
        self.clock.now()
    }
}
