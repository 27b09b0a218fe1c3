//! Chance from a seed: the same seed draws the same numbers on every machine and in every version.
//!
//! Owns the generator (SplitMix64, which a page of a book describes and which will not change under a kept seed). Nothing secret
//! is drawn here.

use std::ops::Range;

/// A stream of numbers from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent stream, unaffected by later draws from this one.
    pub(crate) fn fork(&self, name: &str) -> Self {
        let mut state = self.0 ^ 0x9E37_79B9_7F4A_7C15;
        for byte in name.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
        }
        let mut forked = Self(state);
        forked.next();
        forked
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range; its start when it is empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        let span = range.end.saturating_sub(range.start);
        let offset = self.next().checked_rem(span).unwrap_or(0);
        range.start.saturating_add(offset)
    }

    /// An index below `length`.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        usize::try_from(self.within(0..length)).unwrap_or(0)
    }

    /// True in this many of a thousand draws.
    pub(crate) fn permille(&mut self, of_a_thousand: u64) -> bool {
        self.within(0..1_000) < of_a_thousand
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.index(of.len());
        of.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    #[test]
    fn the_same_seed_draws_the_same_and_another_does_not() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..8).map(|_| chance.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // Kept seeds depend on these very numbers.
        assert_eq!(Chance::new(1).next(), 0x910A_2DEC_8902_5CC1);
    }

    #[test]
    fn a_fork_does_not_depend_on_what_is_drawn_later() {
        let mut chance = Chance::new(3);
        let before = chance.fork("load").next();
        chance.next();
        assert_ne!(chance.fork("load").next(), before);
        assert_eq!(Chance::new(3).fork("load").next(), before);
        assert_ne!(Chance::new(3).fork("faults").next(), before);
    }

    #[test]
    fn what_is_drawn_is_in_the_range() {
        let mut chance = Chance::new(11);
        for _ in 0..1_000 {
            assert!((5..9).contains(&chance.within(5..9)));
            assert!(chance.index(3) < 3);
        }
        assert_eq!(chance.within(4..4), 4);
        assert!(chance.pick::<u8>(&[]).is_none());
        assert!(!(0..100).any(|_| chance.permille(0)));
        assert!((0..100).all(|_| chance.permille(1_000)));
    }
}
