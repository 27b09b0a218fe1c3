//! Checkpoints: what is in them, and what happens when they, or what they stand on, are not there any more.

use std::fs;
use std::path::{Path, PathBuf};

use placet_ledger::log::AuditLog as _;
use placet_ledger::store::{ApprovalQuery, ClaimAnswer, EffectQuery};
use placet_types::digest::Digest;
use tempfile::tempdir;

use super::*;
use crate::embedded::open::IndexFate;
use crate::embedded::{IndexVerdict, KnownHead, verify, verify_with};

/// Records of all kinds, with checkpoints between them.
pub(super) async fn filled(store: &EmbeddedStore, rounds: u32) -> Vec<EffectRecord> {
    let mut records = Vec::new();
    for round in 0..rounds {
        for number in 0..6_u32 {
            let key = format!("key-{round}-{number}");
            records.push(make(store, &key, number % 3 != 0).await);
        }
        let claimed = claim(store, &format!("held-{round}"));
        let asked = approval(&claimed, &format!("apr_{round}"), NOW_MS + i64::from(round));
        records.push(hold(store, &claimed, &asked).await);
        let mut changes = synced();
        changes.runs.push(run(&format!("run_{round}"), 9));
        changes.content = named_contents(&tenant("acme"));
        store.commit(changes).await.unwrap();
        store.checkpoint().await.unwrap();
    }
    // Records move on after the checkpoint that has them.
    for record in &mut records {
        if let EffectState::Dispatched(_) = record.state
            && record.key.as_str().ends_with('0')
        {
            *record = succeeded(record);
            put(store, record).await.unwrap();
        }
    }
    records.sort_by_key(|record| record.record_id);
    records
}

pub(super) async fn check(store: &EmbeddedStore, records: &[EffectRecord]) {
    for record in records {
        assert_eq!(store.effect(record.record_id).await.unwrap().as_ref(), Some(record));
        let of_call = store.effect_of_call(&record.call_id).await.unwrap();
        assert_eq!(of_call.as_ref(), Some(record));
        let again =
            EffectRecord { state: EffectState::Claimed { epoch: store.epoch() }, ..record.clone() };
        assert!(matches!(store.claim(again).await.unwrap(), ClaimAnswer::Taken(_)));
    }
    let all = EffectQuery { limit: usize::MAX, ..EffectQuery::default() };
    assert_eq!(store.effects(&all).await.unwrap(), records);
    for state in ["dispatched", "succeeded", "pending_approval"] {
        let query = EffectQuery { state: Some(state.to_owned()), ..all.clone() };
        let expected: Vec<_> =
            records.iter().filter(|record| record.state.name() == state).cloned().collect();
        assert_eq!(store.effects(&query).await.unwrap(), expected);
    }
    let open = EffectQuery { open_only: true, ..all.clone() };
    let expected = records.iter().filter(|record| record.state.is_open()).count();
    assert_eq!(store.effects(&open).await.unwrap().len(), expected);
    let waiting = records.iter().filter(|record| record.state.name() == "pending_approval");
    let approvals = ApprovalQuery { limit: 99, ..ApprovalQuery::default() };
    let listed = store.approvals(&approvals).await.unwrap();
    assert_eq!(listed.len(), waiting.clone().count());
    assert!(listed.is_sorted_by_key(|approval| approval.created_at));
    for record in waiting {
        let of_call = store.approval_of_call(&record.call_id).await.unwrap().unwrap();
        assert_eq!(of_call.record_id, record.record_id);
    }
    let new = claim(store, "never-seen");
    assert_eq!(store.claim(new.clone()).await.unwrap(), ClaimAnswer::Claimed);
    store.release(new.record_id).await;
}

pub(super) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|found| found == extension));
    found.sort();
    found
}

pub(super) fn spoil(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_start_reads_only_what_comes_after_the_checkpoint() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let records = filled(&store, 5).await;
    check(&store, &records).await;
    store.close().await.unwrap();
    for _ in 0..2 {
        let (store, report) = open(&config);
        assert_eq!((report.index, report.replayed), (IndexFate::Kept, 0));
        assert!(report.checkpoint_seq > 40 && report.checkpoint_seq < report.frames);
        assert_eq!(report.effects, u64::try_from(records.len()).unwrap());
        assert_eq!((report.approvals, report.runs), (5, 5));
        check(&store, &records).await;
        drop(store);
    }
    assert_eq!(files(&folder.path().join("checkpoints"), "checkpoint").len(), 2);
}

