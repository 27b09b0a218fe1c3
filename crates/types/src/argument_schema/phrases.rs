//! The words for what is wrong with a value.
//!
//! Owns one sentence per rule of JSON Schema, written so that a model can repair its call. It does not know where the value
//! is, and says nothing that came from the validator's own messages.
//!
//! Invariant: a phrase holds what the schema asks for and the kind of what was sent, never the value that was sent.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use crate::json::clip;

/// What is quoted of one name, option or pattern.
const QUOTED_BYTES_MAX: usize = 64;
/// So many options or names are listed.
pub(super) const LISTED_MAX: usize = 20;

/// What is wrong, and what would be right.
pub(super) struct Phrase {
    pub(super) text: String,
    pub(super) expected: Option<Value>,
}

impl Phrase {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), expected: None }
    }
}

/// The phrase for a broken rule.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rules that are left have a number and are matched there"
)]
pub(super) fn phrase(kind: &ValidationErrorKind, instance: &Value) -> Phrase {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::Type { kind } => of_types(&types(kind), instance),
        Kind::Enum { options } => of_options(options),
        Kind::Constant { expected_value } => Phrase {
            text: format!("must be {}", quoted(expected_value)),
            expected: bounded(expected_value),
        },
        Kind::Required { property } => {
            Phrase::plain(format!("`{}` is required", name(property.as_str().unwrap_or_default())))
        }
        Kind::Pattern { pattern } => Phrase {
            text: format!("must match the pattern `{}`", name(pattern)),
            expected: bounded(&Value::from(pattern.as_str())),
        },
        Kind::Format { format } => of_format(format),
        Kind::PropertyNames { error } => of_property_name(error),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            Phrase::plain("has a property that is not known")
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            Phrase::plain(format!("matches none of the {} allowed forms", context.len()))
        }
        Kind::OneOfMultipleValid { context } => Phrase::plain(format!(
            "matches more than one of the {} allowed forms, must match exactly one",
            context.len()
        )),
        Kind::Not { .. } => Phrase::plain("has a form that is excluded"),
        Kind::FalseSchema => Phrase::plain("is not allowed here"),
        Kind::ContentEncoding { content_encoding } => {
            Phrase::plain(format!("must be encoded as `{}`", name(content_encoding)))
        }
        Kind::ContentMediaType { content_media_type } => {
            Phrase::plain(format!("must hold text of the type `{}`", name(content_media_type)))
        }
        Kind::FromUtf8 { .. } => Phrase::plain("must hold encoded UTF-8 text"),
        // The words are our own.
        Kind::Custom { message, .. } => Phrase::plain(message.as_str()),
        Kind::BacktrackLimitExceeded { .. }
        | Kind::RegexEngineFailure { .. }
        | Kind::Referencing(_) => Phrase::plain("cannot be checked against the schema"),
        _ => of_bound(kind),
    }
}

/// The rules with a number or a count.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the validator's enum: a rule without a phrase gets the general one"
)]
fn of_bound(kind: &ValidationErrorKind) -> Phrase {
    use ValidationErrorKind as Kind;
    let limit = |text: &str, limit: &Value| Phrase {
        text: format!("{text} {limit}"),
        expected: bounded(limit),
    };
    let count = |at: &str, count: u64, unit: (&str, &str)| Phrase {
        text: format!("must have at {at} {count} {}", if count == 1 { unit.0 } else { unit.1 }),
        expected: Some(Value::from(count)),
    };
    let characters = ("character", "characters");
    let elements = ("element", "elements");
    let properties = ("property", "properties");
    match kind {
        Kind::Minimum { limit: bound } => limit("must be at least", bound),
        Kind::Maximum { limit: bound } => limit("must be at most", bound),
        Kind::ExclusiveMinimum { limit: bound } => limit("must be greater than", bound),
        Kind::ExclusiveMaximum { limit: bound } => limit("must be less than", bound),
        Kind::MultipleOf { multiple_of } => {
            limit("must be a multiple of", &Value::from(*multiple_of))
        }
        Kind::MinLength { limit } => count("least", *limit, characters),
        Kind::MaxLength { limit } => count("most", *limit, characters),
        Kind::MinItems { limit } => count("least", *limit, elements),
        Kind::MaxItems { limit } => count("most", *limit, elements),
        Kind::AdditionalItems { limit } => {
            count("most", u64::try_from(*limit).unwrap_or(u64::MAX), elements)
        }
        Kind::MinProperties { limit } => count("least", *limit, properties),
        Kind::MaxProperties { limit } => count("most", *limit, properties),
        Kind::UniqueItems => Phrase::plain("must not have the same element twice"),
        Kind::Contains => {
            Phrase::plain("does not have the right number of elements of the required form")
        }
        Kind::UnevaluatedItems { unexpected } => {
            Phrase::plain(format!("has {} elements more than allowed", unexpected.len()))
        }
        _ => Phrase::plain("does not match the schema"),
    }
}

