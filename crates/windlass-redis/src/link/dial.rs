//! Makes connections: finds the server, opens a connection to it, and sees that a store can live there.
//! Runs on the connections' thread; the caller bounds the time.

use super::check::{Verdict, judge, lacks_replicas};
use super::find;
use super::rights;
use super::sentinel;
use super::{Conn, Life, Purpose, Script, Shared};
use crate::error::{self, incompatible, unavailable};
use crate::keys::Keys;
use crate::options::{Node, Secret, Tls, Topology};
use crate::scripts;
use crate::whole;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, RedisError, TlsCertificates, Value,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass_core::{Error, Result};

/// How many calls may wait for the socket, beyond those that are in its buffers.
const CALLS_QUEUED_MAX: usize = 4096;
/// How much is written before the socket is waited for: many small calls in one write.
const WRITE_BYTES: usize = 1 << 20;
/// How often a server is asked whether it has loaded its data.
const LOADING_PAUSE: Duration = Duration::from_millis(100);

/// How a certificate begins.
const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// What takes the messages that come unasked.
pub(super) type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// Whom to be at a server.
pub(super) struct Login<'a> {
    pub(super) username: Option<&'a str>,
    pub(super) password: Option<&'a Secret>,
    pub(super) db: u32,
}

/// What a connection is made for.
#[derive(Default)]
pub(super) struct Errand<'a> {
    /// To this node, instead of the one that the store lives on now.
    pub(super) node: Option<&'a Node>,
    /// For calls that wait for replicas.
    pub(super) durable: bool,
    /// For messages: it makes no calls.
    pub(super) on_push: Option<OnPush>,
}

/// A server that was connected to.
pub(super) enum Greeting {
    /// It is the primary, and the store can live there.
    Ready(Conn),
    /// It is a replica, of this node as far as it says.
    Replica { primary: Option<Node> },
}

impl Greeting {
    /// The connection; where a replica is no way to the primary, an error.
    pub(super) fn ready(self) -> Result<Conn> {
        match self {
            Self::Ready(conn) => Ok(conn),
            Self::Replica { .. } => Err(unavailable("the server is a replica; the primary is asked for again")),
        }
    }
}

/// Connects to the server that the store lives on, wherever it is now; or to one node.
pub(super) async fn dial(shared: &Arc<Shared>, errand: Errand<'_>) -> Result<Conn> {
    let dialed = async {
        match (&shared.own, errand.node, &shared.options.topology, &shared.sentinels) {
            (Some(client), ..) => {
                let conn = open(client, own_node(client), errand.on_push.clone()).await?;
                greet(shared, conn, &errand).await?.ready()
            }
            (None, Some(node), ..) | (None, None, Topology::Single { node, .. }, _) => {
                greet_at(shared, node.clone(), &errand).await?.ready()
            }
            (None, None, Topology::Sentinel { .. }, Some(sentinels)) => {
                sentinel::dial(shared, sentinels, &errand).await
            }
            (None, None, Topology::Sentinel { .. }, None) => Err(unavailable("there are no Sentinels to ask")),
            (None, None, Topology::Cluster { nodes }, _) => find::dial_owner(shared, nodes, &errand).await,
        }
    };
    dialed.await.map_err(|error| shared.scrub(error))
}

/// Connects to a node, and sees whether the store can live there.
pub(super) async fn greet_at(shared: &Shared, node: Node, errand: &Errand<'_>) -> Result<Greeting> {
    let conn = dial_node(shared, node, errand.on_push.clone()).await?;
    let life = Arc::clone(&conn.life);
    let greeting = greet(shared, conn, errand).await;
    if !matches!(greeting, Ok(Greeting::Ready(_))) {
        // The end of a connection that is not used must not look like the end of one that is.
        life.break_off();
    }
    greeting
}

async fn dial_node(shared: &Shared, node: Node, on_push: Option<OnPush>) -> Result<Conn> {
    let options = &shared.options;
    let login = Login {
        username: options.username.as_deref(),
        password: options.password.as_ref(),
        db: find::db(&options.topology),
    };
    open(&client(&node, &login, options.tls.as_ref())?, node, on_push).await
}

