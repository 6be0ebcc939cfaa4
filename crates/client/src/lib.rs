//! The Rust API for applications: seal, hand over, follow.
