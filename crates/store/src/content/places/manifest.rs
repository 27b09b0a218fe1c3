//! The manifest of the places: which tables count, and which parts of which packs they cover.
//!
//! Owns its form, its reading at a start and the removing of what it does not name. Not here: the tables' bytes (`sorted`), making the
//! places anew (`remaking`, and `mending` above it). Invariants: what the operating system cannot read for the moment is an error of the
//! start and no damage, so nothing is removed for it; a damaged table is left where it is until a manifest is in place that does without
//! it, and then set aside; the sound ones beside it count. A damaged manifest leaves what its tables say of deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::superseded::{self, Named, Superseded};
use super::{Levels, PackInfo, Packs, PlaceIndex, TenantKey};
use crate::content::error::ContentError;
use crate::journal::medium::{read_full_at, replace_file, to_usize};
use crate::sorted::{TableName, TableSet, table_number, table_path};

pub(super) const FILE: &str = "manifest";
const VERSION: u16 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u16,
    tables: Vec<TableName>,
    next_table: u64,
    /// By tenant, in hexadecimal, and number.
    packs: BTreeMap<String, BTreeMap<u32, PackInfo>>,
    /// The packs whose files count no more, and go.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    superseded: Named,
    /// The highest number that a pack of a tenant ever had, where no pack that is there has it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    last_numbers: BTreeMap<String, u32>,
}

/// What a manifest says beside its tables.
#[derive(Debug)]
pub(super) struct Known {
    packs: Packs,
    pub(super) going: BTreeSet<(TenantKey, u32)>,
    last_numbers: BTreeMap<TenantKey, u32>,
}

impl Known {
    pub(super) fn of(levels: &Levels) -> Self {
        let mut last_numbers = levels.last_numbers.clone();
        for (tenant, number) in levels.superseded.keys() {
            let last = last_numbers.entry(*tenant).or_default();
            *last = (*last).max(*number);
        }
        last_numbers.retain(|tenant, last| {
            let packs = levels.packs.get(tenant);
            packs.and_then(|packs| packs.keys().next_back()).is_none_or(|known| *known < *last)
        });
        Self { packs: levels.packs.clone(), going: levels.going(), last_numbers }
    }
}

/// What a start found.
pub(super) struct Loaded {
    pub(super) levels: Levels,
    pub(super) next_table: u64,
    /// What is damaged, where anything is.
    pub(super) damage: Option<String>,
}

impl PlaceIndex {
    pub(super) fn write_manifest(
        &self,
        tables: &TableSet,
        known: &Known,
        next_table: u64,
    ) -> Result<(), ContentError> {
        let packs = known.packs.iter().map(|(tenant, packs)| (hex::encode(tenant), packs.clone()));
        let last_numbers = known.last_numbers.iter();
        let manifest = Manifest {
            version: VERSION,
            tables: tables.names(),
            next_table,
            packs: packs.collect(),
            superseded: superseded::named(&known.going),
            last_numbers: last_numbers.map(|(tenant, last)| (hex::encode(tenant), *last)).collect(),
        };
        let path = self.directory.join(FILE);
        let failed = || ContentError::io("write the manifest", &path);
        let mut bytes =
            serde_json::to_vec(&manifest).map_err(|error| failed()(io::Error::other(error)))?;
        let digest = hex::encode(Sha256::digest(&bytes));
        bytes.push(b'\n');
        bytes.extend_from_slice(digest.as_bytes());
        bytes.push(b'\n');
        replace_file(&*self.medium, &path, &bytes).map_err(failed())
    }

    /// What the manifest says, as far as it and its tables verify; nothing where there is none, and no table either.
    ///
    /// # Errors
    /// What the operating system answers: a file that cannot be read now may be sound.
    pub(super) fn load(&self) -> Result<Option<Loaded>, ContentError> {
        let path = self.directory.join(FILE);
        let failed = || ContentError::io("read the manifest", &path);
        let file = match self.medium.open_read(&path) {
            Ok(file) => file,
            // The first table was made, and a kill came before the manifest; or it is lost.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.salvage(None),
            Err(error) => return Err(failed()(error)),
        };
        let mut bytes = vec![0; to_usize(file.length().map_err(failed())?)];
        read_full_at(&*file, &mut bytes, 0).map_err(failed())?;
        let (manifest, mut levels) = match parse(&bytes) {
            Ok(parsed) => parsed,
            Err(why) => return self.salvage(Some(why)),
        };
        let opened = TableSet::open_sound(&self.medium, &self.directory, &manifest.tables);
        let (tables, damaged) = opened.map_err(ContentError::places)?;
        let why: Vec<String> = damaged.iter().map(|(_, error)| error.to_string()).collect();
        levels.tables = tables;
        levels.is_partial = !damaged.is_empty();
        let paths = damaged.iter().map(|(name, _)| table_path(&self.directory, name.number));
        levels.damaged = paths.collect();
        let damage = levels.is_partial.then(|| why.join("; "));
        Ok(Some(Loaded { levels, next_table: manifest.next_table, damage }))
    }

