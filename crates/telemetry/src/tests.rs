//! The telemetry from the outside: spans that reach a collector, lines that reach a log.

mod collectors;
mod export;
mod logs;
mod spans;

use placet_egress::EgressClient;
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

use crate::export::{TelemetryConfig, TelemetryError, TelemetryGuard, assemble, otlp_exporter};

/// A telemetry as the process has it, with another place for its log.
fn build<W>(
    config: &TelemetryConfig,
    egress: Option<&EgressClient>,
    log_writer: W,
) -> Result<(Dispatch, TelemetryGuard), TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    assemble(config, otlp_exporter(config, egress)?, log_writer)
}

fn trace_id_of(span: &tracing::Span) -> Option<String> {
    crate::trace::parent_of(span).map(|parent| parent.trace_id())
}
