//! What is known of each upload, and where it is kept.
//!
//! Two small traits keep an [`Upload`](crate::model::Upload). [`Index`] has the facts
//! ([`SqliteIndex`](sqlite::SqliteIndex); with [`Notes`], [`SavedSettings`] and [`Closed`]), and [`Bodies`] the sealed
//! bytes ([`Folder`](folder::Folder)). Every change is on disk and synced when its method returns. [`Store`] offers
//! both to asynchronous callers, and tells those who wait for an upload that it changed. `conformance` holds an
//! implementation to what both promise.
//!
//! One service at a time uses a state folder ([`StoreError::InUse`]). What several processes on one state (PostgreSQL
//! and S3, say) would need is in `docs/services.md`, "More than one node".

mod bodies;
#[cfg(test)]
pub mod conformance;
pub mod folder;
mod handle;
mod index;
#[cfg(test)]
mod jumps;
pub mod sqlite;

pub use bodies::{Bodies, Sealed};
pub use handle::{News, Store, blocking};
pub use index::{Changed, Closed, Index, MarkChange, Notes, SavedSettings, StoreError, UnderWay, store_problem};
pub use sqlite::{ENDED_MAX, SETTINGS_LIFE};
