use placet_ledger::dispatch::Settlement;

fn forge() -> Settlement {
    Settlement { subject: todo!() }
}

fn main() {}
