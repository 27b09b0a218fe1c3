//! What every store promises to tenants that are asked about calls of others.

use std::sync::Arc;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::store::{ApprovalQuery, Store, StoreError};
use placet_types::ids::ApprovalId;

use super::super::*;

pub(crate) async fn an_external_approver_tenant_finds_what_it_is_asked_about(
    store: Arc<dyn Store>,
) {
    let asks: [(&str, i64, &[&str]); 6] = [
        ("acme", 300, &["globex"]),
        ("acme", 100, &["globex", "initech"]),
        ("initech", 200, &["globex"]),
        ("acme", 200, &[]),
        ("globex", 150, &["acme"]),
        ("acme", -50, &["globexx"]),
    ];
    let mut all = Vec::new();
    for (number, (of, created_ms, external_tenants)) in asks.into_iter().enumerate() {
        let claimed = claim_of(of, &format!("key-{number}"), store.epoch());
        let asked = ApprovalRecord {
            external_tenants: external_tenants.iter().map(|external| tenant(external)).collect(),
            ..approval(&claimed, &format!("apr_{number}"), created_ms)
        };
        hold(&*store, &claimed, &asked).await;
        all.push(asked);
    }
    // Moves keep it in the list, under its new state.
    let mut changes = synced();
    changes.approvals.push(approval_moved(&all[2], ApprovalState::Denied));
    store.commit(changes).await.unwrap();
    let list = |external: &str, state: Option<&str>, after: Option<&str>, newest_first, limit| {
        let store = Arc::clone(&store);
        let query = ApprovalQuery {
            external: Some(tenant(external)),
            state: state.map(str::to_owned),
            after: after.map(|id| ApprovalId::new(id).unwrap()),
            newest_first,
            limit,
            ..ApprovalQuery::default()
        };
        async move {
            let found = store.approvals(&query).await.unwrap();
            let ids = found.iter().map(|found| found.approval_id.as_str().to_owned());
            ids.collect::<Vec<_>>().join(" ")
        }
    };
    assert_eq!(list("globex", None, None, false, 9).await, "apr_1 apr_2 apr_0");
    assert_eq!(list("globex", None, None, true, 9).await, "apr_0 apr_2 apr_1");
    assert_eq!(list("globex", Some("pending"), None, false, 9).await, "apr_1 apr_0");
    assert_eq!(list("globex", Some("denied"), None, false, 9).await, "apr_2");
    assert_eq!(list("globex", None, Some("apr_1"), false, 1).await, "apr_2");
    assert_eq!(list("globex", None, Some("apr_2"), true, 9).await, "apr_1");
    assert_eq!(list("initech", None, None, false, 9).await, "apr_1");
    assert_eq!(list("acme", None, None, false, 9).await, "apr_4");
    assert_eq!(list("globe", None, None, false, 9).await, "");
    // Only some of a tenant's.
    let of_acme = ApprovalQuery {
        tenant: Some(tenant("acme")),
        external: Some(tenant("globex")),
        limit: 9,
        ..ApprovalQuery::default()
    };
    assert_eq!(store.approvals(&of_acme).await.unwrap().len(), 2);
    // Whom an approval asks does not change.
    let seen = store.approval(&all[0].approval_id).await.unwrap().unwrap();
    let moved = ApprovalRecord {
        external_tenants: [tenant("initech")].into(),
        ..approval_moved(&seen, ApprovalState::Approved)
    };
    let mut changes = synced();
    changes.approvals.push(moved);
    assert_eq!(store.commit(changes).await, Err(StoreError::Conflict));
}
