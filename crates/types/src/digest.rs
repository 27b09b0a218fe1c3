//! SHA-256 digests and the one way of computing a digest over several fields.
//!
//! Owns the text form `sha256:<64 lowercase hex>` and the unambiguous encoding that digests over several fields use.
//! It does not decide which fields belong to which digest: the type that is digested does.
//!
//! Invariant: two different lists of (kind, name, value) never feed the same bytes to the hash, because every part carries
//! its length and its kind, and every use has a label of its own.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
const BYTES: usize = 32;
const HEX_CHARS: usize = 64;

/// A SHA-256 digest, written `sha256:<64 lowercase hex>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
#[schemars(inline, with = "String", description = "A SHA-256 digest")]
#[schemars(extend("pattern" = "^sha256:[0-9a-f]{64}$"))]
pub struct Digest([u8; BYTES]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// A digest that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// The first twelve hexadecimal characters: for people to compare, never for a program to decide by.
    pub fn short(&self) -> String {
        let mut hex = hex::encode(self.0);
        hex.truncate(12);
        hex
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; HEX_CHARS];
        hex::encode_to_slice(self.0, &mut digits).map_err(|_wrong_size| fmt::Error)?;
        f.write_str(PREFIX)?;
        f.write_str(std::str::from_utf8(&digits).map_err(|_not_text| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is written `sha256:` and 64 lowercase hexadecimal digits")]
pub struct DigestSyntaxError;

impl FromStr for Digest {
    type Err = DigestSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(PREFIX).ok_or(DigestSyntaxError)?;
        // `hex` takes upper case too; a digest has exactly one text form, so that texts can be compared.
        let lowercase = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() != HEX_CHARS || !lowercase {
            return Err(DigestSyntaxError);
        }
        let mut bytes = [0; BYTES];
        match hex::decode_to_slice(digits, &mut bytes) {
            Ok(()) => Ok(Self(bytes)),
            Err(_invalid) => Err(DigestSyntaxError),
        }
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

const TAG_END: u8 = 0;
const TAG_FIELD: u8 = 1;
const TAG_PRESENT: u8 = 2;
const TAG_ABSENT: u8 = 3;
const TAG_LIST: u8 = 4;
const TAG_ITEM: u8 = 5;

/// Computes a digest over named fields, such that different fields can never make the same digest.
///
/// The order of the fields is part of the digest: each use writes them in one fixed order.
#[derive(Debug, Clone)]
pub struct DigestBuilder {
    hasher: Sha256,
}

impl DigestBuilder {
    /// Starts a digest for one purpose, for example `placet.request.v1`. A changed list of fields gets a new label.
    pub fn new(label: &str) -> Self {
        let mut builder = Self { hasher: Sha256::new() };
        builder.bytes(label.as_bytes());
        builder
    }

    /// A field that is always there.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head(TAG_FIELD, name);
        self.bytes(value.as_ref());
        self
    }

    /// A field that may be absent; absent and empty are different.
    #[must_use]
    pub fn optional(mut self, name: &str, value: Option<&[u8]>) -> Self {
        match value {
            Some(value) => {
                self.head(TAG_PRESENT, name);
                self.bytes(value);
            }
            None => self.head(TAG_ABSENT, name),
        }
        self
    }

    /// An ordered list. A set is written in sorted order by the caller.
    #[must_use]
    pub fn list<I>(mut self, name: &str, items: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.head(TAG_LIST, name);
        for item in items {
            self.hasher.update([TAG_ITEM]);
            self.bytes(item.as_ref());
        }
        self.hasher.update([TAG_END]);
        self
    }

    /// The digest of everything written.
    pub fn finish(mut self) -> Digest {
        self.hasher.update([TAG_END]);
        Digest(self.hasher.finalize().into())
    }

    fn head(&mut self, tag: u8, name: &str) {
        self.hasher.update([tag]);
        self.bytes(name.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // A length that does not fit 64 bits cannot exist in memory.
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.hasher.update(length.to_be_bytes());
        self.hasher.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_sha256_in_lowercase_hex() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(format!("{:?}", Digest::of(b"")), EMPTY);
        assert_eq!(Digest::of(b"").short(), "e3b0c44298fc");
    }

    #[test]
    fn a_digest_survives_its_text_form() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        assert_eq!(Digest::from_bytes(*digest.as_bytes()), digest);
    }

    #[test]
    fn a_text_that_is_not_exactly_a_digest_is_refused() {
        let digits = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for text in [
            String::new(),
            digits.to_owned(),
            format!("sha512:{digits}"),
            format!("SHA256:{digits}"),
            format!("sha256:{}", digits.to_uppercase()),
            format!("sha256:{digits}0"),
            format!("sha256:{}", digits.trim_start_matches('e')),
            format!(" sha256:{digits}"),
            format!("sha256:{digits}\n"),
            format!("sha256:{}", digits.replace("e3", "g3")),
        ] {
            assert_eq!(text.parse::<Digest>(), Err(DigestSyntaxError), "{text}");
            assert!(serde_json::from_value::<Digest>(text.clone().into()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_label_the_names_and_the_kinds_are_part_of_the_digest() {
        let digests = [
            DigestBuilder::new("a").finish(),
            DigestBuilder::new("b").finish(),
            DigestBuilder::new("a").field("x", "").finish(),
            DigestBuilder::new("a").field("y", "").finish(),
            DigestBuilder::new("a").optional("x", Some(b"")).finish(),
            DigestBuilder::new("a").optional("x", None).finish(),
            DigestBuilder::new("a").list("x", [""; 0]).finish(),
            DigestBuilder::new("a").list("x", [""]).finish(),
            DigestBuilder::new("a").list("x", ["", ""]).finish(),
            DigestBuilder::new("a").field("x", "").field("x", "").finish(),
        ];
        let distinct: std::collections::BTreeSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), digests.len());
    }

    /// Digests in the ledger are permanent: this fails when the encoding changes.
    #[test]
    fn the_encoding_is_fixed() {
        let digest = DigestBuilder::new("placet.test.v1")
            .field("tenant", "acme")
            .optional("user", Some(b"ada"))
            .optional("group", None)
            .list("scopes", ["read", "write"])
            .finish();
        let mut bytes = Vec::new();
        let mut part = |tag: Option<u8>, part: &str| {
            bytes.extend(tag);
            bytes.extend(u64::try_from(part.len()).unwrap().to_be_bytes());
            bytes.extend(part.as_bytes());
        };
        part(None, "placet.test.v1");
        part(Some(1), "tenant");
        part(None, "acme");
        part(Some(2), "user");
        part(None, "ada");
        part(Some(3), "group");
        part(Some(4), "scopes");
        part(Some(5), "read");
        part(Some(5), "write");
        bytes.extend([0, 0]);
        assert_eq!(digest, Digest::of(&bytes));
    }

    #[derive(Debug, Clone, PartialEq)]
    enum Part {
        Field(Vec<u8>),
        Optional(Option<Vec<u8>>),
        List(Vec<Vec<u8>>),
    }

    fn digest(parts: &[(String, Part)]) -> Digest {
        parts
            .iter()
            .fold(DigestBuilder::new("placet.test.v1"), |builder, (name, part)| match part {
                Part::Field(value) => builder.field(name, value),
                Part::Optional(value) => builder.optional(name, value.as_deref()),
                Part::List(items) => builder.list(name, items),
            })
            .finish()
    }

    fn parts() -> impl Strategy<Value = Vec<(String, Part)>> {
        let bytes = || prop::collection::vec(0u8..6, 0..4);
        let part = prop_oneof![
            bytes().prop_map(Part::Field),
            prop::option::of(bytes()).prop_map(Part::Optional),
            prop::collection::vec(bytes(), 0..3).prop_map(Part::List),
        ];
        prop::collection::vec(("[ab]{0,2}", part), 0..4)
    }

    proptest! {
        #[test]
        fn different_fields_never_share_a_digest(a in parts(), b in parts()) {
            prop_assert_eq!(a == b, digest(&a) == digest(&b));
        }
    }
}
