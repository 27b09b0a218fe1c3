//! The estimated cost of a validation, before it is made.
//!
//! Owns the two bounds that the validator itself lacks: how many evaluations a schema needs for some arguments, and how
//! deeply they nest. References let a schema of a few hundred bytes ask for 2⁶⁰ evaluations, or recurse until the stack ends.
//! It does not validate.
//!
//! Invariant: arguments whose validation would exceed the bounds are refused before the validator sees them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::edges::each_edge;

/// The most evaluations, where large values count as several: about a tenth of a second.
const COST_MAX: u64 = 1_000_000;
/// The deepest nesting of evaluations; each takes several frames of the validator's stack.
const DEPTH_MAX: usize = 512;
/// Bytes of a value that count as one more evaluation.
const BYTES_PER_UNIT: usize = 64;

/// The cost of a validation; `None` if it exceeds the bounds.
pub(super) fn cost(root: &Value, args: &Value) -> Option<u64> {
    let mut estimate = Estimate { root, steps: 0, sizes: BTreeMap::new() };
    estimate.measure(args);
    estimate.evaluate(root, args, 0)
}

struct Estimate<'s> {
    root: &'s Value,
    steps: u64,
    /// The cost of copying, for each value where it is more than one unit.
    sizes: BTreeMap<*const Value, u64>,
}

impl<'s> Estimate<'s> {
    fn measure(&mut self, value: &Value) -> u64 {
        let mut inner = |sum: u64, value| sum.saturating_add(self.measure(value));
        let size = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 1,
            Value::String(text) => {
                let units = text.len().checked_div(BYTES_PER_UNIT).unwrap_or_default();
                u64::try_from(units).unwrap_or(u64::MAX).saturating_add(1)
            }
            // A member costs a fraction of an evaluation to copy; a member alone is rounded up to one.
            Value::Array(elements) => elements.iter().fold(0, &mut inner).div_ceil(8),
            Value::Object(members) => members.values().fold(0, &mut inner).div_ceil(8),
        };
        if size > 1 {
            self.sizes.insert(value, size);
        }
        size
    }

    fn evaluate(&mut self, schema: &'s Value, instance: &Value, depth: usize) -> Option<u64> {
        self.steps = self.steps.saturating_add(1);
        if self.steps > COST_MAX || depth > DEPTH_MAX {
            return None;
        }
        let mut sum = self.sizes.get(&std::ptr::from_ref(instance)).copied().unwrap_or(1);
        each_edge(self.root, schema, instance, &mut |edge| {
            let inner = self.evaluate(edge.schema, edge.instance, depth.saturating_add(1))?;
            sum = sum.saturating_add(inner);
            Some(())
        })?;
        Some(sum.saturating_mul(repetitions(schema, instance))).filter(|cost| *cost <= COST_MAX)
    }
}

/// How often a schema's own applicators are run: `unevaluated…` runs them again for each member.
fn repetitions(schema: &Value, instance: &Value) -> u64 {
    let members = match instance {
        Value::Array(elements) if schema.get("unevaluatedItems").is_some() => elements.len(),
        Value::Object(members) if schema.get("unevaluatedProperties").is_some() => members.len(),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => return 1,
    };
    u64::try_from(members).unwrap_or(u64::MAX).saturating_add(2)
}
