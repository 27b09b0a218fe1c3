//! Query parameters, as strict as bodies.
//!
//! Owns their parsing. Invariant: a parameter that is unknown, repeated or out of range refuses the request.

use std::{ops::RangeInclusive, str::FromStr};

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;

use crate::problem::Failure;

/// The longest name of a parameter that an error repeats.
const NAME_BYTES_MAX: usize = 64;
/// The longest value of a parameter.
const VALUE_BYTES_MAX: usize = 256;
/// The most entries of one page of a list.
pub(crate) const LIMIT_MAX: u64 = 200;
/// The entries of a page by default.
pub(crate) const LIMIT_DEFAULT: usize = 50;
/// The longest that a request may wait for people, in milliseconds.
pub(crate) const WAIT_MS_MAX: u64 = 600_000;

/// The parameters of a request that were not read yet.
#[derive(Debug, Clone)]
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let Query(pairs) = pairs
            .map_err(|_rejection| Failure::malformed("the query is not `name=value&name=value`"))?;
        if pairs.iter().any(|(_, value)| value.len() > VALUE_BYTES_MAX) {
            return Err(Failure::malformed(format!(
                "a query parameter is longer than {VALUE_BYTES_MAX} bytes"
            )));
        }
        Ok(Self(pairs))
    }
}

impl Params {
    /// Takes a text.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// Takes an identifier.
    pub(crate) fn id<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let parse = |text: String| {
            text.parse().map_err(|_malformed| Failure::malformed(format!("`{name}` is malformed")))
        };
        self.text(name).map(parse).transpose()
    }

    /// Takes one of a list of names, and returns what the name stands for.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let found = choices.iter().find(|(choice, _)| *choice == text);
        found.map(|(_, meant)| Some(*meant)).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            Failure::malformed(format!("`{name}` must be one of `{}`", names.join("`, `")))
        })
    }

    /// Takes a whole number.
    pub(crate) fn number(
        &mut self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            Failure::malformed(format!("`{name}` must be a whole number from {least} to {most}"))
        })
    }

    /// Takes a whole number as a `usize`.
    pub(crate) fn size(
        &mut self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<usize>, Failure> {
        Ok(self.number(name, range)?.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }

    /// Takes the size of a page.
    pub(crate) fn limit(&mut self) -> Result<usize, Failure> {
        Ok(self.size("limit", 1..=LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT))
    }

    /// Refuses what nobody has taken.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Some((name, _)) = self.0.first() else { return Ok(()) };
        // Only a name that one could have meant is repeated.
        let named = name.len() <= NAME_BYTES_MAX && name.bytes().all(|b| b.is_ascii_graphic());
        let which = if named { format!("parameter `{name}`") } else { "a parameter".to_owned() };
        Err(Failure::malformed(format!("{which} of the query is unknown here or there twice")))
    }
}

/// That a request has no parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        Params::from_request_parts(parts, state).await?.finish().map(|()| Self)
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRequestParts;
    use http::Request;

    use super::{Failure, Params, WAIT_MS_MAX};

    async fn params(query: &str) -> Result<Params, Failure> {
        let uri = format!("/v1/calls?{query}");
        let (mut parts, ()) = Request::get(uri).body(()).unwrap().into_parts();
        Params::from_request_parts(&mut parts, &()).await
    }

    #[tokio::test]
    async fn a_parameter_is_taken_once_and_the_rest_is_refused() {
        let mut one = params("wait_ms=20").await.unwrap();
        assert_eq!(one.number("wait_ms", 0..=WAIT_MS_MAX), Ok(Some(20)));
        assert_eq!(one.finish(), Ok(()));

        let mut twice = params("wait_ms=20&wait_ms=30").await.unwrap();
        assert_eq!(twice.number("wait_ms", 0..=WAIT_MS_MAX), Ok(Some(20)));
        assert!(twice.finish().is_err());
        assert!(params("frob=1").await.unwrap().finish().is_err());
    }

    #[tokio::test]
    async fn a_choice_is_one_of_its_names_exactly() {
        let choices = [("open", 1_u8), ("all", 2)];
        assert_eq!(params("state=all").await.unwrap().one_of("state", &choices), Ok(Some(2)));
        assert_eq!(params("").await.unwrap().one_of("state", &choices), Ok(None));
        for query in ["state=", "state=ALL", "state=alle", "state=%20all"] {
            assert!(params(query).await.unwrap().one_of("state", &choices).is_err(), "{query}");
        }
    }

    #[tokio::test]
    async fn numbers_out_of_range_or_not_plain_digits_are_refused() {
        for query in [
            "limit=201",
            "limit=0",
            "limit=-1",
            "limit=%2B5",
            "limit=",
            "limit=5.0",
            "limit=99999999999999999999",
        ] {
            assert!(params(query).await.unwrap().limit().is_err(), "{query}");
        }
        assert_eq!(params("limit=200").await.unwrap().limit(), Ok(200));
        assert_eq!(params("").await.unwrap().limit(), Ok(50));
        assert!(params(&format!("state={}", "x".repeat(257))).await.is_err());
    }
}
