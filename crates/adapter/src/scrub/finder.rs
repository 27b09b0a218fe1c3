//! What finds values in bytes.
//!
//! Owns the automaton, and what of a value is in it: the whole of it, or, of a token, its end. Tokens are many and long, and mostly differ in
//! their ends, where signatures are; so of a thousand of them little has to be made ready. Does not decode anything. Invariant: the work is
//! linear in the bytes, whatever they are.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use secrecy::{ExposeSecret as _, SecretString};

use super::forms::Span;

/// How much of a token's end is looked for.
const END_BYTES_MAX: usize = 32;
/// How many bytes are compared for each one that is searched, before more is removed than was compared.
const COMPARED_PER_BYTE_MAX: usize = 8;

/// What looks for some values.
pub(super) struct Finder {
    automaton: AhoCorasick,
    /// What belongs before the end that is looked for, by pattern; nothing for values that are looked for as a whole.
    before: Vec<SecretString>,
    shortest: usize,
}

impl Finder {
    /// One that looks for these values, each as a whole; none where they are too much.
    pub(super) fn of_values(values: &[&str]) -> Option<Self> {
        Self::of(values, Vec::new())
    }

    /// One that looks for the ends of these tokens; none where they are too much.
    pub(super) fn of_tokens(tokens: &[&str]) -> Option<Self> {
        let middle =
            |token: &str| token.floor_char_boundary(token.len().saturating_sub(END_BYTES_MAX));
        let parts = tokens.iter().map(|token| token.split_at(middle(token)));
        let (before, ends): (Vec<SecretString>, Vec<&str>) =
            parts.map(|(before, end)| (SecretString::from(before), end)).unzip();
        Self::of(&ends, before)
    }

    fn of(patterns: &[&str], before: Vec<SecretString>) -> Option<Self> {
        let shortest = patterns.iter().map(|pattern| pattern.len()).min()?;
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(patterns)
            .ok()?;
        Some(Self { automaton, before, shortest })
    }

    /// The length of the shortest that is looked for.
    pub(super) fn shortest(&self) -> usize {
        self.shortest
    }

    /// Where values are, by their ends.
    pub(super) fn spans<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Span> + 'a {
        let mut left = bytes.len().saturating_mul(COMPARED_PER_BYTE_MAX);
        self.automaton.find_overlapping_iter(bytes).map(move |hit| {
            let before = self.before.get(hit.pattern().as_usize());
            let before = before.map_or(&[][..], |before| before.expose_secret().as_bytes());
            let there = bytes.get(..hit.start()).unwrap_or_default();
            let same = if left == 0 {
                before.len()
            } else {
                let pairs = there.iter().rev().zip(before.iter().rev());
                pairs.take_while(|(there, before)| there == before).count()
            };
            left = left.saturating_sub(same);
            Span { from: hit.start().saturating_sub(same), to: hit.end() }
        })
    }
}
