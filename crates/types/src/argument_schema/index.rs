//! The references of a schema, resolved once.
//!
//! Owns which parts of a document are schemas, where each reference leads, and the limits on both. It does not validate.
//!
//! Invariants: every reference of an indexed schema leads to places inside it. Where a reference could mean several places
//! (dynamic references, the same relative name in two embedded resources) the index holds all of them, because what is built
//! on it may count or hide too much, but never too little.

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

/// Where the references of one schema lead.
pub(super) struct SchemaIndex {
    targets: BTreeMap<String, BTreeSet<String>>,
    /// There is anything to hide at all.
    pub(super) marks_sensitive: bool,
    /// A schema pointer of the validator is one into the whole document.
    pub(super) is_one_resource: bool,
}

impl SchemaIndex {
    pub(super) fn build(root: &Value) -> Result<Self, SchemaError> {
        let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let mut survey = Survey { dialect: dialect.to_owned(), ..Survey::default() };
        survey.visit_all(root, vec![Place::default()])?;
        let mut targets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut resolved = 0;
        while let Some(reference) = survey.references.get(resolved).cloned() {
            resolved = resolved.saturating_add(1);
            let found = survey.resolve(root, &reference)?;
            let places = found.iter().map(|pointer| survey.place_of(pointer)).collect();
            targets.entry(reference.text).or_default().extend(found);
            survey.visit_all(root, places)?;
        }
        survey.check_ends(&targets)?;
        let places: BTreeSet<&String> = targets.values().flatten().collect();
        if places.len().saturating_add(1).saturating_mul(survey.nesting) > REACH_MAX {
            return Err(SchemaError::TooComplex { what: "nested references", max: REACH_MAX });
        }
        Ok(Self {
            targets,
            marks_sensitive: survey.marks_sensitive,
            is_one_resource: survey.resources.iter().all(|(_, pointer)| pointer.is_empty()),
        })
    }

    /// The schemas that a reference may stand for.
    pub(super) fn targets<'s>(
        &self,
        root: &'s Value,
        reference: &str,
    ) -> impl Iterator<Item = &'s Value> {
        self.targets
            .get(reference)
            .into_iter()
            .flatten()
            .filter_map(|pointer| root.pointer(pointer))
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
                open.extend(self.targets(root, reference));
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
    /// The pointer of the resource it belongs to: the innermost schema around it with an identifier.
    resource: String,
    nesting: usize,
}

#[derive(Debug, Clone)]
struct Reference {
    place: Place,
    text: String,
    dynamic: bool,
}

