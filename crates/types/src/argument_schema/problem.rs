//! What a caller is told about arguments that do not match.
//!
//! Owns the list of problems: where each is, by which rule, and what would be right. The sentences are in
//! [`super::phrases`]. It does not validate.
//!
//! Invariants: at most twenty problems, each of bounded size; no value of an argument; no name below a sensitive value.

use std::collections::BTreeSet;
use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{JsonType, ValidationError, Validator};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::index::token;
use super::phrases::{LISTED_MAX, Phrase, listed, name, of_types, phrase, types};
use crate::json::{clip, place};

const PROBLEMS_MAX: usize = 20;
/// Alternatives within alternatives whose problems are told, too.
const NESTING_MAX: usize = 4;
const POINTER_BYTES_MAX: usize = 256;

/// One thing that is wrong with the arguments of a call, said so that the call can be repaired.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ArgumentProblem {
    /// The argument as RFC 6901 pointer; empty for the arguments as a whole.
    pub pointer: String,
    /// The rule that is broken, as RFC 6901 pointer into the schema.
    pub schema_pointer: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right, where that can be said in data: a type, the options, a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
}

impl fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => write!(f, "{}", self.problem),
            pointer => write!(f, "{}: {}", place(pointer), self.problem),
        }
    }
}

impl ArgumentProblem {
    pub(super) fn not_an_object(args: &Value) -> Self {
        Self::whole(of_types(&[JsonType::Object], args))
    }

    pub(super) fn too_complex() -> Self {
        Self::whole(Phrase::plain(
            "the arguments are too large or too deeply nested to be checked, send less",
        ))
    }

    pub(super) fn unexplained() -> Self {
        Self::whole(Phrase::plain(
            "the arguments do not match the schema; they are too large to say where, send less",
        ))
    }

    fn whole(Phrase { text, expected }: Phrase) -> Self {
        Self { pointer: String::new(), schema_pointer: String::new(), problem: text, expected }
    }
}

/// The problems of arguments that the validator refuses; never empty.
pub(super) fn problems(
    source: &Value,
    validator: &Validator,
    args: &Value,
    hidden: &BTreeSet<String>,
) -> Vec<ArgumentProblem> {
    let mut report = Report { source, hidden, problems: Vec::new() };
    for error in validator.iter_errors(args) {
        report.add(&error, 0);
    }
    if report.problems.is_empty() {
        report.problems.push(ArgumentProblem::unexplained());
    }
    report.problems
}

struct Report<'a> {
    source: &'a Value,
    hidden: &'a BTreeSet<String>,
    problems: Vec<ArgumentProblem>,
}

