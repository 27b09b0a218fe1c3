//! What a validation will cost, before it is made.
//!
//! Owns the two bounds that the validator itself lacks: how many evaluations a schema needs for some arguments, and how
//! deeply they nest. References let a schema of a few hundred bytes ask for 2⁶⁰ evaluations, or recurse until the stack ends.
//! It does not validate.
//!
//! Invariant: arguments whose validation would exceed the bounds are refused before the validator sees them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::edges::{Edge, edges};
use super::index::SchemaIndex;

/// Evaluations, where one of a large value counts for more: about a tenth of a second.
const COST_MAX: u64 = 1_000_000;
/// The same for the collection of all errors, which copies values.
const EXPLANATION_COST_MAX: u64 = 200_000;
/// Evaluations within each other; each takes several frames of the validator's stack.
const DEPTH_MAX: usize = 512;
/// Bytes of a value that count as one more evaluation.
const BYTES_PER_UNIT: u64 = 64;

/// What one validation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    units: u64,
    /// Evaluations within each other, counted from the innermost.
    height: usize,
}

/// The validation would cost too much.
#[derive(Debug)]
pub(super) struct TooCostly;

impl Cost {
    pub(super) fn of(index: &SchemaIndex, root: &Value, args: &Value) -> Result<Self, TooCostly> {
        let mut estimate = Estimate {
            index,
            root,
            steps: 0,
            sizes: BTreeMap::new(),
            known: BTreeMap::new(),
            open: BTreeSet::new(),
        };
        let cost = estimate.evaluate(root, args, 0)?;
        if cost.units > COST_MAX { Err(TooCostly) } else { Ok(cost) }
    }

    pub(super) fn permits_explanation(self) -> bool {
        self.units <= EXPLANATION_COST_MAX
    }
}

type Pair = (*const Value, *const Value);

struct Estimate<'s> {
    index: &'s SchemaIndex,
    root: &'s Value,
    steps: u64,
    sizes: BTreeMap<*const Value, u64>,
    /// Costs of referenced schemas: only a reference can make the validator do the same work again.
    known: BTreeMap<Pair, Cost>,
    open: BTreeSet<Pair>,
}

impl<'s> Estimate<'s> {
    fn evaluate(
        &mut self,
        schema: &'s Value,
        instance: &Value,
        depth: usize,
    ) -> Result<Cost, TooCostly> {
        self.steps = self.steps.saturating_add(1);
        if self.steps > COST_MAX || depth > DEPTH_MAX {
            return Err(TooCostly);
        }
        let edges =
            edges(self.index, self.root, schema, instance).map_err(|_too_many| TooCostly)?;
        let mut sum = Cost { units: self.size(instance).max(1), height: 0 };
        for edge in edges {
            let cost = self.follow(&edge, depth)?;
            sum.units = sum.units.saturating_add(cost.units);
            sum.height = sum.height.max(cost.height.saturating_add(1));
        }
        sum.units = sum.units.saturating_mul(repetitions(schema, instance));
        Ok(sum)
    }

    fn follow(&mut self, edge: &Edge<'s, '_>, depth: usize) -> Result<Cost, TooCostly> {
        let pair = (std::ptr::from_ref(edge.schema), std::ptr::from_ref(edge.instance));
        let is_reference = edge.keyword == "$ref";
        if let Some(cost) = self.known.get(&pair) {
            // The depth below was counted from another place.
            return if depth.saturating_add(cost.height) > DEPTH_MAX {
                Err(TooCostly)
            } else {
                Ok(*cost)
            };
        }
        if is_reference && !self.open.insert(pair) {
            // The index refuses schemas that refer to themselves for the same value; this is the second lock.
            return Err(TooCostly);
        }
        let cost = self.evaluate(edge.schema, edge.instance, depth.saturating_add(1))?;
        if is_reference {
            self.open.remove(&pair);
            self.known.insert(pair, cost);
        }
        Ok(cost)
    }

    /// The size of a value in units.
    fn size(&mut self, value: &Value) -> u64 {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 1,
            Value::String(text) => u64::try_from(text.len())
                .unwrap_or(u64::MAX)
                .checked_div(BYTES_PER_UNIT)
                .unwrap_or(0)
                .saturating_add(1),
            Value::Array(elements) => self.container(value, elements.iter()),
            Value::Object(members) => self.container(value, members.values()),
        }
    }

    fn container<'v>(&mut self, value: &Value, inner: impl Iterator<Item = &'v Value>) -> u64 {
        let key = std::ptr::from_ref(value);
        if let Some(size) = self.sizes.get(&key) {
            return *size;
        }
        let nodes = inner.fold(0_u64, |sum, value| sum.saturating_add(self.size(value)));
        // A member costs a fraction of an evaluation to copy; a member alone is rounded up to one.
        let size = nodes.div_ceil(8);
        self.sizes.insert(key, size);
        size
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
