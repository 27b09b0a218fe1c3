//! The operations on grants, break-glass records, freezes, delegations and revocations.
//!
//! Owns their rows: texts, parameters and answers.

use placet_approvals::views::{
    ApprovalEvent, DirectiveAct, DirectiveRequest, DirectiveView, EntriesPage,
};
use placet_types::{directive::DirectiveKind, ids::DirectiveId};

use super::{one_of, one_of_or};
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
            .body::<DirectiveRequest>()
            .ok::<DirectiveView>("The entry"),
        get("/v1/directives/{id}", directives::get, "getDirective", "directives", "Shows one entry of the approval service")
            .ok::<DirectiveView>("The entry, with the digest that a decision on it names"),
        post("/v1/directives/{id}/acts", directives::act, "actOnDirective", "directives", "Decides on an entry, ends it, or reviews it afterwards")
            .body::<DirectiveAct>()
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
