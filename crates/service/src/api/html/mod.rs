//! The pages for people: my uploads ([`list`]) and settings ([`settings`]), and their refusals. Pure but for the
//! response around them.
//!
//! They are made here, from the same documents that programs get (`docs/protocol.md` §7, §8), and work without script.
//! They live on the origin of the application. So nothing that others wrote (names, captions, answers) becomes markup,
//! and a content security policy forbids what is not the service's own.

mod assets;
mod frame;
mod list;
mod markup;
mod settings;

pub use assets::{asset, is_asset};
pub use frame::{Asker, Frame, page, refusal};
pub use list::{ListView, list};
pub use settings::{SettingsView, settings};
