//! The places of content rebuilt from the packs, where a table of them is damaged.
//!
//! Owns when that is done, and the reading. Not here: the tables (`places`), reading at a start what no table covers (`mod`).
//! Invariants: a damaged table is neither an absence nor the end of the store, since the packs say all that it said; whoever only looks
//! changes nothing. Memory is bounded.

use super::error::ContentError;
use super::pack::{RECORD_HEADER_BYTES, Record, read_records};
use super::places::remaking::Remaking;
use super::places::{Located, PackInfo, Packs, Place, PlaceIndex, TenantKey};
use super::reader::ContentReader;
use super::{PACK, pack_number, pack_path, tenant_path};
use crate::journal::medium::to_u64;
use placet_types::digest::Digest;

impl ContentReader {
    /// What is known of a piece. Not for whoever holds the packs: the places may have to be rebuilt.
    pub(super) fn locate(
        &self,
        tenant: TenantKey,
        digest: Digest,
    ) -> Result<Option<Located>, ContentError> {
        self.mended(|places| places.locate(tenant, digest))
    }

    /// Does something with the places; where a table of them is damaged, they are rebuilt, and it is done again. That it can be done
    /// a second time says nothing about the table: what is half done may need it no more.
    pub(super) fn mended<T>(
        &self,
        work: impl Fn(&PlaceIndex) -> Result<T, ContentError>,
    ) -> Result<T, ContentError> {
        let mended = self.places.mended();
        let mut why = match work(&self.places) {
            Err(ContentError::Places(why)) => why,
            done => return done,
        };
        let _alone = self.places.mending();
        if self.places.mended() != mended {
            // Another thread has done it meanwhile.
            match work(&self.places) {
                Err(ContentError::Places(again)) => why = again,
                done => return done,
            }
        }
        self.mend(Some(&why))?;
        work(&self.places)
    }

    /// Reads the tables of places through; where one is damaged, the places are rebuilt.
    pub(crate) fn check_places(&self) -> Result<(), ContentError> {
        self.mended(PlaceIndex::verify)
    }

    /// Whether the places are being rebuilt, by whichever thread.
    pub(crate) fn is_mending(&self) -> bool {
        self.places.is_mending()
    }

    /// What was found damaged of the places.
    pub(crate) fn damaged_places(&self) -> Option<String> {
        self.places.damage()
    }

    /// Makes the places anew, whatever they look like.
    pub(crate) fn remake_places(&self) -> Result<(), ContentError> {
        let _alone = self.places.mending();
        self.mend(Some("asked for"))
    }

    /// Makes the places anew where a start found tables of them damaged, before it asks for any place.
    pub(super) fn mend_partial(&self) -> Result<(), ContentError> {
        if !self.places.is_partial() {
            return Ok(());
        }
        let _alone = self.places.mending();
        self.mend(self.places.damage().as_deref())
    }

    /// `why`: what is damaged; nothing where a crash can have left it so.
    fn mend(&self, why: Option<&str>) -> Result<(), ContentError> {
        tracing::warn!(why, "the places of content are read from the packs again");
        {
            // Nothing is deleted or rewritten while the headers are read.
            let _in_use = self.places.packs_in_use();
            let (packs, places) = (self.places.packs(), self.places.remake());
            let mut found = Found { places, packs, infos: Packs::new() };
            let names = self.medium.list(&self.directory);
            for name in names.map_err(ContentError::io("list the folder", &self.directory))? {
                let mut tenant: TenantKey = [0; 32];
                if hex::decode_to_slice(&name, &mut tenant).is_ok() {
                    self.mend_tenant(tenant, &mut found)?;
                }
            }
            found.places.take_over_deletions()?;
            found.places.done(found.infos, why);
        }
        if let Err(error) = self.places.flush() {
            // They are in memory, and written with the next ones.
            tracing::warn!(%error, "the places of content could not be written");
        }
        Ok(())
    }

    fn mend_tenant(&self, tenant: TenantKey, found: &mut Found<'_>) -> Result<(), ContentError> {
        let folder = tenant_path(&self.directory, tenant);
        let names = self.medium.list(&folder);
        for name in names.map_err(ContentError::io("list the folder", &folder))? {
            let path = folder.join(&name);
            let is_pack = path.extension().is_some_and(|extension| extension == PACK);
            let Some(number) = pack_number(&path).filter(|_| is_pack) else { continue };
            if self.places.is_superseded(tenant, number) {
                continue;
            }
            // What lies behind that a start reads, or its writer tells, once it is durable.
            let known = self.places.pack(tenant, number).length;
            if known == 0 {
                continue;
            }
            let path = pack_path(&self.directory, tenant, number);
            let file = self.medium.open_read(&path);
            let file = file.map_err(ContentError::io("open the pack", &path))?;
            let records = read_records(&*file, 0).map_err(ContentError::io("read the pack", &path));
            for record in records?.records.iter().filter(|record| record.end() <= known) {
                self.mend_record((tenant, number), record, found)?;
            }
            found.places.tend()?;
        }
        Ok(())
    }

    fn mend_record(
        &self,
        (tenant, number): (TenantKey, u32),
        record: &Record,
        found: &mut Found<'_>,
    ) -> Result<(), ContentError> {
        found.count((tenant, number), record);
        let digest = Digest::from_bytes(record.digest);
        let earlier = found.places.get(tenant, digest)?;
        if record.is_dead {
            // It may have been kept again since, in a pack that was read before.
            if earlier.is_none() {
                found.places.put(tenant, digest, Located::Gone);
            }
            return Ok(());
        }
        let offset = u32::try_from(record.offset).unwrap_or(u32::MAX);
        let place = Place { pack: number, offset, length: record.length };
        // Of two the first counts, as at a start, if it is whole.
        let is_copy = match earlier {
            Some(Located::At { place, .. }) => self.is_whole(tenant, digest, place)?,
            Some(Located::Gone) | None => false,
        };
        if !is_copy {
            found.places.put(tenant, digest, Located::At { place, proven: false });
        }
        Ok(())
    }
}

/// What the packs say.
struct Found<'a> {
    places: Remaking<'a>,
    /// What is known of them now: what is counted anew is what was known before.
    packs: Packs,
    infos: Packs,
}

impl Found<'_> {
    fn count(&mut self, (tenant, number): (TenantKey, u32), record: &Record) {
        let known = self.packs.get(&tenant).and_then(|packs| packs.get(&number));
        let Some(known) = known.filter(|known| record.end() <= known.length) else { return };
        let empty = PackInfo { length: known.length, ..PackInfo::default() };
        let info = self.infos.entry(tenant).or_default().entry(number).or_insert(empty);
        if record.is_dead {
            let bytes = to_u64(RECORD_HEADER_BYTES).saturating_add(u64::from(record.length));
            info.dead_bytes = info.dead_bytes.saturating_add(bytes);
        } else {
            info.records = info.records.saturating_add(1);
        }
    }
}
