use placet_adapter::adapter::{Adapter, Conditions};
use placet_policy::permit::Permit;

async fn skip_the_ledger(adapter: &dyn Adapter, permit: Permit, conditions: Conditions) {
    let _outcome = adapter.invoke(permit, conditions).await;
}
