//! Taint: what the context of a run may carry, for policies to look at.
//!
//! Owns the closed set of names. Does not classify texts: a caller declares taint, or a contract declares it for a tool's results.
//! Invariant: taint is only ever added; nothing removes it from a run.

use std::{collections::BTreeSet, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{
    Deserialize, Serialize,
    de::{self, IntoDeserializer},
};

/// A kind of content that a run may have in its context.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Taint {
    /// Text of somebody whom nobody vouches for: a web page, a mail, an upload. It may try to give the agent orders.
    UntrustedContent,
    /// A secret: a password, a key, a token.
    Secret,
    /// Personal data.
    Pii,
    /// Data of this run has already been sent to another system.
    ExternalEgress,
}

impl Taint {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::UntrustedContent, Self::Secret, Self::Pii, Self::ExternalEgress];

    /// The name on the wire and in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UntrustedContent => "untrusted_content",
            Self::Secret => "secret",
            Self::Pii => "pii",
            Self::ExternalEgress => "external_egress",
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Taint {
    type Err = de::value::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::deserialize(text.into_deserializer())
    }
}

/// The names of a set, for people to read; `none` where it is empty.
pub fn listed(taint: &BTreeSet<Taint>) -> String {
    if taint.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<&str> = taint.iter().map(|one| one.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Taint, listed};

    #[test]
    fn every_taint_has_one_name_everywhere() {
        for taint in [Taint::UntrustedContent, Taint::Secret, Taint::Pii, Taint::ExternalEgress] {
            assert_eq!(serde_json::json!(taint), taint.as_str());
            assert_eq!(taint.as_str().parse(), Ok(taint));
        }
        assert!("Secret".parse::<Taint>().is_err());
        assert!("".parse::<Taint>().is_err());
    }

    #[test]
    fn a_set_is_told_in_words() {
        assert_eq!(listed(&BTreeSet::new()), "none");
        assert_eq!(
            listed(&[Taint::Secret, Taint::UntrustedContent].into()),
            "untrusted_content, secret"
        );
    }
}
