//! Packs that were rewritten, and go once it is durably known where their pieces are now.
//!
//! Owns which packs these are, and the removing. Not here: the writing anew (`reader`), the manifest (`places`). Invariants: such a pack's
//! file goes only when a manifest is in place with the new places of all that lived in it; until the file is gone every manifest names
//! the pack, so that no start reads it again: what is deleted from then on is erased in the new pack alone. Its number is never
//! given again: the manifest keeps the highest one, since a place that leads into a pack that went must not lead into another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::PoisonError;

use super::{Levels, PlaceIndex, TenantKey};
use crate::content::error::ContentError;
use crate::content::{pack_path, tenant_path};
use crate::journal::medium::beside;

/// Packs that were rewritten, and whether their files are gone.
pub(super) type Superseded = BTreeMap<(TenantKey, u32), bool>;

/// Packs by tenant, in hexadecimal, as the manifest names them.
pub(super) type Named = BTreeMap<String, BTreeSet<u32>>;

impl Levels {
    /// The packs whose files are still to go.
    pub(super) fn going(&self) -> BTreeSet<(TenantKey, u32)> {
        let going = self.superseded.iter().filter(|(_, is_gone)| !**is_gone);
        going.map(|(pack, _)| *pack).collect()
    }

    /// The highest number that a pack of the tenant has, or had.
    pub(super) fn last_number(&self, tenant: TenantKey) -> u32 {
        let known = self.packs.get(&tenant).and_then(|packs| packs.keys().next_back());
        let had = self.superseded.range((tenant, 0)..=(tenant, u32::MAX)).next_back();
        let given = self.last_numbers.get(&tenant);
        let known = known.max(given).copied().unwrap_or(0);
        known.max(had.map_or(0, |((_, number), _)| *number))
    }
}

impl PlaceIndex {
    /// All that lives in a pack is elsewhere: nothing is read from it any more, and it goes after the next flush.
    pub(crate) fn supersede(&self, tenant: TenantKey, pack: u32) {
        let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(packs) = levels.packs.get_mut(&tenant) {
            packs.remove(&pack);
        }
        levels.superseded.insert((tenant, pack), false);
    }

    /// Whether all that lived in a pack is elsewhere.
    pub(crate) fn is_superseded(&self, tenant: TenantKey, pack: u32) -> bool {
        let levels = self.levels.read().unwrap_or_else(PoisonError::into_inner);
        levels.superseded.contains_key(&(tenant, pack))
    }

    /// Removes the files of packs that a manifest in place names as such.
    pub(super) fn remove_superseded(
        &self,
        going: &BTreeSet<(TenantKey, u32)>,
    ) -> Result<(), ContentError> {
        let content = self.directory.parent().unwrap_or(&self.directory);
        for (tenant, number) in going {
            let path = pack_path(content, *tenant, *number);
            // One that could not be written may have been left before it was renamed into place.
            for path in [beside(&path), path] {
                match self.medium.remove(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(ContentError::io("remove the pack", &path)(error));
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            // A file that a crash brings back is one that no later manifest names.
            let folder = tenant_path(content, *tenant);
            match self.medium.sync_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ContentError::io("sync the folder", &folder)(error));
                }
                Ok(()) | Err(_) => {}
            }
            let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
            levels.superseded.insert((*tenant, *number), true);
        }
        Ok(())
    }
}

/// As the manifest names them.
pub(super) fn named(packs: &BTreeSet<(TenantKey, u32)>) -> Named {
    let mut named = Named::new();
    for (tenant, number) in packs {
        named.entry(hex::encode(tenant)).or_default().insert(*number);
    }
    named
}

/// What a manifest names; their files are still there, or may be.
pub(super) fn read(named: Named) -> Result<Superseded, String> {
    let mut superseded = Superseded::new();
    for (tenant, numbers) in named {
        let mut key: TenantKey = [0; 32];
        hex::decode_to_slice(&tenant, &mut key).map_err(|error| error.to_string())?;
        superseded.extend(numbers.into_iter().map(|number| ((key, number), false)));
    }
    Ok(superseded)
}