    /// What is known without a manifest. Where the living pieces are the packs say; of what was deleted, and is in no pack any more,
    /// only the tables do: all that are there are asked for it. Which packs counted no more is lost, and harms nothing: a checkpoint
    /// leaves a deletion behind only when such packs are gone, and all later ones a start does once more.
    fn salvage(&self, damage: Option<String>) -> Result<Option<Loaded>, ContentError> {
        let opened = TableSet::open_all(&self.medium, &self.directory);
        let (tables, damaged) = opened.map_err(ContentError::places)?;
        let numbers = tables.names().into_iter().map(|name| name.number);
        let numbers = numbers.chain(damaged.iter().filter_map(|path| number_at(path)));
        let Some(last) = numbers.max().or(damage.is_some().then_some(0)) else { return Ok(None) };
        let levels = Levels { tables, damaged, is_partial: true, ..Levels::default() };
        Ok(Some(Loaded { levels, next_table: last.saturating_add(1), damage }))
    }

    /// Whether tables were found damaged at the opening: what they said has to be rebuilt before anything is asked.
    pub(crate) fn is_partial(&self) -> bool {
        self.levels.read().unwrap_or_else(PoisonError::into_inner).is_partial
    }

    /// Sets tables aside that are damaged, and that no manifest names any more. That they are kept is a help for whoever looks into it,
    /// so where it cannot be done nothing is wrong.
    pub(super) fn set_damaged_aside(&self) {
        let damaged = {
            let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut levels.damaged)
        };
        for path in damaged {
            match self.medium.rename(&path, &path.with_extension("damaged")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, path = %path.display(), "a damaged table could not be set aside");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Removes tables that do not count any more, and what a crash left unfinished.
    pub(super) fn sweep(&self) -> Result<(), ContentError> {
        let kept: Vec<PathBuf> = {
            let levels = self.levels.read().unwrap_or_else(PoisonError::into_inner);
            let named = levels.tables.tables().iter().map(|table| table.path().to_owned());
            named.chain(levels.damaged.iter().cloned()).collect()
        };
        let names = self.medium.list(&self.directory);
        for name in names.map_err(ContentError::io("list the folder", &self.directory))? {
            let path = self.directory.join(&name);
            let unfinished = path.extension().is_some_and(|extension| extension == "tmp");
            if unfinished || (table_number(&name).is_some() && !kept.contains(&path)) {
                self.medium.remove(&path).map_err(ContentError::io("remove", &path))?;
            }
        }
        Ok(())
    }
}

fn number_at(path: &Path) -> Option<u64> {
    table_number(path.file_name()?.to_str()?)
}

fn parse(bytes: &[u8]) -> Result<(Manifest, Levels), String> {
    let body = bytes.split_last_chunk::<66>().and_then(|(body, end)| {
        let digest = end.strip_prefix(b"\n")?.strip_suffix(b"\n")?;
        (digest == hex::encode(Sha256::digest(body)).as_bytes()).then_some(body)
    });
    let mut manifest: Manifest =
        serde_json::from_slice(body.ok_or("the manifest does not verify")?)
            .map_err(|error| error.to_string())?;
    if manifest.version != VERSION {
        return Err(format!("unknown version {} of the manifest", manifest.version));
    }
    let mut packs = Packs::new();
    for (tenant, infos) in std::mem::take(&mut manifest.packs) {
        packs.insert(tenant_of(&tenant)?, infos);
    }
    let mut last_numbers = BTreeMap::new();
    for (tenant, last) in &manifest.last_numbers {
        last_numbers.insert(tenant_of(tenant)?, *last);
    }
    let superseded: Superseded = superseded::read(std::mem::take(&mut manifest.superseded))?;
    Ok((manifest, Levels { packs, superseded, last_numbers, ..Levels::default() }))
}

fn tenant_of(name: &str) -> Result<TenantKey, String> {
    let mut tenant: TenantKey = [0; 32];
    hex::decode_to_slice(name, &mut tenant).map_err(|error| error.to_string())?;
    Ok(tenant)
}
