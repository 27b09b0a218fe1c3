//! From one store to another.

use std::io::Cursor;

use placet_ledger::audit::AuditEvent;
use placet_ledger::log::AuditLog as _;
use placet_ledger::record::{EffectState, Unknown};
use placet_ledger::store::{ApprovalQuery, DirectiveQuery, EffectChange, EffectQuery};
use placet_testkit::clock::TestClock;
use placet_types::clock::Clock;
use placet_types::digest::Digest;
use placet_types::taint::Taint;

use super::audit::fill;
use super::*;
use crate::embedded::{self, EmbeddedConfig, EmbeddedStore};
use crate::postgres::{export, import};
use crate::transfer::TransferError;

async fn furnish(store: &dyn Store, name: &str) -> EffectRecord {
    for number in 0..20 {
        make(store, &format!("{name}-{number}"), true).await;
        let claimed = claim(store, &format!("{name}-held-{number}"));
        let asked = approval(&claimed, &format!("apr_{name}_{number}"), NOW_MS + number);
        let waiting = hold(store, &claimed, &asked).await;
        if number % 4 == 0 {
            // Its key returns to absent, and is taken again.
            let mut changes = synced();
            let record_id = waiting.record_id;
            changes.effects.push(EffectChange::Remove { record_id, rev: waiting.rev });
            store.commit(changes).await.unwrap();
            if number % 8 == 0 {
                put(store, &dispatched(store, &claimed)).await.unwrap();
            }
        }
        let opened = run(&format!("run_{name}_{number}"), 9);
        let mut changes = synced();
        changes.runs.push(opened.clone());
        changes.reserve = Some(reservation(&opened, 3));
        changes.taint.extend((number % 3 == 0).then(|| brought(&opened, &[Taint::Secret])));
        let bytes = format!("{name} {number}").into_bytes();
        changes.content = named_contents(&tenant("acme"));
        changes.content.extend(["acme", "globex"].map(|name| (tenant(name), bytes.clone())));
        changes.audit.push(AuditEvent { tenant: Some(tenant("globex")), ..event("contents") });
        store.commit(changes).await.unwrap();
    }
    let (used, glass) = (format!("dir_{name}_used"), format!("dir_{name}_glass"));
    put_directive(store, &grant(&used, 3, store.now())).await;
    store.commit(spends(&used)).await.unwrap();
    put_directive(store, &directive(&glass, glass_body(), 1, store.now())).await;
    make(store, &format!("{name}-open"), false).await
}

/// Everything of `from` is in `to`.
async fn same(from: &dyn Store, to: &dyn Store) {
    let all = EffectQuery { limit: 1_000, ..EffectQuery::default() };
    let effects = from.effects(&all).await.unwrap();
    assert!(effects.len() > 30);
    assert_eq!(to.effects(&all).await.unwrap(), effects);
    let directives = DirectiveQuery { limit: 1_000, ..DirectiveQuery::default() };
    let entries = from.directives(&directives).await.unwrap();
    assert!(entries.len() >= 2);
    assert_eq!(to.directives(&directives).await.unwrap(), entries);
    let asked = ApprovalQuery { limit: 1_000, ..ApprovalQuery::default() };
    assert_eq!(to.approvals(&asked).await.unwrap(), from.approvals(&asked).await.unwrap());
    for number in 0..20 {
        let key = run(&format!("run_a_{number}"), 9).key;
        assert_eq!(to.run(&key).await.unwrap(), from.run(&key).await.unwrap());
        let bytes = format!("a {number}").into_bytes();
        for name in ["acme", "globex"] {
            assert_eq!(to.content(&tenant(name), Digest::of(&bytes)).await.unwrap(), bytes);
        }
    }
}

