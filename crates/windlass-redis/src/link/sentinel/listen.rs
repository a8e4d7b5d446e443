//! Listens to one Sentinel: subscribes to its messages, and asks it about the service when a connection is made.
//!
//! The task lives as long as the link's thread. A Sentinel that cannot be reached is tried again and again, at once when a
//! question is asked, otherwise after a rest.

use super::Sentinels;
use super::message::{Announcement, CHANNELS, Replies, Report};
use crate::error::{self, incompatible, timeout, unavailable};
use crate::link::dial::{Login, OnPush, ask, client, connect_error, open};
use crate::link::wire::rest_up_to;
use crate::link::{Conn, Shared};
use crate::options::{Node, Topology};
use redis::{PushInfo, PushKind, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use windlass_core::random::Random;
use windlass_core::{Error, Result};

/// After this time without a message the Sentinel is asked: whether it is still there, and for what was missed.
const SILENCE: Duration = Duration::from_secs(5);
/// The longest rest between attempts.
const REST_MAX: Duration = Duration::from_secs(5);
/// How many messages wait to be handled.
const QUEUE: usize = 64;

/// How the address of a Sentinel became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Url,
    /// Another Sentinel has named it.
    Sentinel,
}

/// Begins to listen.
pub(super) fn spawn(shared: &Arc<Shared>, node: Node, origin: Origin) {
    // It ends with the link's thread.
    shared.at.spawn(watch(Arc::clone(shared), node, origin));
}

/// Why listening has ended.
enum End {
    Failed(Error),
    /// The same Sentinel is listened to under another address.
    Duplicate,
}

async fn watch(shared: Arc<Shared>, node: Node, origin: Origin) {
    let Some(sentinels) = &shared.sentinels else { return };
    let mut questions = sentinels.questions.subscribe();
    let mut failures = 0_u32;
    loop {
        let begun = shared.at.now();
        match listen(&shared, sentinels, &node, origin, &mut questions).await {
            End::Duplicate => {
                sentinels.remove(&node);
                return;
            }
            End::Failed(error) => {
                let error = shared.scrub(error);
                tracing::debug!(sentinel = %node, %error, "no connection to a Sentinel");
                let question = *questions.borrow_and_update();
                sentinels.answer(&shared, &node, question, Err(error));
                // Its address may be that of a Sentinel that was replaced by another one.
                let is_named = sentinels.state.lock().view.is_named(&node);
                if origin == Origin::Sentinel && !is_named {
                    sentinels.remove(&node);
                    return;
                }
            }
        }
        if shared.at.now().duration_since(begun) >= SILENCE {
            failures = 0;
        }
        let rest = rest_up_to(failures, shared.random.next_u64(), REST_MAX);
        failures = failures.saturating_add(1);
        // A question is answered without a rest.
        if let Ok(Err(_)) = tokio::time::timeout(rest, questions.changed()).await {
            return;
        }
    }
}

/// A connection to a Sentinel that is subscribed to.
struct Line {
    conn: Conn,
    announcements: mpsc::Receiver<Announcement>,
}

async fn listen(
    shared: &Arc<Shared>,
    sentinels: &Sentinels,
    node: &Node,
    origin: Origin,
    questions: &mut watch::Receiver<u64>,
) -> End {
    let limit = shared.options.connect_timeout;
    let mut line = match tokio::time::timeout(limit, subscribe(shared, node)).await {
        Ok(Ok(line)) => line,
        Ok(Err(error)) => return End::Failed(error),
        Err(_) => return End::Failed(error::at_sentinel(node, shared.too_late())),
    };
    let mut announced = None;
    loop {
        let question = *questions.borrow_and_update();
        let report = match tokio::time::timeout(limit, report(shared, &mut line.conn, node)).await {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => return End::Failed(error),
            Err(_) => return End::Failed(timeout(format!("the Sentinel {node} is silent"))),
        };
        let state = &sentinels.state;
        if origin == Origin::Sentinel && report.id.as_ref().is_some_and(|id| state.lock().view.has_id(id, node)) {
            return End::Duplicate;
        }
        if let Some(Announcement::Promoted(primary)) = announced.take() {
            // A message that is older than the report says less than it.
            let agrees = report.primary.as_ref() == Some(&primary);
            if agrees || report.epoch.is_none() {
                sentinels.announce(shared, node, &Announcement::Promoted(primary), report.epoch.filter(|_| agrees));
            }
        }
        for other in sentinels.answer(shared, node, question, Ok(report)) {
            spawn(shared, other, Origin::Sentinel);
        }
        announced = tokio::select! {
            announcement = line.announcements.recv() => announcement,
            // The sender lives as long as the link.
            _ = questions.changed() => None,
            () = line.conn.life.over() => {
                return End::Failed(unavailable(format!("the Sentinel {node} closed the connection")));
            }
            () = tokio::time::sleep(SILENCE) => None,
        };
    }
}

