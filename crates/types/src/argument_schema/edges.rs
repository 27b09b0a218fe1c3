//! Which schemas apply to which parts of the arguments.
//!
//! Owns the one step from a schema and a value to the schemas that are evaluated because of it, on the same value or on its
//! members. It does not evaluate them: an edge is there also if a condition might keep the validator from taking it.
//!
//! Invariant: every evaluation that the validator can make is one of these edges.

use serde_json::{Map, Value};

use super::survey::target;
use crate::json::token;

/// One schema that applies to one value.
pub(super) struct Edge<'s, 'v> {
    pub(super) keyword: &'s str,
    pub(super) schema: &'s Value,
    pub(super) instance: &'v Value,
    /// The reference token from the value before, empty if it is the same value.
    pub(super) token: String,
}

/// The placeholder value for schemas that apply to names instead of values.
static NAME: Value = Value::Null;

/// The visitor of edges; `None` stops the visit.
type Visit<'a, 's, 'v> = dyn FnMut(Edge<'s, 'v>) -> Option<()> + 'a;

/// Visits the edges from a schema and a value; `None` where `visit` ended it.
pub(super) fn each_edge<'s, 'v>(
    root: &'s Value,
    schema: &'s Value,
    instance: &'v Value,
    visit: &mut Visit<'_, 's, 'v>,
) -> Option<()> {
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let mut same = |schema| visit(Edge { keyword, schema, instance, token: String::new() });
        match keyword.as_str() {
            "$ref" => {
                value.as_str().and_then(|text| target(root, text)).map_or(Some(()), same)?;
            }
            "allOf" | "anyOf" | "oneOf" => {
                value.as_array().into_iter().flatten().try_for_each(same)?;
            }
            "dependentSchemas" | "dependencies" => {
                value.as_object().into_iter().flat_map(Map::values).try_for_each(same)?;
            }
            "not" | "if" | "then" | "else" => same(value)?,
            _ => match instance {
                Value::Object(members) => of_members(keyword, value, schema, members, visit)?,
                Value::Array(elements) => of_elements(keyword, value, elements, visit)?,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            },
        }
    }
    Some(())
}

fn of_members<'s, 'v>(
    keyword: &'s str,
    value: &'s Value,
    schema: &'s Value,
    members: &'v Map<String, Value>,
    visit: &mut Visit<'_, 's, 'v>,
) -> Option<()> {
    let mut member = |schema, name: &str, instance| {
        visit(Edge { keyword, schema, instance, token: token(name) })
    };
    let schemas = || value.as_object().into_iter().flatten();
    match keyword {
        "properties" => schemas().try_for_each(|(name, schema)| {
            members.get(name).map_or(Some(()), |inner| member(schema, name, inner))
        }),
        "patternProperties" => schemas().try_for_each(|(_, schema)| {
            members.iter().try_for_each(|(name, inner)| member(schema, name, inner))
        }),
        "additionalProperties" => {
            let known = schema.get("properties").and_then(Value::as_object);
            let more = |name: &String| known.is_none_or(|known| !known.contains_key(name));
            let mut members = members.iter().filter(|(name, _)| more(name));
            members.try_for_each(|(name, inner)| member(value, name, inner))
        }
        // Members that this keyword skips may be evaluated elsewhere, so all are visited.
        "unevaluatedProperties" => {
            members.iter().try_for_each(|(name, inner)| member(value, name, inner))
        }
        "propertyNames" => members.iter().try_for_each(|_| {
            visit(Edge { keyword, schema: value, instance: &NAME, token: String::new() })
        }),
        _ => Some(()),
    }
}

fn of_elements<'s, 'v>(
    keyword: &'s str,
    value: &'s Value,
    elements: &'v [Value],
    visit: &mut Visit<'_, 's, 'v>,
) -> Option<()> {
    let elements = elements.iter().enumerate();
    let mut element = |schema, position: usize, instance| {
        visit(Edge { keyword, schema, instance, token: format!("/{position}") })
    };
    match (keyword, value) {
        ("items" | "prefixItems", Value::Array(schemas)) => schemas
            .iter()
            .zip(elements)
            .try_for_each(|(schema, (position, inner))| element(schema, position, inner)),
        ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
            let mut elements = elements;
            elements.try_for_each(|(position, inner)| element(schema, position, inner))
        }
        _ => Some(()),
    }
}
