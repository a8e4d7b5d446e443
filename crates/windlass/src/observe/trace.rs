//! W3C trace context: from whoever enqueues to the handler, and on to what the handler asks of others.
//!
//! A job carries the headers as text. They are checked where they come in; what is stored is read again with the same
//! parser, and what cannot be read is no trace, never an error.

use std::fmt;
use std::str::FromStr;
use windlass_core::job::{Lease, TraceContext};
use windlass_core::typed::trace::{check, parse_parent};
use windlass_core::{Error, Result};

/// Sampled, and the trace id is random; the standard knows no other flags.
const KNOWN_FLAGS: u8 = 0b11;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// A `traceparent` header: `00-<trace id>-<span id>-<flags>`.
///
/// ```
/// use windlass::observe::TraceParent;
///
/// let parent: TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
/// assert_eq!(parent.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert!(parent.is_sampled());
/// assert!("00-00000000000000000000000000000000-00f067aa0ba902b7-01".parse::<TraceParent>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

/// The id of a whole trace: 32 digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl TraceParent {
    /// From its parts; `None` when an id is zero, which means that there is none.
    #[cfg(feature = "opentelemetry")]
    pub(super) fn from_parts(trace: u128, span: u64, flags: u8) -> Option<Self> {
        (trace != 0 && span != 0).then_some(Self { trace, span, flags: flags & KNOWN_FLAGS })
    }

    /// Its parts: the trace's id, the span's, and the flags.
    #[cfg(feature = "opentelemetry")]
    pub(super) fn parts(self) -> (u128, u64, u8) {
        (self.trace, self.span, self.flags)
    }

    /// The trace that it belongs to.
    pub fn trace_id(&self) -> TraceId {
        TraceId(self.trace)
    }

    /// Somebody records this trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// As a job carries it.
    pub fn into_context(self, state: Option<String>) -> TraceContext {
        TraceContext { parent: self.to_string(), state }
    }

    /// The same trace, seen from the span of one attempt. The span's id is made from the lease, so that it is another
    /// one for each attempt, and hashed, because the token of a lease is a secret.
    fn of_attempt(self, lease: Lease) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("windlass attempt span id v1");
        hash.update(&lease.job.bits().to_le_bytes()).update(&lease.token.bits().to_le_bytes());
        let mut span = [0; 8];
        span.copy_from_slice(&hash.finalize().as_bytes()[..8]);
        Self { span: u64::from_le_bytes(span).max(1), ..self }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = Error;

    /// Strict about version 00; of a later version, as the standard says, what version 00 has of it.
    fn from_str(text: &str) -> Result<Self> {
        let (trace, span, flags) = parse_parent(text)?;
        Ok(Self { trace, span, flags: flags & KNOWN_FLAGS })
    }
}

/// The trace that the attempt under this lease hands on; `None` when its job carries none, or none that can be read.
pub(super) fn of_attempt(stored: Option<&TraceContext>, lease: Lease) -> Option<TraceContext> {
    let stored = stored.filter(|trace| check(trace).is_ok())?;
    let parent: TraceParent = stored.parent.parse().ok()?;
    Some(parent.of_attempt(lease).into_context(stored.state.clone()))
}

/// The same, asked by the handler itself: the span it is in, where somebody exports it, is nearer.
pub(crate) fn in_handler(stored: Option<&TraceContext>, lease: Lease) -> Option<TraceContext> {
    #[cfg(feature = "opentelemetry")]
    if let Some(trace) = super::otel::context_of(&tracing::Span::current()) {
        return Some(trace);
    }
    of_attempt(stored, lease)
}

