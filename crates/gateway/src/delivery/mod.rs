//! Sending what is stored to its services: which upload next, over how many slots, how fast, and one attempt at each.

pub mod message;
pub mod pacing;
pub mod pause;
pub mod scheduler;
pub mod slots;
pub mod state;
pub mod transfer;
pub mod unreadable;
