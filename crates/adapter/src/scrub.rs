//! The removal of secrets from the answers of targets.
//!
//! Owns the forms in which a secret is found: plain, in a JSON string, percent-encoded as in URLs and forms, and in Base64 of either
//! alphabet, with any surrounding bytes. The end of a token is enough, so that thousands of them can be searched for. Other encodings
//! are not found: this protects against careless tools, not against malicious ones. Does not know any secret itself.
//! Invariants: the work is linear in the text; what cannot be searched is removed as a whole; no searched value can be printed.

use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::outcome::{AdapterError, Answer};

/// The replacement for a secret.
pub const REMOVED: &str = "[secret removed]";
/// Shorter values are not searched for: they occur in texts by chance.
const BYTES_MIN: usize = 6;
/// Lines of a longer secret, such as a key, are searched for one by one from this length on.
const LINE_BYTES_MIN: usize = 16;
/// How much of a token's end is searched for.
const END_BYTES_MAX: usize = 32;
/// The most bytes that one byte of a secret takes in any of the forms.
const BYTES_PER_BYTE_MAX: usize = 4;
/// What URLs and forms leave unencoded besides letters and digits, and how they encode a space: RFC 3986, a path (Python's `quote`),
/// `encodeURIComponent`, `encodeURI`, HTML.
const IN_URLS: [(&[u8], &str); 5] = [
    (b"-._~", "%20"),
    (b"-._~/", "%20"),
    (b"-._~!*'()", "%20"),
    (b"-._~!*'();/?:@&=+$,#", "%20"),
    (b"-._*", "+"),
];

/// The values to search for. Clones share them.
#[derive(Clone, Default)]
pub struct Scrub {
    finders: Vec<Arc<Finder>>,
    longest: usize,
    /// Whether a value may occur in JSON as a number.
    has_number: bool,
}

impl fmt::Debug for Scrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrub").finish_non_exhaustive()
    }
}

impl Scrub {
    /// A scrub for these values.
    pub fn of<'a>(values: impl IntoIterator<Item = &'a SecretString>) -> Self {
        let mut parts: Vec<&str> = Vec::new();
        for value in values {
            let value = value.expose_secret();
            let lines = value.lines().map(str::trim);
            let lines = lines.filter(|line| line.len() >= LINE_BYTES_MIN && !line.starts_with('-'));
            parts.extend(lines.chain([value]).filter(|part| part.len() >= BYTES_MIN));
        }
        Self::default().and(&parts, Found::Itself)
    }

    /// A scrub that also searches for these tokens. It shares this one's values without preparing them again. The end of a token is
    /// enough to find it; the whole word is removed.
    pub fn and_tokens<'a>(&self, tokens: impl IntoIterator<Item = &'a SecretString>) -> Self {
        let tokens = tokens.into_iter().map(|token| token.expose_secret());
        let tokens = tokens.filter(|token| token.len() >= BYTES_MIN);
        let (words, others): (Vec<&str>, Vec<&str>) =
            tokens.partition(|token| token.trim_end_matches('=').bytes().all(is_in_word));
        self.and(&words, Found::InWord).and(&others, Found::Itself)
    }

    fn and(&self, parts: &[&str], found: Found) -> Self {
        let Some(longest) = parts.iter().map(|part| part.len()).max() else { return self.clone() };
        let is_number =
            |part: &&str| part.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
        let finder = Arc::new(Finder::of(parts, found));
        Self {
            finders: self.finders.iter().cloned().chain([finder]).collect(),
            longest: self.longest.max(longest),
            has_number: self.has_number || parts.iter().any(is_number),
        }
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.finders.is_empty()
    }

    /// The text without the secrets in it.
    pub fn text(&self, text: String) -> String {
        match self.found(&text) {
            Some(spans) if spans.is_empty() => text,
            Some(spans) => without(&text, &spans, text.len()),
            None => REMOVED.to_owned(),
        }
    }

    /// How many bytes of a text are needed so that the secrets that begin in its first `bytes_max` bytes are whole.
    pub fn bytes_needed(&self, bytes_max: usize) -> usize {
        bytes_max.saturating_add(self.longest.saturating_mul(BYTES_PER_BYTE_MAX))
    }

    /// The first `bytes_max` bytes of the text without the secrets that begin there, also where they go on behind it.
    pub fn beginning(&self, text: &str, bytes_max: usize) -> String {
        match self.found(text) {
            Some(spans) => without(text, &spans, bytes_max),
            None => REMOVED.to_owned(),
        }
    }

    /// A document without the secrets in its texts and names.
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => Value::Object(
                fields
                    .into_iter()
                    .map(|(name, value)| (self.text(name), self.value(value)))
                    .collect(),
            ),
            Value::Number(number) if self.has_number => {
                let text = number.to_string();
                let scrubbed = self.text(text.clone());
                if scrubbed == text { Value::Number(number) } else { Value::String(scrubbed) }
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// An answer without them.
    pub fn answer(&self, answer: Answer) -> Answer {
        if self.is_empty() {
            return answer;
        }
        let Answer { output, mut citations, mut mutations, cost_cents } = answer;
        for citation in &mut citations {
            citation.uri = self.text(std::mem::take(&mut citation.uri));
            citation.title = citation.title.take().map(|title| self.text(title));
        }
        for mutation in &mut mutations {
            mutation.action = self.text(std::mem::take(&mut mutation.action));
            mutation.target = self.text(std::mem::take(&mut mutation.target));
        }
        Answer { output: self.value(output), citations, mutations, cost_cents }
    }

    /// An error without them.
    pub fn error(&self, error: AdapterError) -> AdapterError {
        error.map_text(|text| self.text(text))
    }

    /// The places of secrets in the text, ordered and disjoint; `None` if they cannot be determined.
    fn found(&self, text: &str) -> Option<Vec<Range<usize>>> {
        let mut spans = Vec::new();
        for finder in &self.finders {
            finder.find(text.as_bytes(), &mut spans)?;
        }
        spans.sort_unstable_by_key(|span| (span.start, span.end));
        let mut merged: Vec<Range<usize>> = Vec::new();
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                Some(_) | None => merged.push(span),
            }
        }
        Some(merged)
    }
}

