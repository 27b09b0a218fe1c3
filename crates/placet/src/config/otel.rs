//! The variables that OpenTelemetry defines for exporters (`OTEL_EXPORTER_OTLP_ENDPOINT` and others).
//!
//! Owns their parsing. The configuration file takes precedence; an unusable variable is an error, never ignored.

use std::{fmt, path::Path};

use placet_telemetry::export::{OtlpConfig, OtlpProtocol};
use placet_types::text::percent_decoded;
use secrecy::SecretString;
use url::Url;

use super::file::OtlpFile;
use crate::{environment::Environment, yaml::FileProblem};

/// The path that the exporter adds for OTLP over HTTP.
const TRACES_PATH: &str = "/v1/traces";

/// The collector that the environment names, if any.
pub(crate) fn collector(environment: &Environment) -> Result<Option<OtlpConfig>, FileProblem> {
    let is = |name: &str, value: &str| {
        environment.get(name).is_some_and(|set| set.eq_ignore_ascii_case(value))
    };
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return Ok(None);
    }
    let Some((endpoint_name, endpoint)) = either(environment, "ENDPOINT") else { return Ok(None) };
    let mut endpoint = Url::parse(&endpoint)
        .map_err(|error| problem(&endpoint_name, format!("is not a URL: {error}")))?;
    let protocol = match either(environment, "PROTOCOL") {
        None => OtlpProtocol::default(),
        Some((name, text)) => {
            text.parse().map_err(|_unknown| problem(&name, "must be `grpc` or `http/protobuf`"))?
        }
    };
    if protocol == OtlpProtocol::HttpProtobuf
        && let Some(base) = endpoint.path().strip_suffix(TRACES_PATH).map(str::to_owned)
    {
        endpoint.set_path(&base);
    }
    let timeout_ms = match either(environment, "TIMEOUT") {
        None => OtlpFile::default_timeout().0,
        Some((name, text)) => {
            text.parse().map_err(|_no_number| problem(&name, "is not a number of milliseconds"))?
        }
    };
    let headers = either(environment, "HEADERS")
        .map_or_else(|| Ok(Vec::new()), |(name, text)| pairs(&name, &text))?
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), SecretString::from(value)));
    Ok(Some(OtlpConfig { endpoint, protocol, headers: headers.collect(), timeout_ms }))
}

/// `OTEL_RESOURCE_ATTRIBUTES`.
pub(crate) fn resource_attributes(
    environment: &Environment,
) -> Result<Vec<(String, String)>, FileProblem> {
    const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
    environment.get(NAME).map_or_else(|| Ok(Vec::new()), |text| pairs(NAME, &text))
}

/// The variable for traces before the one for all signals.
fn either(environment: &Environment, what: &str) -> Option<(String, String)> {
    [format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")]
        .into_iter()
        .find_map(|name| environment.get(&name).map(|value| (name, value)))
}

/// `name=value,name=value`, percent-encoded.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, FileProblem> {
    let wrong = || problem(variable, "is not `name=value,name=value`");
    text.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            let name = name.trim();
            let value = percent_decoded(value.trim()).ok_or_else(wrong)?;
            if name.is_empty() { Err(wrong()) } else { Ok((name.to_owned(), value)) }
        })
        .collect()
}

/// What is wrong with a variable; never its value.
fn problem(variable: &str, problem: impl fmt::Display) -> FileProblem {
    FileProblem::at(Path::new("the environment"), variable, problem)
}

#[cfg(test)]
mod tests {
    use placet_telemetry::export::OtlpProtocol;
    use secrecy::ExposeSecret as _;

    use super::{collector, resource_attributes};
    use crate::environment::Environment;

    #[test]
    fn without_an_endpoint_or_with_the_sdk_disabled_nothing_is_exported() {
        assert!(collector(&Environment::of([])).unwrap().is_none());
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            let environment =
                Environment::of([("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317"), off]);
            assert!(collector(&environment).unwrap().is_none());
        }
    }

    #[test]
    fn the_variable_for_traces_wins_and_its_path_is_not_doubled() {
        let environment = Environment::of([
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=a%20b, other=1"),
        ]);
        let config = collector(&environment).unwrap().unwrap();
        assert_eq!(config.endpoint.as_str(), "http://127.0.0.1:4318/");
        assert_eq!(config.protocol, OtlpProtocol::HttpProtobuf);
        let headers: Vec<_> =
            config.headers.iter().map(|(n, v)| (n.as_str(), v.expose_secret())).collect();
        assert_eq!(headers, [("x-key", "a b"), ("other", "1")]);
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_an_error_that_does_not_show_its_value() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "secret-protocol"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "secret-soon"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret-without-value"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%zz-secret"),
        ] {
            let environment = Environment::of([
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317"),
                (name, value),
            ]);
            let problem = collector(&environment).unwrap_err();
            assert_eq!(problem.key.as_deref(), Some(name));
            assert!(!problem.problem.contains("secret"));
        }
        let environment = Environment::of([("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=2")]);
        assert_eq!(resource_attributes(&environment).unwrap().len(), 2);
    }
}
