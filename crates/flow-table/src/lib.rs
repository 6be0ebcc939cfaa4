//! A server's flows in memory: which there are, where each is, when it expires, and who has how many ([`Table`]); and a flow's record in bytes
//! ([`Image`]). `docs/flow-store.md` tells it from outside.
//!
//! ```text
//!            put                     nothing to say            detached                  memory is short, and it is on disk
//!  (new) ───────────▶ live ◀──────────────────────▶ quiet ───────────────▶ parked ─────────────────────────────▶ spilled
//!                      ▲                                                     │                                      │
//!                      └─────────────────────── taken ───────────────────────┴──────────────────────────────────────┤
//!                                                                                                                   ▼
//!                                                                     deadline and grace have passed, or it is old: expired
//! ```
//!
//! Everything here is pure: times are told, and so is the hash; disks are the caller's. A flow costs 32 bytes wherever it is, and 144 and its attachment besides while it is in memory;
//! a device with any flow costs 24 and a place in a hash table. Nothing is copied when there are more: all are in chunks of 64 or 256 KiB, but the hash tables, of four bytes a flow, and the
//! order in which they expire, of eight.
#![no_std]

extern crate alloc;

mod devices;
mod ends;
mod expiry;
mod image;
mod index;
mod slab;
mod table;
mod tails;

pub use ends::Ends;
pub use image::{FIXED_LEN, Image, ImageError, TAIL_MAX};
pub use table::{Due, Full, Id, Life, Lifetimes, Limits, PLACE_MAX, Place, Table, Times, Usage};
