//! The development key: tokens for trying Placet on one machine, without an identity provider.
//!
//! Owns the key's file, its issuer's configuration and minting. Invariants: the key's file is readable by its owner only;
//! the issuer's configuration is only given out for a loopback listener; a token of one tenant's development issuer is never
//! a token of another's.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use p256::{
    SecretKey,
    ecdsa::{Signature, SigningKey, signature::Signer as _},
};
use placet_egress::read_bounded;
use placet_types::{
    clock::Clock,
    ids::{GroupId, PrincipalId, TenantId},
    json::canonical_digest,
    principal::PrincipalKind,
};
use rand::{TryRngCore as _, rngs::OsRng};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::{
    config::{ActingRule, Algorithm, IssuerConfig, KIND_CLAIM, KeySource, KindRule, is_scope},
    error::{SetupError, of_file},
};

mod sign_in_code;

pub use sign_in_code::{SIGN_IN_CODE_MS, SignInCode};

/// The first part of a development issuer's name; the tenant is the second, after a slash.
pub const DEV_ISSUER: &str = "placet-dev";

/// The longest life of a development token: 12 hours.
pub const DEV_LIFETIME_S_MAX: u64 = 12 * 60 * 60;

const ALGORITHM: &str = "ES256";
const FILE_NAME: &str = "dev-key.jwk";
const FILE_BYTES_MAX: usize = 4 * 1024;
const OWNER_ONLY: u32 = 0o600;
const NOT_OWNER: u32 = 0o077;
const GROUPS_CLAIM: &str = "groups";
/// More random scalars in a row than are ever out of range.
const KEY_ATTEMPTS_MAX: usize = 8;

/// The content of a development token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MintRequest {
    /// The bearer's kind.
    pub kind: PrincipalKind,
    /// The bearer's name within the tenant.
    pub id: PrincipalId,
    /// The tenant.
    pub tenant: TenantId,
    /// Groups of the bearer.
    pub groups: BTreeSet<GroupId>,
    /// Scopes granted.
    pub scopes: BTreeSet<String>,
    /// The service the token is for.
    pub audience: String,
    /// How long it lives, at most [`DEV_LIFETIME_S_MAX`].
    pub lifetime_s: u64,
    /// For a user's delegation: the only actor it is for.
    pub act: Option<PrincipalId>,
    /// Who acted for the user before that actor, the latest first.
    pub prior_actors: Vec<String>,
    /// A name for people to read.
    pub display: Option<String>,
}

impl MintRequest {
    /// A token for one hour, without groups, scopes or actor.
    pub fn new(
        tenant: TenantId,
        kind: PrincipalKind,
        id: PrincipalId,
        audience: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            id,
            tenant,
            groups: BTreeSet::new(),
            scopes: BTreeSet::new(),
            audience: audience.into(),
            lifetime_s: 60 * 60,
            act: None,
            prior_actors: Vec::new(),
            display: None,
        }
    }
}

/// The development key (ES256).
#[derive(Clone)]
pub struct DevKey {
    key: SecretKey,
    /// Its name.
    pub(crate) kid: String,
}

impl fmt::Debug for DevKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl DevKey {
    /// A fresh key that is kept nowhere.
    ///
    /// # Errors
    /// [`SetupError::NoRandomness`] when the operating system gives no random bytes.
    pub fn generate() -> Result<Self, SetupError> {
        for _ in 0..KEY_ATTEMPTS_MAX {
            let mut bytes = Zeroizing::new([0_u8; 32]);
            fill_random(bytes.as_mut())?;
            // All but a vanishing few 32-byte strings are valid keys.
            if let Ok(key) = SecretKey::from_slice(bytes.as_ref()) {
                return Ok(Self::from_key(key));
            }
        }
        Err(SetupError::NoRandomness)
    }

