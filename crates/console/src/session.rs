//! Sessions: who is signed in, on every node and over restarts.
//!
//! Owns their lifetimes, how a kept session becomes a caller again, and the cookies' form. Who keeps them is
//! [`placet_types::sessions::SessionStore`]. Invariants: an id is 256 random bits and only its digest is kept; a session that was unused too
//! long, is too old, or was ended on any node, is no one's; signing in always makes a new one; what a kept session proves is verified again by
//! each process that takes it up.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;

use http::{HeaderMap, HeaderValue, header};
use placet_approvals::views::FreezeView;
use placet_identity::{SignInProof, VerifiedCaller, fresh_text};
use placet_types::{
    clock::Timestamp,
    digest::{Digest, DigestBuilder},
    error::{ErrorCode, Refusal},
    principal::Principal,
    sessions::{KeptSession, SessionLimits, SessionStore, SessionsUnavailable},
};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout},
};

use super::ConsoleSettings;

/// How many sessions one person has; the oldest gives way.
const SESSIONS_PER_PERSON_MAX: usize = 16;
/// The name of the field with the token of a session's forms.
pub(super) const CSRF_FIELD: &str = "form_token";
/// How long the value of a cookie is: 256 bits in base64url.
const COOKIE_BYTES: usize = 43;
/// How many ids that this process does not know are looked up at a time: anyone who makes some up takes no more than these from all others.
const STRANGERS_MAX: usize = 4;
/// How long one of them waits for its turn, in milliseconds.
const STRANGER_WAIT_MS: u64 = 2_000;
/// How much earlier than it was a use may be noted for the other nodes, at most, in milliseconds.
const NOTED_WITHIN_MS_MAX: i64 = 60_000;
/// How far ahead of the sessions' clock another may be, in milliseconds.
const CLOCKS_APART_MS: i64 = 60_000;

/// Everybody who is signed in.
pub(super) struct Sessions {
    idle_ms: i64,
    lifetime_ms: i64,
    count_max: usize,
    store: Arc<dyn SessionStore>,
    /// Those that this process has taken up; never more than there may be.
    known: Mutex<BTreeMap<Digest, Known>>,
    /// The turns of those that it has not.
    strangers: Semaphore,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("store", &self.store).finish_non_exhaustive()
    }
}

/// A session that this process has taken up.
struct Known {
    caller: VerifiedCaller,
    started: Timestamp,
    used: Timestamp,
    /// Dropped with the session, so that what follows it ends as well.
    alive: watch::Sender<()>,
}

/// A person who is signed in. It has no `Debug`: it holds the session's id and the token of its forms.
#[derive(Clone)]
pub(super) struct Visitor {
    /// The session's id.
    pub(super) id: String,
    pub(super) caller: VerifiedCaller,
    pub(super) csrf: String,
    /// When it ends at the latest.
    pub(super) ends_at: Instant,
    pub(super) alive: watch::Receiver<()>,
    /// The freezes and lockdowns of the person's tenant that are in force.
    pub(super) freezes: Vec<FreezeView>,
}

impl Visitor {
    pub(super) fn principal(&self) -> &Principal {
        self.caller.actor.principal()
    }
}

/// What a look at an id found.
pub(super) enum Found {
    /// Somebody.
    Somebody(Box<Visitor>),
    /// A session that another process has begun, or this one before it was started again: anyone who asks says who it is of.
    Kept(Box<SignInProof>),
    /// Nobody.
    Nobody,
}

/// Whether a request counts as a sign of life of its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The person did something.
    Person,
    /// The page looked by itself.
    Page,
}

impl Sessions {
    pub(super) fn new(settings: &ConsoleSettings) -> Self {
        Self {
            idle_ms: i64::try_from(settings.idle_ms).unwrap_or(i64::MAX),
            lifetime_ms: i64::try_from(settings.session_ms).unwrap_or(i64::MAX),
            count_max: settings.sessions_max,
            store: Arc::clone(&settings.sessions),
            known: Mutex::default(),
            strangers: Semaphore::new(STRANGERS_MAX),
        }
    }

