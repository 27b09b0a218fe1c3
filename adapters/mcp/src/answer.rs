//! The result of a tool as the engine keeps it.
//!
//! Owns the form `{"content": […], "structured": …, "notes": […]}`, its limits, and the sources it names. Where the result does not fit
//! the schema that its tool declares, `conforms` is false. Invariant: an answer
//! that cannot be kept does not change what is known about the call: it is replaced by a note that says so.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Map, Value, json};

use placet_adapter::outcome::Answer;
use placet_types::{
    argument_schema::ArgumentSchema,
    contract::repeating::COST_META,
    envelope::result::{COST_CENTS_MAX, Citation},
    json::{JsonLimits, check_value},
    text::is_hidden,
};

use crate::text::whole;

/// The most sources of an answer.
const CITATIONS_MAX: usize = 100;
/// The longest address of a source.
const URI_BYTES_MAX: usize = 2_048;

/// How results of one capability are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeping<'a> {
    /// The largest result that is kept.
    pub(crate) bytes_max: u64,
    /// The schema that the contract declares for structured output.
    pub(crate) output_schema: Option<&'a ArgumentSchema>,
}

/// The answer in a result.
pub(crate) fn of_result(result: &CallToolResult, keeping: Keeping<'_>) -> Answer {
    let citations = result.content.iter().filter_map(citation).take(CITATIONS_MAX).collect();
    let failed = result.is_error == Some(true);
    let misfit = keeping.output_schema.filter(|_| !failed).and_then(|one| misfit(result, one));
    let mut notes: Vec<String> = misfit.map(str::to_owned).into_iter().collect();
    let cost_cents = cost_of(result).unwrap_or_else(|note| {
        notes.push(note);
        None
    });
    let whole = output(Some(&result.content), result.structured_content.as_ref(), &notes);
    let mut misses = misfit.is_some();
    let mut output = match keep(&whole, keeping.bytes_max) {
        Ok(kept) => kept,
        Err(why) => without_content(result, &notes, keeping.bytes_max)
            .or_else(|| {
                let kept = without_structured(result, &notes, &why, keeping.bytes_max)?;
                misses |= keeping.output_schema.is_some();
                Some(kept)
            })
            .unwrap_or_else(|| withheld(&why)),
    };
    if let (true, Some(fields)) = (misses, output.as_object_mut()) {
        fields.insert("conforms".to_owned(), Value::Bool(false));
    }
    Answer { output, citations, mutations: Vec::new(), cost_cents }
}

/// The answer in an error that a server reports of a call that changes nothing.
pub(crate) fn of_error(code: i32, message: &str, bytes_max: u64) -> Answer {
    let said = json!({
        "content": [{ "type": "text", "text": message }],
        "error": { "code": code },
    });
    Answer { output: kept_or_withheld(&said, bytes_max), ..Answer::default() }
}

/// The answer that a probe tells as structured content alone.
pub(crate) fn of_structured(structured: &Value, bytes_max: u64) -> Answer {
    let whole = output(None, Some(structured), &[]);
    let output = keep(&whole, bytes_max).unwrap_or_else(|why| withheld(&why));
    Answer { output, ..Answer::default() }
}

/// The answer for a call that happened, if its target does not report the result.
pub(crate) fn of_unknown_content() -> Answer {
    let note = "the target says that it happened, and not with which result".to_owned();
    Answer { output: output(None, None, &[note]), ..Answer::default() }
}

fn output(content: Option<&[ContentBlock]>, structured: Option<&Value>, notes: &[String]) -> Value {
    let mut output = Map::new();
    if let Some(content) = content {
        let blocks = content
            .iter()
            .map(|block| serde_json::to_value(block).unwrap_or(Value::Null))
            .collect();
        output.insert("content".to_owned(), Value::Array(blocks));
    }
    if let Some(structured) = structured {
        output.insert("structured".to_owned(), structured.clone());
    }
    if !notes.is_empty() {
        output.insert("notes".to_owned(), json!(notes));
    }
    Value::Object(output)
}

