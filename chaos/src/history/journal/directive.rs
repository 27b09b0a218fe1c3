//! Entries of the approval service as an entry of the log shows them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::image::{Reader, requesters};

/// A new state of an entry of the approval service: of a standing grant with all its limits, of others only that they exist.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct DirectiveImage {
    pub(crate) directive_id: String,
    /// `grant`, `break_glass`, `freeze`, `delegation` or `revocation`.
    pub(crate) kind: String,
    pub(crate) tenant: String,
    pub(crate) rev: u64,
    /// `proposed`, `active`, `denied`, `ended` or `reviewed`.
    pub(crate) state: String,
    /// How often it had been used when this was written.
    pub(crate) uses: u32,
    pub(crate) quorum: u32,
    pub(crate) agreed: Vec<String>,
    /// When it ends, by the ledger's clock.
    pub(crate) expires_ms: i64,
    pub(crate) grant: Option<GrantImage>,
}

/// What a standing grant permits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct GrantImage {
    /// The approval it was proposed from.
    pub(crate) approval_id: String,
    /// Whose calls it lets pass: agent and user.
    pub(crate) requesters: Vec<String>,
    /// The operation, as `adapter/capability`.
    pub(crate) capability: String,
    pub(crate) uses_max: u32,
}

impl DirectiveImage {
    pub(crate) fn read(document: &Value) -> Option<Self> {
        let entry = Reader(document);
        let body = Reader(entry.of("body")?);
        let kind = body.text("kind")?;
        let grant = match kind.as_str() {
            "grant" => Some(GrantImage {
                approval_id: body.text("approval_id")?,
                requesters: requesters(body.of("chain")),
                capability: body.text("capability")?,
                uses_max: body.small("uses_max")?,
            }),
            _ => None,
        };
        let yes = |vote: &&Value| vote.get("choice").and_then(Value::as_str) == Some("approve");
        let votes = entry.of("votes").and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            directive_id: entry.text("directive_id")?,
            kind,
            tenant: entry.text("tenant")?,
            rev: entry.number("rev")?,
            state: Reader(entry.of("state")?).text("state")?,
            uses: entry.small("uses").unwrap_or_default(),
            quorum: Reader(entry.of("requirement")?).small("quorum")?,
            agreed: votes.filter(yes).filter_map(|vote| Reader(vote).text("approver")).collect(),
            expires_ms: entry.ms("expires_at")?,
            grant,
        })
    }
}
