//! Snapshots: what is in them, and what happens when they, or the entries that they cover, are not there any more.

use std::fs;
use std::path::{Path, PathBuf};

use placet_ledger::log::AuditLog as _;
use placet_ledger::store::{ApprovalQuery, ClaimAnswer, EffectQuery};
use placet_types::digest::Digest;
use tempfile::tempdir;

use super::*;
use crate::embedded::snapshot::Snapshots;
use crate::embedded::{StateFate, export, verify};

/// Records of all kinds, with snapshots between them.
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
        store.snapshot().await.unwrap();
    }
    // Records move on after the snapshot that has them.
    for record in &mut records {
        if let EffectState::Dispatched(_) = record.state
            && record.key.as_str().ends_with('0')
        {
            *record = succeeded(record);
            put(store, record).await.unwrap();
        }
    }
    records.sort_by_key(EffectRecord::place);
    records
}

/// Deletes the contents that the records name: segments with contents that are kept stay.
pub(super) async fn delete_contents(store: &EmbeddedStore) {
    let mut changes = synced();
    for (tenant, bytes) in named_contents(&tenant("acme")) {
        changes.forget_content.push((tenant, Digest::of(&bytes)));
    }
    store.commit(changes).await.unwrap();
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

fn snapshots(folder: &Path) -> Vec<PathBuf> {
    files(&folder.join("snapshots"), "snapshot")
}

#[tokio::test]
async fn a_state_that_is_lost_is_rebuilt_from_the_newest_snapshot() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let records = filled(&store, 5).await;
    store.close().await.unwrap();
    let (store, report) = open(&config);
    assert_eq!((report.state, report.replayed, report.snapshot_seq), (StateFate::Kept, 0, 0));
    assert_eq!(counted(&store), [u64::try_from(records.len()).unwrap(), 5, 5]);
    store.close().await.unwrap();
    assert_eq!(snapshots(folder.path()).len(), 2);
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let (store, report) = open(&config);
    assert!(matches!(report.state, StateFate::Rebuilt { .. }));
    assert!(report.snapshot_seq > 40 && report.snapshot_seq < report.frames);
    assert_eq!(report.replayed, report.frames - report.snapshot_seq);
    assert_eq!(counted(&store), [u64::try_from(records.len()).unwrap(), 5, 5]);
    check(&store, &records).await;
}

#[tokio::test]
async fn a_damaged_snapshot_is_not_used_and_the_one_before_is() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let records = filled(&store, 4).await;
    store.close().await.unwrap();
    let mut last_seq = u64::MAX;
    for path in snapshots(folder.path()).iter().rev() {
        spoil(path);
        let told = verify(&EmbeddedConfig::new(folder.path())).unwrap();
        assert_eq!(told.damaged_snapshots.len(), 1);
        assert!(!told.is_sound());
        fs::remove_dir_all(folder.path().join("state")).unwrap();
        let (store, report) = open(&config);
        assert!(report.snapshot_seq < last_seq);
        last_seq = report.snapshot_seq;
        check(&store, &records).await;
        store.close().await.unwrap();
    }
    assert_eq!(last_seq, 0);
}

/// Every byte of a small snapshot is covered by its digest.
#[tokio::test]
async fn a_snapshot_with_any_other_byte_is_not_believed() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    make(&*store, "key", true).await;
    let seq = store.snapshot().await.unwrap();
    let snapshots = Snapshots::new(Arc::new(crate::journal::medium::Disk), folder.path());
    let path = snapshots.path(seq);
    let sound = fs::read(&path).unwrap();
    let fill = || {
        let empty = tempdir().unwrap();
        let tree = crate::embedded::tree::Tree::open(empty.path(), 1 << 20).unwrap();
        snapshots.fill(seq, &tree)
    };
    fill().unwrap();
    for at in (0..sound.len()).step_by(29).chain([sound.len() - 1]) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(fill().is_err(), "byte {at}");
    }
    for length in [0, 7, sound.len() / 2, sound.len() - 1] {
        fs::write(&path, &sound[..length]).unwrap();
        assert!(fill().is_err(), "{length} bytes");
    }
    fs::write(&path, [&sound[..], b"x"].concat()).unwrap();
    assert!(fill().is_err());
}

