//! What is wrong with a file, in words for its author.
//!
//! Owns the wording of the library's errors. Invariant: where secrets are named, nothing that the file has in the place of a name is
//! repeated, since it may be the secret.

use super::AN_ADDRESS;

/// The keys below which secrets are named, and sometimes pasted by mistake.
const PRIVATE: [&str; 7] =
    ["secrets", "client_auth", "auth", "credential", "password", "headers", "client_secret"];
/// A longer word is not taken for a misspelt key.
const KEY_BYTES_MAX: usize = 20;

/// The key and the problem, as reported. `text` is the content of the file.
pub(super) fn told(
    text: &str,
    key: Option<String>,
    error: &serde_saphyr::Error,
) -> (Option<String>, String) {
    let said = in_words(first_line(error));
    let is_private = key.as_deref().is_some_and(is_private);
    if is_private && repeats(&said, text) {
        unsaid(key.unwrap_or_default(), &said)
    } else {
        (key, said)
    }
}

/// Whether secrets are named at this key or below it.
fn is_private(key: &str) -> bool {
    let mut names = key.split('.').map(|name| name.split('[').next().unwrap_or(name));
    names.any(|name| PRIVATE.contains(&name))
}

/// Whether a message quotes something from the file.
fn repeats(said: &str, text: &str) -> bool {
    let is_named_alone = ["missing field `", "the key `"].iter().any(|kind| said.starts_with(kind));
    let mut quoted = said.split(['`', '"']).skip(1).step_by(2);
    !is_named_alone && quoted.any(|quoted| text.contains(quoted))
}

/// The same without the quoted text: with what is expected instead.
fn unsaid(key: String, said: &str) -> (Option<String>, String) {
    // From the end: the quoted text may contain these words too.
    let (found, expected) = said.rsplit_once(", expected ").unwrap_or((said, ""));
    let Some(field) = found.strip_prefix("unknown field `") else {
        let expected = expected_at(&key, expected);
        return (Some(key), expected);
    };
    let field = field.split('`').next().unwrap_or_default();
    let is_key = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    if field.len() <= KEY_BYTES_MAX && field.bytes().all(is_key) {
        return (Some(key), said.to_owned());
    }
    // The place repeats the key's name.
    let place = key.strip_suffix(field).and_then(|place| place.strip_suffix('.'));
    let place = place.unwrap_or(&key).to_owned();
    let one_of =
        if expected.is_empty() { String::new() } else { format!("; {expected} is expected") };
    (Some(place), format!("there is no key of the name that stands there{one_of}"))
}

fn expected_at(key: &str, expected: &str) -> String {
    let is_section =
        ["internally tagged ", "struct ", "a map"].iter().any(|one| expected.starts_with(one));
    let example = match key.rsplit('.').next().unwrap_or(key) {
        "client_auth" => {
            "`{ method: client_secret_basic, secret: NAME }` with the NAME of one of `secrets`"
        }
        "auth" => "`{ method: token_file, file: PATH }`",
        "credential" => "`{ type: static_secret, secret: NAME }` with the NAME of one of `secrets`",
        _ => "`key: value`",
    };
    match expected {
        _ if is_section => format!("keys with values are expected there, such as {example}"),
        "" => "what stands there is not what is expected".to_owned(),
        "a string" => "a text is expected".to_owned(),
        other => {
            let list = other.strip_prefix("one of ").unwrap_or(other);
            format!("what stands there is not among what is expected: {list}")
        }
    }
}

/// The library's message without its own place, which the problem has already, and without its picture of the text.
fn first_line(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or("is not valid YAML");
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let without_place = line.rfind(" at line ").and_then(|at| line.get(..at));
    let line = without_place.unwrap_or(line);
    line.split_once(": ")
        .filter(|(place, _)| place.starts_with("line "))
        .map_or(line, |(_, rest)| rest)
        .to_owned()
}

/// Replaces the library's own terms for a reader who does not know it.
fn in_words(said: String) -> String {
    if let Some(key) = said.strip_prefix("duplicate mapping key: ") {
        let key = key.split_once(", set ").map_or(key, |(key, _)| key);
        return format!("the key `{key}` is there twice");
    }
    let words = match said.as_str() {
        "invalid socket address syntax" => AN_ADDRESS,
        "invalid u8" => "a whole number from 0 to 255 is expected",
        "invalid u16" => "a whole number from 0 to 65535 is expected",
        "invalid u32" => "a whole number from 0 to 4294967295 is expected",
        "invalid u64" | "invalid usize" => "a whole number that is not negative is expected",
        "invalid i32" | "invalid i64" => "a whole number is expected",
        "invalid f32" | "invalid f64" => "a number is expected",
        "invalid bool"
        | "invalid boolean"
        | "invalid boolean (true or false expected)"
        | "invalid boolean (strict mode expects true/false)" => "`true` or `false` is expected",
        "expected string scalar" => "a text is expected",
        "expected mapping start" => "keys with values are expected, each as `key: value`",
        "expected sequence start" => "a list is expected",
        _ => return said,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests;
