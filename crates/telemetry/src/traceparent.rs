//! The `traceparent` and `tracestate` headers of W3C Trace Context.
//!
//! Owns their strict reading and writing. Does not own spans. Invariant: a [`TraceParent`] has ids that are not zero, so any receiver joins
//! a trace that exists.

use std::fmt;
use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

use crate::redact;

/// A `traceparent` longer than this is not read. A later version may be longer than today's 55 bytes.
const TRACEPARENT_BYTES_MAX: usize = 256;

/// The length that the recommendation gives for propagating a `tracestate`.
const TRACESTATE_BYTES_MAX: usize = 512;

/// A span's position in a trace, as sent from one side to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: TraceId,
    span_id: SpanId,
    sampled: bool,
}

impl TraceParent {
    /// Reads a header. Anything that the recommendation calls invalid is `None`: the receiver starts a new trace.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > TRACEPARENT_BYTES_MAX {
            return None;
        }
        let mut parts = text.split('-');
        let version = lower_hex(parts.next()?, 2)?;
        let trace_id = TraceId::from_hex(lower_hex(parts.next()?, 32)?).ok()?;
        let span_id = SpanId::from_hex(lower_hex(parts.next()?, 16)?).ok()?;
        let flags = u8::from_str_radix(lower_hex(parts.next()?, 2)?, 16).ok()?;
        let has_more = parts.next().is_some();
        // Version 00 ends here; later versions may go on, and `ff` is not a version.
        if version == "ff" || (version == "00" && has_more) {
            return None;
        }
        let parent = Self { trace_id, span_id, sampled: flags & 1 == 1 };
        (trace_id != TraceId::INVALID && span_id != SpanId::INVALID).then_some(parent)
    }

    /// The id of the trace, 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.trace_id.to_string()
    }

    pub(crate) fn of(context: &SpanContext) -> Option<Self> {
        context.is_valid().then(|| Self {
            trace_id: context.trace_id(),
            span_id: context.span_id(),
            sampled: context.is_sampled(),
        })
    }

    pub(crate) fn remote_context(&self, tracestate: Option<&str>) -> SpanContext {
        let flags = TraceFlags::default().with_sampled(self.sampled);
        let state = tracestate.and_then(read_tracestate).unwrap_or_default();
        SpanContext::new(self.trace_id, self.span_id, flags, true, state)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled);
        write!(formatter, "00-{}-{}-{flags:02x}", self.trace_id, self.span_id)
    }
}

/// The members of a `tracestate`. One that is malformed, too long or looks like it holds a secret is dropped whole: it is
/// exported and passed on, and the caller wrote it.
fn read_tracestate(text: &str) -> Option<TraceState> {
    let usable = text.len() <= TRACESTATE_BYTES_MAX && !redact::holds_secret(text);
    if usable { TraceState::from_str(text).ok() } else { None }
}

fn lower_hex(text: &str, digits: usize) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(is_digit)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::TraceParent;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_header_is_read_and_written_back() {
        let parent = TraceParent::parse(VALID).unwrap();
        assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.to_string(), VALID);
        let unsampled = TraceParent::parse(&VALID.replace("-01", "-00")).unwrap();
        assert!(unsampled.to_string().ends_with("-00"));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = VALID.replacen("00-", "cc-", 1);
        assert!(TraceParent::parse(&later).is_some());
        assert!(TraceParent::parse(&format!("{later}-what-the-future-brings")).is_some());
        assert!(TraceParent::parse(&format!("{later}.what")).is_none());
    }

    #[test]
    fn whatever_is_not_a_valid_header_is_nothing() {
        for text in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-zz",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
        assert_eq!(
            TraceParent::parse(&format!("{}-{}", VALID.replacen("00", "cc", 1), "a".repeat(300))),
            None
        );
    }

    #[test]
    fn a_tracestate_that_is_malformed_too_long_or_secret_is_dropped() {
        let parent = TraceParent::parse(VALID).unwrap();
        let state = |text: &str| parent.remote_context(Some(text)).trace_state().header();
        assert_eq!(state("vendor=abc,other=1"), "vendor=abc,other=1");
        assert_eq!(state("no equals sign"), "");
        assert_eq!(state(&format!("vendor={}", "a".repeat(600))), "");
        assert_eq!(state("vendor=eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ1In0.c2ln"), "");
    }
}
