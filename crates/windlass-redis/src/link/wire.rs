//! One connection, made when it is needed and made again when it is gone.
//!
//! States: there is a connection; there is none; there is none and an attempt is under way, for which everybody waits
//! together. A connection that breaks says so itself (`Conn::is_over`); one that does not answer is given up by the caller
//! who waited. It trusts that an attempt ends: the attempt is bounded in time, and should its task be lost, a guard
//! clears the state, so that the next caller begins another.

use super::dial::{Errand, dial};
use super::{Conn, Shared};
use crate::error::unavailable;
use crate::options::Node;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_core::Result;
use windlass_core::random::Random;

/// The rest after the first failed attempt, and after many.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(1);

type Attempt = futures::future::Shared<BoxFuture<'static, Result<Conn>>>;

#[derive(Default)]
struct State {
    current: Option<Conn>,
    attempt: Option<Attempt>,
    failures: u32,
    rest_until: Option<Instant>,
}

/// One connection to the server that the store lives on, or to one node.
pub(super) struct Wire {
    shared: Arc<Shared>,
    fixed: Option<Node>,
    /// Its calls wait for replicas.
    durable: bool,
    state: Arc<Mutex<State>>,
}

impl Wire {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, fixed: None, durable: false, state: Arc::default() }
    }

    /// For calls that wait for replicas.
    pub(super) fn durable(shared: Arc<Shared>) -> Self {
        Self { durable: true, ..Self::new(shared) }
    }

    /// To this node and no other.
    pub(super) fn to(shared: Arc<Shared>, node: Node) -> Self {
        Self { fixed: Some(node), ..Self::new(shared) }
    }

    /// The node it is bound to.
    pub(super) fn node(&self) -> Option<&Node> {
        self.fixed.as_ref()
    }

    /// The connection; waits for one for at most the connect timeout. However many ask, there is one attempt.
    pub(super) async fn get(&self) -> Result<Conn> {
        let attempt = {
            let mut state = self.state.lock();
            match &state.current {
                Some(conn) if !conn.is_over() => return Ok(conn.clone()),
                _ => state.current = None,
            }
            match &state.attempt {
                Some(attempt) => attempt.clone(),
                None => self.begin(&mut state),
            }
        };
        let limit = self.shared.options.connect_timeout;
        match self.shared.at.timeout(limit, attempt).await {
            Some(Ok(conn)) if conn.life.is_replaced() => {
                Err(unavailable(format!("{} is being replaced by another primary", conn.node)))
            }
            Some(Ok(conn)) if conn.is_over() => {
                Err(unavailable(format!("{} closed the connection at once", conn.node)))
            }
            Some(result) => result,
            None => Err(self.shared.too_late()),
        }
    }

    /// Gives a connection up: the next caller makes another. Calls that are under way on it may still be answered.
    pub(super) fn retire(&self, conn: &Conn) {
        let mut state = self.state.lock();
        if state.current.as_ref().is_some_and(|current| current.is(conn)) {
            state.current = None;
        }
    }

    fn begin(&self, state: &mut State) -> Attempt {
        let (done, result) = oneshot::channel();
        let attempt =
            async move { result.await.unwrap_or_else(|_| Err(unavailable("the connections' thread has ended"))) };
        let attempt = attempt.boxed().shared();
        state.attempt = Some(attempt.clone());
        let clear = Clear { state: Arc::clone(&self.state), result: None };
        let (shared, fixed, durable) = (Arc::clone(&self.shared), self.fixed.clone(), self.durable);
        let rest_until = state.rest_until;
        self.shared.at.spawn(async move {
            let mut clear = clear;
            if let Some(until) = rest_until {
                tokio::time::sleep_until(until).await;
            }
            let limit = shared.options.connect_timeout;
            let errand = Errand { node: fixed.as_ref(), durable, on_push: None };
            let result = match tokio::time::timeout(limit, dial(&shared, errand)).await {
                Ok(result) => result,
                Err(_) => Err(shared.too_late()),
            };
            if let Err(error) = &result {
                tracing::debug!(%error, "no connection to the store");
            }
            let rest_until = shared.at.now() + rest(clear.state.lock().failures, shared.random.next_u64());
            clear.result = Some((result.clone(), rest_until));
            drop(clear);
            let _ = done.send(result);
        });
        attempt
    }
}

/// Ends an attempt in the state, also when its task is dropped half-way.
struct Clear {
    state: Arc<Mutex<State>>,
    result: Option<(Result<Conn>, Instant)>,
}

impl Drop for Clear {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.attempt = None;
        match self.result.take() {
            Some((Ok(conn), _)) => {
                state.current = Some(conn);
                state.failures = 0;
                state.rest_until = None;
            }
            Some((Err(_), until)) => {
                state.failures = state.failures.saturating_add(1);
                state.rest_until = Some(until);
            }
            None => {}
        }
    }
}

/// How long to rest after so many failures before this one: doubling, between a half and the whole of it.
pub(super) fn rest(failures: u32, random: u64) -> Duration {
    rest_up_to(failures, random, REST_MAX)
}

/// The same, with another upper bound.
pub(super) fn rest_up_to(failures: u32, random: u64, max: Duration) -> Duration {
    let whole = REST_MIN.saturating_mul(1 << failures.min(10)).min(max);
    let half = whole / 2;
    let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_micros(random % micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_up_to_a_second_and_differ() {
        assert!(rest(0, 0) == REST_MIN / 2 && rest(0, u64::MAX) < REST_MIN);
        assert!(rest(3, 0) == REST_MIN * 4);
        assert!(rest(u32::MAX, 0) == REST_MAX / 2 && rest(u32::MAX, 499_999) < REST_MAX);
        assert_eq!(rest_up_to(99, 0, Duration::from_secs(5)), Duration::from_millis(2500));
    }
}
