//! The adapter trait.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use secrecy::SecretString;

pub use placet_ledger::dispatch::Dispatch;
#[cfg(feature = "test-support")]
pub use placet_ledger::dispatch::TestDispatch;
use placet_types::{
    contract::{Contract, LiveTool},
    ids::CapabilityId,
};

use crate::outcome::{AdapterError, Outcome, Probe};

/// One external system, wrapped.
///
/// An implementation is one connection with its own lifetime: its supervisor drops it and makes another when it fails.
#[async_trait]
pub trait Adapter: Send + Sync + fmt::Debug {
    /// The tools as the live endpoint defines them at this moment. Has no effect.
    ///
    /// # Errors
    /// [`AdapterError`] when the endpoint cannot be asked.
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError>;

    /// Counts changes of the tool list that the endpoint announced, so that a cached list can be told from a fresh one.
    fn generation(&self) -> u64;

    /// Performs one call. The only method that may have an effect.
    ///
    /// Never panics on what the endpoint answers, never outlives `conditions.timeout_ms` with `conditions.listen_ms` after it, and never
    /// tries again by itself.
    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome;

    /// Asks whether the effect of a token happened. Has no effect, and never outlives `inquiry.timeout_ms`.
    async fn probe(&self, inquiry: &Inquiry) -> Probe;

    /// Whether the connection can still be used; `false` makes the supervisor replace it.
    fn is_alive(&self) -> bool;

    /// Ends the connection and whatever it started.
    async fn close(&self);
}

/// A question about a call whose outcome is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// The operation that was called.
    pub capability: CapabilityId,
    /// The token it was dispatched with.
    pub token: String,
    /// How long the answer may take, in milliseconds; the contract may say less.
    pub timeout_ms: u64,
}

/// What a call is given beside its dispatch.
#[derive(Debug)]
pub struct Conditions {
    /// How long the call may take, in milliseconds, by the monotonic clock (TM-11).
    pub timeout_ms: u64,
    /// How much longer an answer that is late is listened for, in milliseconds. Nobody waits for it any more, but it is evidence: what
    /// became of a call whose outcome was called unknown. Nothing is begun in this time.
    pub listen_ms: u64,
    /// The credential to attach; minted after the gate.
    pub credential: Option<Credential>,
    /// The W3C trace headers of the adapter's span.
    pub trace: TraceHeaders,
}

/// A credential for one call.
pub struct Credential {
    /// The header or metadata name it goes into, lower case.
    pub header: String,
    /// The value, exactly as sent.
    pub value: SecretString,
    /// The only origin (`https://host:port`) that it may be sent to; absent: wherever the contract says.
    pub origin: Option<String>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("header", &self.header).finish_non_exhaustive()
    }
}

/// The W3C Trace Context of a call (`traceparent`, `tracestate`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceHeaders {
    /// `traceparent`.
    pub traceparent: Option<String>,
    /// `tracestate`.
    pub tracestate: Option<String>,
}

/// Makes connections of one kind of adapter.
#[async_trait]
pub trait Connector: Send + Sync + fmt::Debug {
    /// Connects as `contract` says.
    ///
    /// # Errors
    /// [`AdapterError`] when it cannot; nothing had an effect then.
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError>;
}
