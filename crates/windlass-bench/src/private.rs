//! A Redis server of our own: on a free port of this machine, without persistence, gone when it is dropped.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ports that are tried, should another program take the one that was free.
const TRIES: u32 = 5;
/// Looks until it answers.
const LOOKS: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// A Redis server that nobody else uses.
#[derive(Debug)]
pub struct PrivateRedis {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl PrivateRedis {
    /// Starts one; `redis-server` has to be installed.
    pub fn start() -> std::io::Result<Self> {
        let mut tried = 0;
        loop {
            tried += 1;
            match Self::start_once() {
                Err(error) if tried == TRIES => return Err(error),
                Err(_) => {}
                Ok(server) => return Ok(server),
            }
        }
    }

    fn start_once() -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-bench-redis-").tempdir()?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut server = Self { child, port, _folder: folder };
        server.wait()?;
        Ok(server)
    }

    #[expect(clippy::disallowed_methods, reason = "another process gives no signal that it listens")]
    fn wait(&mut self) -> std::io::Result<()> {
        for _ in 0..LOOKS {
            if let Some(status) = self.child.try_wait()? {
                return Err(std::io::Error::other(format!("redis-server ended at once: {status}")));
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Err(std::io::Error::other("redis-server does not listen"))
    }

    /// How a store is opened on it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        // It holds nothing that is worth an orderly end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
