use placet_policy::{facts::Facts, permit::Permit, verdict::Decision};

fn forge(facts: &Facts<'_>, decision: Decision) -> Permit {
    Permit::of(facts, decision, true)
}

fn main() {}
