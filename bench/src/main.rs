//! Placet.
fn main() {}
