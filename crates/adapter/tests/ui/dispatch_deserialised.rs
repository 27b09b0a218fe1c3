use placet_ledger::dispatch::Dispatch;

fn forge(text: &str) -> Option<Dispatch> {
    serde_json::from_str(text).ok()
}

fn main() {}