#[tokio::test]
async fn an_index_lost_after_a_checkpoint_is_made_anew_from_there() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let records = filled(&store, 3).await;
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let (store, report) = open(&config);
    assert!(matches!(report.index, IndexFate::Rebuilt { .. }));
    assert_eq!(report.replayed, report.frames - report.checkpoint_seq);
    check(&store, &records).await;
}

#[tokio::test]
async fn a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let records = filled(&store, 4).await;
    store.close().await.unwrap();
    let checkpoints = folder.path().join("checkpoints");
    let mut last_seq = u64::MAX;
    for left in [1, 0] {
        spoil(files(&checkpoints, "checkpoint").last().unwrap());
        let told = verify(folder.path()).unwrap();
        assert_eq!(told.damaged_checkpoints.len(), 1);
        assert!(!told.is_sound());
        let (store, report) = open(&config);
        assert!(report.checkpoint_seq < last_seq);
        last_seq = report.checkpoint_seq;
        assert_eq!(files(&checkpoints, "checkpoint").len(), left);
        check(&store, &records).await;
        store.close().await.unwrap();
    }
    assert_eq!(last_seq, 0);
    assert_eq!(files(&checkpoints, "damaged").len(), 2);
}

#[tokio::test]
async fn a_damaged_table_costs_a_rebuild_and_never_an_answer() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let records = filled(&store, 3).await;
    store.close().await.unwrap();
    let table = files(&folder.path().join("checkpoints"), "table").remove(0);
    let mut bytes = fs::read(&table).unwrap();
    bytes[40] ^= 1;
    fs::write(&table, &bytes).unwrap();
    let told = verify(folder.path()).unwrap();
    assert!(matches!(told.index, IndexVerdict::Disagrees { .. }), "{:?}", told.index);
    // A start that meets it goes without it.
    let (store, report) = open(&config);
    assert_eq!(report.checkpoint_seq, 0);
    check(&store, &records).await;
    store.checkpoint().await.unwrap();
    // A look-up that meets it stops the store.
    let table = files(&folder.path().join("checkpoints"), "table").pop().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[40] ^= 1;
    fs::write(&table, &bytes).unwrap();
    let mut refused = 0;
    for record in &records {
        match store.effect(record.record_id).await {
            Ok(found) => assert_eq!(found.as_ref(), Some(record)),
            Err(StoreError::Stopped(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
    drop(store);
    let (store, _) = open(&config);
    check(&store, &records).await;
}

#[tokio::test]
async fn a_journal_older_than_its_checkpoint_is_refused() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    make(&*store, "early", true).await;
    store.close().await.unwrap();
    let (journal, copy) = (folder.path().join("journal"), folder.path().join("copy"));
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&journal).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let (store, _) = open(&config);
    filled(&store, 2).await;
    store.close().await.unwrap();
    fs::remove_dir_all(&journal).unwrap();
    fs::rename(&copy, &journal).unwrap();
    let refused = try_open(&config).unwrap_err().to_string();
    assert!(refused.contains("forgotten"), "{refused}");
}

#[tokio::test]
async fn an_old_copy_of_everything_is_told_by_a_head_that_is_known_from_elsewhere() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    make(&*store, "early", true).await;
    let head = store.heads().await.unwrap().remove(0);
    store.close().await.unwrap();
    let known = KnownHead { seq: head.size, hash: head.head };
    let knowing = EmbeddedConfig { known_head: Some(known), ..config.clone() };
    let (store, _) = open(&knowing);
    make(&*store, "later", true).await;
    store.close().await.unwrap();
    open(&knowing).0.close().await.unwrap();
    for known in [KnownHead { seq: known.seq + 3, ..known }, KnownHead { hash: [7; 32], ..known }] {
        let knowing = EmbeddedConfig { known_head: Some(known), ..config.clone() };
        let refused = try_open(&knowing).unwrap_err();
        assert!(matches!(refused, OpenError::OldCopy { .. }), "{refused}");
    }
}

#[tokio::test]
async fn too_many_changes_for_memory_go_into_tables_and_into_a_checkpoint() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let records = filled(&store, 3).await;
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    fs::remove_dir_all(folder.path().join("checkpoints")).unwrap();
    let tight = EmbeddedConfig { recovery_bytes_max: 2_000, ..config };
    let (store, report) = open(&tight);
    assert_eq!((report.checkpoint_seq, report.replayed), (0, report.frames));
    check(&store, &records).await;
    store.close().await.unwrap();
    // Several were written, and are one: a look-up asks each of them.
    assert_eq!(files(&folder.path().join("checkpoints"), "table").len(), 1);
    let (store, report) = open(&tight);
    assert_eq!((report.index, report.replayed), (IndexFate::Kept, 0));
    assert_eq!(report.checkpoint_seq, report.frames);
    check(&store, &records).await;
}

