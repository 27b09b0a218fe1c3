use placet_policy::permit::Permit;
use placet_types::ids::CapabilityId;

fn widen(permit: Permit, capability: CapabilityId) -> Permit {
    Permit { capability, ..permit }
}
