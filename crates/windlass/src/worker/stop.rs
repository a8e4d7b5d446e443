//! When a worker stops: once asked it drains; asked again, or after its deadline, it goes at once; and whoever does not
//! let go even then is left behind.

use std::pin::Pin;
use std::time::Duration;
use tokio::sync::watch;

/// How long handlers that were told to go may take. An async one ends where it awaits; only one that blocks its thread
/// needs any time at all.
const LET_GO: Duration = Duration::from_secs(1);
/// How long the store is given to hear the last outcomes.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(4);

/// How much haste there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Haste {
    #[default]
    No,
    /// No new jobs; those that were started are finished.
    Drain,
    /// Those that were started are told to stop, and given back.
    AtOnce,
    /// Those that do not stop are given back and left behind.
    Abandon,
    /// Nothing is waited for any more.
    Gone,
}

/// Stops a worker. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Haste>);

impl Stopper {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Haste::No))
    }

    /// No new jobs; those that were started are finished, as long as the worker's drain time lasts.
    pub fn drain(&self) {
        self.ask(Haste::Drain);
    }

    /// Whatever was started is told to stop, and is given back.
    pub fn stop_now(&self) {
        self.ask(Haste::AtOnce);
    }

    /// Asks for haste, if there is less.
    pub(super) fn ask(&self, haste: Haste) {
        self.0.send_if_modified(|now| {
            let more = haste > *now;
            *now = haste.max(*now);
            more
        });
    }

    pub(super) fn watch(&self, drain: Duration) -> StopWatch {
        StopWatch { asked: self.0.subscribe(), drain, haste: Haste::No, deadline: None }
    }
}

/// What was asked for, and what follows of itself when its time is over.
#[derive(Debug)]
pub(super) struct StopWatch {
    asked: watch::Receiver<Haste>,
    drain: Duration,
    haste: Haste,
    /// When there is more haste by itself.
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl StopWatch {
    /// Returns when there is more haste than before.
    pub(super) async fn changed(&mut self) -> Haste {
        let (now, asked) = (self.haste, &mut self.asked);
        let asked = async {
            let more = asked.wait_for(|asked| *asked > now).await.ok().map(|more| *more);
            match more {
                Some(haste) => haste,
                // Nobody can ask any more.
                None => std::future::pending().await,
            }
        };
        let late = async {
            match &mut self.deadline {
                Some(deadline) => deadline.await,
                None => std::future::pending().await,
            }
        };
        let next = tokio::select! {
            haste = asked => haste,
            () = late => after(now),
        };
        self.haste = next;
        self.deadline = self.patience(next).map(|time| Box::pin(tokio::time::sleep(time)));
        next
    }

    fn patience(&self, haste: Haste) -> Option<Duration> {
        match haste {
            Haste::Drain => Some(self.drain),
            Haste::AtOnce => Some(LET_GO),
            Haste::Abandon => Some(LAST_WORDS),
            Haste::No | Haste::Gone => None,
        }
    }
}

fn after(haste: Haste) -> Haste {
    match haste {
        Haste::No => Haste::Drain,
        Haste::Drain => Haste::AtOnce,
        Haste::AtOnce => Haste::Abandon,
        Haste::Abandon | Haste::Gone => Haste::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn haste_only_grows_and_grows_by_itself_once_it_has_begun() {
        let stopper = Stopper::new();
        let mut watch = stopper.watch(Duration::from_secs(25));
        stopper.drain();
        assert_eq!(watch.changed().await, Haste::Drain);
        stopper.stop_now();
        stopper.drain();
        assert_eq!(watch.changed().await, Haste::AtOnce, "asking for less changes nothing");
        assert_eq!(watch.changed().await, Haste::Abandon);
        assert_eq!(watch.changed().await, Haste::Gone);
    }
}