    /// The key in `dir`, made if there is none yet. Two processes that make one at the same time end with the same.
    ///
    /// # Errors
    /// [`SetupError::DevKeyFile`] when the file cannot be read or written, is not a key, or others can read it.
    pub fn load_or_create(dir: &Path) -> Result<Self, SetupError> {
        let path = Self::path(dir);
        match path.try_exists() {
            Ok(true) => Self::load(&path),
            Ok(false) => Self::create(dir, &path),
            Err(error) => Err(SetupError::dev_key(&path, of_file(error.kind()))),
        }
    }

    /// The key's file in `dir`.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(FILE_NAME)
    }

    /// The name of the development issuer of `tenant`.
    pub fn issuer(tenant: &TenantId) -> String {
        format!("{DEV_ISSUER}/{tenant}")
    }

    /// The public part, as a key set.
    pub fn key_set(&self) -> Value {
        let mut jwk = self.public_members();
        jwk.insert("alg".to_owned(), ALGORITHM.into());
        jwk.insert("use".to_owned(), "sig".into());
        jwk.insert("kid".to_owned(), self.kid.as_str().into());
        json!({ "keys": [jwk] })
    }

    /// The configuration by which a listener on `listen` accepts this key's tokens for `tenant`.
    ///
    /// # Errors
    /// [`SetupError::OffLoopback`] when the listener can be reached from other machines.
    pub fn issuer_config(
        &self,
        listen: IpAddr,
        tenant: TenantId,
        audiences: BTreeSet<String>,
    ) -> Result<IssuerConfig, SetupError> {
        refuse_off_loopback(listen)?;
        let kinds = [
            PrincipalKind::User,
            PrincipalKind::Service,
            PrincipalKind::Agent,
            PrincipalKind::Automation,
        ];
        let (keys, kinds) = (KeySource::Inline(self.key_set()), KindRule::Claim(kinds.into()));
        let mut config = IssuerConfig::new(Self::issuer(&tenant), tenant, audiences, keys, kinds);
        config.algorithms = vec![Algorithm::Es256];
        config.lifetime_s_max = DEV_LIFETIME_S_MAX;
        config.groups_claim = Some(GROUPS_CLAIM.to_owned());
        // Anyone who holds the key may speak for everybody of the tenant; that is what it is for.
        config.shared_principals = true;
        config.act = Some(ActingRule::default());
        // Else the shipped policies would let nobody try anything; policies tell it by `auth_type`.
        config.attests_workloads = true;
        // Its users have no clients.
        config.delegations_for_anybody = true;
        config.is_for_development = true;
        Ok(config)
    }

    /// Mints a token.
    ///
    /// # Errors
    /// [`SetupError::Mint`] when the lifetime is zero or too long, the audience is empty, a scope is malformed, or an actor is named for
    /// somebody who is not a user; [`SetupError::NoRandomness`] when there are no random bytes.
    pub fn mint(&self, request: &MintRequest, clock: &dyn Clock) -> Result<String, SetupError> {
        check_request(request)?;
        let mut token_id = [0_u8; 16];
        fill_random(&mut token_id)?;
        let issued_at_s = clock.now().as_ms().div_euclid(1_000);
        let lifetime_s = i64::try_from(request.lifetime_s).unwrap_or(i64::MAX);
        let scope = request.scopes.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let mut claims = json!({
            "iss": Self::issuer(&request.tenant),
            "sub": request.id,
            "aud": request.audience,
            "iat": issued_at_s,
            "exp": issued_at_s.saturating_add(lifetime_s),
            "auth_time": issued_at_s,
            "jti": URL_SAFE_NO_PAD.encode(token_id),
            "scope": scope,
            KIND_CLAIM: request.kind,
            GROUPS_CLAIM: request.groups,
        });
        if let Some(members) = claims.as_object_mut() {
            members.extend(request.act.as_ref().map(|actor| {
                let prior = request.prior_actors.iter().rev();
                let prior = prior.fold(None, |before, who| Some(acting(who, before)));
                ("act".to_owned(), acting(actor.as_str(), prior))
            }));
            members.extend(
                request.display.as_ref().map(|name| ("name".to_owned(), name.as_str().into())),
            );
        }
        let header = json!({ "typ": "at+jwt", "alg": ALGORITHM, "kid": self.kid });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature: Signature = SigningKey::from(&self.key).sign(signed.as_bytes());
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes())))
    }

    fn from_key(key: SecretKey) -> Self {
        let mut made = Self { key, kid: String::new() };
        // The key's thumbprint (RFC 7638).
        let thumbprint = canonical_digest(&Value::Object(made.public_members()));
        made.kid = URL_SAFE_NO_PAD.encode(thumbprint.as_bytes());
        made
    }

    fn public_members(&self) -> Map<String, Value> {
        match serde_json::to_value(self.key.public_key().to_jwk()) {
            Ok(Value::Object(members)) => members,
            Ok(_) | Err(_) => Map::new(),
        }
    }

    fn load(path: &Path) -> Result<Self, SetupError> {
        let problem = |problem: &dyn fmt::Display| SetupError::dev_key(path, problem);
        let unreadable = |error: io::Error| SetupError::dev_key(path, of_file(error.kind()));
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if metadata.permissions().mode() & NOT_OWNER != 0 {
            return Err(problem(
                &"others than its owner can use it; run `chmod 600` on it, or delete it",
            ));
        }
        let bytes = read_bounded(path, FILE_BYTES_MAX).map(Zeroizing::new).map_err(unreadable)?;
        let key = str::from_utf8(&bytes).ok().and_then(|text| SecretKey::from_jwk_str(text).ok());
        key.map(Self::from_key)
            .ok_or_else(|| problem(&"it is not a P-256 key as a JSON Web Key; delete the file"))
    }

    fn create(dir: &Path, path: &Path) -> Result<Self, SetupError> {
        let made = Self::generate()?;
        let failed = |error: io::Error| SetupError::dev_key(path, of_file(error.kind()));
        let mut suffix = [0_u8; 8];
        fill_random(&mut suffix)?;
        let draft = dir.join(format!(".{FILE_NAME}.{}", URL_SAFE_NO_PAD.encode(suffix)));
        made.write(&draft).map_err(failed)?;
        // A link never replaces: of two processes that make a key, one wins, and both use that one's.
        let linked = fs::hard_link(&draft, path);
        fs::remove_file(&draft).map_err(failed)?;
        match linked {
            Ok(()) => Ok(made),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            Err(error) => Err(failed(error)),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path)?;
        file.write_all(self.key.to_jwk_string().as_bytes())?;
        file.sync_all()
    }
}

