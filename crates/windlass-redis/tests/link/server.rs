//! Private servers for the tests of the link: on free loopback ports, in temporary folders, ended with their handle.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    dir: TempDir,
    args: Vec<String>,
}

impl Server {
    /// Starts one and waits until it answers.
    pub(crate) fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let port = free_port();
        let mut server = Self { child: spawn(port, &dir, &args), port, dir, args };
        server.wait_ready();
        server
    }

    /// One that is spoken to with encryption, at `tls_port`.
    pub(crate) fn start_tls(args: &[&str]) -> Self {
        // Its other door stays open, so that it can be seen when it is ready.
        let port = free_port().to_string();
        Self::start(&[&["--tls-port", &port][..], args].concat())
    }

    pub(crate) fn tls_port(&self) -> &str {
        &self.args[1]
    }

    /// A Sentinel that watches over a primary by the name of `main`.
    pub(crate) fn start_sentinel(primary: u16) -> Self {
        Self::start_sentinel_at(primary, 0)
    }

    /// The same, with the epoch of its configuration.
    pub(crate) fn start_sentinel_at(primary: u16, epoch: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let file = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n\
             sentinel config-epoch main {epoch}\n",
            dir.path().display()
        );
        std::fs::write(&file, text).unwrap();
        let child = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server must be installed");
        let mut server = Self { child, port, dir, args: Vec::new() };
        server.wait_ready();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, with the same port and folder.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.port, &self.dir, &self.args);
        self.wait_ready();
    }

    /// Lets it stand still, or go on.
    pub(crate) fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// What `redis-cli` says.
    pub(crate) fn cli(&self, args: &[&str]) -> String {
        let port = self.port.to_string();
        let out = Command::new("redis-cli").args(["-p", &port]).args(args).output().unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    fn wait_ready(&mut self) {
        let until = Instant::now() + Duration::from_secs(20);
        while !answers(self.port) {
            assert!(self.child.try_wait().unwrap().is_none(), "the server has ended: {:?}", self.args);
            assert!(Instant::now() < until, "the server does not answer");
            // sleeps because: a server does not say when it listens
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for what the servers do among themselves.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        // sleeps because: the servers tell each other in their own time
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // A node of a cluster needs the one 10,000 above, too.
        if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

fn spawn(port: u16, dir: &TempDir, args: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--dir", dir.path().to_str().unwrap()])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server must be installed")
}

/// Any answer will do, also a refusal for want of a password.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut first = [0_u8; 8];
    stream.write_all(b"PING\r\n").is_ok()
        && stream.read(&mut first).is_ok_and(|n| n > 0)
        && !first.starts_with(b"-LOADING")
}
