//! What is known of an upload, where it stands, how long it lives, and what can go wrong.

pub mod error;
pub mod life;
pub mod limits;
pub mod spoilt;
pub mod state;
pub mod upload;
