//! One connection: a pump for each way.
//!
//! A pump is a reader and a writer with a short queue between them. The reader notes when a piece may leave, the writer
//! decides what becomes of it when it does; so a fault applies to what is still held back, and a delay does not add up.
//! A pump that meets the end of its source passes it on and leaves the other pump alone; an error or a cut ends both.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::plan::{Fate, Shared, Way};
use super::requests::Requests;

const PIECE_BYTES_MAX: usize = 64 << 10;
/// Of each way; the reader waits when they are held back.
const PIECES_MAX: usize = 1024;

/// A link that ends before both sides are done: by a cut, or by an error of either side.
struct Broken;

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self
    }
}

type Piece = (Instant, Vec<u8>);

/// Carries bytes between the client and the server until one of them ends it or a fault does.
pub(super) async fn run(client: TcpStream, target: SocketAddr, shared: Arc<Shared>) {
    shared.counts.lock().accepted += 1;
    let _open = Open::count(&shared);
    let Ok(server) = TcpStream::connect(target).await else { return };
    // Or the kernel would hold back small pieces, and the proxy would be a delay of its own.
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let is_muted = AtomicBool::new(false);
    let link = Link { shared: &shared, is_muted: &is_muted };
    // Whatever broke it: both ends go now.
    let _ = tokio::try_join!(
        link.pump(from_client, Way::ToServer, |pieces| link.write_to_server(pieces, to_server)),
        link.pump(from_server, Way::ToClient, |pieces| link.write_to_client(pieces, to_client)),
    );
}

/// Counts a connection for as long as it lives, also when its task is aborted.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn count(shared: &'a Shared) -> Self {
        shared.counts.lock().open += 1;
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().open -= 1;
    }
}

#[derive(Clone, Copy)]
struct Link<'a> {
    shared: &'a Shared,
    /// The client is told nothing more; the server is only waited for.
    is_muted: &'a AtomicBool,
}

impl Link<'_> {
    /// Counted before the client can see it.
    fn cut(self) -> Broken {
        self.shared.counts.lock().cut += 1;
        Broken
    }

    async fn pump<F>(
        self,
        source: OwnedReadHalf,
        way: Way,
        write: impl FnOnce(mpsc::Receiver<Piece>) -> F,
    ) -> Result<(), Broken>
    where
        F: Future<Output = Result<(), Broken>>,
    {
        let (queue, pieces) = mpsc::channel(PIECES_MAX);
        tokio::try_join!(self.read(source, way, queue), write(pieces)).map(drop)
    }

    async fn read(self, mut source: OwnedReadHalf, way: Way, queue: mpsc::Sender<Piece>) -> Result<(), Broken> {
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        loop {
            let read = tokio::select! {
                read = source.read(&mut buffer) => read?,
                // The writer has taken its last piece.
                () = queue.closed() => return Ok(()),
            };
            if read == 0 || queue.send((leaves_at(self.shared, way), buffer[..read].to_vec())).await.is_err() {
                return Ok(());
            }
        }
    }

    async fn write_to_server(
        self,
        mut pieces: mpsc::Receiver<Piece>,
        mut server: OwnedWriteHalf,
    ) -> Result<(), Broken> {
        let mut requests = Requests::default();
        while let Some((leaves_at, piece)) = pieces.recv().await {
            tokio::time::sleep_until(leaves_at).await;
            let ends = requests.ends(&piece);
            let fate = self.shared.fate_to_server(piece.len(), &ends);
            let passed = match fate {
                Fate::Pass | Fate::Drop => piece.len(),
                Fate::CutAfter(passed) | Fate::MuteAfter(passed) => passed,
            };
            if let Fate::MuteAfter(_) = fate {
                // Before the request leaves, or its answer could be quicker.
                self.is_muted.store(true, Ordering::SeqCst);
            }
            // Counted first: whoever has seen the bytes finds them counted.
            self.shared.counts.lock().to_server_bytes += passed;
            server.write_all(&piece[..passed]).await?;
            match fate {
                Fate::Pass | Fate::Drop => {}
                Fate::CutAfter(_) => return Err(self.cut()),
                // The server carries out what it was sent before it sees the end, and then ends the other way.
                Fate::MuteAfter(_) => break,
            }
        }
        Ok(server.shutdown().await?)
    }

    async fn write_to_client(
        self,
        mut pieces: mpsc::Receiver<Piece>,
        mut client: OwnedWriteHalf,
    ) -> Result<(), Broken> {
        while let Some((leaves_at, piece)) = pieces.recv().await {
            tokio::time::sleep_until(leaves_at).await;
            let is_muted = self.is_muted.load(Ordering::SeqCst);
            let fate = if is_muted { Fate::Drop } else { self.shared.fate_from_server(piece.len()) };
            let passed = match fate {
                Fate::Drop => {
                    self.shared.counts.lock().swallowed_bytes += piece.len();
                    continue;
                }
                Fate::Pass => piece.len(),
                Fate::CutAfter(passed) | Fate::MuteAfter(passed) => passed,
            };
            self.shared.counts.lock().to_client_bytes += passed;
            client.write_all(&piece[..passed]).await?;
            if passed < piece.len() {
                return Err(self.cut());
            }
        }
        if self.is_muted.load(Ordering::SeqCst) {
            return Err(self.cut());
        }
        Ok(client.shutdown().await?)
    }
}

#[expect(clippy::disallowed_methods, reason = "the proxy runs in real time, on a runtime of its own")]
fn leaves_at(shared: &Shared, way: Way) -> Instant {
    Instant::now() + shared.delay(way)
}
