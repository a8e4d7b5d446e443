//! One server: its settings, its life, its end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{is_alive, is_gone, wait_until};
use windlass_servers::{Fsync, Redis, ServerError};

#[test]
fn a_server_answers_and_keeps_nothing_on_disk() {
    let redis = Redis::start().unwrap();
    assert_eq!(redis.command(&["PING"]).unwrap(), "PONG");
    assert_eq!(redis.cli(&["PING"]).unwrap(), "PONG");
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
    assert_eq!(redis.command(&["CONFIG", "GET", "save"]).unwrap(), "save\n");
    assert_eq!(redis.command(&["CONFIG", "GET", "appendonly"]).unwrap(), "appendonly\nno");
    assert!(redis.cli(&["INFO", "commandstats"]).unwrap().contains("cmdstat_ping:calls="));
    redis.command(&["SET", "k", "v"]).unwrap();
    redis.kill9();
    redis.restart().unwrap();
    assert_eq!(redis.command(&["EXISTS", "k"]).unwrap(), "0");
}

#[test]
fn an_error_of_the_server_is_an_error_with_its_words() {
    let redis = Redis::start().unwrap();
    for error in [redis.command(&["NOSUCH"]).unwrap_err(), redis.cli(&["NOSUCH"]).unwrap_err()] {
        assert!(matches!(&error, ServerError::Refused { reply, .. } if reply.contains("unknown command")), "{error}");
    }
}

#[test]
fn settings_of_one_or_more_words_are_taken() {
    let redis = Redis::builder()
        .config("maxmemory", "50mb")
        .config("client-output-buffer-limit", "normal 1000000 0 0")
        .start()
        .unwrap();
    assert_eq!(redis.command(&["CONFIG", "GET", "maxmemory"]).unwrap(), "maxmemory\n52428800");
    let limits = redis.command(&["CONFIG", "GET", "client-output-buffer-limit"]).unwrap();
    assert!(limits.contains("normal 1000000 0 0"), "{limits}");
}

#[test]
fn a_setting_that_the_server_refuses_is_told_with_its_log() {
    let error = Redis::builder().config("no-such-setting", "1").start().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ServerError::Ended { .. }), "{text}");
    assert!(text.contains("no-such-setting"), "{text}");
}

#[test]
fn a_restart_brings_back_what_the_append_only_file_holds() {
    for fsync in [Fsync::Always, Fsync::EverySec] {
        let redis = Redis::builder().append_only(fsync).start().unwrap();
        let (port, pid) = (redis.port(), redis.pid().unwrap());
        redis.command(&["SET", "k", "v"]).unwrap();
        redis.kill9();
        assert_eq!(redis.pid(), None);
        assert!(!is_alive(pid));
        assert!(redis.command(&["PING"]).is_err());
        redis.restart().unwrap();
        assert_eq!(redis.port(), port);
        assert_ne!(redis.pid(), Some(pid));
        assert_eq!(redis.command(&["GET", "k"]).unwrap(), "v");
        redis.command(&["SET", "k", "w"]).unwrap();
        redis.restart().unwrap();
        assert_eq!(redis.command(&["GET", "k"]).unwrap(), "w");
    }
}

#[test]
fn a_password_is_asked_for_and_stands_in_the_url() {
    let redis = Redis::builder().password("pa\"ss w@rd").start().unwrap();
    assert_eq!(redis.url(), format!("redis://:pa%22ss%20w%40rd@127.0.0.1:{}", redis.port()));
    assert_eq!(redis.command(&["PING"]).unwrap(), "PONG");
    assert_eq!(redis.cli(&["PING"]).unwrap(), "PONG");
    let stranger = Command::new("redis-cli").args(["-p", &redis.port().to_string(), "PING"]).output().unwrap();
    assert!(String::from_utf8_lossy(&stranger.stdout).contains("NOAUTH"), "{stranger:?}");
}

