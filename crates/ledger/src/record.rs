//! The effect record: what is kept about one key.
//!
//! Owns the record, its states and attempts. The legal moves are in `moves`. Does not store.

mod moves;
mod rearm;

pub use moves::IllegalMove;
pub use rearm::{Rearm, Resolution, Unknown};

use serde::{Deserialize, Serialize};

use placet_types::{
    clock::Timestamp,
    contract::Dedup,
    digest::{Digest, DigestBuilder},
    error::ErrorCode,
    ids::{ApprovalId, DecisionId, DirectiveId, IdempotencyKey, RecordId, RunId, ToolCallId},
    principal::KeyScope,
};

use crate::reservation::Reservation;

/// Everything recorded about one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectRecord {
    /// The version of this record; others are refused.
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
    /// Counts moves; the first durable version is 1.
    pub rev: u64,
    /// Changes only by an operator's explicit re-arm.
    pub arm: u32,
    /// How often the adapter was called.
    pub attempts: u32,
    /// The unknown outcome of an earlier arm, once an operator has re-armed the record. Such a record is never released, and only a success
    /// of the new arm settles the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Box<Unknown>>,
    /// Its state.
    pub state: EffectState,
}

impl EffectRecord {
    /// The contents that it names: what is parked, its result, and that of an earlier arm. A tombstone names none: they were deleted when it
    /// became one.
    pub fn contents(&self) -> impl Iterator<Item = Digest> + use<> {
        let is_buried = matches!(self.state, EffectState::Tombstone { .. });
        let of_arm = self.unknown.as_deref().map(|unknown| unknown.result);
        let all = self.state.result().into_iter().chain(of_arm).chain([self.parked]);
        all.filter(move |_| !is_buried)
    }
}

/// The version of [`EffectRecord`]; records of other versions are not read.
pub const RECORD_VERSION: u16 = 1;

/// The state of an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum EffectState {
    /// The key is taken; nothing external has happened. Never durable by itself (T1).
    Claimed {
        /// The epoch that claimed it; an older one is void.
        epoch: u64,
    },
    /// It waits for approval (T2).
    PendingApproval {
        /// The approval.
        approval_id: ApprovalId,
        /// When the approval expires.
        expires_at: Timestamp,
    },
    /// Approved; not dispatched yet.
    Approved {
        /// The approval.
        approval_id: ApprovalId,
        /// When the approval expires.
        expires_at: Timestamp,
    },
    /// The adapter is, or may have been, called (T3).
    Dispatched(Attempt),
    /// Done; the result is kept (T4).
    Succeeded {
        /// The content digest of the result envelope.
        result: Digest,
        /// What resolved an outcome that was unknown (T8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resolved_by: Option<Resolution>,
    },
    /// It failed and will not be tried again (T5).
    FailedFinal {
        /// The cause.
        code: ErrorCode,
        /// The content digest of the result envelope.
        result: Digest,
        /// What resolved an outcome that was unknown (T8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resolved_by: Option<Resolution>,
    },
    /// Not executed, as the adapter declares; a retry may dispatch again (T5, T9).
    FailedRetriable {
        /// The cause.
        code: ErrorCode,
        /// The content digest of the result envelope.
        result: Digest,
        /// The approval under which it may be tried again; none if a call that was sent needs a new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval_id: Option<ApprovalId>,
    },
    /// Whether the effect happened is unknown (T6).
    Indeterminate {
        /// The attempt whose outcome is unknown.
        attempt: Attempt,
        /// Why it is unknown.
        reason: String,
        /// The content digest of the result envelope that says so.
        result: Digest,
        /// The operator who asks for another arm, until a second one has agreed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rearm: Option<Box<Rearm>>,
    },
    /// Operators decided to send the call again under a new token, although its outcome is unknown (T9).
    Rearmed {
        /// Who decided, in order; two, unless the deployment requires only one.
        by: Vec<Rearm>,
    },
    /// Denied, or not approved in time; terminal for the key.
    Denied {
        /// [`ErrorCode::ApprovalDenied`], [`ErrorCode::ApprovalExpired`] or [`ErrorCode::ApprovalWithdrawn`].
        code: ErrorCode,
        /// The approval.
        approval_id: ApprovalId,
    },
    /// The result was dropped after its retention; the key stays taken (T10).
    Tombstone {
        /// The name of the state it had.
        was: String,
        /// The error code it ended with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<ErrorCode>,
        /// When it was settled.
        settled_at: Timestamp,
    },
}

/// One call of the adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Counts from 1.
    pub number: u32,
    /// By which the target can recognise the call.
    pub token: String,
    /// What is known about repeating it.
    pub class: Dedup,
    /// When the attempt must have ended.
    pub deadline_at: Timestamp,
    /// When the first attempt of this arm was dispatched; bounds the use of a keyed token.
    pub first_dispatched_at: Timestamp,
    /// Whether an earlier attempt of the arm ended without an outcome: then this one's findings are about itself only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_unknown: bool,
    /// The epoch that dispatched it.
    pub epoch: u64,
    /// The epoch that took over the duty to settle it, if not the one that dispatched it; see [`Attempt::duty`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_by: Option<u64>,
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
    /// The standing grant it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<DirectiveId>,
    /// What it took from its run's budget: returned if nothing happened, no matter who finds that out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Box<Reservation>>,
}

