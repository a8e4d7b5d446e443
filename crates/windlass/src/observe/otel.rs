//! The bridge to `tracing-opentelemetry`: the context of a span as headers, and headers as the parent of a span.

use super::trace::TraceParent;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use std::str::FromStr;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use windlass_core::job::TraceContext;

/// The headers that stand for a span; `None` when nobody exports it.
pub(super) fn context_of(span: &Span) -> Option<TraceContext> {
    let context = span.context();
    let context = context.span().span_context().clone();
    let trace = u128::from_be_bytes(context.trace_id().to_bytes());
    let span = u64::from_be_bytes(context.span_id().to_bytes());
    let parent = TraceParent::from_parts(trace, span, context.trace_flags().to_u8())?;
    let state = Some(context.trace_state().header()).filter(|state| !state.is_empty());
    Some(parent.into_context(state))
}

/// Makes what enqueued a job the parent of its attempt's span. What cannot be read makes a span without parent.
pub(super) fn set_parent(span: &Span, stored: &TraceContext) {
    let Ok(parent) = stored.parent.parse::<TraceParent>() else { return };
    let (trace, id, flags) = parent.parts();
    let state = stored.state.as_deref().and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    let (trace, id) = (TraceId::from_bytes(trace.to_be_bytes()), SpanId::from_bytes(id.to_be_bytes()));
    let remote = SpanContext::new(trace, id, TraceFlags::new(flags), true, state);
    // Without a layer that exports there is no span to be a child.
    let _ = span.set_parent(Context::new().with_remote_span_context(remote));
}
