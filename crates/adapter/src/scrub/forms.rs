//! The forms in which a text comes back: escapes that stand for it, and digits that encode it.
//!
//! Owns the decoding, and where in the text that was said a decoded byte comes from. Looks for nothing itself. Invariant: each form is
//! decoded in time that is linear in the text, whatever the text is.

use std::{borrow::Cow, sync::Arc};

use super::finder::Finder;

/// A part of a text, by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Adds a span; what only makes the last one longer is no further one.
pub(super) fn push(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.from <= span.from && span.from <= last.to => {
            last.to = last.to.max(span.to);
        }
        Some(_) | None => spans.push(span),
    }
}

/// In order, and what overlaps or touches as one.
pub(super) fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        push(&mut merged, span);
    }
    merged
}

/// A text, or what it stands for.
#[derive(Debug)]
pub(super) struct View<'a> {
    bytes: Cow<'a, [u8]>,
    /// Where each byte comes from, and where the text ends; absent: from its own place.
    places: Option<Vec<usize>>,
}

impl<'a> View<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes: Cow::Borrowed(bytes), places: None }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The part of the text that was said which these bytes come from.
    pub(super) fn source(&self, from: usize, to: usize) -> Span {
        let place = |at: usize| match &self.places {
            Some(places) => places.get(at).or(places.last()).copied().unwrap_or(at),
            None => at,
        };
        Span { from: place(from), to: place(to) }
    }
}

/// What the escapes of a text stand for, read in each way in which it has any.
pub(super) fn unescaped(view: &View<'_>, with_spaces: bool) -> impl Iterator<Item = View<'static>> {
    let ways: [Option<Way>; 3] = [Some(percent), with_spaces.then_some(form), Some(backslash)];
    let ways = ways.into_iter().flatten();
    ways.filter_map(|way| decoded(view, way))
}

/// What stands at the beginning of a text: how many bytes it takes, and what it means.
struct Read {
    takes: usize,
    means: Meaning,
}

enum Meaning {
    Byte(u8),
    Letter(char),
}

type Way = fn(&[u8]) -> Option<Read>;

fn decoded(view: &View<'_>, read: Way) -> Option<View<'static>> {
    let bytes = view.bytes();
    let mut rest = bytes;
    let (mut out, mut places) = (Vec::new(), Vec::new());
    let mut has_any = false;
    while let Some((first, after)) = rest.split_first() {
        let at = view.source(bytes.len().saturating_sub(rest.len()), bytes.len()).from;
        let (takes, means) = match read(rest) {
            Some(read) => {
                has_any = true;
                (read.takes, read.means)
            }
            None => (1, Meaning::Byte(*first)),
        };
        let before = out.len();
        match means {
            Meaning::Byte(byte) => out.push(byte),
            Meaning::Letter(letter) => {
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        places.extend(std::iter::repeat_n(at, out.len().saturating_sub(before)));
        rest = rest.get(takes..).unwrap_or(after);
    }
    places.push(view.source(bytes.len(), bytes.len()).to);
    has_any.then_some(View { bytes: Cow::Owned(out), places: Some(places) })
}

/// `%41`, in small or in capital letters.
fn percent(text: &[u8]) -> Option<Read> {
    match text {
        [b'%', high, low, ..] => {
            let byte = byte_of(*high, *low)?;
            Some(Read { takes: 3, means: Meaning::Byte(byte) })
        }
        _ => None,
    }
}

/// The same, and `+` for a space, as forms have it.
fn form(text: &[u8]) -> Option<Read> {
    match text {
        [b'+', ..] => Some(Read { takes: 1, means: Meaning::Byte(b' ') }),
        _ => percent(text),
    }
}

/// The escapes of JSON, `\x41`, and `\u{41}`.
fn backslash(text: &[u8]) -> Option<Read> {
    let short = |byte| Some(Read { takes: 2, means: Meaning::Byte(byte) });
    match text {
        [b'\\', b'n', ..] => short(b'\n'),
        [b'\\', b't', ..] => short(b'\t'),
        [b'\\', b'r', ..] => short(b'\r'),
        [b'\\', b'b', ..] => short(8),
        [b'\\', b'f', ..] => short(12),
        [b'\\', other @ (b'"' | b'\\' | b'/' | b'\''), ..] => short(*other),
        [b'\\', b'x', high, low, ..] => {
            Some(Read { takes: 4, means: Meaning::Byte(byte_of(*high, *low)?) })
        }
        [b'\\', b'u', b'{', digits @ ..] => braced(digits),
        [b'\\', b'u', digits @ ..] => {
            let first = unit(digits)?;
            if let Some(letter) = char::from_u32(u32::from(first)) {
                return Some(Read { takes: 6, means: Meaning::Letter(letter) });
            }
            let second = digits.get(4..)?.strip_prefix(b"\\u").and_then(unit)?;
            let letter = char::decode_utf16([first, second]).next()?.ok()?;
            Some(Read { takes: 12, means: Meaning::Letter(letter) })
        }
        _ => None,
    }
}

/// What stands behind `\u{`, to the brace that ends it.
fn braced(digits: &[u8]) -> Option<Read> {
    let count = digits.iter().take(7).position(|byte| *byte == b'}')?;
    let digits = std::str::from_utf8(digits.get(..count)?).ok()?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
    let letter = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
    Some(Read { takes: count.saturating_add(4), means: Meaning::Letter(letter) })
}

fn unit(digits: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(digits.get(..4)?).ok()?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
    u16::from_str_radix(digits, 16).ok()
}

fn byte_of(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)?.wrapping_shl(4) | digit(low)?)
}

/// Digits that may encode something.
#[derive(Debug)]
pub(super) struct Run<'a> {
    text: &'a [u8],
    /// Where its digits are in the text; ends of lines between them are none.
    digits: Vec<usize>,
    code: Code,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Hex,
    Base64,
}

/// Runs of hexadecimal digits that are long enough for something of `bytes_min` bytes.
pub(super) fn hex_runs(text: &[u8], bytes_min: usize) -> impl Iterator<Item = Run<'_>> {
    runs(text, Code::Hex, bytes_min.saturating_mul(2))
}