/// Records come, move on and go while the keys before and behind the cursor are copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_snapshot_made_while_writing_is_the_state_at_its_entry() {
    let (folder, target) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let (store, _) = open(&config);
    for number in 0..200 {
        make(&*store, &format!("before-{number}"), number % 2 == 0).await;
    }
    let writing = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for number in 0..200 {
                let sent = make(&*store, &format!("meanwhile-{number}"), false).await;
                put(&*store, &succeeded(&sent)).await.unwrap();
                let claimed = claim(&*store, &format!("held-{number}"));
                let asked = approval(&claimed, &format!("apr_{number}"), NOW_MS);
                hold(&*store, &claimed, &asked).await;
            }
        }
    });
    let mut made = Vec::new();
    while !writing.is_finished() && made.len() < 4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        made.push(store.snapshot().await.unwrap());
        let path = snapshots(folder.path()).pop().unwrap();
        fs::copy(&path, target.path().join(path.file_name().unwrap())).unwrap();
    }
    writing.await.unwrap();
    store.close().await.unwrap();
    made.dedup();
    assert!(made.len() > 1, "every snapshot came too late: {made:?}");
    for copy in files(target.path(), "snapshot") {
        let kept = folder.path().join("snapshots").join(copy.file_name().unwrap());
        fs::remove_dir_all(folder.path().join("snapshots")).unwrap();
        fs::create_dir(folder.path().join("snapshots")).unwrap();
        fs::copy(&copy, &kept).unwrap();
        fs::remove_dir_all(folder.path().join("state")).unwrap();
        let (store, report) = open(&config);
        assert!(kept.ends_with(format!("{:020}.snapshot", report.snapshot_seq)), "{report:?}");
        store.close().await.unwrap();
        // Compared with what all entries come to.
        let told = verify(&EmbeddedConfig::new(folder.path())).unwrap();
        assert_eq!(told.state, crate::embedded::StateVerdict::Agrees, "{}", report.snapshot_seq);
    }
}

#[tokio::test]
async fn a_journal_older_than_its_state_is_refused() {
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
async fn archived_records_are_read_with_and_without_the_archive() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let (store, _) = open(&config);
    let mut records = filled(&store, 5).await;
    let before = Timestamp::from_ms(NOW_MS + 1);
    // Up to the segment in which contents are kept.
    let first = store.archive(before).await.unwrap();
    delete_contents(&store).await;
    let archived = store.archive(before).await.unwrap();
    assert!(archived.segments > 3 && first.segments > 0, "{first:?} {archived:?}");
    let archive = folder.path().join("archive");
    assert_eq!(
        files(&archive, "segment").len(),
        usize::try_from(first.segments + archived.segments).unwrap()
    );
    check(&store, &records).await;
    store.close().await.unwrap();
    let whole = verify(&config).unwrap();
    assert!(whole.is_sound() && whole.is_whole(), "{whole:?}");
    assert_eq!(whole.journal.first_seq, 1);

    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&archive, &elsewhere).unwrap();
    let rest = verify(&config).unwrap();
    assert!(rest.is_sound() && !rest.is_whole(), "{rest:?}");
    assert_eq!(rest.journal.first_seq, archived.first_seq);
    assert_eq!(rest.journal.head, whole.journal.head);
    let (store, report) = open(&config);
    assert_eq!(report.state, StateFate::Kept);
    check(&store, &records).await;
    // An archived record moves on.
    let moving = records.iter_mut().find(|record| record.state.name() == "dispatched").unwrap();
    *moving = succeeded(moving);
    put(&*store, moving).await.unwrap();
    check(&store, &records).await;
    store.close().await.unwrap();
    // A lost state is rebuilt without the archive.
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let (store, report) = open(&config);
    assert!(report.snapshot_seq >= archived.first_seq - 1);
    check(&store, &records).await;
    store.close().await.unwrap();

    // Without any snapshot the archive is needed.
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    fs::remove_dir_all(folder.path().join("snapshots")).unwrap();
    let refused = try_open(&config).unwrap_err();
    assert!(matches!(refused, OpenError::NoGround { .. }), "{refused}");
    let config = EmbeddedConfig { archive: Some(elsewhere), ..config };
    let (store, _) = open(&config);
    check(&store, &records).await;
}

#[tokio::test]
async fn a_check_without_the_archive_begins_from_no_snapshot_of_another_ledger() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (another, _) = open(&config(other.path()));
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let (store, _) = open(&config);
    filled(&store, 5).await;
    let archived = store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    assert!(verify(&config).unwrap().is_sound());

    let mut number = 0;
    make(&*another, "first", true).await;
    while another.snapshot().await.unwrap() < archived.first_seq {
        number += 1;
        make(&*another, &format!("other-{number}"), true).await;
    }
    another.close().await.unwrap();
    let foreign = snapshots(other.path()).pop().unwrap();
    let among = folder.path().join("snapshots").join(foreign.file_name().unwrap());
    fs::copy(&foreign, &among).unwrap();
    assert_eq!(snapshots(folder.path())[0], among, "the first one that could be used");
    let told = verify(&config).unwrap();
    let [(_, why)] = told.damaged_snapshots.as_slice() else { panic!("{told:?}") };
    assert!(why.contains("another journal"), "{told:?}");
}

