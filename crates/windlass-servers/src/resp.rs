//! The little of Redis' protocol that it takes to ask a server something.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Deeper than any answer of a server.
const DEPTH_MAX: u32 = 16;
/// More than any answer that a test asks for.
const LENGTH_MAX: usize = 64 << 20;

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    Error(String),
    Integer(i64),
    Nil,
    Array(Vec<Self>),
}

impl Value {
    /// As `redis-cli` prints it into a pipe: one line for each plain value.
    pub(crate) fn to_lines(&self) -> String {
        match self {
            Self::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Self::Error(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Nil => String::new(),
            Self::Array(items) => items.iter().map(Self::to_lines).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The items of an array; nothing for anything else.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            Self::Text(_) | Self::Error(_) | Self::Integer(_) | Self::Nil => &[],
        }
    }
}

/// A connection to a server on this machine.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn open(port: u16, within: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), within)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        self.stream.get_mut().write_all(&encode(args))?;
        read(&mut self.stream, 0)
    }
}

fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn read(source: &mut impl BufRead, depth: u32) -> io::Result<Value> {
    let mut line = String::new();
    if source.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let mut chars = line.chars();
    let kind = chars.next();
    let rest = chars.as_str();
    match kind {
        Some('+') => Ok(Value::Text(rest.as_bytes().to_vec())),
        Some('-') => Ok(Value::Error(rest.to_owned())),
        Some(':') => rest.parse().map(Value::Integer).map_err(|_| odd(line)),
        Some('$' | '*') if rest == "-1" => Ok(Value::Nil),
        Some('$') => {
            let mut text = vec![0; length(rest)? + 2];
            source.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            Ok(Value::Text(text))
        }
        Some('*') if depth < DEPTH_MAX => {
            (0..length(rest)?).map(|_| read(source, depth + 1)).collect::<io::Result<_>>().map(Value::Array)
        }
        _ => Err(odd(line)),
    }
}

fn length(text: &str) -> io::Result<usize> {
    text.parse().ok().filter(|length| *length <= LENGTH_MAX).ok_or_else(|| odd(text))
}

fn odd(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of Redis: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::{Value, encode, read};

    #[test]
    fn a_command_is_an_array_of_bytes_with_their_lengths() {
        assert_eq!(encode(&["SET", "k", "a\r\nb"]), b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn answers_of_every_kind_are_read() {
        let mut bytes: &[u8] = b"*5\r\n+OK\r\n-ERR no\r\n:-7\r\n$-1\r\n*1\r\n$4\r\na\r\nb\r\n";
        let value = read(&mut bytes, 0).unwrap();
        let inner = Value::Array(vec![Value::Text(b"a\r\nb".to_vec())]);
        let expected =
            [Value::Text(b"OK".to_vec()), Value::Error("ERR no".to_owned()), Value::Integer(-7), Value::Nil, inner];
        assert_eq!(value.items(), expected);
        assert_eq!(value.to_lines(), "OK\nERR no\n-7\n\na\r\nb");
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for bytes in ["", "?\r\n", "$x\r\n", "$9\r\nshort\r\n", "*99999999999\r\n"] {
            assert!(read(&mut bytes.as_bytes(), 0).is_err(), "{bytes:?}");
        }
    }
}
