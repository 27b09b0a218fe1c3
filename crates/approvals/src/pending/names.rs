//! Names, each kept once: tenants, operations, people, and the sets of groups that are asked.
//!
//! Owns the numbers that stand for them. They are of this process and of no use outside it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use placet_types::approval::ApproverGroup;

/// A number that stands for a name or for a set of groups.
pub(crate) type Name = u32;

/// Stands for nobody.
pub(crate) const NONE: Name = Name::MAX;
/// From how many names on they are all forgotten when nothing waits.
const NAMES_KEPT: usize = 10_000;

/// The names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Name>,
    sets: Vec<Arc<BTreeSet<ApproverGroup>>>,
    set_numbers: HashMap<Arc<BTreeSet<ApproverGroup>>, Name>,
}

impl Names {
    /// The number of a name.
    pub(crate) fn of(&mut self, text: &str) -> Name {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = Name::try_from(self.texts.len()).unwrap_or(NONE);
        let text: Arc<str> = Arc::from(text);
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// The number of a name, if it has one.
    pub(crate) fn known(&self, text: &str) -> Name {
        self.numbers.get(text).copied().unwrap_or(NONE)
    }

    /// The name behind a number.
    pub(crate) fn text(&self, name: Name) -> &str {
        usize::try_from(name).ok().and_then(|at| self.texts.get(at)).map_or("", AsRef::as_ref)
    }

    /// The number of a set of groups.
    pub(crate) fn set_of(&mut self, groups: BTreeSet<ApproverGroup>) -> Name {
        if let Some(number) = self.set_numbers.get(&groups) {
            return *number;
        }
        let number = Name::try_from(self.sets.len()).unwrap_or(NONE);
        let groups = Arc::new(groups);
        self.sets.push(Arc::clone(&groups));
        self.set_numbers.insert(groups, number);
        number
    }

    /// Of each set of groups, whether it holds true.
    pub(crate) fn sets_where(&self, holds: impl Fn(&BTreeSet<ApproverGroup>) -> bool) -> Vec<bool> {
        self.sets.iter().map(|set| holds(set)).collect()
    }

    /// Of each name, whether it contains the text; both in lower case.
    pub(crate) fn texts_with(&self, text: &str) -> Vec<bool> {
        self.texts.iter().map(|name| name.to_lowercase().contains(text)).collect()
    }

    /// The set of groups behind a number.
    pub(crate) fn set(&self, name: Name) -> Option<&BTreeSet<ApproverGroup>> {
        usize::try_from(name).ok().and_then(|at| self.sets.get(at)).map(AsRef::as_ref)
    }

    /// Forgets all names, when they have become many and nobody uses one.
    pub(crate) fn shrink(&mut self) {
        if self.texts.len().saturating_add(self.sets.len()) > NAMES_KEPT {
            *self = Self::default();
        }
    }
}
