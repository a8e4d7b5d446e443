//! The primary that Sentinels watch over: finds it, and ends connections to a primary that is being replaced.
//!
//! A primary that is alive when the Sentinels replace it goes on accepting writes for seconds, and loses them. So every
//! Sentinel of the service is listened to, on a connection of its own, for as long as the link exists (`listen.rs`). What they
//! publish and report is put together in one [`View`] (`view.rs`), which decides what is the primary and when connections
//! are fenced. A connection to the primary is registered, so that the next fence or switch ends it; one that was begun
//! before a fence is not accepted after it.
//!
//! It trusts that the Sentinel that leads a failover is heard before the promotion. If it is not, because it cannot be reached or
//! this process is stopped for that long, calls may be acknowledged by the old primary and lost; `wait_replicas=all` is for
//! those who cannot accept that.

mod listen;
mod message;
mod view;

use super::dial::{Errand, Greeting, greet_at};
use super::find::more_actionable;
use super::{Conn, Life, Shared};
use crate::error::unavailable;
use crate::options::{Node, Topology};
use message::{Announcement, Report};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use view::{Effect, View};
use windlass_core::{Error, Result};

/// How long the other Sentinels are waited for once one has answered: one of them may have a newer configuration. The first
/// connections of a link wait longer ([`Sentinels::answers`]).
const GRACE: Duration = Duration::from_millis(250);
/// How many nodes are tried one after the other, each named as the primary by the one before it.
const HOPS_MAX: usize = 3;
/// How often a connection is begun again because a failover came in between.
const TURNS_MAX: usize = 8;

/// The Sentinels of one link.
pub(super) struct Sentinels {
    service: String,
    state: Mutex<State>,
    /// The number of the last question, for the tasks that listen.
    questions: watch::Sender<u64>,
    /// Changes with the state.
    changes: watch::Sender<()>,
    is_started: AtomicBool,
}

#[derive(Default)]
struct State {
    view: View,
    /// Until when the first connections of the link wait for the answers of all Sentinels.
    first_answers_end: Option<Instant>,
    connections: Vec<Connection>,
}

struct Connection {
    life: Weak<Life>,
    node: Arc<Node>,
}

impl Sentinels {
    /// The Sentinels that a topology names; `None` for other topologies.
    pub(super) fn of(topology: &Topology) -> Option<Self> {
        let Topology::Sentinel { nodes, service, .. } = topology else { return None };
        let mut state = State::default();
        for node in nodes {
            state.view.add(node);
        }
        Some(Self {
            service: service.clone(),
            state: Mutex::new(state),
            questions: watch::Sender::new(0),
            changes: watch::Sender::new(()),
            is_started: AtomicBool::new(false),
        })
    }

    /// The replicas that must have a change before it counts as made by all of them.
    pub(super) fn replicas_up(&self) -> Result<u32> {
        self.state.lock().view.replicas_up().ok_or_else(|| {
            unavailable(
                "no Sentinel has reported its replicas (wait_replicas=all); start one, or grant its user +sentinel|replicas",
            )
        })
    }

    /// Listens to the Sentinels that the URL names, and from then on to those that they name.
    fn start(&self, shared: &Arc<Shared>) {
        if self.is_started.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Topology::Sentinel { nodes, .. } = &shared.options.topology {
            for node in nodes {
                listen::spawn(shared, node.clone(), listen::Origin::Url);
            }
        }
    }

    /// Changes the view, and ends the connections that must not be used any more.
    fn change(&self, change: impl FnOnce(&mut View) -> Effect) {
        let mut state = self.state.lock();
        let effect = change(&mut state.view);
        let replaced = |node: &Node| match &effect {
            Effect::Nothing => false,
            Effect::EndAll => true,
            Effect::EndOthers(primary) => node != primary,
        };
        state.connections.retain(|connection| {
            let Some(life) = connection.life.upgrade() else { return false };
            if replaced(&connection.node) {
                life.replace();
            }
            !life.is_over()
        });
        drop(state);
        match effect {
            Effect::Nothing => {}
            Effect::EndAll => tracing::info!(service = self.service, "a replica is about to be promoted"),
            Effect::EndOthers(primary) => tracing::info!(service = self.service, %primary, "there is a new primary"),
        }
        self.changes.send_replace(());
    }

    fn announce(&self, shared: &Shared, from: &Node, announcement: &Announcement, epoch: Option<u64>) {
        let now = shared.at.now();
        // Whatever the reports say: a node that is in use must not be used while it is being replaced.
        let in_use = match announcement {
            Announcement::Promoting { replaced } => Some(replaced).filter(|node| self.is_connected_to(node)),
            _ => None,
        };
        self.change(|view| match in_use {
            Some(replaced) => view.promoting(from, replaced, now),
            None => view.apply_announcement(from, announcement, epoch, now),
        });
    }

