//! The operations of the approval service in the document.
//!
//! Owns their texts, parameters, answers and examples; each example is checked against its schema by the tests.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};
use utoipa::openapi::{
    ContentBuilder, Required,
    example::ExampleBuilder,
    path::OperationBuilder,
    request_body::{RequestBody, RequestBodyBuilder},
};

use placet_approvals::views::{
    ApprovalEvent, ApprovalView, BulkDecisionRequest, BulkDecisionView, DirectiveAct,
    DirectiveRequest, DirectiveView, EditRequest, EntriesPage, InboxView, WithdrawalRequest,
};
use placet_types::{
    directive::DirectiveKind,
    ids::{ApprovalId, DirectiveId},
    mode::ApprovalMode,
};

use super::{events, identified, identifier, limit, ok, paged, query, reference, start};
use crate::{
    answer::JSON,
    documents::Timeline,
    routes::{
        approvals::{OFFSET_MAX, ORDERS, SEARCH_BYTES_MAX, WHOSE, states},
        directives::{ORDERS as DIRECTIVE_ORDERS, STATES as DIRECTIVE_STATES},
    },
};

/// A digest as an example names it.
const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

pub(in crate::openapi) fn get_timeline(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getTimeline", "calls", "Shows the timeline of a call, from plan to effect"))
        .description(Some(
            "For the caller, those who may see the call's approval, and auditors. Each step names its position in the log and the \
             hash of its entry, so that it can be proved with `/v1/audit/inclusion`. If `incomplete` is true, some steps are missing: \
             their entries were archived, and the archive is not available.",
        ))
        .response("200", ok::<Timeline>(docs, "The steps, in order"))
}

