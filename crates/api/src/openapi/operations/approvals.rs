//! The operations on approvals.
//!
//! Owns their rows: texts, parameters and answers.

use serde_json::{Value, json};

use placet_approvals::views::{
    ApprovalDetail, ApprovalView, BulkDecisionRequest, BulkDecisionView, DecisionRequest,
    EditRequest, InboxView, WithdrawalRequest,
};
use placet_types::{ids::ApprovalId, mode::ApprovalMode};

use super::{one_of, one_of_or};
use crate::{
    documents::ApprovalList,
    openapi::{
        schemas::identifier,
        table::{Route, get, limit, post},
    },
    routes::approvals::{self, OFFSET_MAX, ORDERS, SEARCH_BYTES_MAX, WHOSE, states},
};

/// Those of all approvals, or of several at once.
pub(in crate::openapi) fn of_many() -> Vec<Route> {
    vec![
        get("/v1/inbox", approvals::inbox, "readInbox", "approvals", "Lists approvals, sorted and filtered for the caller")
            .about(
                "For each approval: whether the caller can decide it, and how many members of each group have agreed. Includes the queue \
                 metrics of the tenant. Approvals that have ended are sorted by age and not counted. A page of them ends when it is full, or \
                 early, with `incomplete`, after many were read; continue with `next_after`.",
            )
            .query("whose", "`all` the caller may see; `mine`: those the caller can decide; `asked`: those of calls by or for the caller or its agents", one_of_or("all", WHOSE.map(|(name, _)| name)))
            .query("state", "Only approvals in this state", one_of_or("pending", states()))
            .query("mode", "Only approvals of calls with this mode", one_of(ApprovalMode::ALL))
            .query("group", "Only approvals that ask this group", group())
            .query("search", "Only approvals whose id, operation, agent or user contains this text", json!({ "type": "string", "maxLength": SEARCH_BYTES_MAX }))
            .query("order", "The sort order; ties are sorted oldest first. Ended approvals: newest first, unless `oldest`", one_of_or("urgent", ORDERS.map(|(name, _)| name)))
            .query("offset", "For pending and approved approvals: how many to skip", json!({ "type": "integer", "minimum": 0, "maximum": OFFSET_MAX, "default": 0 }))
            .query("after", "For ended approvals: the `next_after` of the previous page", identifier::<ApprovalId>())
            .query("limit", "The maximum number of approvals", limit())
            .ok::<InboxView>("A page of the inbox"),
        get("/v1/approvals", approvals::list, "listApprovals", "approvals", "Lists approvals the caller may see")
            .paged::<ApprovalId>()
            .query("state", "Only approvals in this state", one_of(states()))
            .ok::<ApprovalList>("A page of approvals"),
        post("/v1/approvals/decisions", approvals::decide_together, "decideBulk", "approvals", "Decides up to 100 approvals of the same kind at once")
            .about(
                "The approvals must be of one operation, held by the same policies, with arguments of the same shape; the first one sets \
                 the standard. Each is decided and recorded separately. The response says which were decided, and why others were not.",
            )
            .body::<BulkDecisionRequest>()
            .ok::<BulkDecisionView>("The approvals that were decided, and those that were not"),
    ]
}

/// Those of one approval.
pub(in crate::openapi) fn routes() -> Vec<Route> {
    vec![
        get("/v1/approvals/{id}", approvals::get, "getApproval", "approvals", "Shows an approval and the call it holds")
            .ok::<ApprovalDetail>("The approval and the frozen proposal"),
        post("/v1/approvals/{id}/decisions", approvals::decide, "decideApproval", "approvals", "Approves or denies a held call")
            .body::<DecisionRequest>()
            .ok::<ApprovalView>("The approval after the decision"),
        post("/v1/approvals/{id}/edits", approvals::edit, "editApproval", "approvals", "Changes the arguments of a held call")
            .about(
                "The new arguments are validated and decided again, and the other approvers decide on them. Narrowing the arguments counts \
                  as the editor's approval; an editor who changes them in any other way cannot decide. A masked field that is sent back \
                  unchanged keeps its value.",
            )
            .body::<EditRequest>()
            .ok::<ApprovalView>("The approval after the edit, with its new digest"),
        post("/v1/approvals/{id}/withdrawal", approvals::withdraw, "withdrawApproval", "approvals", "Withdraws a held call, so that it does not run")
            .about(
                "For the caller that made the call, and for those whom the policies permit: by default, the agent's owner and operators. \
                 A call that has been sent cannot be withdrawn. A withdrawn call ends with `APPROVAL_WITHDRAWN`.",
            )
            .body::<WithdrawalRequest>()
            .ok::<ApprovalView>("The withdrawn approval"),
    ]
}

/// The schema of `group`, or `tenant/group`.
fn group() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 129, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$" })
}
