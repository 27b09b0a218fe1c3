//! Half characters in a server's messages.
//!
//! Owns their repair. A server that cuts a text inside a character may send half of a surrogate pair as an escape, which the grammar of JSON
//! allows (RFC 8259, section 8.2) and no Rust string can hold. Without the repair the whole answer would be lost, and the outcome of a write
//! unknown.

use std::borrow::Cow;

/// The message with U+FFFD, the replacement character, for each half of a surrogate pair.
pub(crate) fn whole(message: &str) -> Cow<'_, str> {
    if !message.contains("\\ud") && !message.contains("\\uD") {
        return Cow::Borrowed(message);
    }
    let (mut out, mut rest) = (String::with_capacity(message.len()), message);
    while let Some((before, escape)) = rest.find('\\').and_then(|at| rest.split_at_checked(at)) {
        out.push_str(before);
        let (bytes, is_half) = match unit(escape) {
            Some(0xD800..=0xDBFF) if is_second(escape.get(6..)) => (12, false),
            Some(0xD800..=0xDFFF) => (6, true),
            Some(_) => (6, false),
            None => (2, false),
        };
        let (taken, left) = escape.split_at_checked(bytes).unwrap_or((escape, ""));
        out.push_str(if is_half { "\\ufffd" } else { taken });
        rest = left;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The UTF-16 unit of the escape that the text begins with.
fn unit(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_second(escape: Option<&str>) -> bool {
    matches!(escape.and_then(unit), Some(0xDC00..=0xDFFF))
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn a_half_is_replaced_and_all_else_stays() {
        for (sent, read) in [
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""\uDE00 \ud83d\u0041""#, "\u{fffd} \u{fffd}A"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\\ud83d \"\ud83d\ude00\" ü""#, "\\ud83d \"\u{1f600}\" ü"),
            (r#""\ud83dü""#, "\u{fffd}ü"),
        ] {
            assert_eq!(serde_json::from_str::<String>(&whole(sent)).unwrap(), read, "{sent}");
        }
        for other in [r#""\ud8"#, "\\", r#""\ud8ü""#] {
            assert_eq!(whole(other), other);
        }
    }
}
