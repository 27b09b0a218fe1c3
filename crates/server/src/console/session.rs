//! Sessions: who is signed in, in memory, and the sign-ins that are under way.
//!
//! Owns their number, their lifetimes and the cookie's form. Invariants: an id is 256 random bits and only its digest is kept; a session
//! that was unused too long, or is too old, is nobody's; signing in always makes a new one.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, header};
use placet_identity::{Attempt, fresh_text};
use placet_types::{
    digest::Digest,
    error::{ErrorCode, Refusal},
    principal::Principal,
};
use tokio::{sync::watch, time::Instant};

use super::ConsoleSettings;

/// How long a sign-in may take.
const ATTEMPT_AGE_MAX: Duration = Duration::from_secs(600);
/// How many may be under way.
const ATTEMPTS_MAX: usize = 4_096;
/// How many sessions one person has; the oldest gives way.
const SESSIONS_PER_PERSON_MAX: usize = 16;
/// The longest cookie that is looked at.
const COOKIE_BYTES_MAX: usize = 128;

/// Everybody who is signed in.
pub(super) struct Sessions<C> {
    idle: Duration,
    lifetime: Duration,
    count_max: usize,
    all: Mutex<BTreeMap<Digest, Session<C>>>,
}

impl<C> fmt::Debug for Sessions<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("count_max", &self.count_max).finish_non_exhaustive()
    }
}

struct Session<C> {
    caller: C,
    principal: Principal,
    csrf: String,
    started: Instant,
    used: Instant,
    /// Dropped with the session, so that what follows it ends as well.
    alive: watch::Sender<()>,
}

/// A session as a request sees it. It has no `Debug`: it holds the token of its forms.
#[derive(Clone)]
pub(super) struct Seen<C> {
    pub(super) caller: C,
    pub(super) principal: Principal,
    pub(super) csrf: String,
    pub(super) ends_at: Instant,
    pub(super) alive: watch::Receiver<()>,
}

/// Whether a request counts as a sign of life of its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The person did something.
    Person,
    /// The page looked by itself.
    Page,
}

impl<C: Clone> Sessions<C> {
    pub(super) fn new(settings: &ConsoleSettings) -> Self {
        Self {
            idle: Duration::from_millis(settings.idle_ms),
            lifetime: Duration::from_millis(settings.session_ms),
            count_max: settings.sessions_max,
            all: Mutex::default(),
        }
    }

    /// Begins a session and gives its id, for the cookie.
    pub(super) fn begin(&self, caller: C, principal: Principal) -> Result<String, Refusal> {
        let text = || {
            fresh_text().map_err(|error| {
                Refusal::new(ErrorCode::Internal, "no session could be made").with_detail(error)
            })
        };
        let (id, csrf, now) = (text()?, text()?, Instant::now());
        let mut all = lock(&self.all);
        all.retain(|_, session| self.is_alive(session, now));
        give_way(&mut all, &principal);
        if all.len() >= self.count_max {
            return Err(Refusal::new(ErrorCode::Overloaded, "too many people are signed in")
                .with_retry_after_ms(60_000));
        }
        let alive = watch::Sender::new(());
        let session = Session { caller, principal, csrf, started: now, used: now, alive };
        all.insert(Digest::of(id.as_bytes()), session);
        Ok(id)
    }

    /// The session of an id, if it still counts.
    pub(super) fn find(&self, id: &str, by: Use) -> Option<Seen<C>> {
        let (key, now) = (Digest::of(id.as_bytes()), Instant::now());
        let mut all = lock(&self.all);
        let session = all.get_mut(&key)?;
        if !self.is_alive(session, now) {
            all.remove(&key);
            return None;
        }
        if by == Use::Person {
            session.used = now;
        }
        Some(Seen {
            caller: session.caller.clone(),
            principal: session.principal.clone(),
            csrf: session.csrf.clone(),
            ends_at: session.started.checked_add(self.lifetime).unwrap_or(now),
            alive: session.alive.subscribe(),
        })
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &str) {
        drop(lock(&self.all).remove(&Digest::of(id.as_bytes())));
    }

    fn is_alive(&self, session: &Session<C>, now: Instant) -> bool {
        now.duration_since(session.used) <= self.idle
            && now.duration_since(session.started) <= self.lifetime
    }
}

/// Makes room for one more session of a person.
fn give_way<C>(all: &mut BTreeMap<Digest, Session<C>>, principal: &Principal) {
    let theirs = |session: &Session<C>| {
        session.principal.id == principal.id && session.principal.tenant_id == principal.tenant_id
    };
    while all.values().filter(|session| theirs(session)).count() >= SESSIONS_PER_PERSON_MAX {
        let own = all.iter().filter(|(_, session)| theirs(session));
        let Some(oldest) = own.min_by_key(|(_, session)| session.started).map(|(key, _)| *key)
        else {
            return;
        };
        drop(all.remove(&oldest));
    }
}

/// The sign-ins that are under way.
#[derive(Default)]
pub(super) struct Attempts(Mutex<BTreeMap<Digest, Waiting>>);

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts").finish_non_exhaustive()
    }
}

struct Waiting {
    attempt: Attempt,
    /// The browser that began it.
    browser: Digest,
    to: String,
    since: Instant,
}

impl Attempts {
    /// Remembers a sign-in that a browser began, and where it wants to go afterwards.
    pub(super) fn remember(&self, attempt: Attempt, browser: &str, to: String) {
        let now = Instant::now();
        let mut all = lock(&self.0);
        all.retain(|_, waiting| now.duration_since(waiting.since) <= ATTEMPT_AGE_MAX);
        if all.len() >= ATTEMPTS_MAX {
            let oldest = all.iter().min_by_key(|(_, waiting)| waiting.since).map(|(key, _)| *key);
            drop(oldest.and_then(|oldest| all.remove(&oldest)));
        }
        let key = Digest::of(attempt.state().as_bytes());
        let browser = Digest::of(browser.as_bytes());
        all.insert(key, Waiting { attempt, browser, to, since: now });
    }

    /// Takes the sign-in that belongs to a state, if the same browser is back in time. Either way it is over.
    pub(super) fn take(&self, state: &str, browser: &str) -> Option<(Attempt, String)> {
        let waiting = lock(&self.0).remove(&Digest::of(state.as_bytes()))?;
        let in_time = waiting.since.elapsed() <= ATTEMPT_AGE_MAX;
        let same = waiting.browser == Digest::of(browser.as_bytes());
        (in_time && same).then_some((waiting.attempt, waiting.to))
    }
}

/// A lock is never held over anything that could panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Its value in a request; one that is there twice is not there.
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
        let sound = (1..=COOKIE_BYTES_MAX).contains(&value.len())
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
