//! The rows of the corruption matrix: what must follow from a harm, and how a row is made.
//!
//! A row harms in one way or in several of one kind (every field of a header at every byte); all of them must have the same
//! consequence.

use std::path::Path;

use super::{Bench, cut, flip, journal, state};

/// What must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The store does not open, says why, and changes nothing.
    Refused,
    /// It opens; an append that nobody was told of is cut off.
    TailDropped,
    /// It opens, since the state covers what was harmed; a scrub of the journal and a verification say where it is.
    FoundByScrub,
    /// It opens; the state is rebuilt.
    StateRebuilt,
    /// It opens; the state is rebuilt, without a snapshot that cannot be used.
    SnapshotPassedOver,
    /// It opens; the state takes over what it lacks, or is rebuilt where that is not enough.
    StateCaughtUp,
    /// It opens; the results that were harmed are refused when they are asked for, the others are answered.
    ResultsRefused,
    /// It opens; nothing that counts was harmed.
    Unharmed,
    /// It opens as what it once was; only a copy of a later head, kept elsewhere, can tell.
    AsItWas,
}

impl Verdict {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TailDropped => "opens; the torn tail is cut off",
            Self::FoundByScrub => "opens; a scrub tells",
            Self::StateRebuilt => "opens; the state is rebuilt",
            Self::SnapshotPassedOver => "opens; the state is rebuilt without the snapshot",
            Self::StateCaughtUp => "opens; the state catches up or is rebuilt",
            Self::ResultsRefused => "opens; the harmed results are refused",
            Self::Unharmed => "opens; nothing is lost",
            Self::AsItWas => "opens as it was; a head kept elsewhere tells",
        }
    }
}

type Harm = Box<dyn Fn(&Bench<'_>, usize) -> bool>;

/// One row.
pub(crate) struct Row {
    pub(crate) group: &'static str,
    pub(crate) what: &'static str,
    /// The folder that is harmed.
    pub(crate) template: &'static str,
    /// Harms in the way of this number; `false` when there are no more ways.
    pub(crate) harm: Harm,
    pub(crate) verdict: Verdict,
}

/// The rows of a group that harm one template, with one consequence.
pub(super) struct Rows(pub(super) &'static str, pub(super) &'static str, pub(super) Verdict);

impl Rows {
    pub(super) fn row(
        &self,
        what: &'static str,
        harm: impl Fn(&Bench<'_>, usize) -> bool + 'static,
    ) -> Row {
        let Self(group, template, verdict) = *self;
        Row { group, what, template, harm: Box::new(harm), verdict }
    }
}

/// Harms in one way only.
pub(super) fn once(way: usize, harm: impl FnOnce()) -> bool {
    each(way, [()], |()| harm())
}

/// Harms in one way for each of these.
pub(super) fn each<T>(way: usize, ways: impl IntoIterator<Item = T>, harm: impl FnOnce(T)) -> bool {
    ways.into_iter().nth(way).map(harm).is_some()
}

/// Flips a bit in each byte of a field of a file.
pub(super) fn flip_in(path: &Path, way: usize, field: std::ops::Range<usize>) -> bool {
    each(way, field, |at| flip(path, at))
}

/// Cuts a file to each of these lengths.
pub(super) fn cut_to(path: &Path, way: usize, lengths: &[usize]) -> bool {
    each(way, lengths, |length| cut(path, *length))
}

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    [journal::rows(), state::rows()].into_iter().flatten().collect()
}
