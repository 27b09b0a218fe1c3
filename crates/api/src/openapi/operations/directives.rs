//! The operations on grants, break-glass records, freezes, delegations and revocations.
//!
//! Owns their rows: texts, parameters, answers and examples; each example is checked against its schema by the tests.

use serde_json::{Value, json};

use placet_approvals::views::{
    ApprovalEvent, DirectiveAct, DirectiveRequest, DirectiveView, EntriesPage,
};
use placet_types::{directive::DirectiveKind, ids::DirectiveId};

use super::{DIGEST, one_of, one_of_or};
use crate::{
    openapi::table::{Route, get, post},
    routes::{
        approvals,
        directives::{self, ORDERS, STATES},
    },
};

pub(in crate::openapi) fn routes() -> Vec<Route> {
    vec![
        get("/v1/directives", directives::list, "listDirectives", "directives", "Lists grants, break-glass records, freezes, delegations and revocations")
            .paged::<DirectiveId>()
            .query("kind", "Only entries of this kind", one_of(DirectiveKind::ALL))
            .query("state", "Only entries that can still change, or all", one_of_or("all", STATES.map(|(name, _)| name)))
            .query("order", "Which entries come first", one_of_or("oldest", ORDERS.map(|(name, _)| name)))
            .ok::<EntriesPage>("A page of entries"),
        post("/v1/directives", directives::arrange, "createDirective", "directives", "Creates a standing grant, a break-glass record, a freeze, a delegation or a revocation")
            .about(
                "A grant lasts at most 30 days, a break-glass record 8 hours, a freeze or a delegation 31 days, a revocation between 1 and \
                 31 days. A grant or a break-glass record takes effect once enough others have agreed, with `/v1/directives/{id}/acts`.",
            )
            .body_with::<DirectiveRequest>(arrangements())
            .ok::<DirectiveView>("The entry"),
        get("/v1/directives/{id}", directives::get, "getDirective", "directives", "Shows one entry of the approval service")
            .ok::<DirectiveView>("The entry, with the digest that a decision on it names"),
        post("/v1/directives/{id}/acts", directives::act, "actOnDirective", "directives", "Decides on an entry, ends it, or reviews it afterwards")
            .body_with::<DirectiveAct>(acts())
            .ok::<DirectiveView>("The updated entry"),
        get("/v1/approvals/events", approvals::follow, "followApprovals", "directives", "Follows approvals, grants and freezes that the caller may see")
            .defines::<ApprovalEvent>()
            .events(
                "Server-sent events, starting with the response headers: `approvals`, whose data is an `ApprovalEvent`, and `behind` when \
                 some were missed; reload everything then. Comments are sent while nothing happens. The stream ends at a time limit; \
                 reconnect and reload the inbox. If the caller's token becomes invalid, the last event is `ended`, with the problem \
                 document as data.",
            ),
    ]
}

fn arrangements() -> [(&'static str, &'static str, Value); 5] {
    [
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
    ]
}

fn acts() -> [(&'static str, &'static str, Value); 3] {
    [
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
    ]
}
