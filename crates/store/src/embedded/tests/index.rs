//! The index lost, damaged, exchanged and lied to: the answers stay those of the journal.

use std::fs;
use std::path::Path;

use placet_ledger::store::EffectQuery;
use tempfile::tempdir;
use tokio::time::timeout;

use super::*;
use crate::embedded::codec::{Stored, decode_value, encode_value};
use crate::embedded::generation::open_tree;
use crate::embedded::keys;
use crate::embedded::open::IndexFate;
use crate::embedded::stamps;

/// A store with records in all kinds of states, closed; answers them.
async fn filled(config: &EmbeddedConfig, count: u32) -> Vec<EffectRecord> {
    let (store, _) = open(config);
    let mut records = Vec::new();
    for number in 0..count {
        records.push(make(&*store, &format!("key-{number}"), number % 3 != 0).await);
    }
    let claimed = claim(&*store, "held");
    let asked = approval(&claimed, "apr_1", NOW_MS);
    records.push(hold(&*store, &claimed, &asked).await);
    let mut changes = synced();
    changes.runs.push(run("run_1", 9));
    store.commit(changes).await.unwrap();
    store.close().await.unwrap();
    records.sort_by_key(|record| record.record_id);
    records
}

async fn check(store: &EmbeddedStore, records: &[EffectRecord]) {
    for record in records {
        assert_eq!(store.effect(record.record_id).await.unwrap().as_ref(), Some(record));
        let by_call = store.effect_of_call(&record.call_id).await.unwrap();
        assert_eq!(by_call.as_ref(), Some(record));
    }
    let all = EffectQuery { limit: usize::MAX, ..EffectQuery::default() };
    assert_eq!(store.effects(&all).await.unwrap(), records);
    let run_key = run("run_1", 9).key;
    assert!(store.run(&run_key).await.unwrap().is_some());
    let asked = ApprovalId::new("apr_1").unwrap();
    assert!(store.approval(&asked).await.unwrap().is_some());
}

/// The folder of the only generation.
fn generation(folder: &Path) -> std::path::PathBuf {
    let index = folder.join("index");
    let names = names(&index);
    assert_eq!(names.len(), 1, "{names:?}");
    index.join(&names[0])
}

fn was_rebuilt(report: &RecoveryReport) -> bool {
    matches!(report.index, IndexFate::Rebuilt { .. })
}

#[tokio::test]
async fn a_lost_index_is_made_anew() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 30).await;
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let (store, report) = open(&config);
    assert!(was_rebuilt(&report));
    assert_eq!(report.replayed, report.frames);
    check(&store, &records).await;
    store.close().await.unwrap();
    let (store, report) = open(&config);
    assert_eq!((report.index, report.replayed), (IndexFate::Kept, 0));
    check(&store, &records).await;
}

#[tokio::test]
async fn a_damaged_index_never_changes_an_answer() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 60).await;
    let db = folder.path().join("index").join("00000001").join("db");
    let sound = fs::read(&db).unwrap();
    let mut rebuilt = 0;
    for round in 0..8_usize {
        let db = generation(folder.path()).join("db");
        let mut bytes = fs::read(&db).unwrap();
        let at = bytes.len() / 9 * (round + 1);
        match round % 4 {
            0 => bytes.truncate(at),
            1 => bytes[at..].iter_mut().take(4096).for_each(|byte| *byte = 0),
            2 => bytes[at] ^= 0x10,
            _ => bytes.clear(),
        }
        fs::write(&db, bytes).unwrap();
        let (store, report) = open(&config);
        rebuilt += usize::from(was_rebuilt(&report));
        check(&store, &records).await;
        store.close().await.unwrap();
    }
    assert!(rebuilt >= 2, "no damage was noticed");
    let (store, _) = open(&config);
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    fs::create_dir_all(db.parent().unwrap()).unwrap();
    fs::write(&db, &sound[..sound.len() / 2]).unwrap();
    let (store, _) = open(&config);
    check(&store, &records).await;
}

