//! The whole suite inside one test: where servers take seconds to start, a process per case would take an hour.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_conformance::{Case, Ctx, Factory, Opened, TestClock, all_cases};
use windlass_core::random::StrongRandom;
use windlass_core::store::Store;
use windlass_core::time::{HANG_GUARD, Timestamp, VirtualClock};
use windlass_redis::link::Script;
use windlass_redis::{Options, RedisStore};

/// Cases that run at a time; most of them wait for a server or a clock now and then.
const AT_ONCE: usize = 4;

/// Stores on one server, or set of servers; each has a prefix of its own.
pub(crate) struct On {
    /// The servers' URL.
    pub(crate) url: String,
    /// What the server is to run, for each handle anew.
    pub(crate) scripts: Box<dyn Fn() -> &'static [Script] + Send + Sync>,
}

impl On {
    fn store(&self, url: &str, clock: &Arc<VirtualClock>, seed: u64) -> Arc<dyn Store> {
        let (options, random) = (Options::from_url(url).unwrap(), Arc::new(StrongRandom::seeded(seed)));
        Arc::new(RedisStore::open_with_scripts(options, clock.clone(), random, (self.scripts)()).unwrap())
    }
}

#[async_trait::async_trait]
impl Factory for On {
    async fn open(&self) -> Opened {
        static STORES: AtomicU64 = AtomicU64::new(0);
        // The cases do not test time limits, and the machine may be loaded.
        let (n, ms) = (STORES.fetch_add(1, Ordering::Relaxed), HANG_GUARD.as_millis());
        let url = format!("{}?prefix=suite-{n}&timeout_ms={ms}&connect_timeout_ms={ms}", self.url);
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let store = self.store(&url, &clock, 7);
        Opened { store, clock: TestClock::Virtual(clock), keep: Some(Box::new(url)) }
    }

    /// The first target tries all of them, over the same scripts.
    fn sequences(&self, plain: u64) -> u64 {
        plain / 6
    }

    async fn reopen(&self, opened: &Opened) -> Option<Arc<dyn Store>> {
        let url = opened.keep.as_ref()?.downcast_ref::<String>()?;
        let TestClock::Virtual(clock) = &opened.clock else { return None };
        Some(self.store(url, clock, 8))
    }
}

/// Runs every case, some at a time; panics with the names of those that failed.
pub(crate) fn run_all(factory: On) {
    let count = run_where(factory, |_| true);
    assert!(count > 400, "the suite has {count} cases: some are missing");
}

/// Runs the cases with these names, some at a time; panics with the names of those that failed. Returns their number.
pub(crate) fn run_where(factory: On, wanted: impl Fn(&str) -> bool) -> usize {
    run_and_check(factory, wanted, |_| {})
}

/// The same, with a check of the URLs of the stores that a case has opened, after each case.
#[expect(clippy::disallowed_methods, reason = "how long a case takes is told, and nothing depends on it")]
pub(crate) fn run_and_check(factory: On, wanted: impl Fn(&str) -> bool, check: impl Fn(&[String]) + Sync) -> usize {
    let factory = Arc::new(factory);
    let mut cases: VecDeque<Case> = all_cases().into_iter().filter(|case| wanted(case.name)).collect();
    let count = cases.len();
    // The longest first, so that none of them is left alone at the end.
    cases.make_contiguous().sort_by_key(|case| !case.name.contains("slow_"));
    let (cases, failed) = (Mutex::new(cases), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    // Not in the condition of a `while let`, which would hold the lock for the whole case.
                    let next = cases.lock().pop_front();
                    let Some(case) = next else { break };
                    let begun = tokio::time::Instant::now();
                    if !passes(case, &factory, &check) {
                        failed.lock().push(case.name);
                    }
                    println!("{:8.3} s  {}", begun.elapsed().as_secs_f64(), case.name);
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{} of {count} cases passed, {} were left out", count - failed.len(), all_cases().len() - count);
    assert!(failed.is_empty(), "{} of {count} cases failed: {failed:#?}", failed.len());
    count
}

fn passes(case: Case, factory: &Arc<On>, check: &impl Fn(&[String])) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let noted = Arc::new(Noted { on: Arc::clone(factory), urls: Mutex::default() });
    let work = async {
        let ctx = Ctx::open(Arc::clone(&noted) as Arc<dyn Factory>).await;
        (case.run)(ctx).await;
    };
    let all = || {
        runtime.block_on(work);
        check(&noted.urls.lock());
    };
    catch_unwind(AssertUnwindSafe(all)).is_ok()
}

/// The stores of one case, whose URLs are written down.
struct Noted {
    on: Arc<On>,
    urls: Mutex<Vec<String>>,
}

#[async_trait::async_trait]
impl Factory for Noted {
    async fn open(&self) -> Opened {
        let opened = self.on.open().await;
        self.urls.lock().extend(opened.keep.as_ref().and_then(|keep| keep.downcast_ref::<String>()).cloned());
        opened
    }

    fn sequences(&self, plain: u64) -> u64 {
        self.on.sequences(plain)
    }

    async fn reopen(&self, opened: &Opened) -> Option<Arc<dyn Store>> {
        self.on.reopen(opened).await
    }
}
