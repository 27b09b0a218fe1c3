//! The approval service in a shared database: many nodes at once, tables of an earlier build, and lists of many.

use std::sync::atomic::{AtomicBool, Ordering};

use placet_ledger::store::{ApprovalQuery, DirectiveQuery};
use placet_types::directive::DirectiveBasis;
use placet_types::sessions::SessionStore as _;
use sqlx::Row as _;

use super::*;
use crate::postgres::read::approvals_sql;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_used_exactly_as_often_as_it_says_by_all_nodes_together() {
    let database = database().await;
    let mut nodes = Vec::new();
    for number in 0..3 {
        nodes.push(open(database.config(&format!("node-{number}"))).await);
    }
    put_directive(&*nodes[0], &grant("dir_1", 20, nodes[0].now())).await;
    let mut racers = tokio::task::JoinSet::new();
    for node in &nodes {
        for _ in 0..4 {
            let node = Arc::clone(node);
            racers.spawn(async move {
                let mut used = 0_u32;
                loop {
                    match node.commit(spends("dir_1")).await {
                        Ok(_) => used += 1,
                        Err(StoreError::GrantSpent) => return used,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    }
    assert_eq!(racers.join_all().await.into_iter().sum::<u32>(), 20);
    for node in &nodes {
        assert_eq!(directives_of(&**node, "dir_1").await.unwrap().uses, 20);
    }
    let open_at = Some(nodes[0].now());
    let none = DirectiveQuery { open_at, limit: 9, ..DirectiveQuery::default() };
    assert_eq!(nodes[1].directives(&none).await.unwrap(), Vec::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_dispatches_what_was_permitted_before_a_freeze_once_that_is_acknowledged() {
    let database = database().await;
    let mut nodes = Vec::new();
    for number in 0..3 {
        nodes.push(open(database.config(&format!("node-{number}"))).await);
    }
    let under = |store: &PostgresStore, key: &str, rev: u64| {
        let mut changes = puts(&[&dispatched(store, &claim(store, key))]);
        changes.expect_directives = Some(DirectiveBasis { rev, until: None });
        changes
    };
    for round in 0..10_u64 {
        let acknowledged = Arc::new(AtomicBool::new(false));
        let mut racers = tokio::task::JoinSet::new();
        for (place, node) in nodes.iter().enumerate() {
            let (node, acknowledged) = (Arc::clone(node), Arc::clone(&acknowledged));
            racers.spawn(async move {
                for number in 0.. {
                    let is_late = acknowledged.load(Ordering::SeqCst);
                    let key = format!("{round}-{place}-{number}");
                    match node.commit(under(&node, &key, round)).await {
                        Ok(_) => assert!(!is_late, "{key} was dispatched inside the freeze"),
                        Err(StoreError::DirectiveMoved) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let freezing = usize::try_from(round % 3).unwrap();
        let freeze = directive(&format!("freeze-{round}"), freeze_body(), 0, nodes[0].now());
        put_directive(&*nodes[freezing], &freeze).await;
        acknowledged.store(true, Ordering::SeqCst);
        racers.join_all().await;
        for node in &nodes {
            assert_eq!(node.restriction_version().await.unwrap(), round + 1);
        }
    }
    // A node that starts later begins where the others are.
    let late = open(database.config("node-3")).await;
    assert_eq!(late.commit(under(&late, "late", 9)).await, Err(StoreError::DirectiveMoved));
    late.commit(under(&late, "late", 10)).await.unwrap();
}

/// Pages of an inbox, and an operation's past, among many approvals: each is read from an index, none by reading all rows.
#[tokio::test]
async fn lists_of_approvals_are_read_from_an_index() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    let claimed = claim(&*store, "key");
    let template = serde_json::to_string(&approval(&claimed, "apr_1", NOW_MS)).unwrap();
    let template = template.replace('\'', "''").replace("notes/erase", "notes/NUMBER");
    let fill = format!(
        "INSERT INTO placet.approvals (approval_id, record_id, call_id, tenant, state, rev, place, record) \
         SELECT 'many_' || n, '\\x00', 'call_' || n, 'tenant-' || n % 5, \
           CASE WHEN n % 500 < 5 THEN 'pending' ELSE 'consumed' END, 1, int8send(n) || 'many'::bytea, \
           replace('{template}', 'NUMBER', 'op' || n % 50) \
         FROM generate_series(1, 20000) AS n; \
         INSERT INTO placet.external_approvals (tenant, place, approval_id, state) \
           SELECT 'external-' || length(approval_id) % 3, place, approval_id, state FROM placet.approvals; \
         ANALYZE placet.approvals; ANALYZE placet.external_approvals"
    );
    drop(database.sql(&fill).await);
    let external = Some(tenant("external-1"));
    let (of_tenant, pending) = (Some(tenant("tenant-1")), Some("pending".to_owned()));
    let operation = Some("notes/op1".parse().unwrap());
    let newest = ApprovalQuery { newest_first: true, limit: 20, ..ApprovalQuery::default() };
    for (query, index) in [
        (newest.clone(), "approvals_"),
        (ApprovalQuery { state: pending.clone(), ..newest.clone() }, "approvals_"),
        (ApprovalQuery { external: external.clone(), ..newest.clone() }, "external_approvals_"),
        (
            ApprovalQuery { external, state: pending.clone(), ..newest.clone() },
            "external_approvals_state",
        ),
        (ApprovalQuery { tenant: of_tenant.clone(), ..newest.clone() }, "approvals_"),
        (
            ApprovalQuery { tenant: of_tenant.clone(), state: pending, ..newest.clone() },
            "approvals_tenant_state",
        ),
        (
            ApprovalQuery {
                tenant: of_tenant.clone(),
                capability: operation.clone(),
                ..newest.clone()
            },
            "approvals_capability",
        ),
        (
            ApprovalQuery {
                tenant: of_tenant,
                capability: operation,
                decided: true,
                ..newest.clone()
            },
            "approvals_decided",
        ),
    ] {
        let sql = approvals_sql(&query)
            .replace("$1", "'many_19000'")
            .replace("$2", "20")
            .replace("$3", "'tenant-1'")
            .replace("$4", "'pending'")
            .replace("$5", "'notes/op1'")
            .replace("$6", "'external-1'");
        let plan = database.sql(&format!("EXPLAIN {sql}")).await;
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(plan.contains(index), "{plan}");
        assert!(!plan.contains("Seq Scan"), "{plan}");
    }
}

#[tokio::test]
async fn sessions_of_the_console_are_those_of_all_nodes() {
    let database = database().await;
    let (one, two) = (open(database.config("one")).await, open(database.config("two")).await);
    crate::sessions::tests::keeps_sessions(&*one).await;
    let ben = placet_types::digest::Digest::of(b"ben");
    let find = |store: Arc<PostgresStore>| async move { store.find(ben).await.unwrap() };
    assert!(find(Arc::clone(&two)).await.is_some());
    two.end(ben).await.unwrap();
    assert!(find(one).await.is_none());
}
