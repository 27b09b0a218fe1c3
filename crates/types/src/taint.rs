//! Taint: what the context of a run may carry, for policies to look at.
//!
//! Owns the closed set of names. Does not classify texts: a caller declares taint, or a contract declares it for a tool's results.
//! Invariant: taint is only ever added; nothing removes it from a run.

use std::collections::BTreeSet;

use schemars::JsonSchema;

crate::named_enum! {
    /// A kind of content that a run may have in its context.
    #[derive(JsonSchema)]
    pub enum Taint {
        /// Text of somebody whom nobody vouches for: a web page, a mail, an upload. It may try to give the agent orders.
        UntrustedContent = "untrusted_content",
        /// A secret: a password, a key, a token.
        Secret = "secret",
        /// Personal data.
        Pii = "pii",
        /// Data of this run has already been sent to another system.
        ExternalEgress = "external_egress",
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
