//! The problems reported to a caller about arguments that do not match.
//!
//! Owns the list of problems: where each is and what is wrong. It does not validate.
//!
//! Invariants: at most twenty problems, each of bounded size; no value of an argument; no name below a sensitive value.

use std::collections::BTreeSet;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::Value;

use crate::error::Problem;
use crate::json::{clip, is_within, token};

const PROBLEMS_MAX: usize = 20;
/// The depth of nested alternatives whose problems are reported.
const NESTING_MAX: usize = 4;
const POINTER_BYTES_MAX: usize = 256;
const PROBLEM_BYTES_MAX: usize = 512;
/// The most bytes quoted of one name or option.
const QUOTED_BYTES_MAX: usize = 64;

/// A problem of the arguments as a whole.
pub(super) fn whole(problem: impl Into<String>) -> Vec<Problem> {
    vec![Problem { pointer: String::new(), problem: problem.into() }]
}

pub(super) fn not_an_object(args: &Value) -> Vec<Problem> {
    whole(format!("must be object, got {}", JsonType::from(args)))
}

pub(super) fn too_complex() -> Vec<Problem> {
    whole("the arguments are too large or too deeply nested to be checked, send less")
}

pub(super) fn unexplained() -> Vec<Problem> {
    whole("the arguments do not match the schema; they are too large to say where, send less")
}

/// The problems of arguments that the validator refuses; never empty.
pub(super) fn problems(
    source: &Value,
    validator: &Validator,
    args: &Value,
    hidden: &BTreeSet<String>,
) -> Vec<Problem> {
    let errors: Vec<ValidationError<'_>> = validator.iter_errors(args).collect();
    let places = errors.iter().map(|error| error.instance_path().as_str().to_owned()).collect();
    let mut report = Report { source, hidden, places, problems: Vec::new() };
    for error in &errors {
        report.add(error, 0);
    }
    if report.problems.is_empty() { unexplained() } else { report.problems }
}

struct Report<'a> {
    source: &'a Value,
    hidden: &'a BTreeSet<String>,
    /// Where rules are broken.
    places: BTreeSet<String>,
    problems: Vec<Problem>,
}

impl Report<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others have one place and one phrase")]
    fn add(&mut self, error: &ValidationError<'_>, nesting: usize) {
        let pointer = error.instance_path().as_str();
        match error.kind() {
            Kind::AdditionalProperties { unexpected } if self.hidden_above(pointer).is_none() => {
                let known = self.known_properties(error);
                for property in unexpected.iter().take(PROBLEMS_MAX) {
                    let problem = format!("`{}` is not a known property{known}", name(property));
                    self.push(&format!("{pointer}{}", token(property)), problem);
                }
            }
            // Which properties other rules would know is not in one place of the schema. What breaks a rule of its own counts as unevaluated
            // too, and is told there.
            Kind::UnevaluatedProperties { unexpected } if self.hidden_above(pointer).is_none() => {
                for property in unexpected.iter().take(PROBLEMS_MAX) {
                    let place = format!("{pointer}{}", token(property));
                    if !self.places.iter().any(|broken| is_within(broken, &place)) {
                        let problem = format!("`{}` is not a known property", name(property));
                        self.push(&place, problem);
                    }
                }
            }
            Kind::PropertyNames { error: inner } => {
                let name = inner.instance().as_str().map(token).unwrap_or_default();
                self.push(&format!("{pointer}{name}"), phrase(error));
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                self.push(pointer, phrase(error));
                self.add_closest(pointer, context, nesting);
            }
            _ => self.push(pointer, phrase(error)),
        }
    }

    /// Reports the problems of the closest of several forms when none fits. A form of another type is considered last.
    fn add_closest(&mut self, pointer: &str, forms: &[Vec<ValidationError<'_>>], nesting: usize) {
        if nesting >= NESTING_MAX {
            return;
        }
        let distance = |form: &&Vec<ValidationError<'_>>| {
            let is_type = |error: &ValidationError<'_>| {
                matches!(error.kind(), Kind::Type { .. })
                    && error.instance_path().as_str() == pointer
            };
            (form.iter().any(is_type), form.len())
        };
        for error in forms.iter().min_by_key(distance).into_iter().flatten() {
            self.add(error, nesting.saturating_add(1));
        }
    }

    /// The names that the schema around a broken rule declares.
    fn known_properties(&self, error: &ValidationError<'_>) -> String {
        let beside = error.schema_path().as_str().rsplit_once('/');
        let known = beside.and_then(|(schema, _)| self.source.pointer(schema)?.get("properties"));
        match known.and_then(Value::as_object) {
            Some(known) if !known.is_empty() => {
                let names =
                    known.keys().take(PROBLEMS_MAX).map(|known| format!("`{}`", name(known)));
                format!("; known are {}", names.collect::<Vec<_>>().join(", "))
            }
            _ => String::new(),
        }
    }

    fn hidden_above(&self, pointer: &str) -> Option<&'_ String> {
        self.hidden.iter().find(|hidden| is_within(pointer, hidden))
    }

    fn push(&mut self, pointer: &str, problem: String) {
        let shown = self.hidden_above(pointer).map_or(pointer, String::as_str);
        let problem = Problem { pointer: clip(shown, POINTER_BYTES_MAX), problem };
        if self.problems.len() < PROBLEMS_MAX && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// What is wrong with one value, without the value: in the validator's words where they are good enough.
#[expect(clippy::wildcard_enum_match_arm, reason = "the validator has words for all rules")]
pub(super) fn phrase(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Type { kind } => {
            let types = match kind {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(several) => {
                    several.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            format!("must be {types}, got {}", JsonType::from(error.instance().as_ref()))
        }
        Kind::Enum { options } => {
            let options = options.as_array().into_iter().flatten().take(PROBLEMS_MAX);
            let shown = options.map(|option| clip(&option.to_string(), QUOTED_BYTES_MAX));
            format!("must be one of {}", shown.collect::<Vec<_>>().join(", "))
        }
        Kind::Required { property } => {
            format!("`{}` is required", name(property.as_str().unwrap_or_default()))
        }
        // The validator quotes names that were sent, and whole forms.
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "has a property that is not known".to_owned()
        }
        Kind::PropertyNames { .. } => "the name of the property is not allowed".to_owned(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            format!("matches none of the {} allowed forms", context.len())
        }
        Kind::Not { .. } => "has a form that is excluded".to_owned(),
        Kind::Contains => "has no item of the form that it must contain".to_owned(),
        Kind::FalseSchema => "is not allowed".to_owned(),
        _ => clip(&error.masked_with("the value").to_string(), PROBLEM_BYTES_MAX),
    }
}

/// A name from a schema or from arguments, shortened.
fn name(text: &str) -> String {
    clip(text, QUOTED_BYTES_MAX)
}
