//! A store in another process: every call goes as JSON through a pipe, and its answer comes back the same way.
//!
//! One child process holds all stores of this process. A frame to it is a header of four little-endian numbers, then the body:
//! the length of the body (u32), the number of the frame (u64), the store (u64), the time of the store's clock in milliseconds
//! (i64). The child sets the clock before it makes the call, so a virtual clock moves in both processes alike. Calls are answered in any order,
//! by frames with the length of the body (u32) and the number of the call (u64).

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;
use windlass_conformance::{Factory, Opened, TestClock, exercise};
use windlass_core::memory::MemoryStore;
use windlass_core::random::StrongRandom;
use windlass_core::store::{Answer, Call, CallStore, HandleCall, Store};
use windlass_core::time::{Clock, Timestamp, VirtualClock};
use windlass_core::{Error, Result};
use windlass_sqlite::{Options, SqliteStore, Synchronous};

/// The argument that makes this program the child.
const CHILD: &str = "--hold-stores";
/// The time at which every store opens.
const START: Timestamp = Timestamp::from_ms(1_700_000_000_000);

/// Runs the suite over a pipe to stores in files or in memory, or holds those stores when started as the child.
pub(crate) fn main(in_files: bool) {
    if std::env::args().nth(1).as_deref() == Some(CHILD) {
        serve();
    } else {
        exercise(Piped { in_files });
    }
}

/// The body of a frame to the child.
enum Request {
    /// Opens a store under the number in the header: a file, or memory without one.
    Open(Option<PathBuf>),
    Call(Box<Call>),
}

/// The body of a frame from the child.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Ok(Answer),
    Error(Error),
}

struct Header {
    frame: u64,
    store: u64,
    now_ms: i64,
}

// ---------------------------------------------------------------- the parent

struct Piped {
    in_files: bool,
}

#[async_trait::async_trait]
impl Factory for Piped {
    async fn open(&self) -> Opened {
        let clock = Arc::new(VirtualClock::new(START));
        let dir = self.in_files.then(|| tempfile::tempdir().unwrap());
        let path = dir.as_ref().map(|dir| dir.path().join("jobs.db"));
        let store = Remote::open(path, &clock).await;
        Opened { store, clock: TestClock::Virtual(clock), keep: dir.map(|dir| Box::new(dir) as _) }
    }

    /// The same file opened once more by the child.
    async fn reopen(&self, opened: &Opened) -> Option<Arc<dyn Store>> {
        let dir = opened.keep.as_ref()?.downcast_ref::<tempfile::TempDir>()?;
        let TestClock::Virtual(clock) = &opened.clock else { return None };
        Some(Remote::open(Some(dir.path().join("jobs.db")), clock).await)
    }

    /// The stores themselves are tried with all of them.
    fn sequences(&self, plain: u64) -> u64 {
        plain / 4
    }
}

/// A store in the child.
struct Remote {
    store: u64,
    clock: Arc<VirtualClock>,
}

impl Remote {
    async fn open(path: Option<PathBuf>, clock: &Arc<VirtualClock>) -> Arc<dyn Store> {
        let link = link();
        let store = link.next_number();
        let reply = link.send(store, clock, &Request::Open(path)).await;
        assert!(matches!(reply, Reply::Ok(_)), "the child could not open a store");
        Arc::new(CallStore(Self { store, clock: Arc::clone(clock) }))
    }
}

impl HandleCall for Remote {
    async fn call(&self, call: Call) -> Result<Answer> {
        match link().send(self.store, &self.clock, &Request::Call(Box::new(call))).await {
            Reply::Ok(answer) => Ok(answer),
            Reply::Error(error) => Err(error),
        }
    }
}

/// The pipe to the child of this process.
struct Link {
    to_child: Mutex<ChildStdin>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    last_number: Mutex<u64>,
}

fn link() -> &'static Link {
    static LINK: OnceLock<Link> = OnceLock::new();
    LINK.get_or_init(|| {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program).arg(CHILD).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let (to_child, from_child) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let replies = move || {
            read_replies(from_child);
            // The child ends when its input does, with this process.
            let _ = child.wait();
        };
        std::thread::Builder::new().name("replies".to_owned()).spawn(replies).unwrap();
        Link { to_child: Mutex::new(to_child), waiting: Mutex::default(), last_number: Mutex::default() }
    })
}

impl Link {
    fn next_number(&self) -> u64 {
        let mut last = self.last_number.lock();
        *last += 1;
        *last
    }

    async fn send(&self, store: u64, clock: &VirtualClock, request: &Request) -> Reply {
        let frame = self.next_number();
        let (sender, reply) = oneshot::channel();
        self.waiting.lock().insert(frame, sender);
        let body = request.to_bytes();
        {
            // The clock is read under the lock, so that the child's never goes back.
            let mut pipe = self.to_child.lock();
            let header = Header { frame, store, now_ms: clock.now().as_ms() };
            write_request(&mut *pipe, &header, &body).unwrap();
        }
        reply.await.expect("the child has ended")
    }
}

