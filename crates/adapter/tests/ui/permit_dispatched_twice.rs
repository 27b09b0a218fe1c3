use placet_ledger::{dispatch::Intent, ledger::Ledger, record::EffectRecord};
use placet_policy::permit::Permit;
use placet_types::contract::Dedup;

async fn twice(ledger: &Ledger, permit: Permit, one: Intent, two: Intent, record: &EffectRecord) {
    let _first = ledger.dispatch(permit, one, record, None, &Dedup::Opaque).await;
    let _second = ledger.dispatch(permit, two, record, None, &Dedup::Opaque).await;
}