#[test]
fn tls_is_spoken_with_a_certificate_that_its_authority_signed() {
    let redis = Redis::builder().tls().start().unwrap();
    assert_eq!(redis.url(), format!("rediss://127.0.0.1:{}", redis.port()));
    assert_eq!(redis.command(&["PING"]).unwrap(), "PONG");
    let port = redis.port().to_string();
    let plain = Command::new("redis-cli").args(["-e", "-p", &port, "PING"]).output().unwrap();
    assert!(!plain.status.success(), "plain text was answered");
    let other = Redis::builder().tls().start().unwrap();
    let wrong = Command::new("redis-cli")
        .args(["-e", "-p", &port, "--tls", "--cacert"])
        .arg(other.ca_pem_path().unwrap())
        .arg("PING")
        .output()
        .unwrap();
    assert!(!wrong.status.success(), "another authority was trusted");
}

#[test]
fn a_paused_server_is_silent_until_it_goes_on() {
    let redis = Redis::start().unwrap();
    redis.pause().unwrap();
    assert!(!redis.is_up());
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut answer = [0; 7];
    assert!(stream.read(&mut answer).is_err(), "it answered");
    redis.resume().unwrap();
    assert!(redis.is_up());
    stream.set_read_timeout(Some(windlass_core::time::HANG_GUARD)).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn a_paused_server_can_be_stopped_killed_and_dropped() {
    let redis = Redis::start().unwrap();
    redis.pause().unwrap();
    redis.stop().unwrap();
    redis.restart().unwrap();
    redis.pause().unwrap();
    redis.kill9();
    redis.restart().unwrap();
    redis.pause().unwrap();
    let pid = redis.pid().unwrap();
    drop(redis);
    assert!(!is_alive(pid));
}

#[test]
fn a_server_that_ended_by_itself_is_not_up_and_is_not_signalled() {
    let redis = Redis::start().unwrap();
    // It answers by closing the connection.
    let _ = redis.command(&["SHUTDOWN", "NOSAVE"]);
    wait_until("the server ended", || !redis.is_up());
    assert!(redis.pause().is_err());
    assert_eq!(redis.pid(), None);
    redis.restart().unwrap();
    assert_eq!(redis.command(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_dropped_handle_leaves_no_process_and_no_folder() {
    let redis = Redis::start().unwrap();
    let (pid, folder) = (redis.pid().unwrap(), redis.folder().to_owned());
    let watchdogs = support::watchdogs_of(pid);
    assert_eq!(watchdogs.len(), 1);
    assert!(is_alive(pid) && folder.is_dir());
    drop(redis);
    assert!(is_gone(pid) && is_gone(watchdogs[0]) && !folder.exists());
}

/// The victim of the next test, which runs this binary again.
const VICTIM: &str = "WINDLASS_SERVERS_VICTIM";

#[test]
fn a_killed_process_leaves_no_server() {
    if std::env::var_os(VICTIM).is_some() {
        let redis = Redis::start().unwrap();
        println!("\nserver {} {}", redis.pid().unwrap(), redis.folder().display());
        let mut line = String::new();
        // Until the end: nobody writes.
        std::io::stdin().read_line(&mut line).unwrap();
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_leaves_no_server", "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find(|line| line.starts_with("server ")).unwrap();
    let [_, pid, folder] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let (pid, folder): (u32, _) = (pid.parse().unwrap(), Path::new(folder));
    let watchdogs = support::watchdogs_of(pid);
    assert!(is_alive(pid) && watchdogs.len() == 1 && folder.is_dir());
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the server is gone", || !is_alive(pid));
    wait_until("its watchdog is gone", || !is_alive(watchdogs[0]));
    assert!(!folder.exists());
}

#[test]
fn many_servers_start_side_by_side() {
    let servers: Vec<Redis> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| Redis::start().unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    // The threads that started them are gone, and they are not.
    for server in &servers {
        assert_eq!(server.command(&["PING"]).unwrap(), "PONG");
    }
}
