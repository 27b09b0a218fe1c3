//! A tool's arguments in Cedar's types: JSON Schema to a record type, arguments to a record.
//!
//! Owns what can be typed. What Cedar cannot express is left out and listed: an array as a whole if its items contain such a thing, an
//! object without the property. Arguments that a schema admits beyond its properties are not passed to policy; they are listed too.
//!
//! A `number` is left out unless the contract maps it with `x-cedar: long` or `x-cedar: decimal`; arguments are checked against that before
//! any policy sees them.
//!
//! A text with an `enum` stays a `String`, and a text with a `format` too: the values were checked against the schema
//! before any policy sees them, formats are not asserted by JSON Schema, and an entity per value would make every
//! change of a list a change of the types that policies are written in.

use std::collections::BTreeMap;

use cedar_policy_core::ast;
use placet_types::argument_schema::NUMBER_KEYWORD;
use serde_json::{Map, Value};

use crate::{value, vocabulary};

const DEPTH_MAX: usize = 16;
const PROPERTIES_MAX: usize = 256;

/// A Cedar type that a JSON Schema maps to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputType {
    Text,
    Long,
    Flag,
    Decimal,
    Set(Box<InputType>),
    Record(BTreeMap<String, Field>),
}

/// A property of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) of: InputType,
    pub(crate) required: bool,
}

/// The result of typing a tool's argument schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypedInput {
    /// The record type, unless nothing in the schema can be typed.
    pub(crate) of: Option<InputType>,
    /// What was left out, and why.
    pub(crate) lost: Vec<String>,
    /// Places that admit arguments which policies cannot see.
    pub(crate) open: Vec<String>,
}

/// Maps a tool's argument schema.
pub(crate) fn of_schema(schema: &Value) -> TypedInput {
    let mut mapper = Mapper { root: schema, lost: Vec::new(), open: Vec::new(), properties: 0 };
    let of = mapper.map(schema, &mut Vec::new(), 0).map(|(of, _)| of);
    let mut lost = mapper.lost;
    let is_record = matches!(of, Some(InputType::Record(_)));
    if of.is_some() && !is_record {
        lost.push("/: the arguments are not an object".to_owned());
    }
    TypedInput { of: of.filter(|_| is_record), lost, open: mapper.open }
}

struct Mapper<'a> {
    root: &'a Value,
    lost: Vec<String>,
    open: Vec<String>,
    properties: usize,
}

type Path = Vec<String>;

fn place(path: &Path) -> String {
    format!("/{}", path.join("/"))
}

impl<'a> Mapper<'a> {
    fn lose<T>(&mut self, path: &Path, what: &str) -> Option<T> {
        self.lost.push(format!("{}: {what}", place(path)));
        None
    }

    /// The type of a schema, and whether `null` is also admitted.
    fn map(
        &mut self,
        schema: &'a Value,
        path: &mut Path,
        depth: usize,
    ) -> Option<(InputType, bool)> {
        if depth > DEPTH_MAX {
            return self.lose(path, "the schema is nested too deeply or refers to itself");
        }
        let Some(object) = schema.as_object() else {
            return self.lose(path, "the schema admits anything");
        };
        if let Some(reference) = object.get("$ref") {
            let Some(target) = reference.as_str().and_then(|text| self.resolve(text)) else {
                return self.lose(path, "`$ref` leads outside the schema");
            };
            return self.map(target, path, depth.saturating_add(1));
        }
        match type_of(object) {
            TypeWord::One(word, nullable) => {
                self.map_word(word, object, path, depth).map(|of| (of, nullable))
            }
            TypeWord::None => self.map_untyped(object, path, depth),
            TypeWord::Several => self.lose(path, "`type` is a choice"),
        }
    }

    fn resolve(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }

    fn map_word(
        &mut self,
        word: &str,
        object: &'a Map<String, Value>,
        path: &mut Path,
        depth: usize,
    ) -> Option<InputType> {
        match word {
            "string" => Some(InputType::Text),
            "integer" => Some(InputType::Long),
            "boolean" => Some(InputType::Flag),
            "number" => match object.get(NUMBER_KEYWORD).and_then(Value::as_str) {
                Some("long") => Some(InputType::Long),
                Some("decimal") => Some(InputType::Decimal),
                _ if fits_decimal(object) => Some(InputType::Decimal),
                _ => self.lose(
                    path,
                    "`number`, unless the contract maps it with `x-cedar: long` or `x-cedar: decimal`",
                ),
            },
            "array" => self.map_array(object, path, depth),
            "object" => self.map_object(object, path, depth),
            other => {
                let message = format!("`type` `{other}` has no Cedar type");
                self.lose(path, &message)
            }
        }
    }

