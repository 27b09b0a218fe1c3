//! The Ed25519 key that signs checkpoints and receipts.
//!
//! Owns its file, its name and the forms of its public half. The file has the form that signed notes use for private keys:
//! `PRIVATE+KEY+NAME+HASH+BASE64`, where the hash binds name and key. Not here: what is signed. Invariants: a key is used only from a file
//! that nobody but its owner may read; an existing key is never replaced; the secret is shown nowhere but in its file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use hmac::{Hmac, Mac as _};
use placet_ledger::proof::note::NoteName;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::SealError;

/// The number of Ed25519 among the algorithms of signed notes.
const ALGORITHM: u8 = 1;
const FILE_PREFIX: &str = "PRIVATE+KEY+";
const FILE_BYTES_MAX: u64 = 1024;

/// A key that signs.
pub struct SealKey {
    signing: SigningKey,
    public: SealPublic,
}

/// The public half of a key, for verifying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealPublic {
    name: NoteName,
    key: VerifyingKey,
    hash: [u8; 4],
}

impl SealKey {
    /// Opens the key in this file, or makes one under this name if there is no such file. An existing key keeps its name.
    ///
    /// # Errors
    /// [`SealError`]: the file is not a key, or not only its owner's.
    pub fn open_or_create(path: &Path, name: &NoteName) -> Result<Self, SealError> {
        match Self::open(path) {
            Err(SealError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::create(path, name)?;
                // Read back what is there now: another process may have made it.
                Self::open(path)
            }
            opened => opened,
        }
    }

