//! Destinations that could not be reached: [`Destinations`].
//!
//! While one is waited for, nothing is sent there; then one upload tries, and only when that got through, or goes on for
//! long, do the others follow. A house with the line down sends one packet now and then rather than one for each upload.

use crate::BACKOFF;
use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::time::Duration;
use hoop_units::Timestamp;

/// The most destinations that are remembered as unreachable. Beyond it the one whose wait is over first is forgotten,
/// which costs one attempt too early.
pub const DESTINATIONS_MAX: usize = 1024;

/// The host of an origin: one machine has as many origins as it has ports.
pub fn host(origin: &str) -> &str {
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    match authority.rsplit_once(':') {
        // What follows the last colon of an IPv6 address is not a port, and not all digits: a bracket ends it.
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    failures: u32,
    until: Timestamp,
    /// The wait is over, and lists were loaded again.
    woken: bool,
    /// An attempt since goes on for long, and may end well.
    tried: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Destinations {
    waiting: BTreeMap<String, Waiting>,
}

impl Destinations {
    /// It could not be reached, or asked to be left alone for `at_least`.
    pub fn failed(&mut self, origin: &str, at_least: Duration, jitter: u32, now: Timestamp) {
        let before = self.waiting.get(origin).copied();
        // Others that were under way fail for the same reason: that is one failure.
        let failures = match before {
            Some(waiting) if now < waiting.until => waiting.failures,
            Some(waiting) => waiting.failures + 1,
            None => 1,
        };
        let until = now + BACKOFF.delay(failures - 1, jitter).max(at_least);
        let until = before.map_or(until, |waiting| waiting.until.max(until));
        if before.is_none() && self.waiting.len() >= DESTINATIONS_MAX {
            let first = self.waiting.iter().min_by_key(|(_, waiting)| waiting.until).map(|(origin, _)| origin.clone());
            if let Some(first) = first {
                self.waiting.remove(&first);
            }
        }
        self.waiting.insert(origin.to_owned(), Waiting { failures, until, woken: false, tried: false });
    }

    /// It was reached.
    pub fn reached(&mut self, origin: &str) {
        self.waiting.remove(origin);
    }

    /// An attempt that began at `since` goes on for long without failing.
    pub fn goes_on(&mut self, origin: &str, since: Timestamp) {
        if let Some(waiting) = self.waiting.get_mut(origin) {
            waiting.tried |= since >= waiting.until;
        }
    }

    /// Everything may be tried at once.
    pub fn forget_all(&mut self) {
        self.waiting.clear();
    }

    /// Whether nothing may go there now.
    pub fn waits(&self, origin: &str, now: Timestamp) -> bool {
        self.waiting.get(origin).is_some_and(|waiting| now < waiting.until)
    }

    /// Whether the next one to go there goes alone.
    pub fn is_doubtful(&self, origin: &str) -> bool {
        self.waiting.get(origin).is_some_and(|waiting| !waiting.tried)
    }

    /// Whether a wait came to its end since this was asked last.
    pub fn wake(&mut self, now: Timestamp) -> bool {
        let mut any = false;
        for waiting in self.waiting.values_mut().filter(|waiting| !waiting.woken && now >= waiting.until) {
            waiting.woken = true;
            any = true;
        }
        any
    }

    /// When the next wait is over.
    pub fn next(&self) -> Option<Timestamp> {
        self.waiting.values().filter(|waiting| !waiting.woken).map(|waiting| waiting.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn all_ports_of_a_machine_are_one_host() {
        assert_eq!(host("https://photos.example"), "photos.example");
        assert_eq!(host("https://photos.example:8443"), "photos.example");
        assert_eq!(host("http://10.8.0.1:8001"), host("http://10.8.0.1:8002"));
        assert_eq!((host("http://[fd00::1]:80"), host("http://[fd00::1]")), ("[fd00::1]", "[fd00::1]"));
    }
}