    fn map_array(
        &mut self,
        object: &'a Map<String, Value>,
        path: &mut Path,
        depth: usize,
    ) -> Option<InputType> {
        if object.contains_key("prefixItems") || object.get("items").is_some_and(Value::is_array) {
            return self.lose(path, "an array with a type for each place");
        }
        let Some(items) = object.get("items") else {
            return self.lose(path, "an array without a type for its items");
        };
        path.push("items".to_owned());
        let before = self.lost.len();
        let item = self.map(items, path, depth.saturating_add(1));
        let of = match item {
            // A set of what is left of the items would have fewer members than the array.
            Some(_) if self.lost.len() > before => None,
            Some((of, false)) => Some(InputType::Set(Box::new(of))),
            Some((_, true)) => self.lose(path, "items that may be `null`"),
            None => None,
        };
        path.pop();
        of
    }

    fn map_object(
        &mut self,
        object: &'a Map<String, Value>,
        path: &mut Path,
        depth: usize,
    ) -> Option<InputType> {
        const BRANCHES: [&str; 10] = [
            "allOf",
            "anyOf",
            "oneOf",
            "if",
            "then",
            "else",
            "dependentSchemas",
            "dependencies",
            "patternProperties",
            "not",
        ];
        let hidden = |key: &&&str| {
            object.get(**key).is_some_and(|branch| **key == "patternProperties" || declares(branch))
        };
        if let Some(key) = BRANCHES.iter().find(hidden) {
            let message = format!("what `{key}` declares");
            let _lost: Option<InputType> = self.lose(path, &message);
        }
        let properties = object.get("properties").and_then(Value::as_object);
        let additional = object.get("additionalProperties");
        let closed = additional == Some(&Value::Bool(false));
        if additional.is_some_and(Value::is_object) {
            let _lost: Option<InputType> = self.lose(path, "what `additionalProperties` admits");
        }
        let Some(properties) =
            properties.filter(|properties| depth == 0 || closed || !properties.is_empty())
        else {
            if depth == 0 {
                self.note_open(closed, path);
                return Some(InputType::Record(BTreeMap::new()));
            }
            return self.lose(path, "an object whose properties are not declared");
        };
        self.note_open(closed, path);
        let required: Vec<&str> = object
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut fields = BTreeMap::new();
        for (name, schema) in properties {
            self.properties = self.properties.saturating_add(1);
            if self.properties > PROPERTIES_MAX {
                return self.lose(path, "more than 256 properties");
            }
            path.push(name.clone());
            if let Some((of, nullable)) = self.map(schema, path, depth.saturating_add(1)) {
                fields.insert(
                    name.clone(),
                    Field { of, required: required.contains(&name.as_str()) && !nullable },
                );
            }
            path.pop();
        }
        Some(InputType::Record(fields))
    }

    fn note_open(&mut self, closed: bool, path: &Path) {
        if !closed {
            self.open.push(place(path));
        }
    }

    /// A schema without `type`: by its values, or by branches that agree.
    fn map_untyped(
        &mut self,
        object: &'a Map<String, Value>,
        path: &mut Path,
        depth: usize,
    ) -> Option<(InputType, bool)> {
        if let Some(values) = object.get("enum").and_then(Value::as_array) {
            return self.map_values(values, path);
        }
        if let Some(value) = object.get("const") {
            return self.map_values(std::slice::from_ref(value), path);
        }
        if object.contains_key("properties") || (depth == 0 && object.is_empty()) {
            return self.map_object(object, path, depth).map(|of| (of, false));
        }
        let Some(branches) = ["anyOf", "oneOf"]
            .into_iter()
            .find_map(|key| object.get(key))
            .and_then(Value::as_array)
        else {
            return self.lose(path, "no `type`");
        };
        let is_null =
            |branch: &&Value| branch.get("type") == Some(&Value::String("null".to_owned()));
        let nullable = branches.iter().any(|branch| is_null(&branch));
        let mut types: Vec<(InputType, bool)> = Vec::new();
        for branch in branches.iter().filter(|branch| !is_null(branch)) {
            types.push(self.map(branch, path, depth.saturating_add(1))?);
        }
        let first = types.first().map(|(of, _)| of.clone());
        match first {
            Some(of) if types.iter().all(|(other, _)| *other == of) => {
                Some((of, nullable || types.iter().any(|(_, nullable)| *nullable)))
            }
            _ => self.lose(path, "a choice between types"),
        }
    }

    fn map_values(&mut self, values: &[Value], path: &Path) -> Option<(InputType, bool)> {
        let nullable = values.iter().any(Value::is_null);
        let mut known = values.iter().filter(|value| !value.is_null()).map(scalar_of);
        let first = known.next().flatten();
        match first {
            Some(of) if known.all(|other| other.as_ref() == Some(&of)) => Some((of, nullable)),
            _ => self.lose(path, "values of several types"),
        }
    }
}

