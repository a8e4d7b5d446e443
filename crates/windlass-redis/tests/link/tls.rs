//! Encryption, with an authority of our own.

use crate::server::Server;
use std::path::Path;
use std::process::Command as Program;
use windlass_core::Error;
use windlass_redis::link::{Command, Link, Value};
use windlass_redis::options::Options;

fn openssl(dir: &Path, args: &[&str]) {
    let made = Program::new("openssl").current_dir(dir).args(args).output().expect("openssl must be installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// An authority, and a certificate of it for `localhost`.
fn certificates(dir: &Path) {
    std::fs::write(dir.join("ext"), "subjectAltName=DNS:localhost\n").unwrap();
    let new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let authority = ["-x509", "-days", "2", "-subj", "/CN=Test authority", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(dir, &[&new[..], &authority[..]].concat());
    openssl(dir, &[&new[..], &["-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"][..]].concat());
    let sign = ["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
    openssl(dir, &[&sign[..], &["-days", "2", "-extfile", "ext", "-out", "server.pem"][..]].concat());
}

/// A server with that certificate.
fn start(dir: &Path, certificate: &str, key: &str) -> Server {
    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (certificate, key, ca) = (file(certificate), file(key), file("ca.pem"));
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    Server::start_tls(&[&files[..], &["--tls-auth-clients", "no"]].concat())
}

async fn ping(url: String) -> Result<Value, Error> {
    let link = Link::open(Options::from_url(&url).unwrap(), &[]).unwrap();
    link.command(&Command::new("PING")).await
}

#[tokio::test]
async fn only_a_certificate_of_a_trusted_authority_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let server = start(dir.path(), "server.pem", "server.key");
    let (port, ca) = (server.tls_port(), file("ca.pem").replace('/', "%2F"));
    assert_eq!(
        ping(format!("rediss://localhost:{port}?tls_ca={ca}")).await,
        Ok(Value::SimpleString("PONG".to_owned()))
    );
    for url in [
        // Not an authority that everybody trusts, not the name in the certificate, not the authority that signed it.
        format!("rediss://localhost:{port}"),
        format!("rediss://127.0.0.1:{port}?tls_ca={ca}"),
        format!("rediss://localhost:{port}?tls_ca={}", file("missing.pem").replace('/', "%2F")),
        format!("rediss://localhost:{port}?tls_ca={}", file("ext").replace('/', "%2F")),
    ] {
        let error = ping(url.clone()).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { .. }), "{url}: {error:?}");
    }
}

/// Each side takes what the other says for nonsense.
#[tokio::test]
async fn who_does_not_agree_about_encryption_is_told() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let server = start(dir.path(), "server.pem", "server.key");
    for (url, advice) in [
        (format!("rediss://localhost:{}?connect_timeout_ms=500", server.port), "speaks no TLS, write redis://"),
        (format!("redis://localhost:{}", server.tls_port()), "speaks TLS, write rediss://"),
    ] {
        let error = ping(url.clone()).await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { reason } if reason.contains(advice)), "{url}: {error:?}");
    }
    let error = ping("redis://127.0.0.1:1".to_owned()).await.unwrap_err().to_string();
    assert!(!error.contains("TLS"), "nobody is there: {error}");
}

#[tokio::test]
async fn files_and_certificates_that_cannot_do_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    std::fs::write(dir.path().join("ext"), "basicConstraints=critical,CA:TRUE\nsubjectAltName=DNS:localhost\n")
        .unwrap();
    let new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost"];
    openssl(dir.path(), &[&new[..], &["-keyout", "own.key", "-out", "own.csr"]].concat());
    let sign = ["x509", "-req", "-in", "own.csr", "-signkey", "own.key", "-days", "2", "-extfile", "ext"];
    openssl(dir.path(), &[&sign[..], &["-out", "own.pem"]].concat());
    let server = start(dir.path(), "own.pem", "own.key");
    let with = |name: &str| {
        let file = dir.path().join(name).to_str().unwrap().replace('/', "%2F");
        ping(format!("rediss://localhost:{}?tls_ca={file}", server.tls_port()))
    };
    for (name, words) in [("ext", "ext holds no certificate"), ("own.pem", "marked as an authority")] {
        let error = with(name).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { reason, .. } if reason.contains(words)), "{name}: {error:?}");
    }
}