/// The structured part alone, where the whole is too much: it says the same to a program.
fn without_content(result: &CallToolResult, notes: &[String], bytes_max: u64) -> Option<Value> {
    let structured = result.structured_content.as_ref()?;
    let note = "the unstructured content was left out: the whole result cannot be kept".to_owned();
    let notes = [notes, &[note]].concat();
    keep(&output(None, Some(structured), &notes), bytes_max).ok()
}

/// The content alone, where the structured part is what cannot be kept, such as a number that is not exact.
fn without_structured(
    result: &CallToolResult,
    notes: &[String],
    why: &str,
    bytes_max: u64,
) -> Option<Value> {
    result.structured_content.as_ref()?;
    let notes = [notes, &[format!("the structured content was left out: {why}")]].concat();
    keep(&output(Some(&result.content), None, &notes), bytes_max).ok()
}

fn withheld(why: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": format!("[result withheld: {why}]") }], "withheld": true })
}

/// The content, or a note that it cannot be kept.
pub(crate) fn kept_or_withheld(said: &Value, bytes_max: u64) -> Value {
    keep(said, bytes_max).unwrap_or_else(|why| withheld(&why))
}

fn keep(value: &Value, bytes_max: u64) -> Result<Value, String> {
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let limits = JsonLimits {
        bytes_max,
        depth_max: 64,
        string_bytes_max: bytes_max,
        members_max: 100_000,
        nodes_max: 1_000_000,
    };
    check_value(value, &limits).map_err(|error| whole(&error.to_string()))
}

/// The call's cost as the server reports it, or why the report is not accepted.
fn cost_of(result: &CallToolResult) -> Result<Option<u64>, String> {
    let Some(said) = result.meta.as_ref().and_then(|meta| meta.0.get(COST_META)) else {
        return Ok(None);
    };
    match said.as_u64() {
        Some(cents) if cents <= COST_CENTS_MAX => Ok(Some(cents)),
        Some(_) | None => Err(format!(
            "`{COST_META}` of the result is not a whole number of cents up to {COST_CENTS_MAX}; the cost is that of the contract"
        )),
    }
}

/// Why a result does not have the form that its tool declares.
fn misfit(result: &CallToolResult, schema: &ArgumentSchema) -> Option<&'static str> {
    match &result.structured_content {
        None => Some("the contract declares structured output, the server sent none"),
        Some(structured) => schema
            .validate(structured)
            .is_err()
            .then_some("the structured output does not match the schema in the contract"),
    }
}

fn citation(block: &ContentBlock) -> Option<Citation> {
    let (uri, title) = if let ContentBlock::ResourceLink(link) = block {
        (&link.uri, Some(link.title.as_ref().unwrap_or(&link.name)))
    } else if let ContentBlock::Resource(embedded) = block {
        return source(uri_of(&embedded.resource)?, None);
    } else {
        return None;
    };
    source(uri, title.map(String::as_str))
}

fn uri_of(contents: &ResourceContents) -> Option<&str> {
    match contents {
        ResourceContents::TextResourceContents { uri, .. }
        | ResourceContents::BlobResourceContents { uri, .. } => Some(uri),
        _ => None,
    }
}

fn source(uri: &str, title: Option<&str>) -> Option<Citation> {
    let usable = !uri.is_empty() && uri.len() <= URI_BYTES_MAX && !uri.contains(is_hidden);
    let title = title.filter(|title| !title.is_empty()).map(whole);
    usable.then(|| Citation { uri: uri.to_owned(), title })
}

/// The sources that the contents of a resource are from.
pub(crate) fn sources(contents: &[ResourceContents]) -> Vec<Citation> {
    let found = contents.iter().filter_map(|one| source(uri_of(one)?, None));
    found.take(CITATIONS_MAX).collect()
}
