//! The state lost, damaged, exchanged and lied to: the answers stay those of the journal.

use std::fs;
use std::path::Path;

use placet_ledger::store::EffectQuery;
use tempfile::tempdir;
use tokio::time::timeout;

use super::*;
use crate::embedded::StateFate;
use crate::embedded::codec::{Stored, decode_value, encode_value};
use crate::embedded::keys;
use crate::embedded::tree::Tree;

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
    records.sort_by_key(EffectRecord::place);
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

fn was_rebuilt(report: &RecoveryReport) -> bool {
    matches!(report.state, StateFate::Rebuilt { .. })
}

#[tokio::test]
async fn a_lost_state_is_rebuilt() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 30).await;
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let (store, report) = open(&config);
    assert!(was_rebuilt(&report));
    assert_eq!(report.replayed, report.frames);
    check(&store, &records).await;
    store.close().await.unwrap();
    let (store, report) = open(&config);
    assert_eq!((report.state, report.replayed), (StateFate::Kept, 0));
    check(&store, &records).await;
}

#[tokio::test]
async fn a_damaged_state_never_changes_an_answer() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 60).await;
    let db = folder.path().join("state").join("db");
    let sound = fs::read(&db).unwrap();
    let mut rebuilt = 0;
    for round in 0..8_usize {
        let db = folder.path().join("state").join("db");
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
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    fs::create_dir_all(db.parent().unwrap()).unwrap();
    fs::write(&db, &sound[..sound.len() / 2]).unwrap();
    let (store, _) = open(&config);
    check(&store, &records).await;
}

#[tokio::test]
async fn what_is_not_believed_is_set_aside_and_the_last_one_is_kept() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 3).await;
    for _ in 0..3 {
        let tree = Tree::open(&folder.path().join("state"), 8 << 20).unwrap();
        tree.sled().remove(keys::META).unwrap();
        drop(tree);
        let (store, report) = open(&config);
        assert!(was_rebuilt(&report));
        check(&store, &records).await;
        store.close().await.unwrap();
    }
    let aside = names(folder.path());
    let aside: Vec<_> = aside.iter().filter(|name| name.starts_with("state.damaged-")).collect();
    assert_eq!(aside, ["state.damaged-4"]);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_state_of_another_journal_is_not_believed() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (config, other_config) = (config(folder.path()), config(other.path()));
    let records = filled(&config, 12).await;
    let (store, _) = open(&other_config);
    make(&*store, "stranger", true).await;
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    fs::rename(other.path().join("state"), folder.path().join("state")).unwrap();
    let (store, report) = open(&config);
    assert!(was_rebuilt(&report));
    check(&store, &records).await;
    let stranger = claim_of("acme", "stranger", 1);
    assert_eq!(store.effect(stranger.record_id).await.unwrap(), None);
}

#[tokio::test]
async fn an_old_copy_of_the_state_catches_up() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    filled(&config, 5).await;
    let (state, copy) = (folder.path().join("state"), folder.path().join("copy"));
    copy_folder(&state, &copy);
    let (store, _) = open(&config);
    let later = make(&*store, "later", true).await;
    store.close().await.unwrap();
    fs::remove_dir_all(&state).unwrap();
    fs::rename(&copy, &state).unwrap();
    let (store, report) = open(&config);
    assert_eq!((report.state, report.replayed), (StateFate::Kept, 2));
    assert_eq!(store.effect(later.record_id).await.unwrap(), Some(later));
}

#[tokio::test]
async fn a_kill_during_the_recovery_of_sled_does_not_lock_it_out() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 4).await;
    fs::write(folder.path().join("state").join("snap.0000000000000001.generating"), b"half")
        .unwrap();
    let (store, report) = open(&config);
    assert_eq!(report.state, StateFate::Kept);
    check(&store, &records).await;
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
fn the_states_that_recovery_lists_are_the_open_ones() {
    let record = claim_of("acme", "key", 1);
    let asked = approval(&record, "apr_1", NOW_MS);
    let sent = moved(&record, EffectState::Dispatched(attempt(&record, 1, Dedup::Opaque)));
    let (waiting, allowed, done) =
        (pending(&record, &asked), approved(&record, &asked), succeeded(&sent));
    for EffectRecord { state, .. } in [&record, &waiting, &allowed, &sent, &done] {
        let name = state.name();
        assert_eq!(keys::OPEN_STATES.contains(&name), state.is_open(), "{name}");
        assert!(keys::effect_states().contains(&name), "{name}");
    }
}

