//! The defaults of a schema, filled into arguments.
//!
//! Owns which defaults apply: those of absent properties, found through `properties`, `items`, `allOf` and references, not
//! through conditions and alternatives. It does not decide whether arguments are valid, it asks the validator.
//!
//! Invariant: filling in never makes valid arguments invalid, and depends on nothing but the schema and the arguments.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::Value;

use super::cost::Cost;
use super::edges::edges;
use super::index::{SchemaIndex, token};
use crate::json::canonical_bytes;

/// More than these are not filled in at all: the tool applies its own.
const DEFAULTS_MAX: usize = 1000;
const BYTES_MAX: usize = 128 * 1024;
/// So many defaults are tried one by one when they are not valid together.
const TRIALS_MAX: usize = 32;
/// So often defaults that the validator rejects are taken out.
const ROUNDS_MAX: usize = 4;
const STEPS_MAX: usize = 200_000;

/// The keywords through which a default is found.
const TRANSPARENT: [&str; 5] = ["$ref", "allOf", "properties", "items", "prefixItems"];

/// A default that could be filled in.
struct Default<'s> {
    object: String,
    name: &'s str,
    value: &'s Value,
}

impl Default<'_> {
    fn fill(&self, args: &mut Value) {
        if let Some(object) = args.pointer_mut(&self.object).and_then(Value::as_object_mut) {
            object.entry(self.name).or_insert_with(|| self.value.clone());
        }
    }

    fn pointer(&self) -> String {
        format!("{}{}", self.object, token(self.name))
    }

    fn holds(&self, pointer: &str) -> bool {
        pointer
            .strip_prefix(&self.pointer())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Valid arguments with as many defaults as are valid in them.
pub(super) fn fill(
    index: &SchemaIndex,
    root: &Value,
    validator: &Validator,
    args: &Value,
) -> Value {
    let Some(mut defaults) = Search::run(index, root, args).filter(|defaults| !defaults.is_empty())
    else {
        return args.clone();
    };
    let affordable =
        |args: &Value| Cost::of(index, root, args).is_ok_and(Cost::permits_explanation);
    let mut filled = fill_all(&defaults, args);
    for _ in 0..ROUNDS_MAX {
        if Cost::of(index, root, &filled).is_err() {
            return args.clone();
        }
        if validator.is_valid(&filled) {
            return filled;
        }
        if !affordable(&filled) {
            break;
        }
        let wrong: Vec<String> = validator
            .iter_errors(&filled)
            .map(|error| error.instance_path().as_str().to_owned())
            .collect();
        let before = defaults.len();
        defaults.retain(|default| !wrong.iter().any(|pointer| default.holds(pointer)));
        if defaults.len() == before {
            break;
        }
        filled = fill_all(&defaults, args);
    }
    fill_one_by_one(&defaults, validator, args)
}

fn fill_all(defaults: &[Default<'_>], args: &Value) -> Value {
    let mut filled = args.clone();
    for default in defaults {
        default.fill(&mut filled);
    }
    filled
}

/// Keeps what is valid on its own merits, starting from valid arguments.
fn fill_one_by_one(defaults: &[Default<'_>], validator: &Validator, args: &Value) -> Value {
    let mut filled = args.clone();
    for default in defaults.iter().take(TRIALS_MAX) {
        let mut trial = filled.clone();
        default.fill(&mut trial);
        if validator.is_valid(&trial) {
            filled = trial;
        }
    }
    filled
}

/// A schema to look at for one value of the arguments.
struct Open<'s> {
    schema: &'s Value,
    pointer: String,
    /// The defaults that this value stands in: a recursive schema would go on for ever.
    within: Vec<*const Value>,
}

struct Search<'s> {
    found: Vec<Default<'s>>,
    inserted: BTreeSet<String>,
    filled: Value,
    bytes: usize,
}

impl<'s> Search<'s> {
    /// All defaults, in the order in which they are filled in; `None` if there are too many.
    fn run(index: &SchemaIndex, root: &'s Value, args: &Value) -> Option<Vec<Default<'s>>> {
        let mut search =
            Self { found: Vec::new(), inserted: BTreeSet::new(), filled: args.clone(), bytes: 0 };
        let mut seen = BTreeSet::new();
        let mut open = vec![Open { schema: root, pointer: String::new(), within: Vec::new() }];
        while let Some(next) = open.pop() {
            if !seen.insert((std::ptr::from_ref(next.schema), next.pointer.clone())) {
                continue;
            }
            search.fill(index, root, &next)?;
            let instance = search.filled.pointer(&next.pointer)?;
            let edges = edges(index, root, next.schema, instance).ok()?;
            if seen.len().saturating_add(open.len()).saturating_add(edges.len()) > STEPS_MAX {
                return None;
            }
            // Backwards, because the last one put in is looked at first: the order is that of the schema.
            for edge in edges.into_iter().rev().filter(|edge| TRANSPARENT.contains(&edge.keyword)) {
                let pointer = format!("{}{}", next.pointer, edge.token);
                let mut within = next.within.clone();
                if !edge.token.is_empty() && search.inserted.contains(&pointer) {
                    within.push(std::ptr::from_ref(edge.schema));
                }
                open.push(Open { schema: edge.schema, pointer, within });
            }
        }
        Some(search.found)
    }

    fn fill(&mut self, index: &SchemaIndex, root: &'s Value, at: &Open<'s>) -> Option<()> {
        let properties = at.schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            let members = self.filled.pointer(&at.pointer).and_then(Value::as_object);
            if members.is_none_or(|members| members.contains_key(name)) {
                continue;
            }
            if at.within.contains(&std::ptr::from_ref(schema)) {
                continue;
            }
            let Some(value) = default_of(index, root, schema) else { continue };
            let default = Default { object: at.pointer.clone(), name, value };
            self.bytes = self.bytes.saturating_add(canonical_bytes(value).len());
            if self.found.len() >= DEFAULTS_MAX || self.bytes > BYTES_MAX {
                return None;
            }
            default.fill(&mut self.filled);
            self.inserted.insert(default.pointer());
            self.found.push(default);
        }
        Some(())
    }
}

/// A schema's own default, or that of what it directly refers to.
fn default_of<'s>(index: &SchemaIndex, root: &'s Value, schema: &'s Value) -> Option<&'s Value> {
    let referred = || {
        let reference = schema.get("$ref").and_then(Value::as_str)?;
        index.target(root, reference)?.get("default")
    };
    schema.get("default").or_else(referred)
}