#[tokio::test]
async fn archived_records_are_read_with_and_without_the_archive() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let (store, _) = open(&config);
    let mut records = filled(&store, 5).await;
    let archived = store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    assert!(archived.segments > 3 && archived.records > 10, "{archived:?}");
    let archive = folder.path().join("archive");
    assert_eq!(files(&archive, "segment").len(), usize::try_from(archived.segments).unwrap());
    check(&store, &records).await;
    // Nothing more to archive: only the last segment is left, or what no two checkpoints cover.
    let again = store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    assert_eq!(again.first_seq.max(archived.first_seq), again.first_seq);
    store.close().await.unwrap();
    let whole = verify_with(&config).unwrap();
    assert!(whole.is_sound() && whole.is_whole(), "{whole:?}");
    assert_eq!((whole.journal.first_seq, whole.journal.archived_segments > 3), (1, true));

    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&archive, &elsewhere).unwrap();
    let rest = verify_with(&config).unwrap();
    assert!(rest.is_sound() && !rest.is_whole(), "{rest:?}");
    assert!(rest.content.named >= 3 && rest.damaged_records.is_none(), "{rest:?}");
    assert_eq!(rest.journal.first_seq, again.first_seq);
    assert_eq!(rest.journal.head, whole.journal.head);
    let (store, report) = open(&config);
    assert_eq!(report.index, IndexFate::Kept);
    check(&store, &records).await;
    // An archived record moves on.
    let moving = records.iter_mut().find(|record| record.state.name() == "dispatched").unwrap();
    *moving = succeeded(moving);
    put(&*store, moving).await.unwrap();
    check(&store, &records).await;
    store.checkpoint().await.unwrap();
    store.close().await.unwrap();

    // Without any checkpoint the archive is needed.
    fs::remove_dir_all(folder.path().join("checkpoints")).unwrap();
    let refused = try_open(&config).unwrap_err().to_string();
    assert!(refused.contains("archived"), "{refused}");
    let config = EmbeddedConfig { archive: Some(elsewhere), ..config };
    let (store, _) = open(&config);
    check(&store, &records).await;
}

#[tokio::test]
async fn an_exchanged_segment_after_the_archived_ones_is_refused() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let (store, _) = open(&config);
    filled(&store, 5).await;
    store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    let base = folder.path().join("journal").join("base");
    let sound = fs::read(&base).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&base, bytes).unwrap();
        assert!(verify(folder.path()).is_err(), "byte {at}");
        assert!(try_open(&config).is_err(), "byte {at}");
    }
    fs::remove_file(&base).unwrap();
    assert!(verify(folder.path()).is_err());
}

#[tokio::test]
async fn settled_records_are_listed_by_age() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let mut expected = Vec::new();
    for number in (0..20_i64).rev() {
        let sent = make(&*store, &format!("key-{number}"), false).await;
        let moved_at = Timestamp::from_ms(NOW_MS + number * 10);
        let done = EffectRecord { updated_at: moved_at, ..succeeded(&sent) };
        put(&*store, &done).await.unwrap();
        expected.insert(0, done);
        if number % 7 == 0 {
            store.checkpoint().await.unwrap();
        }
    }
    make(&*store, "open", false).await;
    let before = Some(Timestamp::from_ms(NOW_MS + 120));
    let query = EffectQuery { settled_before: before, limit: 5, ..EffectQuery::default() };
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store.effects(&EffectQuery { after, ..query.clone() }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.record_id);
        found.extend(page);
    }
    assert_eq!(found, expected[..12]);
    // A sweep that buries what it has listed comes to its end, wherever it goes on from.
    let (mut after, mut buried) = (None, 0);
    let due = EffectQuery { state: Some("succeeded".to_owned()), ..query.clone() };
    loop {
        let page = store.effects(&EffectQuery { after, ..due.clone() }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.record_id);
        for record in &page {
            let tombstone = EffectState::Tombstone {
                was: "succeeded".to_owned(),
                code: None,
                settled_at: record.updated_at,
            };
            let moved_at = Timestamp::from_ms(NOW_MS + 9_000);
            let buried = EffectRecord { updated_at: moved_at, ..moved(record, tombstone) };
            put(&*store, &buried).await.unwrap();
        }
        buried += page.len();
    }
    assert_eq!(buried, 12);
    let of_state = EffectQuery { state: Some("denied".to_owned()), ..query.clone() };
    assert_eq!(store.effects(&of_state).await.unwrap(), []);
    let of_tenant = EffectQuery { tenant: Some(tenant("globex")), ..query };
    assert_eq!(store.effects(&of_tenant).await.unwrap(), []);
}

