//! The body of a response, with its two limits: bytes in total and silence between two pieces.
//!
//! It owns the counting. It does not decode, decompress or buffer. Invariants: after an error the connection is dropped
//! and the body has ended, so nothing more of an oversized response is read; a body that was read to its end gives its
//! connection back.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread::panicking;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::error::EgressError;
use crate::http1::Http1;
use crate::limits::Limits;

/// A response body that is read as it arrives.
#[derive(Debug)]
pub struct EgressBody {
    /// `None` once the body has ended or failed.
    incoming: Option<(Incoming, Http1)>,
    bytes_max: usize,
    bytes_left: usize,
    idle_timeout_ms: u64,
    idle: Pin<Box<Sleep>>,
    /// The silence is counted from the first poll that finds nothing, so a slow reader is not taken for a slow peer.
    waiting: bool,
}

impl EgressBody {
    /// Wraps a body. A length that the peer announces above the limit is refused at once.
    pub(crate) fn new(
        incoming: Incoming,
        connection: Http1,
        bytes_max: usize,
        limits: &Limits,
    ) -> Result<Self, EgressError> {
        let announced = usize::try_from(incoming.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > bytes_max {
            return Err(EgressError::ResponseTooLarge { bytes_max });
        }
        let mut body = Self {
            incoming: Some((incoming, connection)),
            bytes_max,
            bytes_left: bytes_max,
            idle_timeout_ms: limits.idle_timeout_ms,
            idle: Box::pin(sleep(Duration::from_millis(limits.idle_timeout_ms))),
            waiting: false,
        };
        if body.is_end_stream() {
            body.end();
        }
        Ok(body)
    }

    /// The body has been read; its connection can be used again.
    fn end(&mut self) {
        if let Some((_, connection)) = self.incoming.take() {
            connection.release();
        }
    }

    fn fail(&mut self, error: EgressError) -> Poll<Option<Result<Frame<Bytes>, EgressError>>> {
        self.incoming = None;
        Poll::Ready(Some(Err(error)))
    }

    fn accept(&mut self, frame: Frame<Bytes>) -> Poll<Option<Result<Frame<Bytes>, EgressError>>> {
        self.waiting = false;
        let length = frame.data_ref().map_or(0, Bytes::len);
        match self.bytes_left.checked_sub(length) {
            Some(left) => {
                self.bytes_left = left;
                if self.is_end_stream() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            None => self.fail(EgressError::ResponseTooLarge { bytes_max: self.bytes_max }),
        }
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, EgressError>>> {
        if !self.waiting {
            self.waiting = true;
            let (now, limit) = (Instant::now(), Duration::from_millis(self.idle_timeout_ms));
            self.idle.as_mut().reset(now.checked_add(limit).unwrap_or(now));
        }
        match self.idle.as_mut().poll(cx) {
            Poll::Ready(()) => {
                self.fail(EgressError::IdleTimeout { timeout_ms: self.idle_timeout_ms })
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Body for EgressBody {
    type Data = Bytes;
    type Error = EgressError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EgressError>>> {
        let this = self.get_mut();
        let Some((incoming, connection)) = &mut this.incoming else { return Poll::Ready(None) };
        match connection.poll_with(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx)) {
            Poll::Ready(Some(Ok(frame))) => this.accept(frame),
            Poll::Ready(Some(Err(error))) => this.fail(of_hyper(&error)),
            Poll::Ready(None) => {
                this.end();
                Poll::Ready(None)
            }
            Poll::Pending => this.wait(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(|(incoming, _)| incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(SizeHint::new, |(incoming, _)| incoming.size_hint())
    }
}

impl Drop for EgressBody {
    /// An end that has arrived counts as read.
    fn drop(&mut self) {
        let Some((incoming, connection)) = &mut self.incoming else { return };
        if panicking() {
            return;
        }
        let mut nobody = Context::from_waker(Waker::noop());
        match connection.poll_with(&mut nobody, |cx| Pin::new(&mut *incoming).poll_frame(cx)) {
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Ok(_))) if self.is_end_stream() => self.end(),
            Poll::Ready(Some(_)) | Poll::Pending => {}
        }
    }
}

fn of_hyper(error: &hyper::Error) -> EgressError {
    if error.is_parse() {
        EgressError::ResponseUnusable { reason: "its body is not framed correctly" }
    } else {
        EgressError::ConnectionLost
    }
}
