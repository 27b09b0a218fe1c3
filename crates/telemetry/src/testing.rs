//! Spans kept in memory, for tests.
//!
//! Owns a telemetry whose spans and log lines tests can read. They pass through the same filters, bound and redaction as in the product,
//! where this module does not exist.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::Dispatch;

use crate::export::{TelemetryConfig, TelemetryError, TelemetryGuard, assemble, settled};

/// Finished spans, after redaction. [`TelemetryGuard::flush`] brings the last ones in.
#[derive(Clone, Debug, Default)]
pub struct CapturedSpans {
    spans: Arc<Mutex<Vec<SpanData>>>,
}

impl CapturedSpans {
    /// Everything that has been exported.
    pub fn all(&self) -> Vec<SpanData> {
        self.spans.lock().clone()
    }
}

impl SpanExporter for CapturedSpans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.spans.lock().extend(batch);
        Ok(())
    }
}

/// Log lines.
#[derive(Clone, Debug, Default)]
pub struct CapturedLog {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl CapturedLog {
    /// Everything that has been logged.
    pub fn text(&self) -> String {
        let bytes = self.bytes.lock();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl io::Write for CapturedLog {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.bytes.lock().extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A telemetry that keeps its spans and its log.
#[derive(Debug)]
pub struct Capture {
    /// To be set as the default of a thread, or globally.
    pub dispatch: Dispatch,
    /// The running telemetry.
    pub guard: TelemetryGuard,
    /// Its spans.
    pub spans: CapturedSpans,
    /// Its log.
    pub log: CapturedLog,
}

impl Capture {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// As for [`crate::export::init`].
    pub fn start(config: &TelemetryConfig) -> Result<Self, TelemetryError> {
        let (spans, log) = (CapturedSpans::default(), CapturedLog::default());
        let writer = log.clone();
        let (dispatch, guard) = assemble(config, Some(spans.clone()), move || writer.clone())?;
        Ok(Self { dispatch, guard, spans, log })
    }
}

impl TelemetryGuard {
    /// Exports what is queued.
    ///
    /// # Errors
    ///
    /// Fails when the collector does not take it in time.
    pub async fn flush(&self) -> Result<(), TelemetryError> {
        let provider = self.provider.clone();
        settled(move || provider.force_flush()).await
    }
}