#[tokio::test]
async fn a_backup_made_while_writing_is_a_sound_store() {
    let (folder, target) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let (store, _) = open(&config);
    let records = filled(&store, 3).await;
    let writing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for number in 0..200 {
                let mut changes = puts(&[]);
                changes.content.push((tenant("acme"), format!("content {number}").into_bytes()));
                changes.audit.push(event("writing"));
                store.commit(changes).await.unwrap();
                make(&*store, &format!("meanwhile-{number}"), true).await;
            }
        })
    };
    let to = target.path().join("copy");
    let made = store.backup(&to).await.unwrap();
    assert!(store.backup(&to).await.is_err(), "a folder that is not empty is left alone");
    writing.await.unwrap();
    let told = verify(&to).unwrap();
    assert_eq!((told.journal.last_seq, told.journal.head), (made.seq, made.head));
    assert!(told.content.altered.is_empty() && told.damaged_checkpoints.is_empty());
    let copy_config = on(&to, &FaultyDisk::default());
    let (copy, report) = open(&copy_config);
    assert_eq!(report.frames, made.seq);
    assert_eq!(copy.store_id(), store.store_id());
    for record in &records {
        assert_eq!(copy.effect(record.record_id).await.unwrap().as_ref(), Some(record));
    }
    make(&*copy, "goes-on", true).await;
    copy.close().await.unwrap();
    assert!(verify(&to).unwrap().is_sound());
    store.close().await.unwrap();
    assert!(verify(folder.path()).unwrap().is_sound());
}

#[tokio::test]
async fn forgotten_content_is_gone_for_good_and_the_chain_stays_sound() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let (gone, kept) = (b"a secret of acme".to_vec(), b"something else".to_vec());
    let large = vec![7; 300 << 10];
    let mut changes = synced();
    for bytes in [&gone, &kept, &large] {
        changes.content.push((tenant("acme"), bytes.clone()));
    }
    store.commit(changes).await.unwrap();
    let mut changes = synced();
    for bytes in [&gone, &large] {
        changes.forget_content.push((tenant("acme"), Digest::of(bytes)));
    }
    store.commit(changes).await.unwrap();
    let missing = |bytes: &[u8]| Err(StoreError::ContentMissing(Digest::of(bytes)));
    for round in 0..3 {
        let (store, _) = if round == 0 {
            (Arc::clone(&store), None)
        } else {
            let (store, report) = open(&config);
            (store, Some(report))
        };
        assert_eq!(store.content(&tenant("acme"), Digest::of(&gone)).await, missing(&gone));
        assert_eq!(store.content(&tenant("acme"), Digest::of(&large)).await, missing(&large));
        assert_eq!(store.content(&tenant("acme"), Digest::of(&kept)).await, Ok(kept.clone()));
        store.close().await.unwrap();
    }
    let pack = fs::read(pack_of(folder.path(), "acme")).unwrap();
    assert!(!pack.windows(gone.len()).any(|bytes| bytes == gone), "the bytes are still on disk");
    assert!(verify(folder.path()).unwrap().is_sound());
}

#[tokio::test]
async fn proofs_are_given_over_restarts_and_checkpoints() {
    use placet_ledger::proof::{Consistency, Inclusion};
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    filled(&store, 2).await;
    let early = store.heads().await.unwrap().remove(0);
    drop(store);
    let (store, _) = open(&config);
    let done = make(&*store, "later", true).await;
    let late = store.heads().await.unwrap().remove(0);
    assert_eq!(late.size, early.size + 2);
    let path = store.consistency("journal", early.size, late.size).await.unwrap();
    let path = path.into_iter().map(Digest::from_bytes).collect();
    let (from, to) = (early.size, late.size);
    let (old, new) = (Digest::from_bytes(early.root), Digest::from_bytes(late.root));
    Consistency { from, to, path }.verify(&old, &new).unwrap();
    let (log, seq) = store.entry_of(done.record_id).await.unwrap().unwrap();
    let entry = store.entries(&log, seq, 1).await.unwrap().remove(0);
    let path = store.inclusion(&log, seq, late.size).await.unwrap();
    let path = path.into_iter().map(Digest::from_bytes).collect();
    Inclusion { seq, size: late.size, path }.verify(&entry.hash, &new).unwrap();
    assert!(store.entries("other", 1, 1).await.is_err());
}
