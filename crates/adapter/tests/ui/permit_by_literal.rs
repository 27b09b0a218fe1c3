use placet_policy::{permit::Permit, decision::Decision};

fn forge(decision: Decision) -> Permit {
    Permit {
        request_digest: decision.request_digest,
        capability: decision.capability.clone(),
        decision,
        record: None,
        approval_id: None,
        grant: None,
        directives: placet_types::directive::DirectiveBasis::default(),
        write_class: false,
    }
}