async fn subscribe(shared: &Arc<Shared>, node: &Node) -> Result<Line> {
    let Topology::Sentinel { service, sentinel_user, sentinel_password, .. } = &shared.options.topology else {
        return Err(unavailable("no Sentinels"));
    };
    let login = Login { username: sentinel_user.as_deref(), password: sentinel_password.as_ref(), db: 0 };
    let (sender, announcements) = mpsc::channel(QUEUE);
    let (service, weak, from) = (service.clone(), Arc::downgrade(shared), node.clone());
    let on_push: OnPush = Arc::new(move |push: PushInfo| {
        let Some(announcement) = read(&push, &service) else { return };
        if matches!(announcement, Announcement::Promoting { .. } | Announcement::Aborted { .. }) {
            // Not through the queue: a promotion follows within 100 ms, and an abort must not come after the next failover.
            if let Some(shared) = weak.upgrade()
                && let Some(sentinels) = &shared.sentinels
            {
                sentinels.announce(&shared, &from, &announcement, None);
            }
            return;
        }
        // If there is no room, the next report contains the same.
        let _ = sender.try_send(announcement);
    });
    let client = client(node, &login, shared.options.tls.as_ref())?;
    let connected = async {
        let mut conn = open(&client, node.clone(), Some(on_push)).await?;
        ask(&mut conn.mux, redis::cmd("SUBSCRIBE").arg(&CHANNELS), node).await?;
        Ok(conn)
    };
    let conn = connected.await.map_err(|error| error::at_sentinel(node, error))?;
    Ok(Line { conn, announcements })
}

fn read(push: &PushInfo, service: &str) -> Option<Announcement> {
    let [Value::BulkString(channel), Value::BulkString(message), ..] = push.data.as_slice() else { return None };
    if push.kind != PushKind::Message {
        return None;
    }
    Announcement::read(std::str::from_utf8(channel).ok()?, std::str::from_utf8(message).ok()?, service)
}

/// Asks a Sentinel about the service. All but the address of the primary may be refused by its access control list.
async fn report(shared: &Shared, conn: &mut Conn, node: &Node) -> Result<Report> {
    let Topology::Sentinel { service, .. } = &shared.options.topology else {
        return Err(unavailable("no Sentinels"));
    };
    let mut questions = redis::pipe();
    questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    questions.cmd("SENTINEL").arg("MYID");
    for name in ["MASTER", "REPLICAS", "SENTINELS"] {
        questions.cmd("SENTINEL").arg(name).arg(service);
    }
    let count = questions.len();
    let answers = conn.mux.send_packed_commands(&questions, 0, count).await;
    let answers = answers.map_err(|error| error::at_sentinel(node, connect_error(node, &error)))?;
    let mut answers = answers.into_iter();
    let primary = primary_of(answers.next().unwrap_or(Value::Nil), node, service)?;
    let mut next = || answers.next().filter(|answer| !matches!(answer, Value::ServerError(_)));
    let replies = Replies { id: next(), master: next(), replicas: next(), sentinels: next() };
    Ok(Report::of(primary, replies))
}

fn primary_of(answer: Value, node: &Node, service: &str) -> Result<Node> {
    let unreadable = || Error::corrupt(format!("the Sentinel {node} names no address"));
    match answer {
        Value::Array(address) => match address.as_slice() {
            [Value::BulkString(host), Value::BulkString(port)] => {
                let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
                Ok(Node::new(String::from_utf8_lossy(host), port.ok_or_else(unreadable)?))
            }
            _ => Err(unreadable()),
        },
        Value::Nil => Err(Error::invalid(
            "store",
            format!("the Sentinel {node} knows no service `{service}`; write the name of its `sentinel monitor` line"),
        )),
        Value::ServerError(error) => {
            let error = error::read(error.code(), error.details().unwrap_or("")).into_error();
            Err(match error {
                // No other server has the command.
                Error::Incompatible { .. } => incompatible(format!(
                    "{node} is not a Sentinel; write redis://{node} if the jobs are to be there, or the address of a Sentinel"
                )),
                other => error::at_sentinel(node, other),
            })
        }
        _ => Err(unreadable()),
    }
}
