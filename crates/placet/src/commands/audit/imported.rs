//! `placet audit verify` of logs that a ledger brought from another store.
//!
//! Owns their comparison with signed checkpoints. Not here: what makes an entry wrong, and how the files are made (`placet-store`).
//! Invariant: nothing is changed.

use std::{
    collections::BTreeSet,
    fmt,
    fs::File,
    io::{BufRead as _, BufReader},
    path::PathBuf,
};

use placet_ledger::proof::note::NoteName;
use placet_store::{
    embedded::imported_logs,
    seal::{ExportHeader, verify_whole},
};
use serde_json::{Value, json};

use super::verify::{Signed, UNSIGNED};
use crate::{
    config::load::Config,
    failure::{Attempted as _, Failure},
    storage,
};

/// A log that was verified.
#[derive(Debug)]
pub(super) struct Imported {
    /// How it was signed where it was written.
    pub(super) origin: NoteName,
    entries: u64,
    head: [u8; 32],
    /// How many entries are covered by a signed checkpoint that it agrees with.
    pub(super) sealed: Option<u64>,
}

impl Imported {
    pub(super) fn document(&self) -> Value {
        json!({
            "log": self.origin, "entries": self.entries, "head": hex::encode(self.head),
            "sealed_entries": self.sealed,
        })
    }
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imported {}: {} entries, ", self.origin, self.entries)?;
        match self.sealed {
            Some(size) => {
                write!(f, "{size} of them under a signed checkpoint that they agree with")
            }
            None => write!(f, "{UNSIGNED}"),
        }
    }
}

fn files(config: &Config) -> Result<Vec<PathBuf>, Failure> {
    imported_logs(&storage::store_folder(&config.data))
        .attempted("the imported logs cannot be read")
}

/// The names of the logs that are there. What cannot be read is reported by [`verify`].
pub(super) fn origins(config: &Config) -> Result<BTreeSet<NoteName>, Failure> {
    let mut origins = BTreeSet::new();
    for path in files(config)? {
        let what = || format!("`{}` cannot be read", path.display());
        let mut line = String::new();
        BufReader::new(File::open(&path).attempted(what())?)
            .read_line(&mut line)
            .attempted(what())?;
        origins
            .extend(serde_json::from_str::<ExportHeader>(&line).ok().map(|header| header.origin));
    }
    Ok(origins)
}

/// Verifies them, and adds what is wrong to `findings`.
pub(super) fn verify(
    config: &Config,
    signed: &[&Signed],
    findings: &mut Vec<String>,
) -> Result<Vec<Imported>, Failure> {
    let sizes = signed.iter().map(|signed| signed.checkpoint.head.size).collect();
    let mut verified = Vec::new();
    for path in files(config)? {
        let what = || format!("`{}` cannot be read", path.display());
        let mut lines = BufReader::new(File::open(&path).attempted(what())?);
        let log = match verify_whole(&mut lines, &sizes) {
            Ok(log) => log,
            Err(error) => {
                findings.push(format!("imported log `{}`: {error}", path.display()));
                continue;
            }
        };
        let mut sealed = None;
        for signed in signed.iter().filter(|signed| signed.checkpoint.origin == log.origin) {
            match signed.covered(log.origin.as_str(), log.entries, &log.seen) {
                Ok(size) => sealed = sealed.max(Some(size)),
                Err(why) => findings.push(why),
            }
        }
        let (origin, entries, head) = (log.origin, log.entries, log.head);
        verified.push(Imported { origin, entries, head, sealed });
    }
    Ok(verified)
}
