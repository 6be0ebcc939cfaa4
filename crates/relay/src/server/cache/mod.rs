//! Answers that are kept for the next who asks (RFC 9111): [`Cache`].
//!
//! Rooms, each importing only those before it: `directives`, `status`, `policy`, `key`, `record`, `index`, `entry`, `disk`, `reply`, `draft`, `library`, `flight`, `serve`, `fuzzing`.

mod directives;
mod disk;
mod draft;
mod entry;
mod flight;
pub mod fuzzing;
mod index;
mod key;
mod library;
mod policy;
mod record;
mod reply;
mod serve;
mod status;

pub use library::CacheConfig;
pub(super) use serve::Cache;
