//! Runs the cases: one test per case and store.

use crate::ctx::{Ctx, Factory};
use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// One behaviour of the contract.
#[derive(Clone, Copy)]
pub struct Case {
    /// `concern::behaviour`.
    pub name: &'static str,
    /// Panics when the store misbehaves.
    pub run: fn(Ctx) -> BoxFuture<'static, ()>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Lists the async functions of a module as its cases.
macro_rules! cases {
    ($concern:literal: $($name:ident),+ $(,)?) => {
        /// The cases of this concern.
        pub(crate) const CASES: &[$crate::runner::Case] = &[
            $($crate::runner::Case {
                name: concat!($concern, "::", stringify!($name)),
                run: |ctx| Box::pin($name(ctx)),
            }),+
        ];
    };
}
pub(crate) use cases;

/// All cases, in order.
pub fn all_cases() -> Vec<Case> {
    crate::cases::ALL.iter().flat_map(|concern| concern.iter().copied()).collect()
}

/// The main function of a store's test target: every case is a test of its own.
pub fn exercise(factory: impl Factory) {
    let arguments = Arguments::from_args();
    let factory: Arc<dyn Factory> = Arc::new(factory);
    let skips = factory.skips();
    let mut trials: Vec<Trial> = Vec::new();
    for case in all_cases() {
        let factory = Arc::clone(&factory);
        let skip = skips.iter().find(|skip| skip.case == case.name).map(|skip| skip.reason);
        trials.push(Trial::test(case.name, move || run(case, &factory, skip)));
    }
    for skip in skips {
        let known = all_cases().iter().any(|case| case.name == skip.case);
        let text = format!("the skipped case {} does not exist any more", skip.case);
        trials
            .push(Trial::test(format!("skips::{}", skip.case), move || if known { Ok(()) } else { Err(text.into()) }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A declared skip must still fail: one that passes is stale.
fn run(case: Case, factory: &Arc<dyn Factory>, skip: Option<&str>) -> Result<(), Failed> {
    let outcome = run_once(case, factory);
    match (skip, outcome) {
        (None, outcome) => outcome.map_err(Failed::from),
        (Some(_), Err(_)) => Ok(()),
        (Some(reason), Ok(())) => {
            Err(format!("passes, though it is declared as skipped ({reason}): remove the skip").into())
        }
    }
}

fn run_once(case: Case, factory: &Arc<dyn Factory>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let work = async {
        let ctx = Ctx::open(Arc::clone(factory)).await;
        (case.run)(ctx).await;
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)));
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
    })
}
