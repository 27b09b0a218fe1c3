//! Text from a server in a form that logs and messages can hold.
//!
//! Owns the shortening and escaping. Invariant: what comes out has no control or text-direction character, so it cannot fake a
//! line of a log.

/// At most `bytes_max` bytes of `text`, with control and direction characters escaped.
pub(crate) fn printable(text: &str, bytes_max: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len().saturating_add(c.len_utf8()) > bytes_max {
            out.push('…');
            break;
        }
        if is_hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Characters that hide or reorder what a reader sees.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_text_cannot_fake_a_line_of_a_log() {
        assert_eq!(printable("a\nb\u{1b}[31m\u{202e}c", 100), "a\\u{a}b\\u{1b}[31m\\u{202e}c");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(printable("äöü", 5), "äö…");
        assert_eq!(printable("äöü", 6), "äöü");
    }
}
