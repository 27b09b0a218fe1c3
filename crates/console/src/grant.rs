//! Proposing a standing grant from a call that waits.
//!
//! Owns the form: for which arguments, how long, how often. Whether it may be is the engine's.

use std::collections::BTreeMap;

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use maud::{Markup, html};
use placet_approvals::views::{ApprovalDetail, Arrangement, DirectiveRequest};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    directive::{
        GRANT_USES_MAX,
        pattern::{Anything, ArgumentPattern, ArgumentRule},
    },
    ids::ApprovalId,
    json,
    text::visible,
};
use serde_json::Value;

use super::{
    ConsoleState, decide,
    form::{Fields, Form},
    page::{Frame, token},
    session::Visitor,
    tree,
    visitor::{PageId, Trouble, invalid},
};

/// The kinds of rules, with their words. A masked value may only be anything.
const RULES: [(&str, &str); 4] = [
    ("equals", "exactly as it is now"),
    ("at_most", "a number up to"),
    ("starts_with", "a text that begins with"),
    ("any", "anything"),
];

/// `GET /approvals/{id}/grant`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    PageId(id): PageId<ApprovalId>,
) -> Result<Response, Trouble> {
    let detail = app.api.engine.approvals().approval(&visitor.caller, &id).await?;
    Ok(view(&detail, &visitor, app.console.now()))
}

/// The page for this call.
pub(super) fn view(detail: &ApprovalDetail, visitor: &Visitor, now: Timestamp) -> Response {
    let title = "Propose a standing grant";
    let content = html! {
        p.crumb { a href="/" { "Inbox" } " › " a href={ "/approvals/" (detail.approval.approval_id) } { (detail.approval.capability_id) } }
        h1 { (title) }
        p.lede {
            "Calls like this one, by the same agent for the same person, then run without being asked about: for a time and a number of "
            "uses. The same people have to agree to the grant as to the call. By proposing it for exactly these arguments you agree to it; if it covers more, others have to. It can be ended at any time."
        }
        @if detail.standing.grantable { (form(detail, visitor)) }
        @else { p.notice.bad { "No standing grant can be proposed from this call: people decide on each single one, or you are not among those who may." } }
    };
    Frame { title, place: "/grants", now }.page(visitor, &content)
}

fn form(detail: &ApprovalDetail, visitor: &Visitor) -> Markup {
    let (preview, masked) = (detail.preview(), detail.preview_masked());
    let holds_masked =
        |name: &str| masked.iter().any(|place| json::is_within(place, &json::token(name)));
    let fields = preview.as_object().map(|fields| fields.iter()).into_iter().flatten();
    html! {
        form.card method="post" action={ "/approvals/" (detail.approval.approval_id) "/grant" } {
            (token(visitor))
            input type="hidden" name="digest" value=(detail.approval.digest);
            h2 { "Which arguments it covers" }
            p #value-hint.hint { "An argument that no rule speaks of is never covered. A beginning counts exactly as you write it, spaces included." }
            @for (at, (name, value)) in fields.enumerate() {
                fieldset {
                    legend { code { (visible(name)) } }
                    input type="hidden" name="argument" value=(name);
                    div.small { "Now: " @if masked.contains(&json::token(name)) { "a masked value" } @else { (tree::value(value)) } }
                    div.fields {
                        div.field {
                            label for={ "rule-" (at) } { "May be" }
                            select #{ "rule-" (at) } name={ "rule." (name) } {
                                @for (rule, words) in RULES { @if rule == "any" || !holds_masked(name) { option value=(rule) { (words) } } }
                            }
                        }
                        div.field {
                            label for={ "value-" (at) } { "Up to, or beginning with" }
                            input #{ "value-" (at) } name={ "value." (name) } maxlength="1024" aria-describedby="value-hint";
                        }
                    }
                }
            }
            (lasts("7", "days"))
            div.field {
                label for="uses" { "Max uses" }
                input #uses type="number" name="uses" min="1" max=(GRANT_USES_MAX) value="10" required;
            }
            (reason_field())
            div.row {
                button.yes type="submit" { "Propose the grant" }
                a.button href={ "/approvals/" (detail.approval.approval_id) } { "Back to the call" }
            }
        }
    }
}

/// For how long.
pub(super) fn lasts(count: &str, unit: &str) -> Markup {
    html! {
        div.fields {
            div.field {
                label for="lasts" { "For how long" }
                input #lasts type="number" name="lasts" min="1" max="10000" value=(count) required;
            }
            div.field {
                label for="unit" { "Unit" }
                select #unit name="unit" {
                    @for name in ["minutes", "hours", "days"] { option value=(name) selected[name == unit] { (name) } }
                }
            }
        }
    }
}

/// Why.
pub(super) fn reason_field() -> Markup {
    html! {
        div.field {
            label for="reason" { "Why" }
            textarea #reason name="reason" required maxlength="2000" {}
        }
    }
}

/// `POST /approvals/{id}/grant`.
pub(super) async fn propose(
    State(app): State<ConsoleState>,
    PageId(id): PageId<ApprovalId>,
    form: Form,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let digest: Digest = fields.needed("digest", "the digest of what was shown")?;
    let detail = app.api.engine.approvals().approval(&visitor.caller, &id).await?;
    let request = DirectiveRequest {
        arrange: Arrangement::Grant {
            approval_id: id.clone(),
            pattern: Some(pattern(&fields, detail.preview())?),
            uses_max: fields.needed("uses", "how often")?,
            digest,
        },
        reason: fields.reason()?,
        starts_at: None,
        lasts_ms: fields.duration_ms()?,
    };
    let written = request.reason.clone();
    match app.api.engine.approvals().arrange(&visitor.caller, request).await {
        Ok(entry) => Ok(Redirect::to(&format!("/entries/{}", entry.directive_id)).into_response()),
        Err(refusal) => {
            decide::undecided(&app, &visitor, &id, digest, &written, refusal.into()).await
        }
    }
}

/// The rules as chosen.
fn pattern(fields: &Fields, preview: &Value) -> Result<ArgumentPattern, Trouble> {
    let mut rules = BTreeMap::new();
    for name in fields.all("argument") {
        let Some(now) = preview.get(name) else { continue };
        // Not trimmed: the prefix `ann ` would become `ann`, which covers more.
        let value = fields.verbatim(&format!("value.{name}"));
        let needed = || value.ok_or_else(|| missing(name));
        let rule = match fields.get(&format!("rule.{name}")) {
            Some("at_most") => {
                let most = needed()?
                    .trim()
                    .parse()
                    .map_err(|_malformed: std::num::ParseIntError| missing(name))?;
                ArgumentRule::AtMost(most)
            }
            Some("starts_with") => ArgumentRule::StartsWith(needed()?.to_owned()),
            Some("any") => ArgumentRule::Any(Anything::Value),
            Some(_) | None => ArgumentRule::Equals(now.clone()),
        };
        rules.insert(json::token(name), rule);
    }
    Ok(ArgumentPattern(rules))
}

fn missing(name: &str) -> Trouble {
    let message = format!("the rule for `{name}` needs a value: a whole number, or a text");
    invalid(&message)
}
