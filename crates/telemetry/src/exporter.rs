//! What is between the spans and the exporter: a bound, redaction and counters.
//!
//! Owns the two wrappers around the SDK's batch processor and an exporter. Does not own a protocol or a socket.
//! Invariants: `on_end` never waits; no text of a span leaves without having passed [`redact`]; each finished span
//! is counted as exported, failed or dropped.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::trace::Status;
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};

use crate::metrics::Metrics;
use crate::redact;

/// Finished spans that wait for their export. About a thousand calls.
pub(crate) const QUEUE_SPANS_MAX: usize = 8_192;
const BATCH_SPANS_MAX: usize = 512;
const BATCH_DELAY_MS: u64 = 1_000;

/// The batch processor of the SDK, bounded and counted.
#[derive(Debug)]
pub(crate) struct BoundedProcessor {
    batches: BatchSpanProcessor,
    queued: Arc<AtomicUsize>,
    queue_spans_max: usize,
    metrics: Metrics,
}

impl BoundedProcessor {
    pub(crate) fn new<E>(exporter: E, queue_spans_max: usize, metrics: &Metrics) -> Self
    where
        E: SpanExporter + 'static,
    {
        let queued = Arc::new(AtomicUsize::new(0));
        let exporter = GuardedExporter {
            exporter,
            queued: Arc::clone(&queued),
            metrics: metrics.clone(),
            failing: AtomicBool::new(false),
        };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(queue_spans_max)
            .with_max_export_batch_size(BATCH_SPANS_MAX)
            .with_scheduled_delay(Duration::from_millis(BATCH_DELAY_MS))
            .build();
        let batches = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
        Self { batches, queued, queue_spans_max, metrics: metrics.clone() }
    }
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        // What is counted here includes the batch that is being sent, so the SDK's own queue is never full before ours.
        let before = self.queued.fetch_add(1, Ordering::Relaxed);
        if before >= self.queue_spans_max {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            self.metrics.inner.spans_dropped.inc();
        } else {
            self.batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// An exporter that gets redacted spans only and whose failures are counted.
#[derive(Debug)]
struct GuardedExporter<E> {
    exporter: E,
    queued: Arc<AtomicUsize>,
    metrics: Metrics,
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for GuardedExporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        batch.iter_mut().for_each(redact_span);
        let result = self.exporter.export(batch).await;
        self.queued.fetch_sub(spans, Ordering::Relaxed);
        self.note(spans, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E> GuardedExporter<E> {
    /// Logs the change, not every failure: a collector that is down must not fill the log.
    fn note(&self, spans: usize, result: &OTelSdkResult) {
        let spans = u64::try_from(spans).unwrap_or(u64::MAX);
        match result {
            Ok(()) => {
                self.metrics.inner.spans_exported.inc_by(spans);
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("spans are exported again");
                }
            }
            Err(error) => {
                self.metrics.inner.spans_failed.inc_by(spans);
                self.metrics.inner.export_failures.inc();
                if !self.failing.swap(true, Ordering::Relaxed) {
                    let reason = failure_reason(error);
                    tracing::warn!(reason, "spans cannot be exported; calls are not affected");
                }
            }
        }
    }
}

/// The cause in our words: the text of the error can quote the collector.
fn failure_reason(error: &OTelSdkError) -> &'static str {
    match error {
        OTelSdkError::AlreadyShutdown => "the exporter was shut down",
        OTelSdkError::Timeout(_) => "the collector did not answer in time",
        OTelSdkError::InternalFailure(_) => {
            "the collector is unreachable, did not answer in time or refused the spans"
        }
    }
}

/// No span of ours has events or links, and names and statuses are our own: anything else is removed.
fn redact_span(span: &mut SpanData) {
    span.events.events.clear();
    span.links.links.clear();
    redact_attributes(&mut span.attributes);
    span.name = Cow::Owned(redact::text(&span.name).into_owned());
    if let Status::Error { description } = &mut span.status {
        *description = Cow::Owned(redact::text(description).into_owned());
    }
}

pub(crate) fn redact_attributes(attributes: &mut [KeyValue]) {
    for attribute in attributes {
        let masked = match &attribute.value {
            // Numbers and flags are not secrets.
            Value::Bool(_) | Value::I64(_) | Value::F64(_) => continue,
            Value::String(text) => redact::field(attribute.key.as_str(), text.as_str()),
            // None of our attributes is of another type.
            Value::Array(_) | _ => Cow::Borrowed(redact::MASK),
        };
        attribute.value = Value::from(masked.into_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry::{Array, KeyValue, Value};
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};

    use super::{BoundedProcessor, redact_attributes};
    use crate::metrics::Metrics;
    use crate::redact;
    use crate::testing::CapturedSpans;

    /// Takes a first batch and is never done with it.
    #[derive(Debug)]
    struct Stuck;

    impl SpanExporter for Stuck {
        async fn export(&self, _batch: Vec<SpanData>) -> OTelSdkResult {
            std::future::pending().await
        }
    }

    fn end_spans<E: SpanExporter + 'static>(
        exporter: E,
        count: usize,
        metrics: &Metrics,
        limit_ms: u64,
    ) {
        redact::prepare();
        let processor = BoundedProcessor::new(exporter, 100, metrics);
        let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
        let tracer = provider.tracer("test");
        for _ in 0..count {
            drop(tracer.start("placet.call"));
        }
        // A stuck exporter makes this fail after its time limit.
        let _done = provider.shutdown_with_timeout(Duration::from_millis(limit_ms));
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let metrics = Metrics::new();
        end_spans(Stuck, 250, &metrics, 50);
        let text = metrics.encode();
        assert!(text.contains("placet_spans_dropped_total 150"), "{text}");
        assert!(text.contains("placet_spans_exported_total 0"), "{text}");
    }

    #[test]
    fn spans_within_the_queue_are_all_exported() {
        let (metrics, spans) = (Metrics::new(), CapturedSpans::default());
        end_spans(spans.clone(), 100, &metrics, 10_000);
        let text = metrics.encode();
        assert!(text.contains("placet_spans_dropped_total 0"), "{text}");
        assert!(text.contains("placet_spans_exported_total 100"), "{text}");
        assert_eq!(spans.all().len(), 100);
    }

    #[test]
    fn attributes_are_masked_by_name_and_by_value_and_numbers_are_kept() {
        let list = Value::Array(Array::String(vec!["c4n4ry".into()]));
        let mut attributes = vec![
            KeyValue::new("access_token", "c4n4ry"),
            KeyValue::new("note", "sent Bearer c4n4ry-7f3a9b2e"),
            KeyValue::new("list", list),
            KeyValue::new("gen_ai.usage.input_tokens", 12),
            KeyValue::new("gen_ai.tool.name", "files__read"),
        ];
        redact_attributes(&mut attributes);
        let shown: Vec<String> =
            attributes.iter().map(|kv| format!("{}={}", kv.key, kv.value)).collect();
        assert_eq!(
            shown,
            [
                "access_token=[redacted]",
                "note=sent Bearer [redacted]",
                "list=[redacted]",
                "gen_ai.usage.input_tokens=12",
                "gen_ai.tool.name=files__read",
            ]
        );
    }
}
