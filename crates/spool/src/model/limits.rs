//! How much of what a spool takes, and for how long.

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

/// What an upload takes beside its bytes while it is kept, in bytes: its row in the index, and the rest of its last block of the disk.
pub const UPLOAD_COST: u64 = 6 << 10;

/// What an upload takes that is at its service and has not ended, in bytes: its row.
pub const AWAY_COST: u64 = 2 << 10;
