//! The adapter trait.

use std::{any::Any, fmt, sync::Arc, time::Instant};

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::{Map, Value};

pub use placet_ledger::dispatch::Dispatch;
#[cfg(feature = "test-support")]
pub use placet_ledger::dispatch::TestDispatch;
use placet_types::{
    contract::{Contract, LiveTool, feature::Listing},
    digest::{Digest, DigestBuilder},
    ids::{CapabilityId, TenantId, ToolCallId},
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

    /// What the live endpoint currently lists besides tools, each item in the form of its protocol. Has no effect. A wrapper forwards it.
    ///
    /// # Errors
    /// [`AdapterError`] when the endpoint cannot be asked.
    async fn list(&self, _what: Listing) -> Result<Vec<Value>, AdapterError> {
        Ok(Vec::new())
    }

    /// Counts the changes of the tool list that the endpoint announced, so that a stale cached list can be detected.
    fn generation(&self) -> u64;

    /// Prepares what a call of this kind needs, where that takes time: a session for its owner. Called before the dispatch
    /// is recorded, so that nothing is left to wait for afterwards, and so that decisions made meanwhile (a freeze, a revocation) still
    /// stop the call. Has no effect; never outlives `approach.timeout_ms`. The default prepares nothing.
    ///
    /// # Errors
    /// Why it failed; the call is not dispatched then.
    async fn prepare(&self, _approach: PrepareRequest<'_>) -> Result<SessionLease, AdapterError> {
        Ok(SessionLease::default())
    }

    /// Performs one call, through what was made ready for it. The only method that may have an effect.
    ///
    /// Never panics on an answer of the endpoint, never outlives `conditions.timeout_ms` plus `conditions.listen_ms`, and never
    /// retries by itself.
    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome;

    /// Asks whether the effect of a token happened. Has no effect, and never outlives `inquiry.timeout_ms`.
    async fn probe(&self, inquiry: &Inquiry) -> Probe;

    /// Whether the connection is still usable; `false` makes the supervisor replace it.
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

/// What a call is prepared with.
#[derive(Debug)]
pub struct PrepareRequest<'a> {
    /// How long that may take, in milliseconds.
    pub timeout_ms: u64,
    /// The credential of the call: the same that comes with its conditions.
    pub credential: Option<&'a Credential>,
    /// Whom the credential speaks for. A call shares a session with the endpoint only with calls of the same owner.
    pub owner: SessionOwner,
}

/// What was prepared for one call; returned on drop. Only the adapter that made it knows its content.
#[derive(Default)]
pub struct SessionLease(Option<Box<dyn Any + Send + Sync>>);

impl SessionLease {
    /// A lease that holds `what`.
    pub fn holding(what: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(what)))
    }

    /// Its content, if it is a `T`; `None` if nothing was prepared, or by another kind of adapter.
    pub fn into_held<T: Any>(self) -> Option<T> {
        self.0?.downcast().ok().map(|held| *held)
    }
}

impl fmt::Debug for SessionLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionLease").field(&self.0.is_some()).finish()
    }
}

/// What a call gets in addition to its dispatch.
#[derive(Debug)]
pub struct Conditions {
    /// How long the call may take, in milliseconds, by the monotonic clock (TM-11).
    pub timeout_ms: u64,
    /// How much longer an answer that is late is listened for, in milliseconds. Nobody waits for it any more, but it is evidence: what
    /// became of a call whose outcome was called unknown. Nothing is begun in this time.
    pub listen_ms: u64,
    /// The credential to attach; minted after the gate.
    pub credential: Option<Credential>,
    /// What was made ready for it, with this credential.
    pub seat: SessionLease,
    /// The W3C trace headers of the adapter's span.
    pub trace: TraceHeaders,
    /// The earlier calls of its session, oldest first: a simulation has to be consistent with them. Empty outside of sessions.
    pub examples: Arc<[Example]>,
    /// Receives the progress of the call; `None` if nobody asked for it.
    pub observer: Option<Arc<dyn Observer>>,
}

