use placet_policy::permit::Permit;
use placet_types::json::{JsonLimits, from_value_strict, parse_strict};

fn forge(text: &[u8], limits: &JsonLimits) -> Option<Permit> {
    from_value_strict(parse_strict(text, limits).ok()?).ok()
}
