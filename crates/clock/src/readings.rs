//! What the machine's clocks say: [`Readings`], and those of the [`System`].

use hoop_timekeeper::Reading;
use hoop_timekeeper::simulated::Machine;
use hoop_units::Timestamp;
use parking_lot::Mutex;
use std::time::SystemTime;

/// The clocks of a machine; a test has others.
pub trait Readings: Send + Sync {
    /// A monotonic clock that goes on while the machine sleeps.
    fn mono(&self) -> Timestamp;
    /// All of them at once.
    fn read(&self) -> Reading;
    /// Names the time since the machine was started.
    fn boot(&self) -> String;
}

/// The operating system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Readings for System {
    fn mono(&self) -> Timestamp {
        system::mono()
    }

    fn read(&self) -> Reading {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        Reading { mono: self.mono(), wall_us, ntp_us: system::synchronised() }
    }

    fn boot(&self) -> String {
        system::boot()
    }
}

/// A machine whose clocks a test has jump.
impl Readings for Mutex<Machine> {
    fn mono(&self) -> Timestamp {
        self.read().mono
    }

    fn read(&self) -> Reading {
        self.lock().reading()
    }

    fn boot(&self) -> String {
        self.lock().boot()
    }
}

#[cfg(target_os = "linux")]
mod system {
    use hoop_units::Timestamp;

    /// By the C library, as all clocks are read here: so a test can stand in for the kernel (`crates/hoop/tests/clocks/shim.c`).
    #[allow(unsafe_code)] // what rustix has for it goes past the C library
    pub fn mono() -> Timestamp {
        // SAFETY: all zero is a valid value of that struct of integers; the pointer is to a local.
        let time = unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time);
            time
        };
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        Timestamp::from_micros(secs * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000)
    }

    /// The kernel's time, in microseconds since 1970, if it says that NTP has synchronised it (adjtimex(2)).
    #[allow(unsafe_code)] // one call of the kernel that no crate here wraps
    pub fn synchronised() -> Option<u64> {
        // SAFETY: all zero is a valid value of that struct of integers, and asks for nothing to be changed; the pointer is to a local.
        let (state, time) = unsafe {
            let mut time: libc::timex = std::mem::zeroed();
            (libc::adjtimex(&raw mut time), time)
        };
        if state < 0 || state == libc::TIME_ERROR || time.status & libc::STA_UNSYNC != 0 {
            return None;
        }
        let fraction = u64::try_from(time.time.tv_usec).ok()?;
        let fraction = if time.status & libc::STA_NANO != 0 { fraction / 1_000 } else { fraction };
        Some(u64::try_from(time.time.tv_sec).ok()? * 1_000_000 + fraction)
    }

    pub fn boot() -> String {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| String::new(), |id| id.trim().to_owned())
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use hoop_units::Timestamp;
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Since the process began: each process is a boot of its own.
    pub fn mono() -> Timestamp {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Timestamp::ZERO + ORIGIN.get_or_init(Instant::now).elapsed()
    }

    pub const fn synchronised() -> Option<u64> {
        None
    }

    pub fn boot() -> String {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_clocks_agree() {
        let (one, boot) = (System.read(), System.boot());
        assert!(System.mono() >= one.mono && System.boot() == boot);
        if let Some(ntp) = one.ntp_us {
            assert!(ntp.abs_diff(one.wall_us) < 60_000_000, "{one:?}");
        }
    }
}
