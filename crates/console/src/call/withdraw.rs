//! Withdrawing a held call from its page.
//!
//! Owns the form and its handling. The engine determines who may withdraw.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_approvals::views::{ApprovalDetail, WithdrawalRequest};
use placet_types::ids::ApprovalId;

use crate::{
    ConsoleState,
    form::Form,
    page::token,
    session::Visitor,
    visitor::{PageId, Trouble},
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
pub(crate) async fn withdraw(
    State(app): State<ConsoleState>,
    PageId(id): PageId<ApprovalId>,
    form: Form,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let request = WithdrawalRequest { reason: fields.reason()? };
    let done = app.api.engine.approvals().withdraw(&visitor.caller, &id, request).await;
    super::after(&app, &visitor, &id, done, "withdraw", "Nothing was withdrawn").await
}
