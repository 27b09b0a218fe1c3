use placet_policy::permit::Permit;
use placet_types::digest::Digest;

fn alter(permit: &mut Permit, other: Digest) {
    permit.request_digest = other;
}
