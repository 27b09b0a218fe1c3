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
    identified(start("getTimeline", "calls", "The way of a call from plan to effect, from the audit chain"))
        .description(Some(
            "For the caller itself, those who may see its approval, and auditors. Each step names its place in the log and the \
             hash of its entry, so that it can be proved with `/v1/audit/inclusion`. `incomplete` says that some steps are missing: \
             their entries were archived, and the archive is not at hand.",
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
    start("readInbox", "approvals", "A page of the approvals that wait, sorted and filtered for the caller")
        .description(Some(
            "Says of each line whether the caller can decide it and how far each group is, and of the approval service as a whole how much \
             waits, for how long, and how many break-glass records wait for their review. What has ended is listed by its age, \
             without a total: a page of it ends when it is full, or `incomplete` after so many were looked at, and `next_after` says \
             where to go on.",
        ))
        .parameter(query("whose", "All that the caller may see, those the caller can decide, or those the caller is asked about", whose))
        .parameter(query("state", "Only those in this state", state))
        .parameter(query("mode", "Only those of this mode", mode))
        .parameter(query("group", "Only those that ask this group", group))
        .parameter(query("search", "Only those whose id, operation, agent or user contains this text", search))
        .parameter(query("order", "In which order; within it the oldest come first. What has ended: newest (also by default) or oldest", order))
        .parameter(query("offset", "Of what waits or is approved: from this place on", offset))
        .parameter(query("after", "Of what has ended: the `next_after` of the page before", identifier::<ApprovalId>()))
        .parameter(query("limit", "How many at most", limit()))
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
            "The arguments are validated and decided again, and the others decide on what would run then. Narrowing them counts as \
              the editor's approval; an editor who changes them otherwise does not decide. A field that was shown masked and is sent as it was shown keeps its value.",
        ))
        .request_body(Some(body::<EditRequest>(docs, &[("narrower", "Fewer files", example)])))
        .response("200", ok::<ApprovalView>(docs, "The approval after the edit, with its new digest"))
}

pub(in crate::openapi) fn withdraw_approval(docs: &mut SchemaGenerator) -> OperationBuilder {
    let example = json!({ "reason": "the order was cancelled" });
    identified(start("withdrawApproval", "approvals", "Withdraws a held call, so that it does not run"))
        .description(Some(
            "For the caller that the call waits for, and for whom the policies let: as shipped, the agent's owner and operators. \
             A call that was sent cannot be withdrawn. The call ends with `APPROVAL_WITHDRAWN`.",
        ))
        .request_body(Some(body::<WithdrawalRequest>(docs, &[("cancelled", "It is not wanted any more", example)])))
        .response("200", ok::<ApprovalView>(docs, "The approval, withdrawn"))
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
    start("decideBulk", "approvals", "Takes one decision on up to 100 approvals of the same kind")
        .description(Some(
            "Of the same kind are those of one operation that the same policies hold, with arguments of the same shape; the first \
             one sets the measure. Each is decided and recorded by itself: the answer says which were, and why others were not.",
        ))
        .request_body(Some(body::<BulkDecisionRequest>(docs, &[("approve", "Two at once", example)])))
        .response("200", ok::<BulkDecisionView>(docs, "What came of it"))
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
    .parameter(query("kind", "Only those of this kind", kind))
    .parameter(query("state", "Only those of which something may still become, or all", state))
    .parameter(query("order", "Which come first", order))
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
            "A broken glass, for somebody else to confirm",
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
            "No token counts any more that somebody had until now",
            json!({
                "arrange": { "kind": "revocation", "subject": "alice" },
                "reason": "her laptop is lost", "lasts_ms": 86_400_000,
            }),
        ),
    ];
    start("createDirective", "directives", "Arranges a standing grant, a break-glass record, a freeze, a delegation or a revocation")
        .description(Some(
            "A grant lasts at most 30 days, a break-glass record 8 hours, a freeze and a delegation 31 days, a revocation between a day \
             and 31. A grant and a broken glass count once enough others have agreed, with `/v1/directives/{id}/acts`.",
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
            "Agree to a grant, or confirm a broken glass",
            json!({ "act": "decide", "decision": "approve", "reason": "agreed with the team", "digest": DIGEST }),
        ),
        ("end", "End it before its time", json!({ "act": "end", "reason": "the work is done" })),
        (
            "review",
            "Look at a broken glass afterwards",
            json!({ "act": "review", "note": "three calls, all of them needed" }),
        ),
    ];
    identified(start(
        "actOnDirective",
        "directives",
        "Decides on an entry, ends it, or reviews it afterwards",
    ))
    .request_body(Some(body::<DirectiveAct>(docs, &examples)))
    .response("200", ok::<DirectiveView>(docs, "The entry after it"))
}

pub(in crate::openapi) fn follow(docs: &mut SchemaGenerator) -> OperationBuilder {
    // The document defines it, although no response body is one.
    drop(docs.subschema_for::<ApprovalEvent>());
    let stream = events(
        "Server-sent events from the moment of the answer's head on: `approvals`, whose data are an `ApprovalEvent`, `behind` when \
         some were missed and everything has to be looked at again. A comment comes while nothing happens. The stream ends \
         after a while; connect again and look at the inbox. `ended` is the last event of a token that counts no more: its \
         data are the problem document.",
    );
    start(
        "followApprovals",
        "directives",
        "Follows approvals, grants and freezes, as far as the caller may see it",
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
