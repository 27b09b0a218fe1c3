//! A ledger as an export, an export as a ledger, and the check of both.

use std::fs;

use tempfile::tempdir;

use super::snapshots::{check, delete_contents, filled};
use super::*;
use crate::embedded::{StateVerdict, export, import, keys, verify};
use crate::transfer::{ExportItem, ExportWriter, ExportedLog, TransferError};
use placet_ledger::directive::{Directive, DirectiveState};
use placet_ledger::store::{ApprovalQuery, DirectiveQuery};
use placet_types::digest::Digest;

/// Everything that happened, for an export: records of all kinds, archived ones, content, and content that was deleted.
async fn full(config: &EmbeddedConfig) -> Vec<EffectRecord> {
    let (store, _) = open(config);
    let records = filled(&store, 3).await;
    delete_contents(&store).await;
    let mut changes = synced();
    for bytes in [b"one".to_vec(), b"two".to_vec(), vec![9; 300 << 10]] {
        changes.content.push((tenant("acme"), bytes));
    }
    store.commit(changes).await.unwrap();
    let mut changes = synced();
    changes.forget_content.push((tenant("acme"), Digest::of(b"two")));
    store.commit(changes).await.unwrap();
    furnish_directives(&*store).await;
    store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    store.close().await.unwrap();
    records
}

async fn furnish_directives(store: &dyn Store) {
    let now = store.now();
    put_directive(store, &grant("directive_used", 3, now)).await;
    store.commit(spends("directive_used")).await.unwrap();
    store.commit(spends("directive_used")).await.unwrap();
    let glass = directive("dir_glass", glass_body(), 1, now);
    put_directive(store, &glass).await;
    put_directive(store, &glass.cast(directive_vote(&glass, "ben"), now).unwrap()).await;
}

/// What [`furnish_directives`] made, with its uses: from there on it goes on.
async fn check_directives(store: &dyn Store) {
    let all = DirectiveQuery { limit: 9, ..DirectiveQuery::default() };
    assert_eq!(store.directives(&all).await.unwrap().len(), 2);
    assert_eq!(directives_of(store, "dir_glass").await.unwrap().state, DirectiveState::Active);
    assert_eq!(directives_of(store, "directive_used").await.unwrap().uses, 2);
    store.commit(spends("directive_used")).await.unwrap();
    assert_eq!(store.commit(spends("directive_used")).await, Err(StoreError::GrantSpent));
}

#[tokio::test]
async fn an_export_becomes_the_same_ledger_and_the_same_export() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let records = full(&config).await;
    let mut first = Vec::new();
    let written = export(&config, &mut first).unwrap();
    assert_eq!((written.records, written.contents), (u64::try_from(records.len()).unwrap(), 2));
    let target = EmbeddedConfig {
        segment_bytes: 32 << 10,
        ..on(&other.path().join("ledger"), &FaultyDisk::default())
    };
    let read = import(&target, first.as_slice()).unwrap();
    assert_eq!(read, written);
    assert!(import(&target, first.as_slice()).is_err(), "a ledger is never written over");
    let (store, _) = open(&target);
    check(&store, &records).await;
    assert_eq!(store.content(&tenant("acme"), Digest::of(b"one")).await.unwrap(), b"one");
    let gone = store.content(&tenant("acme"), Digest::of(b"two")).await;
    assert!(matches!(gone, Err(StoreError::ContentMissing(_))));
    store.close().await.unwrap();
    assert!(verify(&EmbeddedConfig::new(&target.directory)).unwrap().is_sound());
    let mut second = Vec::new();
    export(&target, &mut second).unwrap();
    assert!(first == second, "the second export differs from the first");
    let (store, _) = open(&target);
    check_directives(&*store).await;
    let waiting = records.iter().find(|record| record.state.name() == "dispatched").unwrap();
    put(&*store, &succeeded(waiting)).await.unwrap();
}

#[tokio::test]
async fn an_export_that_was_changed_or_cut_becomes_nothing() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    full(&config).await;
    let mut whole = Vec::new();
    export(&config, &mut whole).unwrap();
    let target = on(&other.path().join("ledger"), &FaultyDisk::default());
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let without = |left_out: usize| -> Vec<u8> {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != left_out);
        kept.flat_map(|(_, line)| line.to_vec()).collect()
    };
    for at in [0, 1, lines.len() / 2, lines.len() - 2, lines.len() - 1] {
        assert!(import(&target, without(at).as_slice()).is_err(), "line {at}");
    }
    for at in (0..whole.len()).step_by(whole.len() / 25) {
        let mut bytes = whole.clone();
        bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
        assert!(import(&target, bytes.as_slice()).is_err(), "byte {at}");
    }
    let mut longer = whole.clone();
    longer.extend_from_slice(lines[1]);
    assert!(import(&target, longer.as_slice()).is_err());
    assert!(!target.directory.try_exists().unwrap());
    import(&target, whole.as_slice()).unwrap();
}

