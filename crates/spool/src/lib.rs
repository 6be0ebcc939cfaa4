//! Durable store of uploads: what a gateway has taken on and not yet got rid of.
//!
//! A folder with an index (SQLite) and Z's bytes: of a long upload in one sparse file, at their own offsets; of a short one in a file that many share. What is
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
//!
//! Rooms, each importing only those before it: `model`, `disk`, `index`, `receive`, `spool`, `fsck`, `fuzzing`.

mod disk;
mod fsck;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod model;
mod receive;
mod spool;

pub use disk::sys::Source;
pub use fsck::{Checked, Damage, Finding, View, check};
pub use index::resource::{RESOURCES_MAX, RESOURCES_OF_DEVICE_MAX, Resource, Token};
pub use index::{DueOf, Held, Place, Queue, SMALL_BYTES, Tally};
pub use model::error::{BeginError, CommitError, OpenError, ReadError, StoreError, WriteError};
pub use model::life::{LIFE_SECS, Overdue, late_by, ticket_end};
pub use model::limits::{AWAY_COST, EARLY_MAX, EARLY_SECS, KEEP_SECS, SPANS_MAX, UPLOAD_COST};
pub use model::spoilt::Spoilt;
pub use model::state::State;
pub use model::upload::{Change, Offer, Reason, Upload};
pub use receive::intake::{Behind, Intake, PROMISED_MAX};
pub use receive::payload::Payload;
pub use spool::{Begin, HeldBy, Settings, Spool};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
