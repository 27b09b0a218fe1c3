//! What a check says of records whose entries are in an archive that is not on this machine any more, and of the checkpoint before the
//! last.

use std::fs;
use std::path::PathBuf;

use placet_types::digest::Digest;
use placet_types::error::ErrorCode;
use tempfile::{TempDir, tempdir};

use super::checkpoints::{filled, spoil};
use super::lost::settled;
use super::*;
use crate::embedded::checkpoint::Checkpoints;
use crate::embedded::{VerifyReport, verify};

/// Too much for a pack: it has a file of its own, and its deletion leaves no trace.
fn large(byte: u8) -> Vec<u8> {
    vec![byte; 300 << 10]
}

fn begun() -> (TempDir, Arc<EmbeddedStore>) {
    let folder = tempdir().unwrap();
    let (store, _) = open(&EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) });
    (folder, store)
}

async fn keep(store: &EmbeddedStore, content: Vec<u8>) {
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    changes.content.push((tenant("acme"), content));
    store.commit(changes).await.unwrap();
}

/// Fills segments and archives them.
async fn archived(store: &EmbeddedStore, name: &str) {
    for number in 0..36 {
        make(store, &format!("{name}-{number}"), true).await;
    }
    archive(store).await;
}

async fn archive(store: &EmbeddedStore) {
    let archived = store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    assert!(archived.segments > 0, "{archived:?}");
}

async fn cut_loose(folder: &TempDir, store: Arc<EmbeddedStore>) -> VerifyReport {
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    let report = verify(folder.path()).unwrap();
    assert!(!report.is_whole());
    report
}

fn file_of_its_own(folder: &TempDir) -> PathBuf {
    let tenant = pack_of(folder.path(), "acme").parent().unwrap().to_owned();
    let files = fs::read_dir(tenant).unwrap().map(|entry| entry.unwrap());
    let mut large = files.filter(|file| file.metadata().unwrap().len() > 200 << 10);
    large.next().unwrap().path()
}

#[tokio::test]
async fn a_lost_result_that_only_a_carried_record_names_is_found() {
    let (folder, store) = begun();
    keep(&store, b"something".to_vec()).await;
    settled(&store, "early", &large(7)).await;
    archived(&store, "later").await;
    let report = cut_loose(&folder, store).await;
    assert!(report.is_sound() && report.journal.first_seq > 4, "{report:?}");
    fs::remove_file(file_of_its_own(&folder)).unwrap();
    let report = verify(folder.path()).unwrap();
    assert_eq!(report.content.missing, [(tenant("acme"), Digest::of(&large(7)))]);
    assert!(!report.is_sound());
}

/// A record was carried over, moved on in an entry that is in the archive by now, and deleted there what it had named; its last form
/// stands in an entry that is not archived, so nothing was carried over again. The table that has it is the larger one of the two: it is
/// not rewritten.
#[tokio::test]
async fn what_a_record_named_before_it_moved_on_is_not_missed() {
    let (folder, store) = begun();
    keep(&store, large(7)).await;
    let sent = make(&*store, "moves", false).await;
    let (code, result) = (ErrorCode::AdapterFailed, Digest::of(&large(7)));
    let failed = EffectState::FailedRetriable { code, result, approval_id: None };
    let failed = moved(&sent, failed);
    put(&*store, &failed).await.unwrap();
    archived(&store, "between").await;
    let again = dispatched(&*store, &failed);
    let mut changes = puts(&[&again]);
    changes.forget_content.push((tenant("acme"), result));
    let deleted = store.commit(changes).await.unwrap();
    for number in 0..12 {
        make(&*store, &format!("after-{number}"), true).await;
    }
    let last = put(&*store, &succeeded(&again)).await.unwrap();
    archive(&store).await;
    let report = cut_loose(&folder, store).await;
    let first_seq = report.journal.first_seq;
    assert!(deleted.seq < first_seq && first_seq <= last.seq, "{report:?}");
    assert!(report.is_sound(), "{report:?}");
}

#[tokio::test]
async fn what_approvers_were_shown_of_a_call_that_is_buried_is_not_missed() {
    let (folder, store) = begun();
    keep(&store, large(7)).await;
    let claimed = claim(&*store, "held");
    let proposal = Digest::of(&large(7));
    let asked = ApprovalRecord { proposal, ..approval(&claimed, "apr_held", NOW_MS) };
    let waiting = hold(&*store, &claimed, &asked).await;
    let approval_id = asked.approval_id.clone();
    let denied =
        moved(&waiting, EffectState::Denied { code: ErrorCode::ApprovalDenied, approval_id });
    put(&*store, &denied).await.unwrap();
    let (was, settled_at) = ("denied".to_owned(), denied.updated_at);
    let tombstone =
        EffectState::Tombstone { was, code: Some(ErrorCode::ApprovalDenied), settled_at };
    let mut changes = puts(&[&moved(&denied, tombstone)]);
    changes.forget_content.push((tenant("acme"), proposal));
    let deleted = store.commit(changes).await.unwrap();
    archived(&store, "later").await;
    let report = cut_loose(&folder, store).await;
    assert!(deleted.seq < report.journal.first_seq, "{report:?}");
    assert!(report.is_sound(), "{report:?}");
}

#[tokio::test]
async fn a_damaged_table_of_carried_records_is_told() {
    let (folder, store) = begun();
    keep(&store, b"something".to_vec()).await;
    archived(&store, "early").await;
    let report = cut_loose(&folder, store).await;
    assert!(report.is_sound(), "{report:?}");
    let checkpoints = folder.path().join("checkpoints");
    let kept = Checkpoints::new(Arc::new(FaultyDisk::default()), checkpoints.clone());
    let newest = kept.numbers().unwrap().pop().unwrap();
    let table = kept.load(newest).unwrap().bodies.names().remove(0);
    let path = crate::sorted::table_path(&checkpoints, table.number);
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = verify(folder.path()).unwrap();
    let why = report.damaged_records.clone().unwrap();
    assert!(why.contains("is damaged") && !report.is_sound(), "{report:?}");
}

/// Its file, or a table that the newest one does not name any more.
#[tokio::test]
async fn a_damaged_checkpoint_to_fall_back_on_is_told() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    filled(&store, 4).await;
    store.close().await.unwrap();
    let sound = verify(folder.path()).unwrap();
    assert!(sound.is_sound(), "{sound:?}");
    let checkpoints = folder.path().join("checkpoints");
    let kept = Checkpoints::new(Arc::new(FaultyDisk::default()), checkpoints.clone());
    let [earlier, newest] = kept.numbers().unwrap()[..] else { panic!("two are kept") };
    let tables = |number| kept.load(number).unwrap().tables.names();
    let newer = tables(newest);
    let own = tables(earlier).into_iter().find(|table| !newer.contains(table)).unwrap();
    for path in [kept.path(earlier), crate::sorted::table_path(&checkpoints, own.number)] {
        let copy = tempdir().unwrap();
        copy_folder(folder.path(), copy.path());
        spoil(&copy.path().join(path.strip_prefix(folder.path()).unwrap()));
        let told = verify(copy.path()).unwrap();
        let damaged: Vec<u64> = told.damaged_fallbacks.iter().map(|(number, _)| *number).collect();
        assert_eq!((damaged, told.damaged_checkpoints.len()), (vec![earlier], 0));
        assert!(!told.is_sound());
        let (store, report) = open(&config(copy.path()));
        assert_eq!(report.checkpoint_seq, sound.checkpoint_seq);
        store.checkpoint().await.unwrap();
        store.close().await.unwrap();
        assert!(verify(copy.path()).unwrap().is_sound());
    }
}
