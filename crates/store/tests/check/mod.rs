//! Everything that must be true of a folder after whatever happened to it, given the account of it.
//!
//! Owns the checks I1, I2, I7 and I14, and the retry of every call. Not here: the account and what it says (`support`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::store::{EffectChange, Store as _};
use placet_store::embedded::{EmbeddedConfig, RecoveryReport, StateVerdict, decode_entry, verify};
use placet_store::journal::verify_each;

use super::support::records::claim;
use super::support::{Account, Facts, acknowledged, call, open, runtime};

/// Everything that must be true of a folder, given the account of what happened with it. Opens it, makes every call of `keys` once
/// more, closes it, and reads it back.
pub(crate) fn check(
    folder: &Path,
    account: &Path,
    keys: &[String],
) -> Result<RecoveryReport, String> {
    let before = Facts::read(account);
    let runtime = runtime();
    let report = runtime.block_on(async {
        let (store, report) = open(folder).map_err(|error| format!("does not open: {error}"))?;
        acknowledged(&store, &before).await?;
        let mut account = Account::open(account);
        for key in keys {
            call(&store, key, &mut account)
                .await
                .map_err(|error| format!("the retry of `{key}` fails: {error}"))?;
        }
        store.close().await.map_err(|error| format!("does not close: {error}"))?;
        Ok::<_, String>(report)
    })?;
    let after = Facts::read(account);
    single(&after)?;
    chain(folder, &after)?;
    Ok(report)
}

/// I1: no effect twice, and after the retries each key has an outcome.
fn single(facts: &Facts) -> Result<(), String> {
    match facts.effects.iter().find(|(_, count)| **count > 1) {
        Some((key, count)) => Err(format!("`{key}` was executed {count} times")),
        None => Ok(()),
    }
}

/// I2, I7 and I14: the chain verifies, each history in it is legal and dispatches once, every effect has its intent, and the
/// state says the same.
fn chain(folder: &Path, facts: &Facts) -> Result<(), String> {
    let mut states: BTreeMap<String, EffectRecord> = BTreeMap::new();
    let mut dispatched: BTreeSet<String> = BTreeSet::new();
    verify_each(&folder.join("journal"), None, &mut |frame| {
        for effect in decode_entry(frame.kind, &frame.payload)?.effects {
            let EffectChange::Put(record) = effect else {
                return Err("a record was removed".into());
            };
            let key = record.key.as_str().to_owned();
            let before = states.get(&key).map_or_else(|| claim(&key, &[], 1), EffectRecord::clone);
            if !before.may_move_to(&record) || before.rev.saturating_add(1) != record.rev {
                return Err(format!("`{key}`: {:?} became {:?}", before.state, record.state).into());
            }
            if matches!(record.state, EffectState::Dispatched(_)) && !dispatched.insert(key.clone())
            {
                return Err(format!("`{key}` was dispatched twice").into());
            }
            states.insert(key, *record);
        }
        Ok(())
    })
    .map_err(|error| format!("the chain: {error}"))?;
    if let Some(key) = facts.effects.keys().find(|key| !dispatched.contains(*key)) {
        return Err(format!("the effect of `{key}` has no intent"));
    }
    let verdict = verify(&EmbeddedConfig::new(folder))
        .map_err(|error| format!("does not verify: {error}"))?;
    if verdict.state != StateVerdict::Agrees || !verdict.is_sound() {
        return Err(format!("does not verify: {verdict:?}"));
    }
    Ok(())
}
