//! The effect record and its machine.
//!
//! Owns which move leads where. Does not store. Invariant I7: a record's history is a path through [`EffectState::may_become`];
//! terminal states are absorbing, except that an unknown outcome may be resolved.

use serde::{Deserialize, Serialize};

use placet_types::{
    clock::Timestamp,
    contract::Dedup,
    digest::{Digest, DigestBuilder},
    error::ErrorCode,
    ids::{ApprovalId, DecisionId, IdempotencyKey, KeyScope, RecordId, RunId, ToolCallId},
};

/// Everything recorded about one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectRecord {
    /// The form of this record; another number is refused.
    pub version: u16,
    /// Its identity.
    pub record_id: RecordId,
    /// What the key is scoped by.
    pub scope: KeyScope,
    /// The key.
    pub key: IdempotencyKey,
    /// The call that made the record.
    pub call_id: ToolCallId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// What duplicates are matched by: capability and arguments as sent.
    pub requested_digest: Digest,
    /// The content digest of the [`crate::parked::ParkedCall`].
    pub parked: Digest,
    /// When the key was first seen.
    pub created_at: Timestamp,
    /// When the record last moved.
    pub updated_at: Timestamp,
    /// Counts moves; 1 is the first durable form.
    pub rev: u64,
    /// Changes only by an operator's explicit re-arm.
    pub arm: u32,
    /// How often the adapter was called.
    pub attempts: u32,
    /// Where it stands.
    pub state: EffectState,
}

/// The form of [`EffectRecord`] that this build writes.
pub const RECORD_VERSION: u16 = 1;

/// Where an effect stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum EffectState {
    /// The key is taken; nothing external has happened. Never durable by itself (T1).
    Claimed {
        /// The epoch that claimed it; an older one is void.
        epoch: u64,
    },
    /// People are asked (T2).
    PendingApproval {
        /// The approval.
        approval_id: ApprovalId,
        /// When it ends unanswered.
        expires_at: Timestamp,
    },
    /// People agreed; not dispatched yet.
    Approved {
        /// The approval.
        approval_id: ApprovalId,
        /// When the agreement ends.
        expires_at: Timestamp,
    },
    /// The adapter is, or may have been, called (T3).
    Dispatched(Attempt),
    /// Done; the result is kept (T4).
    Succeeded {
        /// The content digest of the result envelope.
        result: Digest,
    },
    /// Refused by the adapter, which declares that nothing happened or that trying again is pointless (T5).
    FailedFinal {
        /// The cause.
        code: ErrorCode,
        /// The content digest of the result envelope.
        result: Digest,
    },
    /// Not executed, as the adapter declares; a retry may dispatch again (T5, T9).
    FailedRetriable {
        /// The cause.
        code: ErrorCode,
        /// The content digest of the result envelope.
        result: Digest,
        /// The approval under which it may be tried again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval_id: Option<ApprovalId>,
    },
    /// Nobody can say whether the effect happened (T6).
    Indeterminate {
        /// The attempt whose outcome is unknown.
        attempt: Attempt,
        /// Why it is unknown.
        reason: String,
        /// The content digest of the result envelope that says so.
        result: Digest,
    },
    /// People said no, or nobody agreed in time; terminal for the key.
    Denied {
        /// [`ErrorCode::ApprovalDenied`] or [`ErrorCode::ApprovalExpired`].
        code: ErrorCode,
        /// The approval.
        approval_id: ApprovalId,
    },
}

/// One call of the adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Counts from 1.
    pub number: u32,
    /// What the adapter is given to recognise the call again.
    pub token: String,
    /// What is known about repeating it.
    pub class: Class,
    /// When the attempt must be over.
    pub deadline_at: Timestamp,
    /// When the first attempt of this arm was dispatched; bounds the use of a keyed token.
    pub first_dispatched_at: Timestamp,
    /// Whether an earlier attempt of the arm ended without an outcome: what this one finds out speaks for itself only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_unknown: bool,
    /// The epoch that dispatched it.
    pub epoch: u64,
    /// The decision that allowed it.
    pub decision_id: DecisionId,
    /// The bundle that decided.
    pub bundle_digest: Digest,
    /// What was permitted.
    pub request_digest: Digest,
    /// The contract as pinned at that moment.
    pub contract_digest: Digest,
    /// The approval it consumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
}

/// The class of an adapter's operation, as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "snake_case", deny_unknown_fields)]
pub enum Class {
    /// Changes nothing: may run again.
    ReadOnly,
    /// Honours the token for a window.
    Keyed {
        /// In milliseconds.
        window_ms: u64,
    },
    /// Can be asked.
    Queryable {
        /// In milliseconds.
        settle_delay_ms: u64,
    },
    /// Neither.
    Opaque,
}

impl Class {
    /// Whether a call whose outcome is unknown may be sent again with the same token.
    #[must_use]
    pub const fn may_repeat(&self) -> bool {
        matches!(self, Self::ReadOnly | Self::Keyed { .. })
    }
}

impl From<&Dedup> for Class {
    fn from(dedup: &Dedup) -> Self {
        match dedup {
            Dedup::ReadOnly => Self::ReadOnly,
            Dedup::Keyed { window_ms, .. } => Self::Keyed { window_ms: *window_ms },
            Dedup::Queryable { settle_delay_ms } => {
                Self::Queryable { settle_delay_ms: *settle_delay_ms }
            }
            Dedup::Opaque => Self::Opaque,
        }
    }
}