/// The progress of a call, in units of its endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// The part that is done.
    pub done: f64,
    /// The total, if known.
    pub total: Option<f64>,
}

/// Receives the progress of calls, from adapters whose endpoints report it.
pub trait Observer: Send + Sync + fmt::Debug {
    /// The progress of a call has changed. Returns at once.
    fn progressed(&self, call: &ToolCallId, progress: Progress);
}

/// An earlier call of a session, with its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// The operation.
    pub capability: CapabilityId,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// Its result, or its error.
    pub result: Value,
}

/// A credential for one call.
pub struct Credential {
    /// The header or metadata name it goes into, lower case.
    pub header: String,
    /// The value, exactly as sent.
    pub value: SecretString,
    /// The only origin (`https://host:port`) that it may be sent to; absent: the target of the contract.
    pub origin: Option<String>,
    /// When it expires, if it does: it is not sent after that.
    pub ends: Option<Instant>,
}

impl Credential {
    /// Whether it has expired at `now`.
    pub fn is_over_at(&self, now: Instant) -> bool {
        self.ends.is_some_and(|ends| now >= ends)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("header", &self.header).finish_non_exhaustive()
    }
}

/// The party that a call's credential speaks for, as its endpoint sees it. An endpoint may take the identity of a session from the first
/// call in it, or refuse a session to everybody but its creator; so calls share a session only if they have the same owner. It identifies
/// nobody: it is a digest, made by the engine from verified tokens and the contract, never from arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionOwner {
    who: Digest,
    tenant: Option<Digest>,
}

impl SessionOwner {
    /// For calls whose credential is the same for everybody in a tenant: a secret of the configuration, by its name and the mark of the
    /// version sent, or none. A server may continue as the creator of a session: a rotated secret must not stay that creator.
    pub fn shared(tenant: &TenantId, secret: Option<(&str, Option<Digest>)>) -> Self {
        let builder = DigestBuilder::new("placet.session.shared.v1");
        let builder = builder.field("tenant", tenant.as_str().as_bytes());
        let builder = builder.optional("secret", secret.map(|(name, _)| name.as_bytes()));
        let mark = secret.and_then(|(_, mark)| mark);
        let who =
            builder.optional("version", mark.as_ref().map(|mark| &mark.as_bytes()[..])).finish();
        Self { who, tenant: Some(Digest::of(tenant.as_str().as_bytes())) }
    }

    /// Of calls whose credential is minted; `holder` stands for everything that it depends on but the tokens it was exchanged for.
    pub fn minted(tenant: &TenantId, holder: Digest) -> Self {
        let builder = DigestBuilder::new("placet.session.minted.v1");
        let who = builder.field("holder", holder.as_bytes()).finish();
        Self { who, tenant: Some(Digest::of(tenant.as_str().as_bytes())) }
    }

    /// For calls without a tenant: an operator rehearses a contract.
    pub fn rehearsal() -> Self {
        let who = DigestBuilder::new("placet.session.rehearsal.v1").finish();
        Self { who, tenant: None }
    }

    /// In which tenant, so that one tenant's sessions do not push out another's.
    pub const fn tenant(&self) -> Option<Digest> {
        self.tenant
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

#[cfg(test)]
mod tests {
    use placet_types::ids::TenantId;

    use super::{Digest, SessionOwner};

    #[test]
    fn what_was_rotated_away_shares_no_session_with_what_came_after_it() {
        let acme = TenantId::new("acme").unwrap();
        let [old, new] = [b"old", b"new"].map(|version| Some(Digest::of(version)));
        let owner = |secret| SessionOwner::shared(&acme, secret);
        assert_eq!(owner(Some(("key", old))), owner(Some(("key", old))));
        assert_ne!(owner(Some(("key", old))), owner(Some(("key", new))));
        assert_ne!(owner(Some(("key", old))), owner(Some(("other", old))));
        assert_ne!(owner(Some(("key", None))), owner(None));
    }
}