fn orphans() -> EffectQuery {
    EffectQuery { orphaned: true, limit: 100, ..EffectQuery::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_moved_to_another_database_is_the_same_there() {
    let (old, new) = (database().await, database().await);
    let first = open(old.config("node-1")).await;
    let second = open(old.config("node-2")).await;
    fill(&second, 600).await;
    furnish(&*first, "a").await;
    let left_open = furnish(&*second, "b").await;
    let mut lines = Vec::new();
    let written = export(&old.config("export"), &mut lines).await.unwrap();
    let read = import(&new.config("import"), Cursor::new(lines.clone())).await.unwrap();
    assert_eq!(read, written);

    // The export is the same as long as nothing happens, wherever it is made.
    let mut again = Vec::new();
    export(&new.config("export"), &mut again).await.unwrap();
    assert!(again == lines, "the second export differs from the first");
    let (moved, report) = PostgresStore::open(new.config("node-1")).await.unwrap();
    assert!(report.epoch == 3 && report.fenced.is_empty(), "{report:?}");
    same(&*first, &*moved).await;
    moved.commit(spends("dir_a_used")).await.unwrap();
    moved.commit(spends("dir_a_used")).await.unwrap();
    assert_eq!(moved.commit(spends("dir_a_used")).await, Err(StoreError::GrantSpent));
    let (theirs, ours) = (first.heads().await.unwrap(), moved.heads().await.unwrap());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!((&theirs.log, theirs.size, theirs.root), (&ours.log, ours.size, ours.root));
    }
    assert_eq!(
        moved.inclusion("epoch-2", 290, ours[1].size).await.unwrap(),
        first.inclusion("epoch-2", 290, theirs[1].size).await.unwrap()
    );
    for record in first.effects(&EffectQuery { limit: 99, ..EffectQuery::default() }).await.unwrap()
    {
        let place = first.entry_of(record.record_id).await.unwrap();
        assert_eq!(moved.entry_of(record.record_id).await.unwrap(), place);
    }
    // What was under way when it was moved is an orphan there, whichever node had dispatched it.
    let orphans = moved.effects(&orphans()).await.unwrap();
    assert!(orphans.contains(&left_open) && orphans.len() == 8, "{}", orphans.len());
    make(&*moved, "goes-on", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_the_embedded_ledger_to_the_shared_one_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = TestClock::at(NOW_MS);
    let config = EmbeddedConfig::new(folder.path().join("first"));
    for _ in 0..3 {
        drop(EmbeddedStore::open(config.clone(), Arc::clone(&clock)).unwrap().0.close().await);
    }
    let (first, _) = EmbeddedStore::open(config.clone(), Arc::clone(&clock)).unwrap();
    let left_open = furnish(&*first, "a").await;
    let about = events_of_a_call(&*first).await;
    first.close().await.unwrap();
    let mut lines = Vec::new();
    embedded::export(&config, &mut lines).unwrap();

    let database = database().await;
    import(&database.config("import"), Cursor::new(lines.clone())).await.unwrap();
    let (first, _) = EmbeddedStore::open(config.clone(), Arc::clone(&clock)).unwrap();
    let shared = open(database.config("node-1")).await;
    same(&*first, &*shared).await;
    assert!(are_found(&*shared, &about).await);
    // The embedded ledger was in its fourth epoch.
    assert_eq!(shared.epoch(), 5);
    let (theirs, ours) = (first.heads().await.unwrap(), shared.heads().await.unwrap());
    assert!(
        ours[0].log == "journal"
            && ours[0].root == theirs[0].root
            && ours[0].size == theirs[0].size
    );
    let place = first.entry_of(left_open.record_id).await.unwrap();
    assert_eq!(shared.entry_of(left_open.record_id).await.unwrap(), place);
    assert!(shared.effects(&orphans()).await.unwrap().contains(&left_open));
    first.close().await.unwrap();

    // There it goes on, and does not come back.
    make(&*shared, "goes-on", true).await;
    let mut lines = Vec::new();
    export(&database.config("export"), &mut lines).await.unwrap();
    let back = EmbeddedConfig::new(folder.path().join("second"));
    let refused = embedded::import(&back, lines.as_slice()).unwrap_err();
    assert!(matches!(refused, TransferError::OfDatabase), "{refused}");
}

#[tokio::test]
async fn a_database_that_has_lost_what_its_records_name_is_not_exported_as_if_it_were_whole() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    let acme = tenant("acme");
    let mut changes = synced();
    changes.content = named_contents(&acme);
    changes.content.push((acme.clone(), b"of an earlier arm".to_vec()));
    changes.audit.push(event("contents"));
    store.commit(changes).await.unwrap();
    make(&*store, "done", true).await;
    let exported = async || export(&database.config("export"), std::io::sink()).await;
    let sound = exported().await.unwrap();
    assert_eq!((sound.records, sound.contents), (1, 4));
    // Not of every row: nothing but an approval names a proposal, and it may go before the approval does.
    drop(database.sql("CREATE TABLE kept AS SELECT * FROM placet.content").await);
    let lose = async |bytes: &[u8]| {
        let digest = hex::encode(Digest::of(bytes).as_bytes());
        let lost = format!("DELETE FROM placet.content WHERE digest = '\\x{digest}'");
        drop(database.sql(&lost).await);
    };
    let restore = "INSERT INTO placet.content SELECT * FROM kept ON CONFLICT DO NOTHING";
    lose(b"proposal").await;
    exported().await.unwrap();
    for lost in [&b"parked"[..], b"result"] {
        lose(lost).await;
        let refused = exported().await;
        let as_lost = matches!(refused, Err(TransferError::Lost { missing: 1, altered: 0 }));
        assert!(as_lost, "{refused:?}");
        drop(database.sql(restore).await);
    }
    // Under way again, after an outcome that nobody knows.
    let sent = make(&*store, "again", false).await;
    let attempt = attempt(&sent, store.epoch(), placet_types::contract::Dedup::Opaque);
    let (reason, result) = ("lost".to_owned(), Digest::of(b"of an earlier arm"));
    let again =
        EffectRecord { unknown: Some(Box::new(Unknown { attempt, reason, result })), ..sent };
    let json = serde_json::to_string(&again).unwrap().replace('\'', "''");
    let id = hex::encode(again.record_id.digest().as_bytes());
    let put = format!("UPDATE placet.effects SET record = '{json}' WHERE record_id = '\\x{id}'");
    drop(database.sql(&put).await);
    exported().await.unwrap();
    lose(b"of an earlier arm").await;
    assert!(matches!(exported().await, Err(TransferError::Lost { missing: 1, .. })));
    drop(database.sql(restore).await);
    // What is buried has lost nothing: what it named was deleted with it.
    let (was, settled_at) = ("succeeded".to_owned(), again.updated_at);
    let state = EffectState::Tombstone { was, code: None, settled_at };
    let buried = serde_json::to_string(&EffectRecord { state, ..again }).unwrap();
    let bury = format!("UPDATE placet.effects SET record = '{}'", buried.replace('\'', "''"));
    drop(database.sql(&format!("{bury} WHERE record_id = '\\x{id}'")).await);
    lose(b"of an earlier arm").await;
    exported().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_was_changed_or_cut_becomes_nothing() {
    let (old, new) = (database().await, database().await);
    let store = open(old.config("node-1")).await;
    furnish(&*store, "a").await;
    let mut whole = Vec::new();
    export(&old.config("export"), &mut whole).await.unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let mut broken: Vec<Vec<u8>> = [0, 1, lines.len() / 2, lines.len() - 2, lines.len() - 1]
        .map(|left_out| {
            let kept = lines.iter().enumerate().filter(|(at, _)| *at != left_out);
            kept.flat_map(|(_, line)| line.to_vec()).collect()
        })
        .to_vec();
    for at in (0..whole.len()).step_by(whole.len() / 15) {
        let mut bytes = whole.clone();
        bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
        broken.push(bytes);
    }
    for (number, bytes) in broken.into_iter().enumerate() {
        let refused = import(&new.config("import"), Cursor::new(bytes)).await;
        assert!(refused.is_err(), "{number}");
    }
    for table in ["entries", "effects", "epochs", "content"] {
        let rows = new.sql(&format!("SELECT 1 FROM placet.{table}")).await;
        assert!(rows.is_empty(), "{table}");
    }
    import(&new.config("import"), Cursor::new(whole.clone())).await.unwrap();
    let refused = import(&new.config("import"), Cursor::new(whole)).await.unwrap_err().to_string();
    assert!(refused.contains("needs an empty one"), "{refused}");
}