/// The token a downstream system recognises a call by: the same for every automatic retry of an arm.
#[must_use]
pub fn dispatch_token(record: &RecordId, arm: u32) -> String {
    let digest = DigestBuilder::new("placet.dispatch.v1")
        .field("record", record.digest().as_bytes())
        .field("arm", arm.to_be_bytes())
        .finish();
    let hex = digest.to_string();
    format!("plc_{}", hex.trim_start_matches("sha256:").chars().take(40).collect::<String>())
}

impl EffectState {
    /// The names of the states that a stored record can be in.
    pub const NAMES: [&'static str; 8] = [
        "pending_approval",
        "approved",
        "dispatched",
        "succeeded",
        "failed_final",
        "failed_retriable",
        "indeterminate",
        "denied",
    ];

    /// The state's name on the wire and in listings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claimed { .. } => "claimed",
            Self::PendingApproval { .. } => "pending_approval",
            Self::Approved { .. } => "approved",
            Self::Dispatched(_) => "dispatched",
            Self::Succeeded { .. } => "succeeded",
            Self::FailedFinal { .. } => "failed_final",
            Self::FailedRetriable { .. } => "failed_retriable",
            Self::Indeterminate { .. } => "indeterminate",
            Self::Denied { .. } => "denied",
        }
    }

    /// The content digest of the recorded result, where there is one.
    #[must_use]
    pub const fn result(&self) -> Option<Digest> {
        match self {
            Self::Succeeded { result }
            | Self::FailedFinal { result, .. }
            | Self::FailedRetriable { result, .. }
            | Self::Indeterminate { result, .. } => Some(*result),
            Self::Claimed { .. }
            | Self::PendingApproval { .. }
            | Self::Approved { .. }
            | Self::Dispatched(_)
            | Self::Denied { .. } => None,
        }
    }

    /// The attempt that is under way, or whose outcome is unknown.
    #[must_use]
    pub const fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::Dispatched(attempt) | Self::Indeterminate { attempt, .. } => Some(attempt),
            Self::Claimed { .. }
            | Self::PendingApproval { .. }
            | Self::Approved { .. }
            | Self::Succeeded { .. }
            | Self::FailedFinal { .. }
            | Self::FailedRetriable { .. }
            | Self::Denied { .. } => None,
        }
    }

    /// The approval that the record waits for, runs under or may be tried again under.
    #[must_use]
    pub const fn approval_id(&self) -> Option<&ApprovalId> {
        match self {
            Self::PendingApproval { approval_id, .. }
            | Self::Approved { approval_id, .. }
            | Self::Denied { approval_id, .. } => Some(approval_id),
            Self::Dispatched(attempt) | Self::Indeterminate { attempt, .. } => {
                attempt.approval_id.as_ref()
            }
            Self::FailedRetriable { approval_id, .. } => approval_id.as_ref(),
            Self::Claimed { .. } | Self::Succeeded { .. } | Self::FailedFinal { .. } => None,
        }
    }

    /// Whether recovery has to look at it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(
            self,
            Self::Claimed { .. }
                | Self::PendingApproval { .. }
                | Self::Approved { .. }
                | Self::Dispatched(_)
        )
    }

    /// Whether a record may move from this state to `next`. A key returns to absent by removal, which
    /// [`Self::may_be_removed`] rules.
    #[must_use]
    pub fn may_become(&self, next: &Self) -> bool {
        use EffectState as S;
        match (self, next) {
            (S::Claimed { .. }, S::PendingApproval { .. })
            | (
                S::PendingApproval { .. },
                S::PendingApproval { .. } | S::Approved { .. } | S::Denied { .. },
            )
            | (S::Approved { .. }, S::PendingApproval { .. } | S::Denied { .. }) => true,
            (
                S::Claimed { .. } | S::Approved { .. } | S::FailedRetriable { .. },
                S::Dispatched(a),
            ) => a.number >= 1,
            (
                S::Dispatched(_),
                S::Succeeded { .. } | S::FailedFinal { .. } | S::FailedRetriable { .. },
            ) => true,
            (S::Dispatched(a), S::Indeterminate { attempt: b, .. }) => a == b,
            // Only what the other system recognises, or what changes nothing, may be sent again without an answer (T7).
            (S::Dispatched(a), S::Dispatched(b)) => {
                b.number > a.number
                    && b.token == a.token
                    && a.class.may_repeat()
                    && a.class == b.class
            }
            (S::Indeterminate { .. }, S::Succeeded { .. } | S::FailedFinal { .. }) => true,
            (S::Indeterminate { attempt: a, .. }, S::Dispatched(b)) => {
                b.number > a.number && b.token != a.token
            }
            _ => false,
        }
    }

    /// Whether the key may return to absent: only where certainly nothing has happened.
    #[must_use]
    pub const fn may_be_removed(&self) -> bool {
        matches!(self, Self::Claimed { .. } | Self::PendingApproval { .. } | Self::Approved { .. })
    }
}

/// A move that the machine does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record `{record_id}` may not go from {from} to {to}")]
pub struct IllegalMove {
    /// The record.
    pub record_id: RecordId,
    /// Its state.
    pub from: &'static str,
    /// The state asked for.
    pub to: &'static str,
}

impl EffectRecord {
    /// The record after a move to `state` at `now`.
    ///
    /// # Errors
    /// [`IllegalMove`] when the machine does not know the move.
    pub fn moved(&self, state: EffectState, now: Timestamp) -> Result<Self, IllegalMove> {
        if !self.state.may_become(&state) {
            return Err(IllegalMove {
                record_id: self.record_id,
                from: self.state.name(),
                to: state.name(),
            });
        }
        let attempts = if let EffectState::Dispatched(attempt) = &state {
            attempt.number
        } else {
            self.attempts
        };
        Ok(Self {
            state,
            attempts,
            updated_at: now,
            rev: self.rev.saturating_add(1),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests;