    /// Begins a session and gives its id, for the cookie.
    pub(super) async fn begin(
        &self,
        caller: VerifiedCaller,
        proof: &SignInProof,
    ) -> Result<String, Refusal> {
        let unmade = |error| {
            Refusal::new(ErrorCode::Internal, "no session could be made").with_detail(error)
        };
        let id = fresh_text().map_err(unmade)?;
        let sealed = proof.seal(&id).map_err(unmade)?;
        let (key, now) = (Digest::of(id.as_bytes()), self.store.time());
        let session = KeptSession {
            key,
            person: person(caller.actor.principal()),
            began_at: proof.at(),
            used_at: now,
            sealed,
        };
        let limits = self.limits(now);
        // What does not count at once would leave its person before a sign-in that never ends.
        if !limits.counts(&session) {
            return Err(Refusal::new(ErrorCode::Internal, "no session could be made")
                .with_detail("the clocks of this process and of the ledger are far apart"));
        }
        let has_room = self.store.begin(session, limits).await.map_err(unavailable)?;
        if !has_room {
            return Err(Refusal::new(ErrorCode::Overloaded, "too many people are signed in")
                .with_retry_after_ms(60_000));
        }
        self.take_up(&id, caller, proof.at());
        Ok(id)
    }

    /// The session of an id, if it still counts.
    pub(super) async fn find(&self, id: &str, by: Use) -> Result<Found, Refusal> {
        let key = Digest::of(id.as_bytes());
        let Some(kept) = self.kept(key).await? else {
            drop(self.known.lock().remove(&key));
            return Ok(Found::Nobody);
        };
        let now = self.store.time();
        let known = self.known.lock().get(&key).map(|known| (known.started, known.used));
        let Some((started, used)) = known else { return Ok(self.unknown(id, &kept, now)) };
        let noted = kept.used_at;
        let session = KeptSession { began_at: started, used_at: used.max(noted), ..kept };
        if !self.limits(now).counts(&session) {
            self.end_key(key).await?;
            return Ok(Found::Nobody);
        }
        if by == Use::Person {
            // Not every click is a change of what all nodes share.
            let within = NOTED_WITHIN_MS_MAX.min(self.idle_ms.checked_div(10).unwrap_or(0));
            if now.since_ms(noted) >= within.max(1) {
                self.store.used(key, now).await.map_err(unavailable)?;
            }
        }
        let mut all = self.known.lock();
        let Some(known) = all.get_mut(&key) else { return Ok(Found::Nobody) };
        if by == Use::Person {
            known.used = known.used.max(now);
        }
        let left_ms = self.lifetime_ms.saturating_sub(now.since_ms(known.started));
        let (left_ms, now) = (u64::try_from(left_ms).unwrap_or(0), Instant::now());
        Ok(Found::Somebody(Box::new(Visitor {
            id: id.to_owned(),
            caller: known.caller.clone(),
            csrf: form_token(id),
            ends_at: now.checked_add(Duration::from_millis(left_ms)).unwrap_or(now),
            alive: known.alive.subscribe(),
            freezes: Vec::new(),
        })))
    }

    /// What is kept of a key. One that this process does not know may be anybody's invention, and waits for its turn.
    async fn kept(&self, key: Digest) -> Result<Option<KeptSession>, Refusal> {
        let is_known = self.known.lock().contains_key(&key);
        if is_known {
            return self.store.find(key).await.map_err(unavailable);
        }
        let wait = Duration::from_millis(STRANGER_WAIT_MS);
        let turn = timeout(wait, self.strangers.acquire()).await.ok().and_then(Result::ok);
        let _turn = turn.ok_or_else(crowded)?;
        self.store.find(key).await.map_err(unavailable)
    }

    /// A session that this process has not taken up yet. When it began is what its proof says: the row may say anything.
    fn unknown(&self, id: &str, kept: &KeptSession, now: Timestamp) -> Found {
        let Some(proof) = SignInProof::unseal(id, &kept.sealed) else { return Found::Nobody };
        let session = KeptSession { began_at: proof.at(), ..kept.clone() };
        let is_ahead = proof.at().since_ms(now) > CLOCKS_APART_MS;
        if is_ahead || !self.limits(now).counts(&session) {
            return Found::Nobody;
        }
        Found::Kept(Box::new(proof))
    }

