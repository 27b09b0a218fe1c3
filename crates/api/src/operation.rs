//! The operations of the HTTP API: the one list that the router and the OpenAPI document are both made from.
//!
//! Owns methods and paths. Invariant: a route that is not in [`Operation::ALL`] does not exist, and one that is in it is
//! routed and described, because both sides match on this enum without a wildcard.

use http::Method;

use crate::challenge::METADATA_PATH;

/// Something a caller can ask of the HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    SubmitCall,
    GetCall,
    FollowCall,
    GetTimeline,
    ListTools,
    ReadInbox,
    ListApprovals,
    GetApproval,
    DecideApproval,
    EditApproval,
    WithdrawApproval,
    DecideBulk,
    ListDesk,
    ArrangeAtDesk,
    GetDeskEntry,
    ActOnDeskEntry,
    FollowDesk,
    ListRecords,
    GetRecord,
    ResolveRecord,
    RearmRecord,
    ShowStatus,
    Reload,
    ShowCredentials,
    ShowReport,
    ListDecisions,
    GetDecision,
    GetReceipt,
    ListCheckpoints,
    GetAuditKey,
    ProveInclusion,
    ProveConsistency,
    Metadata,
    Describe,
    ShowError,
    About,
}

impl Operation {
    /// Every operation, in the order of the documentation.
    pub(crate) const ALL: [Self; 36] = [
        Self::SubmitCall,
        Self::GetCall,
        Self::FollowCall,
        Self::GetTimeline,
        Self::ListTools,
        Self::ReadInbox,
        Self::ListApprovals,
        Self::GetApproval,
        Self::DecideApproval,
        Self::EditApproval,
        Self::WithdrawApproval,
        Self::DecideBulk,
        Self::ListDesk,
        Self::ArrangeAtDesk,
        Self::GetDeskEntry,
        Self::ActOnDeskEntry,
        Self::FollowDesk,
        Self::ListRecords,
        Self::GetRecord,
        Self::ResolveRecord,
        Self::RearmRecord,
        Self::ShowStatus,
        Self::Reload,
        Self::ShowCredentials,
        Self::ShowReport,
        Self::ListDecisions,
        Self::GetDecision,
        Self::GetReceipt,
        Self::ListCheckpoints,
        Self::GetAuditKey,
        Self::ProveInclusion,
        Self::ProveConsistency,
        Self::Metadata,
        Self::Describe,
        Self::ShowError,
        Self::About,
    ];

    /// Its method.
    pub(crate) const fn method(self) -> Method {
        match self {
            Self::SubmitCall
            | Self::DecideApproval
            | Self::EditApproval
            | Self::WithdrawApproval
            | Self::DecideBulk
            | Self::ArrangeAtDesk
            | Self::ActOnDeskEntry
            | Self::ResolveRecord
            | Self::RearmRecord
            | Self::Reload => Method::POST,
            Self::GetCall
            | Self::FollowCall
            | Self::GetTimeline
            | Self::ListTools
            | Self::ReadInbox
            | Self::ListApprovals
            | Self::GetApproval
            | Self::ListDesk
            | Self::GetDeskEntry
            | Self::FollowDesk
            | Self::ListRecords
            | Self::GetRecord
            | Self::ShowStatus
            | Self::ShowCredentials
            | Self::ShowReport
            | Self::ListDecisions
            | Self::GetDecision
            | Self::GetReceipt
            | Self::ListCheckpoints
            | Self::GetAuditKey
            | Self::ProveInclusion
            | Self::ProveConsistency
            | Self::Metadata
            | Self::Describe
            | Self::ShowError
            | Self::About => Method::GET,
        }
    }

    /// Its path, with `{id}` where an identifier stands.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::SubmitCall => "/v1/calls",
            Self::GetCall => "/v1/calls/{id}",
            Self::FollowCall => "/v1/calls/{id}/events",
            Self::GetTimeline => "/v1/calls/{id}/timeline",
            Self::ListTools => "/v1/tools",
            Self::ReadInbox => "/v1/inbox",
            Self::ListApprovals => "/v1/approvals",
            Self::GetApproval => "/v1/approvals/{id}",
            Self::DecideApproval => "/v1/approvals/{id}/decisions",
            Self::EditApproval => "/v1/approvals/{id}/edits",
            Self::WithdrawApproval => "/v1/approvals/{id}/withdrawal",
            Self::DecideBulk => "/v1/approvals/decisions",
            Self::ListDesk | Self::ArrangeAtDesk => "/v1/desk",
            Self::GetDeskEntry => "/v1/desk/{id}",
            Self::ActOnDeskEntry => "/v1/desk/{id}/acts",
            Self::FollowDesk => "/v1/desk/events",
            Self::ListRecords => "/v1/ledger",
            Self::GetRecord => "/v1/ledger/{id}",
            Self::ResolveRecord => "/v1/ledger/{id}/resolution",
            Self::RearmRecord => "/v1/ledger/{id}/rearm",
            Self::ShowStatus => "/v1/status",
            Self::Reload => "/v1/reload",
            Self::ShowCredentials => "/v1/credentials",
            Self::ShowReport => "/v1/report",
            Self::ListDecisions => "/v1/decisions",
            Self::GetDecision => "/v1/decisions/{id}",
            Self::ShowError => "/errors/{id}",
            Self::GetReceipt => "/v1/calls/{id}/receipt",
            Self::ListCheckpoints => "/v1/audit/checkpoints",
            Self::GetAuditKey => "/v1/audit/key",
            Self::ProveInclusion => "/v1/audit/inclusion",
            Self::ProveConsistency => "/v1/audit/consistency",
            Self::Metadata => METADATA_PATH,
            Self::Describe => "/openapi.json",
            Self::About => "/",
        }
    }

    /// Whether anybody may ask it. Everything else is verified before it is looked at.
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Metadata | Self::Describe | Self::ShowError | Self::About)
    }
}
