//! A piece that lies in two records: a kill while a pack was rewritten leaves both, and what has rotted is kept anew elsewhere.
//!
//! Owns which of two records counts, and the erasing of the other. Not here: deleting (`forget`), the writing anew (`reader`).
//! Invariants: what is whole counts before what has rotted, and what was known before what was found; the other is erased, whole or
//! not: it would outlive the deletion of the piece, and come back with it. What cannot be read now is taken for neither.

use std::collections::{BTreeMap, HashMap};

use placet_types::digest::Digest;

use super::error::ContentError;
use super::forget::{overwrite, own_of};
use super::pack::RECORD_HEADER_BYTES;
use super::places::{Located, PackInfo, Place, TenantKey};
use super::{ContentStore, pack_path};
use crate::journal::medium::{MediumFile, to_u64};

/// Pieces by the places that they had.
pub(super) type Pieces = BTreeMap<Digest, Place>;

/// Which records count no more, of those that a pack was found to have, and of those that were known.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// What was found of the same pack.
    here: HashMap<Digest, Place>,
    found: Pieces,
    /// By their packs.
    known: BTreeMap<u32, Pieces>,
}

impl Copies {
    /// What is written over in the pack that was read.
    pub(super) const fn found(&self) -> &Pieces {
        &self.found
    }

    /// What is written over once it is known that another record counts, by pack.
    pub(super) const fn known(&self) -> &BTreeMap<u32, Pieces> {
        &self.known
    }
}

impl ContentStore {
    /// Whether a record that was found counts.
    pub(super) fn counts(
        &self,
        tenant: TenantKey,
        (digest, place): (Digest, Place),
        copies: &mut Copies,
    ) -> Result<bool, ContentError> {
        let known = match copies.here.get(&digest) {
            Some(known) => Some(*known),
            None => match self.reader.locate(tenant, digest)? {
                Some(Located::At { place: known, .. }) => Some(known),
                Some(Located::Gone) | None => None,
            },
        };
        let Some(known) = known.filter(|known| *known != place) else {
            copies.here.insert(digest, place);
            return Ok(true);
        };
        let counts = match self.reader.load(tenant, digest, known) {
            Ok(_) => false,
            // It was deleted, and kept anew.
            Err(ContentError::Missing { .. }) => {
                copies.here.insert(digest, place);
                return Ok(true);
            }
            Err(ContentError::Altered { .. }) => self.reader.is_whole(tenant, digest, place)?,
            Err(error) => return Err(error),
        };
        if counts {
            copies.here.insert(digest, place);
            copies.known.entry(known.pack).or_default().insert(digest, known);
        } else {
            copies.found.insert(digest, place);
        }
        Ok(counts)
    }

    /// Erases records of pieces that are elsewhere now.
    pub(super) fn erase_replaced(
        &self,
        tenant: TenantKey,
        pack: u32,
        pieces: &Pieces,
    ) -> Result<(), ContentError> {
        let index = &self.reader.places;
        let _in_use = index.packs_in_use();
        if index.is_superseded(tenant, pack) {
            return Ok(());
        }
        let path = pack_path(&self.directory, tenant, pack);
        let failed = || ContentError::io("erase a copy of content in the pack", &path);
        let file = match self.medium.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed()(error)),
        };
        let length = file.length().map_err(failed())?;
        let mut elsewhere = Vec::new();
        for (digest, place) in pieces {
            let is_here = matches!(index.locate(tenant, *digest)?,
                Some(Located::At { place: now, .. }) if now == *place);
            let end = u64::from(place.offset).saturating_add(u64::from(place.length));
            // Nothing is written behind the end of a pack that was cut short.
            if !is_here && end <= length {
                elsewhere.push((digest, place));
            }
        }
        let own = own_of(&*file, &elsewhere).map_err(failed())?;
        if !own.is_empty() {
            overwrite(&*file, &own).map_err(failed())?;
            let info = index.pack(tenant, pack).without(&own);
            index.publish(tenant, [], Some((pack, info)));
        }
        Ok(())
    }
}

impl PackInfo {
    /// The same with these records deleted.
    pub(super) fn without(mut self, pieces: &[(&Digest, &Place)]) -> Self {
        for (_, place) in pieces {
            let bytes = to_u64(RECORD_HEADER_BYTES).saturating_add(u64::from(place.length));
            self.dead_bytes = self.dead_bytes.saturating_add(bytes);
            self.records = self.records.saturating_sub(1);
        }
        self
    }
}

/// Erases what was found in a pack, and lies elsewhere too.
pub(super) fn erase_found(
    file: &dyn MediumFile,
    path: &std::path::Path,
    pieces: &Pieces,
) -> Result<(), ContentError> {
    if pieces.is_empty() {
        return Ok(());
    }
    let pieces: Vec<_> = pieces.iter().collect();
    overwrite(file, &pieces).map_err(ContentError::io("erase copies of content in", path))
}
