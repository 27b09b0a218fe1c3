//! The telemetry of a process: what is configured, how it starts and how it ends.
//!
//! Owns the subscriber with its two layers, spans and logs, and the tracer provider. Does not read the environment and
//! opens no socket but through the given [`EgressClient`]. Invariants: without a collector every call still has a trace
//! id; a collector that is slow, down or hostile costs spans, never a call.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{
    Protocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanExporter as ExportSpans};
use placet_egress::{EgressClient, join_segments};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::Handle;
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;
use tracing::{Dispatch, Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::exporter::{BoundedProcessor, QUEUE_SPANS_MAX, redact_attributes};
use crate::http_client::EgressHttpClient;
use crate::log::LogLayer;
use crate::metrics::Metrics;
use crate::names::{DETAIL_TARGET, TARGET};
use crate::redact;

pub use crate::log::LogFormat;

/// The name under which the tracer exports.
const SCOPE: &str = "placet";
const TIMEOUT_MS_MAX: u64 = 60_000;
/// Added to the export's own limit, so that the last batch may use all of it.
const SHUTDOWN_GRACE_MS: u64 = 1_000;
/// A stop waits no longer than this for a collector.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

placet_types::named_enum! {
    /// An OTLP protocol.
    #[derive(Default, JsonSchema)]
    pub enum OtlpProtocol {
        /// gRPC, usually on port 4317.
        #[default]
        Grpc = "grpc",
        /// Protobuf over HTTP, usually on port 4318. `v1/traces` is appended to the endpoint.
        HttpProtobuf = "http/protobuf",
    }
}

/// Where spans are exported to. The endpoint must also be a destination of the egress policy.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// The base URL of the collector.
    pub endpoint: url::Url,
    /// The protocol.
    pub protocol: OtlpProtocol,
    /// Headers for every request, such as the key of the collector.
    pub headers: Vec<(String, SecretString)>,
    /// The limit of one export.
    pub timeout_ms: u64,
}

/// The configuration of the telemetry.
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// The collector, if there is one.
    pub otlp: Option<OtlpConfig>,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which events are logged, in the syntax of `tracing-subscriber`'s filters, such as `info,placet_engine=debug`.
    pub log_filter: String,
    /// `service.name`.
    pub service_name: String,
    /// More attributes of the resource.
    pub resource_attributes: Vec<(String, String)>,
    /// The part of new traces that is exported, from 0 to 1. Remote traces keep the decision they came with.
    pub sample_ratio: f64,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp: None,
            log_format: LogFormat::People,
            log_filter: "info".to_owned(),
            service_name: SCOPE.to_owned(),
            resource_attributes: Vec::new(),
            sample_ratio: 1.0,
        }
    }
}

/// Why the telemetry did not start or end.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter of the log cannot be read.
    #[error("the log filter cannot be read: {0}")]
    LogFilter(#[from] tracing_subscriber::filter::ParseError),
    /// A value is out of its range or malformed.
    #[error("`{0}` is not usable: {1}")]
    Unusable(&'static str, &'static str),
    /// The exporter refused its configuration, which includes variables such as `OTEL_EXPORTER_OTLP_COMPRESSION`.
    #[error("the otlp exporter cannot be built: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// A subscriber is already installed.
    #[error("the telemetry of this process is already running")]
    AlreadyRunning,
    /// The last spans could not be exported.
    #[error("the last spans could not be exported in time")]
    Incomplete,
}

/// The running telemetry of a process.
#[derive(Debug)]
pub struct TelemetryGuard {
    pub(crate) provider: SdkTracerProvider,
    metrics: Metrics,
    shutdown_timeout: Duration,
}

impl TelemetryGuard {
    /// The metrics of the process.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Exports what is queued and stops. Spans that end later are lost.
    ///
    /// # Errors
    ///
    /// Fails when the collector does not take the last spans in time. The process can end all the same.
    pub async fn shutdown(self) -> Result<(), TelemetryError> {
        let Self { provider, shutdown_timeout, .. } = self;
        let limit = shutdown_timeout.min(SHUTDOWN_MAX);
        // The SDK's shutdown does not tell whether its last export succeeded; its flush does.
        let ended = settled(move || {
            let flushed = provider.force_flush();
            provider.shutdown_with_timeout(limit).and(flushed)
        });
        // The flush has no limit of its own.
        tokio::time::timeout(limit, ended).await.unwrap_or(Err(TelemetryError::Incomplete))
    }
}

/// Waits for an SDK function, which blocks.
pub(crate) async fn settled(
    wait: impl FnOnce() -> OTelSdkResult + Send + 'static,
) -> Result<(), TelemetryError> {
    let waited = tokio::task::spawn_blocking(wait).await.ok().and_then(Result::ok);
    waited.ok_or(TelemetryError::Incomplete)
}

/// Starts the telemetry of the process; logs go to the standard error stream.
///
/// # Errors
///
/// See [`TelemetryError`]. A collector that cannot be reached is not an error.
pub fn init(
    config: &TelemetryConfig,
    egress: Option<&EgressClient>,
) -> Result<TelemetryGuard, TelemetryError> {
    let exporter = otlp_exporter(config, egress)?;
    let (dispatch, guard) = assemble(config, exporter, std::io::stderr)?;
    tracing::dispatcher::set_global_default(dispatch)
        .map_err(|_already_set| TelemetryError::AlreadyRunning)?;
    Ok(guard)
}

