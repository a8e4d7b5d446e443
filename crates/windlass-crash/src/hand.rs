//! What a worker and an enqueuer have in common, be they processes of their own or tasks of one.

use crate::args::Bug;
use crate::child::{Dice, pass_ms};
use crate::watch::Watch;
use crate::{Error, Result};
use std::sync::Arc;
use windlass_audit::{Book, Ledger};
use windlass_core::store::Store;

/// How long somebody waits whom the store has turned away.
const TURNED_AWAY_MS: u64 = 10;

/// Somebody who works on a store and writes down what it does.
pub(crate) struct Hand {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Ledger,
    pub(crate) dice: Dice,
    pub(crate) bug: Option<Bug>,
    pub(crate) watch: Arc<Watch>,
    /// How long a worker waits that found nothing.
    pub(crate) idle_ms: u64,
}

impl Hand {
    /// A task among others that share a book and a watch. It does not wait when it finds nothing.
    pub(crate) fn of_task(name: String, store: Arc<dyn Store>, seed: u64, (book, watch): (&Book, &Arc<Watch>)) -> Self {
        let (ledger, dice) = (Ledger::Shared(Arc::clone(book)), Dice::new(seed));
        Self { name, store, ledger, dice, bug: None, watch: Arc::clone(watch), idle_ms: 0 }
    }

    /// Asks until there is an answer. Only errors that may pass are asked again, with the same ids, so that no answer
    /// can get lost.
    pub(crate) async fn insist<T, F>(&self, call: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = windlass_core::Result<T>>,
    {
        loop {
            let answer = {
                let _passage = self.watch.pass().await;
                call().await
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) if self.watch.is_repeated(&error) => self.watch.count(&error),
                Err(error) => return Err(error.into()),
            }
            pass_ms(TURNED_AWAY_MS).await;
        }
    }
}
