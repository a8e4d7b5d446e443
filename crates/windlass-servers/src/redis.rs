//! One Redis server of our own.

mod config;

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::error::ServerError;
use crate::locale::Locale;
use crate::ports::Port;
use crate::process::Process;
use crate::programs::RedisPrograms;
use crate::resp::{Connection, Value};
use crate::wait::{self, Deadline};
use windlass_core::time::HANG_GUARD;

pub(crate) use config::Part;
pub use config::{Fsync, RedisBuilder};

/// How long a server may take until it answers.
const READY_WITHIN: Duration = HANG_GUARD;
/// How long a server may take to end when asked to.
const STOP_WITHIN: Duration = HANG_GUARD;
/// How long one command may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const LOG_LINES: usize = 20;

/// A Redis server on 127.0.0.1, with a folder of its own. Dropped, it is killed and its folder removed.
#[derive(Debug)]
pub struct Redis {
    // Before the folder, so that a server which is dropped does not write into what is being removed.
    process: Mutex<Option<Process>>,
    folder: TempDir,
    programs: RedisPrograms,
    port: Port,
    /// Where the nodes of a cluster talk to each other.
    bus: Option<Port>,
    part: Part,
    password: Option<String>,
    certificates: Option<Certificates>,
    locale: Option<Locale>,
}

impl Redis {
    /// A server that keeps nothing on disk.
    pub fn start() -> Result<Self, ServerError> {
        Self::builder().start()
    }

