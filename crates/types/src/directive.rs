//! What people arrange in the approval service besides single decisions: standing grants, break-glass, freezes, delegations, revocations.
//!
//! Owns their wire forms. The states of an entry are the ledger's (`placet_ledger::directive`), who may arrange it is policy's, and
//! whether a call's arguments fit a grant is [`pattern`]'s.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    digest::Digest,
    ids::{AdapterName, ApprovalId, CapabilityId, GroupId, PrincipalId},
    mode::ApprovalMode,
    principal::PrincipalChain,
};
use pattern::ArgumentPattern;

pub mod pattern;

/// The longest that a standing grant lasts, in milliseconds: 30 days.
pub const GRANT_MS_MAX: u64 = 30 * 86_400_000;
/// The most uses of one standing grant.
pub const GRANT_USES_MAX: u32 = 10_000;
/// The longest break-glass, in milliseconds: 8 hours.
pub const BREAK_GLASS_MS_MAX: u64 = 8 * 3_600_000;
/// The longest freeze, in milliseconds: 31 days.
pub const FREEZE_MS_MAX: u64 = 31 * 86_400_000;
/// The longest delegation, in milliseconds: 31 days.
pub const DELEGATION_MS_MAX: u64 = 31 * 86_400_000;
/// The shortest revocation, in milliseconds: a day, the longest lifetime of any token that is accepted here. The clock skew and the
/// leeway at its end are added where revocations are checked.
pub const REVOCATION_MS_MIN: u64 = 86_400_000;
/// The longest revocation, in milliseconds: 31 days.
pub const REVOCATION_MS_MAX: u64 = 31 * 86_400_000;
/// The longest ticket, reason or note, in bytes.
pub const DIRECTIVE_TEXT_BYTES_MAX: usize = 2_000;

crate::named_enum! {
    /// The kinds of entries, by the names they have on the wire.
    #[derive(JsonSchema)]
    pub enum DirectiveKind {
        /// A standing grant.
        Grant = "grant",
        /// A break-glass record.
        BreakGlass = "break_glass",
        /// A freeze or a lockdown.
        Freeze = "freeze",
        /// A delegation of an approver's duty.
        Delegation = "delegation",
        /// A revocation of a subject's tokens.
        Revocation = "revocation",
    }
}

/// The state of the approval service that a decision reflects, and how long it can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectiveBasis {
    /// How often the approval service had become stricter.
    pub rev: u64,
    /// When it next becomes stricter by time alone; `None`: not as far as is known.
    pub until: Option<Timestamp>,
}

impl DirectiveBasis {
    /// Whether nothing is stricter at `now`, when the approval service has become stricter `rev` times.
    pub fn holds(&self, rev: u64, now: Timestamp) -> bool {
        self.rev == rev && self.until.is_none_or(|until| now < until)
    }
}

/// The content of an entry. It never changes once the entry is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum DirectiveBody {
    /// A standing grant: calls like this one need no further approval, for a limited time and number of uses.
    Grant(Box<Grant>),
    /// A break-glass record: policies that opt in let calls pass in an emergency.
    BreakGlass(BreakGlass),
    /// A freeze: for a limited time, no automatic rule and no standing grant lets a call pass.
    Freeze(Freeze),
    /// A delegation: a colleague decides in the author's place for a limited time.
    Delegation(Delegation),
    /// A revocation: tokens that the subject was issued earlier are no longer accepted.
    Revocation(Revocation),
}

impl DirectiveBody {
    /// Its kind.
    pub const fn kind(&self) -> DirectiveKind {
        match self {
            Self::Grant(_) => DirectiveKind::Grant,
            Self::BreakGlass(_) => DirectiveKind::BreakGlass,
            Self::Freeze(_) => DirectiveKind::Freeze,
            Self::Delegation(_) => DirectiveKind::Delegation,
            Self::Revocation(_) => DirectiveKind::Revocation,
        }
    }
}

/// A standing grant, approved once by the people whom the call's policies ask, under the same rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The approval that the grant was proposed from.
    pub approval_id: ApprovalId,
    /// The caller and the user it acts for. The grant covers exactly these.
    pub chain: PrincipalChain,
    /// The capability that the grant covers.
    pub capability: CapabilityId,
    /// The strongest approval mode that the grant covers.
    pub mode: ApprovalMode,
    /// The digest of the contract that the grant was approved for. The grant covers nothing under another contract.
    pub contract_digest: Digest,
    /// The arguments that the grant covers.
    pub pattern: ArgumentPattern,
    /// How many times the grant may be used.
    pub uses_max: u32,
    /// The people who wrote the approval's arguments in place of the agent's, or a pattern that covers more than that call. They may not
    /// agree to the grant.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub authors: BTreeSet<PrincipalId>,
}

/// A break-glass record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BreakGlass {
    /// The ticket of the incident.
    pub ticket: String,
    /// The only agent that the record is for; absent: all agents of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<PrincipalId>,
    /// The only capability that the record is for; absent: all capabilities that policies let it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<CapabilityId>,
}

/// A freeze, or a lockdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    /// The name of the freeze in the calendar.
    pub name: String,
    /// The adapters whose calls are frozen; empty: all adapters.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub adapters: BTreeSet<AdapterName>,
    /// Whether it is a lockdown: no call runs, reads neither, and no approval helps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lockdown: bool,
}

impl Freeze {
    /// Whether it is for calls of this adapter.
    pub fn holds(&self, adapter: &AdapterName) -> bool {
        self.adapters.is_empty() || self.adapters.contains(adapter)
    }
}

/// A delegation of an approver's duty. The entry's author delegates it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delegation {
    /// The colleague who decides instead.
    pub to: PrincipalId,
    /// The groups of the author that the delegation covers.
    pub groups: BTreeSet<GroupId>,
}

/// A revocation of every token that a subject was issued before the entry was made. Tokens issued later are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// The subject, as its issuer names it (`sub`).
    #[schemars(length(min = 1, max = 2000))]
    pub subject: String,
    /// The only issuer (`iss`) concerned; absent: every issuer of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2000))]
    pub issuer: Option<String>,
}