    /// Takes a kept session up: it is of this caller, whom its proof proves. When it was used last is what the store knows.
    pub(super) fn take_up(&self, id: &str, caller: VerifiedCaller, started: Timestamp) {
        let mut all = self.known.lock();
        while all.len() >= self.count_max {
            // Anyone who gives way is taken up again with their next request.
            let oldest = all.iter().min_by_key(|(_, known)| known.started).map(|(key, _)| *key);
            let Some(oldest) = oldest else { break };
            drop(all.remove(&oldest));
        }
        let known = Known { caller, started, used: started, alive: watch::Sender::new(()) };
        all.entry(Digest::of(id.as_bytes())).or_insert(known);
    }

    /// Whether a session still counts for those that follow it; one that cannot be looked at for the moment does.
    pub(super) async fn is_there(&self, id: &str) -> bool {
        !matches!(self.find(id, Use::Page).await, Ok(Found::Nobody))
    }

    /// Ends a session, on every node.
    pub(super) async fn end(&self, id: &str) -> Result<(), Refusal> {
        self.end_key(Digest::of(id.as_bytes())).await
    }

    async fn end_key(&self, key: Digest) -> Result<(), Refusal> {
        drop(self.known.lock().remove(&key));
        self.store.end(key).await.map_err(unavailable)
    }

    fn limits(&self, now: Timestamp) -> SessionLimits {
        SessionLimits {
            began_since: now.plus_ms(self.lifetime_ms.saturating_neg()),
            used_since: now.plus_ms(self.idle_ms.saturating_neg()),
            per_person: SESSIONS_PER_PERSON_MAX,
            all: self.count_max,
        }
    }
}

/// Whose session it is, without saying so to who reads the rows.
fn person(principal: &Principal) -> Digest {
    DigestBuilder::new("placet.session-of.v1")
        .field("tenant", principal.tenant_id.as_str())
        .field("person", principal.id.as_str())
        .finish()
}

/// What every form of a session brings along: made of its id, which no page shows.
fn form_token(id: &str) -> String {
    let digest = DigestBuilder::new("placet.form-token.v1").field("session", id).finish();
    digest.to_string().trim_start_matches("sha256:").to_owned()
}

fn unavailable(error: SessionsUnavailable) -> Refusal {
    Refusal::new(
        ErrorCode::LedgerUnavailable,
        "who is signed in cannot be looked up at present; try again in a moment",
    )
    .with_detail(error)
}

fn crowded() -> Refusal {
    Refusal::new(
        ErrorCode::Overloaded,
        "too many look at this moment whether they are signed in; try again in a moment",
    )
    .with_retry_after_ms(STRANGER_WAIT_MS)
}

/// The two cookies there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cookie {
    /// The session.
    Session,
    /// The browser that is signing in.
    SignIn,
}

impl Cookie {
    /// Its name: bound to this host and to TLS where there is TLS.
    pub(super) const fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Self::Session, true) => "__Host-placet",
            (Self::Session, false) => "placet",
            (Self::SignIn, true) => "__Host-placet-sign-in",
            (Self::SignIn, false) => "placet-sign-in",
        }
    }

    /// Its value in a request; one that is there twice, or that we never gave to anybody, is not there.
    pub(super) fn read(self, headers: &HeaderMap, secure: bool) -> Option<String> {
        let name = self.name(secure);
        let mut values = headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value);
        let value = values.next().filter(|_| values.next().is_none())?;
        let sound = value.len() == COOKIE_BYTES
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        sound.then(|| value.to_owned())
    }

    /// The header that sets it, until the browser is closed.
    pub(super) fn set(self, value: &str, secure: bool) -> Option<HeaderValue> {
        self.written(value, "", secure)
    }

    /// The header that takes it away.
    pub(super) fn clear(self, secure: bool) -> Option<HeaderValue> {
        self.written("", "; Max-Age=0", secure)
    }

    fn written(self, value: &str, more: &str, secure: bool) -> Option<HeaderValue> {
        let name = self.name(secure);
        let tls = if secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{tls}{more}");
        let mut header = HeaderValue::try_from(text).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}
