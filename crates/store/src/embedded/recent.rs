//! Records of the last entries, decoded.
//!
//! Owns a bounded table of them, so that the next move of a record, and the replay of a result just made, need not read the
//! journal. Not here: whether a record is the current one: whoever asks names the entry, as the index gave it.
//! Invariant: what is answered is what that entry made of the record.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// How many records each of the two halves holds: some megabytes in all.
const HALF: usize = 4096;

/// The table: what is new goes into the young half; when that is full the old one is forgotten and the young one becomes it.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    halves: Mutex<Halves<K, V>>,
}

#[derive(Debug)]
struct Halves<K, V> {
    young: HashMap<K, (u64, Arc<V>)>,
    old: HashMap<K, (u64, Arc<V>)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { halves: Mutex::new(Halves { young: HashMap::new(), old: HashMap::new() }) }
    }
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// The record as entry `seq` made it, if it is still in the table.
    pub(super) fn get(&self, key: &K, seq: u64) -> Option<Arc<V>> {
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        let halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let (made_by, record) = halves.young.get(key).or_else(|| halves.old.get(key))?;
        (*made_by == seq).then(|| Arc::clone(record))
    }

    /// Entry `seq` made the record this.
    pub(super) fn put(&self, key: K, seq: u64, record: Arc<V>) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        if halves.young.len() >= HALF {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(key, (seq, record));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{HALF, Recent};

    #[test]
    fn a_record_is_answered_only_for_the_entry_that_made_it() {
        let recent = Recent::default();
        recent.put("key", 5, Arc::new("five"));
        recent.put("key", 7, Arc::new("seven"));
        assert_eq!(recent.get(&"key", 7).as_deref(), Some(&"seven"));
        assert_eq!(recent.get(&"key", 5), None);
        assert_eq!(recent.get(&"other", 7), None);
    }

    #[test]
    fn the_table_stays_bounded_and_keeps_what_is_new() {
        let recent = Recent::default();
        let last = u64::try_from(HALF).unwrap().saturating_mul(5);
        for number in 0..=last {
            recent.put(number, number, Arc::new(number));
        }
        let kept = (0..=last).filter(|number| recent.get(number, *number).is_some()).count();
        assert!(kept > HALF / 2 && kept <= HALF.saturating_mul(2), "{kept}");
        assert!(recent.get(&last, last).is_some());
    }
}
