//! Outages of the database, and who is fenced after them.
//!
//! Owns what a fleet of nodes that all live does when none of them could renew its lease. Not here: nodes that fall silent while the database
//! is there (`fleet`).

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use placet_ledger::store::EffectQuery;
use tokio::time::Instant;

use super::proxy::proxy;
use super::*;

const LEASE: Duration = Duration::from_millis(1_500);

/// Nodes that live, each of which looks for dead ones far more often than it renews its lease: what one of them fences, with the moment.
struct Fleet {
    stores: Vec<Arc<PostgresStore>>,
    rounds: tokio::task::JoinSet<()>,
    fenced: Arc<Mutex<Vec<(u64, Instant)>>>,
}

impl Fleet {
    async fn of(database: &Database, leases: &[Duration]) -> Self {
        let mut stores = Vec::new();
        for (number, lease) in leases.iter().enumerate() {
            let config = database.config(&format!("node-{number}"));
            stores.push(open(PostgresConfig { lease: *lease, ..config }).await);
        }
        let mut rounds = tokio::task::JoinSet::new();
        let fenced: Arc<Mutex<Vec<(u64, Instant)>>> = Arc::default();
        for store in &stores {
            let (store, fenced) = (Arc::downgrade(store), Arc::clone(&fenced));
            rounds.spawn(async move {
                while let Some(store) = store.upgrade() {
                    // Nothing can be said of the others while the database is away.
                    let found = store.fence_dead().await.unwrap_or_default();
                    let found = found.into_iter().map(|epoch| (epoch, Instant::now()));
                    fenced.lock().unwrap().extend(found);
                    drop(store);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
        Self { stores, rounds, fenced }
    }

    fn fenced(&self) -> Vec<(u64, Instant)> {
        self.fenced.lock().unwrap().clone()
    }

    /// All live on: each keeps the outcome of what it sent before.
    async fn live(&self, sent: &[EffectRecord]) {
        assert_eq!(self.fenced(), []);
        for (store, sent) in self.stores.iter().zip(sent) {
            put(&**store, &succeeded(sent)).await.unwrap();
        }
    }

    async fn send(&self) -> Vec<EffectRecord> {
        let mut sent = Vec::new();
        for (number, store) in self.stores.iter().enumerate() {
            sent.push(dispatch(store, &format!("key-{number}")).await.unwrap());
        }
        sent
    }

    /// One of them dies without a word; its epoch.
    fn kill(&mut self) -> u64 {
        let dead = self.stores.pop().unwrap();
        dead.epoch()
    }

    fn end(mut self) {
        self.rounds.abort_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_away_for_longer_than_the_leases_gets_no_living_node_fenced() {
    let server = Server::start(&[]);
    // The last one may not notice.
    let leases = [LEASE, LEASE, LEASE.saturating_mul(4)];
    let fleet = Fleet::of(&server.database().await, &leases).await;
    let sent = fleet.send().await;
    for _ in 0..2 {
        tokio::time::sleep(LEASE.saturating_mul(2)).await;
        server.stop(Stop::Fast);
        tokio::time::sleep(LEASE.saturating_mul(2)).await;
        server.up();
    }
    tokio::time::sleep(LEASE.saturating_mul(3)).await;
    fleet.live(&sent).await;
    fleet.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_nodes_that_lost_their_database_the_one_that_died_meanwhile_is_fenced_alone_and_soon() {
    let server = Server::start(&[]);
    let mut fleet = Fleet::of(&server.database().await, &[LEASE; 3]).await;
    let sent = fleet.send().await;
    tokio::time::sleep(LEASE).await;
    server.stop(Stop::Immediate);
    tokio::time::sleep(LEASE).await;
    let dead = fleet.kill();
    tokio::time::sleep(LEASE).await;
    let before = Instant::now();
    server.up();
    let back = Instant::now();
    until("the dead node is fenced", async || !fleet.fenced().is_empty()).await;
    tokio::time::sleep(LEASE.saturating_mul(2)).await;
    let fenced = fleet.fenced();
    assert_eq!(fenced.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>(), [dead]);
    let (_, at) = fenced[0];
    // Not before a living one would have had its chance, and within the two leases and the round that the docs promise.
    let bound = LEASE.saturating_mul(2) + Duration::from_secs(2);
    assert!(at.duration_since(before) >= LEASE, "{:?}", at.duration_since(before));
    assert!(at.duration_since(back) <= bound, "{:?}", at.duration_since(back));
    fleet.fenced.lock().unwrap().clear();
    fleet.live(&sent[..2]).await;
    let orphans = EffectQuery { orphaned: true, limit: 9, ..EffectQuery::default() };
    let left = fleet.stores[0].effects(&orphans).await.unwrap();
    assert_eq!(left, sent[2..]);
    fleet.end();
}

/// As a clock leaves the leases behind that is put ahead.
const PAST: &str = "UPDATE placet.epochs SET lease_until = lease_until - interval '1 hour'";
const LONG: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_own_lease_is_past_fences_nobody_before_it_has_renewed_it() {
    let database = database().await;
    let [first, second] =
        [open(database.config("node-1")).await, open(database.config("node-2")).await];
    drop(database.sql(PAST).await);
    assert_eq!(second.fence(LONG).await, Ok(vec![]));
    make(&*second, "key", true).await;
    // The database has to have been there for as long as its lease, and two thirds of one.
    assert_eq!(second.fence(Duration::from_secs(50)).await, Ok(vec![]));
    assert_eq!(second.fence(Duration::from_millis(50_001)).await, Ok(vec![first.epoch()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_node_that_a_jump_of_the_clock_gets_fenced_writes_nothing_more() {
    let database = database().await;
    let [first, second] =
        [open(database.config("node-1")).await, open(database.config("node-2")).await];
    drop(database.sql(PAST).await);
    make(&*second, "key", true).await;
    assert_eq!(second.fence(LONG).await, Ok(vec![first.epoch()]));
    assert_eq!(dispatch(&first, "other").await, Err(StoreError::Fenced));
    assert!(death(&first).await.contains("took its work over"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_swallows_everything_keeps_no_lease_from_being_renewed_at_the_other() {
    let database = database().await;
    let server = database.server.port();
    let (port, cuts) = proxy(server).await;
    let url = format!("postgres://placet@127.0.0.1:{port},127.0.0.1:{server}/{}", database.name);
    // A renewal is given up long before a host is.
    let store = open(PostgresConfig { lease: LEASE, ..config(&url, "node-1") }).await;
    tokio::time::sleep(LEASE).await;
    cuts.silent.store(true, Ordering::SeqCst);
    until("the lease is past", async || store.lease_has_expired()).await;
    until("it is renewed at the other host", async || !store.lease_has_expired()).await;
    // Who looks something up has as much time as a host: the host after it is asked by then.
    assert_eq!(store.effect(claim(&*store, "key").record_id).await, Ok(None));
}
