//! What time it is, judged so that a wall clock that jumps destroys nothing: [`Timekeeper`].
//!
//! Three things are kept apart.
//!
//! - **Steady time** ([`Timekeeper::now`]) goes on with a monotonic clock. The wall clock sets it only after it has stood as it is for a while:
//!   [`SETTLE`] if the kernel's NTP state or a service's `Date` says the same, [`DAY`] if nobody does. So a jump that is undone changes nothing,
//!   and small jumps do not add up.
//! - **Run time** ([`Timekeeper::run`]) counts how long this store has been in use; it goes on over restarts, and cannot jump.
//! - **What is over** ([`Timekeeper::over`]) is judged by steady time less all that it was set forward by in the last *lifetime* of run time. So
//!   whatever was promised a lifetime gets it in run time, too, whoever sets the clock, and however plausibly.
//!
//! After a jump of over [`JUMP`], either way, and after a start that finds one against the last good time, nothing is over until time was
//! confirmed ([`Timekeeper::is_sure`]). What lives for less than [`JUMP`] goes on ending meanwhile, within some two hours of run time at worst.
//!
//! The crate is pure: readings of clocks come in, and what to save goes out ([`Timekeeper::saved`]).
#![no_std]

extern crate alloc;

mod saved;
pub mod simulated;
mod timekeeper;
mod witness;

pub use saved::{Saved, Start, Step};
pub use timekeeper::{Over, Reading, Timekeeper};
pub use witness::Source;

use core::time::Duration;

/// A wall clock that is further off than this has jumped. Daylight saving does not touch UTC; a clock without a battery drifts by seconds a day.
pub const JUMP: Duration = Duration::from_secs(3_600);

/// How long NTP or a service has to say the same before it is believed: longer than a fault that somebody notices and undoes at once.
pub const SETTLE: Duration = Duration::from_secs(15 * 60);

/// How long the wall clock has to stand as it is before it is believed without a witness, and after how long in doubt things are over again.
pub const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The latest time that anybody is believed, 2100: seconds end in 2106 ([`UnixTime`](hoop_units::UnixTime)), and time would stand still there.
pub const LATEST: hoop_units::UnixTime = hoop_units::UnixTime(4_102_444_800);

/// Two witnesses who are no further apart than this agree: a service's `Date` may have been on its way for a while.
pub const AGREE: Duration = Duration::from_secs(60);

/// Steps that are remembered one by one; beyond, the two oldest count as one, as late as the later: some 2 KiB, two months of a box that is switched
/// off each night.
pub const STEPS_MAX: usize = 64;
