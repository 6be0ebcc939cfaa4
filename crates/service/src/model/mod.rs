//! What an upload is, whose, and what its owner says of it: values that every room uses, and that use none.

pub mod content;
pub mod credentials;
mod marked;
pub mod note;
mod payer;
mod settings;
pub mod tag;
mod upload;

pub use credentials::Credentials;
pub use marked::Marked;
pub use note::Note;
pub use payer::{Payer, Sum};
pub use settings::{Offload, Settings};
pub use tag::Tag;
#[cfg(test)]
pub use upload::BLOCK;
pub use upload::{Change, Facts, KEPT_SECS, LINGER_SECS, Reason, State, Upload};
