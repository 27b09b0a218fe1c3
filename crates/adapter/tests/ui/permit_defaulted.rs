use placet_policy::permit::Permit;

fn made<T: Default>() -> T {
    T::default()
}

fn forge() -> Permit {
    made()
}
