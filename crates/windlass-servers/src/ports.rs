//! Ports that stay ours, also while the server that has them is down.
//!
//! A number below the range of outgoing connections, so that none of those takes the port of a server that was killed and
//! is to come back, and so that a client which tries a dead port again and again cannot be connected to itself. Among the
//! processes that use this crate a number is held by a UDP socket of the same number: the kernel lets it go with us, and
//! nobody else wants it.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use crate::error::ServerError;

/// Linux hands out 32768 and above to outgoing connections.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;
const TRIES_MAX: u16 = 500;

/// A reserved port of 127.0.0.1.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: UdpSocket,
}

impl Port {
    /// One that nobody listens on.
    pub(crate) fn reserve() -> Result<Self, ServerError> {
        // The standard library seeds its hash maps at random, which is all the randomness needed here.
        let start = RandomState::new().hash_one(0_u8) % u64::from(COUNT);
        let start = u16::try_from(start).unwrap_or_default();
        (0..TRIES_MAX)
            .find_map(|step| Self::take(FIRST + (start + step) % COUNT))
            .ok_or(ServerError::NoFreePort { tried: usize::from(TRIES_MAX) })
    }

    fn take(number: u16) -> Option<Self> {
        let held = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _held: held })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::Port;

    #[test]
    fn a_port_is_reserved_once_and_free_again_afterwards() {
        let port = Port::reserve().unwrap();
        assert!(Port::take(port.number()).is_none(), "reserved, though nobody listens");
        let number = port.number();
        drop(port);
        assert!(Port::take(number).is_some());
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_taken() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Port::take(listener.local_addr().unwrap().port()).is_none());
    }
}
