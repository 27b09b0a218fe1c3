//! Text from a server in a form that logs and messages can hold.
//!
//! Owns the shortening; which characters are escaped is [`placet_types::text`]'s. Invariants: its output has no control or
//! text-direction character, so it cannot fake a line of a log; text still to be searched for secrets is not cut, as a part of one
//! would not be found.

use placet_types::text::is_hidden;

/// The longest text of a server that is carried on.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

/// The text with control and direction characters escaped, and uncut: it is cut after secrets were removed. A text that is too
/// long is left out.
pub(crate) fn whole(text: &str) -> String {
    if text.len() > WHOLE_BYTES_MAX {
        return format!("[{} bytes, which are too many to be shown]", text.len());
    }
    printable(text, usize::MAX)
}

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

#[cfg(test)]
mod tests {
    use super::{WHOLE_BYTES_MAX, printable, whole};

    #[test]
    fn a_text_cannot_fake_a_line_of_a_log() {
        assert_eq!(printable("a\nb\u{1b}[31m\u{202e}c", 100), "a\\u{a}b\\u{1b}[31m\\u{202e}c");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(printable("äöü", 5), "äö…");
        assert_eq!(printable("äöü", 6), "äöü");
    }

    #[test]
    fn a_text_that_is_carried_on_is_whole_or_not_there() {
        let longest = format!("{}\n", "x".repeat(WHOLE_BYTES_MAX - 1));
        assert_eq!(whole(&longest), longest.replace('\n', "\\u{a}"));
        assert_eq!(whole(&format!("{longest}y")), "[65537 bytes, which are too many to be shown]");
    }
}
