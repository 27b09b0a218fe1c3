//! Creating entries of the approval service: break-glass records, delegations, freezes.
//!
//! Owns the reading of these forms. A standing grant is proposed from its call ([`super::grant`]).

use std::{collections::BTreeSet, str::FromStr};

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use placet_approvals::views::{Arrangement, DirectiveRequest};
use placet_types::{
    clock::Timestamp,
    directive::{BreakGlass, Delegation, Freeze},
};

use super::{
    ConsoleState, calendar,
    form::{Fields, Form},
    visitor::{Trouble, invalid},
};

/// `POST /break-glass`.
pub(super) async fn break_glass(
    State(app): State<ConsoleState>,
    form: Form,
) -> Result<Response, Trouble> {
    let fields = &form.fields;
    let arrange = Arrangement::BreakGlass(BreakGlass {
        ticket: fields.needed("ticket", "the ticket")?,
        agent: fields.optional("agent", "the agent")?,
        capability: fields.optional("capability", "the operation, such as `files/delete`,")?,
    });
    made(&app, form, arrange).await
}

/// `POST /delegations`.
pub(super) async fn delegation(
    State(app): State<ConsoleState>,
    form: Form,
) -> Result<Response, Trouble> {
    let fields = &form.fields;
    let to = fields.needed("to", "the colleague")?;
    let groups = names(fields.get("groups"), "a group")?;
    made(&app, form, Arrangement::Delegation(Delegation { to, groups })).await
}

/// `POST /calendar`.
pub(super) async fn freeze(
    State(app): State<ConsoleState>,
    form: Form,
) -> Result<Response, Trouble> {
    let fields = &form.fields;
    let name = fields.needed("name", "the name")?;
    let adapters = names(fields.get("adapters"), "an adapter")?;
    let lockdown = fields.get("lockdown").is_some();
    made(&app, form, Arrangement::Freeze(Freeze { name, adapters, lockdown })).await
}

async fn made(app: &ConsoleState, form: Form, arrange: Arrangement) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let request = DirectiveRequest {
        arrange,
        reason: fields.reason()?,
        starts_at: starts_at(&fields)?,
        lasts_ms: fields.duration_ms()?,
    };
    let entry = app.api.engine.approvals().arrange(&visitor.caller, request).await?;
    Ok(Redirect::to(&format!("/entries/{}", entry.directive_id)).into_response())
}

/// Names separated by commas.
fn names<T: FromStr + Ord>(text: Option<&str>, what: &str) -> Result<BTreeSet<T>, Trouble> {
    let parts = text.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            part.parse()
                .map_err(|_malformed| invalid(&format!("`{part}` cannot be the name of {what}")))
        })
        .collect()
}

/// The start time, in the form in which browsers send a date and a time, taken as UTC.
fn starts_at(fields: &Fields) -> Result<Option<Timestamp>, Trouble> {
    let Some(text) = fields.get("starts") else { return Ok(None) };
    let at = calendar::parse_minute(text).map(Some);
    at.ok_or_else(|| invalid("the beginning is not a date and a time"))
}
