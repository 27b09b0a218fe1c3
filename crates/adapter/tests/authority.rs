//! Promise 1 by the compiler: a permit, a dispatch and a settlement are made in one place and used once.
//!
//! Each file in `ui` tries one way around that and must not compile, for the reason in the `.stderr` beside it. The functions here do
//! the same things once, the allowed way: so that a case in `ui` does not fail for some other reason, they must compile.

use placet_adapter::{
    adapter::{Adapter, Conditions, Dispatch},
    outcome::Outcome,
};
use placet_ledger::{
    dispatch::{DispatchGuard, Intent, Settlement},
    ledger::{self, Ledger, LedgerError},
    record::EffectRecord,
    store::Durability,
};
use placet_policy::permit::Permit;
use placet_types::{contract::Dedup, envelope::result::ToolResultEnvelope};

type Dispatched = Result<DispatchGuard, LedgerError>;

async fn permit_to_dispatch(
    ledger: &Ledger,
    permit: Permit,
    intent: Intent,
    record: &EffectRecord,
) -> Dispatched {
    ledger.dispatch(permit, intent, record, None, &Dedup::Opaque).await
}

async fn permit_to_read(ledger: &Ledger, permit: Permit, intent: Intent) -> Dispatched {
    ledger.dispatch_read(permit, intent, Durability::Synced).await
}

async fn dispatch_to_effect(
    adapter: &dyn Adapter,
    dispatch: Dispatch,
    conditions: Conditions,
) -> Outcome {
    adapter.invoke(dispatch, conditions).await
}

async fn settlement_to_record(
    ledger: &Ledger,
    settlement: Settlement,
    result: &ToolResultEnvelope,
) -> Result<Option<EffectRecord>, LedgerError> {
    ledger.settle(settlement, ledger::Outcome::Succeeded, result).await
}

#[test]
fn there_is_no_way_around_a_permit_or_a_dispatch() {
    // Named, so that they are checked and not called.
    let _allowed = (permit_to_dispatch, permit_to_read, dispatch_to_effect, settlement_to_record);
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
