//! Other arguments: the form and its handling.
//!
//! Owns the reading of the JSON that an approver writes. Invariant: what cannot be read strictly changes nothing, and comes back with
//! the place that is wrong.

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use placet_approvals::views::{ApprovalDetail, EditRequest};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    error::ErrorCode,
    ids::ApprovalId,
    json::{JsonLimits, parse_strict},
    text,
};
use serde_json::{Map, Value};

use super::{
    ConsoleState, decide,
    form::{FORM_BYTES_MAX, Form},
    page::{Frame, token},
    session::Visitor,
    tree,
    visitor::{PageId, Trouble},
    words,
};
use placet_api::problem::Failure;

/// What somebody wrote, and what was wrong with it.
#[derive(Debug, Default)]
pub(super) struct Draft {
    args: Option<String>,
    reason: String,
    problems: Vec<String>,
}

/// `GET /approvals/{id}/edit`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    PageId(id): PageId<ApprovalId>,
) -> Result<Response, Trouble> {
    page(&app, &visitor, &id, StatusCode::OK, Draft::default()).await
}

/// `POST /approvals/{id}/edit`.
pub(super) async fn edit(
    State(app): State<ConsoleState>,
    PageId(id): PageId<ApprovalId>,
    form: Form,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let digest: Digest = fields.needed("digest", "the digest of what was shown")?;
    let text = fields.get("args").unwrap_or_default().to_owned();
    let mut draft = Draft {
        args: Some(text.clone()),
        reason: fields.get("reason").unwrap_or_default().to_owned(),
        problems: Vec::new(),
    };
    let args = read(&text).map_err(|problem| draft.problems.push(problem)).ok();
    let reason = fields.reason().map_err(|Trouble(failure)| {
        draft.problems.push(words::sentence(&failure.document().detail));
    });
    let (Some(args), Ok(reason)) = (args, reason) else {
        return page(&app, &visitor, &id, StatusCode::BAD_REQUEST, draft).await;
    };
    let request = EditRequest { args, reason, digest };
    let edited = app.api.engine.approvals().edit(&visitor.caller, &id, request).await;
    match edited.map_err(Failure::from) {
        Ok(_) => Ok(Redirect::to(&format!("/approvals/{id}?done=edit")).into_response()),
        Err(failure) if failure.document().error_code == ErrorCode::ValidationError => {
            draft.problems = problems(&failure);
            page(&app, &visitor, &id, StatusCode::BAD_REQUEST, draft).await
        }
        Err(failure) => {
            decide::undecided(&app, &visitor, &id, digest, &draft.reason, failure).await
        }
    }
}

/// The arguments, read as strictly as a caller's.
fn read(text: &str) -> Result<Map<String, Value>, String> {
    let limits = JsonLimits { bytes_max: FORM_BYTES_MAX, ..JsonLimits::default() };
    match parse_strict(text.as_bytes(), &limits) {
        Ok(Value::Object(args)) => Ok(args),
        Ok(_) => Err("The arguments must be one JSON object, with { and } around it.".to_owned()),
        Err(error) => Err(format!("The arguments are not JSON: {error}.")),
    }
}

fn problems(failure: &Failure) -> Vec<String> {
    let document = failure.document();
    let places =
        document.problems.iter().map(|place| format!("{}: {}", place.pointer, place.problem));
    let places: Vec<String> = places.collect();
    if places.is_empty() { vec![words::sentence(&document.detail)] } else { places }
}

async fn page(
    app: &ConsoleState,
    visitor: &Visitor,
    id: &ApprovalId,
    status: StatusCode,
    draft: Draft,
) -> Result<Response, Trouble> {
    let detail = app.api.engine.approvals().approval(&visitor.caller, id).await?;
    Ok(view(&detail, visitor, app.console.now(), status, &draft))
}

/// The page for this detail.
pub(super) fn view(
    detail: &ApprovalDetail,
    visitor: &Visitor,
    now: Timestamp,
    status: StatusCode,
    draft: &Draft,
) -> Response {
    let title = "Change the arguments";
    let masked = detail.preview_masked();
    let now_shown = tree::Preview { value: detail.preview(), masked: &masked };
    let content = html! {
        p.crumb { a href="/" { "Inbox" } " › " a href={ "/approvals/" (detail.approval.approval_id) } { (detail.approval.capability_id) } }
        h1 { (title) }
        p.lede {
            "What you write here runs instead, if enough people agree to it. It is checked like the agent’s own arguments, shown to the "
            "next approver as a difference, and the agent is told that it was changed."
        }
        p {
            "If it only asks for less (lists shortened, numbers nearer to zero), you agree to it by sending it. "
            strong { "Anything else, and every change of a masked value, makes you its author:" }
            " you do not decide on it any more, and somebody else has to agree."
        }
        @if detail.standing.may_edit { (form(detail, visitor, draft)) }
        @else { p.notice.bad { "You may not change the arguments of this call, or it does not wait any more." } }
        section.card aria-labelledby="now-title" { h2 #now-title { "As it would run now" } (tree::arguments(now_shown)) }
    };
    Frame { title, place: "", now }.page_with(status, visitor, &content)
}

fn form(detail: &ApprovalDetail, visitor: &Visitor, draft: &Draft) -> Markup {
    let shown = serde_json::to_string_pretty(detail.preview()).unwrap_or_default();
    let shown = text::visible_json(&shown);
    let wrong = !draft.problems.is_empty();
    html! {
        @if wrong {
            div #problems.notice.bad role="alert" {
                h2 { "Nothing was changed" }
                ul { @for problem in &draft.problems { li { (problem) } } }
            }
        }
        form.card method="post" action={ "/approvals/" (detail.approval.approval_id) "/edit" } {
            (token(visitor))
            input type="hidden" name="digest" value=(detail.approval.digest);
            div.field {
                label for="args" { "The arguments, as JSON" }
                textarea #args.code name="args" spellcheck="false" required aria-invalid=[wrong.then_some("true")] aria-describedby="args-hint" {
                    "\n" (draft.args.as_deref().unwrap_or(&shown))
                }
                p #args-hint.hint { "Leave a masked value as it is to keep it. Nobody after you can see what you put in its place, but they are told that it changed." }
            }
            div.field {
                label for="reason" { "Why" }
                textarea #reason name="reason" required maxlength="2000" { "\n" (draft.reason) }
            }
            div.row {
                button.yes type="submit" { "Propose these arguments instead" }
                a.button href={ "/approvals/" (detail.approval.approval_id) } { "Leave it as it is" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn only_one_strict_object_is_read() {
        assert!(read("{\"a\": 1}").is_ok());
        for text in ["", "[]", "{\"a\": 1, \"a\": 2}", "{'a': 1}", "null", "{} {}"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
