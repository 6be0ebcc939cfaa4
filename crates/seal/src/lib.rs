//! Sealed uploads: the ticket that carries a fresh key past everyone in between, and the body sealed under it.
//!
//! ```text
//! Z = salt(16) | record size(4) | idlen(1) | ticket(107) | record 0 | record 1 | … | last record
//!     └─────────────── Prelude ──────────────────────────┘ └────────── ContentKey ──────────────┘
//! ```
//!
//! The layout is that of RFC 8188; `docs/protocol.md` has every byte. The parts:
//!
//! - [`Prelude`] is what stands before the records; [`Layout`] is the arithmetic of where each record lies.
//! - [`ContentKey`] seals and opens any one record; [`Sealer`] and [`Opener`] are the same for a stream.
//! - [`Keyring`] holds the service's keys: it seals and opens tickets ([`Ticket`]) and tokens, and rotates.
//! - [`answer`] seals the application's answer for the device's eyes.
//! - [`signing`] has what is signed for others to check: permits, receipts, gateways' proofs.
//! - [`word`] has what a gateway signs for devices: who it is, and what it has stored.
//!
//! The crate is `no_std`: no clock, no dice, no file. Salts, nonces and keys come in as arguments, and whoever
//! passes them draws each from a cryptographic generator, once.
#![no_std]

extern crate alloc;

pub mod answer;
mod keyring;
mod kws_id;
mod layout;
mod prelude;
mod record;
pub mod signing;
mod stream;
mod ticket;
pub mod word;

pub use keyring::{KeyLineError, Keyring, ServiceKey, TOKEN_CONTENT_STEP, TokenError, token_content_len, token_len};
pub use kws_id::KwsId;
pub use layout::{Layout, LayoutError};
pub use prelude::{Prelude, PreludeError, SALT_LEN};
pub use record::{ContentKey, OpenError, RECORD_OVERHEAD, Suite, UploadKey};
pub use stream::{OpenStreamError, Opener, Sealer};
pub use ticket::{Grant, Route, TICKET_LEN, Ticket, TicketError, TicketLabel};

/// The record size of every upload: large enough that 17 bytes of overhead vanish and the cipher runs at full speed,
/// small enough that a router or a phone holds one without noticing, and that little is lost when a link breaks.
pub const RECORD_SIZE: u32 = 65_536;

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