impl Report<'_> {
    fn add(&mut self, error: &ValidationError<'_>, nesting: usize) {
        use ValidationErrorKind as Kind;
        if self.problems.len() >= PROBLEMS_MAX {
            return;
        }
        let pointer = error.instance_path().as_str();
        let is_hidden = self.hidden.iter().any(|hidden| is_at_or_below(pointer, hidden));
        if let Kind::AnyOf { context } | Kind::OneOfNotValid { context } = error.kind() {
            return self.add_forms(error, context, nesting);
        }
        if let Kind::AdditionalProperties { unexpected }
        | Kind::UnevaluatedProperties { unexpected } = error.kind()
            && !is_hidden
        {
            return self.add_unexpected(error, unexpected);
        }
        let phrase = phrase(error.kind(), error.instance());
        let mut pointer = pointer.to_owned();
        if let Kind::PropertyNames { error } = error.kind() {
            pointer.push_str(&error.instance().as_str().map(token).unwrap_or_default());
        }
        self.push(&pointer, error, phrase);
    }

    fn add_unexpected(&mut self, error: &ValidationError<'_>, unexpected: &[String]) {
        let known = self.known_properties(error);
        for property in unexpected.iter().take(LISTED_MAX) {
            let pointer = format!("{}{}", error.instance_path().as_str(), token(property));
            let text = format!("`{}` is not a known property{known}", name(property));
            self.push(&pointer, error, Phrase::plain(text));
        }
    }

    /// The names that the schema beside a broken rule knows.
    fn known_properties(&self, error: &ValidationError<'_>) -> String {
        let schema_pointer = error.schema_path().as_str();
        let beside =
            schema_pointer.rsplit_once('/').map(|(schema, _)| format!("{schema}/properties"));
        let known = beside.and_then(|pointer| self.source.pointer(&pointer));
        match known.and_then(Value::as_object) {
            Some(known) if !known.is_empty() => {
                let names: Vec<&str> = known.keys().map(String::as_str).collect();
                format!("; known are {}", listed(names.into_iter()))
            }
            _ => String::new(),
        }
    }

    /// Alternatives, none of which fits: their types if that is all, else what the closest one says.
    fn add_forms(
        &mut self,
        error: &ValidationError<'_>,
        forms: &[Vec<ValidationError<'_>>],
        nesting: usize,
    ) {
        let pointer = error.instance_path().as_str();
        let wrong_types: Vec<Vec<JsonType>> =
            forms.iter().filter_map(|form| wrong_type(form, pointer)).collect();
        if !forms.is_empty() && wrong_types.len() == forms.len() {
            let types: Vec<JsonType> = wrong_types.concat();
            self.push(pointer, error, of_types(&without_repeats(&types), error.instance()));
            return;
        }
        let closest = forms.iter().enumerate().min_by_key(|(_, form)| distance(form, pointer));
        let mut phrase = phrase(error.kind(), error.instance());
        if let Some((position, _)) = closest.filter(|_| nesting < NESTING_MAX) {
            phrase.text.push_str(&format!(
                "; the closest is form {}, whose problems follow",
                position.saturating_add(1)
            ));
        }
        self.push(pointer, error, phrase);
        for inner in
            closest.into_iter().filter(|_| nesting < NESTING_MAX).flat_map(|(_, form)| form)
        {
            self.add(inner, nesting.saturating_add(1));
        }
    }

    fn push(
        &mut self,
        pointer: &str,
        error: &ValidationError<'_>,
        Phrase { text, expected }: Phrase,
    ) {
        let shown = self
            .hidden
            .iter()
            .find(|hidden| is_at_or_below(pointer, hidden))
            .map_or(pointer, String::as_str);
        let problem = ArgumentProblem {
            pointer: clip(shown, POINTER_BYTES_MAX),
            schema_pointer: clip(error.schema_path().as_str(), POINTER_BYTES_MAX),
            problem: text,
            expected,
        };
        if self.problems.len() < PROBLEMS_MAX && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

fn is_at_or_below(pointer: &str, above: &str) -> bool {
    pointer.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The types that a form asks for, if it already fails by its type.
fn wrong_type(form: &[ValidationError<'_>], pointer: &str) -> Option<Vec<JsonType>> {
    form.iter().filter(|error| error.instance_path().as_str() == pointer).find_map(|error| {
        let ValidationErrorKind::Type { kind } = error.kind() else { return None };
        Some(types(kind))
    })
}

fn without_repeats(types: &[JsonType]) -> Vec<JsonType> {
    let mut kept: Vec<JsonType> = Vec::new();
    for name in types {
        if !kept.contains(name) {
            kept.push(*name);
        }
    }
    kept
}

/// How far a form is from what was sent. A constant that differs usually says that another form was meant.
fn distance(form: &[ValidationError<'_>], pointer: &str) -> usize {
    use ValidationErrorKind as Kind;
    let weight = |error: &ValidationError<'_>| {
        if matches!(error.kind(), Kind::Type { .. }) && error.instance_path().as_str() == pointer {
            1000
        } else if matches!(error.kind(), Kind::Constant { .. } | Kind::Enum { .. }) {
            100
        } else {
            1
        }
    };
    form.iter().map(weight).fold(0, usize::saturating_add)
}