fn read_replies(mut from_child: ChildStdout) {
    while let Ok((frame, body)) = read_reply(&mut from_child) {
        let reply = serde_json::from_slice(&body).unwrap();
        // A caller that was dropped gets no answer.
        let caller = link().waiting.lock().remove(&frame);
        if let Some(caller) = caller {
            let _ = caller.send(reply);
        }
    }
    link().waiting.lock().clear();
}

// ----------------------------------------------------------------- the child

#[derive(Clone)]
struct Held {
    store: Arc<dyn Store>,
    clock: Arc<VirtualClock>,
}

fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut stores: HashMap<u64, Held> = HashMap::new();
    let mut files: HashMap<PathBuf, Arc<VirtualClock>> = HashMap::new();
    let mut input = io::stdin().lock();
    while let Ok((header, body)) = read_request(&mut input) {
        let reply = match Request::from_bytes(&body).unwrap() {
            Request::Open(path) => {
                let clock = match &path {
                    Some(path) => Arc::clone(files.entry(path.clone()).or_insert_with(new_clock)),
                    None => new_clock(),
                };
                clock.set(Timestamp::from_ms(header.now_ms));
                stores.insert(header.store, Held { store: open(path, &clock), clock });
                Reply::Ok(Answer::Close(()))
            }
            Request::Call(call) => {
                let held = stores[&header.store].clone();
                held.clock.set(Timestamp::from_ms(header.now_ms));
                runtime.spawn(async move {
                    let answer = call.send(held.store.as_ref()).await;
                    write_reply(header.frame, &answer.map_or_else(Reply::Error, Reply::Ok));
                });
                continue;
            }
        };
        write_reply(header.frame, &reply);
    }
    // The parent has gone: what still waits has nobody to answer.
    std::process::exit(0);
}

fn new_clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(START))
}

fn open(path: Option<PathBuf>, clock: &Arc<VirtualClock>) -> Arc<dyn Store> {
    // Two stores over one file must not make the same tokens.
    static OPENED: AtomicU64 = AtomicU64::new(7);
    let random = Arc::new(StrongRandom::seeded(OPENED.fetch_add(1, Ordering::Relaxed)));
    match path {
        None => Arc::new(MemoryStore::with(Arc::clone(clock) as _, random)),
        Some(path) => {
            // The suite is about behaviour; durability has tests of its own.
            let options = Options { synchronous: Synchronous::Normal, ..Options::new(path) };
            Arc::new(SqliteStore::open_with(options, Arc::clone(clock) as _, random).unwrap())
        }
    }
}

fn write_reply(frame: u64, reply: &Reply) {
    let body = serde_json::to_vec(reply).unwrap();
    let mut bytes = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(frame.to_le_bytes());
    bytes.extend(body);
    let mut output = io::stdout().lock();
    // A parent that has gone needs no answer.
    let _ = output.write_all(&bytes).and_then(|()| output.flush());
}

// ---------------------------------------------------------------- the frames

impl Request {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Open(path) => serde_json::to_vec(path).unwrap(),
            Self::Call(call) => call.to_json().unwrap(),
        }
    }

    /// A call is an object; a path is a string, or nothing.
    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        match bytes.first() {
            Some(b'{') => Call::from_json(bytes).map(|call| Self::Call(Box::new(call))),
            _ => Ok(Self::Open(serde_json::from_slice(bytes).unwrap())),
        }
    }
}

fn write_request(pipe: &mut impl Write, header: &Header, body: &[u8]) -> io::Result<()> {
    let mut bytes = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(header.frame.to_le_bytes());
    bytes.extend(header.store.to_le_bytes());
    bytes.extend(header.now_ms.to_le_bytes());
    bytes.extend(body);
    pipe.write_all(&bytes)?;
    pipe.flush()
}

fn read_request(pipe: &mut impl Read) -> io::Result<(Header, Vec<u8>)> {
    let len = u32::from_le_bytes(read_array(pipe)?);
    let frame = u64::from_le_bytes(read_array(pipe)?);
    let store = u64::from_le_bytes(read_array(pipe)?);
    let now_ms = i64::from_le_bytes(read_array(pipe)?);
    Ok((Header { frame, store, now_ms }, read_body(pipe, len)?))
}

fn read_reply(pipe: &mut impl Read) -> io::Result<(u64, Vec<u8>)> {
    let len = u32::from_le_bytes(read_array(pipe)?);
    let frame = u64::from_le_bytes(read_array(pipe)?);
    Ok((frame, read_body(pipe, len)?))
}

fn read_array<const N: usize>(pipe: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    pipe.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_body(pipe: &mut impl Read, len: u32) -> io::Result<Vec<u8>> {
    let mut body = vec![0; len as usize];
    pipe.read_exact(&mut body)?;
    Ok(body)
}
