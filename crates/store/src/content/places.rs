//! Where every piece of content lies, without holding it all in memory.
//!
//! Owns the places of late (in memory, bounded) and the sorted tables with all the others. Not here: the manifest that says which parts of
//! which packs these cover (`manifest`), the packs themselves, the reading of content. Invariants: what the manifest says is covered
//! can be found in the tables; the rest is read from the packs' headers at every start; places lost altogether are found there too.
//!
//! In memory: about 130 bytes for each piece kept since the last table was made, two bytes for each piece in the filters.

mod manifest;
pub(super) mod remaking;
mod superseded;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use serde::{Deserialize, Serialize};

use placet_types::digest::Digest;

use self::manifest::Known;
use self::superseded::Superseded;
use super::error::ContentError;
use crate::journal::medium::Medium;
use crate::sorted::{Marks, Merged, Source, TableSet, TableWriter, table_path};

/// A tenant, as its folder is named: the digest of its name.
pub(crate) type TenantKey = [u8; 32];

/// After how many places in memory they become a table; in tests so few that tables come about.
const PLACES_MAX: usize = if cfg!(test) { 64 } else { 100_000 };
const FOLDER: &str = "places";

/// Where content lies in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// What is known of a piece of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Located {
    /// It is there; `proven`: this process knows that the right bytes are there.
    At { place: Place, proven: bool },
    /// It was deleted.
    Gone,
}

/// What is known of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackInfo {
    /// Up to where its records are known.
    pub(crate) length: u64,
    /// How many records it has that are not deleted.
    pub(crate) records: u64,
    /// How many bytes belong to deleted records.
    pub(crate) dead_bytes: u64,
}

pub(crate) type Packs = BTreeMap<TenantKey, BTreeMap<u32, PackInfo>>;

pub(super) type Places = HashMap<(TenantKey, Digest), Located>;

#[derive(Debug, Default)]
struct Levels {
    active: Places,
    frozen: Option<Arc<Places>>,
    tables: TableSet,
    packs: Packs,
    /// The packs of which all that lived is elsewhere.
    superseded: Superseded,
    /// The packs that are being written to.
    current: BTreeMap<TenantKey, u32>,
    /// The highest number that a pack of the tenant ever had: none is given again, since an old place could lead into the new pack.
    last_numbers: BTreeMap<TenantKey, u32>,
    /// Tables that are damaged and count no more; set aside when a manifest is in place that does not name them.
    damaged: Vec<PathBuf>,
    /// What damaged tables said is to be rebuilt before anything is asked.
    is_partial: bool,
    /// Something was deleted that no table says yet, or will say once the one is in place that is being made.
    has_deletions: bool,
    /// How often they were rebuilt since they were opened.
    mended: u64,
}

impl Levels {
    /// How many places are in memory.
    fn held(&self) -> usize {
        self.active.len().saturating_add(self.frozen.as_ref().map_or(0, |frozen| frozen.len()))
    }
}

/// The places of all content; shared between the writer, readers and the keeper.
#[derive(Debug)]
pub(crate) struct PlaceIndex {
    medium: Arc<dyn Medium>,
    directory: PathBuf,
    levels: RwLock<Levels>,
    /// The number of the next table; held while one is made.
    next_table: Mutex<u64>,
    /// Held by whoever changes packs in place, or copies them.
    packs_in_use: Mutex<()>,
    /// Held by whoever makes the places anew.
    mending: Mutex<()>,
    /// Somebody only looks: nothing is written but tables in this folder, where there is too much for memory.
    aside: Option<PathBuf>,
    /// What was found damaged.
    damage: Mutex<Option<String>>,
}

impl PlaceIndex {
    /// Opens what was covered, as far as it verifies. With `aside` nothing is ever written but tables there.
    pub(crate) fn open(
        medium: Arc<dyn Medium>,
        content: &Path,
        aside: Option<PathBuf>,
    ) -> Result<Self, ContentError> {
        let is_looked_at = aside.is_some();
        let directory = content.join(FOLDER);
        medium.create_dir(&directory).map_err(ContentError::io("make the folder", &directory))?;
        let mut index = Self {
            medium,
            directory,
            levels: RwLock::default(),
            next_table: Mutex::new(1),
            packs_in_use: Mutex::new(()),
            mending: Mutex::new(()),
            aside,
            damage: Mutex::new(None),
        };
        if let Some(loaded) = index.load()? {
            if let Some(why) = &loaded.damage {
                tracing::warn!(why, "the places of content are read from the packs again");
            }
            index.levels = RwLock::new(loaded.levels);
            index.next_table = Mutex::new(loaded.next_table);
            index.damage = Mutex::new(loaded.damage);
        }
        if !is_looked_at {
            let going = index.levels.read().unwrap_or_else(PoisonError::into_inner).going();
            index.remove_superseded(&going)?;
            index.sweep()?;
        }
        Ok(index)
    }

