//! The proxy between a client and a real server: each fault does what it says, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use support::wait_until;
use windlass_servers::{Delay, Proxy, Redis};

const LONG: Duration = windlass_core::time::HANG_GUARD;
/// How long a silence has to last to count as one.
const SHORT: Duration = Duration::from_millis(150);

fn start() -> (Redis, Proxy) {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], redis.port()))).unwrap();
    (redis, proxy)
}

struct Client(TcpStream);

impl Client {
    fn connect(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self(stream)
    }

    fn send(&mut self, args: &[&str]) {
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        self.0.write_all(request.as_bytes()).unwrap();
    }

    fn expect(&mut self, answer: &str) {
        let mut bytes = vec![0; answer.len()];
        self.0.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), answer);
    }

    fn ask(&mut self, args: &[&str], answer: &str) {
        self.send(args);
        self.expect(answer);
    }

    fn expect_silence(&mut self) {
        self.0.set_read_timeout(Some(SHORT)).unwrap();
        let error = self.0.read(&mut [0; 16]).expect_err("an answer, or the end");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        self.0.set_read_timeout(Some(LONG)).unwrap();
    }

    /// What still comes before the end.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let mut byte = [0];
        loop {
            match self.0.read(&mut byte) {
                Ok(1) => rest.push(byte[0]),
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("not cut: {error}"),
            }
        }
        String::from_utf8(rest).unwrap()
    }
}

#[test]
fn bytes_pass_both_ways_and_are_counted() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    client.ask(&["PING"], "+PONG\r\n");
    // Bigger than any buffer on the way.
    let value = "x".repeat(3 << 20);
    let echo = std::thread::scope(|scope| {
        let mut writer = Client(client.0.try_clone().unwrap());
        let value = &value;
        scope.spawn(move || writer.send(&["ECHO", value]));
        let mut answer = vec![0; value.len() + format!("${}\r\n\r\n", value.len()).len()];
        client.0.read_exact(&mut answer).unwrap();
        answer
    });
    assert_eq!(echo, format!("${}\r\n{value}\r\n", value.len()).into_bytes());
    let counts = proxy.counts();
    assert_eq!((counts.accepted, counts.open, counts.cut, counts.swallowed_bytes), (1, 1, 0, 0));
    assert_eq!(counts.to_client_bytes, 7 + echo.len());
    assert_eq!(counts.to_server_bytes, 14 + 23 + value.len() + 2 + 1);
    drop(client);
    wait_until("the connection is gone", || proxy.counts().open == 0);
    assert_eq!(proxy.counts().cut, 0, "a client that leaves is not cut");
}

#[test]
fn the_end_of_a_client_reaches_the_server_and_its_last_answers_the_client() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    client.send(&["PING"]);
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "+PONG\r\n");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the proxy runs in real time")]
fn a_delay_holds_back_each_way_for_as_long_as_told() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    client.ask(&["PING"], "+PONG\r\n");
    let each = Duration::from_millis(100);
    for (delay, least) in [
        (Delay { to_server: each, to_client: Duration::ZERO }, each),
        (Delay { to_server: Duration::ZERO, to_client: each }, each),
        (Delay { to_server: each, to_client: each }, each * 2),
    ] {
        proxy.faults().delay(delay);
        let begin = Instant::now();
        client.ask(&["PING"], "+PONG\r\n");
        let took = begin.elapsed();
        assert!(took >= least, "{delay:?} took {took:?}");
    }
    // Pieces that follow each other do not wait for each other: one after the other they would take a minute.
    let (begin, pieces) = (Instant::now(), 300);
    for _ in 0..pieces {
        client.send(&["PING"]);
    }
    client.expect(&"+PONG\r\n".repeat(300));
    assert!(begin.elapsed() < each * 2 * pieces);
    // A delay that is taken back holds nothing back: with this one, no answer would come before the end of the guard.
    proxy.faults().delay(Delay { to_server: LONG * 2, to_client: LONG * 2 });
    proxy.faults().pass().unwrap();
    client.ask(&["PING"], "+PONG\r\n");
}

#[test]
fn new_connections_are_refused_and_open_ones_stay() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    client.ask(&["PING"], "+PONG\r\n");
    let handle = proxy.faults().clone();
    for _ in 0..3 {
        handle.refuse().unwrap();
        handle.refuse().unwrap();
        let error = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        client.ask(&["PING"], "+PONG\r\n");
        handle.accept().unwrap();
        Client::connect(&proxy).ask(&["PING"], "+PONG\r\n");
    }
    handle.refuse().unwrap();
    handle.pass().unwrap();
    Client::connect(&proxy).ask(&["PING"], "+PONG\r\n");
}

#[test]
fn all_connections_are_cut_at_once_and_new_ones_work() {
    let (_redis, proxy) = start();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&proxy)).collect();
    for client in &mut clients {
        client.ask(&["PING"], "+PONG\r\n");
    }
    assert_eq!(proxy.faults().cut_all(), 3);
    let counts = proxy.counts();
    assert_eq!((counts.open, counts.cut), (0, 3));
    for client in &mut clients {
        assert_eq!(client.rest(), "");
    }
    Client::connect(&proxy).ask(&["PING"], "+PONG\r\n");
}

