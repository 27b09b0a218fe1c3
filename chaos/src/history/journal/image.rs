//! Records and approvals as an entry of the log shows them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An effect record in a new state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RecordImage {
    pub(crate) record_id: String,
    pub(crate) tenant: String,
    pub(crate) agent: String,
    pub(crate) user: Option<String>,
    /// The operation, as `adapter/capability`.
    pub(crate) capability: String,
    pub(crate) key: String,
    pub(crate) call_id: String,
    pub(crate) rev: u64,
    pub(crate) arm: u32,
    /// How often the upstream was called.
    pub(crate) attempts: u32,
    pub(crate) state: String,
    /// The attempt in flight, or with an unknown outcome.
    pub(crate) attempt: Option<AttemptImage>,
    /// The attempt of an earlier arm whose outcome is unknown.
    pub(crate) unknown: Option<AttemptImage>,
    /// The digest of the result.
    pub(crate) result: Option<String>,
    /// The approval named by the state.
    pub(crate) approval_id: Option<String>,
    /// The error code of a failure or a denial.
    pub(crate) code: Option<String>,
    /// The former state of a tombstone.
    pub(crate) was: Option<String>,
    pub(crate) resolved: Option<Resolved>,
    /// The operators who want the record to be sent again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rearm: Vec<String>,
}

/// How an unknown outcome became known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Resolved {
    /// `late_answer`, `probe` or `operator`.
    pub(crate) by: String,
    /// The attempt it is about; an operator's statement is about all.
    pub(crate) attempt: Option<u32>,
    pub(crate) operator: Option<String>,
}

/// One call of the upstream as the ledger knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct AttemptImage {
    pub(crate) number: u32,
    pub(crate) token: String,
    /// The class, by the ledger's name for it: `read_only`, `keyed`, `queryable`, `opaque`.
    pub(crate) class: String,
    /// The epoch that dispatched it.
    pub(crate) epoch: u64,
    /// The epoch that has to settle it.
    pub(crate) owner: u64,
    /// The digest of the permitted request.
    pub(crate) request: String,
    /// The bundle that permitted it.
    pub(crate) bundle: String,
    /// The approval it consumed.
    pub(crate) approval_id: Option<String>,
    /// The standing grant it used.
    pub(crate) grant: Option<String>,
    /// Its deadline, by the ledger's clock.
    pub(crate) deadline_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ApprovalImage {
    pub(crate) approval_id: String,
    pub(crate) record_id: String,
    /// The digest of the request that is approved.
    pub(crate) request: String,
    pub(crate) rev: u64,
    /// `pending`, `approved`, `denied`, `expired`, `withdrawn`, `void` or `consumed`.
    pub(crate) state: String,
    /// Who requests: agent and user.
    pub(crate) requesters: Vec<String>,
    pub(crate) quorum: u32,
    pub(crate) agreed: Vec<String>,
    pub(crate) refused: Vec<String>,
    /// When it ends, by the ledger's clock.
    pub(crate) expires_ms: i64,
}

pub(super) struct Reader<'a>(pub(super) &'a Value);

impl<'a> Reader<'a> {
    pub(super) fn of(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.of(name)?.as_str().map(str::to_owned)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.of(name)?.as_u64()
    }

    pub(super) fn small(&self, name: &str) -> Option<u32> {
        u32::try_from(self.number(name)?).ok()
    }

    pub(super) fn ms(&self, name: &str) -> Option<i64> {
        self.of(name)?.as_i64()
    }
}

impl RecordImage {
    pub(crate) fn read(document: &Value) -> Option<Self> {
        let record = Reader(document);
        let scope = Reader(record.of("scope")?);
        let state = record.of("state")?;
        let fields = Reader(state);
        let name = fields.text("state")?;
        let attempt = match name.as_str() {
            "dispatched" => AttemptImage::read(state),
            _ => fields.of("attempt").and_then(AttemptImage::read),
        };
        Some(Self {
            record_id: record.text("record_id")?,
            tenant: scope.text("tenant")?,
            agent: scope.text("agent")?,
            user: scope.text("on_behalf_of"),
            capability: scope.text("capability")?,
            key: record.text("key")?,
            call_id: record.text("call_id")?,
            rev: record.number("rev")?,
            arm: record.small("arm")?,
            attempts: record.small("attempts")?,
            approval_id: fields
                .text("approval_id")
                .or_else(|| attempt.as_ref().and_then(|attempt| attempt.approval_id.clone())),
            state: name,
            attempt,
            unknown: record
                .of("unknown")
                .and_then(|unknown| AttemptImage::read(unknown.get("attempt")?)),
            result: fields.text("result"),
            code: fields.text("code"),
            was: fields.text("was"),
            resolved: fields.of("resolved_by").and_then(Resolved::read),
            rearm: rearm(fields.of("rearm").or_else(|| fields.of("by"))),
        })
    }
}

impl Resolved {
    fn read(document: &Value) -> Option<Self> {
        let resolved = Reader(document);
        Some(Self {
            by: resolved.text("by")?,
            attempt: resolved.small("attempt"),
            operator: resolved.text("operator"),
        })
    }
}

/// The operators of one request to send again, or of several.
fn rearm(document: Option<&Value>) -> Vec<String> {
    let all = document.map(|document| match document.as_array() {
        Some(several) => several.iter().collect(),
        None => vec![document],
    });
    let named = |one: &Value| one.get("operator")?.as_str().map(str::to_owned);
    all.into_iter().flatten().filter_map(named).collect()
}

impl AttemptImage {
    fn read(document: &Value) -> Option<Self> {
        let attempt = Reader(document);
        let epoch = attempt.number("epoch")?;
        Some(Self {
            number: attempt.small("number")?,
            token: attempt.text("token")?,
            class: Reader(attempt.of("class")?).text("class")?,
            epoch,
            owner: attempt.number("adopted_by").unwrap_or(epoch),
            request: attempt.text("request_digest")?,
            bundle: attempt.text("bundle_digest")?,
            approval_id: attempt.text("approval_id"),
            grant: attempt.text("grant"),
            deadline_ms: attempt.ms("deadline_at")?,
        })
    }
}

impl ApprovalImage {
    pub(crate) fn read(document: &Value) -> Option<Self> {
        let approval = Reader(document);
        let votes: Vec<Reader<'_>> = approval.of("votes")?.as_array()?.iter().map(Reader).collect();
        let who = |choice: &str| {
            let chose = |vote: &&Reader<'_>| vote.text("choice").as_deref() == Some(choice);
            votes.iter().filter(chose).filter_map(|vote| vote.text("approver")).collect()
        };
        Some(Self {
            approval_id: approval.text("approval_id")?,
            record_id: approval.text("record_id")?,
            request: approval.text("request_digest")?,
            rev: approval.number("rev")?,
            state: Reader(approval.of("state")?).text("state")?,
            requesters: requesters(approval.of("chain")),
            quorum: Reader(approval.of("requirement")?).small("quorum")?,
            agreed: who("approve"),
            refused: who("deny"),
            expires_ms: approval.ms("expires_at")?,
        })
    }
}

/// Every name in the chain of principals, in any form.
pub(super) fn requesters(chain: Option<&Value>) -> Vec<String> {
    let mut names = Vec::new();
    let mut open: Vec<&Value> = chain.into_iter().collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                let named = ["id", "agent", "user", "principal"].iter();
                names.extend(
                    named.filter_map(|name| members.get(*name)?.as_str()).map(str::to_owned),
                );
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    names.sort();
    names.dedup();
    names
}
