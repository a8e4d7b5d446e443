//! What a server is started with: its settings, as the file that it reads.

use std::fs;
use std::path::Path;

use parking_lot::Mutex;

use super::Redis;
use crate::certificates::Certificates;
use crate::error::ServerError;
use crate::locale::Locale;
use crate::ports::Port;
use crate::programs::RedisPrograms;

/// How often another process is quicker to take the port before we give up.
const STARTS_MAX: usize = 8;

/// When the append-only file is brought to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before a command is answered.
    Always,
    /// Once a second.
    EverySec,
}

/// What the server is in its set of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Part {
    #[default]
    Single,
    ClusterNode,
    /// Watches the primary on this port.
    Sentinel {
        primary: u16,
    },
}

/// Settings of a [`Redis`] to be.
#[derive(Debug, Clone, Default)]
pub struct RedisBuilder {
    settings: Vec<(String, String)>,
    append_only: Option<Fsync>,
    password: Option<String>,
    with_tls: bool,
    collation: Option<String>,
    part: Part,
}

impl RedisBuilder {
    /// A line of the server's configuration, such as `("maxmemory", "50mb")`; the last one of a name counts.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Keeps an append-only file, so that a restart brings the data back.
    #[must_use]
    pub fn append_only(mut self, fsync: Fsync) -> Self {
        self.append_only = Some(fsync);
        self
    }

    /// Asks clients for this password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Speaks TLS and nothing else, with a certificate for 127.0.0.1 and `localhost` that is made at the start.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.with_tls = true;
        self
    }

    /// Compares texts by the rules of a locale such as `cs_CZ`, as on a host that is set up for it. The locale is made at the
    /// start, in the server's folder.
    #[must_use]
    pub fn collation(mut self, locale: &str) -> Self {
        self.collation = Some(locale.to_owned());
        self
    }

    pub(crate) fn part(mut self, part: Part) -> Self {
        self.part = part;
        self
    }

    /// Starts the server; it answers when this returns.
    pub fn start(self) -> Result<Redis, ServerError> {
        let programs = RedisPrograms::find()?;
        for _ in 1..STARTS_MAX {
            match self.start_on(Port::reserve()?, &programs) {
                Err(error) if error.is_port_taken() => {}
                result => return result,
            }
        }
        self.start_on(Port::reserve()?, &programs)
    }

    fn start_on(&self, port: Port, programs: &RedisPrograms) -> Result<Redis, ServerError> {
        let folder = tempfile::Builder::new().prefix("windlass-redis-").tempdir();
        let folder = folder.map_err(ServerError::io("make a folder for the server"))?;
        let certificates = self.with_tls.then(|| Certificates::make(folder.path())).transpose()?;
        let locale = self.collation.as_deref().map(|name| Locale::make(folder.path(), name)).transpose()?;
        let bus = (self.part == Part::ClusterNode).then(Port::reserve).transpose()?;
        let redis = Redis {
            process: Mutex::new(None),
            folder,
            programs: programs.clone(),
            port,
            bus,
            part: self.part,
            password: self.password.clone(),
            certificates,
            locale,
        };
        // Once, and not at a restart: sentinels and `CONFIG REWRITE` keep in it what they changed.
        self.write_config(&redis)?;
        redis.launch()?;
        Ok(redis)
    }

    /// Writes the file that the server reads when it is started.
    pub(crate) fn write_config(&self, redis: &Redis) -> Result<(), ServerError> {
        fs::write(redis.config_path(), self.file(redis)).map_err(ServerError::io("write the server's configuration"))
    }

    fn file(&self, redis: &Redis) -> String {
        let mut file = File::default();
        file.line("bind", "127.0.0.1").line("daemonize", "no");
        match &redis.certificates {
            None => file.line("port", &redis.port().to_string()),
            Some(certificates) => tls_lines(&mut file, certificates).line("tls-port", &redis.port().to_string()),
        };
        if let Some(password) = &self.password {
            file.quoted("requirepass", password);
        }
        match self.part {
            Part::Sentinel { primary } => sentinel_lines(&mut file, primary),
            Part::Single | Part::ClusterNode => self.data_lines(&mut file),
        }
        if let Some(bus) = redis.bus_port() {
            cluster_lines(&mut file, bus);
        }
        for (name, value) in &self.settings {
            file.line(name, value);
        }
        file.text
    }

    fn data_lines(&self, file: &mut File) {
        file.line("save", "");
        match self.append_only {
            None => file.line("appendonly", "no"),
            Some(Fsync::Always) => file.line("appendonly", "yes").line("appendfsync", "always"),
            Some(Fsync::EverySec) => file.line("appendonly", "yes").line("appendfsync", "everysec"),
        };
        // By default a server that ends waits ten seconds for its replicas, and one that is copied from waits five for more
        // of them to come. A copy without a file leaves a new replica up to a second without news although it says that
        // its link is up, and one that becomes the primary then has lost what it was never told.
        file.line("shutdown-timeout", "0").line("repl-diskless-sync", "no").line("repl-ping-replica-period", "1");
    }
}

fn tls_lines<'a>(file: &'a mut File, certificates: &Certificates) -> &'a mut File {
    let text = |path: &Path| path.display().to_string();
    file.line("port", "0")
        .quoted("tls-cert-file", &text(&certificates.certificate))
        .quoted("tls-key-file", &text(&certificates.key))
        .quoted("tls-ca-cert-file", &text(&certificates.authority))
        .line("tls-auth-clients", "no")
}

fn cluster_lines(file: &mut File, bus: u16) {
    file.line("cluster-enabled", "yes")
        .line("cluster-port", &bus.to_string())
        // Soon enough for a test, late enough for a machine that is busy with others.
        .line("cluster-node-timeout", "1500")
        // A replica takes over however old its data, and stays with the primary that the test gave it.
        .line("cluster-replica-validity-factor", "0")
        .line("cluster-allow-replica-migration", "no");
}

fn sentinel_lines(file: &mut File, primary: u16) {
    file.line("sentinel", &format!("monitor mymaster 127.0.0.1 {primary} 2"))
        .line("sentinel", "down-after-milliseconds mymaster 1000")
        .line("sentinel", "failover-timeout mymaster 5000");
}

/// The lines so far.
#[derive(Default)]
struct File {
    text: String,
}

impl File {
    /// A value of several words stays several words; none is an empty one.
    fn line(&mut self, name: &str, value: &str) -> &mut Self {
        let value = if value.is_empty() { "\"\"" } else { value };
        self.text.push_str(&format!("{name} {value}\n"));
        self
    }

    /// A value that is one word, whatever is in it.
    fn quoted(&mut self, name: &str, value: &str) -> &mut Self {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        self.line(name, &format!("\"{value}\""))
    }
}
