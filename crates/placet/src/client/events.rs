//! Server-sent events as they arrive.
//!
//! Owns parsing the stream, line by line, within a limit. Does not reconnect: that is the reader's decision.

use http::{Response, header};
use http_body_util::BodyExt as _;
use placet_egress::{EgressBody, EgressError};

/// The longest event, in bytes.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its name.
    pub(crate) name: String,
    /// Its data.
    pub(crate) data: String,
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct Events {
    body: EgressBody,
    lines: Lines,
}

impl Events {
    /// The events of an answer.
    ///
    /// # Errors
    /// The answer itself, if it is not a stream of events.
    pub(crate) fn of(response: Response<EgressBody>) -> Result<Self, Response<EgressBody>> {
        let media = response.headers().get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
        let is_stream = response.status().is_success()
            && media.is_some_and(|media| media.starts_with(b"text/event-stream"));
        if !is_stream {
            return Err(response);
        }
        Ok(Self { body: response.into_body(), lines: Lines::default() })
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, EgressError> {
        loop {
            if let Some(event) = self.lines.event() {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Some(data) = frame?.data_ref() {
                self.lines.take(data);
            }
            if self.lines.is_too_long() {
                return Err(EgressError::ResponseTooLarge { bytes_max: EVENT_BYTES_MAX });
            }
        }
    }
}

/// Received data that is not a complete event yet.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
    name: String,
    data: String,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    fn is_too_long(&self) -> bool {
        self.rest.len().saturating_add(self.data.len()) > EVENT_BYTES_MAX
    }

    /// The next complete event.
    fn event(&mut self) -> Option<Event> {
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(event) = self.line(line.trim_end_matches(['\n', '\r'])) {
                return Some(event);
            }
        }
        None
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = Event {
                name: std::mem::take(&mut self.name),
                data: std::mem::take(&mut self.data),
            };
            return (!event.data.is_empty()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // Comments and fields that are not needed here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENT_BYTES_MAX, Event, Lines};

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_read_however_the_stream_is_cut() {
        let text = ": alive\n\nevent: approvals\r\ndata: {\"grü\": 1}\r\n\r\ndata: a\ndata:b\nid: 7\n\nevent: lost\ndata: x";
        let wanted = [event("approvals", "{\"grü\": 1}"), event("", "a\nb")];
        for size in [1, 2, 3, 7, 1_000] {
            let (mut lines, mut seen) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.take(piece);
                seen.extend(std::iter::from_fn(|| lines.event()));
            }
            assert_eq!(seen, wanted, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_that_never_ends_is_noticed() {
        let mut lines = Lines::default();
        lines.take(&vec![b'x'; EVENT_BYTES_MAX]);
        assert!(lines.event().is_none() && !lines.is_too_long());
        lines.take(b"x");
        assert!(lines.is_too_long());
    }
}