/// Refuses development tokens for a listener that other machines can reach.
///
/// # Errors
/// [`SetupError::OffLoopback`].
pub fn refuse_off_loopback(address: IpAddr) -> Result<(), SetupError> {
    if address.to_canonical().is_loopback() {
        Ok(())
    } else {
        Err(SetupError::OffLoopback(address))
    }
}

/// The claim that says who acts, and who did before (RFC 8693 section 4.1).
fn acting(who: &str, before: Option<Value>) -> Value {
    match before {
        Some(before) => json!({ "sub": who, "act": before }),
        None => json!({ "sub": who }),
    }
}

fn check_request(request: &MintRequest) -> Result<(), SetupError> {
    let problem = if !(1..=DEV_LIFETIME_S_MAX).contains(&request.lifetime_s) {
        format!("it must live for 1 to {DEV_LIFETIME_S_MAX} s")
    } else if request.audience.is_empty() {
        "the audience is empty".to_owned()
    } else if let Some(scope) = request.scopes.iter().find(|scope| !is_scope(scope)) {
        format!("`{}` is not a scope", scope.escape_default())
    } else if request.act.is_some() && request.kind != PrincipalKind::User {
        "only a user's token can name an actor".to_owned()
    } else {
        return Ok(());
    };
    Err(SetupError::Mint(problem))
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), SetupError> {
    OsRng.try_fill_bytes(bytes).or(Err(SetupError::NoRandomness))
}
