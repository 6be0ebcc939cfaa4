//! Time, bitrates, byte ranges, addresses and ids: the small types that every part of Hoop speaks in.
//!
//! The crate is `no_std` and depends on nothing of ours. Nothing here reads a clock or rolls dice: a
//! [`Timestamp`] and a [`UnixTime`] are handed in by whoever owns a clock, an [`UploadId`] by whoever owns dice.
#![no_std]

extern crate alloc;

mod address;
mod address_key;
mod backoff;
mod bitrate;
mod forwarded;
mod here;
mod id;
mod named;
pub mod plain;
mod prefix;
mod range;
mod size;
mod time;

pub use address::{is_public, leads_to};
pub use address_key::AddressKey;
pub use backoff::Backoff;
pub use bitrate::Bitrate;
pub use core::time::Duration;
pub use forwarded::{FORWARDED_MAX, Forwarded};
pub use here::Here;
pub use id::{ParseIdError, UploadId};
pub use prefix::{NoPrefix, Prefix};
pub use range::{ByteRange, ContentRange, ParseRangeError, RangeSet};
pub use size::Size;
pub use time::{Timestamp, UnixTime};