pub(in crate::openapi) fn read_inbox(docs: &mut SchemaGenerator) -> OperationBuilder {
    let whose = json!({ "type": "string", "enum": WHOSE.map(|(name, _)| name), "default": "all" });
    let order =
        json!({ "type": "string", "enum": ORDERS.map(|(name, _)| name), "default": "urgent" });
    let state = json!({ "type": "string", "enum": states(), "default": "pending" });
    let mode = json!({ "type": "string", "enum": ApprovalMode::ALL.map(ApprovalMode::as_str) });
    let search = json!({ "type": "string", "maxLength": SEARCH_BYTES_MAX });
    // `group`, or `tenant/group`.
    let group = json!({ "type": "string", "minLength": 1, "maxLength": 129, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$" });
    let offset = json!({ "type": "integer", "minimum": 0, "maximum": OFFSET_MAX, "default": 0 });
    start("readInbox", "approvals", "Lists approvals, sorted and filtered for the caller")
        .description(Some(
            "For each approval: whether the caller can decide it, and how many members of each group have agreed. Includes the queue \
             metrics of the tenant. Approvals that have ended are sorted by age and not counted. A page of them ends when it is full, or \
             early, with `incomplete`, after many were read; continue with `next_after`.",
        ))
        .parameter(query("whose", "`all` the caller may see; `mine`: those the caller can decide; `asked`: those of calls by or for the caller or its agents", whose))
        .parameter(query("state", "Only approvals in this state", state))
        .parameter(query("mode", "Only approvals of calls with this mode", mode))
        .parameter(query("group", "Only approvals that ask this group", group))
        .parameter(query("search", "Only approvals whose id, operation, agent or user contains this text", search))
        .parameter(query("order", "The sort order; ties are sorted oldest first. Ended approvals: newest first, unless `oldest`", order))
        .parameter(query("offset", "For pending and approved approvals: how many to skip", offset))
        .parameter(query("after", "For ended approvals: the `next_after` of the previous page", identifier::<ApprovalId>()))
        .parameter(query("limit", "The maximum number of approvals", limit()))
        .response("200", ok::<InboxView>(docs, "A page of the inbox"))
}

pub(in crate::openapi) fn edit_approval(docs: &mut SchemaGenerator) -> OperationBuilder {
    let example = json!({
        "args": { "path": "reports/may.txt" },
        "reason": "only the file of May",
        "digest": DIGEST,
    });
    identified(start("editApproval", "approvals", "Changes the arguments of a held call"))
        .description(Some(
            "The new arguments are validated and decided again, and the other approvers decide on them. Narrowing the arguments counts \
              as the editor's approval; an editor who changes them in any other way cannot decide. A masked field that is sent back \
              unchanged keeps its value.",
        ))
        .request_body(Some(body::<EditRequest>(docs, &[("narrower", "Fewer files", example)])))
        .response("200", ok::<ApprovalView>(docs, "The approval after the edit, with its new digest"))
}

pub(in crate::openapi) fn withdraw_approval(docs: &mut SchemaGenerator) -> OperationBuilder {
    let example = json!({ "reason": "the order was cancelled" });
    identified(start("withdrawApproval", "approvals", "Withdraws a held call, so that it does not run"))
        .description(Some(
            "For the caller that made the call, and for those whom the policies permit: by default, the agent's owner and operators. \
             A call that has been sent cannot be withdrawn. A withdrawn call ends with `APPROVAL_WITHDRAWN`.",
        ))
        .request_body(Some(body::<WithdrawalRequest>(docs, &[("cancelled", "The call is no longer wanted", example)])))
        .response("200", ok::<ApprovalView>(docs, "The withdrawn approval"))
}

pub(in crate::openapi) fn decide_together(docs: &mut SchemaGenerator) -> OperationBuilder {
    let example = json!({
        "decision": "approve",
        "reason": "the files of the closed project",
        "approvals": [
            { "approval_id": "apr_01JD0000000000000000000001", "digest": DIGEST },
            { "approval_id": "apr_01JD0000000000000000000002", "digest": DIGEST },
        ],
    });
    start("decideBulk", "approvals", "Decides up to 100 approvals of the same kind at once")
        .description(Some(
            "The approvals must be of one operation, held by the same policies, with arguments of the same shape; the first one sets \
             the standard. Each is decided and recorded separately. The response says which were decided, and why others were not.",
        ))
        .request_body(Some(body::<BulkDecisionRequest>(docs, &[("approve", "Two at once", example)])))
        .response("200", ok::<BulkDecisionView>(docs, "The approvals that were decided, and those that were not"))
}

pub(in crate::openapi) fn list(docs: &mut SchemaGenerator) -> OperationBuilder {
    let kind = json!({ "type": "string", "enum": DirectiveKind::ALL.map(DirectiveKind::as_str) });
    let state = json!({ "type": "string", "enum": DIRECTIVE_STATES.map(|(name, _)| name), "default": "all" });
    let order = json!({ "type": "string", "enum": DIRECTIVE_ORDERS.map(|(name, _)| name), "default": "oldest" });
    paged::<DirectiveId>(start(
        "listDirectives",
        "directives",
        "Lists grants, break-glass records, freezes, delegations and revocations",
    ))
    .parameter(query("kind", "Only entries of this kind", kind))
    .parameter(query("state", "Only entries that can still change, or all", state))
    .parameter(query("order", "Which entries come first", order))
    .response("200", ok::<EntriesPage>(docs, "A page of entries"))
}

pub(in crate::openapi) fn arrange(docs: &mut SchemaGenerator) -> OperationBuilder {
    let examples = [
        (
            "grant",
            "Calls like an approval's, ten times within a week",
            json!({
                "arrange": {
                    "kind": "grant", "approval_id": "apr_01JD0000000000000000000001", "uses_max": 10, "digest": DIGEST,
                    "pattern": { "/path": { "starts_with": "reports/" } },
                },
                "reason": "the monthly clean-up", "lasts_ms": 604_800_000,
            }),
        ),
        (
            "break_glass",
            "A break-glass record, for somebody else to confirm",
            json!({
                "arrange": { "kind": "break_glass", "ticket": "INC-4711" },
                "reason": "the store is full and orders fail", "lasts_ms": 3_600_000,
            }),
        ),
        (
            "freeze",
            "A freeze that begins later",
            json!({
                "arrange": { "kind": "freeze", "name": "Year's end" },
                "reason": "the books are closed", "starts_at": 1_798_675_200_000_i64, "lasts_ms": 172_800_000,
            }),
        ),
        (
            "delegation",
            "A colleague decides for a day",
            json!({
                "arrange": { "kind": "delegation", "to": "cleo", "groups": ["approvers"] },
                "reason": "I am on a plane", "lasts_ms": 86_400_000,
            }),
        ),
        (
            "revocation",
            "Revokes all tokens that a person has had until now",
            json!({
                "arrange": { "kind": "revocation", "subject": "alice" },
                "reason": "her laptop is lost", "lasts_ms": 86_400_000,
            }),
        ),
    ];
    start("createDirective", "directives", "Creates a standing grant, a break-glass record, a freeze, a delegation or a revocation")
        .description(Some(
            "A grant lasts at most 30 days, a break-glass record 8 hours, a freeze or a delegation 31 days, a revocation between 1 and \
             31 days. A grant or a break-glass record takes effect once enough others have agreed, with `/v1/directives/{id}/acts`.",
        ))
        .request_body(Some(body::<DirectiveRequest>(docs, &examples)))
        .response("200", ok::<DirectiveView>(docs, "The entry"))
}

pub(in crate::openapi) fn get_entry(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getDirective", "directives", "Shows one entry of the approval service"))
        .response(
            "200",
            ok::<DirectiveView>(docs, "The entry, with the digest that a decision on it names"),
        )
}

pub(in crate::openapi) fn act(docs: &mut SchemaGenerator) -> OperationBuilder {
    let examples = [
        (
            "decide",
            "Agree to a grant, or confirm a break-glass record",
            json!({ "act": "decide", "decision": "approve", "reason": "agreed with the team", "digest": DIGEST }),
        ),
        ("end", "End it early", json!({ "act": "end", "reason": "the work is done" })),
        (
            "review",
            "Review a break-glass record afterwards",
            json!({ "act": "review", "note": "three calls, all of them needed" }),
        ),
    ];
    identified(start(
        "actOnDirective",
        "directives",
        "Decides on an entry, ends it, or reviews it afterwards",
    ))
    .request_body(Some(body::<DirectiveAct>(docs, &examples)))
    .response("200", ok::<DirectiveView>(docs, "The updated entry"))
}

pub(in crate::openapi) fn follow(docs: &mut SchemaGenerator) -> OperationBuilder {
    // The document defines it, although no response body is one.
    drop(docs.subschema_for::<ApprovalEvent>());
    let stream = events(
        "Server-sent events, starting with the response headers: `approvals`, whose data is an `ApprovalEvent`, and `behind` when \
         some were missed; reload everything then. Comments are sent while nothing happens. The stream ends at a time limit; \
         reconnect and reload the inbox. If the caller's token becomes invalid, the last event is `ended`, with the problem \
         document as data.",
    );
    start(
        "followApprovals",
        "directives",
        "Follows approvals, grants and freezes that the caller may see",
    )
    .response("200", stream)
}

/// A body with its examples: name, in words, and the document.
fn body<T: JsonSchema>(
    docs: &mut SchemaGenerator,
    examples: &[(&str, &str, Value)],
) -> RequestBody {
    let examples = examples.iter().map(|(name, about, value)| {
        (*name, ExampleBuilder::new().summary(*about).value(Some(value.clone())).build())
    });
    let content = ContentBuilder::new().schema(Some(reference::<T>(docs)));
    let content = content.examples_from_iter(examples).build();
    RequestBodyBuilder::new().content(JSON, content).required(Some(Required::True)).build()
}
