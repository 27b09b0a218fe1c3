use placet_ledger::{dispatch::Intent, ledger::Ledger, store::Durability};
use placet_policy::permit::Permit;

async fn twice(ledger: &Ledger, permit: Permit, one: Intent, two: Intent) {
    let _first = ledger.dispatch_read(permit, one, Durability::Synced).await;
    let _second = ledger.dispatch_read(permit, two, Durability::Synced).await;
}