fn scalar_of(value: &Value) -> Option<InputType> {
    match value {
        Value::String(_) => Some(InputType::Text),
        Value::Bool(_) => Some(InputType::Flag),
        Value::Number(_) => integer(value).map(|_| InputType::Long),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether a schema declares properties, at any depth.
fn declares(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.contains_key("properties")
                || object.contains_key("$ref")
                || object.values().any(declares)
        }
        Value::Array(items) => items.iter().any(declares),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

enum TypeWord<'a> {
    None,
    One(&'a str, bool),
    Several,
}

fn type_of(object: &Map<String, Value>) -> TypeWord<'_> {
    match object.get("type") {
        None => TypeWord::None,
        Some(Value::String(word)) => TypeWord::One(word, false),
        Some(Value::Array(words)) => {
            let mut named = words.iter().filter_map(Value::as_str).filter(|word| *word != "null");
            let nullable = words.iter().any(|word| word == "null");
            match (named.next(), named.next()) {
                (Some(word), None) => TypeWord::One(word, nullable),
                _ => TypeWord::Several,
            }
        }
        Some(_) => TypeWord::Several,
    }
}

/// Cedar's `decimal` has four decimal places and a range; only a schema that stays within both is typed as one.
fn fits_decimal(object: &Map<String, Value>) -> bool {
    const DECIMAL_MAX: f64 = 900_000_000_000.0;
    let bound =
        |keys: [&str; 2]| keys.iter().find_map(|key| object.get(*key)).and_then(Value::as_f64);
    let step = object.get("multipleOf").map(Value::to_string);
    step.is_some_and(|step| decimal_text(&step).is_some())
        && bound(["minimum", "exclusiveMinimum"]).is_some_and(|low| low >= -DECIMAL_MAX)
        && bound(["maximum", "exclusiveMaximum"]).is_some_and(|high| high <= DECIMAL_MAX)
}

/// A JSON number's text as Cedar's `decimal` reads it, if it has at most four places and no exponent.
fn decimal_text(text: &str) -> Option<String> {
    if text.contains(['e', 'E']) {
        return None;
    }
    match text.split_once('.') {
        None => Some(format!("{text}.0")),
        Some((_, places)) if places.len() <= 4 => Some(text.to_owned()),
        Some(_) => None,
    }
}

/// Arguments that could not be passed to policy: only where, not their values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the argument at `{pointer}` cannot be put to policy")]
pub(crate) struct InputError {
    pointer: String,
}

/// The arguments as a Cedar value of type `of`.
pub(crate) fn value_of(of: &InputType, args: &Value) -> Result<ast::Value, InputError> {
    value_at(of, args, &mut Vec::new())
}

fn value_at(of: &InputType, value: &Value, path: &mut Path) -> Result<ast::Value, InputError> {
    let misfit = || InputError { pointer: place(path) };
    match of {
        InputType::Text => value.as_str().map(value::text).ok_or_else(misfit),
        InputType::Flag => value.as_bool().map(value::flag).ok_or_else(misfit),
        InputType::Long => integer(value).map(value::long).ok_or_else(misfit),
        InputType::Decimal => {
            let text =
                value.is_number().then(|| value.to_string()).and_then(|text| decimal_text(&text));
            let made = text.and_then(|text| value::made(&vocabulary::decimal_expr(text)).ok());
            made.ok_or_else(misfit)
        }
        InputType::Set(item) => {
            let items = value.as_array().ok_or_else(misfit)?;
            let mut known = Vec::with_capacity(items.len());
            for (index, value) in items.iter().enumerate() {
                path.push(index.to_string());
                known.push(value_at(item, value, path)?);
                path.pop();
            }
            Ok(value::set(known))
        }
        InputType::Record(fields) => {
            let object = value.as_object().ok_or_else(misfit)?;
            let mut known = Vec::with_capacity(fields.len());
            for (name, field) in fields {
                path.push(name.clone());
                match object.get(name).filter(|value| !value.is_null()) {
                    Some(value) => known.push((name.as_str(), value_at(&field.of, value, path)?)),
                    None if field.required => return Err(InputError { pointer: place(path) }),
                    None => {}
                }
                path.pop();
            }
            Ok(value::record(known))
        }
    }
}

/// A whole number, also when written as `1.0`, within the range of `Long`.
fn integer(value: &Value) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    value.as_i64().or_else(|| {
        let double =
            value.as_f64().filter(|double| double.fract() == 0.0 && double.abs() <= EXACT)?;
        format!("{double:.0}").parse().ok()
    })
}

#[cfg(test)]
mod tests;
