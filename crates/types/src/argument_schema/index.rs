//! The references of a schema, resolved once.
//!
//! Owns which parts of a document are schemas, where each reference leads, and the limits on both. It does not validate.
//!
//! Invariant: every reference of an indexed schema leads to a place inside it, by a JSON Pointer from its root. What would make a reference
//! mean something else (dynamic references, identifiers of embedded schemas) is refused. An `$anchor` may stand there, but no reference may use its
//! name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::SchemaError;
use crate::json::clip;

/// Nesting of schemas, not of JSON: compiling recurses several frames for each.
const NESTING_MAX: usize = 24;
const REFERENCES_MAX: usize = 2048;
const PATTERNS_MAX: usize = 256;
/// Referenced places times nesting: what compiling a chain of references may recurse.
const REACH_MAX: usize = 4096;

const DIALECTS: [&str; 5] = [
    "json-schema.org/draft-04/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema",
];

/// The keywords whose schemas look at the value that their own schema looks at.
const SAME_VALUE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];

/// What is not supported: references that depend on more than the place they lead to.
const REFUSED: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$dynamicAnchor"];

/// Where the references of one schema lead.
pub(super) struct SchemaIndex {
    targets: BTreeMap<String, String>,
    /// There is anything to hide at all.
    pub(super) marks_sensitive: bool,
}

impl SchemaIndex {
    pub(super) fn build(root: &Value) -> Result<Self, SchemaError> {
        let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let mut survey = Survey { dialect: dialect.to_owned(), ..Survey::default() };
        survey.visit_all(root, vec![Place::default()])?;
        let mut targets = BTreeMap::new();
        let mut resolved = 0;
        while let Some(reference) = survey.references.get(resolved).cloned() {
            resolved = resolved.saturating_add(1);
            let pointer = resolve(root, &reference)?;
            targets.insert(reference.text, pointer.clone());
            // It may lie where no keyword leads.
            survey.visit_all(root, vec![Place { pointer, nesting: 1 }])?;
        }
        survey.check_ends(&targets)?;
        let places: BTreeSet<&String> = targets.values().collect();
        if places.len().saturating_add(1).saturating_mul(survey.nesting) > REACH_MAX {
            return Err(SchemaError::TooComplex { what: "nested references", max: REACH_MAX });
        }
        Ok(Self { targets, marks_sensitive: survey.marks_sensitive })
    }

    /// The schema that a reference stands for.
    pub(super) fn target<'s>(&self, root: &'s Value, reference: &str) -> Option<&'s Value> {
        root.pointer(self.targets.get(reference)?)
    }

    /// Whether an object could satisfy the schema, as far as its outermost keywords tell.
    pub(super) fn accepts_objects(&self, root: &Value) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![root];
        while let Some(schema) = open.pop() {
            if !seen.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            let Some(keywords) = schema.as_object() else {
                if schema == &Value::Bool(true) {
                    continue;
                }
                return false;
            };
            if !keywords_accept_objects(keywords) {
                return false;
            }
            if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
                open.extend(self.target(root, reference));
            }
            open.extend(keywords.get("allOf").and_then(Value::as_array).into_iter().flatten());
        }
        true
    }
}

fn keywords_accept_objects(keywords: &Map<String, Value>) -> bool {
    let by_type = match keywords.get("type") {
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        _ => true,
    };
    let by_value = keywords.get("const").is_none_or(Value::is_object)
        && keywords
            .get("enum")
            .and_then(Value::as_array)
            .is_none_or(|options| options.iter().any(Value::is_object));
    by_type && by_value
}

/// A schema in the document.
#[derive(Debug, Clone, Default)]
struct Place {
    pointer: String,
    nesting: usize,
}

#[derive(Debug, Clone)]
struct Reference {
    pointer: String,
    text: String,
}

#[derive(Default)]
struct Survey {
    /// What the root's `$schema` says, or nothing.
    dialect: String,
    visited: BTreeSet<String>,
    references: Vec<Reference>,
    /// Schemas inside a schema that look at the same value.
    same_value: BTreeMap<String, Vec<String>>,
    patterns: usize,
    nesting: usize,
    marks_sensitive: bool,
}

impl Survey {
    fn visit_all(&mut self, root: &Value, mut open: Vec<Place>) -> Result<(), SchemaError> {
        while let Some(place) = open.pop() {
            if place.nesting > NESTING_MAX {
                return Err(SchemaError::TooComplex { what: "nested schemas", max: NESTING_MAX });
            }
            if !self.visited.insert(place.pointer.clone()) {
                continue;
            }
            self.nesting = self.nesting.max(place.nesting);
            if let Some(keywords) = root.pointer(&place.pointer).and_then(Value::as_object) {
                self.visit(keywords, place, &mut open)?;
            }
        }
        Ok(())
    }

