//! The removal of secrets from what others say.
//!
//! Owns the forms in which a value is found again: as it is, escaped as JSON does it, percent-encoded, in hexadecimal, and in Base64
//! with whatever stands before and behind it; also one of these escapes within another. Of a token its end is enough, so that thousands
//! of them can be looked for. Does not know any secret itself. Invariants: the
//! work is linear in the text; what cannot be searched is removed as a whole; nothing that is looked for can be printed.

mod finder;
mod forms;

use std::{fmt, sync::Arc};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::outcome::{AdapterError, Answer, Outcome, Rejection};

use self::{
    finder::Finder,
    forms::{Span, View, base64_runs, hex_runs, unescaped},
};

/// What stands in the place of a secret.
pub const REMOVED: &str = "[secret removed]";
/// Shorter values are not looked for: they stand in any text by chance.
const BYTES_MIN: usize = 6;
/// Lines of a longer secret, such as a key, are looked for one by one from this length on.
const LINE_BYTES_MIN: usize = 16;
/// How often an escape within an escape is undone.
const DEPTH_MAX: u32 = 2;
/// The most bytes that one byte of a secret takes in any of the forms.
const BYTES_PER_BYTE_MAX: usize = 10;

/// What is looked for. Clones share it.
#[derive(Clone, Default)]
pub struct Scrub {
    search: Search,
    shortest: usize,
    longest: usize,
    /// Whether a `+` may stand for a part of a value.
    has_space: bool,
    /// Whether a value may stand in JSON as a number.
    has_number: bool,
}

#[derive(Clone, Default)]
enum Search {
    /// Nothing is looked for.
    #[default]
    Nothing,
    For(Vec<Arc<Finder>>),
    /// There is too much to look for: no text can be called clean.
    Impossible,
}

impl fmt::Debug for Scrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrub").finish_non_exhaustive()
    }
}