    /// What is known of a piece.
    pub(crate) fn locate(
        &self,
        tenant: TenantKey,
        digest: Digest,
    ) -> Result<Option<Located>, ContentError> {
        let tables = {
            // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
            let levels = self.levels.read().unwrap_or_else(PoisonError::into_inner);
            let frozen = levels.frozen.as_deref();
            let held = levels.active.get(&(tenant, digest));
            if let Some(located) = held.or_else(|| frozen?.get(&(tenant, digest))) {
                return Ok(Some(*located));
            }
            levels.tables.clone()
        };
        let found = tables.get_filtered(&key(&tenant, &digest)).map_err(ContentError::places)?;
        Ok(found.map(|value| decode(&value)))
    }

    /// Pieces are where they are from here on; `pack` is known as far as told.
    pub(crate) fn publish(
        &self,
        tenant: TenantKey,
        entries: impl IntoIterator<Item = (Digest, Located)>,
        pack: Option<(u32, PackInfo)>,
    ) {
        let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
        for (digest, located) in entries {
            levels.has_deletions |= located == Located::Gone;
            levels.active.insert((tenant, digest), located);
        }
        if let Some((number, info)) = pack {
            levels.packs.entry(tenant).or_default().insert(number, info);
        }
    }

    /// A pack is gone.
    pub(crate) fn drop_pack(&self, tenant: TenantKey, pack: u32) {
        let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(packs) = levels.packs.get_mut(&tenant) {
            packs.remove(&pack);
        }
    }

    /// What is known of a pack.
    pub(crate) fn pack(&self, tenant: TenantKey, pack: u32) -> PackInfo {
        let levels = self.levels.read().unwrap_or_else(PoisonError::into_inner);
        let info = levels.packs.get(&tenant).and_then(|packs| packs.get(&pack));
        info.copied().unwrap_or_default()
    }

    /// What is known of all packs.
    pub(crate) fn packs(&self) -> Packs {
        self.levels.read().unwrap_or_else(PoisonError::into_inner).packs.clone()
    }

    /// The tenant's pack that is written to from here on.
    pub(crate) fn set_current(&self, tenant: TenantKey, pack: u32) {
        let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
        levels.current.insert(tenant, pack);
    }

    /// Whether a pack is being written to.
    pub(crate) fn is_current(&self, tenant: TenantKey, pack: u32) -> bool {
        let levels = self.levels.read().unwrap_or_else(PoisonError::into_inner);
        levels.current.get(&tenant) == Some(&pack)
    }

    /// A number that no pack of the tenant has or had; the pack is known as empty.
    pub(crate) fn new_pack(&self, tenant: TenantKey) -> u32 {
        let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
        let number = levels.last_number(tenant).saturating_add(1);
        levels.last_numbers.insert(tenant, number);
        levels.packs.entry(tenant).or_default().insert(number, PackInfo::default());
        number
    }

