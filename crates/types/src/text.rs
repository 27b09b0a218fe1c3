//! Text of others in a form that people can judge, and percent-decoding.
//!
//! Owns which characters a reader does not see, or does not see as what they are, and how they are escaped. Invariant: what [`visible`]
//! returns is one line that reads in the order in which it is stored, and every character of it is drawn.

use icu_properties::{
    CodePointMapData, CodePointSetData,
    props::{DefaultIgnorableCodePoint, GeneralCategory},
};
use percent_encoding::percent_decode_str;

/// Symbols that are drawn as nothing although no property of Unicode says so: they are blank by their names alone.
const BLANK: [char; 4] = ['\u{2800}', '\u{13441}', '\u{13442}', '\u{1d159}'];

/// Whether a reader may miss `c`, take it for another character, or see what follows in another place: controls (line feeds and tabs
/// included), format and direction characters, everything with the property `Default_Ignorable_Code_Point` (Unicode Standard Annex #44),
/// every space but U+0020, and private or unassigned characters.
pub fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let category = CodePointMapData::<GeneralCategory>::new().get(c);
    CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
        || BLANK.contains(&c)
        || matches!(
            category,
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::Surrogate
                | GeneralCategory::PrivateUse
                | GeneralCategory::Unassigned
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
                | GeneralCategory::SpaceSeparator
        )
}

/// The text in one line, in which every character that [`is_hidden`] is written as an escape such as `\u{202e}`. A backslash that would
/// make text look like an escape is one too: no two texts are shown alike.
pub fn visible(text: &str) -> String {
    drawn(&text.replace("\\u{", "\\u{5c}u{"))
}

/// The same for a line that has text of others in it already, which [`visible`] has escaped.
pub fn drawn(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// JSON text in which every character that [`is_hidden`] is written as JSON's own escape, so that it is read back as the same value. Line
/// feeds stay: those of JSON text are between its tokens.
pub fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_hidden(c) {
            shown.push(c);
            continue;
        }
        let mut units = [0_u16; 2];
        for unit in c.encode_utf16(&mut units) {
            shown.push_str(&format!("\\u{unit:04x}"));
        }
    }
    shown
}

/// Percent-decoded text; `None` where an escape is malformed, or the bytes are no UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let is_sound = text.split('%').skip(1).all(is_escape);
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    is_sound.then(|| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use serde_json::{Value, json};

    use super::{drawn, is_hidden, percent_decoded, visible, visible_json};

    #[test]
    fn a_malformed_escape_is_not_decoded() {
        for (text, decoded) in [("", ""), ("a+b", "a+b"), ("%41%c3%Bc", "Aü"), ("%2541", "%41")] {
            assert_eq!(percent_decoded(text).as_deref(), Some(decoded));
        }
        for text in ["%", "%4", "%zz", "%+1", "%%41", "a%4ü", "%ff"] {
            assert_eq!(percent_decoded(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_drawn_as_nothing_or_steers_is_escaped() {
        for c in [
            '\n',
            '\r',
            '\t',
            '\0',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{a0}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{1680}',
            '\u{17b4}',
            '\u{180b}',
            '\u{180e}',
            '\u{2000}',
            '\u{2009}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{202f}',
            '\u{205f}',
            '\u{2060}',
            '\u{2066}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{e000}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{1bca0}',
            '\u{1d173}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{e0fff}',
            '\u{10ffff}',
        ] {
            assert!(is_hidden(c), "{}", c.escape_unicode());
            assert_eq!(visible(&format!("a{c}b")), format!("a{}b", c.escape_unicode()));
        }
    }

    #[test]
    fn text_that_reads_like_an_escape_is_not_shown_like_one() {
        assert_eq!(visible("a\u{202e}b"), r"a\u{202e}b");
        assert_eq!(visible(r"a\u{202e}b"), r"a\u{5c}u{202e}b");
        assert_eq!(visible(r"a\u{5c}u{202e}b"), r"a\u{5c}u{5c}u{202e}b");
        assert_eq!(visible(r"C:\users \u0041 u{1}"), r"C:\users \u0041 u{1}");
        assert_eq!(drawn(&visible("\u{202e}\\u{7}")), visible("\u{202e}\\u{7}"));
    }

    #[test]
    fn text_that_is_drawn_stays_as_it_is() {
        let text = "Grüße, 日本, שלום, নমস্কার, e\u{301}, €5 – “x” → y… 😀\\";
        assert_eq!(visible(text), text);
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left_and_nothing_else_is_touched(text in any::<String>()) {
            let shown = visible(&text);
            prop_assert!(!shown.chars().any(is_hidden));
            let is_plain = !text.chars().any(is_hidden) && !text.contains("\\u{");
            prop_assert_eq!(shown == text, is_plain);
        }

        #[test]
        fn visible_json_is_the_same_value(text in any::<String>()) {
            let document = json!({ "a": text });
            let shown = visible_json(&document.to_string());
            prop_assert!(!shown.chars().any(is_hidden));
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).ok(), Some(document));
        }
    }
}
