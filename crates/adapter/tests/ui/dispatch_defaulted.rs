use placet_ledger::dispatch::Dispatch;

fn made<T: Default>() -> T {
    T::default()
}

fn forge() -> Dispatch {
    made()
}
