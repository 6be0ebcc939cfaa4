//! Answers that are fetched whether or not their devices are there: [`Object`], on disk in an [`ObjectStore`].
//!
//! Rooms, each importing only those before it: `window`, `room`, `file`, `store`, `object`.

pub(in crate::server) mod file;
mod object;
pub(in crate::server) mod room;
pub(in crate::server) mod store;
pub(in crate::server) mod window;

pub(crate) use object::Object;
pub use room::StoreConfig;
pub(crate) use store::ObjectStore;
