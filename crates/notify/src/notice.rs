//! The content of notifications: the facts of one event of one call, or of one entry of the approval service.
//!
//! Owns the kinds and the facts. Not here: how a message looks ([`crate::message`]). Invariant: a fact is a name, a code, a time, a digest
//! or the text of a policy, or a sentence of ours; nothing that an agent or a person wrote.

use std::{collections::BTreeSet, fmt};

use placet_types::{
    approval::{HoldReason, VoteChoice},
    clock::Timestamp,
    contract::credential::CredentialKind,
    digest::Digest,
    directive::DirectiveKind,
    error::ErrorCode,
    ids::{ApprovalId, CapabilityId, ChannelName, DirectiveId, GroupId, TenantId, ToolCallId},
    mode::ApprovalMode,
    principal::PrincipalChain,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An event that people can be notified of.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A call was held; approval is requested.
    Held,
    /// An approver edited the arguments; approval is requested again.
    Edited,
    /// An approver decided, and others still have to.
    Voted,
    /// Another group is asked, because the first ones did not answer.
    Escalated,
    /// A pending approval expires soon.
    Expiring,
    /// Enough approvers agreed.
    Approved,
    /// The call was denied.
    Denied,
    /// The approval expired before enough approvers agreed.
    Expired,
    /// The call was withdrawn before it was sent.
    Withdrawn,
    /// The approval became void: what would run is no longer what approval was requested for.
    Void,
    /// A held call was sent and has ended.
    Finished,
    /// An approved call waits for its caller to return with a new token.
    AwaitsCredential,
    /// A standing grant was proposed or changed.
    Grant,
    /// Break-glass was requested or changed.
    BreakGlass,
    /// A freeze was created or changed.
    Freeze,
    /// A delegation was created or changed.
    Delegation,
    /// A revocation was created or changed.
    Revocation,
    /// Calls get no credential, and an operator has to fix it.
    CredentialRefused,
}

impl NoticeKind {
    /// The default events of a route: all but single decisions, the end of the call, and what its caller has to fix.
    pub fn usual() -> BTreeSet<Self> {
        BTreeSet::from([
            Self::Held,
            Self::Edited,
            Self::Escalated,
            Self::Expiring,
            Self::Approved,
            Self::Denied,
            Self::Expired,
            Self::Withdrawn,
            Self::Void,
            Self::Grant,
            Self::BreakGlass,
            Self::Freeze,
            Self::Delegation,
            Self::Revocation,
            Self::CredentialRefused,
        ])
    }

    /// Whether groups are asked about what it reports.
    pub const fn concerns_groups(self) -> bool {
        !matches!(
            self,
            Self::BreakGlass
                | Self::Freeze
                | Self::Delegation
                | Self::Revocation
                | Self::CredentialRefused
        )
    }

    /// Whether people are asked to decide.
    pub const fn asks(self) -> bool {
        matches!(self, Self::Held | Self::Edited | Self::Escalated | Self::Expiring)
    }

    /// The error with which a call ends that ended by this event, without having run.
    pub fn code(self) -> Option<ErrorCode> {
        let codes = [
            (Self::Denied, ErrorCode::ApprovalDenied),
            (Self::Expired, ErrorCode::ApprovalExpired),
            (Self::Withdrawn, ErrorCode::ApprovalWithdrawn),
            (Self::Void, ErrorCode::ApprovalVoid),
        ];
        codes.into_iter().find_map(|(kind, code)| (kind == self).then_some(code))
    }

    /// Whether callers are notified: the call has ended, or waits for its caller.
    pub fn is_for_callers(self) -> bool {
        self.code().is_some() || matches!(self, Self::Finished | Self::AwaitsCredential)
    }

    /// Whether external approvers are notified: they decide on calls, and learn neither who else decided, nor the outcome of the call, nor
    /// what a tenant arranges by its directives.
    pub fn is_for_external_approvers(self) -> bool {
        self.asks() || self == Self::Approved || self.code().is_some()
    }
}

impl fmt::Display for NoticeKind {
    /// The name on the wire.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl From<DirectiveKind> for NoticeKind {
    fn from(kind: DirectiveKind) -> Self {
        match kind {
            DirectiveKind::Grant => Self::Grant,
            DirectiveKind::BreakGlass => Self::BreakGlass,
            DirectiveKind::Freeze => Self::Freeze,
            DirectiveKind::Delegation => Self::Delegation,
            DirectiveKind::Revocation => Self::Revocation,
        }
    }
}

/// A group that is asked, with its tenant.
pub type Asked = (TenantId, GroupId);

/// One event that may be reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Its identity: the same whenever and wherever the chain is read.
    pub of: String,
    /// What happened.
    pub kind: NoticeKind,
    /// Its tenant.
    pub tenant: TenantId,
    /// When.
    pub at: Timestamp,
    /// The groups that are asked, also those of other tenants.
    pub asked: BTreeSet<Asked>,
    /// The channel on which the caller wants to learn the end, or what it has to do before.
    pub callback: Option<ChannelName>,
    /// The facts.
    pub about: About,
}

impl Notice {
    /// The key by which its messages are ordered.
    pub fn subject(&self) -> &str {
        match &self.about {
            About::Call(call) => call.call_id.as_str(),
            About::Directive(directives) => directives.directive_id.as_str(),
            About::Credential(credential) => &credential.fault,
        }
    }
}

/// What a notice is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// A held call.
    Call(Box<CallFacts>),
    /// An entry of the approval service.
    Directive(Box<DirectiveFacts>),
    /// A credential that an operator has to fix.
    Credential(Box<CredentialFacts>),
}

/// A held call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFacts {
    /// The call.
    pub call_id: ToolCallId,
    /// The approval it waits or waited for.
    pub approval_id: ApprovalId,
    /// The operation.
    pub operation: CapabilityId,
    /// The mode it was held in.
    pub mode: ApprovalMode,
    /// Who calls, for whom.
    pub chain: PrincipalChain,
    /// The state of the approval; once the call has ended, its outcome.
    pub state: String,
    /// How many people have to agree.
    pub quorum: u32,
    /// The policies that hold it.
    pub reasons: Vec<HoldReason>,
    /// Who decided what.
    pub decisions: Vec<(String, VoteChoice)>,
    /// When the approval ends.
    pub expires_at: Timestamp,
    /// What approvers are shown.
    pub proposal: Digest,
    /// The error that its caller gets if it has not run.
    pub code: Option<ErrorCode>,
    /// How the call ended.
    pub end: Option<CallEnd>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnd {
    /// The state of its record.
    pub outcome: String,
    /// The error it ended with.
    pub code: Option<ErrorCode>,
    /// The digest of its result.
    pub result: Option<Digest>,
}

/// An entry of the approval service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectiveFacts {
    /// The entry.
    pub directive_id: DirectiveId,
    /// Its state.
    pub state: String,
    /// Who did this to it.
    pub by: String,
    /// Whether it is a lockdown.
    #[serde(default)]
    pub lockdown: bool,
    /// The operation it is for, where it is for one.
    pub operation: Option<CapabilityId>,
    /// When it takes effect.
    pub starts_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The digest of all that people agree to.
    pub terms: Digest,
}

/// A credential that an operator has to fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialFacts {
    /// The identity of the problem: the same for the same credential and the same problem.
    pub fault: String,
    /// The name of the secret or the token service.
    pub source: String,
    /// How it comes about.
    pub of: CredentialKind,
    /// The operation whose call lacked it first.
    pub operation: Option<CapabilityId>,
    /// What is wrong, in our words.
    pub problem: String,
}
