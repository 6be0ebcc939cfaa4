//! `hoop-lab`
fn main() {}