    /// Held by whoever changes packs in place, or copies them.
    pub(crate) fn packs_in_use(&self) -> MutexGuard<'_, ()> {
        self.packs_in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a table of the places in memory if they are many, those too that an earlier try could not write.
    pub(crate) fn tend(&self) -> Result<(), ContentError> {
        let are_many = |levels: &Levels| levels.held() >= PLACES_MAX;
        // Nobody waits for a table in the making where there is nothing to do.
        if !are_many(&self.levels.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        self.flush_if(are_many)
    }

    /// Makes what was deleted durably known: nobody is to take it for lost, nor forget that its room can be given back.
    pub(crate) fn settle(&self) -> Result<(), ContentError> {
        self.flush_if(|levels| levels.has_deletions)
    }

    /// Makes a table of the places in memory, durably.
    pub(crate) fn flush(&self) -> Result<(), ContentError> {
        self.flush_if(|_| true)
    }

    /// What is due is looked at once no table is in the making: the places that one is made of are in no level that says so, and not
    /// durable before it is in place.
    fn flush_if(&self, is_due: impl Fn(&Levels) -> bool) -> Result<(), ContentError> {
        let mut next_table = self.next_table.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_due(&self.levels.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        let flushed = self.flush_now(&mut next_table);
        if flushed.is_err() {
            let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
            levels.has_deletions = true;
        }
        flushed
    }

    fn flush_now(&self, next_table: &mut u64) -> Result<(), ContentError> {
        let (frozen, tables, known) = {
            let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
            levels.has_deletions = false;
            // What an earlier try could not write is written with the rest.
            let mut places = std::mem::take(&mut levels.active);
            if let Some(earlier) = levels.frozen.take() {
                for (key, place) in earlier.iter() {
                    places.entry(*key).or_insert(*place);
                }
            }
            let frozen = Arc::new(places);
            levels.frozen = Some(Arc::clone(&frozen));
            (frozen, levels.tables.clone(), Known::of(&levels))
        };
        let tables = self.write_table(&frozen, tables, next_table)?;
        if self.aside.is_none() {
            self.write_manifest(&tables, &known, *next_table)?;
        }
        {
            let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
            levels.frozen = None;
            levels.tables = tables;
        }
        if self.aside.is_some() {
            return Ok(());
        }
        self.set_damaged_aside();
        self.remove_superseded(&known.going)?;
        self.sweep()
    }

    /// Held by whoever makes the places anew.
    pub(super) fn mending(&self) -> MutexGuard<'_, ()> {
        self.mending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often they were rebuilt.
    pub(super) fn mended(&self) -> u64 {
        self.levels.read().unwrap_or_else(PoisonError::into_inner).mended
    }

    /// Whether somebody makes the places anew.
    pub(super) fn is_mending(&self) -> bool {
        matches!(self.mending.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// What was found damaged since they were opened.
    pub(super) fn damage(&self) -> Option<String> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads all tables through.
    pub(super) fn verify(&self) -> Result<(), ContentError> {
        let tables = self.levels.read().unwrap_or_else(PoisonError::into_inner).tables.clone();
        tables.tables().iter().try_for_each(|table| table.verify()).map_err(ContentError::places)
    }

    /// All places that hold something, by tenant and digest.
    pub(crate) fn everything(
        &self,
    ) -> impl Iterator<Item = Result<(TenantKey, Digest, Place), ContentError>> + use<> {
        let (held, tables) = {
            let levels = self.levels.read().unwrap_or_else(PoisonError::into_inner);
            let mut held: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let frozen = levels.frozen.iter().flat_map(|frozen| frozen.iter());
            for ((tenant, digest), located) in frozen.chain(&levels.active) {
                held.insert(key(tenant, digest), encode(located));
            }
            (held, levels.tables.clone())
        };
        let held: Source = Box::new(held.into_iter().map(Ok));
        let merged = Merged::new(std::iter::once(held).chain(tables.cursors(&[])).collect());
        merged.filter_map(|pair| match pair {
            Ok((key, value)) => match (key.split_first_chunk::<32>(), decode(&value)) {
                (Some((tenant, digest)), Located::At { place, .. }) => {
                    let digest = Digest::from_bytes(digest.try_into().ok()?);
                    Some(Ok((*tenant, digest, place)))
                }
                _ => None,
            },
            Err(error) => Some(Err(ContentError::places(error))),
        })
    }

    /// The files that a copy of the places is made of, the manifest last; none where nothing is covered.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let levels = self.levels.read().unwrap_or_else(PoisonError::into_inner);
        let tables = levels.tables.names();
        if tables.is_empty() {
            return Vec::new();
        }
        let paths = tables.iter().map(|name| table_path(&self.directory, name.number));
        paths.chain([self.directory.join(manifest::FILE)]).collect()
    }

    /// The name of the folder within that of the content.
    pub(crate) const fn folder() -> &'static str {
        FOLDER
    }

    fn write_table(
        &self,
        places: &Places,
        tables: TableSet,
        next_table: &mut u64,
    ) -> Result<TableSet, ContentError> {
        if places.is_empty() {
            return Ok(tables);
        }
        let mut sorted: Vec<_> = places.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| (key.0, *key.1.as_bytes()));
        let mut writer = self.writer(next_table)?;
        for ((tenant, digest), located) in sorted {
            writer
                .put(&key(tenant, digest), &encode(located), true)
                .map_err(ContentError::places)?;
        }
        let tables = tables.with(writer.finish().map_err(ContentError::places)?);
        let Some(count) = tables.due_for_merge() else { return Ok(tables) };
        let writer = self.writer(next_table)?;
        let merged = tables.merge(count, writer, (|_: &[u8]| true, Marks::Keep));
        let merged = merged.map_err(ContentError::places)?;
        Ok(tables.replaced(count, merged))
    }

    fn writer(&self, next_table: &mut u64) -> Result<TableWriter, ContentError> {
        let number = *next_table;
        *next_table = number.saturating_add(1);
        let folder = self.aside.as_ref().unwrap_or(&self.directory);
        TableWriter::new(Arc::clone(&self.medium), folder, number).map_err(ContentError::places)
    }
}

fn key(tenant: &TenantKey, digest: &Digest) -> Vec<u8> {
    [tenant.as_slice(), digest.as_bytes()].concat()
}

fn encode(located: &Located) -> Vec<u8> {
    match located {
        Located::At { place, .. } => {
            let fields = [place.pack, place.offset, place.length];
            fields.iter().flat_map(|field| field.to_le_bytes()).collect()
        }
        Located::Gone => Vec::new(),
    }
}

fn decode(value: &[u8]) -> Located {
    let field = |at: usize| -> Option<u32> {
        let bytes = value.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    match (field(0), field(4), field(8)) {
        (Some(pack), Some(offset), Some(length)) => {
            Located::At { place: Place { pack, offset, length }, proven: false }
        }
        _ => Located::Gone,
    }
}