/// A client for a node.
pub(super) fn client(node: &Node, login: &Login<'_>, tls: Option<&Tls>) -> Result<Client> {
    let (host, port) = (node.host.clone(), node.port);
    if tls.is_some() && rustls::crypto::CryptoProvider::get_default().is_none() {
        // The library panics without one. If another part of the program was quicker, its choice is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let addr = match tls {
        None => ConnectionAddr::Tcp(host, port),
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let mut settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("windlass", env!("CARGO_PKG_VERSION"))
        .set_db(i64::from(login.db));
    if let Some(username) = login.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = login.password {
        settings = settings.set_password(password.reveal());
    }
    let wrong = |error: RedisError| connect_error(node, &error);
    let info = addr.into_connection_info().map_err(wrong)?.set_tcp_settings(tcp()).set_redis_settings(settings);
    match tls.and_then(|tls| tls.ca.as_ref()) {
        None => Client::open(info).map_err(wrong),
        Some(file) => {
            let pem = std::fs::read(file).map_err(|error| {
                Error::invalid("store", format!("the authority's file {} cannot be read: {error}", file.display()))
            })?;
            // The library would take it for a file that trusts nobody.
            if !pem.windows(PEM.len()).any(|window| window == PEM) {
                let text = format!("{} holds no certificate in PEM form (tls_ca)", file.display());
                return Err(Error::invalid("store", text));
            }
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
            Client::build_with_tls(info, certificates).map_err(|error| {
                Error::invalid("store", format!("{} holds no certificates in PEM form: {error}", file.display()))
            })
        }
    }
}

/// The user's own client, as it is but for the protocol, which we depend on.
pub(super) fn own(client: &Client) -> Result<Client> {
    let info: ConnectionInfo = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Client::open(info.set_redis_settings(settings)).map_err(|error| connect_error(&own_node(client), &error))
}

fn own_node(client: &Client) -> Node {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Node::new(host.clone(), *port),
        other => Node::new(other.to_string(), 0),
    }
}

fn tcp() -> TcpSettings {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5)).with_retries(3);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

/// Opens a connection and lets the server know us.
pub(super) async fn open(client: &Client, node: Node, on_push: Option<OnPush>) -> Result<Conn> {
    let life = Arc::new(Life::default());
    let of_pushes = Arc::clone(&life);
    // Waits are bounded by the callers, on their own terms.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(CALLS_QUEUED_MAX)
        .set_write_backpressure_boundary(WRITE_BYTES)
        .set_push_sender(move |push: PushInfo| {
            let is_end = push.kind == PushKind::Disconnection;
            if let Some(on_push) = &on_push
                && !of_pushes.is_over()
            {
                on_push(push);
            }
            if is_end {
                of_pushes.break_off();
            }
            Ok::<(), ()>(())
        });
    match client.get_multiplexed_async_connection_with_config(&config).await {
        Ok(mux) => Ok(Conn { mux, life, node: Arc::new(node) }),
        Err(error) => Err(match connect_error(&node, &error) {
            Error::Unavailable { reason } => unavailable(format!("{reason}{}", encryption_hint(client, &error))),
            other => other,
        }),
    }
}

/// What to write when the two sides do not agree about encryption: each takes what the other says for nonsense.
fn encryption_hint(client: &Client, error: &RedisError) -> &'static str {
    let said = error.to_string();
    let nonsense = error.is_connection_dropped() || said.contains("corrupt message");
    match client.get_connection_info().addr() {
        _ if !nonsense || error.is_connection_refusal() => "",
        ConnectionAddr::Tcp(..) => "; if the server speaks TLS, write rediss:// instead of redis://, or tls=true",
        ConnectionAddr::TcpTls { .. } => {
            "; if the server speaks no TLS, write redis:// instead of rediss://, or leave out tls=true"
        }
        _ => "",
    }
}

/// Sees that a store can live there and its user may do all that it does, and leaves our scripts.
async fn greet(shared: &Shared, conn: Conn, errand: &Errand<'_>) -> Result<Greeting> {
    let options = &shared.options;
    let scripts = if errand.on_push.is_some() { &[] } else { shared.scripts };
    let asks = shared.purpose == Purpose::Work && !scripts.is_empty();
    let mut mux = conn.mux.clone();
    loop {
        let mut hello = redis::pipe();
        hello.cmd("INFO").cmd("HGET").arg(Keys::new(&options.prefix).meta()).arg("layout");
        hello.cmd("SCRIPT").arg("EXISTS").arg("none");
        for script in scripts {
            hello.arg(script.sha());
        }
        if asks {
            hello.add_command(rights::question(options));
            let mut words = whole::question(&Keys::new(&options.prefix)).into_iter();
            let mut look = redis::cmd(&words.next().unwrap_or_default());
            for word in words {
                look.arg(word);
            }
            hello.add_command(look);
        }
        let count = hello.len();
        let answers =
            mux.send_packed_commands(&hello, 0, count).await.map_err(|error| connect_error(&conn.node, &error))?;
        let mut answers = answers.into_iter();
        let info = text(answers.next().unwrap_or(Value::Nil))?;
        match judge(&info, shared.purpose, options) {
            Verdict::Ready => {
                check_layout(answers.next())?;
                let known = answers.next();
                rights::judge(answers.next(), options)?;
                whole::check(answers.next().as_ref())?;
                if errand.durable && shared.purpose == Purpose::Work {
                    check_replicas(shared, &info)?;
                }
                leave_scripts(&conn, scripts, known).await?;
                return Ok(Greeting::Ready(conn));
            }
            Verdict::Loading => tokio::time::sleep(LOADING_PAUSE).await,
            Verdict::Replica { primary } => return Ok(Greeting::Replica { primary }),
            Verdict::Refused(error) => return Err(error),
        }
    }
}

