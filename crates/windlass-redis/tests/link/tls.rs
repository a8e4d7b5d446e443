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

#[tokio::test]
async fn only_a_certificate_of_a_trusted_authority_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let server = Server::start_tls(&[
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    let ping = |url: String| async move {
        let link = Link::open(Options::from_url(&url).unwrap(), &[]).unwrap();
        link.command(&Command::new("PING")).await
    };
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
