//! A ledger that is moved after its retention has deleted contents.

use std::io::Cursor;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::record::EffectState;
use placet_types::digest::Digest;
use placet_types::error::ErrorCode;

use super::*;
use crate::postgres::{export, import};

/// An approval of a key of this name, asked for with a proposal of its own.
async fn asked(store: &PostgresStore, name: &str) -> (EffectRecord, ApprovalRecord) {
    let claimed = claim(store, name);
    let shown = format!("what approvers of {name} were shown").into_bytes();
    let proposal = Digest::of(&shown);
    let asked = ApprovalRecord { proposal, ..approval(&claimed, &format!("apr_{name}"), NOW_MS) };
    let mut changes = synced();
    changes.content = vec![(tenant("acme"), shown)];
    store.commit(changes).await.unwrap();
    (hold(store, &claimed, &asked).await, asked)
}

/// What retention does: a denied call is buried, and what was shown of it and of a void approval is deleted.
async fn retained(store: &PostgresStore) -> [Digest; 2] {
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    store.commit(changes).await.unwrap();
    let (waiting, denied) = asked(store, "denied").await;
    let (code, approval_id) = (ErrorCode::ApprovalDenied, denied.approval_id.clone());
    let over = moved(&waiting, EffectState::Denied { code, approval_id });
    let mut changes = puts(&[&over]);
    changes.approvals.push(approval_moved(&denied, ApprovalState::Denied));
    store.commit(changes).await.unwrap();
    let (was, settled_at) = ("denied".to_owned(), over.updated_at);
    let buried = moved(&over, EffectState::Tombstone { was, code: Some(code), settled_at });
    let mut changes = puts(&[&buried]);
    changes.forget_content.push((tenant("acme"), denied.proposal));
    store.commit(changes).await.unwrap();
    let (_, drifted) = asked(store, "drifted").await;
    let reason = "the policies changed".to_owned();
    let mut changes = synced();
    changes.approvals.push(approval_moved(&drifted, ApprovalState::Void { reason }));
    store.commit(changes).await.unwrap();
    let mut changes = synced();
    changes.forget_content.push((tenant("acme"), drifted.proposal));
    store.commit(changes).await.unwrap();
    [denied.proposal, drifted.proposal]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_deleted_before_a_ledger_was_moved_is_not_missed_after_it() {
    let (old, new) = (database().await, database().await);
    let store = open(old.config("node-1")).await;
    retained(&store).await;
    asked(&store, "living").await;
    store.close().await.unwrap();
    let mut lines = Vec::new();
    export(&old.config("export"), &mut lines).await.unwrap();
    import(&new.config("import"), Cursor::new(lines.clone())).await.unwrap();
    let mut again = Vec::new();
    export(&new.config("export"), &mut again).await.unwrap();
    assert!(again == lines, "the second export differs from the first");
}
