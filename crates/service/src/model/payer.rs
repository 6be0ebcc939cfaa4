//! Who pays for the room of an upload: [`Payer`].

use super::Tag;

/// Which share of the room an upload takes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Payer {
    /// A user whom the application has named.
    Owner(Tag),
    /// An IPv4 address or an IPv6 /64: a MAC, so that the state folder has no addresses in it.
    Address(Tag),
}

impl Payer {
    /// Its kind, for metrics and refusals.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Owner(_) => "owner",
            Self::Address(_) => "address",
        }
    }

    /// The MAC of the user or the address.
    pub const fn tag(&self) -> &Tag {
        match self {
            Self::Owner(tag) | Self::Address(tag) => tag,
        }
    }
}

/// What one payer has, or was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// To so many uploads.
    pub uploads: usize,
    /// In bytes.
    pub bytes: u64,
}
