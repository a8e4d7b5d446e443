//! A line between a client and a server that breaks as told.
//!
//! The proxy has a thread with a runtime of its own: it goes on while a test blocks its runtime, and it does not run on a
//! test's virtual clock. On that thread one task owns the listener and all connections (`links`); the handle sends it
//! what has to be done at once and waits until it is. What each link does with the bytes is read from the shared plan,
//! piece by piece. The thread ends with the [`Proxy`], and its connections with it; handles that are left then do nothing.
//!
//! It trusts nobody: a server that is away ends the client's connection, as does any error of either side.

mod link;
mod plan;
mod requests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::ServerError;
use crate::ports::Port;
pub use plan::{Counts, Delay};
use plan::{Cut, Shared};

/// How long the proxy may take to do what it is told; it never waits for anybody.
const DONE_WITHIN: Duration = windlass_core::time::HANG_GUARD;
const BACKLOG: u32 = 1024;
/// Orders come from tests, one at a time.
const ORDERS_MAX: usize = 64;

/// A TCP proxy on 127.0.0.1. Dropped, it ends with all of its connections.
#[derive(Debug)]
pub struct Proxy {
    faults: Faults,
    port: Port,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy that passes everything on, both ways, until its [`Faults`] are told otherwise.
    pub fn start(target: SocketAddr) -> Result<Self, ServerError> {
        let port = Port::reserve()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::io("make the proxy's runtime"))?;
        let shared = Arc::new(Shared::default());
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        let door = {
            let _inside = runtime.enter();
            bind(port.number()).and_then(|socket| socket.listen(BACKLOG)).map_err(ServerError::io("listen"))?
        };
        let service = Service {
            door: Door::Open(door),
            port: port.number(),
            target,
            shared: Arc::clone(&shared),
            links: JoinSet::new(),
        };
        let thread = std::thread::Builder::new().name("windlass-proxy".to_owned());
        let thread = thread.spawn(move || runtime.block_on(service.run(inbox)));
        let thread = thread.map_err(ServerError::io("start the proxy's thread"))?;
        Ok(Self { faults: Faults { shared, orders }, port, thread: Some(thread) })
    }

    /// Where clients connect to.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The switchboard; it can be cloned and sent to where the faults are decided.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What went through so far.
    pub fn counts(&self) -> Counts {
        self.faults.counts()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Gone already only if the thread is.
        let _ = self.faults.order(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the proxy does to its connections. Each call is in force when it returns.
#[derive(Debug, Clone)]
pub struct Faults {
    shared: Arc<Shared>,
    orders: mpsc::Sender<(Order, std_mpsc::Sender<io::Result<usize>>)>,
}

impl Faults {
    /// Ends every fault: new connections are welcome and all bytes go through at once.
    pub fn pass(&self) -> Result<(), ServerError> {
        self.shared.reset();
        self.accept()
    }

    /// Holds back every piece for that long in its direction; the order stays, and so does the throughput.
    pub fn delay(&self, delay: Delay) {
        self.shared.plan.lock().delay = delay;
    }

    /// Passes requests on and drops whatever the server answers; `false` ends it. Answers that were dropped stay so.
    pub fn swallow_replies(&self, swallow: bool) {
        self.shared.plan.lock().swallow_replies = swallow;
    }

    /// Refuses new connections, as if nobody listened. Those that are open stay.
    pub fn refuse(&self) -> Result<(), ServerError> {
        self.order(Order::Shut).map(drop)
    }

    /// Takes new connections again.
    pub fn accept(&self) -> Result<(), ServerError> {
        self.order(Order::Open).map(drop)
    }

    /// Cuts all connections now and says how many there were. What was under way is lost.
    pub fn cut_all(&self) -> usize {
        self.order(Order::CutAll).unwrap_or_default()
    }

    /// Lets so many more bytes through from the server, counted over all connections, and cuts the connection that is
    /// to bring the next one. Once.
    pub fn cut_after_bytes_from_server(&self, bytes: usize) {
        self.arm(Cut::FromServer { bytes });
    }

    /// Lets so many more bytes through to the server, counted over all connections, and cuts the connection that is to
    /// bring the next one: the server sees a part of a request. Once.
    pub fn cut_after_bytes_to_server(&self, bytes: usize) {
        self.arm(Cut::ToServer { bytes });
    }

    /// Passes on so many more requests and cuts the connection of the last one, once the server has carried it out and
    /// before its answer. Once. Counted over all connections, in Redis' protocol without TLS. Earlier answers that are
    /// still under way on that connection are lost as well.
    pub fn cut_before_reply(&self, requests: usize) {
        self.arm(Cut::BeforeReply { requests: requests.max(1), command: None });
    }

    /// The same, counting only requests of one command, such as `EVALSHA`.
    pub fn cut_before_reply_to(&self, command: &str, requests: usize) {
        self.arm(Cut::BeforeReply {
            requests: requests.max(1),
            command: Some(command.as_bytes().to_ascii_uppercase()),
        });
    }

    /// Whether a cut is still to come.
    pub fn is_armed(&self) -> bool {
        self.shared.plan.lock().cut.is_some()
    }

    /// What went through so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts.lock().clone()
    }

    fn arm(&self, cut: Cut) {
        self.shared.plan.lock().cut = Some(cut);
    }

    /// Has the service do something and waits until it did. It does so on its own thread, so a caller inside of a
    /// runtime may wait here.
    fn order(&self, order: Order) -> Result<usize, ServerError> {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "the proxy has ended");
        let (done, wait) = std_mpsc::channel();
        let sent = self.orders.try_send((order, done)).map_err(|_| gone());
        let answer = sent.and_then(|()| wait.recv_timeout(DONE_WITHIN).map_err(|_| gone()));
        answer.flatten().map_err(ServerError::io("switch the proxy"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Open,
    Shut,
    CutAll,
    End,
}

/// A port that is bound and not listened on refuses connections and is nobody else's meanwhile.
enum Door {
    Open(TcpListener),
    Shut(TcpSocket),
    /// Only inside of a change.
    Nowhere,
}

impl Door {
    async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Self::Open(listener) => listener.accept().await.map(|(stream, _)| stream),
            Self::Shut(_) | Self::Nowhere => std::future::pending().await,
        }
    }
}

fn bind(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Connections that were made through the port are still there when it is bound again.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

struct Service {
    door: Door,
    port: u16,
    target: SocketAddr,
    shared: Arc<Shared>,
    links: JoinSet<()>,
}

impl Service {
    async fn run(mut self, mut inbox: mpsc::Receiver<(Order, std_mpsc::Sender<io::Result<usize>>)>) {
        loop {
            tokio::select! {
                order = inbox.recv() => {
                    let Some((order, done)) = order else { break };
                    let result = self.carry_out(order).await;
                    // The caller may have given up.
                    let _ = done.send(result);
                    if order == Order::End {
                        break;
                    }
                }
                Ok(client) = self.door.accept() => {
                    self.links.spawn(link::run(client, self.target, Arc::clone(&self.shared)));
                }
                Some(_) = self.links.join_next() => {}
            }
        }
    }

    async fn carry_out(&mut self, order: Order) -> io::Result<usize> {
        match order {
            Order::Open => self.open().map(|()| 0),
            Order::Shut => self.shut().map(|()| 0),
            Order::CutAll | Order::End => Ok(self.cut_all().await),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        self.door = match std::mem::replace(&mut self.door, Door::Nowhere) {
            Door::Open(listener) => Door::Open(listener),
            Door::Shut(socket) => Door::Open(socket.listen(BACKLOG)?),
            Door::Nowhere => Door::Open(bind(self.port)?.listen(BACKLOG)?),
        };
        Ok(())
    }

    fn shut(&mut self) -> io::Result<()> {
        if let Door::Shut(_) = self.door {
            return Ok(());
        }
        // The listener has to go before its port can be bound.
        self.door = Door::Nowhere;
        self.door = Door::Shut(bind(self.port)?);
        Ok(())
    }

    async fn cut_all(&mut self) -> usize {
        let cut = {
            let mut counts = self.shared.counts.lock();
            counts.cut += counts.open;
            counts.open
        };
        self.links.shutdown().await;
        cut
    }
}