#[tokio::test]
async fn of_the_indices_set_aside_the_last_two_are_kept() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 3).await;
    for _ in 0..4 {
        let index = open_tree(&generation(folder.path()), 8 << 20).unwrap();
        index.remove(keys::META).unwrap();
        drop(index);
        let (store, report) = open(&config);
        assert!(was_rebuilt(&report));
        check(&store, &records).await;
        store.close().await.unwrap();
    }
    let aside = names(folder.path());
    let aside: Vec<_> = aside.iter().filter(|name| name.starts_with("index.damaged-")).collect();
    assert_eq!(aside, ["index.damaged-4", "index.damaged-5"]);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn an_index_of_another_journal_is_not_believed() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (config, other_config) = (config(folder.path()), config(other.path()));
    let records = filled(&config, 12).await;
    let (store, _) = open(&other_config);
    make(&*store, "stranger", true).await;
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    fs::rename(other.path().join("index"), folder.path().join("index")).unwrap();
    let (store, report) = open(&config);
    assert!(was_rebuilt(&report));
    check(&store, &records).await;
    let stranger = claim_of("acme", "stranger", 1);
    assert_eq!(store.effect(stranger.record_id).await.unwrap(), None);
}

#[tokio::test]
async fn an_old_copy_of_the_index_catches_up() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    filled(&config, 5).await;
    let (index, copy) = (folder.path().join("index"), folder.path().join("copy"));
    copy_folder(&index, &copy);
    let (store, _) = open(&config);
    let later = make(&*store, "later", true).await;
    store.close().await.unwrap();
    fs::remove_dir_all(&index).unwrap();
    fs::rename(&copy, &index).unwrap();
    let (store, report) = open(&config);
    assert_eq!((report.index, report.replayed), (IndexFate::Kept, 2));
    assert_eq!(store.effect(later.record_id).await.unwrap(), Some(later));
}

#[tokio::test]
async fn a_kill_during_the_recovery_of_the_index_does_not_lock_it_out() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 4).await;
    fs::write(
        folder.path().join("index").join("00000001").join("snap.0000000000000001.generating"),
        b"half",
    )
    .unwrap();
    let (store, report) = open(&config);
    assert_eq!(report.index, IndexFate::Kept);
    check(&store, &records).await;
}

#[tokio::test]
async fn what_the_index_forgets_is_never_answered_as_absent() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 10).await;
    for record in &records {
        let (store, _) = open(&config);
        let index = store.state.index().unwrap();
        index.active().db().remove(keys::effect(&record.record_id)).unwrap();
        drop(index);
        let read = store.effect(record.record_id).await;
        assert!(matches!(read, Err(StoreError::Stopped(_))), "{read:?}");
        let died = timeout(Duration::from_secs(20), store.died()).await.unwrap();
        assert!(died.contains("forgotten"), "{died}");
        let again = claim(&*store, record.key.as_str());
        assert!(matches!(store.claim(again).await, Err(StoreError::Stopped(_))));
        assert!(matches!(put(&*store, &succeeded(record)).await, Err(StoreError::Stopped(_))));
        drop(store);
        let (store, report) = open(&config);
        assert!(was_rebuilt(&report));
        check(&store, &records).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_claim_finds_what_the_index_has_forgotten() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 3).await;
    let (store, _) = open(&config);
    store.state.index().unwrap().active().db().clear().unwrap();
    let again = claim(&*store, records[0].key.as_str());
    assert!(matches!(store.claim(again).await, Err(StoreError::Stopped(_))));
}

#[tokio::test]
async fn an_older_form_of_a_record_is_not_believed() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let sent = make(&*store, "key", false).await;
    let key = keys::effect(&sent.record_id);
    let index = store.state.index().unwrap();
    let older = index.active().db().get(&key).unwrap().unwrap();
    put(&*store, &succeeded(&sent)).await.unwrap();
    index.active().db().insert(&key, older).unwrap();
    let read = store.effect(sent.record_id).await;
    assert!(matches!(read, Err(StoreError::Stopped(_))), "{read:?}");
}

