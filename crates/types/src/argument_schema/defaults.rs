//! The defaults of a schema, filled into arguments.
//!
//! Owns which defaults apply: those of absent properties, found through `properties`, `items`, `allOf` and references, not
//! through conditions and alternatives. A default is used as it is: filling in defaults inside it is up to the tool.
//!
//! Invariant: filling in never makes valid arguments invalid, and depends on nothing but the schema and the arguments.

use serde_json::Value;

use super::edges::each_edge;
use super::survey::target;

/// If there are more, none are filled in: the tool applies its own.
const DEFAULTS_MAX: usize = 256;
/// The most defaults tried one by one when they are not valid together.
const TRIALS_MAX: usize = 16;

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
}

/// Arguments of affordable cost, with as many defaults as are valid in them.
pub(super) fn fill(root: &Value, args: &Value, permits: impl Fn(&Value) -> bool) -> Value {
    let mut defaults = Vec::new();
    let mut filled = args.clone();
    if search(root, root, args, "", &mut defaults).is_none() || defaults.is_empty() {
        return filled;
    }
    defaults.iter().for_each(|default| default.fill(&mut filled));
    if permits(&filled) {
        return filled;
    }
    filled = args.clone();
    for default in defaults.iter().take(TRIALS_MAX) {
        let mut trial = filled.clone();
        default.fill(&mut trial);
        if permits(&trial) {
            filled = trial;
        }
    }
    filled
}

/// Finds all defaults, in the order of the schema; `None` if there are too many.
fn search<'s>(
    root: &'s Value,
    schema: &'s Value,
    instance: &Value,
    pointer: &str,
    found: &mut Vec<Default<'s>>,
) -> Option<()> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if instance.as_object().is_some_and(|members| !members.contains_key(name))
            && let Some(value) = default_of(root, property)
        {
            found.push(Default { object: pointer.to_owned(), name, value });
        }
    }
    if found.len() > DEFAULTS_MAX {
        return None;
    }
    each_edge(root, schema, instance, &mut |edge| {
        if !TRANSPARENT.contains(&edge.keyword) {
            return Some(());
        }
        let pointer = format!("{pointer}{}", edge.token);
        search(root, edge.schema, edge.instance, &pointer, found)
    })
}

/// A schema's own default, or that of its direct reference.
fn default_of<'s>(root: &'s Value, schema: &'s Value) -> Option<&'s Value> {
    let referred = || target(root, schema.get("$ref")?.as_str()?)?.get("default");
    schema.get("default").or_else(referred)
}
