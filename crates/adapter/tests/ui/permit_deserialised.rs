use placet_policy::permit::Permit;
use placet_types::json::{JsonLimits, from_slice_strict};

fn forge(text: &[u8], limits: &JsonLimits) -> Option<Permit> {
    from_slice_strict(text, limits).ok()
}
