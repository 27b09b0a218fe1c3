use placet_ledger::{
    dispatch::Settlement,
    ledger::{Ledger, Outcome},
};
use placet_types::envelope::result::ToolResultEnvelope;

async fn twice(ledger: &Ledger, settlement: Settlement, result: &ToolResultEnvelope) {
    let _first = ledger.settle(settlement, Outcome::Succeeded, result).await;
    let _second = ledger.settle(settlement, Outcome::Succeeded, result).await;
}