/// The same for Base64, in either alphabet.
pub(super) fn base64_runs(text: &[u8], bytes_min: usize) -> impl Iterator<Item = Run<'_>> {
    let digits_min = bytes_min.saturating_mul(8).div_ceil(6);
    runs(text, Code::Base64, digits_min)
}

fn runs(text: &[u8], code: Code, digits_min: usize) -> impl Iterator<Item = Run<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = text.get(at..)?.iter().position(|byte| code.is_digit(*byte))?;
            at = at.saturating_add(start);
            let begin = at;
            let mut count = 0_usize;
            while let Some(byte) = text.get(at) {
                if code.is_digit(*byte) {
                    count = count.saturating_add(1);
                } else if !is_line_end(*byte) {
                    break;
                }
                at = at.saturating_add(1);
            }
            if count >= digits_min {
                let is_digit = |at: &usize| text.get(*at).is_some_and(|byte| code.is_digit(*byte));
                let digits = (begin..at).filter(is_digit).collect();
                return Some(Run { text, digits, code });
            }
        }
    })
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

impl Code {
    fn is_digit(self, byte: u8) -> bool {
        self.digit(byte).is_some()
    }

    fn digit(self, byte: u8) -> Option<u32> {
        let from =
            |first: u8, offset: u32| u32::from(byte.wrapping_sub(first)).wrapping_add(offset);
        match (self, byte) {
            (Self::Hex, _) => char::from(byte).to_digit(16),
            (Self::Base64, b'A'..=b'Z') => Some(from(b'A', 0)),
            (Self::Base64, b'a'..=b'z') => Some(from(b'a', 26)),
            (Self::Base64, b'0'..=b'9') => Some(from(b'0', 52)),
            (Self::Base64, b'+' | b'-') => Some(62),
            (Self::Base64, b'/' | b'_') => Some(63),
            (Self::Base64, _) => None,
        }
    }

    /// Bits of one digit, digits of one group, bytes of one group.
    fn group(self) -> (u32, usize, usize) {
        match self {
            Self::Hex => (4, 2, 1),
            Self::Base64 => (6, 4, 3),
        }
    }
}

impl Run<'_> {
    /// Searches what the digits encode, whichever of them is the first that counts.
    pub(super) fn look(&self, finders: &[Arc<Finder>], view: &View<'_>, spans: &mut Vec<Span>) {
        let (_, digits, _) = self.code.group();
        for skipped in 0..digits {
            let decoded = self.decoded(skipped);
            for finder in finders {
                self.mark(finder, &decoded, skipped, view, spans);
            }
        }
    }

    /// Marks what is found in what the digits encode from the one behind `skipped` ones on.
    fn mark(
        &self,
        finder: &Finder,
        decoded: &[u8],
        skipped: usize,
        view: &View<'_>,
        spans: &mut Vec<Span>,
    ) {
        let (_, digits, bytes) = self.code.group();
        let mut covered = Span { from: 0, to: 0 };
        for hit in finder.spans(decoded) {
            let first = hit.from.saturating_mul(digits).checked_div(bytes);
            let last = hit.to.saturating_mul(digits).div_ceil(bytes).saturating_sub(1);
            let place = |digit: usize| self.place(digit.saturating_add(skipped));
            let (from, to) = (place(first.unwrap_or_default()), place(last).saturating_add(1));
            // What hangs together is looked at once, however much is found in it.
            if covered.from <= from && to <= covered.to {
                continue;
            }
            covered = self.around(from, to);
            push(spans, view.source(covered.from, covered.to));
        }
    }

    fn place(&self, digit: usize) -> usize {
        self.digits.get(digit).or(self.digits.last()).copied().unwrap_or_default()
    }

    fn decoded(&self, skipped: usize) -> Vec<u8> {
        let (bits, digits, _) = self.code.group();
        let mut out = Vec::with_capacity(self.digits.len());
        for group in self.digits.get(skipped..).unwrap_or_default().chunks(digits) {
            let mut value = 0_u32;
            let mut count = 0_u32;
            for at in group {
                let digit = self.text.get(*at).and_then(|byte| self.code.digit(*byte));
                value = value.wrapping_shl(bits) | digit.unwrap_or_default();
                count = count.saturating_add(bits);
            }
            while count >= 8 {
                count = count.saturating_sub(8);
                let byte = value.wrapping_shr(count) & 0xff;
                out.push(u8::try_from(byte).unwrap_or_default());
            }
        }
        out
    }

    /// These digits, and, since a digit of Base64 may hold bits of two bytes, everything that hangs together with them.
    fn around(&self, mut from: usize, mut to: usize) -> Span {
        if self.code == Code::Base64 {
            let is_digit =
                |at: usize| self.text.get(at).is_some_and(|byte| self.code.is_digit(*byte));
            while from.checked_sub(1).is_some_and(is_digit) {
                from = from.saturating_sub(1);
            }
            while is_digit(to) {
                to = to.saturating_add(1);
            }
            while self.text.get(to) == Some(&b'=') {
                to = to.saturating_add(1);
            }
        }
        Span { from, to }
    }
}
