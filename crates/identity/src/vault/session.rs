//! Our token at the vault: from a file that somebody else keeps fresh, or from a log-in with a JWT, renewed by us.
//!
//! Owns which token is the current one, and when there is another. Invariants: a token is in memory only, and in no message; one that was
//! refused is not taken for a missing permission; log-ins that are refused are not tried in a loop.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep},
};
use zeroize::Zeroizing;

use super::{
    VaultAuth, VaultError,
    wire::{Answer, Ask, Granted, Wire},
};
use crate::{
    error::place_of,
    jitter::{backoff, two_thirds},
};

const PROOF_BYTES_MAX: u64 = 64 * 1024;
/// How often the file with the token is looked at.
const FILE_LOOK: Duration = Duration::from_secs(2);
/// The shortest time between two log-ins that refusals can cause.
const LOGIN_AGAIN: Duration = Duration::from_secs(60);

/// A token, and which of ours it is.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) value: SecretString,
    /// Counts our tokens: leases end with the token that they were taken with.
    pub(super) generation: u64,
    /// When it is over; nothing: not known, or never.
    pub(super) ends: Option<Instant>,
    life: Option<Duration>,
    renewable: bool,
}

/// Who has our token.
#[derive(Debug)]
pub(super) struct Session {
    wire: Arc<Wire>,
    auth: VaultAuth,
    state: Mutex<State>,
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    token: Option<Token>,
    logged_in_at: Option<Instant>,
}

impl Session {
    pub(super) fn new(wire: Arc<Wire>, auth: VaultAuth) -> Self {
        Self { wire, auth, state: Mutex::default(), generation: watch::Sender::new(0) }
    }

