//! Durable store of uploads: what a gateway has taken on and not yet got rid of.
//!
//! A folder with an index (SQLite) and one sparse file per upload that holds Z's bytes at their own offsets. What is
//! *stored* is on disk and synced; only that is ever told to anyone. `docs/spool.md` has the format, what acknowledges,
//! what deletes, and what recovery does.
//!
//! - [`Spool`] is the store; [`Intake`] is one sender's pen on one upload; [`Upload`] is what is known of one.
//! - [`State`] is where an upload stands; it never goes backwards, and [`State::may_become`] is the one place that says so.
//!
//! Bounds: memory per upload that is being received is its set of ranges, at most [`SPANS_MAX`] spans; a spool at rest
//! holds no upload in memory, and opening it costs the same with 10 uploads or 100,000.
//!
//! The API blocks. [`Intake::write_at`] and [`Intake::write_from`] write into the page cache, good enough to call from an event loop
//! that waits for the disk now and then ([`Intake::behind`]); everything else waits for the disk.

mod checksums;
mod committer;
#[cfg(test)]
mod cost;
mod ended;
mod error;
mod fsck;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod intake;
mod leaving;
mod life;
mod live;
mod lives;
mod lock;
mod payload;
mod resource;
mod room;
mod schema;
mod shared;
mod spool;
mod state;
mod sys;
mod upload;

pub use error::{BeginError, CommitError, OpenError, ReadError, StoreError, WriteError};
pub use fsck::{Checked, Damage, Finding, View, check};
pub use index::{DueOf, Held, Place, Queue, SMALL_BYTES, Tally};
pub use intake::{Behind, Intake};
pub use life::{LIFE_SECS, Overdue, late_by, ticket_end};
pub use payload::Payload;
pub use resource::{RESOURCES_MAX, RESOURCES_OF_DEVICE_MAX, Resource, Token};
pub use spool::{Begin, HeldBy, Settings, Spool};
pub use state::State;
pub use sys::Source;
pub use upload::{Change, Offer, Reason, Upload};

/// The most separate spans that one upload may be stored in: 16 KiB of index per upload at worst. Senders that cut an
/// upload of 16 GiB into messages of 16 MiB and send them in any order stay below it.
pub const SPANS_MAX: usize = 1024;

/// How long an upload outlives its ticket, in seconds: 7 days (`docs/protocol.md` §6 and §8).
pub const KEEP_SECS: u32 = 7 * 24 * 60 * 60;

/// How long an upload is kept whose prelude has not come, in seconds: longer than any device waits for its ticket
/// (`docs/protocol.md` §6).
pub const EARLY_SECS: u32 = 10 * 60;

/// The most uploads without a prelude at once: more than a gateway has connections, and few enough that what nobody may
/// ever be able to use stays few.
pub const EARLY_MAX: usize = 64;

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