impl Attempt {
    /// The approval under which it may be tried again once it counts as not executed. A call that was sent keeps it only if the target
    /// recognises the token, so that one approval still has one effect; any other one needs a new approval.
    pub(crate) fn kept_approval(&self, was_sent: bool) -> Option<ApprovalId> {
        self.approval_id.clone().filter(|_| !was_sent || self.class.may_repeat())
    }

    /// The epoch that has to settle the attempt: the one that adopted it, else the one that dispatched it.
    pub fn duty(&self) -> u64 {
        self.adopted_by.unwrap_or(self.epoch)
    }
}

/// The token by which a target recognises a call: the same for every automatic retry of an arm.
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
    pub const NAMES: [&'static str; 10] = [
        "pending_approval",
        "approved",
        "dispatched",
        "succeeded",
        "failed_final",
        "failed_retriable",
        "indeterminate",
        "rearmed",
        "denied",
        "tombstone",
    ];

    /// The state's name on the wire and in listings.
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
            Self::Rearmed { .. } => "rearmed",
            Self::Denied { .. } => "denied",
            Self::Tombstone { .. } => "tombstone",
        }
    }

    /// The content digest of the recorded result, where there is one.
    pub const fn result(&self) -> Option<Digest> {
        let (Self::Succeeded { result, .. }
        | Self::FailedFinal { result, .. }
        | Self::FailedRetriable { result, .. }
        | Self::Indeterminate { result, .. }) = self
        else {
            return None;
        };
        Some(*result)
    }

    /// The attempt in flight, or the one whose outcome is unknown.
    pub const fn attempt(&self) -> Option<&Attempt> {
        let (Self::Dispatched(attempt) | Self::Indeterminate { attempt, .. }) = self else {
            return None;
        };
        Some(attempt)
    }

    /// Whether it contains words of the target: its result, its report of a failure, its reason for refusing the call.
    pub const fn has_words(&self) -> bool {
        match self {
            Self::Succeeded { .. } => true,
            Self::FailedFinal { code, resolved_by, .. } => match resolved_by {
                None => true,
                Some(Resolution::LateAnswer { .. }) => is_in_its_words(*code),
                // That nothing happened was found out later, and is said in our words.
                Some(Resolution::Probe { .. } | Resolution::Operator { .. }) => false,
            },
            Self::FailedRetriable { code, .. } => is_in_its_words(*code),
            Self::Claimed { .. }
            | Self::PendingApproval { .. }
            | Self::Approved { .. }
            | Self::Dispatched(_)
            | Self::Indeterminate { .. }
            | Self::Rearmed { .. }
            | Self::Denied { .. }
            | Self::Tombstone { .. } => false,
        }
    }

    /// The approval that the record waits for, runs under or may be tried again under.
    pub const fn approval_id(&self) -> Option<&ApprovalId> {
        match self {
            Self::PendingApproval { approval_id, .. }
            | Self::Approved { approval_id, .. }
            | Self::Denied { approval_id, .. } => Some(approval_id),
            Self::Dispatched(attempt) | Self::Indeterminate { attempt, .. } => {
                attempt.approval_id.as_ref()
            }
            Self::FailedRetriable { approval_id, .. } => approval_id.as_ref(),
            Self::Claimed { .. }
            | Self::Succeeded { .. }
            | Self::FailedFinal { .. }
            | Self::Rearmed { .. }
            | Self::Tombstone { .. } => None,
        }
    }

    /// Whether recovery has to handle it.
    pub const fn is_open(&self) -> bool {
        matches!(
            self,
            Self::Claimed { .. }
                | Self::PendingApproval { .. }
                | Self::Approved { .. }
                | Self::Dispatched(_)
                | Self::Rearmed { .. }
        )
    }

    /// Whether the call has ended: only the end of its retention still moves it.
    pub const fn is_settled(&self) -> bool {
        matches!(
            self,
            Self::Succeeded { .. }
                | Self::FailedFinal { .. }
                | Self::FailedRetriable { .. }
                | Self::Denied { .. }
        )
    }

    /// The error code it ended with.
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::FailedFinal { code, .. }
            | Self::FailedRetriable { code, .. }
            | Self::Denied { code, .. } => Some(*code),
            Self::Indeterminate { .. } => Some(ErrorCode::OutcomeUnknown),
            Self::Tombstone { code, .. } => *code,
            Self::Claimed { .. }
            | Self::PendingApproval { .. }
            | Self::Approved { .. }
            | Self::Dispatched(_)
            | Self::Succeeded { .. }
            | Self::Rearmed { .. } => None,
        }
    }
}

/// Whether a failure with this code is in words of the target: it refused the call and said why.
pub(crate) const fn is_in_its_words(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::AdapterFailed)
}

#[cfg(test)]
mod tests;