/// How much is removed at a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The match itself.
    Itself,
    /// The whole word that it is in: the rest of a token, and digits of Base64 that hold bits of two bytes.
    InWord,
}

/// Searches for some values in all their forms.
struct Finder {
    /// `None` if there is too much to search for: no text can be called clean then.
    automaton: Option<AhoCorasick>,
    /// Indexed by pattern.
    found: Vec<Found>,
}

impl Finder {
    fn of(parts: &[&str], found: Found) -> Self {
        let mut patterns: BTreeMap<String, Found> = BTreeMap::new();
        let start = |length: usize| match found {
            Found::Itself => 0,
            Found::InWord => length.saturating_sub(END_BYTES_MAX),
        };
        for part in parts {
            // Of a long token, only the end is written in all forms.
            let end = part.get(part.ceil_char_boundary(start(part.len()))..).unwrap_or_default();
            for form in written(end) {
                let at = form.ceil_char_boundary(start(form.len()));
                patterns.insert(form.get(at..).unwrap_or_default().to_owned(), found);
            }
            patterns.extend(in_base64(end.as_bytes()).map(|form| (form, Found::InWord)));
        }
        let (patterns, found): (Vec<String>, Vec<Found>) = patterns.into_iter().unzip();
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        Self { automaton: AhoCorasick::builder().kind(kind).build(patterns).ok(), found }
    }

    /// Adds the places of matches in the text; `None` if they cannot be determined.
    fn find(&self, text: &[u8], spans: &mut Vec<Range<usize>>) -> Option<()> {
        let mut word = 0..0;
        for hit in self.automaton.as_ref()?.find_overlapping_iter(text) {
            // A word is scanned once, however many matches it contains.
            if word.start <= hit.start() && hit.end() <= word.end {
                continue;
            }
            match self.found.get(hit.pattern().as_usize()) {
                Some(Found::InWord) => {
                    word = word_around(text, hit.range());
                    spans.push(word.clone());
                }
                Some(Found::Itself) | None => spans.push(hit.range()),
            }
        }
        Some(())
    }
}

/// A text as it is, in a JSON string, and as in URLs and forms.
fn written(text: &str) -> impl Iterator<Item = String> {
    let quoted = Value::from(text).to_string();
    let quoted = quoted.trim_matches('"').to_owned();
    let in_urls = IN_URLS.into_iter().flat_map(|(kept, space)| {
        [false, true].map(|is_upper| {
            let encoded = text.bytes().map(|byte| match byte {
                b' ' => space.to_owned(),
                _ if byte.is_ascii_alphanumeric() || kept.contains(&byte) => {
                    char::from(byte).to_string()
                }
                _ if is_upper => format!("%{byte:02X}"),
                _ => format!("%{byte:02x}"),
            });
            encoded.collect()
        })
    });
    let with_slashes = quoted.replace('/', "\\/");
    [text.to_owned(), quoted, with_slashes].into_iter().chain(in_urls)
}

/// The Base64 digits that depend on these bytes alone, in either alphabet, at every alignment.
fn in_base64(bytes: &[u8]) -> impl Iterator<Item = String> {
    [0_usize, 1, 2].into_iter().flat_map(move |before| {
        let whole = [vec![0; before], bytes.to_vec()].concat();
        let first = before.saturating_mul(8).div_ceil(6);
        let end = whole.len().saturating_mul(8) / 6;
        [STANDARD_NO_PAD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)]
            .map(|digits| digits.get(first..end).unwrap_or_default().to_owned())
    })
}

/// The characters of a token, or of an encoding of one, except padding.
fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/%".contains(&byte)
}

/// The word around a part of a text: all adjacent characters of a token or an encoding of one, and the padding after it.
fn word_around(text: &[u8], part: Range<usize>) -> Range<usize> {
    let goes_on = |byte: &&u8| is_in_word(**byte);
    let (before, after) = (text.get(..part.start), text.get(part.end..));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let start = part.start.saturating_sub(before.iter().rev().take_while(goes_on).count());
    let end = part.end.saturating_add(after.iter().take_while(goes_on).count());
    let padding = text.get(end..).unwrap_or_default().iter().take_while(|byte| **byte == b'=');
    start..end.saturating_add(padding.count())
}

/// The first `bytes_max` bytes of a text with these spans replaced.
fn without(text: &str, spans: &[Range<usize>], bytes_max: usize) -> String {
    let whole = |at: usize| text.floor_char_boundary(at.min(text.len()));
    let limit = whole(bytes_max);
    let (mut kept, mut at) = (String::with_capacity(limit), 0);
    for span in spans.iter().filter(|span| span.start < limit) {
        kept.push_str(text.get(at..whole(span.start)).unwrap_or_default());
        kept.push_str(REMOVED);
        at = text.ceil_char_boundary(span.end);
    }
    kept.push_str(text.get(at..limit).unwrap_or_default());
    kept
}

#[cfg(test)]
mod tests;