/// What a kill leaves of an import is beside the place where the ledger was to be, and nothing is in that place.
#[tokio::test]
async fn where_an_import_was_cut_short_no_empty_ledger_is_begun() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let records = full(&config).await;
    let mut whole = Vec::new();
    export(&config, &mut whole).unwrap();
    let target = on(&other.path().join("ledger"), &FaultyDisk::default());
    // It ends in the middle, like one that is killed there.
    let half = &whole[..whole.len() / 2];
    import(&target, half).unwrap_err();
    let beside = other.path().join("ledger.importing");
    assert!(beside.join("journal").is_dir());
    for empty in [false, true] {
        if empty {
            fs::create_dir(&target.directory).unwrap();
        }
        let refused = try_open(&target).unwrap_err();
        assert!(matches!(refused, OpenError::UnfinishedImport { .. }), "{refused}");
        assert!(refused.to_string().contains("ledger.importing"), "{refused}");
        let refused = verify(&EmbeddedConfig::new(&target.directory)).unwrap_err();
        assert!(matches!(refused, OpenError::UnfinishedImport { .. }), "{refused}");
        assert!(!target.directory.join("journal").try_exists().unwrap());
    }
    // One that is under way is left alone.
    let lock = crate::journal::lock::Lock::take(&beside.join("journal")).unwrap();
    let refused = import(&target, whole.as_slice()).unwrap_err().to_string();
    assert!(refused.contains("in use"), "{refused}");
    drop(lock);
    import(&target, whole.as_slice()).unwrap();
    assert!(!beside.try_exists().unwrap());
    // What lies beside a ledger says nothing about it.
    fs::create_dir(&beside).unwrap();
    let (store, _) = open(&target);
    check(&store, &records).await;
}

/// Of more logs than the one, or with contents after the records, as a database writes it.
#[tokio::test]
async fn an_export_of_a_database_becomes_nothing() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    full(&config).await;
    let mut whole = Vec::new();
    export(&config, &mut whole).unwrap();
    let mut items = Vec::new();
    crate::transfer::read_export(whole.as_slice(), &mut |item| {
        items.push(item);
        Ok(())
    })
    .unwrap();
    let ExportItem::Header(header) = items.remove(0) else { panic!("no header") };
    let [journal] = <[ExportedLog; 1]>::try_from(header.logs).unwrap();
    let node = ExportedLog { log: "epoch-2".to_owned(), ..journal.clone() };
    let target = on(&other.path().join("ledger"), &FaultyDisk::default());
    let refused = |logs: Vec<ExportedLog>, items: &[ExportItem]| {
        let mut writer = ExportWriter::new(Vec::new(), logs).unwrap();
        items.iter().for_each(|item| writer.put(item).unwrap());
        let (export, _) = writer.finish().unwrap();
        let refused = import(&target, export.as_slice()).unwrap_err();
        assert!(matches!(refused, TransferError::OfDatabase), "{refused}");
        assert!(!target.directory.try_exists().unwrap());
    };
    for logs in [vec![], vec![node.clone()], vec![journal.clone(), node]] {
        refused(logs, &items);
        assert!(!other.path().join("ledger.importing").try_exists().unwrap());
    }
    items.sort_by_key(|item| matches!(item, ExportItem::Content { .. }));
    refused(vec![journal], &items);
}

#[tokio::test]
async fn a_check_judges_every_move_and_compares_everything() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    full(&config).await;
    let report = verify(&config).unwrap();
    assert!(report.is_sound() && report.is_whole(), "{report:?}");
    assert!(report.moves > 20, "{}", report.moves);

    // The state tells something else, and its own count and sum agree with that.
    let (store, _) = open(&config);
    make(&*store, "another", true).await;
    let tree = store.state.tree().unwrap();
    let key = keys::call(&claim(&*store, "another").call_id);
    tree.apply(&[(key, Some(vec![3; 32]))].into(), |_| {}).unwrap();
    drop(tree);
    store.close().await.unwrap();
    let report = verify(&config).unwrap();
    let StateVerdict::Disagrees { why } = &report.state else { panic!("{report:?}") };
    assert!(why.contains("it holds something else"), "{why}");
    assert!(!report.is_sound());
    crate::embedded::rebuild(&config).unwrap();
    assert!(verify(&config).unwrap().is_sound());

    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    let report = verify(&config).unwrap();
    assert!(report.is_sound() && !report.is_whole(), "{report:?}");
}