#[tokio::test]
async fn a_value_in_the_wrong_place_is_not_believed() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let (one, two) = (make(&*store, "one", true).await, make(&*store, "two", true).await);
    let index = store.state.index().unwrap();
    let value = index.active().db().get(keys::effect(&two.record_id)).unwrap().unwrap();
    index.active().db().insert(keys::effect(&one.record_id), value).unwrap();
    let read = store.effect(one.record_id).await;
    assert!(matches!(read, Err(StoreError::Stopped(_))), "{read:?}");
}

#[tokio::test]
async fn a_list_that_lost_an_entry_is_noticed_at_the_next_start() {
    for prefix in
        [keys::EFFECT_STATE, keys::CALL, keys::APPROVAL_STATE, keys::APPROVAL_TENANT, keys::RUN]
    {
        let folder = tempdir().unwrap();
        let config = config(folder.path());
        let records = filled(&config, 4).await;
        let (store, _) = open(&config);
        let index = store.state.index().unwrap();
        let (key, _) = index.active().db().scan_prefix([prefix]).next().unwrap().unwrap();
        index.active().db().remove(key).unwrap();
        drop(index);
        store.close().await.unwrap();
        let (store, report) = open(&config);
        assert!(was_rebuilt(&report));
        assert_eq!(report.effects, u64::try_from(records.len()).unwrap());
        let open_only = EffectQuery { open_only: true, limit: 99, ..EffectQuery::default() };
        let still_open = records.iter().filter(|record| record.state.is_open()).count();
        assert_eq!(store.effects(&open_only).await.unwrap().len(), still_open);
    }
}

#[test]
fn a_value_is_read_only_as_it_was_written() {
    for body in [vec![b'x'; 300], vec![]] {
        let value = encode_value(b"key", 77, &body);
        let stored = Stored { seq: 77, body };
        assert_eq!(decode_value(b"key", &value), Some(stored));
        assert_eq!(decode_value(b"kez", &value), None);
        for at in 0..value.len().min(40) {
            let mut altered = value.clone();
            altered[at] ^= 1;
            assert_eq!(decode_value(b"key", &altered), None, "byte {at}");
        }
        assert_eq!(decode_value(b"key", &value[..value.len() - 1]), None);
    }
}

#[test]
fn the_codes_of_states_are_those_of_their_names() {
    let record = claim_of("acme", "key", 1);
    let asked = approval(&record, "apr_1", NOW_MS);
    let sent = moved(&record, EffectState::Dispatched(attempt(&record, 1, Class::Opaque)));
    for record in [&record, &pending(&record, &asked), &approved(&record, &asked), &sent] {
        let name = record.state.name();
        assert_eq!(keys::effect_state_code(name), Some(keys::effect_code(&record.state)));
        assert_eq!(keys::open_name(keys::effect_code(&record.state)), Some(name));
    }
    let done = succeeded(&sent).state;
    assert_eq!(keys::effect_state_code(done.name()), Some(keys::effect_code(&done)));
    assert_eq!(keys::open_name(keys::effect_code(&done)), None);
    let states = [ApprovalState::Pending, ApprovalState::Approved, ApprovalState::Expired];
    for state in states {
        assert_eq!(keys::approval_state_code(state.name()), Some(keys::approval_code(&state)));
    }
}

#[test]
fn a_stamp_is_current_from_its_own_entry_on() {
    for (seq, wanted, current) in [
        (5, 5, true),
        (6, 5, true),
        (4, 5, false),
        (1 << 32, 0, true),
        ((1 << 32) + 3, u64::from(u32::MAX), true),
        (u64::from(u32::MAX), (1 << 32) + 3, false),
    ] {
        assert_eq!(stamps::is_current(seq, stamps::low(wanted)), current, "{seq} {wanted}");
    }
}
