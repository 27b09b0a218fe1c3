//! Which schemas apply to which parts of the arguments.
//!
//! Owns the one step from a schema and a value to the schemas that are evaluated because of it, on the same value or on its
//! members. It does not evaluate them: an edge is there also if a condition might keep the validator from taking it.
//!
//! Invariant: every evaluation that the validator can make is one of these edges.

use serde_json::{Map, Value};

use super::index::{SchemaIndex, token};

/// One schema that applies to one value.
pub(super) struct Edge<'s, 'v> {
    pub(super) keyword: &'s str,
    pub(super) schema: &'s Value,
    pub(super) instance: &'v Value,
    /// The reference token from the value before, empty if it is the same value.
    pub(super) token: String,
}

/// More edges from one schema than any honest call needs.
#[derive(Debug)]
pub(super) struct TooManyEdges;

const EDGES_MAX: usize = 200_000;

/// A schema that is applied to names instead of values is shown this.
static NAME: Value = Value::Null;

pub(super) fn edges<'s, 'v>(
    index: &SchemaIndex,
    root: &'s Value,
    schema: &'s Value,
    instance: &'v Value,
) -> Result<Vec<Edge<'s, 'v>>, TooManyEdges> {
    let mut edges = Edges { found: Vec::new(), instance };
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match keyword.as_str() {
            "$ref" => {
                if let Some(target) = value.as_str().and_then(|text| index.target(root, text)) {
                    edges.same(keyword, target)?;
                }
            }
            "allOf" | "anyOf" | "oneOf" => {
                for schema in value.as_array().into_iter().flatten() {
                    edges.same(keyword, schema)?;
                }
            }
            "dependentSchemas" | "dependencies" => {
                for (_, schema) in value.as_object().into_iter().flatten() {
                    edges.same(keyword, schema)?;
                }
            }
            "not" | "if" | "then" | "else" => edges.same(keyword, value)?,
            _ => {
                edges.of_members(keyword, value, schema)?;
                edges.of_elements(keyword, value)?;
            }
        }
    }
    Ok(edges.found)
}

struct Edges<'s, 'v> {
    found: Vec<Edge<'s, 'v>>,
    instance: &'v Value,
}

impl<'s, 'v> Edges<'s, 'v> {
    fn same(&mut self, keyword: &'s str, schema: &'s Value) -> Result<(), TooManyEdges> {
        self.push(keyword, schema, self.instance, String::new())
    }

    fn of_members(
        &mut self,
        keyword: &'s str,
        value: &'s Value,
        schema: &'s Value,
    ) -> Result<(), TooManyEdges> {
        let Some(members) = self.instance.as_object() else { return Ok(()) };
        match keyword {
            "properties" => {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    if let Some(member) = members.get(name) {
                        self.push(keyword, schema, member, token(name))?;
                    }
                }
            }
            "patternProperties" => {
                for schema in value.as_object().into_iter().flat_map(Map::values) {
                    for (name, member) in members {
                        self.push(keyword, schema, member, token(name))?;
                    }
                }
            }
            "additionalProperties" | "unevaluatedProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, member) in members {
                    // What `unevaluated` skips may be known elsewhere, so only `additional` looks at the names.
                    if keyword == "unevaluatedProperties"
                        || known.is_none_or(|known| !known.contains_key(name))
                    {
                        self.push(keyword, value, member, token(name))?;
                    }
                }
            }
            "propertyNames" => {
                for _ in members {
                    self.push(keyword, value, &NAME, String::new())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn of_elements(&mut self, keyword: &'s str, value: &'s Value) -> Result<(), TooManyEdges> {
        let Some(elements) = self.instance.as_array() else { return Ok(()) };
        match (keyword, value) {
            ("items" | "prefixItems", Value::Array(schemas)) => {
                for (position, (schema, element)) in schemas.iter().zip(elements).enumerate() {
                    self.push(keyword, schema, element, format!("/{position}"))?;
                }
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
                for (position, element) in elements.iter().enumerate() {
                    self.push(keyword, schema, element, format!("/{position}"))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push(
        &mut self,
        keyword: &'s str,
        schema: &'s Value,
        instance: &'v Value,
        token: String,
    ) -> Result<(), TooManyEdges> {
        if self.found.len() >= EDGES_MAX {
            return Err(TooManyEdges);
        }
        self.found.push(Edge { keyword, schema, instance, token });
        Ok(())
    }
}
