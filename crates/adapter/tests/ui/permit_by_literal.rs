use placet_policy::{permit::Permit, decision::Decision};

fn forge(decision: Decision) -> Permit {
    Permit {
        request_digest: decision.request_digest,
        capability: decision.capability.clone(),
        decision,
        record: None,
        approval_id: None,
        grant: None,
        desk: placet_types::desk::DeskBasis::default(),
        write_class: false,
    }
}

fn main() {}
