//! What a store may hold, and where: [`Settings`].

use crate::log::SEGMENT_MAX;
use crate::{Lifetimes, Limits};
use hoop_clock::Clock;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::path::PathBuf;

/// What a store may hold, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its folder, which one process has at a time.
    pub folder: PathBuf,
    /// Flows.
    pub limits: Limits,
    /// How long they are kept.
    pub lifetimes: Lifetimes,
    /// Bytes in all that nobody has consumed. A piece, as it was appended, counts for what it takes on disk, 1 KiB at least. Tidying may need as much again, and eight segments.
    pub bytes: u64,
    /// The same for one device.
    pub bytes_per_host: u64,
    /// How long a file is, from 128 KiB to 16 MiB.
    pub segment_len: u32,
    /// What time it is. It is judged, and kept in the folder.
    pub clock: Clock,
    /// Rng, for what nobody who fills the store may foresee.
    pub salt: fn() -> u64,
}

impl Settings {
    /// For a machine with a gigabyte or two: ten million flows, 100,000 of a device, a million in memory; 4 GiB of bytes, 64 MiB of a device. Quiet flows are parked after
    /// 30 s; a flow expires an hour after its deadline, or after 30 days.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            limits: Limits {
                flows: 10_000_000,
                flows_per_host: 100_000,
                memory: 256 << 20,
                ends: 65_536,
                ends_per_host: 1_024,
            },
            lifetimes: Lifetimes { quiet: 30, grace: 3_600, age: 30 * 86_400, ends: 86_400 },
            bytes: 4 << 30,
            bytes_per_host: 64 << 20,
            segment_len: SEGMENT_MAX,
            clock: Clock::system(),
            salt,
        }
    }
}

fn salt() -> u64 {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).expect("the operating system has dice");
    u64::from_be_bytes(bytes)
}
