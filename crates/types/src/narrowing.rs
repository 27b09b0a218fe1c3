//! Whether edited arguments ask for less than those before them.
//!
//! Owns what *narrower* means, and which masked values an edit changed. Who may edit, and what follows from an edit that is not narrower,
//! is decided elsewhere. Invariants: narrower arguments keep every member, and have no new value except numbers nearer to zero; a change
//! at or below a place that the schema marks sensitive is never narrower.

use std::collections::BTreeSet;

use serde_json::{Number, Value};

use crate::argument_schema::ArgumentSchema;

/// The largest integer up to which every integer is a double, and compares exactly with one.
const EXACT_MAX: u128 = 1 << 53;

/// The effect of an edit on arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Whether the edit only asks for less.
    pub narrower: bool,
    /// Where masked values changed, as JSON Pointers (RFC 6901): into the arguments before or after, or both. The empty one stands for all
    /// arguments.
    pub masked: BTreeSet<String>,
}

impl Change {
    /// The effect of an edit on the arguments of a tool with this schema.
    pub fn of(schema: &ArgumentSchema, before: &Value, after: &Value) -> Self {
        let mut masked = schema.sensitive_pointers(before);
        masked.extend(schema.sensitive_pointers(after));
        masked.retain(|place| before.pointer(place) != after.pointer(place));
        Self { narrower: masked.is_empty() && is_narrower(before, after), masked }
    }
}

/// Whether all places are equal, except that lists lost some elements or numbers moved towards zero and kept their sign.
///
/// A removed member may be a filter or a precondition, an empty list a filter that excludes nothing, and zero no limit: none of the
/// three is narrower.
pub fn is_narrower(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let keeps = |(name, outer): (&String, &Value)| {
                after.get(name).is_some_and(|inner| is_narrower(outer, inner))
            };
            before.len() == after.len() && before.iter().all(keeps)
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            before.iter().zip(after).all(|(outer, inner)| is_narrower(outer, inner))
        }
        (Value::Array(before), Value::Array(after)) => {
            let mut rest = before.iter();
            // Each is searched after the position of the previous one.
            !after.is_empty() && after.iter().all(|kept| rest.any(|one| one == kept))
        }
        (Value::Number(before), Value::Number(after)) => {
            before == after || is_nearer_to_zero(before, after)
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => before == after,
    }
}

fn is_nearer_to_zero(before: &Number, after: &Number) -> bool {
    match (integer(before), integer(after)) {
        (Some(before), Some(after)) => {
            after != 0
                && before.signum() == after.signum()
                && after.unsigned_abs() <= before.unsigned_abs()
        }
        (before_exact, after_exact) => {
            let mut integers = before_exact.into_iter().chain(after_exact);
            let (Some(before), Some(after)) = (before.as_f64(), after.as_f64()) else {
                return false;
            };
            integers.all(|integer| integer.unsigned_abs() <= EXACT_MAX)
                && ((0.0 < after && after <= before) || (before <= after && after < 0.0))
        }
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

#[cfg(test)]
mod tests;