/// Runs a future in which every job that is enqueued, and says no trace of its own, belongs to this one.
///
/// For what comes in from outside, such as the headers of a request: a trace that cannot be read is left alone, because
/// a stranger's header must not make an enqueue fail. A task that the future spawns is not in it.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Client, Job};
/// use windlass::core::job::TraceContext;
/// use windlass::observe;
/// # #[derive(Serialize, Deserialize)]
/// # struct Welcome { to: String }
/// # impl Job for Welcome { const KIND: &'static str = "welcome"; type Output = (); }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> windlass::Result<()> {
/// let client = Client::open("memory://")?;
/// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(); // from a request
/// let trace = TraceContext { parent, state: None };
/// let ticket = observe::with_trace(trace.clone(), client.enqueue(Welcome { to: "ada".into() })).await?;
/// let job = client.store().get(vec![ticket.id()]).await?.remove(0).unwrap();
/// assert_eq!(job.spec.trace, Some(trace));
/// # Ok(())
/// # }
/// ```
pub async fn with_trace<F: Future>(trace: TraceContext, future: F) -> F::Output {
    CURRENT.scope(trace, future).await
}

/// The trace that an enqueue here and now belongs to: the current span's where `opentelemetry` knows one, else that of
/// [`with_trace`].
pub fn current_trace() -> Option<TraceContext> {
    #[cfg(feature = "opentelemetry")]
    if let Some(trace) = super::otel::context_of(&tracing::Span::current()) {
        return Some(trace);
    }
    CURRENT.try_with(Clone::clone).ok().filter(|trace| check(trace).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::id::{JobId, Token};

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_good_header_comes_back_as_it_was() {
        let parent: TraceParent = GOOD.parse().unwrap();
        assert_eq!(parent.to_string(), GOOD);
        assert_eq!(parent.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(parent.is_sampled());
        let quiet: TraceParent = GOOD.replace("-01", "-00").parse().unwrap();
        assert!(!quiet.is_sampled());
        // Flags that nobody knows are not handed on.
        assert!(GOOD.replace("-01", "-ff").parse::<TraceParent>().unwrap().to_string().ends_with("-03"));
    }

    #[test]
    fn a_bad_header_is_refused() {
        let upper = GOOD.to_uppercase();
        for bad in [
            "",
            "00",
            "hello",
            upper.as_str(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47360-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ",
            "00-äbf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            let error = bad.parse::<TraceParent>().unwrap_err();
            assert!(matches!(error, Error::Invalid { ref field, .. } if field == "traceparent"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for later in [
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-will-be-like",
        ] {
            assert_eq!(later.parse::<TraceParent>().unwrap().to_string(), GOOD);
        }
        assert!("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what".parse::<TraceParent>().is_err());
    }

    #[test]
    fn a_state_that_no_header_can_carry_is_refused() {
        let with = |state: &str| check(&TraceContext { parent: GOOD.to_owned(), state: Some(state.to_owned()) });
        assert!(with("vendor=value,other=1").is_ok());
        assert!(with("a\nb").is_err());
        assert!(with("ü=1").is_err());
        assert!(with(&"x".repeat(512)).is_ok());
        assert!(matches!(with(&"x".repeat(513)), Err(Error::Limit { .. })));
    }

    #[test]
    fn each_attempt_has_a_span_of_its_own_in_the_same_trace() {
        let lease = |attempt, token| Lease { job: JobId::from_parts(0, 7), attempt, token: Token::from_bits(token) };
        let stored = TraceContext { parent: GOOD.to_owned(), state: Some("a=b".to_owned()) };
        let of = |lease| of_attempt(Some(&stored), lease).unwrap();
        let (first, second) = (of(lease(1, 1)), of(lease(2, 2)));
        assert_eq!(first, of(lease(1, 1)), "the same attempt, the same span");
        assert_ne!(first.parent, second.parent);
        for trace in [&first, &second] {
            let parent: TraceParent = trace.parent.parse().unwrap();
            assert_eq!(parent.trace_id(), GOOD.parse::<TraceParent>().unwrap().trace_id());
            assert_ne!(trace.parent, GOOD);
            assert_eq!(trace.state.as_deref(), Some("a=b"));
        }
    }

    #[test]
    fn a_stored_trace_that_cannot_be_read_is_none() {
        let lease = Lease { job: JobId::from_parts(0, 7), attempt: 1, token: Token::from_bits(1) };
        let stored = TraceContext { parent: "nonsense".to_owned(), state: None };
        assert_eq!(of_attempt(Some(&stored), lease), None);
        assert_eq!(of_attempt(None, lease), None);
    }
}