    /// Opens the key in this file, which must exist.
    ///
    /// # Errors
    /// [`SealError`]: there is none, it is not a key, or not only its owner's.
    pub fn open(path: &Path) -> Result<Self, SealError> {
        let failed = || SealError::io("read the signing key", path);
        let file = File::open(path).map_err(failed())?;
        let metadata = file.metadata().map_err(failed())?;
        let mode = metadata.permissions().mode() & 0o777;
        if !metadata.is_file() {
            return Err(SealError::KeyFile { path: path.to_owned() });
        }
        if mode & 0o077 != 0 {
            return Err(SealError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = Zeroizing::new(String::new());
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        match read {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            read => drop(read.map_err(failed())?),
        }
        Self::parse(&text).ok_or_else(|| SealError::KeyFile { path: path.to_owned() })
    }

    /// A key from 32 secret bytes: for tests, and for keys made elsewhere.
    pub fn from_seed(name: NoteName, seed: &[u8; 32]) -> Self {
        let signing = SigningKey::from_bytes(seed);
        let public = SealPublic::new(name, signing.verifying_key());
        Self { signing, public }
    }

    /// The public half.
    pub const fn public(&self) -> &SealPublic {
        &self.public
    }

    /// A secret for another purpose, always the same for a key, which does not reveal the key (HMAC-SHA256 over the purpose).
    pub fn secret_for(&self, purpose: &str) -> Zeroizing<[u8; 32]> {
        let seed = Zeroizing::new(self.signing.to_bytes());
        // Padded to the block size of the hash, as the algorithm does with a shorter key.
        let mut block = Zeroizing::new([0_u8; 64]);
        block.iter_mut().zip(seed.iter()).for_each(|(to, from)| *to = *from);
        let mut mac = Hmac::<Sha256>::new((&*block).into());
        mac.update(purpose.as_bytes());
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.signing.sign(message).to_bytes()
    }

    /// Makes a key and puts it in place in one step; one that exists by then stays.
    fn create(path: &Path, name: &NoteName) -> Result<(), SealError> {
        let mut random = [0_u8; 8];
        let mut seed = Zeroizing::new([0_u8; 32]);
        let filled =
            OsRng.try_fill_bytes(&mut *seed).and_then(|()| OsRng.try_fill_bytes(&mut random));
        filled.map_err(|error| SealError::Random(error.to_string()))?;
        let key = Self::from_seed(name.clone(), &seed);
        let beside = path.with_extension(format!("{}.tmp", hex::encode(random)));
        let written = write_new(&beside, key.file_text().as_bytes());
        let placed = written.and_then(|()| std::fs::hard_link(&beside, path));
        let removed = std::fs::remove_file(&beside);
        match placed {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            placed => placed.map_err(SealError::io("make the signing key", path))?,
        }
        removed.map_err(SealError::io("remove", &beside))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let synced = File::open(folder.unwrap_or(Path::new("."))).and_then(|file| file.sync_all());
        synced.map_err(SealError::io("make durable the signing key", path))
    }

    fn file_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(vec![ALGORITHM]);
        bytes.extend_from_slice(self.signing.as_bytes());
        let encoded = Zeroizing::new(BASE64.encode(&*bytes));
        Zeroizing::new(format!("{FILE_PREFIX}{}+{}\n", self.public.id(), &*encoded))
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(FILE_PREFIX)?;
        // The name and the hash have no `+`, but Base64 may.
        let mut parts = rest.strip_suffix('\n').unwrap_or(rest).splitn(3, '+');
        let (name, hash, encoded) = (parts.next()?, parts.next()?, parts.next()?);
        let bytes = Zeroizing::new(BASE64.decode(encoded).ok()?);
        let (algorithm, seed) = bytes.split_first()?;
        let seed = Zeroizing::new(<[u8; 32]>::try_from(seed).ok()?);
        let key = Self::from_seed(NoteName::new(name).ok()?, &seed);
        (*algorithm == ALGORITHM && hex::encode(key.public.hash()) == hash).then_some(key)
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SealPublic {
    fn new(name: NoteName, key: VerifyingKey) -> Self {
        let hash = Sha256::new()
            .chain_update(name.as_str())
            .chain_update([b'\n', ALGORITHM])
            .chain_update(key.as_bytes())
            .finalize();
        let hash = hash.first_chunk::<4>().copied().unwrap_or_default();
        Self { name, key, hash }
    }

    /// The name of the key.
    pub const fn name(&self) -> &NoteName {
        &self.name
    }

    /// The number that tells keys of one name apart.
    pub const fn hash(&self) -> [u8; 4] {
        self.hash
    }

    /// Name and hash: what signatures and receipts call the key.
    pub fn id(&self) -> String {
        format!("{}+{}", self.name, hex::encode(self.hash))
    }

    /// The key as a line, in the form of C2SP signed-note: `NAME+HASH+BASE64`.
    pub fn vkey(&self) -> String {
        let bytes = [&[ALGORITHM], self.key.as_bytes().as_slice()].concat();
        format!("{}+{}", self.id(), BASE64.encode(bytes))
    }

    /// Reads [`SealPublic::vkey`] back.
    ///
    /// # Errors
    /// It is not one, or its hash is of another name or key.
    pub fn parse_vkey(text: &str) -> Result<Self, SealError> {
        Self::try_parse(text.trim()).ok_or(SealError::PublicKey)
    }

    /// The key as a JSON Web Key (RFC 8037), named as in receipts.
    pub fn jwk(&self) -> serde_json::Value {
        serde_json::json!({
            "kty": "OKP",
            "crv": "Ed25519",
            "x": URL_SAFE_NO_PAD.encode(self.key.as_bytes()),
            "kid": self.id(),
            "alg": "EdDSA",
            "use": "sig",
        })
    }

    /// The 32 bytes of the key.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.key.to_bytes()
    }

    /// Checks a signature strictly: malleable signatures and weak keys are refused.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SealError> {
        let wrong = || SealError::Signature { key: self.id() };
        let signature = Signature::from_slice(signature).map_err(|_length| wrong())?;
        self.key.verify_strict(message, &signature).map_err(|_wrong| wrong())
    }

    fn try_parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('+')?;
        let (_hash, encoded) = rest.split_once('+')?;
        let bytes = BASE64.decode(encoded).ok()?;
        let (algorithm, key) = bytes.split_first()?;
        let key = VerifyingKey::from_bytes(key.try_into().ok()?).ok()?;
        let public = Self::new(NoteName::new(name).ok()?, key);
        (*algorithm == ALGORITHM && !key.is_weak() && public.vkey() == text).then_some(public)
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