#[test]
fn the_cut_comes_after_so_many_bytes_of_the_server_and_once() {
    let (_redis, proxy) = start();
    for bytes in [0, 3, 7] {
        let mut client = Client::connect(&proxy);
        proxy.faults().cut_after_bytes_from_server(7 + bytes);
        client.ask(&["PING"], "+PONG\r\n");
        assert!(proxy.faults().is_armed());
        client.send(&["PING"]);
        if bytes == 7 {
            // To the byte: the cut is for the one that comes next.
            client.expect("+PONG\r\n");
            client.send(&["PING"]);
            assert_eq!(client.rest(), "");
        } else {
            assert_eq!(client.rest(), &"+PONG\r\n"[..bytes]);
        }
        assert!(!proxy.faults().is_armed());
        Client::connect(&proxy).ask(&["PING"], "+PONG\r\n");
    }
    assert_eq!(proxy.counts().cut, 3);
}

#[test]
fn a_request_that_is_cut_in_the_middle_is_not_carried_out() {
    let (redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    proxy.faults().cut_after_bytes_to_server(20);
    client.send(&["SET", "k", "v"]);
    assert_eq!(client.rest(), "");
    assert_eq!(redis.command(&["EXISTS", "k"]).unwrap(), "0");
    assert_eq!(proxy.counts().to_server_bytes, 20);
}

#[test]
fn swallowed_replies_never_come_and_the_requests_are_carried_out() {
    let (redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    proxy.faults().swallow_replies(true);
    client.send(&["SET", "k", "v"]);
    client.expect_silence();
    assert_eq!(redis.command(&["GET", "k"]).unwrap(), "v");
    assert_eq!(proxy.counts().swallowed_bytes, 5);
    proxy.faults().swallow_replies(false);
    client.ask(&["GET", "k"], "$1\r\nv\r\n");
}

#[test]
fn the_cut_before_a_reply_leaves_the_request_carried_out_by_then() {
    let (redis, proxy) = start();
    // Every time, or a test that relies on it would fail now and then.
    for round in 1..=50 {
        let mut client = Client::connect(&proxy);
        proxy.faults().cut_before_reply(3);
        client.ask(&["PING"], "+PONG\r\n");
        client.ask(&["PING"], "+PONG\r\n");
        client.send(&["INCR", "n"]);
        assert_eq!(client.rest(), "");
        assert_eq!(redis.command(&["GET", "n"]).unwrap(), round.to_string());
        assert!(!proxy.faults().is_armed());
    }
}

#[test]
fn the_cut_before_a_reply_waits_for_a_server_that_is_slow() {
    let (redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    client.ask(&["PING"], "+PONG\r\n");
    redis.pause().unwrap();
    proxy.faults().cut_before_reply(1);
    client.send(&["INCR", "n"]);
    client.expect_silence();
    redis.resume().unwrap();
    assert_eq!(client.rest(), "");
    assert_eq!(redis.command(&["GET", "n"]).unwrap(), "1");
}

#[test]
fn the_cut_before_a_reply_can_be_for_one_command_and_inside_of_a_pipeline() {
    let (redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    proxy.faults().cut_before_reply_to("incr", 2);
    client.ask(&["PING"], "+PONG\r\n");
    client.ask(&["INCR", "n"], ":1\r\n");
    client.ask(&["GET", "n"], "$1\r\n1\r\n");
    // In one piece: what follows the cut does not reach the server.
    let pipeline = "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(3);
    client.0.write_all(pipeline.as_bytes()).unwrap();
    assert_eq!(client.rest(), "");
    assert_eq!(redis.command(&["GET", "n"]).unwrap(), "2");
}

#[test]
fn a_server_that_is_away_ends_the_connection_and_its_return_is_noticed() {
    let (redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    client.ask(&["PING"], "+PONG\r\n");
    redis.kill9();
    assert_eq!(client.rest(), "");
    assert_eq!(Client::connect(&proxy).rest(), "");
    redis.restart().unwrap();
    Client::connect(&proxy).ask(&["PING"], "+PONG\r\n");
}

#[test]
fn a_dropped_proxy_ends_its_connections_and_its_handles_say_so() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    client.ask(&["PING"], "+PONG\r\n");
    let (handle, port) = (proxy.faults().clone(), proxy.port());
    drop(proxy);
    assert_eq!(client.rest(), "");
    assert_eq!(TcpStream::connect(("127.0.0.1", port)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(handle.refuse().is_err());
    assert_eq!(handle.cut_all(), 0);
}

/// It has a runtime of its own: a test may block, and may stop its clock.
#[tokio::test(start_paused = true)]
async fn the_proxy_runs_beside_a_runtime_that_is_blocked_or_paused() {
    let (_redis, proxy) = start();
    proxy.faults().delay(Delay { to_server: Duration::from_millis(20), to_client: Duration::ZERO });
    Client::connect(&proxy).ask(&["PING"], "+PONG\r\n");
    assert_eq!(proxy.faults().cut_all(), proxy.counts().cut);
}
