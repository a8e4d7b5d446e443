//! Certificates made for one server: an authority of its own, and what it signed for 127.0.0.1.
//!
//! By the `openssl` program: the crates that could do it bring a second time library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::ServerError;

/// Extensions as rustls wants them: a certificate of an authority is not accepted as a server's.
const CONFIG: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = Windlass test
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
";

const AUTHORITY: &str = "req -x509 -config tls.cnf -extensions authority -newkey ec -pkeyopt ec_paramgen_curve:P-256 \
    -nodes -keyout ca.key -out ca.pem -days 30";
const REQUEST: &str = "req -new -config tls.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -keyout server.key -out server.csr";
const SIGN: &str = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile tls.cnf \
    -extensions server -out server.pem";

/// Files in the server's folder.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    pub(crate) fn make(folder: &Path) -> Result<Self, ServerError> {
        fs::write(folder.join("tls.cnf"), CONFIG).map_err(ServerError::io("write the configuration of openssl"))?;
        for words in [AUTHORITY, REQUEST, SIGN] {
            openssl(folder, words)?;
        }
        Ok(Self {
            authority: folder.join("ca.pem"),
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
        })
    }
}

fn openssl(folder: &Path, words: &str) -> Result<(), ServerError> {
    let mut command = Command::new("openssl");
    command.args(words.split_ascii_whitespace()).current_dir(folder).stdin(Stdio::null());
    let output = command.output().map_err(ServerError::io("run openssl (`cargo xtask test` installs it)"))?;
    if output.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(ServerError::Command { command: format!("openssl {words}"), output })
}
