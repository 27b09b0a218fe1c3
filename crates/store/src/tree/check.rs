//! Comparing a tree with its journal, hash by hash.
//!
//! Owns the check for offline commands. Not here: reading the journal, and making the tree anew ([`super::LogTree::discard`]).
//! Invariant: it changes nothing; a tree that agrees has exactly the hashes of the entries it was shown.

use std::path::Path;
use std::sync::Arc;

use placet_ledger::proof::tiles::{Appender, TILE_HASHES, TilePart, Tiles as _};

use super::files::TileReader;
use super::{Saved, TreeError, read_head};
use crate::journal::medium::Medium;

/// After how many entries what they come to is compared.
const STRIDE: u64 = 4096;

/// Takes the entries of a journal from the first on and compares what they come to with the files.
#[derive(Debug)]
pub struct TreeCheck {
    tiles: TileReader,
    appender: Appender,
    saved: Saved,
    wrong: Option<String>,
}

/// How a tree stands to its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeVerdict {
    /// It holds what the journal says.
    Agrees,
    /// It is behind; the next start lets it catch up.
    Behind {
        /// How many entries it has to take over.
        entries: u64,
    },
    /// There is none; the next start makes it.
    Absent,
    /// It holds more entries than the journal, which has forgotten.
    Ahead {
        /// How many more.
        entries: u64,
    },
    /// It does not hold what the journal says; it can be rebuilt.
    Disagrees {
        /// In what.
        why: String,
    },
}

impl TreeCheck {
    /// Opens the tree in a folder.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn open(directory: &Path, medium: Arc<dyn Medium>) -> Result<Self, TreeError> {
        let saved = read_head(&*medium, directory)?;
        let wrong = matches!(saved, Saved::Damaged).then(|| "its head file is damaged".to_owned());
        let tiles = TileReader::new(medium, directory.to_owned());
        Ok(Self { tiles, appender: Appender::default(), saved, wrong })
    }

    /// Takes the next entry by its chain hash.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn entry(&mut self, hash: &[u8; 32]) -> Result<(), TreeError> {
        self.appender.append(hash);
        if let Saved::Head(frontier, last) = &self.saved
            && frontier.size() == self.appender.frontier().size()
            && (frontier != self.appender.frontier() || last != hash)
        {
            self.wrong.get_or_insert_with(|| "its head is another one".to_owned());
        }
        if self.appender.frontier().size().is_multiple_of(STRIDE) { self.compare() } else { Ok(()) }
    }

    /// What came of it.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn finish(mut self) -> Result<TreeVerdict, TreeError> {
        self.compare()?;
        if let Some(why) = self.wrong {
            return Ok(TreeVerdict::Disagrees { why });
        }
        let Saved::Head(frontier, _) = &self.saved else { return Ok(TreeVerdict::Absent) };
        let (tree, journal) = (frontier.size(), self.appender.frontier().size());
        Ok(match (journal.checked_sub(tree), tree.checked_sub(journal)) {
            (Some(0), _) => TreeVerdict::Agrees,
            (Some(entries), _) => TreeVerdict::Behind { entries },
            (None, ahead) => TreeVerdict::Ahead { entries: ahead.unwrap_or(0) },
        })
    }

    fn compare(&mut self) -> Result<(), TreeError> {
        let size = match &self.saved {
            Saved::Head(frontier, _) => frontier.size(),
            Saved::None | Saved::Damaged => 0,
        };
        for part in self.appender.take() {
            if self.wrong.is_none() && !self.part_agrees(&part, size)? {
                let tile = part.tile.path(TILE_HASHES);
                self.wrong = Some(format!("its `{tile}` is not what the entries come to"));
            }
        }
        Ok(())
    }

    /// Whether the part stands in the files, as far as the saved tree goes.
    fn part_agrees(&self, part: &TilePart, size: u64) -> Result<bool, TreeError> {
        let width = part.tile.width(size);
        let from_here = width.saturating_sub(part.offset).min(part.hashes.len());
        if from_here == 0 {
            return Ok(true);
        }
        let found = self.tiles.tile(part.tile, width)?;
        let end = part.offset.saturating_add(from_here);
        Ok(found.get(part.offset..end) == part.hashes.get(..from_here))
    }
}
