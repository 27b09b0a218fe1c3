//! The data of server-sent events as they arrive.
//!
//! Does not reconnect: that is the reader's decision. Invariant: one event has no more bytes than the egress client takes of one stream
//! (`stream_bytes_max`).

use futures::TryStreamExt as _;
use http::{Response, header};
use placet_egress::EgressBody;
use sse_stream::{Error, SseStream};

/// A stream of events.
pub(crate) struct Events(SseStream<EgressBody>);

impl Events {
    /// The events of an answer.
    ///
    /// # Errors
    /// The answer itself, if it is not a stream of events.
    pub(crate) fn of(response: Response<EgressBody>) -> Result<Self, Response<EgressBody>> {
        let media = response.headers().get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
        let is_stream = response.status().is_success()
            && media.is_some_and(|media| media.starts_with(b"text/event-stream"));
        if is_stream { Ok(Self(SseStream::new(response.into_body()))) } else { Err(response) }
    }

    /// The data of the next event that has any; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Error> {
        while let Some(event) = self.0.try_next().await? {
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}
