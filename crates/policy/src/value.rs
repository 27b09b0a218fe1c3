//! The values of a request's context, as Cedar evaluates to them.
//!
//! Owns their construction. An expression evaluated for each request yields the same, but takes longer than the policies do.
//! Entities are still made of expressions (`vocabulary`): they are made once.

use cedar_policy::EntityUid;
use cedar_policy_core::{
    ast::{EntityUID, Literal, RestrictedExpr, Value},
    evaluator::{EvaluationError, RestrictedEvaluator},
    extensions::Extensions,
};
use placet_types::clock::Timestamp;

use crate::vocabulary;

fn literal(literal: impl Into<Literal>) -> Value {
    Value::new(literal.into(), None)
}

pub(crate) fn text(value: &str) -> Value {
    literal(value)
}

pub(crate) fn flag(value: bool) -> Value {
    literal(value)
}

pub(crate) fn long(value: impl Into<i64>) -> Value {
    literal(value.into())
}

/// Like [`vocabulary::count`].
pub(crate) fn count(value: u64) -> Value {
    long(vocabulary::capped(value))
}

pub(crate) fn uid(uid: EntityUid) -> Value {
    literal(EntityUID::from(uid))
}

pub(crate) fn set(values: impl IntoIterator<Item = Value>) -> Value {
    Value::set(values, None)
}

/// A record of fields with distinct names.
pub(crate) fn record<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::record(fields, None)
}

/// The value that a constructor makes of a text.
pub(crate) fn made(expression: &RestrictedExpr) -> Result<Value, EvaluationError> {
    RestrictedEvaluator::new(Extensions::all_available()).interpret(expression.as_borrowed())
}

pub(crate) fn datetime(at: Timestamp) -> Result<Value, EvaluationError> {
    made(&vocabulary::datetime_expr(at))
}
