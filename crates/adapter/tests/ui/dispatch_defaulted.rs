use placet_ledger::dispatch::Dispatch;

fn forge() -> Dispatch {
    Dispatch::default()
}

fn main() {}
