//! Log lines, as JSON or for people.
//!
//! Owns how an event and the spans around it become one line. Does not own which events are logged (the filters of
//! [`crate::export`]). Invariants: every text passes [`redact`]; a line is one line, whatever an event holds; a
//! stream that cannot be written to loses lines, which are counted, and breaks nothing.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use opentelemetry::Context as OtelContext;
use opentelemetry::trace::TraceContextExt;
use placet_types::text::is_hidden;
use schemars::JsonSchema;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::metrics::Metrics;
use crate::redact;

/// Longer texts are truncated in a log line.
const TEXT_BYTES_MAX: usize = 4_096;

placet_types::named_enum! {
    /// The format of log lines.
    #[derive(JsonSchema)]
    pub enum LogFormat {
        /// One JSON object per line.
        Json = "json",
        /// One line of text.
        People = "people",
    }
}

/// The layer that writes log lines.
#[derive(Debug)]
pub(crate) struct LogLayer<W> {
    pub(crate) format: LogFormat,
    pub(crate) writer: W,
    pub(crate) metrics: Metrics,
}

/// The fields of an event or a span in the order in which they came, each once.
#[derive(Debug, Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(existing, _)| *existing == name) {
            Some((_, existing)) => *existing = value,
            None => self.0.push((name, value)),
        }
    }

    fn put_text(&mut self, field: &Field, text: &dyn fmt::Display) {
        self.put(field.name(), Value::String(bounded(text)));
    }

    /// Merges other fields, masked. Texts are masked only when a line shows them, since most spans end without such a line.
    fn merge_masked(&mut self, given: &Self) {
        for (name, value) in given.0.iter().filter(|(name, _)| !name.starts_with("otel.")) {
            let masked = match value.as_str() {
                Some(text) => redact::field(name, text).into_owned().into(),
                None => value.clone(),
            };
            self.put(name, masked);
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.0.iter().position(|(existing, _)| *existing == name)?;
        Some(self.0.remove(index).1)
    }

    fn into_json(self) -> Value {
        Value::Object(self.0.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// A text, truncated to its limit.
fn bounded(text: &dyn fmt::Display) -> String {
    let mut bounded = String::new();
    // A text that cannot be written whole is logged as far as it goes.
    if write!(bounded, "{text}").is_err() || bounded.len() > TEXT_BYTES_MAX {
        bounded.truncate(bounded.floor_char_boundary(TEXT_BYTES_MAX));
        bounded.push('…');
    }
    bounded
}

impl<S, W> Layer<S> for LogLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line::of(event);
        if let Some(scope) = context.event_scope(event) {
            for span in scope.from_root() {
                line.span = Some(span.name());
                if let Some(fields) = span.extensions().get::<Fields>() {
                    line.context.merge_masked(fields);
                }
            }
        }
        let mut text = match self.format {
            LogFormat::Json => line.json(),
            LogFormat::People => line.people(),
        };
        text.push('\n');
        let mut writer = self.writer.make_writer_for(event.metadata());
        if writer.write_all(text.as_bytes()).is_err() {
            self.metrics.inner.log_lines_lost.inc();
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, &format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), Value::Bool(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), Value::from(value));
    }
}

/// What a line says.
struct Line {
    timestamp: String,
    level: &'static str,
    target: String,
    message: String,
    fields: Fields,
    span: Option<&'static str>,
    context: Fields,
    ids: Option<(String, String)>,
}

impl Line {
    fn of(event: &Event<'_>) -> Self {
        let (mut given, mut fields) = (Fields::default(), Fields::default());
        event.record(&mut given);
        fields.merge_masked(&given);
        let message = match fields.take("message") {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let mut timestamp = String::new();
        if SystemTime.format_time(&mut Writer::new(&mut timestamp)).is_err() {
            timestamp.clear();
        }
        let metadata = event.metadata();
        Self {
            timestamp,
            level: metadata.level().as_str(),
            target: metadata.target().to_owned(),
            message,
            fields,
            span: None,
            context: Fields::default(),
            ids: current_ids(),
        }
    }

    fn json(self) -> String {
        let mut line = Map::new();
        let mut put = |name: &str, value: Value| line.insert(name.to_owned(), value);
        put("timestamp", self.timestamp.into());
        put("level", self.level.into());
        put("target", self.target.into());
        put("message", self.message.into());
        if !self.fields.0.is_empty() {
            put("fields", self.fields.into_json());
        }
        if let Some(span) = self.span {
            put("span", span.into());
            put("call", self.context.into_json());
        }
        if let Some((trace_id, span_id)) = self.ids {
            put("trace_id", trace_id.into());
            put("span_id", span_id.into());
        }
        Value::Object(line).to_string()
    }

    fn people(self) -> String {
        let mut line = format!("{} {:>5} {}:", self.timestamp, self.level, self.target);
        push_plain(&mut line, " ", &self.message);
        push_fields(&mut line, &self.fields);
        if let Some(span) = self.span {
            push_plain(&mut line, " | ", span);
            push_fields(&mut line, &self.context);
        }
        if let Some((trace_id, _)) = self.ids {
            push_plain(&mut line, " trace_id=", &trace_id);
        }
        line
    }
}

fn push_fields(line: &mut String, fields: &Fields) {
    for (name, value) in &fields.0 {
        push_plain(line, " ", name);
        // A text needs no quotes where it cannot be mistaken for something else.
        let is_bare = |text: &&str| !text.is_empty() && !text.contains([' ', '"', '=']);
        match value.as_str().filter(is_bare) {
            Some(text) => push_plain(line, "=", text),
            None => push_plain(line, "=", &value.to_string()),
        }
    }
}

/// Appends a text with its control characters escaped, so that it can neither end the line nor command a terminal.
fn push_plain(line: &mut String, before: &str, text: &str) {
    line.push_str(before);
    for character in text.chars() {
        if is_hidden(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
}

/// The ids of the span that is entered, as the OpenTelemetry layer made them.
fn current_ids() -> Option<(String, String)> {
    let context = OtelContext::current();
    let span = context.span();
    let ids = span.span_context();
    ids.is_valid().then(|| (ids.trace_id().to_string(), ids.span_id().to_string()))
}