    fn is_connected_to(&self, node: &Node) -> bool {
        let is_open = |life: &Weak<Life>| life.upgrade().is_some_and(|life| !life.is_over());
        self.state.lock().connections.iter().any(|one| *one.node == *node && is_open(&one.life))
    }

    /// Ends all connections to a node that has answered that it is a replica: subscriptions do not notice it.
    pub(super) fn end_connections_to(&self, node: &Node) {
        for connection in self.state.lock().connections.iter().filter(|one| *one.node == *node) {
            if let Some(life) = connection.life.upgrade() {
                life.replace();
            }
        }
    }

    fn remove(&self, sentinel: &Node) {
        self.change(|view| {
            view.remove(sentinel);
            Effect::Nothing
        });
    }

    /// Takes the answer of a Sentinel. Returns the Sentinels that it named and that are not listened to yet.
    fn answer(&self, shared: &Shared, from: &Node, question: u64, result: Result<Report>) -> Vec<Node> {
        let now = shared.at.now();
        let others = result.as_ref().map(|report| report.others.clone()).unwrap_or_default();
        let mut added = Vec::new();
        self.change(|view| {
            added.extend(
                others.into_iter().filter(|(id, node)| !view.has_id(id, node) && view.add(node)).map(|(_, node)| node),
            );
            view.apply_answer(from, question, result, now)
        });
        added
    }

    /// True if the connection counts from now on; false if a failover has begun since that generation.
    fn register(&self, conn: &Conn, generation: u64) -> bool {
        let mut state = self.state.lock();
        let is_current = state.view.generation() == generation;
        if is_current {
            state.connections.push(Connection { life: Arc::downgrade(&conn.life), node: Arc::clone(&conn.node) });
        }
        is_current
    }