/// Refuses calls that would wait for replicas that are not there. They may come and go while a store is open; where
/// nothing ever changes them by itself, that there never were enough is a slip.
fn check_replicas(shared: &Shared, info: &str) -> Result<()> {
    match lacks_replicas(info, &shared.options) {
        None => shared.had_replicas.store(true, Ordering::Relaxed),
        Some(text) => {
            let single = matches!(shared.options.topology, Topology::Single { .. });
            let slip = single && !shared.had_replicas.load(Ordering::Relaxed);
            return Err(if slip { incompatible(text) } else { unavailable(text) });
        }
    }
    Ok(())
}

/// Leaves the scripts that the server does not have: all together they are a megabyte, and most connections are not the
/// first. `known` answers for each, after one that nobody has.
async fn leave_scripts(conn: &Conn, scripts: &[Script], known: Option<Value>) -> Result<()> {
    let known = if let Some(Value::Array(known)) = known { known } else { Vec::new() };
    let is_known = |at: usize| matches!(known.get(at + 1), Some(Value::Int(1)));
    let mut load = redis::pipe();
    let mut count = 0;
    for (_, script) in scripts.iter().enumerate().filter(|(at, _)| !is_known(*at)) {
        load.add_command(script.load());
        count += 1;
    }
    if count > 0 {
        // One that could not be left is left again when it is called, and the call tells what is wrong.
        let mut mux = conn.mux.clone();
        mux.send_packed_commands(&load, 0, count).await.map_err(|error| connect_error(&conn.node, &error))?;
    }
    Ok(())
}

/// Refuses a store of a newer version. One that says nothing is new, or is told by another node or at the first call.
fn check_layout(answer: Option<Value>) -> Result<()> {
    let Some(Value::BulkString(layout)) = answer else { return Ok(()) };
    let layout = String::from_utf8_lossy(&layout);
    match layout.parse::<u32>() {
        Ok(number) if number > scripts::LAYOUT => Err(error::newer_layout(&layout)),
        _ => Ok(()),
    }
}

/// A text, in whichever of its forms.
pub(super) fn text(value: Value) -> Result<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Ok(text),
        Value::ServerError(error) => Err(error::read(error.code(), error.details().unwrap_or("")).into_error()),
        _ => Err(incompatible("the server does not tell about itself")),
    }
}

/// Sends one command on a connection that nobody else has yet.
pub(super) async fn ask(mux: &mut MultiplexedConnection, cmd: &redis::Cmd, node: &Node) -> Result<Value> {
    match mux.send_packed_command(cmd).await {
        Ok(Value::ServerError(error)) => Err(error::read(error.code(), error.details().unwrap_or("")).into_error()),
        Ok(value) => Ok(value),
        Err(error) => Err(connect_error(node, &error)),
    }
}

/// Why there is no connection. Nothing was applied: there was no call yet.
pub(super) fn connect_error(node: &Node, error: &RedisError) -> Error {
    if let Some(code) = error.code() {
        return error::read(code, error.detail().unwrap_or("")).into_error();
    }
    let said = error.to_string();
    if said.contains("CaUsedAsEndEntity") {
        return Error::invalid(
            "store",
            format!(
                "{node} shows a certificate that is marked as an authority's (CA:TRUE), which is not accepted as a server's; \
                 sign a server's certificate with it and keep it as tls_ca, or make one with basicConstraints=CA:FALSE"
            ),
        );
    }
    if said.contains("certificate") {
        return Error::invalid(
            "store",
            format!(
                "{node} is not trusted ({said}); name its authority's file with tls_ca=FILE, and use the host name that \
                     its certificate has"
            ),
        );
    }
    match error.kind() {
        redis::ErrorKind::RESP3NotSupported => incompatible(format!("{node} is too old; Redis 7.0 or later is needed")),
        redis::ErrorKind::AuthenticationFailed => {
            Error::invalid("store", format!("{node} does not accept the user or the password"))
        }
        _ => unavailable(format!("no connection to {node}: {said}")),
    }
}