#[tokio::test]
async fn dropped_directives_are_gone_after_a_restart_and_a_rebuild() {
    use crate::testing::conformance::ended_directives_can_be_dropped_and_nothing_else;
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    store.commit(changes).await.unwrap();
    let shared: Arc<dyn Store> = Arc::<EmbeddedStore>::clone(&store);
    ended_directives_can_be_dropped_and_nothing_else(shared).await;
    store.close().await.unwrap();
    let report = verify(&config).unwrap();
    assert!(report.is_sound(), "{report:?}");
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_dir_all(folder.path().join("state")).unwrap();
        }
        let (store, _) = open(&config);
        let gone = placet_types::ids::ApprovalId::new("apr_0").unwrap();
        assert_eq!(store.approval(&gone).await.unwrap(), None, "{is_lost}");
        assert_eq!(directives_of(&*store, "dir_2").await, None, "{is_lost}");
        let query = ApprovalQuery { limit: 9, ..ApprovalQuery::default() };
        assert_eq!(store.approvals(&query).await.unwrap().len(), 1, "{is_lost}");
        store.close().await.unwrap();
    }
    assert!(verify(&config).unwrap().is_sound());
}

/// A journal in which a record goes where none may: made by a writer that checks nothing.
#[tokio::test]
async fn an_illegal_move_in_a_sound_chain_is_found() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let done = make(&*store, "key", true).await;
    store.close().await.unwrap();
    let journal_config = crate::embedded::open::journal_config(&config);
    let recovered = crate::journal::Journal::open(journal_config).unwrap();
    let mut journal = recovered.journal;
    let again = dispatched(&*store, &done);
    let (kind, payload) = crate::embedded::codec::encode_entry(&mut puts(&[&again])).unwrap();
    journal.append(kind, NOW_MS, &payload).unwrap();
    journal.close().unwrap();
    let report = verify(&config).unwrap();
    assert_eq!(report.illegal.len(), 1, "{report:?}");
    assert!(report.illegal[0].starts_with("entry 3: "), "{:?}", report.illegal);
}

#[tokio::test]
async fn an_illegal_move_of_a_directive_in_a_sound_chain_is_found() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let now = store.now();
    let (once, asked) =
        (grant("dir_once", 1, now), directive("directive_asked", freeze_body(), 1, now));
    put_directive(&*store, &once).await;
    put_directive(&*store, &asked).await;
    store.close().await.unwrap();
    assert!(verify(&config).unwrap().is_sound());
    let in_force = Directive { state: DirectiveState::Active, body: glass_body(), rev: 2, ..asked };
    for changes in [vec![puts_directive(&[&in_force])], vec![spends("dir_once"); 2]] {
        let copy = tempdir().unwrap();
        copy_folder(folder.path(), copy.path());
        let config = self::config(copy.path());
        let journal_config = crate::embedded::open::journal_config(&config);
        let recovered = crate::journal::Journal::open(journal_config).unwrap();
        let mut journal = recovered.journal;
        for mut changes in changes {
            let (kind, payload) = crate::embedded::codec::encode_entry(&mut changes).unwrap();
            journal.append(kind, NOW_MS, &payload).unwrap();
        }
        journal.close().unwrap();
        // Nothing can be made of it, so nothing is served either.
        for refused in [verify(&config).map(drop), try_open(&config).map(drop)] {
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("does not follow from those before it"), "{why}");
        }
    }
}

#[tokio::test]
async fn many_approvals_of_a_moment_are_listed_newest_first() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let claimed = claim(&*store, "key");
    let mut ids = Vec::new();
    for part in 0..18_i64 {
        let mut changes = synced();
        for number in 0..500 {
            // Some thousands in one millisecond, the others in the half minute after it.
            let at = if part < 10 { NOW_MS - 30_000 } else { NOW_MS - 30_000 + part * number };
            let asked = approval(&claimed, &format!("apr_{part:02}_{number:03}"), at);
            ids.push((at, asked.approval_id.clone()));
            changes.approvals.push(asked);
        }
        store.commit(changes).await.unwrap();
        if part == 8 {
            store.snapshot().await.unwrap();
        }
    }
    ids.sort_unstable();
    ids.reverse();
    for (skipped, limit) in [(0, 50), (4_000, 300), (3_990, 20), (8_900, 1_000)] {
        let query = placet_ledger::store::ApprovalQuery {
            after: usize::checked_sub(skipped, 1).map(|last| ids[last].1.clone()),
            newest_first: true,
            limit,
            ..placet_ledger::store::ApprovalQuery::default()
        };
        let found = store.approvals(&query).await.unwrap();
        let found: Vec<_> = found.iter().map(|found| &found.approval_id).collect();
        let wanted: Vec<_> = ids.iter().skip(skipped).take(limit).map(|(_, id)| id).collect();
        assert_eq!(found, wanted, "after {skipped}");
    }
}
