//! What the journal begins with where its first entries were archived: the base, and the Merkle tree over what is before it.
//!
//! Owns which base and which tree a checkpoint names. Not here: the checkpoint's file (`checkpoint`), the archiving (`archive`), the tree
//! itself (`crate::tree`). Invariant: a checkpoint that names a base behind archived entries names the tree over them as well, since a
//! start without the archive, and without the tree's files, has nothing else to stand on.
//!
//! Archiving writes both checkpoints before the file `base` of the journal. After a kill in between checkpoints are ahead of that file; a
//! tree that stands on the earlier base already cannot be shown where a checkpoint that names it is gone. Then checkpoints go on naming
//! the later base, which is as true as it was before the kill: nothing was moved, and the next archiving brings it to its end.

use placet_ledger::proof::Frontier;

use super::checkpoint::Checkpoints;
use super::open::OpenError;
use crate::journal::Base;
use crate::tree::{Floor, LogTree, TreeError};

/// Where the journal begins, and what checkpoints say of it.
#[derive(Debug, Clone)]
pub(super) struct Footing {
    /// What was archived, as the journal's folder says it durably.
    pub(super) base: Base,
    /// The tree over the entries before `base`, where any were archived and it is known.
    pub(super) floor: Option<Frontier>,
    /// The base and the tree over what is before it that checkpoints name already, while it is not in the journal's folder yet.
    pub(super) ahead: Option<(Base, Frontier)>,
}

impl Footing {
    /// The base and the tree that a checkpoint names.
    ///
    /// # Errors
    /// [`OpenError::NoFloor`]: entries were archived, and the tree over them is not known. Such a checkpoint could not be started from.
    pub(super) fn named(&self) -> Result<(Base, Option<Frontier>), OpenError> {
        if let Some((base, floor)) = &self.ahead {
            return Ok((*base, Some(floor.clone())));
        }
        if self.floor.is_none() && self.base.first_seq > 1 {
            return Err(OpenError::NoFloor { first_seq: self.base.first_seq });
        }
        Ok((self.base, self.floor.clone()))
    }
}

/// The trees over archived entries that the kept checkpoints know.
#[derive(Debug, Default)]
pub(super) struct Floors {
    /// The one over what is before the journal's base.
    of_base: Option<Floor>,
    /// One over what is before a base that was being gone over to.
    ahead: Option<(Base, Floor)>,
    /// That of the newest checkpoint that has any.
    newest: Option<Floor>,
}

impl Floors {
    /// What the kept checkpoints say of a journal with this base.
    ///
    /// # Errors
    /// What the medium answers.
    pub(super) fn of(checkpoints: &Checkpoints, base: &Base) -> Result<Self, OpenError> {
        let mut floors = Self::default();
        for (named, floor) in checkpoints.floors()? {
            if named.first_seq == base.first_seq {
                floors.of_base.get_or_insert_with(|| floor.clone());
            } else if named.first_seq > base.first_seq {
                floors.ahead.get_or_insert_with(|| (named, floor.clone()));
            }
            floors.newest.get_or_insert(floor);
        }
        Ok(floors)
    }

    /// What the tree may stand on should its files be lost: the lowest from which all that is in the journal's folder can be fed.
    pub(super) fn floor(&self) -> Option<Floor> {
        self.of_base.clone().or_else(|| self.newest.clone())
    }

    /// Where the journal begins; nothing where no tree over what is before that is known, and none can be made of the tree's files.
    ///
    /// # Errors
    /// The tree's files cannot be read; damaged ones are no error.
    pub(super) fn footing(&self, base: Base, tree: &LogTree) -> Result<Option<Footing>, OpenError> {
        let size = base.first_seq.saturating_sub(1);
        if size == 0 {
            return Ok(Some(Footing { base, floor: None, ahead: None }));
        }
        let of_base = self.of_base.as_ref().map(|floor| floor.frontier.clone());
        let shown = match of_base {
            Some(floor) => Ok(floor),
            // An earlier build made a checkpoint without it, or the checkpoint is gone.
            None => tree.reader().frontier(size),
        };
        match (shown, &self.ahead) {
            (Ok(floor), _) => Ok(Some(Footing { base, floor: Some(floor), ahead: None })),
            (Err(error @ TreeError::Io { .. }), _) => Err(error.into()),
            (Err(_), Some((ahead, floor))) => {
                let ahead = Some((*ahead, floor.frontier.clone()));
                Ok(Some(Footing { base, floor: None, ahead }))
            }
            (Err(_), None) => Ok(None),
        }
    }
}
