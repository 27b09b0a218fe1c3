//! The state of one session.
//!
//! Owns what the server's answers mean for a session: that it exists, that it has ended, that no further call may use it.
//! Sends nothing. Invariant: only an answer to a request in the session shows that the server is there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use placet_types::contract::{file::LimitsFile, not_executed::HttpError};
use rmcp::transport::streamable_http_client::StreamableHttpPostResponse;
use tokio::time::Instant;

use super::{
    asking::Speaker,
    beginning::{Begun, GRACE},
};
use crate::failure::HttpFault;

/// The state of one session.
pub(super) struct Own {
    pub(super) speaker: Speaker,
    /// Whether it receives messages that the server sends unasked: the contract's own session does.
    pub(super) listens: bool,
    /// Whether the server has assigned it an id.
    numbered: AtomicBool,
    /// Whether any of its requests has reached the server.
    pub(super) reached: AtomicBool,
    /// Set once the server has ended it, or rejects the credential of its callers.
    closed: Arc<AtomicBool>,
    /// Set once the server has forbidden something to its speaker.
    retired: AtomicBool,
    /// When waiting for its beginning ends.
    pub(super) begins_by: Instant,
    begun: Mutex<Begun>,
    heard_at: Mutex<Instant>,
}

impl Own {
    /// The state of a session that is about to begin.
    pub(super) fn new(speaker: Speaker, listens: bool, limits: &LimitsFile) -> Arc<Self> {
        let now = Instant::now();
        let begins_in = Duration::from_millis(limits.connect_ms_max).saturating_add(GRACE);
        Arc::new(Self {
            speaker,
            listens,
            numbered: AtomicBool::new(false),
            reached: AtomicBool::new(false),
            closed: Arc::default(),
            retired: AtomicBool::new(false),
            begins_by: now.checked_add(begins_in).unwrap_or(now),
            begun: Mutex::default(),
            heard_at: Mutex::new(now),
        })
    }

    pub(super) fn is_numbered(&self) -> bool {
        self.numbered.load(Ordering::Acquire)
    }

    /// The server identifies its session without an id.
    pub(super) fn is_told_apart(&self) {
        self.numbered.store(true, Ordering::Release);
    }

    /// The flag that is set once it has ended.
    pub(super) fn closed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.closed)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// The server has ended it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether no further calls may use it.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// The server has answered in it.
    pub(super) fn hear(&self) {
        *self.heard_at.lock() = Instant::now();
    }

    pub(super) fn heard_at(&self) -> Instant {
        *self.heard_at.lock()
    }

    pub(super) fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock()
    }

    /// Notes what an answer means for the session. If its callers' credential is rejected, the session has ended: the server may have bound
    /// it to that credential. If something was forbidden, calls already in the session may still be served, but the credential of a later
    /// call may permit more, if the session is not bound to this one.
    pub(super) fn note(&self, answer: &Result<StreamableHttpPostResponse, HttpFault>) {
        match answer {
            Ok(
                StreamableHttpPostResponse::Json(_, Some(_))
                | StreamableHttpPostResponse::Sse(_, Some(_)),
            ) => self.numbered.store(true, Ordering::Release),
            Err(fault) => self.note_fault(fault),
            Ok(_) => {}
        }
    }

    /// Notes what a failure means for the session.
    pub(super) fn note_fault(&self, fault: &HttpFault) {
        if matches!(fault, HttpFault::SessionEnded(_)) {
            self.close();
        }
        let HttpFault::Status(HttpError { status, .. }) = fault else { return };
        match status {
            401 if !self.speaker.is_contract() => self.close(),
            403 if !self.speaker.is_contract() => self.retired.store(true, Ordering::Release),
            _ => {}
        }
    }
}
