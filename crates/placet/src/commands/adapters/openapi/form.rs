//! How the parameters and the body of an operation are sent.
//!
//! Owns which of OpenAPI's forms a `rest` contract can express.

use std::collections::BTreeSet;

use serde_json::Value;

use super::resolved;

/// The most schemas that the one of a parameter may be combined of.
const PARTS_MAX: usize = 256;

/// Checks that a parameter is sent as `rest` does it: as text, or in the query also as one parameter for each item of a list.
pub(super) fn check(document: &Value, parameter: &Value, place: &str) -> Result<(), String> {
    let is_query = place == "query";
    let usual = if is_query { "form" } else { "simple" };
    if let Some(style) = parameter.get("style").filter(|style| *style != usual) {
        return Err(format!("has the style {style}"));
    }
    if parameter.get("content").is_some() {
        return Err("has a `content`".to_owned());
    }
    let Some(schema) = parameter.get("schema") else { return Ok(()) };
    let whole = alternatives(document, schema)?;
    let mut items = Vec::new();
    for schema in whole.iter().filter_map(|schema| schema.get("items")) {
        items.extend(alternatives(document, schema)?);
    }
    let has = |schemas: &[&Value], kind| schemas.iter().any(|schema| is_of(schema, kind));
    if has(&whole, "object") || has(&items, "object") || has(&items, "array") {
        return Err("is an object or a list of such".to_owned());
    }
    let is_list = has(&whole, "array");
    if is_list && !is_query {
        return Err(format!("is a list in its {place}"));
    }
    if is_list && parameter.get("explode").is_some_and(|explode| explode == false) {
        return Err("is a list in one parameter (`explode: false`)".to_owned());
    }
    Ok(())
}

/// Checks that the placeholders of a path are its path parameters, and all of them.
pub(super) fn check_places(path: &str, parameters: &BTreeSet<&str>) -> Result<(), String> {
    let places = path.split('{').skip(1).filter_map(|part| part.split_once('}'));
    let places: BTreeSet<&str> = places.map(|(name, _)| name).collect();
    if let Some(name) = places.difference(parameters).next() {
        return Err(format!("`{{{name}}}` of its path is no path parameter"));
    }
    parameters
        .difference(&places)
        .next()
        .map_or(Ok(()), |name| Err(format!("its path parameter `{name}` has no place in its path")))
}

/// Whether a body of this media type is sent as `rest` does it: as `application/json`, in UTF-8.
pub(super) fn is_json(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let (base, parameter) = kind.split_once(';').unwrap_or((&kind, ""));
    let is_utf8 = matches!(parameter.trim(), "" | "charset=utf-8" | "charset=\"utf-8\"");
    matches!(base.trim(), "application/json" | "*/*") && is_utf8
}

/// Whether a schema names the type, or has what only this type has.
fn is_of(schema: &Value, kind: &str) -> bool {
    let member = if kind == "array" { "items" } else { "properties" };
    let named = schema.get("type");
    let listed = named.and_then(Value::as_array).into_iter().flatten();
    named.into_iter().chain(listed).any(|named| named == kind) || schema.get(member).is_some()
}

/// A schema and those that it is combined of.
fn alternatives<'a>(document: &'a Value, schema: &'a Value) -> Result<Vec<&'a Value>, String> {
    let (mut found, mut open) = (Vec::new(), vec![schema]);
    while let Some(schema) = open.pop() {
        if found.len() >= PARTS_MAX {
            return Err("has too many schemas".to_owned());
        }
        let schema = resolved(document, schema)?;
        let lists =
            ["allOf", "oneOf", "anyOf"].iter().filter_map(|key| schema.get(key)?.as_array());
        open.extend(lists.flatten());
        found.push(schema);
    }
    Ok(found)
}
