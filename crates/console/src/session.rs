//! Sessions: who is signed in, on every node and over restarts.
//!
//! Owns their lifetimes, how a stored session becomes a caller again, and the cookies' form. They are stored by a
//! [`placet_types::sessions::SessionStore`]. Invariants: an id is 256 random bits and only its digest is stored; a session that was idle
//! too long, is too old, or was ended on any node, is invalid; signing in always makes a new one; the proof in a stored session is verified
//! again by each process that loads it.

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

/// The most sessions of one person; the oldest is replaced.
const SESSIONS_PER_PERSON_MAX: usize = 16;
/// The name of the field with the token of a session's forms.
pub(super) const CSRF_FIELD: &str = "form_token";
/// How long the value of a cookie is: 256 bits in base64url.
const COOKIE_BYTES: usize = 43;
/// The most concurrent look-ups of ids unknown to this process, so that invented ids cannot take the store from all others.
const STRANGERS_MAX: usize = 4;
/// How long one of them waits for its turn, in milliseconds.
const STRANGER_WAIT_MS: u64 = 2_000;
/// How far, at most, the stored time of use may lag behind, in milliseconds.
const NOTED_WITHIN_MS_MAX: i64 = 60_000;
/// How far ahead of the sessions' clock another may be, in milliseconds.
const CLOCKS_APART_MS: i64 = 60_000;

/// The sessions of all who are signed in.
pub(super) struct Sessions {
    idle_ms: i64,
    lifetime_ms: i64,
    count_max: usize,
    store: Arc<dyn SessionStore>,
    /// The sessions loaded by this process; never more than there may be.
    known: Mutex<BTreeMap<Digest, Known>>,
    /// Limits the look-ups of sessions that are not loaded.
    strangers: Semaphore,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("store", &self.store).finish_non_exhaustive()
    }
}

/// A session loaded by this process.
struct Known {
    caller: VerifiedCaller,
    started: Timestamp,
    used: Timestamp,
    /// Dropped with the session, so that its streams end as well.
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

/// The result of looking up an id.
pub(super) enum Found {
    /// A signed-in person.
    Somebody(Box<Visitor>),
    /// A session begun by another process, or by this one before a restart: its proof still has to be verified.
    Kept(Box<SignInProof>),
    /// No valid session.
    Nobody,
}

/// Whether a request counts as a sign of life of its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The person did something.
    Person,
    /// The page refreshed itself.
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
        // A session that is invalid at once would send its person back to the sign-in for ever.
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
            // Not every click updates the store that all nodes share.
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

    /// Looks up a stored session. A key unknown to this process may be invented, so its look-up waits for its turn.
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

    /// A session that this process has not loaded yet. Its start is taken from its proof: the row may be forged.
    fn unknown(&self, id: &str, kept: &KeptSession, now: Timestamp) -> Found {
        let Some(proof) = SignInProof::unseal(id, &kept.sealed) else { return Found::Nobody };
        let session = KeptSession { began_at: proof.at(), ..kept.clone() };
        let is_ahead = proof.at().since_ms(now) > CLOCKS_APART_MS;
        if is_ahead || !self.limits(now).counts(&session) {
            return Found::Nobody;
        }
        Found::Kept(Box::new(proof))
    }

    /// Loads a stored session for the caller that its proof has identified. The time of its last use comes from the store.
    pub(super) fn take_up(&self, id: &str, caller: VerifiedCaller, started: Timestamp) {
        let mut all = self.known.lock();
        while all.len() >= self.count_max {
            // An evicted session is loaded again with its next request.
            let oldest = all.iter().min_by_key(|(_, known)| known.started).map(|(key, _)| *key);
            let Some(oldest) = oldest else { break };
            drop(all.remove(&oldest));
        }
        let known = Known { caller, started, used: started, alive: watch::Sender::new(()) };
        all.entry(Digest::of(id.as_bytes())).or_insert(known);
    }

    /// Whether a session is still valid for its streams; it counts as valid while the store is unavailable.
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

/// Whose session it is, without revealing that to a reader of the rows.
fn person(principal: &Principal) -> Digest {
    DigestBuilder::new("placet.session-of.v1")
        .field("tenant", principal.tenant_id.as_str())
        .field("person", principal.id.as_str())
        .finish()
}

/// The token in every form of a session: derived from its id, which no page shows.
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
    /// Its name, bound to this host and, with TLS, to TLS.
    pub(super) const fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Self::Session, true) => "__Host-placet",
            (Self::Session, false) => "placet",
            (Self::SignIn, true) => "__Host-placet-sign-in",
            (Self::SignIn, false) => "placet-sign-in",
        }
    }

    /// Its value in a request; a repeated cookie, or a value of a form that we never issue, is ignored.
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

    /// The header that deletes it.
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
