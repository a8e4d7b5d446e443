//! Hears from a Sentinel that another node is the primary now, and gives up connections to the one that was.
//!
//! A primary that is alive when the Sentinels replace it does not know: it takes writes for seconds, until it is told, and
//! then they are lost. So every connection to a primary has a task beside it that listens to one Sentinel, whichever
//! answers first. It ends with the connection. It trusts a Sentinel that is behind the others to say so once it has
//! caught up; until then it names the old primary, and is not believed against a switch that was heard of.

use super::dial::{Login, OnPush, ask, client, open};
use super::find::{primary, sentinels};
use super::wire::rest_up_to;
use super::{Conn, Shared};
use crate::error::unavailable;
use crate::options::{Node, Topology};
use futures::FutureExt;
use futures::future::select_ok;
use redis::{PushInfo, PushKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use windlass_core::Result;
use windlass_core::random::Random;

/// What Sentinels publish when they have another primary. The one that sees to the change publishes the first when the new
/// primary is one, and the second only when the replicas follow it, too; the others publish the second when they hear.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];
/// After so long a silence the Sentinel is asked whether it is still there, and the connection looked after.
const SILENCE: Duration = Duration::from_secs(5);
/// The longest rest between attempts.
const REST_MAX: Duration = Duration::from_secs(5);
/// More switches at once than there ever are.
const QUEUE: usize = 16;

/// Watches over a connection to a primary that Sentinels have named.
pub(super) fn guard(shared: &Arc<Shared>, conn: &Conn) {
    if !matches!(shared.options.topology, Topology::Sentinel { .. }) || shared.own.is_some() {
        return;
    }
    let (node, dead) = (Arc::clone(&conn.node), Arc::downgrade(&conn.dead));
    let task = watch(Arc::clone(shared), node, dead);
    // It knows by itself when to end.
    shared.at.spawn(task);
}

async fn watch(shared: Arc<Shared>, node: Arc<Node>, dead: Weak<AtomicBool>) {
    let mut failures = 0_u32;
    while is_alive(&dead) {
        let limit = shared.options.connect_timeout;
        let heard = tokio::time::timeout(limit, select_ok(sentinels(&shared).map(|at| listen(&shared, at).boxed())));
        if let Ok(Ok((mut line, _others))) = heard.await {
            failures = 0;
            if let Some(new) = until_switched(&shared, &mut line, &node, &dead).await {
                tracing::info!(old = %node, %new, "the Sentinels have another primary");
                *shared.told.lock() = Some(new);
                if let Some(dead) = dead.upgrade() {
                    dead.store(true, Ordering::Release);
                }
                return;
            }
        }
        tokio::time::sleep(rest_up_to(failures, shared.random.next_u64(), REST_MAX)).await;
        failures = failures.saturating_add(1);
    }
}

fn is_alive(dead: &Weak<AtomicBool>) -> bool {
    dead.upgrade().is_some_and(|dead| !dead.load(Ordering::Acquire))
}

/// What comes from a Sentinel unasked.
enum News {
    /// There may be another primary.
    Change,
    /// The connection is gone.
    Over,
}

/// A Sentinel that is listened to.
struct Line {
    conn: Conn,
    news: mpsc::Receiver<News>,
}

async fn listen(shared: &Shared, at: &Node) -> Result<Line> {
    let Topology::Sentinel { sentinel_user, sentinel_password, .. } = &shared.options.topology else {
        return Err(unavailable("no Sentinels"));
    };
    let login = Login { username: sentinel_user.as_deref(), password: sentinel_password.as_ref(), db: 0 };
    let (sender, news) = mpsc::channel(QUEUE);
    let on_push: OnPush = Arc::new(move |push: PushInfo| {
        let piece = match push.kind {
            PushKind::Message => News::Change,
            PushKind::Disconnection => News::Over,
            _ => return,
        };
        // When there is no room, there is enough to ask for.
        let _ = sender.try_send(piece);
    });
    let mut conn = open(&client(at, &login, shared.options.tls.as_ref())?, at.clone(), Some(on_push)).await?;
    ask(&mut conn.mux, redis::cmd("SUBSCRIBE").arg(&CHANNELS), at).await?;
    Ok(Line { conn, news })
}

/// The new primary; `None` when the Sentinel is silent or the connection is gone anyway.
async fn until_switched(shared: &Shared, line: &mut Line, node: &Node, dead: &Weak<AtomicBool>) -> Option<Node> {
    // What was published before we listened.
    let now = named(shared, line).await?;
    if now != *node && shared.switched.lock().as_ref() != Some(node) {
        return Some(now);
    }
    while is_alive(dead) {
        match tokio::time::timeout(SILENCE, line.news.recv()).await {
            Ok(Some(News::Change)) => {
                // Perhaps of another service; it is quick to ask.
                let new = named(shared, line).await?;
                if new != *node {
                    *shared.switched.lock() = Some(new.clone());
                    return Some(new);
                }
            }
            Ok(Some(News::Over) | None) => return None,
            Err(_) => drop(named(shared, line).await?),
        }
    }
    None
}

/// Whom this Sentinel names.
async fn named(shared: &Shared, line: &mut Line) -> Option<Node> {
    let at = Arc::clone(&line.conn.node);
    let asked = primary(shared, &mut line.conn.mux, &at);
    tokio::time::timeout(shared.options.connect_timeout, asked).await.ok()?.ok()
}
