//! HTTP/1 connections, and the unused ones, which are kept for the next request.
//!
//! It owns who moves a connection: the task that awaits its response or reads its body. In a task of its own, as pools usually have it, an
//! exchange would go from task to task five times, most of them on another thread. Invariants: one exchange at a time; a connection whose
//! exchange has not ended is closed with it; nothing is sent on one that was found closed, or on which something arrived unasked.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::error::EgressError;
use crate::limits::Limits;
use crate::stream::EgressStream;

/// The least read buffer that the HTTP library accepts; smaller limits are checked after the head was read.
const HEAD_BUFFER_BYTES_MIN: usize = 8192;
/// How often both ends are polled for each other before other tasks have their turn.
const ROUNDS_MAX: usize = 16;
/// How long the rest of a request may take that was answered before it was written to its end.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);

/// An open connection, whose two ends are polled together.
#[derive(Debug)]
pub(crate) struct Http1 {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it is closed.
    connection: Option<Box<Connection<TokioIo<EgressStream>, Full<Bytes>>>>,
    ends: Arc<Ends>,
    destination: String,
    unused: Weak<Unused>,
}

impl Http1 {
    pub(crate) async fn over(
        stream: EgressStream,
        destination: String,
        unused: &Arc<Unused>,
    ) -> Result<Self, EgressError> {
        let (sender, connection) = Builder::new()
            .max_buf_size(unused.limits.header_bytes_max.max(HEAD_BUFFER_BYTES_MIN))
            .max_headers(unused.limits.headers_max)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_error| EgressError::ClosedBeforeRequest)?;
        let (ends, unused) = (Arc::default(), Arc::downgrade(unused));
        Ok(Self { sender, connection: Some(Box::new(connection)), ends, destination, unused })
    }

    /// Sends a request and awaits the head of its response.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, EgressError> {
        let mut sending = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|cx| self.poll_with(cx, |cx| sending.as_mut().poll(cx))).await;
        answered.map_err(|mut error| match error.take_message() {
            // The library gave the request back unwritten.
            Some(_unsent) => EgressError::ClosedBeforeRequest,
            None if error.error().is_parse() => EgressError::ResponseUnusable {
                reason: "its head is not http or has no end within the limit",
            },
            None => EgressError::ConnectionLost,
        })
    }

    /// Polls our end, and the connection for as long as either of them wakes the other.
    pub(crate) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        ours: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.ends.set_task(cx.waker());
        self.ends.are_polled.store(true, SeqCst);
        let polled = self.poll_rounds(ours);
        self.ends.are_polled.store(false, SeqCst);
        if polled.is_pending() && self.ends.are_woken.load(SeqCst) {
            cx.waker().wake_by_ref();
        }
        polled
    }

    fn poll_rounds<T>(&mut self, mut ours: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.ends));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..ROUNDS_MAX {
            self.ends.are_woken.store(false, SeqCst);
            let polled = ours(&mut cx);
            if polled.is_ready() {
                return polled;
            }
            if let Some(connection) = &mut self.connection
                && Pin::new(connection.as_mut()).poll(&mut cx).is_ready()
            {
                // What it still holds of our end goes with it.
                self.connection = None;
                self.ends.are_woken.store(true, SeqCst);
            }
            if !self.ends.are_woken.load(SeqCst) {
                return Poll::Pending;
            }
        }
        Poll::Pending
    }

    /// Whether it is open and waits for a request.
    fn is_idle(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        let _never: Poll<()> = self.poll_with(&mut nobody, |_| Poll::Pending);
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Its exchange has ended: it is kept for the next one, if it can have one, once the last of the request is written.
    pub(crate) fn release(mut self) {
        let Some(unused) = self.unused.upgrade() else { return };
        if self.is_idle() {
            return unused.keep(self);
        }
        if self.connection.is_none() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        drop(runtime.spawn(async move {
            let settled = poll_fn(|cx| {
                let _never: Poll<()> = self.poll_with(cx, |_| Poll::Pending);
                let is_settled = self.connection.is_none() || self.sender.is_ready();
                if is_settled { Poll::Ready(()) } else { Poll::Pending }
            });
            if timeout(WRITTEN_WITHIN, settled).await.is_ok() && self.is_idle() {
                unused.keep(self);
            }
        }));
    }
}

/// What the two ends of a connection wake: each other while they are polled, otherwise the task that polls them.
#[derive(Debug, Default)]
struct Ends {
    are_polled: AtomicBool,
    are_woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Ends {
    fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|before| before.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Wake for Ends {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.are_woken.store(true, SeqCst);
        // The poller looks at the first after it has changed the second, so one of both sees it.
        if !self.are_polled.load(SeqCst) {
            let task = self.task.lock().clone();
            task.inspect(Waker::wake_by_ref);
        }
    }
}

/// The unused connections of a client.
#[derive(Debug)]
pub(crate) struct Unused {
    limits: Limits,
    kept: Mutex<HashMap<String, Vec<(Instant, Http1)>>>,
}

impl Unused {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, kept: Mutex::default() })
    }

    /// The connection to the destination that was used last, if it is still open.
    pub(crate) fn take(&self, destination: &str) -> Option<Http1> {
        loop {
            let (since, mut one) = self.kept.lock().get_mut(destination)?.pop()?;
            if self.is_young(since) && one.is_idle() {
                return Some(one);
            }
        }
    }

    fn keep(self: &Arc<Self>, one: Http1) {
        let mut all = self.kept.lock();
        if all.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn(close_old(Arc::downgrade(self))));
        }
        let kept = all.entry(one.destination.clone()).or_default();
        if kept.len() < self.limits.pool_idle_connections_max {
            kept.push((Instant::now(), one));
        }
    }

    fn is_young(&self, since: Instant) -> bool {
        since.elapsed() < Duration::from_millis(self.limits.pool_idle_timeout_ms)
    }
}

/// Closes unused connections that have become old, until there are none.
async fn close_old(unused: Weak<Unused>) {
    while let Some(open) = unused.upgrade() {
        let pause = Duration::from_millis(open.limits.pool_idle_timeout_ms);
        drop(open);
        sleep(pause).await;
        let Some(open) = unused.upgrade() else { return };
        let mut all = open.kept.lock();
        all.retain(|_, kept| {
            kept.retain(|(since, _)| open.is_young(*since));
            !kept.is_empty()
        });
        if all.is_empty() {
            return;
        }
    }
}
