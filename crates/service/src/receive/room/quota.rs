//! Whether there is room for more: [`Limits`]. Pure.

use super::promises::{OF_ONE_MAX, PROMISES_MAX};
use crate::model::{Payer, Sum};
use hoop_files::Space;

/// Uploads of one payer whose bodies are kept or promised: each costs a file and a row, however short it is.
pub const UPLOADS_MAX: usize = 10_000;

/// File systems have about one file for so many bytes, as ext4 has by default. So a reserve of bytes is also one of
/// files.
const BYTES_A_FILE: u64 = 16 << 10;

/// How much uploads may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// All of them, in bytes.
    pub all: u64,
    /// Those of one user whom the application names.
    pub owner: u64,
    /// Those of whoever is at one address.
    pub address: u64,
    /// How many bytes of the disk stay free; and one file for each 16 KiB of them.
    pub reserve: u64,
}

/// What is taken already, with the promises of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// By all.
    pub all: Sum,
    /// By whoever pays.
    pub own: Sum,
    /// Promised of those.
    pub promised: (Sum, Sum),
}

/// What an upload asks for: so much more than is stored of it, in all and of its payer's share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Who pays.
    pub payer: Payer,
    /// More than all have.
    pub more: u64,
    /// More than the payer has. It includes what another payer has paid for so far.
    pub more_of_payer: u64,
}

/// Why there is no room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Full {
    /// `--owner-quota`.
    Owner,
    /// `--address-quota`.
    Address,
    /// Too many uploads of one payer.
    Uploads,
    /// `--max-stored`.
    All,
    /// Too many uploads have begun.
    Begun,
    /// `--reserve`, in bytes.
    Disk,
    /// `--reserve`, in files.
    Files,
}

impl Full {
    /// Every reason.
    pub const ALL: [Self; 7] =
        [Self::Owner, Self::Address, Self::Uploads, Self::All, Self::Begun, Self::Disk, Self::Files];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Address => "address",
            Self::Uploads => "uploads",
            Self::All => "all",
            Self::Begun => "begun",
            Self::Disk => "disk",
            Self::Files => "files",
        }
    }

    /// What the sender is told. It says nothing of others' uploads.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Owner => "this user's share of it is taken; what is delivered or stopped makes room",
            Self::Address => "the share of one address is taken; what is delivered or stopped makes room",
            Self::Uploads => "too many uploads of one user or address have not ended",
            Self::All => "all of it is taken; what is delivered makes room",
            Self::Begun => "too many uploads have begun and brought little; come back in some minutes",
            Self::Disk | Self::Files => "the disk is nearly full",
        }
    }

    /// Whether the payer's own uploads have to make room, rather than anybody's.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Owner | Self::Address | Self::Uploads)
    }
}

impl Limits {
    /// Whether there is room for that.
    ///
    /// # Errors
    /// What is full, and how many bytes too many it would have.
    pub fn judge(&self, asked: Asked, taken: &Taken, space: Space) -> Result<(), (Full, u64)> {
        let (share, full) = match asked.payer {
            Payer::Owner(_) => (self.owner, Full::Owner),
            Payer::Address(_) => (self.address, Full::Address),
        };
        let own = taken.own.bytes.saturating_add(asked.more_of_payer);
        let all = taken.all.bytes.saturating_add(asked.more);
        let (promised, promised_own) = taken.promised;
        let disk = promised.bytes.saturating_add(asked.more).saturating_add(self.reserve);
        let files = (promised.uploads as u64).saturating_add(1).saturating_add(self.reserve / BYTES_A_FILE);
        let over = |full, bytes: u64, limit: u64| if bytes > limit { Err((full, bytes - limit)) } else { Ok(()) };
        over(full, own, share)?;
        over(Full::Uploads, taken.own.uploads as u64 + 1, UPLOADS_MAX as u64)?;
        over(Full::Uploads, promised_own.uploads as u64 + 1, OF_ONE_MAX as u64)?;
        over(Full::All, all, self.all)?;
        over(Full::Begun, promised.uploads as u64 + 1, PROMISES_MAX as u64)?;
        over(Full::Disk, disk, space.bytes)?;
        over(Full::Files, files, space.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { all: 1_000, owner: 500, address: 300, reserve: 0 };
    const ROOMY: Space = Space { bytes: u64::MAX, files: u64::MAX };
    const OWNER: Payer = Payer::Owner([1; 16]);
    const ADDRESS: Payer = Payer::Address([1; 16]);

    fn judge(payer: Payer, all: u64, own: u64, more: u64) -> Option<(Full, u64)> {
        let sum = |bytes| Sum { uploads: 1, bytes };
        let taken = Taken { all: sum(all), own: sum(own), promised: Default::default() };
        LIMITS.judge(Asked { payer, more, more_of_payer: more }, &taken, ROOMY).err()
    }

    #[test]
    fn a_share_is_full_before_all_of_it_is() {
        assert_eq!(judge(OWNER, 400, 400, 100), None);
        assert_eq!(judge(OWNER, 400, 400, 101), Some((Full::Owner, 1)));
        assert_eq!(judge(ADDRESS, 400, 400, 100), Some((Full::Address, 200)));
        assert_eq!(judge(ADDRESS, 950, 0, 60), Some((Full::All, 10)));
        assert_eq!(judge(OWNER, 0, 0, u64::MAX), Some((Full::Owner, u64::MAX - 500)));
    }

    #[test]
    fn short_uploads_are_counted_too() {
        let asked = Asked { payer: OWNER, more: 1, more_of_payer: 1 };
        let own = |uploads| Taken { own: Sum { uploads, bytes: 0 }, ..Taken::default() };
        assert_eq!(LIMITS.judge(asked, &own(UPLOADS_MAX - 1), ROOMY), Ok(()));
        assert_eq!(LIMITS.judge(asked, &own(UPLOADS_MAX), ROOMY), Err((Full::Uploads, 1)));
        let promised = |all, own| {
            let sum = |uploads| Sum { uploads, bytes: 0 };
            Taken { promised: (sum(all), sum(own)), ..Taken::default() }
        };
        assert_eq!(LIMITS.judge(asked, &promised(0, OF_ONE_MAX), ROOMY), Err((Full::Uploads, 1)));
        assert_eq!(LIMITS.judge(asked, &promised(PROMISES_MAX, 0), ROOMY), Err((Full::Begun, 1)));
    }

    #[test]
    fn the_reserve_is_of_bytes_and_of_files() {
        let limits = Limits { all: 1 << 40, owner: 1 << 40, address: 1 << 40, reserve: 64 << 20 };
        let asked = Asked { payer: OWNER, more: 1 << 20, more_of_payer: 1 << 20 };
        let promised = Sum { uploads: 9, bytes: 2 << 20 };
        let taken = Taken { promised: (promised, Sum::default()), ..Taken::default() };
        let judge = |bytes, files| limits.judge(asked, &taken, Space { bytes, files }).err().map(|(full, _)| full);
        assert_eq!(judge(67 << 20, 4_106), None);
        assert_eq!(judge((67 << 20) - 1, 4_106), Some(Full::Disk), "64 MiB are kept, and 2 are promised to others");
        assert_eq!(judge(1 << 40, 4_105), Some(Full::Files), "4,096 are kept, and 9 are promised to others");
    }
}
