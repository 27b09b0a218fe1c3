use placet_ledger::dispatch::Settlement;

fn double(settlement: Settlement) -> (Settlement, Settlement) {
    (settlement.clone(), settlement)
}