    /// Waits until no failover forbids a connection; returns the generation.
    async fn unfenced(&self, shared: &Shared) -> u64 {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let (fence, generation) = {
                let state = self.state.lock();
                (state.view.fence(shared.at.now()), state.view.generation())
            };
            let Some(ends) = fence else { return generation };
            let _ = tokio::time::timeout_at(ends, changes.changed()).await;
        }
    }

    /// Begins a question to all Sentinels.
    fn ask(&self) -> u64 {
        let question = self.state.lock().view.ask();
        self.questions.send_replace(question);
        question
    }

    /// Waits for answers: for the first as long as it takes, for the others [`GRACE`] longer. A new link has heard no
    /// announcement of a failover that is under way: it waits for a third of the time that a connection may take, in case
    /// the Sentinel with the newer configuration answers late.
    async fn answers(&self, shared: &Shared, question: u64) -> Result<()> {
        let mut changes = self.changes.subscribe();
        let first_end = *self
            .state
            .lock()
            .first_answers_end
            .get_or_insert_with(|| shared.at.now() + shared.options.connect_timeout / 3);
        let mut answers_end = None;
        loop {
            changes.mark_unchanged();
            let (open, reported) = self.state.lock().view.progress(question);
            match (open, reported) {
                (0, 0) => return Err(self.no_primary()),
                (0, _) => return Ok(()),
                (_, 0) => drop(changes.changed().await),
                _ => {
                    let end = *answers_end.get_or_insert_with(|| first_end.max(shared.at.now() + GRACE));
                    if tokio::time::timeout_at(end, changes.changed()).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The next candidate that was not tried; waits for late answers as long as there is none. `None` when all have answered.
    async fn next_candidate(&self, shared: &Shared, question: u64, tried: &[Node]) -> Option<Node> {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let (candidates, open) = {
                let view = &self.state.lock().view;
                (view.candidates(shared.at.now()), view.progress(question).0)
            };
            match candidates.into_iter().find(|node| !tried.contains(node)) {
                Some(node) => return Some(node),
                None if open == 0 => return None,
                None => drop(changes.changed().await),
            }
        }
    }

    fn no_primary(&self) -> Error {
        self.state.lock().view.error().unwrap_or_else(|| unavailable("no Sentinel has named a primary"))
    }
}

/// Connects to the primary. The caller bounds the time.
pub(super) async fn dial(shared: &Arc<Shared>, sentinels: &Sentinels, errand: &Errand<'_>) -> Result<Conn> {
    sentinels.start(shared);
    let mut last = unavailable("the Sentinels replace one primary after another");
    for _ in 0..TURNS_MAX {
        let generation = sentinels.unfenced(shared).await;
        match dial_primary(shared, sentinels, errand).await {
            Ok(conn) if sentinels.register(&conn, generation) => return Ok(conn),
            Ok(conn) => conn.life.replace(),
            Err(error) if sentinels.state.lock().view.generation() == generation => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Tries the primary that was announced, and then those that the Sentinels name.
async fn dial_primary(shared: &Arc<Shared>, sentinels: &Sentinels, errand: &Errand<'_>) -> Result<Conn> {
    // One node that does not answer must leave time for the others.
    let limit = shared.options.connect_timeout / 3;
    let mut tried = Vec::new();
    let announced = sentinels.state.lock().view.announced(shared.at.now());
    if let Some(node) = announced
        && let Ok(Ok(conn)) = tokio::time::timeout(limit, follow(shared, errand, node, &mut tried)).await
    {
        return Ok(conn);
    }
    // The announced one may be the only one there is.
    tried.clear();
    let question = sentinels.ask();
    sentinels.answers(shared, question).await?;
    let mut error = None;
    while let Some(node) = sentinels.next_candidate(shared, question, &tried).await {
        let is_last = sentinels.state.lock().view.candidates(shared.at.now()).len() == 1;
        let limit = if is_last { shared.options.connect_timeout } else { limit };
        let failed = match tokio::time::timeout(limit, follow(shared, errand, node.clone(), &mut tried)).await {
            Ok(Ok(conn)) => return Ok(conn),
            Ok(Err(failed)) => failed,
            Err(_) => unavailable(format!("{node} does not answer")),
        };
        error = Some(match error {
            Some(error) => more_actionable(error, failed),
            None => failed,
        });
    }
    Err(error.unwrap_or_else(|| sentinels.no_primary()))
}

/// Connects to a node. If it is a replica, to the primary that it copies from: after a failover that the Sentinels did not
/// make they name the old primary for a while.
async fn follow(shared: &Arc<Shared>, errand: &Errand<'_>, node: Node, tried: &mut Vec<Node>) -> Result<Conn> {
    let mut next = node;
    for _ in 0..HOPS_MAX {
        let node = next;
        if tried.contains(&node) {
            break;
        }
        tried.push(node.clone());
        match greet_at(shared, node.clone(), errand).await? {
            Greeting::Ready(conn) => return Ok(conn),
            Greeting::Replica { primary: Some(primary) } => next = primary,
            Greeting::Replica { primary: None } => return Err(unavailable(format!("{node} is a replica"))),
        }
    }
    Err(unavailable("the nodes that the Sentinels name are replicas of each other"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::options::Options;

    fn begin_failover(sentinels: &Sentinels, shared: &Shared, replaced: &Node) {
        let promoting = Announcement::Promoting { replaced: replaced.clone() };
        sentinels.announce(shared, &Node::new("127.0.0.1", 1), &promoting, None);
    }

    #[tokio::test]
    async fn connections_are_ended_by_a_failover_and_accepted_only_if_none_has_begun() {
        let server = windlass_servers::Redis::start().unwrap();
        let link = Link::open(Options::from_url(&server.url()).unwrap(), &[]).unwrap();
        let shared = &link.0.shared;
        let options = Options::from_url("redis+sentinel://127.0.0.1:1/main").unwrap();
        let sentinels = Sentinels::of(&options.topology).unwrap();
        let connect = async || {
            greet_at(shared, Node::new("127.0.0.1", server.port()), &Errand::default()).await.unwrap().ready().unwrap()
        };
        let (first, second) = (connect().await, connect().await);
        let generation = sentinels.unfenced(shared).await;
        assert!(sentinels.register(&first, generation));
        // A node that is in use is fenced although no Sentinel has reported it as the primary.
        let other = Report { primary: Some(Node::new("127.0.0.1", 9)), epoch: Some(9), ..Report::default() };
        sentinels.answer(shared, &Node::new("127.0.0.1", 1), 0, Ok(other));
        begin_failover(&sentinels, shared, &Node::new("127.0.0.1", 8));
        assert!(!first.is_over(), "the failover of another node");
        begin_failover(&sentinels, shared, &first.node);
        assert!(first.life.is_replaced());
        assert!(!sentinels.register(&second, generation), "it was begun before the failover");
        // The end of the failover lets connections be made again.
        let aborted = Announcement::Aborted { replaced: Node::clone(&first.node) };
        sentinels.announce(shared, &Node::new("127.0.0.1", 1), &aborted, None);
        let generation = sentinels.unfenced(shared).await;
        assert!(sentinels.register(&second, generation));
        sentinels.end_connections_to(&Node::new("127.0.0.1", 8));
        assert!(!second.is_over());
        sentinels.end_connections_to(&second.node);
        assert!(second.life.is_replaced());
    }
}
