//! Which entries of the approval service somebody asks for, and what they get of them at a time.
//!
//! Owns the forms. What an entry shows is [`super::DeskEntryView`]'s.

use placet_types::{clock::Timestamp, desk::DeskKind, ids::DeskId};

use super::DeskEntryView;

/// Which entries of the approval service to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntriesQuery {
    /// Only those of this kind.
    pub kind: Option<DeskKind>,
    /// Only those of which something may still become.
    pub only_open: bool,
    /// The newest ones first, instead of the oldest.
    pub newest_first: bool,
    /// Only those that were made before this time.
    pub made_before: Option<Timestamp>,
    /// After this entry, in the order asked for.
    pub after: Option<DeskId>,
    /// At most this many.
    pub limit: usize,
}

/// A page of entries of the approval service.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EntriesPage {
    /// The entries that the caller may see.
    pub entries: Vec<DeskEntryView>,
    /// Where to go on, if there may be more: also of a page that is not full, where a lot was looked at that the caller may not see.
    pub next_after: Option<DeskId>,
}