/// Whether the telemetry could start with this; nothing is started.
///
/// # Errors
///
/// As [`init`].
pub fn check(
    config: &TelemetryConfig,
    egress: Option<&EgressClient>,
) -> Result<(), TelemetryError> {
    assemble(config, otlp_exporter(config, egress)?, std::io::sink).map(drop)
}

pub(crate) fn assemble<E, W>(
    config: &TelemetryConfig,
    exporter: Option<E>,
    log_writer: W,
) -> Result<(Dispatch, TelemetryGuard), TelemetryError>
where
    E: ExportSpans + 'static,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    redact::prepare();
    let metrics = Metrics::new();
    let log_filter = EnvFilter::builder().with_regex(false).parse(&config.log_filter)?;
    if !(0.0..=1.0).contains(&config.sample_ratio) {
        return Err(TelemetryError::Unusable("sample_ratio", "it must lie between 0 and 1"));
    }
    let sampler = Sampler::TraceIdRatioBased(config.sample_ratio);
    let mut provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(sampler)))
        .with_resource(resource(config));
    let is_exported = exporter.is_some();
    let is_span = move |metadata: &Metadata<'_>| is_call_span(metadata, is_exported);
    if let Some(exporter) = exporter {
        let processor = BoundedProcessor::new(exporter, QUEUE_SPANS_MAX, &metrics);
        provider = provider.with_span_processor(processor);
    }
    let provider = provider.build();
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(SCOPE))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(is_span));
    let logs = LogLayer { format: config.log_format, writer: log_writer, metrics: metrics.clone() }
        .with_filter(log_filter.and(filter_fn(may_be_logged)).or(filter_fn(is_span)));
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(spans).with(logs));
    let export_ms = config.otlp.as_ref().map_or(0, |otlp| otlp.timeout_ms);
    let shutdown_timeout = Duration::from_millis(export_ms.saturating_add(SHUTDOWN_GRACE_MS));
    Ok((dispatch, TelemetryGuard { provider, metrics, shutdown_timeout }))
}

/// Only our own spans are exported and appear in log lines: we cannot vouch for what other crates put into theirs.
fn is_call_span(metadata: &Metadata<'_>, with_details: bool) -> bool {
    let target = metadata.target();
    metadata.is_span() && (target == TARGET || (with_details && target == DETAIL_TARGET))
}

/// Other crates may write whole messages, with arguments and headers, at the levels below `info`.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
        && (*metadata.level() <= Level::INFO || metadata.target().starts_with(SCOPE))
}

fn resource(config: &TelemetryConfig) -> Resource {
    let attributes = config.resource_attributes.iter();
    let mut attributes: Vec<KeyValue> =
        attributes.map(|(name, value)| KeyValue::new(name.clone(), value.clone())).collect();
    redact_attributes(&mut attributes);
    Resource::builder_empty()
        .with_attributes(attributes)
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_service_name(config.service_name.clone())
        .build()
}

/// The exporter to the collector, if there is one.
pub(crate) fn otlp_exporter(
    config: &TelemetryConfig,
    egress: Option<&EgressClient>,
) -> Result<Option<SpanExporter>, TelemetryError> {
    let Some(otlp) = &config.otlp else { return Ok(None) };
    let egress =
        egress.ok_or(TelemetryError::Unusable("endpoint", "no egress client was given"))?;
    if !otlp.endpoint.username().is_empty() || otlp.endpoint.password().is_some() {
        return Err(TelemetryError::Unusable("endpoint", "it names a user: use a header"));
    }
    if otlp.timeout_ms == 0 || otlp.timeout_ms > TIMEOUT_MS_MAX {
        return Err(TelemetryError::Unusable("timeout_ms", "it must lie between 1 and 60000"));
    }
    let runtime = Handle::try_current()
        .map_err(|_none| TelemetryError::Unusable("endpoint", "no tokio runtime runs"))?;
    let headers = header_map(&otlp.headers)?;
    let timeout = Duration::from_millis(otlp.timeout_ms);
    let exporter = match otlp.protocol {
        OtlpProtocol::Grpc => {
            let channel = Endpoint::from_shared(otlp.endpoint.to_string())
                .map_err(|_error| TelemetryError::Unusable("endpoint", "it is not a uri"))?
                .timeout(timeout)
                .connect_with_connector_lazy(egress.connector());
            SpanExporter::builder()
                .with_tonic()
                .with_channel(channel)
                .with_metadata(MetadataMap::from_headers(headers))
                .with_timeout(timeout)
                .build()?
        }
        OtlpProtocol::HttpProtobuf => {
            let reason = "no path can be appended to it";
            let url = join_segments(&otlp.endpoint, &["v1", "traces"])
                .map_err(|_error| TelemetryError::Unusable("endpoint", reason))?;
            let egress = egress.clone();
            SpanExporter::builder()
                .with_http()
                .with_http_client(EgressHttpClient { egress, headers, timeout, runtime })
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(url.to_string())
                .with_timeout(timeout)
                .build()?
        }
    };
    Ok(Some(exporter))
}

fn header_map(headers: &[(String, SecretString)]) -> Result<HeaderMap, TelemetryError> {
    let unusable = |reason| TelemetryError::Unusable("headers", reason);
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_error| unusable("a name is not the name of a header"))?;
        let mut value = HeaderValue::from_str(value.expose_secret())
            .map_err(|_error| unusable("a value holds characters that a header cannot hold"))?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    Ok(map)
}
