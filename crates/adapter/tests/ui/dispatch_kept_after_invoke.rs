use placet_adapter::adapter::{Adapter, Conditions};
use placet_ledger::dispatch::{DispatchGuard, Dispatch};

async fn keep(adapter: &dyn Adapter, armed: DispatchGuard, conditions: Conditions) -> Dispatch {
    let _outcome = adapter.invoke(armed.dispatch, conditions).await;
    armed.dispatch
}
