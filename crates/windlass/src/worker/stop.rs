//! When a worker stops: once asked it drains, asked again or after its deadline it goes at once.

use std::time::Duration;
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    #[default]
    GoOn,
    Drain,
    AtOnce,
}

/// Stops a worker. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Wish>);

impl Stopper {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Wish::GoOn))
    }

    /// No new jobs; those that were started are finished, as long as the worker's drain time lasts.
    pub fn drain(&self) {
        self.wish(Wish::Drain);
    }

    /// Whatever was started is told to stop, and is given back.
    pub fn stop_now(&self) {
        self.wish(Wish::AtOnce);
    }

    fn wish(&self, wish: Wish) {
        self.0.send_if_modified(|now| {
            let more = wish > *now;
            *now = wish.max(*now);
            more
        });
    }

    pub(super) fn watch(&self, drain: Duration) -> StopWatch {
        StopWatch { wish: self.0.subscribe(), drain, seen: Wish::GoOn, deadline: None }
    }
}

/// What the pump looks at.
#[derive(Debug)]
pub(super) struct StopWatch {
    wish: watch::Receiver<Wish>,
    drain: Duration,
    seen: Wish,
    deadline: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
}

impl StopWatch {
    /// Returns when there is more haste than before.
    pub(super) async fn changed(&mut self, leaving: bool) {
        if leaving && self.deadline.is_none() {
            self.deadline = Some(Box::pin(tokio::time::sleep(self.drain)));
        }
        let (seen, wish) = (self.seen, &mut self.wish);
        let asked = async {
            let asked = wish.wait_for(|now| *now > seen).await.ok().map(|now| *now);
            match asked {
                Some(wish) => wish,
                // Nobody can ask any more.
                None => std::future::pending().await,
            }
        };
        let late = async {
            match &mut self.deadline {
                Some(deadline) if seen < Wish::AtOnce => deadline.await,
                _ => std::future::pending().await,
            }
        };
        self.seen = tokio::select! {
            wish = asked => wish,
            () = late => Wish::AtOnce,
        };
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.seen == Wish::AtOnce
    }
}
