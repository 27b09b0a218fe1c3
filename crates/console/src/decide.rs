//! The decision on one call.
//!
//! Owns the form's handling: the decision succeeds, or the current page says why it did not.

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use http::StatusCode;
use placet_approvals::views::DecisionRequest;
use placet_types::{approval::VoteChoice, digest::Digest, ids::ApprovalId};

use super::{
    ConsoleState,
    call::{self, Notice},
    form::{Fields, Form},
    session::Visitor,
    visitor::{PageId, Trouble, invalid},
    words,
};
use placet_api::problem::Failure;

/// `GET /approvals/{id}/decision`: where a refused decision leaves the browser, when that address is reloaded.
pub(super) async fn back(PageId(id): PageId<ApprovalId>) -> Redirect {
    Redirect::to(&format!("/approvals/{id}"))
}

/// `POST /approvals/{id}/decision`.
pub(super) async fn decide(
    State(app): State<ConsoleState>,
    PageId(id): PageId<ApprovalId>,
    form: Form,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let choice = choice(&fields)?;
    let digest: Digest = fields.needed("digest", "the digest of what was shown")?;
    let written = fields.get("reason").unwrap_or_default().to_owned();
    let reason = match fields.reason() {
        Ok(reason) => reason,
        Err(Trouble(failure)) => {
            let notice = Notice::refused("Nothing was decided", &failure);
            return call::page(&app, &visitor, &id, Some(notice), &written).await;
        }
    };
    let request = DecisionRequest { decision: choice, reason, digest };
    match app.api.engine.approvals().decide(&visitor.caller, &id, request).await {
        Ok(_) => Ok(Redirect::to(&format!("/approvals/{id}?done={choice}")).into_response()),
        Err(refusal) => undecided(&app, &visitor, &id, digest, &written, refusal.into()).await,
    }
}

/// The current page, with why nothing was decided. A stale page is distinguished from every other cause.
pub(super) async fn undecided(
    app: &ConsoleState,
    visitor: &Visitor,
    id: &ApprovalId,
    shown: Digest,
    written: &str,
    failure: Failure,
) -> Result<Response, Trouble> {
    let document = failure.document();
    if document.status >= 500 {
        return Err(Trouble(failure));
    }
    let now = app.api.engine.approvals().approval(&visitor.caller, id).await?;
    let is_stale = now.approval.digest != shown || now.approval.state != "pending";
    let notice = if is_stale {
        Notice {
            status: StatusCode::CONFLICT,
            class: "notice warn",
            title: "This changed while you were looking at it".to_owned(),
            text: format!(
                "Nothing was decided. Below is how it stands now; read it again before you decide. ({})",
                words::sentence(&document.detail)
            ),
        }
    } else {
        Notice::refused("Nothing was decided", &failure)
    };
    call::page(app, visitor, id, Some(notice), written).await
}

/// Yes or no, as the button says.
pub(super) fn choice(fields: &Fields) -> Result<VoteChoice, Trouble> {
    match fields.get("decision") {
        Some("approve") => Ok(VoteChoice::Approve),
        Some("deny") => Ok(VoteChoice::Deny),
        Some(_) | None => Err(invalid("say by the button whether you approve or deny")),
    }
}
