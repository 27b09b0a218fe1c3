use placet_policy::permit::Permit;

fn double(permit: Permit) -> (Permit, Permit) {
    (permit.clone(), permit)
}
