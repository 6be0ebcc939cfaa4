//! Sealing while sending: [`sealed`] makes records as they are read, [`seal_guard`] remembers what was sealed.

pub(crate) mod seal_guard;
pub(crate) mod sealed;
