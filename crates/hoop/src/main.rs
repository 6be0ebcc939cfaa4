//! The hoop binary.
fn main() {}
