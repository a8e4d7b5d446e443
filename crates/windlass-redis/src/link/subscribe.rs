//! The messages of one channel, on a connection of its own that is made again for as long as anybody listens.
//!
//! A message that is published while there is no connection is lost, as is one that finds the queue full. So every time
//! after which something may be missing begins with `Event::Subscribed`, and the listener then reads the state itself. From
//! `Event::Lost` to the next `Event::Subscribed` no message arrives.

use super::dial::{Errand, OnPush, dial};
use super::find::redirected;
use super::wire::rest_up_to;
use super::{Conn, Link, Shared};
use crate::error::{self, Refusal, timeout, unavailable};
use crate::options::Topology;
use bytes::Bytes;
use redis::{PushInfo, PushKind, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use windlass_core::random::Random;
use windlass_core::{Error, Result};

/// How many messages wait for a slow listener.
const QUEUE: usize = 1024;
/// After so long a silence the server is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(10);
/// How long it has for the answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// One that has lasted so long was no failure.
const SETTLED: Duration = Duration::from_secs(1);
/// The longest rest between attempts.
const REST_MAX: Duration = Duration::from_secs(5);

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Listening begins, or begins again: messages may have been missed before this.
    Subscribed,
    /// The subscription has ended. It is made again, and `Subscribed` follows.
    Lost,
    /// A message.
    Message(Bytes),
}

/// The messages of a channel, until it is dropped.
pub struct Subscription {
    events: mpsc::Receiver<Event>,
    task: AbortHandle,
    // Keeps the connections' thread.
    _link: Link,
}

impl Subscription {
    pub(super) fn new(link: Link, channel: String) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let task = link.at().spawn(listen(Arc::clone(&link.0.shared), channel, sender));
        Self { events, task, _link: link }
    }

    /// The next event; `None` when the link has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

/// What comes from the server unasked.
enum Push {
    Message(Bytes),
    /// The slot has gone, or the connection has.
    Over,
}

/// What is noted beside the queue, which may be full.
#[derive(Default)]
struct Notes {
    lagged: AtomicBool,
    over: AtomicBool,
}

async fn listen(shared: Arc<Shared>, channel: String, events: mpsc::Sender<Event>) {
    let mut failures = 0_u32;
    while !events.is_closed() {
        let notes = Arc::new(Notes::default());
        let (on_push, mut pushes) = receiver(&notes);
        let limit = shared.options.connect_timeout;
        let subscribed = tokio::time::timeout(limit, subscribe(&shared, &channel, on_push)).await;
        match subscribed.unwrap_or_else(|_| Err(unavailable("no subscription in time"))) {
            Ok(conn) => {
                if events.send(Event::Subscribed).await.is_err() {
                    return;
                }
                let begun = shared.at.now();
                let error = pass_on(&conn, &mut pushes, &notes, &events).await;
                tracing::debug!(%error, "a subscription has ended and begins again");
                if events.send(Event::Lost).await.is_err() {
                    return;
                }
                if shared.at.now().duration_since(begun) >= SETTLED {
                    failures = 0;
                }
                if failures == 0 {
                    // At once; one that is ended time and again is not.
                    failures = 1;
                    continue;
                }
            }
            Err(error) => tracing::debug!(%error, "no subscription"),
        }
        tokio::time::sleep(rest_up_to(failures, shared.random.next_u64(), REST_MAX)).await;
        failures = failures.saturating_add(1);
    }
}

/// Takes what the connection pushes into a queue with an end: when that is full, it is noted that something is missing.
fn receiver(notes: &Arc<Notes>) -> (OnPush, mpsc::Receiver<Push>) {
    let (sender, pushes) = mpsc::channel(QUEUE);
    let notes = Arc::clone(notes);
    let on_push = move |push: PushInfo| {
        let push = match push.kind {
            PushKind::Message | PushKind::SMessage => match push.data.into_iter().nth(1) {
                Some(Value::BulkString(text)) => Push::Message(text.into()),
                _ => return,
            },
            PushKind::Disconnection | PushKind::SUnsubscribe | PushKind::Unsubscribe => {
                notes.over.store(true, Ordering::Release);
                Push::Over
            }
            _ => return,
        };
        if sender.try_send(push).is_err() {
            notes.lagged.store(true, Ordering::Release);
        }
    };
    (Arc::new(on_push), pushes)
}

async fn subscribe(shared: &Arc<Shared>, channel: &str, on_push: OnPush) -> Result<Conn> {
    let conn = dial(shared, Errand { on_push: Some(on_push), ..Errand::default() }).await?;
    let name = match shared.options.topology {
        Topology::Cluster { .. } => "SSUBSCRIBE",
        Topology::Single { .. } | Topology::Sentinel { .. } => "SUBSCRIBE",
    };
    let mut subscribe = redis::cmd(name);
    subscribe.arg(channel);
    match conn.mux.clone().send_packed_command(&subscribe).await {
        Ok(Value::ServerError(error)) => {
            let refusal = error::read(error.code(), error.details().unwrap_or(""));
            if let Refusal::Moved(to) | Refusal::Ask(to) = &refusal {
                *shared.redirect.lock() = redirected(to, &conn.node);
            }
            Err(refusal.into_error())
        }
        Ok(_) => Ok(conn),
        Err(error) => Err(unavailable(format!("no subscription at {}: {error}", conn.node))),
    }
}

/// Passes messages on until the subscription is over, and tells why it is.
async fn pass_on(conn: &Conn, pushes: &mut mpsc::Receiver<Push>, notes: &Notes, events: &mpsc::Sender<Event>) -> Error {
    loop {
        if notes.over.load(Ordering::Acquire) {
            return unavailable("the server ended it");
        }
        let pushed = async {
            tokio::select! {
                biased;
                push = pushes.recv() => push,
                () = conn.life.over() => Some(Push::Over),
            }
        };
        let event = match tokio::time::timeout(SILENCE, pushed).await {
            Ok(Some(Push::Message(text))) => Event::Message(text),
            Ok(Some(Push::Over) | None) => return unavailable("the server ended it"),
            Err(_) => {
                let mut mux = conn.mux.clone();
                match tokio::time::timeout(PATIENCE, mux.send_packed_command(&redis::cmd("PING"))).await {
                    Ok(Ok(Value::ServerError(error))) => return unavailable(error.to_string()),
                    Ok(Ok(_)) => continue,
                    Ok(Err(error)) => return unavailable(error.to_string()),
                    Err(_) => return timeout("the server is silent"),
                }
            }
        };
        if events.send(event).await.is_err() {
            return unavailable("nobody listens");
        }
        if notes.lagged.swap(false, Ordering::AcqRel) && events.send(Event::Subscribed).await.is_err() {
            return unavailable("nobody listens");
        }
    }
}
