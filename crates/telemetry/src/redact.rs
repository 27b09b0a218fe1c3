//! Masks what looks like a secret, in texts that are about to be logged or exported.
//!
//! Owns which names and which texts are suspicious. It is the second line of defence: the first is that secrets are
//! typed as such and that arguments never get into spans or logs. Invariant: when in doubt, mask; if the patterns
//! could not be compiled, every text is masked.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Regex, RegexSet};

/// What replaces a secret.
pub const MASK: &str = "[redacted]";

/// The words that make a name suspicious, anywhere between separators.
const SECRET_WORDS: &str = "authorization authorisation token tokens secret secrets password passwords passwd pwd passphrase \
     credential credentials cookie cookies jwt bearer assertion apikey key keys";

/// Names that hold such a word and are harmless.
const HARMLESS_NAMES: [&str; 2] = ["key_id", "public_key"];

/// The end of a secret's name inside a text, for `name=value` and `"name": "value"`.
const NAME: &str = concat!(
    "(?i-u:",
    "(?:authori[sz]ation|session[_-]?id|token|secret|passw(?:or)?d|pwd|passphrase|cookie|credential|assertion|jwt",
    "|(?:api|private|access|signing|encryption)[_-]?key)",
    "[a-z0-9_-]*)",
);

/// A character of a credential, besides `=`.
const CREDENTIAL: &str = "A-Za-z0-9_.~+/%-";

/// The patterns, each with what a match is replaced by. Case is ignored for ASCII only, which needs no tables.
fn patterns() -> [(String, &'static str); 8] {
    let scheme = "(?i-u:bearer|basic|dpop)";
    let pem = r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*-----|\z)";
    let jose = r"(?-u:\b)(?:eyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*)*|e[yw][A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){2,4})";
    let header = r"(?-u:\b)((?i-u:(?:proxy-)?authorization|(?:set-)?cookie|x-api-key|mcp-session-id))\s*:\s*[^\r\n]+";
    let known = r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9_]{16,}|github_pat_[A-Za-z0-9_]{16,}|xox[abeprs]-[A-Za-z0-9_-]{8,}|AKIA[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{16,}|AIza[A-Za-z0-9_-]{30,})";
    let quoted = r#"\\*["']?\s*[:=]\s*(?:Some\()?(?:\\+"[^"]*"?|"(?:[^"\\]|\\.)*"?)"#;
    [
        // A private key in PEM form, also a truncated one.
        (pem.to_owned(), MASK),
        // Compact JOSE: base64url of `{"` or of `{` and white space, with what follows it.
        (jose.to_owned(), MASK),
        // Credentials with their scheme. Words, as in `bearer token`, are left alone: they are short and have no digit.
        (
            format!(
                r"(?-u:\b)({scheme})(?:\s|%20|\+)+(?:[{CREDENTIAL}=]{{16,}}|[{CREDENTIAL}]*[0-9=][{CREDENTIAL}=]*)"
            ),
            "${1} [redacted]",
        ),
        // Header lines.
        (header.to_owned(), "${1}: [redacted]"),
        // Quoted values, as in JSON, in escaped JSON and in debug output.
        (format!("({NAME}){quoted}"), "${1}=[redacted]"),
        // Unquoted values, as in queries and forms.
        (format!(r#"({NAME})=(?:{scheme}\s+)?[^\s"',;&]+"#), "${1}=[redacted]"),
        // A password in a URL.
        (r#"://[^/\s:@"]*:[^/\s@"]+@"#.to_owned(), "://[redacted]@"),
        // Secrets with a recognisable prefix.
        (known.to_owned(), MASK),
    ]
}

#[derive(Debug)]
struct Patterns {
    any: RegexSet,
    each: Vec<(Regex, &'static str)>,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| compile().ok());

fn compile() -> Result<Patterns, regex::Error> {
    let patterns = patterns();
    let any = RegexSet::new(patterns.iter().map(|(pattern, _)| pattern))?;
    let each = patterns.iter().map(|(pattern, by)| Ok((Regex::new(pattern)?, *by)));
    Ok(Patterns { any, each: each.collect::<Result<_, regex::Error>>()? })
}

/// Compiles the patterns, so that the first call does not wait for it.
pub(crate) fn prepare() {
    LazyLock::force(&PATTERNS);
}

/// Whether a field or attribute of this name is masked, whatever it holds.
pub fn is_secret_name(name: &str) -> bool {
    let mut words = String::with_capacity(name.len().saturating_add(4));
    let mut was_lower = false;
    for character in name.chars() {
        if character.is_ascii_uppercase() && was_lower {
            words.push('_');
        }
        was_lower = character.is_ascii_lowercase();
        words.push(if character.is_ascii_alphanumeric() {
            character.to_ascii_lowercase()
        } else {
            '_'
        });
    }
    // Anyone who knows an upstream session's id can use that session.
    words.ends_with("session_id")
        || !HARMLESS_NAMES.iter().any(|harmless| words.ends_with(harmless))
            && words.split('_').any(|word| SECRET_WORDS.split(' ').any(|secret| secret == word))
}

/// Whether a text holds something that looks like a secret.
pub fn holds_secret(text: &str) -> bool {
    PATTERNS.as_ref().is_none_or(|patterns| patterns.any.is_match(text))
}

/// The text with everything masked that looks like a secret.
pub fn text(text: &str) -> Cow<'_, str> {
    let Some(patterns) = PATTERNS.as_ref() else {
        return Cow::Borrowed(MASK);
    };
    if !patterns.any.is_match(text) {
        return Cow::Borrowed(text);
    }
    let mut masked = text.to_owned();
    for (pattern, replacement) in &patterns.each {
        if let Cow::Owned(next) = pattern.replace_all(&masked, *replacement) {
            masked = next;
        }
    }
    Cow::Owned(masked)
}

/// The text of a named field, masked whole if the name says so.
pub fn field<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    if is_secret_name(name) { Cow::Borrowed(MASK) } else { text(value) }
}

#[cfg(test)]
mod tests;
