//! Keys that sled does not have yet, and reading both as one.
//!
//! Owns the merging. Why it is needed: for each batch, however small, sled writes its buffer out twice and wakes all its threads, which
//! costs more than everything else about a commit. So edits are gathered here until there are many. The journal has them too: what is lost
//! with the process is replayed from there at the next start.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;

use sled::{Db, IVec};

use super::tree::Order;

/// Keys with their current values; `None`: the key was removed.
pub(super) type Fresh = BTreeMap<Vec<u8>, Option<IVec>>;

/// A key with its value.
pub(super) type Pair = sled::Result<(IVec, IVec)>;

type FreshPair<'a> = (&'a Vec<u8>, &'a Option<IVec>);

/// A range of the keys.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) from: Bound<Vec<u8>>,
    pub(super) to: Bound<Vec<u8>>,
}

impl Span {
    /// All keys with this prefix.
    pub(super) fn of(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        let mut to = Bound::Unbounded;
        while let Some(last) = end.pop() {
            if let Some(next) = last.checked_add(1) {
                end.push(next);
                to = Bound::Excluded(end);
                break;
            }
        }
        Self { from: Bound::Included(prefix.to_vec()), to }
    }

    /// Many ranges that are all keys together: each kind of key, which is a letter, in parts.
    pub(super) fn parts() -> Vec<Self> {
        let kinds = b'a'..=b'z';
        let within = kinds
            .flat_map(|kind| [vec![kind], vec![kind, 0x40], vec![kind, 0x80], vec![kind, 0xc0]]);
        let mut parts = Vec::new();
        let mut from = Bound::Unbounded;
        for at in within.chain([vec![b'{']]) {
            parts.push(Self { from, to: Bound::Excluded(at.clone()) });
            from = Bound::Included(at);
        }
        parts.push(Self { from, to: Bound::Unbounded });
        parts
    }

    /// All keys after this one.
    pub(super) fn behind(key: &[u8]) -> Self {
        Self { from: Bound::Excluded(key.to_vec()), to: Bound::Unbounded }
    }
}

/// The keys of a range in order: those of sled, overlaid with the fresh ones.
pub(super) struct Pairs<'a> {
    order: Order,
    kept: Peekable<Box<dyn Iterator<Item = Pair>>>,
    fresh: Peekable<Box<dyn Iterator<Item = FreshPair<'a>> + 'a>>,
}

impl<'a> Pairs<'a> {
    pub(super) fn new(db: &Db, fresh: &'a Fresh, span: Span, order: Order) -> Self {
        let bounds = (span.from, span.to);
        let (kept, fresh) = (db.range(bounds.clone()), fresh.range(bounds));
        let (kept, fresh): (Box<dyn Iterator<Item = _>>, Box<dyn Iterator<Item = _>>) = match order
        {
            Order::Ascending => (Box::new(kept), Box::new(fresh)),
            Order::Descending => (Box::new(kept.rev()), Box::new(fresh.rev())),
        };
        Self { order, kept: kept.peekable(), fresh: fresh.peekable() }
    }
}

impl Iterator for Pairs<'_> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        loop {
            let first = match (self.kept.peek(), self.fresh.peek()) {
                (_, None) | (Some(Err(_)), Some(_)) => {
                    return self.kept.next();
                }
                (None, Some(_)) => Ordering::Greater,
                (Some(Ok((kept, _))), Some((fresh, _))) => match self.order {
                    Order::Ascending => kept.as_ref().cmp(fresh.as_slice()),
                    Order::Descending => fresh.as_slice().cmp(kept.as_ref()),
                },
            };
            match first {
                Ordering::Less => return self.kept.next(),
                Ordering::Equal => drop(self.kept.next()),
                Ordering::Greater => {}
            }
            if let Some((key, Some(value))) = self.fresh.next() {
                return Some(Ok((key.as_slice().into(), value.clone())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::Span;

    #[test]
    fn every_key_is_in_one_part() {
        let parts = Span::parts();
        let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![b'm'], vec![b'{'], vec![255; 40]];
        for kind in 0..=255 {
            keys.extend([0, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xff].map(|next| vec![kind, next]));
        }
        for key in keys {
            let bounds = |part: &Span| (part.from.clone(), part.to.clone());
            let holds = |part: &&Span| RangeBounds::<Vec<u8>>::contains(&bounds(part), &key);
            assert_eq!(parts.iter().filter(holds).count(), 1, "{key:?}");
        }
    }
}
