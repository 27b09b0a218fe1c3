//! Forms: read within limits, and only from who is signed in and comes from a page of ours.
//!
//! Owns the reading and the check against forged requests (CSRF). Invariant: there is no other way to a form's fields.

use std::{str::FromStr, sync::Arc};

use axum::{
    extract::{FromRequest, FromRequestParts as _, Request},
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, header};
use parking_lot::Mutex;
use placet_api::{body, problem::Failure};
use placet_types::{
    digest::Digest,
    error::{ErrorCode, Refusal},
};

use super::{
    ConsoleState,
    session::{CSRF_FIELD, Visitor},
    visitor::{Trouble, invalid, is_from_us},
};

/// The largest form: the arguments of a call and a reason.
pub(super) const FORM_BYTES_MAX: usize = 512 * 1024;
/// The most fields: a page of the inbox chosen as a whole.
const FIELDS_MAX: usize = 512;
/// The longest reason, in bytes.
pub(super) const REASON_BYTES_MAX: usize = 2_000;

/// The fields of a form, and who sent it.
pub(super) struct Form {
    pub(super) visitor: Visitor,
    pub(super) fields: Fields,
}

/// The fields of a form.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(String, String)>);

/// The fields of a request's form, once they were read: kept until the response.
#[derive(Debug, Clone, Default)]
pub(super) struct Typed(pub(super) Arc<Mutex<Option<Fields>>>);

impl FromRequest<ConsoleState> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, app: &ConsoleState) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visitor = Visitor::from_request_parts(&mut parts, app).await?;
        let typed = parts.extensions.get::<Typed>().cloned();
        let read = read(app, Request::from_parts(parts, body)).await;
        let fields = read.map_err(Trouble::into_response)?;
        let same =
            |token: &str| Digest::of(token.as_bytes()) == Digest::of(visitor.csrf.as_bytes());
        if !fields.get(CSRF_FIELD).is_some_and(same) {
            return Err(forged("the form is not one of this session").into_response());
        }
        if let Some(typed) = typed {
            *typed.0.lock() = Some(fields.clone());
        }
        Ok(Self { visitor, fields })
    }
}

/// Reads a form of a page of ours, no matter who sent it.
pub(super) async fn read(app: &ConsoleState, request: Request) -> Result<Fields, Trouble> {
    let headers = request.headers();
    if !is_from_us(&app.console, headers) {
        return Err(forged("the form was not sent by a page of this console"));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_form = kind.is_some_and(|kind| {
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    });
    if !is_form {
        return Err(invalid("this is not a form"));
    }
    let bytes = body::read(request.into_body(), FORM_BYTES_MAX).await?;
    let fields: Vec<(String, String)> = url::form_urlencoded::parse(&bytes)
        .take(FIELDS_MAX.saturating_add(1))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    if fields.len() > FIELDS_MAX {
        return Err(invalid("the form has too many fields"));
    }
    Ok(Fields(fields))
}

fn forged(message: &str) -> Trouble {
    let refusal = Refusal::new(
        ErrorCode::PolicyDenied,
        format!("{message}, so nothing was done; load the page again and send it from there"),
    );
    Trouble(Failure::with_status(refusal, StatusCode::FORBIDDEN))
}

impl Fields {
    /// A field that is not empty, without the space around it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.verbatim(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// All fields, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// All fields of a name, exactly as they were written.
    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A field that is not empty, exactly as it was written: where space counts.
    pub(super) fn verbatim(&self, name: &str) -> Option<&str> {
        self.all(name).next().filter(|value| !value.is_empty())
    }

    /// A required field, parsed.
    pub(super) fn needed<T: FromStr>(&self, name: &str, what: &str) -> Result<T, Trouble> {
        let value = self.get(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| invalid(&format!("{what} is missing or malformed")))
    }

    /// An optional field, parsed if it is not empty.
    pub(super) fn optional<T: FromStr>(
        &self,
        name: &str,
        what: &str,
    ) -> Result<Option<T>, Trouble> {
        if self.get(name).is_none() { Ok(None) } else { self.needed(name, what).map(Some) }
    }

    /// The reason: never empty, and limited in length.
    pub(super) fn reason(&self) -> Result<String, Trouble> {
        match self.get("reason") {
            Some(reason) if reason.len() <= REASON_BYTES_MAX => Ok(reason.replace("\r\n", "\n")),
            Some(_) => Err(invalid("the reason is longer than 2000 bytes")),
            None => Err(invalid("a reason is needed: say in a few words why")),
        }
    }

    /// For how long: a number and a unit, in milliseconds.
    pub(super) fn duration_ms(&self) -> Result<u64, Trouble> {
        let count: u64 = self.needed("lasts", "how long it lasts")?;
        let unit: u64 = match self.get("unit") {
            Some("minutes") => 60_000,
            Some("hours") => 3_600_000,
            Some("days") => 86_400_000,
            Some(_) | None => {
                return Err(invalid("the unit of time is unknown"));
            }
        };
        count
            .checked_mul(unit)
            .filter(|ms| *ms > 0)
            .ok_or_else(|| invalid("it has to last some time, and not for ever"))
    }
}