/// sled forgets without a word: a key that is gone, has an older value, or that of another key, is noticed at the next start.
#[tokio::test]
async fn what_the_state_forgot_is_noticed_at_the_next_start() {
    let prefixes = [keys::EFFECT, keys::EFFECT_STATE, keys::CALL, keys::APPROVAL_TENANT, keys::RUN];
    for prefix in prefixes {
        for how in ["removed", "older", "exchanged"] {
            let folder = tempdir().unwrap();
            let config = config(folder.path());
            let records = filled(&config, 4).await;
            let (store, _) = open(&config);
            let tree = store.state.tree().unwrap();
            let (key, older) = tree.sled().scan_prefix([prefix]).next().unwrap().unwrap();
            match how {
                "removed" => drop(tree.sled().remove(key).unwrap()),
                "older" => drop(tree.sled().insert(key, [&older[..], b"x"].concat()).unwrap()),
                _ => drop(tree.sled().insert([&key[..], b"x"].concat(), older).unwrap()),
            }
            drop(tree);
            store.close().await.unwrap();
            let (store, report) = open(&config);
            assert!(was_rebuilt(&report), "{how} {prefix}");
            check(&store, &records).await;
        }
    }
}

#[tokio::test]
async fn a_state_whose_building_was_cut_short_is_built_again() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 30).await;
    let (state, whole) = (folder.path().join("state"), folder.path().join("whole"));
    fs::rename(&state, &whole).unwrap();
    {
        // In the order of the keys, as it is built; how far it goes comes last.
        let (whole, half) = (Tree::open(&whole, 1 << 20).unwrap(), Tree::open(&state, 1 << 20));
        let half = half.unwrap();
        for pair in whole.walk(&[]).take(50) {
            let (key, value) = pair.unwrap();
            half.sled().insert(key, value).unwrap();
        }
    }
    let (store, report) = open(&config);
    assert!(was_rebuilt(&report), "{report:?}");
    check(&store, &records).await;
}

#[tokio::test]
async fn an_older_value_under_its_own_key_is_noticed_at_the_next_start() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let sent = make(&*store, "key", false).await;
    let tree = store.state.tree().unwrap();
    let key = keys::effect(&sent.record_id);
    let older = tree.sled().get(&key).unwrap().unwrap();
    put(&*store, &succeeded(&sent)).await.unwrap();
    tree.sled().insert(&key, older).unwrap();
    drop(tree);
    store.close().await.unwrap();
    let (store, report) = open(&config);
    assert!(was_rebuilt(&report));
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(succeeded(&sent)));
}

#[tokio::test]
async fn a_value_that_does_not_verify_stops_the_store() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let (one, two) = (make(&*store, "one", true).await, make(&*store, "two", true).await);
    let tree = store.state.tree().unwrap();
    let value = tree.sled().get(keys::effect(&two.record_id)).unwrap().unwrap();
    tree.sled().insert(keys::effect(&one.record_id), value).unwrap();
    let read = store.effect(one.record_id).await;
    assert!(matches!(read, Err(StoreError::Stopped(_))), "{read:?}");
    let died = timeout(Duration::from_secs(20), store.died()).await.unwrap();
    assert!(died.contains("does not verify"), "{died}");
}

/// sled promises nothing for a power cut: a state that was in use when the machine went down is not believed.
#[tokio::test]
async fn a_state_of_another_boot_is_believed_only_if_it_was_closed() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let records = filled(&config, 4).await;
    let mark = folder.path().join("trusted");
    let other_boot = |closed: bool| format!("{{\"boot_id\":\"another\",\"closed\":{closed}}}");
    // Where the system tells no boot id, nothing says that the machine has not gone down.
    let no_boot = "{\"boot_id\":null,\"closed\":false}".to_owned();
    for (said, rebuilt) in [
        (other_boot(true), false),
        (other_boot(false), true),
        (no_boot, true),
        ("{".to_owned(), true),
    ] {
        fs::write(&mark, &said).unwrap();
        let (store, report) = open(&config);
        assert_eq!(was_rebuilt(&report), rebuilt, "{said}");
        check(&store, &records).await;
        // As after a kill: it is of this boot, and was not closed.
        let in_use = fs::read_to_string(&mark).unwrap();
        store.close().await.unwrap();
        assert!(in_use.contains("false") && fs::read_to_string(&mark).unwrap().contains("true"));
        fs::write(&mark, in_use).unwrap();
        let (store, report) = open(&config);
        assert!(!was_rebuilt(&report), "{said}");
        store.close().await.unwrap();
    }
    fs::remove_file(&mark).unwrap();
    assert!(was_rebuilt(&open(&config).1));
}
