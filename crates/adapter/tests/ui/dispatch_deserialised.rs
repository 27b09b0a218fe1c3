use placet_ledger::dispatch::Dispatch;
use placet_types::json::{JsonLimits, from_slice_strict};

fn forge(text: &[u8], limits: &JsonLimits) -> Option<Dispatch> {
    from_slice_strict(text, limits).ok()
}
