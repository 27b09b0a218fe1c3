//! The inspection of a schema before it is compiled: its references, its size, its marks.
//!
//! Owns which parts of a document are schemas, where a reference leads, and the limits on both. It does not validate.
//!
//! Invariant: every reference of an accepted schema leads to a place inside it, by a JSON Pointer from its root. What would give a
//! reference another meaning (dynamic references, identifiers of embedded schemas) is refused. An `$anchor` may occur, but no reference may
//! use its name.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::SchemaError;
use crate::{
    json::{clip, token},
    text::percent_decoded,
};

/// Nesting of schemas, not of JSON: compiling recurses several frames for each.
const NESTING_MAX: usize = 24;
const REFERENCES_MAX: usize = 2048;
const PATTERNS_MAX: usize = 256;
/// The most referenced places times nesting: the recursion that compiling a chain of references may need.
const REACH_MAX: usize = 4096;
/// The most bytes shown of a text from the schema.
const SHOWN_BYTES_MAX: usize = 64;

const DIALECTS: [&str; 5] = [
    "json-schema.org/draft-04/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema",
];

/// Unsupported keywords: references that depend on more than the place they lead to.
const REFUSED: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$dynamicAnchor"];

/// Checks a schema, and returns whether it marks anything as sensitive.
pub(super) fn survey(root: &Value) -> Result<bool, SchemaError> {
    let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let mut survey = Survey {
        root,
        dialect,
        identifier: if dialect.contains("/draft-04/") { "id" } else { "$id" },
        open: VecDeque::from([(String::new(), 0)]),
        targets: BTreeSet::new(),
        references: 0,
        patterns: 0,
        marks_sensitive: false,
    };
    let mut visited = BTreeSet::new();
    let mut nesting_most = 0;
    while let Some((pointer, nesting)) = survey.open.pop_back() {
        if nesting > NESTING_MAX {
            return Err(too_many("nested schemas", NESTING_MAX));
        }
        if !visited.insert(pointer.clone()) {
            continue;
        }
        nesting_most = nesting_most.max(nesting);
        if let Some(keywords) = root.pointer(&pointer).and_then(Value::as_object) {
            survey.visit(keywords, &pointer, nesting)?;
        }
    }
    if survey.targets.len().saturating_add(1).saturating_mul(nesting_most) > REACH_MAX {
        return Err(too_many("nested references", REACH_MAX));
    }
    Ok(survey.marks_sensitive)
}

struct Survey<'s> {
    root: &'s Value,
    /// The root's `$schema`, or empty.
    dialect: &'s str,
    /// The keyword that gives a schema a name.
    identifier: &'static str,
    /// Pointers to the schemas still to visit, with their nesting. Referenced ones come last, as they may be where no keyword leads.
    open: VecDeque<(String, usize)>,
    targets: BTreeSet<String>,
    references: usize,
    patterns: usize,
    marks_sensitive: bool,
}

impl Survey<'_> {
    fn visit(
        &mut self,
        keywords: &Map<String, Value>,
        pointer: &str,
        nesting: usize,
    ) -> Result<(), SchemaError> {
        let text = |keyword: &str| keywords.get(keyword).and_then(Value::as_str);
        if let Some(dialect) = text("$schema") {
            self.check_dialect(dialect, pointer)?;
        }
        let embedded = (!pointer.is_empty()).then_some(self.identifier);
        let refused = REFUSED.into_iter().chain(embedded).find(|keyword| text(keyword).is_some());
        if let Some(keyword) = refused {
            let problem = format!(
                "has `{keyword}`, which is not supported: refer to parts of the schema as `#/…`"
            );
            return Err(SchemaError::at(pointer, problem));
        }
        if let Some(reference) = text("$ref") {
            let target = self.resolve(reference, pointer)?;
            self.open.push_front((target.clone(), 1));
            self.targets.insert(target);
            self.references = self.references.saturating_add(1);
        }
        let named = keywords.get("patternProperties").and_then(Value::as_object);
        let patterns = named.map_or(0, Map::len);
        let own = usize::from(keywords.contains_key("pattern"));
        self.patterns = self.patterns.saturating_add(patterns).saturating_add(own);
        if self.references > REFERENCES_MAX {
            return Err(too_many("references", REFERENCES_MAX));
        }
        if self.patterns > PATTERNS_MAX {
            return Err(too_many("patterns", PATTERNS_MAX));
        }
        self.marks_sensitive |= is_sensitive(keywords);
        let inner = subschemas(keywords).into_iter();
        let nesting = nesting.saturating_add(1);
        self.open.extend(inner.map(|tokens| (format!("{pointer}{tokens}"), nesting)));
        Ok(())
    }

    fn check_dialect(&self, dialect: &str, pointer: &str) -> Result<(), SchemaError> {
        if dialect != self.dialect {
            return Err(SchemaError::at(pointer, "changes the dialect, which only the root says"));
        }
        let name = dialect.strip_suffix('#').unwrap_or(dialect);
        let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://"));
        if name.is_some_and(|name| DIALECTS.contains(&name)) {
            return Ok(());
        }
        let shown = clip(dialect, SHOWN_BYTES_MAX);
        let problem =
            format!("has the unknown dialect `{shown}`: use draft 4, 6, 7, 2019-09 or 2020-12");
        Err(SchemaError::at(pointer, problem))
    }

    /// The target of a reference, as a pointer from the root.
    fn resolve(&self, reference: &str, pointer: &str) -> Result<String, SchemaError> {
        let shown = clip(reference, SHOWN_BYTES_MAX);
        let document = reference.split_once('#').map_or(reference, |(document, _)| document);
        let own = self.root.get(self.identifier).and_then(Value::as_str);
        if !document.is_empty() && own.map(|own| own.trim_end_matches('#')) != Some(document) {
            let problem = format!("refers to `{shown}`, a schema may refer only to itself");
            return Err(SchemaError::at(pointer, problem));
        }
        let place = place_of(reference).filter(|place| self.root.pointer(place).is_some());
        place.ok_or_else(|| {
            SchemaError::at(pointer, format!("refers to `{shown}`, which is not in the schema"))
        })
    }
}

/// The schema that a reference stands for.
pub(super) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    root.pointer(&place_of(reference)?)
}

/// The fragment of a reference, as a pointer.
fn place_of(reference: &str) -> Option<String> {
    percent_decoded(reference.split_once('#').map_or("", |(_, fragment)| fragment))
}

fn too_many(what: &str, max: usize) -> SchemaError {
    SchemaError::at("", format!("has too many {what}, at most {max} are accepted"))
}

/// Whether a schema marks its values as not to be shown or recorded.
pub(crate) fn is_sensitive(keywords: &Map<String, Value>) -> bool {
    let marked = keywords.get("x-sensitive").is_some_and(|mark| mark != &Value::Bool(false));
    marked || keywords.get("format").is_some_and(|format| format == "password")
}

/// The reference tokens that lead to the schemas directly inside a schema.
fn subschemas(keywords: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    for (keyword, value) in keywords {
        match keyword.as_str() {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies" => {
                let names = value.as_object().into_iter().flat_map(Map::keys);
                found.extend(names.map(|name| format!("/{keyword}{}", token(name))));
            }
            "items" | "allOf" | "anyOf" | "oneOf" | "prefixItems" if value.is_array() => {
                let schemas = value.as_array().into_iter().flatten().enumerate();
                found.extend(schemas.map(|(position, _)| format!("/{keyword}/{position}")));
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
            | "contentSchema" => found.push(format!("/{keyword}")),
            _ => {}
        }
    }
    found
}
