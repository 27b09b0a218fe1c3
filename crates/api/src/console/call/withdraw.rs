//! Withdrawing a held call from its page.
//!
//! Owns the form and its handling. Who may is the engine's answer.

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use placet_approvals::views::{ApprovalDetail, WithdrawalRequest};
use placet_types::ids::ApprovalId;

use super::Notice;
use crate::console::{
    ConsoleState,
    form::Form,
    page::token,
    visitor::{PageId, Trouble, Visitor},
    words,
};

/// The form, for those who may; it is folded, because it is not the usual way.
pub(super) fn form(detail: &ApprovalDetail, visitor: &Visitor) -> Markup {
    let id = &detail.approval.approval_id;
    html! {
        @if detail.standing.may_withdraw {
            details #withdraw.card {
                summary { "Withdraw this call" }
                p { "The call ends and does not run. Its agent is told that it was withdrawn." }
                form method="post" action={ "/approvals/" (id) "/withdrawal" } {
                    (token(visitor))
                    div.field {
                        label for="withdraw-reason" { "Why it is withdrawn" }
                        textarea #withdraw-reason name="reason" required maxlength="2000" aria-describedby="withdraw-hint" {}
                        p #withdraw-hint.hint { "Kept with your name for the auditor, and shown to those who were asked." }
                    }
                    div.row.wide-button { button.no type="submit" { "Withdraw the call" } }
                }
            }
        }
    }
}

/// `POST /approvals/{id}/withdrawal`.
pub(in crate::console) async fn withdraw(
    State(app): State<ConsoleState>,
    PageId(id): PageId<ApprovalId>,
    form: Form,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let request = WithdrawalRequest { reason: fields.reason()? };
    let (engine, caller, target) = (app.api.engine.clone(), visitor.caller.clone(), id.clone());
    let done = app
        .api
        .write(async move { engine.approvals().withdraw(&caller, &target, request).await })
        .await;
    match done {
        Ok(_) => Ok(Redirect::to(&format!("/approvals/{id}?done=withdraw")).into_response()),
        Err(failure) if failure.document().status < 500 => {
            failure.log();
            let document = failure.document();
            let notice = Notice {
                status: StatusCode::from_u16(document.status).unwrap_or(StatusCode::FORBIDDEN),
                class: "notice bad",
                title: "Nothing was withdrawn".to_owned(),
                text: words::sentence(&document.detail),
            };
            super::page(&app, &visitor, &id, Some(notice), "").await
        }
        Err(failure) => Err(Trouble(failure)),
    }
}
