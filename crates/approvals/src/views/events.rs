//! What happens in the approval service, and which freezes are in force, as the listeners show it.
//!
//! Owns the forms.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_types::{
    approval::ApproverGroup,
    clock::Timestamp,
    ids::{AdapterName, ApprovalId, CapabilityId, DirectiveId, ToolCallId},
};

/// A freeze that is in force now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FreezeView {
    /// Its entry, for those who may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive_id: Option<DirectiveId>,
    /// Its name, for those who may see its entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it ends, unless it is lifted before.
    pub until: Timestamp,
    /// Whether it is a lockdown: no call runs until it is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lockdown: bool,
    /// The adapters whose calls it holds; empty: all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub adapters: BTreeSet<AdapterName>,
    /// Whether it came into force after people were asked about the call: what they were asked for does not take it into account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_asking: bool,
}

/// Something happened in the approval service. Says what to look at again, never what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalEvent {
    /// What.
    pub kind: ApprovalEventKind,
    /// To which approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// Of which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<ToolCallId>,
    /// Of which operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// To which entry of the approval service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive_id: Option<DirectiveId>,
    /// Of `settled`, how the call ended: `succeeded`, `failed` or `unknown`; `sent` where its record is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The groups it concerns.
    pub groups: BTreeSet<ApproverGroup>,
    /// When.
    pub at: Timestamp,
}

/// What happened in the approval service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalEventKind {
    /// People are asked.
    Asked,
    /// Somebody decided, and more have to.
    Voted,
    /// Somebody changed the arguments.
    Edited,
    /// Another group is asked.
    Escalated,
    /// Enough people agreed.
    Approved,
    /// People said no.
    Denied,
    /// Nobody agreed in time.
    Expired,
    /// The call was withdrawn.
    Withdrawn,
    /// What was approved is no longer what would run.
    Void,
    /// The call was sent.
    Dispatched,
    /// The call ended.
    Settled,
    /// An entry of the approval service changed.
    Entry,
}
