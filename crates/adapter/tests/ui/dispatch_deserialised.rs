use placet_ledger::dispatch::Dispatch;
use placet_types::json::{JsonLimits, from_value_strict, parse_strict};

fn forge(text: &[u8], limits: &JsonLimits) -> Option<Dispatch> {
    from_value_strict(parse_strict(text, limits).ok()?).ok()
}