    /// Tells of each new token.
    pub(super) fn generations(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Asks with the current token; if that is not accepted, with the next one.
    pub(super) async fn ask(&self, ask: &Ask<'_>) -> Result<(Answer, Token), VaultError> {
        let token = self.current().await?;
        match self.wire.ask(ask, &token.value).await {
            Err(denied @ VaultError::Denied { .. }) => {
                let Some(next) = self.after_refusal(&token, denied).await? else {
                    return Err(VaultError::TokenRefused);
                };
                Ok((self.wire.ask(ask, &next.value).await?, next))
            }
            answered => Ok((answered?, token)),
        }
    }

    /// The token to ask with.
    pub(super) async fn current(&self) -> Result<Token, VaultError> {
        let mut state = self.state.lock().await;
        match &self.auth {
            VaultAuth::TokenFile { file } => {
                let value = proof(file).await?;
                Ok(self.take_from_file(&mut state, value))
            }
            VaultAuth::Jwt { .. } => {
                let now = Instant::now();
                let held = state.token.clone();
                match held.filter(|token| token.ends.is_none_or(|ends| ends > now)) {
                    Some(token) => Ok(token),
                    None => self.log_in(&mut state).await,
                }
            }
        }
    }

    /// After `denied`: the next token if this one is not accepted any more, an error if it is and lacks the permission, and nothing if there
    /// is no other.
    async fn after_refusal(
        &self,
        token: &Token,
        denied: VaultError,
    ) -> Result<Option<Token>, VaultError> {
        match self.wire.ask(&Ask::LookUpSelf, &token.value).await {
            Ok(_) => return Err(denied),
            Err(VaultError::Denied { .. }) => {}
            Err(other) => return Err(other),
        }
        let current = self.current().await?;
        if current.generation != token.generation {
            return Ok(Some(current));
        }
        let mut state = self.state.lock().await;
        let recent = state.logged_in_at.is_some_and(|at| at.elapsed() < LOGIN_AGAIN);
        match &self.auth {
            VaultAuth::TokenFile { .. } => Ok(None),
            // It is not asked for another one every moment; until then what is known is used on.
            VaultAuth::Jwt { .. } if recent => Err(VaultError::TokenRefused),
            VaultAuth::Jwt { .. } => self.log_in(&mut state).await.map(Some),
        }
    }

    fn take_from_file(&self, state: &mut State, value: SecretString) -> Token {
        if let Some(held) = &state.token
            && held.value.expose_secret() == value.expose_secret()
        {
            return held.clone();
        }
        self.take(state, Granted { value, life: None, renewable: false })
    }

    fn take(&self, state: &mut State, granted: Granted) -> Token {
        let generation = self.generation.borrow().saturating_add(1);
        let Granted { value, life, renewable } = granted;
        let ends = life.and_then(|life| Instant::now().checked_add(life));
        let token = Token { value, generation, ends, life, renewable };
        state.token = Some(token.clone());
        self.generation.send_replace(generation);
        token
    }

    async fn log_in(&self, state: &mut State) -> Result<Token, VaultError> {
        let VaultAuth::Jwt { role, file, mount } = &self.auth else {
            return Err(VaultError::TokenRefused);
        };
        let jwt = proof(file).await?;
        let granted = self.wire.log_in(mount, role, &jwt).await?;
        state.logged_in_at = Some(Instant::now());
        tracing::info!(mount, role, "logged in at the vault");
        Ok(self.take(state, granted))
    }

    /// Keeps the token fresh, for ever.
    pub(super) async fn tend(&self) {
        let mut failures = 0_u32;
        loop {
            match self.turn().await {
                Ok(wait) => {
                    failures = 0;
                    sleep(wait).await;
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "our token at the vault could not be kept fresh");
                    }
                    failures = failures.saturating_add(1);
                    sleep(backoff(failures)).await;
                }
            }
        }
    }

    /// Looks after the token once, and says when to do so again.
    async fn turn(&self) -> Result<Duration, VaultError> {
        let token = self.current().await?;
        let (Some(ends), Some(life)) = (token.ends, token.life) else {
            return Ok(FILE_LOOK);
        };
        let due = two_thirds(life);
        let left = ends.saturating_duration_since(Instant::now());
        let old = life.saturating_sub(left);
        if old < due {
            return Ok(due.saturating_sub(old).max(FILE_LOOK.min(due)));
        }
        if token.renewable {
            match self.renew(&token).await {
                Ok(true) => return Ok(FILE_LOOK.min(due)),
                Ok(false) => {}
                Err(error) if error.is_transient() && left > FILE_LOOK => return Err(error),
                Err(error) => {
                    tracing::info!(%error, "our token at the vault is not renewed; logging in again")
                }
            }
        }
        let mut state = self.state.lock().await;
        self.log_in(&mut state).await?;
        Ok(FILE_LOOK.min(due))
    }

    /// Whether the token was renewed for a time that is worth it.
    async fn renew(&self, token: &Token) -> Result<bool, VaultError> {
        let asked_at = Instant::now();
        let answer = self.wire.ask(&Ask::RenewSelf, &token.value).await?;
        let Some(life) = answer.token.and_then(|granted| granted.life) else { return Ok(false) };
        let mut state = self.state.lock().await;
        if let Some(held) = state.token.as_mut().filter(|held| held.generation == token.generation)
        {
            held.ends = asked_at.checked_add(life);
        }
        // At the end of its longest life it is renewed for less and less.
        Ok(token.life.is_none_or(|full| life.saturating_mul(2) >= full))
    }

    /// Gives a token of ours back, and with it every lease that was taken with it.
    pub(super) async fn close(&self) -> bool {
        let token = self.state.lock().await.token.take();
        match (&self.auth, token) {
            (VaultAuth::Jwt { .. }, Some(token)) => {
                self.wire.ask(&Ask::RevokeSelf, &token.value).await.is_ok()
            }
            (VaultAuth::Jwt { .. } | VaultAuth::TokenFile { .. }, _) => false,
        }
    }
}

/// What a file says that proves who we are.
async fn proof(path: &Path) -> Result<SecretString, VaultError> {
    let owned: PathBuf = path.to_path_buf();
    let read = tokio::task::spawn_blocking(move || read_proof(&owned)).await;
    read.unwrap_or_else(|_ended| {
        Err(VaultError::Proof {
            place: "the file that is named".to_owned(),
            problem: "reading it was interrupted".to_owned(),
        })
    })
}

fn read_proof(path: &Path) -> Result<SecretString, VaultError> {
    let failed = |error: std::io::Error| VaultError::proof(path, &error);
    let unusable =
        |problem: &str| VaultError::Proof { place: place_of(path), problem: problem.to_owned() };
    // A pipe would block the opening for ever.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(unusable("it is not a file"));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(path)
        .map_err(failed)?
        .take(PROOF_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let text = std::str::from_utf8(&bytes).map_err(|_error| unusable("it is not text"))?.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable("it is empty, or not one word"));
    }
    Ok(SecretString::from(text))
}