impl Scrub {
    /// One that looks for these values.
    #[must_use]
    pub fn of<'a>(values: impl IntoIterator<Item = &'a SecretString>) -> Self {
        let mut parts: Vec<&str> = Vec::new();
        for value in values {
            let value = value.expose_secret();
            let lines = value.lines().map(str::trim);
            let lines = lines.filter(|line| line.len() >= LINE_BYTES_MIN && !line.starts_with('-'));
            parts.extend(lines.chain([value]).filter(|part| part.len() >= BYTES_MIN));
        }
        Self::default().and(parts, Finder::of_values)
    }

    /// One that looks for these tokens as well. What this one looks for is shared with it and not made ready again. The end of a token is
    /// removed also where what belongs before it is not there.
    #[must_use]
    pub fn and_tokens<'a>(&self, tokens: impl IntoIterator<Item = &'a SecretString>) -> Self {
        let tokens = tokens.into_iter().map(|token| token.expose_secret());
        self.and(tokens.filter(|token| token.len() >= BYTES_MIN).collect(), Finder::of_tokens)
    }

    fn and(&self, mut parts: Vec<&str>, finder: fn(&[&str]) -> Option<Finder>) -> Self {
        parts.sort_unstable();
        parts.dedup();
        let Some(longest) = parts.iter().map(|part| part.len()).max() else { return self.clone() };
        let is_number =
            |part: &&str| part.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
        let (shortest, search) = match (finder(&parts), &self.search) {
            (None, _) | (Some(_), Search::Impossible) => (self.shortest, Search::Impossible),
            (Some(finder), Search::Nothing) => {
                (finder.shortest(), Search::For(vec![Arc::new(finder)]))
            }
            (Some(finder), Search::For(others)) => {
                let shortest = self.shortest.min(finder.shortest());
                let all = others.iter().cloned().chain([Arc::new(finder)]);
                (shortest, Search::For(all.collect()))
            }
        };
        Self {
            search,
            shortest,
            longest: self.longest.max(longest),
            has_space: self.has_space || parts.iter().any(|part| part.contains(' ')),
            has_number: self.has_number || parts.iter().any(is_number),
        }
    }

    /// Whether nothing is looked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.search, Search::Nothing)
    }

    /// The text without the secrets in it.
    #[must_use]
    pub fn text(&self, text: String) -> String {
        match self.found(&text) {
            Some(spans) if spans.is_empty() => text,
            Some(spans) => without(&text, &spans, text.len()),
            None => REMOVED.to_owned(),
        }
    }

    /// How much of a text has to be there so that the secrets that begin in its first `bytes_max` bytes are whole.
    #[must_use]
    pub fn bytes_needed(&self, bytes_max: usize) -> usize {
        bytes_max.saturating_add(self.longest.saturating_mul(BYTES_PER_BYTE_MAX))
    }

    /// The first `bytes_max` bytes of the text without the secrets that begin there, also where they go on behind it.
    #[must_use]
    pub fn beginning(&self, text: &str, bytes_max: usize) -> String {
        match self.found(text) {
            Some(spans) => without(text, &spans, bytes_max),
            None => REMOVED.to_owned(),
        }
    }

    /// A document without the secrets in its texts and names.
    #[must_use]
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
                let told = self.text(text.clone());
                if told == text { Value::Number(number) } else { Value::String(told) }
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// An answer without them.
    #[must_use]
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
    #[must_use]
    pub fn error(&self, error: AdapterError) -> AdapterError {
        error.map_text(|text| self.text(text))
    }

    /// An outcome without them.
    #[must_use]
    pub fn outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Done(answer) => Outcome::Done(self.answer(answer)),
            Outcome::Failed(answer) => Outcome::Failed(self.answer(answer)),
            Outcome::NotExecuted(error) => Outcome::NotExecuted(self.error(error)),
            Outcome::Rejected(Rejection { answer, error }) => {
                Outcome::Rejected(Rejection { answer, error: self.error(error) })
            }
            Outcome::Unknown(reason) => Outcome::Unknown(self.text(reason)),
        }
    }

    /// Where in the text secrets are, in order and apart from each other; `None` where that cannot be said.
    fn found(&self, text: &str) -> Option<Vec<Span>> {
        let mut spans = Vec::new();
        match &self.search {
            Search::Nothing => return Some(spans),
            Search::Impossible => return None,
            Search::For(finders) => {
                self.look(finders, &View::of(text.as_bytes()), DEPTH_MAX, &mut spans);
            }
        }
        Some(forms::merged(spans))
    }

    /// Looks for what is in this view of the text, in the digits of it, and in what its escapes stand for.
    fn look(&self, finders: &[Arc<Finder>], view: &View<'_>, depth: u32, spans: &mut Vec<Span>) {
        let bytes = view.bytes();
        if bytes.len() < self.shortest {
            return;
        }
        for hit in finders.iter().flat_map(|finder| finder.spans(bytes)) {
            forms::push(spans, view.source(hit.from, hit.to));
        }
        for run in hex_runs(bytes, self.shortest).chain(base64_runs(bytes, self.shortest)) {
            run.look(finders, view, spans);
        }
        if depth > 0 {
            for inner in unescaped(view, self.has_space) {
                self.look(finders, &inner, depth.saturating_sub(1), spans);
            }
        }
    }
}

/// The first `bytes_max` bytes of a text with something else in the place of these spans.
fn without(text: &str, spans: &[Span], bytes_max: usize) -> String {
    let whole = |at: usize| text.floor_char_boundary(at.min(text.len()));
    let limit = whole(bytes_max);
    let (mut kept, mut at) = (String::with_capacity(limit), 0);
    for span in spans.iter().filter(|span| span.from < limit) {
        kept.push_str(text.get(at..whole(span.from)).unwrap_or_default());
        kept.push_str(REMOVED);
        at = text.ceil_char_boundary(span.to);
    }
    kept.push_str(text.get(at..limit).unwrap_or_default());
    kept
}

#[cfg(test)]
mod tests;
