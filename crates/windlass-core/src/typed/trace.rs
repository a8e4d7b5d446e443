//! Validation of W3C trace headers as text.

use crate::job::TraceContext;
use crate::{Error, Result};

/// The longest `tracestate` that the standard obliges anybody to hand on.
const STATE_BYTES_MAX: usize = 512;

/// Parses a `traceparent` header into trace id, span id and flags.
///
/// Strict about version 00; of a later version it reads the fields that version 00 defines.
pub fn parse_parent(text: &str) -> Result<(u128, u64, u8)> {
    parse(text).ok_or_else(|| {
        let shown: String = text.chars().take(80).collect();
        Error::invalid(
            "traceparent",
            format!(
                "`{shown}` is none; write 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, lower case, no id all zero"
            ),
        )
    })
}

fn parse(text: &str) -> Option<(u128, u64, u8)> {
    let mut parts = text.splitn(5, '-');
    let version = hex(parts.next()?, 2)?;
    let trace = hex(parts.next()?, 32)?;
    let span = hex(parts.next()?, 16)?;
    let flags = hex(parts.next()?, 2)?;
    // 255 is no version, and version 0 has nothing after the flags.
    let rest = parts.next();
    if version == 255 || (version == 0 && rest.is_some()) || trace == 0 || span == 0 {
        return None;
    }
    Some((trace, u64::try_from(span).ok()?, u8::try_from(flags).ok()?))
}

/// Reads exactly `digits` lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let fits = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if fits { u128::from_str_radix(text, 16).ok() } else { None }
}

/// Refuses trace headers that no receiver could read.
pub fn check(trace: &TraceContext) -> Result<()> {
    parse_parent(&trace.parent)?;
    match &trace.state {
        Some(state) if state.len() > STATE_BYTES_MAX => {
            Err(Error::limit("tracestate, in bytes,", STATE_BYTES_MAX as u64, state.len() as u64))
        }
        Some(state) if !state.bytes().all(|b| matches!(b, b' '..=b'~')) => {
            Err(Error::invalid("tracestate", "has a character that no header may have; leave it out"))
        }
        _ => Ok(()),
    }
}