#[tokio::test]
async fn an_exchanged_segment_after_the_archived_ones_is_refused() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let (store, _) = open(&config);
    filled(&store, 5).await;
    delete_contents(&store).await;
    store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    let base = folder.path().join("journal").join("base");
    let sound = fs::read(&base).unwrap();
    for at in (0..sound.len()).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&base, bytes).unwrap();
        assert!(verify(&EmbeddedConfig::new(folder.path())).is_err(), "byte {at}");
        assert!(try_open(&config).is_err(), "byte {at}");
    }
    fs::remove_file(&base).unwrap();
    assert!(verify(&EmbeddedConfig::new(folder.path())).is_err());
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
            store.snapshot().await.unwrap();
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
        after = Some(last.place());
        found.extend(page);
    }
    assert_eq!(found, expected[..12]);
    // A sweep that buries what it has listed comes to its end, wherever it goes on from.
    let (mut after, mut buried) = (None, 0);
    let due = EffectQuery { state: Some("succeeded".to_owned()), ..query.clone() };
    loop {
        let page = store.effects(&EffectQuery { after, ..due.clone() }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.place());
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
    let told = verify(&EmbeddedConfig::new(&to)).unwrap();
    assert_eq!((told.journal.last_seq, told.journal.head), (made.seq, made.head));
    assert!(told.content.altered.is_empty() && told.damaged_snapshots.is_empty());
    let copy_config = on(&to, &FaultyDisk::default());
    let (copy, report) = open(&copy_config);
    assert_eq!(report.frames, made.seq);
    for record in &records {
        assert_eq!(copy.effect(record.record_id).await.unwrap().as_ref(), Some(record));
    }
    make(&*copy, "goes-on", true).await;
    copy.close().await.unwrap();
    assert_eq!(
        verify(&EmbeddedConfig::new(&to)).unwrap().state,
        crate::embedded::StateVerdict::Agrees
    );
    store.close().await.unwrap();
    assert!(verify(&EmbeddedConfig::new(folder.path())).unwrap().is_sound());
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
    for segment in files(&folder.path().join("journal"), "segment") {
        let bytes = fs::read(segment).unwrap();
        let is_there = |wanted: &[u8]| bytes.windows(wanted.len()).any(|bytes| bytes == wanted);
        assert!(!is_there(&gone) && !is_there(&[7; 64]), "the bytes are still on disk");
    }
    let told = verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert!(told.is_sound() && told.content.deleted == 2, "{told:?}");
    assert_eq!(export(&config, &mut Vec::new()).unwrap().contents, 1);
}

/// Over more than one tile of 256 entries, with the first ones in an archive that is away.
#[tokio::test]
async fn proofs_are_given_over_restarts_rebuilds_and_archiving() {
    use placet_ledger::proof::{Consistency, Inclusion};
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 16 << 10, ..config(folder.path()) };
    let (store, _) = open(&config);
    let mut heads = Vec::new();
    for round in 0..5 {
        for number in 0..35 {
            make(&*store, &format!("key-{round}-{number}"), true).await;
        }
        heads.push(store.heads().await.unwrap().remove(0));
    }
    store.snapshot().await.unwrap();
    assert!(store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap().first_seq > 50);
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_dir_all(folder.path().join("state")).unwrap();
        }
        let (store, _) = open(&config);
        let done = make(&*store, &format!("later-{is_lost}"), true).await;
        let late = store.heads().await.unwrap().remove(0);
        let new = Digest::from_bytes(late.root);
        for early in &heads {
            let path = store.consistency("journal", early.size, late.size).await.unwrap();
            let path = path.into_iter().map(Digest::from_bytes).collect();
            let (from, to, old) = (early.size, late.size, Digest::from_bytes(early.root));
            Consistency { from, to, path }.verify(&old, &new).unwrap();
        }
        let (log, seq) = store.entry_of(done.record_id).await.unwrap().unwrap();
        let entry = store.entries(&log, seq, 1).await.unwrap().remove(0);
        let path = store.inclusion(&log, seq, late.size).await.unwrap();
        let path = path.into_iter().map(Digest::from_bytes).collect();
        Inclusion { seq, size: late.size, path }.verify(&entry.hash, &new).unwrap();
        assert!(store.inclusion(&log, 1, late.size).await.is_ok(), "its leaf is in the state");
        assert!(store.entries("other", 1, 1).await.is_err());
        store.close().await.unwrap();
    }
}