    fn visit(
        &mut self,
        keywords: &Map<String, Value>,
        place: Place,
        open: &mut Vec<Place>,
    ) -> Result<(), SchemaError> {
        let text = |keyword: &str| keywords.get(keyword).and_then(Value::as_str);
        if let Some(dialect) = text("$schema") {
            self.check_dialect(dialect, &place)?;
        }
        let identifier = identifier_in(&self.dialect);
        let embedded = (!place.pointer.is_empty()).then_some(identifier);
        let refused = REFUSED.into_iter().chain(embedded).find(|keyword| text(keyword).is_some());
        if let Some(keyword) = refused {
            return Err(SchemaError::Unsupported { pointer: place.pointer, keyword });
        }
        if let Some(text) = text("$ref") {
            let (pointer, text) = (place.pointer.clone(), text.to_owned());
            self.references.push(Reference { pointer, text });
        }
        if self.references.len() > REFERENCES_MAX {
            return Err(SchemaError::TooComplex { what: "references", max: REFERENCES_MAX });
        }
        let pattern_properties =
            keywords.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        self.patterns = self
            .patterns
            .saturating_add(pattern_properties)
            .saturating_add(usize::from(keywords.contains_key("pattern")));
        if self.patterns > PATTERNS_MAX {
            return Err(SchemaError::TooComplex { what: "patterns", max: PATTERNS_MAX });
        }
        self.marks_sensitive |= is_sensitive(keywords);
        for (tokens, _) in subschemas(keywords) {
            let pointer = format!("{}{tokens}", place.pointer);
            let keyword = tokens.split('/').nth(1).unwrap_or_default();
            if SAME_VALUE.contains(&keyword) {
                self.same_value.entry(place.pointer.clone()).or_default().push(pointer.clone());
            }
            open.push(Place { pointer, nesting: place.nesting.saturating_add(1) });
        }
        Ok(())
    }

    fn check_dialect(&self, dialect: &str, place: &Place) -> Result<(), SchemaError> {
        if dialect != self.dialect {
            let problem = "a schema inside another may not change its dialect".to_owned();
            return Err(SchemaError::Invalid { pointer: place.pointer.clone(), problem });
        }
        let name = dialect.strip_suffix('#').unwrap_or(dialect);
        let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://"));
        if name.is_some_and(|name| DIALECTS.contains(&name)) {
            return Ok(());
        }
        Err(SchemaError::UnknownDialect { dialect: clip(dialect, 64) })
    }

    /// Refuses circles of schemas that look at the same value.
    fn check_ends(&self, targets: &BTreeMap<String, String>) -> Result<(), SchemaError> {
        let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in &self.same_value {
            next.entry(from).or_default().extend(to.iter().map(String::as_str));
        }
        for reference in &self.references {
            let to = targets.get(&reference.text).map(String::as_str);
            next.entry(&reference.pointer).or_default().extend(to);
        }
        // What leads nowhere is taken away until nothing changes; what is left leads round.
        let mut waiting: BTreeMap<&str, usize> =
            next.iter().map(|(from, to)| (*from, to.len())).collect();
        let mut before: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut ended: Vec<&str> = Vec::new();
        for (from, to) in &next {
            for to in to {
                before.entry(to).or_default().push(from);
                if !next.contains_key(to) {
                    ended.push(to);
                }
            }
        }
        ended.sort_unstable();
        ended.dedup();
        while let Some(schema) = ended.pop() {
            waiting.remove(schema);
            for from in before.get(schema).into_iter().flatten() {
                if let Some(count) = waiting.get_mut(from) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        ended.push(from);
                    }
                }
            }
        }
        match waiting.keys().next() {
            Some(pointer) => Err(SchemaError::EndlessReference { pointer: (*pointer).to_owned() }),
            None => Ok(()),
        }
    }
}

/// The keyword that gives a schema a name.
fn identifier_in(dialect: &str) -> &'static str {
    if dialect.contains("/draft-04/") { "id" } else { "$id" }
}

/// Where a reference leads, as a pointer from the root.
fn resolve(root: &Value, reference: &Reference) -> Result<String, SchemaError> {
    let shown = || (reference.pointer.clone(), clip(&reference.text, 64));
    let (document, fragment) = reference.text.split_once('#').unwrap_or((&reference.text, ""));
    let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let own = root.get(identifier_in(dialect)).and_then(Value::as_str);
    let own = own.map(|own| own.trim_end_matches('#'));
    if !document.is_empty() && own != Some(document) {
        let (pointer, reference) = shown();
        return Err(SchemaError::ExternalReference { pointer, reference });
    }
    let found = percent_decode(fragment)
        .filter(|pointer| pointer.is_empty() || pointer.starts_with('/'))
        .filter(|pointer| root.pointer(pointer).is_some());
    found.ok_or_else(|| {
        let (pointer, reference) = shown();
        SchemaError::UnresolvedReference { pointer, reference }
    })
}

fn percent_decode(fragment: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = fragment.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            bytes.extend(hex::decode(digits).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Whether a schema says that what it describes must not be shown or recorded.
pub(super) fn is_sensitive(keywords: &Map<String, Value>) -> bool {
    let marked = keywords.get("x-sensitive").is_some_and(|mark| mark != &Value::Bool(false));
    marked || keywords.get("format").is_some_and(|format| format == "password")
}

/// The schemas directly inside a schema, with the reference tokens that lead to them.
fn subschemas(keywords: &Map<String, Value>) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (keyword, value) in keywords {
        match keyword.as_str() {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies" => {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    found.push((format!("/{keyword}{}", token(name)), schema));
                }
            }
            "items" | "allOf" | "anyOf" | "oneOf" | "prefixItems" if value.is_array() => {
                for (position, schema) in value.as_array().into_iter().flatten().enumerate() {
                    found.push((format!("/{keyword}/{position}"), schema));
                }
            }
            "items"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contentSchema" => {
                found.push((format!("/{keyword}"), value));
            }
            _ => {}
        }
    }
    found
}

/// A reference token with its slash, in full length.
pub(super) fn token(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}
