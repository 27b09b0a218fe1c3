//! The schemas of a document as JSON Schema 2020-12.
//!
//! Owns the keywords of OpenAPI. Invariant: only schemas are changed; a member that is named like a keyword is none, and neither is what is
//! in an example.

use serde_json::{Map, Value, json};

use super::{DEPTH_MAX, resolved};

const SCHEMAS: &str = "#/components/schemas/";

/// Turns a schema of OpenAPI 3.0, whose keywords differ in three places, into JSON Schema 2020-12; 3.1 has none of these differences.
/// References to schemas of the document are changed to `$defs`, and added to `found`. Members that only answers have are dropped.
pub(super) fn convert(
    document: &Value,
    schema: &mut Value,
    found: &mut Vec<String>,
    depth: usize,
) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err("a schema is nested too deep".to_owned());
    }
    drop_read_only(document, schema);
    let Value::Object(members) = schema else { return Ok(()) };
    if let Some(Value::String(reference)) = members.get_mut("$ref") {
        let name = reference
            .strip_prefix(SCHEMAS)
            .ok_or_else(|| format!("`{reference}` is no schema of the document"))?
            .to_owned();
        *reference = format!("#/$defs/{name}");
        found.push(name);
    }
    convert_keywords(members);
    for (key, member) in members {
        let schemas: Vec<&mut Value> = match (key.as_str(), member) {
            (
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                Value::Object(named),
            ) => named.values_mut().collect(),
            ("allOf" | "oneOf" | "anyOf" | "prefixItems" | "items", Value::Array(listed)) => {
                listed.iter_mut().collect()
            }
            (
                "items"
                | "contains"
                | "additionalProperties"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties"
                | "not"
                | "if"
                | "then"
                | "else",
                schema,
            ) => vec![schema],
            _ => Vec::new(),
        };
        for schema in schemas {
            convert(document, schema, found, depth.saturating_add(1))?;
        }
    }
    Ok(())
}

fn convert_keywords(members: &mut Map<String, Value>) {
    if members.remove("nullable") == Some(Value::Bool(true))
        && let Some(kind) = members.get_mut("type").filter(|kind| kind.is_string())
    {
        *kind = json!([kind, "null"]);
    }
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        match members.get(exclusive) {
            Some(Value::Bool(true)) => {
                let value = members.remove(bound).unwrap_or(Value::Null);
                members.insert(exclusive.to_owned(), value);
            }
            Some(Value::Bool(false)) => drop(members.remove(exclusive)),
            _ => {}
        }
    }
}

/// Drops the `readOnly` members of a schema: they are for answers only, and so is that they are required.
pub(super) fn drop_read_only(document: &Value, schema: &mut Value) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    let is_marked = |schema: &Value| schema.get("readOnly").is_some_and(|marked| *marked == true);
    let is_read_only = |one: &Value| is_marked(one) || resolved(document, one).is_ok_and(is_marked);
    let dropped: Vec<Value> = properties
        .iter()
        .filter(|(_, member)| is_read_only(member))
        .map(|(name, _)| json!(name))
        .collect();
    properties.retain(|_, member| !is_read_only(member));
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !dropped.contains(name));
    }
}
