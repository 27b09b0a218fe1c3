//! How the caller of a held call, and its user, proved who they are.
//!
//! Owns these lines of the page. Shows no token: none is in what it is given.

use maud::{Markup, html};
use placet_types::{caller::CallerIdentity, text::visible};

use crate::words::{self, Tone};

/// The rows of the list of facts.
pub(super) fn facts(caller: &CallerIdentity) -> Markup {
    html! {
        dt { "Identity" }
        dd #identity {
            code { (visible(&caller.agent_urn)) } " proved by " code { (caller.auth_type.as_str()) } " "
            @if !caller.attested { (words::mark(Tone::Warn, "not attested")) " " }
            @if caller.lifecycle != "active" { (words::mark(Tone::Warn, &caller.lifecycle)) " " }
            @if let Some(id) = &caller.workload_identity { br; "workload " code { (visible(id)) } " " }
            @if let Some(role) = &caller.role { br; "role " code { (visible(role)) } }
        }
        @if let Some(delegation) = &caller.delegation {
            dt { "Delegation" }
            dd #delegation {
                "of " code { (visible(&delegation.subject)) } " proved by " code { (delegation.auth_type.as_str()) }
                @if delegation.scopes.is_empty() { ", without scopes" } @else {
                    ", scopes " @for (at, scope) in delegation.scopes.iter().enumerate() { @if at > 0 { ", " } code { (visible(scope)) } }
                }
            }
        }
    }
}