#[derive(Default)]
struct Survey {
    /// What the root's `$schema` says, or nothing.
    dialect: String,
    visited: BTreeSet<String>,
    /// Identifiers without fragment, and the pointer of their resource.
    resources: Vec<(String, String)>,
    /// Resource, name, pointer.
    anchors: BTreeSet<(String, String, String)>,
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
        mut place: Place,
        open: &mut Vec<Place>,
    ) -> Result<(), SchemaError> {
        let text = |keyword: &str| keywords.get(keyword).and_then(Value::as_str);
        if let Some(dialect) = text("$schema") {
            self.check_dialect(dialect, &place)?;
        }
        // Until draft 7 a reference hides everything beside it.
        let is_hidden = self.dialect.contains("/draft-0") && keywords.contains_key("$ref");
        let identifier = if self.dialect.contains("/draft-04/") { text("id") } else { text("$id") };
        if let Some(identifier) = identifier.filter(|_| !is_hidden) {
            self.identify(identifier, &mut place);
        }
        for anchor in [text("$anchor"), text("$dynamicAnchor")].into_iter().flatten() {
            self.anchors.insert((place.resource.clone(), anchor.to_owned(), place.pointer.clone()));
        }
        for (keyword, dynamic) in [("$ref", false), ("$dynamicRef", true), ("$recursiveRef", true)]
        {
            if let Some(text) = text(keyword) {
                self.references.push(Reference {
                    place: place.clone(),
                    text: text.to_owned(),
                    dynamic,
                });
            }
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
            open.push(Place {
                pointer,
                resource: place.resource.clone(),
                nesting: place.nesting.saturating_add(1),
            });
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
    fn check_ends(&self, targets: &BTreeMap<String, BTreeSet<String>>) -> Result<(), SchemaError> {
        let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in &self.same_value {
            next.entry(from).or_default().extend(to.iter().map(String::as_str));
        }
        for reference in &self.references {
            let to = targets.get(&reference.text).into_iter().flatten().map(String::as_str);
            next.entry(&reference.place.pointer).or_default().extend(to);
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

    fn identify(&mut self, identifier: &str, place: &mut Place) {
        let (document, fragment) = identifier.split_once('#').unwrap_or((identifier, ""));
        if !document.is_empty() {
            place.resource.clone_from(&place.pointer);
            self.resources.push((document.to_owned(), place.pointer.clone()));
        }
        // Drafts 6 and 7 write an anchor as an identifier.
        if !fragment.is_empty() {
            self.anchors.insert((
                place.resource.clone(),
                fragment.to_owned(),
                place.pointer.clone(),
            ));
        }
    }

    /// The place of a referenced pointer; it may lie where no keyword leads.
    fn place_of(&self, pointer: &str) -> Place {
        let around = |resource: &&String| {
            pointer == resource.as_str() || pointer.starts_with(&format!("{resource}/"))
        };
        let resource = self
            .resources
            .iter()
            .map(|(_, resource)| resource)
            .filter(around)
            .max_by_key(|r| r.len());
        Place {
            pointer: pointer.to_owned(),
            resource: resource.cloned().unwrap_or_default(),
            nesting: 1,
        }
    }

    fn resolve(
        &self,
        root: &Value,
        reference: &Reference,
    ) -> Result<BTreeSet<String>, SchemaError> {
        let (document, fragment) = reference.text.split_once('#').unwrap_or((&reference.text, ""));
        let mut resources = BTreeSet::new();
        if document.is_empty() {
            resources.insert(reference.place.resource.clone());
        }
        if document.is_empty() && reference.dynamic {
            resources.insert(String::new());
            resources.extend(self.resources.iter().map(|(_, pointer)| pointer.clone()));
        }
        let named =
            self.resources.iter().filter(|(identifier, _)| same_document(identifier, document));
        resources.extend(named.map(|(_, pointer)| pointer.clone()));
        if resources.is_empty() {
            return Err(SchemaError::ExternalReference {
                pointer: reference.place.pointer.clone(),
                reference: clip(&reference.text, 64),
            });
        }
        let found: BTreeSet<String> = resources
            .iter()
            .flat_map(|resource| self.resolve_fragment(root, resource, fragment))
            .collect();
        if found.is_empty() {
            return Err(SchemaError::UnresolvedReference {
                pointer: reference.place.pointer.clone(),
                reference: clip(&reference.text, 64),
            });
        }
        Ok(found)
    }

    fn resolve_fragment(&self, root: &Value, resource: &str, fragment: &str) -> Vec<String> {
        let Some(fragment) = percent_decode(fragment) else { return Vec::new() };
        if fragment.is_empty() || fragment.starts_with('/') {
            let pointer = format!("{resource}{fragment}");
            return if root.pointer(&pointer).is_some() { vec![pointer] } else { Vec::new() };
        }
        let here = self.anchors.iter().filter(|(of, name, _)| of == resource && *name == fragment);
        here.map(|(_, _, pointer)| pointer.clone()).collect()
    }
}

/// Whether a reference may mean the resource with this identifier. Relative forms count when their ends are the same: the
/// validator decides which base applies, and it cannot fetch anything.
fn same_document(identifier: &str, document: &str) -> bool {
    let ends_with = |long: &str, short: &str| {
        let short = short.trim_start_matches("./").trim_start_matches('/');
        !short.is_empty() && long.strip_suffix(short).is_some_and(|rest| rest.ends_with('/'))
    };
    let is_absolute = |uri: &str| uri.contains(':');
    !document.is_empty()
        && (identifier == document
            || (!is_absolute(document) && ends_with(identifier, document))
            || (!is_absolute(identifier) && ends_with(document, identifier)))
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