/// The phrase for a value of a wrong type.
pub(super) fn of_types(types: &[JsonType], instance: &Value) -> Phrase {
    let names: Vec<&str> = types.iter().map(|name| with_article(*name)).collect();
    let expected = match types {
        [one] => Value::from(one.as_str()),
        several => several.iter().map(|name| Value::from(name.as_str())).collect(),
    };
    Phrase {
        text: format!(
            "must be {}, got {}",
            alternatives(&names),
            with_article(JsonType::from(instance))
        ),
        expected: Some(expected),
    }
}

/// The types that a rule accepts.
pub(super) fn types(kind: &TypeKind) -> Vec<JsonType> {
    match kind {
        TypeKind::Single(one) => vec![*one],
        TypeKind::Multiple(several) => several.iter().collect(),
    }
}

/// A name from a schema or from arguments, shortened.
pub(super) fn name(text: &str) -> String {
    clip(text, QUOTED_BYTES_MAX)
}

/// A list for people: at most [`LISTED_MAX`] entries.
pub(super) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let mut listed: Vec<String> =
        names.take(LISTED_MAX).map(|text| format!("`{}`", name(text))).collect();
    if more > 0 {
        listed.push(format!("{more} more"));
    }
    listed.join(", ")
}

fn of_options(options: &Value) -> Phrase {
    let options = options.as_array().map_or(&[][..], Vec::as_slice);
    let mut shown: Vec<String> = options.iter().take(LISTED_MAX).map(quoted).collect();
    if let Some(more) = options.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        shown.push(format!("{more} more"));
    }
    let expected = options.iter().take(LISTED_MAX).filter_map(bounded).collect();
    Phrase { text: format!("must be one of {}", shown.join(", ")), expected: Some(expected) }
}

fn of_format(format: &str) -> Phrase {
    let example = match format {
        "date-time" => ", for example 2026-01-31T12:00:00Z",
        "date" => ", for example 2026-01-31",
        "time" => ", for example 12:00:00Z",
        "duration" => ", for example PT1H",
        "email" => ", for example name@example.com",
        "uri" => ", for example https://example.com/page",
        "uuid" => ", for example 123e4567-e89b-12d3-a456-426614174000",
        "ipv4" => ", for example 192.0.2.1",
        "json-pointer" => ", for example /a/0",
        _ => "",
    };
    Phrase {
        text: format!("must be a valid `{}`{example}", name(format)),
        expected: Some(Value::from(name(format))),
    }
}

/// A phrase about the name, said at the property itself.
fn of_property_name(error: &ValidationError<'_>) -> Phrase {
    // A name is a string and has no names itself: this ends here.
    let inner = if matches!(error.kind(), ValidationErrorKind::PropertyNames { .. }) {
        Phrase::plain("is not allowed")
    } else {
        phrase(error.kind(), error.instance())
    };
    Phrase { text: format!("the name of the property {}", inner.text), expected: inner.expected }
}

fn with_article(name: JsonType) -> &'static str {
    match name {
        JsonType::Null => "null",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Number => "a number",
        JsonType::String => "a string",
        JsonType::Array => "an array",
        JsonType::Object => "an object",
    }
}

fn alternatives(names: &[&str]) -> String {
    match names.split_last() {
        None => "something else".to_owned(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// A value of the schema as JSON text, shortened.
fn quoted(value: &Value) -> String {
    clip(&value.to_string(), QUOTED_BYTES_MAX)
}

/// A value of the schema as data, if it is short.
fn bounded(value: &Value) -> Option<Value> {
    Some(value)
        .filter(|value| value.to_string().len() <= QUOTED_BYTES_MAX.saturating_mul(4))
        .cloned()
}