    /// A server with other settings.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// The port it listens on; with TLS if it was started so.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn bus_port(&self) -> Option<u16> {
        self.bus.as_ref().map(Port::number)
    }

    /// Its address: `redis://127.0.0.1:PORT`, with the password if it has one, `rediss` if it speaks TLS.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "rediss" } else { "redis" };
        let user = self.password.as_deref().map_or_else(String::new, |password| format!(":{}@", escape(password)));
        format!("{scheme}://{user}127.0.0.1:{}", self.port())
    }

    /// The certificate of the authority that signed the server's, for clients to trust; with TLS only.
    pub fn ca_pem_path(&self) -> Option<&Path> {
        self.certificates.as_ref().map(|certificates| certificates.authority.as_path())
    }

    /// The id of its process, while it is up.
    pub fn pid(&self) -> Option<u32> {
        let mut process = self.process.lock();
        process.as_mut().and_then(|process| matches!(process.ended(), Ok(None)).then(|| process.pid()))
    }

    /// Its folder, with its log and what it keeps.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether it runs and is not paused.
    pub fn is_up(&self) -> bool {
        self.process.lock().as_mut().is_some_and(|process| !process.is_paused() && matches!(process.ended(), Ok(None)))
    }

    /// Kills it as a crash would; returns once it is gone.
    pub fn kill9(&self) {
        self.process.lock().take();
    }

    /// Asks it to end (SIGTERM) and waits until it did.
    pub fn stop(&self) -> Result<(), ServerError> {
        let Some(mut process) = self.process.lock().take() else { return Ok(()) };
        let ended = process.terminate(STOP_WITHIN).map_err(ServerError::io("stop the server"))?;
        if ended {
            return Ok(());
        }
        Err(ServerError::TimedOut { within: STOP_WITHIN, until: "the server ended".to_owned(), last: self.log() })
    }

    /// Starts it again with the same port and folder. One that is still up is stopped first.
    pub fn restart(&self) -> Result<(), ServerError> {
        self.stop()?;
        self.launch()
    }

    /// Stops it where it stands (SIGSTOP): connections stay open and nothing is answered.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.with_process("pause", Process::pause)
    }

    /// Lets a paused server go on.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.with_process("resume", Process::resume)
    }

    fn with_process(
        &self,
        verb: &str,
        act: impl FnOnce(&mut Process) -> std::io::Result<()>,
    ) -> Result<(), ServerError> {
        let mut process = self.process.lock();
        let process = process.as_mut().ok_or(ServerError::Down { port: self.port() })?;
        act(process).map_err(ServerError::io(format!("{verb} the server")))
    }

    /// Runs `redis-cli` with these arguments against it and hands back what it printed.
    pub fn cli(&self, args: &[&str]) -> Result<String, ServerError> {
        let mut command = Command::new(&self.programs.cli);
        command.args(["-e", "-h", "127.0.0.1", "-p", &self.port().to_string()]).stdin(Stdio::null());
        if let Some(certificates) = &self.certificates {
            command.arg("--tls").arg("--cacert").arg(&certificates.authority);
        }
        if let Some(password) = &self.password {
            command.env("REDISCLI_AUTH", password);
        }
        let output = command.args(args).output().map_err(ServerError::io("run redis-cli"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
        }
        let reply = [output.stdout, output.stderr].concat();
        Err(self.refused(args, String::from_utf8_lossy(&reply).trim().to_owned()))
    }

    /// Sends one command and hands back the answer as `redis-cli` would print it, without the cost of starting that.
    pub fn command(&self, args: &[&str]) -> Result<String, ServerError> {
        // We speak no TLS.
        if self.certificates.is_some() {
            return self.cli(args);
        }
        self.call(args).map(|value| value.to_lines())
    }

    /// Sends one command without TLS. An error as the answer is an error.
    pub(crate) fn call<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Value, ServerError> {
        let doing = || ServerError::io(format!("ask the server on port {}", self.port()));
        match self.ask(args, ANSWER_WITHIN).map_err(doing())? {
            Value::Error(reply) => Err(self.refused(args, reply)),
            value => Ok(value),
        }
    }

    fn ask<A: AsRef<[u8]>>(&self, args: &[A], within: Duration) -> std::io::Result<Value> {
        let mut connection = Connection::open(self.port(), within)?;
        if let Some(password) = &self.password {
            connection.call(&["AUTH", password])?;
        }
        connection.call(args)
    }

    fn refused<A: AsRef<[u8]>>(&self, args: &[A], reply: String) -> ServerError {
        let words: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg.as_ref())).collect();
        ServerError::Refused { port: self.port(), command: words.join(" "), reply }
    }

    /// The last lines that it logged.
    pub fn log(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("redis.log")
    }

    fn config_path(&self) -> PathBuf {
        self.folder.path().join("redis.conf")
    }

    /// Starts the process and waits until it answers.
    fn launch(&self) -> Result<(), ServerError> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = log.map_err(ServerError::io("open the server's log"))?;
        let errors = log.try_clone().map_err(ServerError::io("open the server's log"))?;
        let mut command = Command::new(&self.programs.server);
        command.arg(self.config_path()).stdout(log).stderr(errors);
        if let Part::Sentinel { .. } = self.part {
            command.arg("--sentinel");
        }
        if let Some(locale) = &self.locale {
            locale.apply(&mut command);
        }
        let mut process =
            Process::spawn(&mut command, self.folder.path()).map_err(ServerError::io("start redis-server"))?;
        self.wait_until_ready(&mut process)?;
        *self.process.lock() = Some(process);
        Ok(())
    }

    fn wait_until_ready(&self, process: &mut Process) -> Result<(), ServerError> {
        let deadline = Deadline::after(READY_WITHIN);
        loop {
            if let Some(status) = process.ended().map_err(ServerError::io("look after the server"))? {
                return Err(ServerError::Ended { status, log: self.log() });
            }
            let last = match self.ping() {
                Ok(reply) if reply == "PONG" => return Ok(()),
                Ok(other) => other,
                Err(error) => error.to_string(),
            };
            if deadline.is_over() {
                return Err(ServerError::NotReady { within: READY_WITHIN, last, log: self.log() });
            }
            wait::pause();
        }
    }

    fn ping(&self) -> Result<String, ServerError> {
        if self.certificates.is_some() {
            return self.cli(&["PING"]);
        }
        let answer = self.ask(&["PING"], Duration::from_secs(1)).map_err(ServerError::io("ask the server"))?;
        Ok(answer.to_lines())
    }
}

/// A password as a URL takes it.
fn escape(password: &str) -> String {
    let mut escaped = String::new();
    for byte in password.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn a_password_cannot_end_its_part_of_the_url() {
        assert_eq!(escape("aZ9-._~"), "aZ9-._~");
        assert_eq!(escape("p@ss:w/ö"), "p%40ss%3Aw%2F%C3%B6");
    }
}
