use placet_ledger::dispatch::Settlement;

fn swap(one: Settlement, two: Settlement) -> Settlement {
    Settlement { subject: one.subject, ..two }
}
