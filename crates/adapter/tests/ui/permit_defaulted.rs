use placet_policy::permit::Permit;

fn forge() -> Permit {
    Permit::default()
}

fn main() {}
