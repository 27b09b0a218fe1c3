//! Copies cut short at each system call: a backup, while contents are deleted, and a ledger that is made of an export.
//!
//! Owns their scripts, and what must be true of the copy: it is whole, or nothing takes it for a ledger. Of the ledger that is copied
//! everything must be true that must be anywhere (`keeping`).

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use placet_ledger::store::{Store as _, StoreError};
use placet_store::embedded::{EmbeddedConfig, EmbeddedStore, export, import, verify};
use tokio::join;

use super::super::blows::{Case, Copy, fail_all, kill_all};
use super::super::support::{Account, Facts, acknowledged, call, open, runtime};
use super::{SAMPLE, bury, furnish, is_erased, passing, with_store};

/// The folders, beside `data`.
const BACKUP: &str = "backup";
const IMPORTED: &str = "imported";
const EXPORT: &str = "export.jsonl";

pub(super) fn live(root: &Path, script: &str, account: &mut Account) -> Option<Result<(), String>> {
    Some(match script {
        "backup" => with_store(&root.join("data"), account, |store, account| {
            runtime().block_on(back_up(store, root, account))
        }),
        "export" => furnish(root, account).and_then(|()| export_it(root)),
        "import" => import_it(root, account),
        _ => return None,
    })
}

/// Two copies, the first while contents are deleted.
async fn back_up(
    store: &EmbeddedStore,
    root: &Path,
    account: &mut Account,
) -> Result<(), StoreError> {
    let to = root.join(BACKUP);
    let (made, buried) =
        join!(store.backup(&to), bury(store, &["e-0", "e-1", "e-3", "same-0"], account));
    buried?;
    if made.is_ok() {
        account.say(&format!("made {BACKUP}"));
    }
    passing(made)?;
    call(store, "f-0", account).await?;
    passing(store.snapshot().await)
}

fn export_it(folder: &Path) -> Result<(), String> {
    let out = folder.parent().unwrap().join(EXPORT);
    let out = File::create(out).map_err(|error| error.to_string())?;
    export(&EmbeddedConfig::new(folder), out).map(drop).map_err(|error| error.to_string())
}

fn import_it(root: &Path, account: &mut Account) -> Result<(), String> {
    let input = File::open(root.join(EXPORT)).map_err(|error| error.to_string())?;
    let to = EmbeddedConfig { segment_bytes: 8 << 10, ..EmbeddedConfig::new(root.join(IMPORTED)) };
    match import(&to, BufReader::new(input)) {
        Ok(_) => account.say(&format!("made {IMPORTED}")),
        Err(error) => account.say(&format!("failed {error}")),
    }
    Ok(())
}

/// The ledger is as sound as ever, and the backup is whole, or nothing takes it for a ledger.
fn is_backed_up(copy: &Copy) -> Result<(), String> {
    let is_made = Facts::read(&copy.account).made.contains(BACKUP);
    is_erased(copy)?;
    let backup = copy.root.join(BACKUP);
    if !is_made && !backup.join("journal").try_exists().unwrap() {
        return Ok(());
    }
    let before = Facts::read(&copy.template_account);
    match whole(&backup, &before) {
        Err(why) if is_made => Err(format!("the backup: {why}")),
        Err(why) => match open(&backup) {
            Ok(_) => Err(format!("what there is of a backup is served as a ledger: {why}")),
            Err(_) => Ok(()),
        },
        Ok(()) => Ok(()),
    }
}

/// The ledger that was made is whole; or nothing is in its place, nothing is begun there, and it can be made once more.
fn is_imported(copy: &Copy) -> Result<(), String> {
    let (imported, told) = (copy.root.join(IMPORTED), Facts::read(&copy.account));
    if fs::read_dir(&imported).is_ok_and(|mut names| names.next().is_some()) {
        return whole(&imported, &told);
    }
    if told.made.contains(IMPORTED) {
        return Err("the ledger that was made is not there".to_owned());
    }
    let is_left = copy.root.join(format!("{IMPORTED}.importing")).try_exists().unwrap();
    if is_left && open(&imported).is_ok() {
        return Err("an empty ledger was begun where one was being imported".to_owned());
    }
    import_it(&copy.root, &mut Account::open(&copy.account))?;
    whole(&imported, &told)
}

/// A ledger that verifies, with everything that was acknowledged before it was copied; what was deleted meanwhile may be
/// there or not.
fn whole(folder: &Path, before: &Facts) -> Result<(), String> {
    runtime().block_on(async {
        let (store, _) = open(folder).map_err(|error| format!("does not open: {error}"))?;
        let before = Facts { burying: before.done.keys().cloned().collect(), ..before.clone() };
        acknowledged(&store, &before).await?;
        store.close().await.map_err(|error| format!("does not close: {error}"))
    })?;
    let report = verify(&EmbeddedConfig::new(folder)).map_err(|error| error.to_string())?;
    if !report.is_sound() || !report.is_whole() {
        return Err(format!("it does not verify: {report:?}"));
    }
    Ok(())
}

impl Case {
    fn copied(name: &'static str, script: &'static str) -> Self {
        Self { check: is_backed_up, is_wide: true, ..Self::furnished(name, script) }
    }

    fn imported(name: &'static str, script: &'static str) -> Self {
        let case =
            Self { sample: SAMPLE, check: is_imported, is_wide: true, ..Self::new(name, script) };
        case.lived("export")
    }
}

#[test]
fn a_kill_at_any_system_call_of_a_backup_leaves_it_whole_or_none() {
    kill_all("a backup while contents are deleted", [Case::copied("contents", "backup")]);
}

#[test]
fn a_call_that_fails_in_a_backup_leaves_the_ledger_and_no_half_copy() {
    let case = Case { sample: SAMPLE / 2, ..Case::copied("contents", "backup") };
    fail_all("a backup while contents are deleted", [case]);
}

#[test]
fn a_kill_at_any_system_call_of_an_import_leaves_a_whole_ledger_or_none() {
    kill_all("a ledger made of an export", [Case::imported("an export", "import")]);
}

#[test]
fn a_call_that_fails_in_an_import_leaves_a_whole_ledger_or_none() {
    let case = Case { sample: SAMPLE / 2, ..Case::imported("an export", "import") };
    fail_all("a ledger made of an export", [case]);
}
