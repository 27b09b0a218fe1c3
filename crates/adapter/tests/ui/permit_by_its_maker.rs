use placet_policy::{facts::Facts, permit::Permit, decision::Decision};

fn forge(facts: &Facts<'_>, decision: Decision) -> Permit {
    Permit::of(facts, decision, true)
}
