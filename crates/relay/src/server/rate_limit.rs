//! What one device may use of a relay: [`Shares`].
//!
//! A device has a key, and may be lost, lent or taken over by a program that means harm. So it may begin so many connections a minute, which keeps it from scanning or flooding others
//! under the relay's address, and move so many bits a second, if its owner says so. How many connections and how much memory it may hold is counted elsewhere (`ServerLimits`).
//!
//! Bounds: what is remembered of a device is a hundred bytes, for as long as it has connections or its allowance is not whole again; devices are those of the relay's file.

use hoop_endpoint::DeviceId;
use hoop_units::Bitrate;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one device may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareLimits {
    /// Connections that a device may begin within a minute, and all of them at once; 0: any number. Default 1,200: a browser that opens twenty pages with sixty servers each.
    pub begun_per_minute: u32,
    /// What its connections together may move, both ways. Default none: the line is the limit.
    pub rate: Option<Bitrate>,
}

impl Default for ShareLimits {
    fn default() -> Self {
        Self { begun_per_minute: 1_200, rate: None }
    }
}

/// What may be moved at once after a pause.
const BURST: Duration = Duration::from_millis(250);

/// Fewer devices are not looked through for those that can be forgotten.
const SWEEP_MIN: usize = 1_024;

/// The shares of all devices.
#[derive(Debug)]
pub(crate) struct Shares {
    limits: ShareLimits,
    known: Mutex<HashMap<DeviceId, Arc<Share>>>,
}

/// The share of one device. Times until which its allowance is used up (the generic cell rate algorithm of ITU-T I.371).
#[derive(Debug)]
pub(crate) struct Share {
    rate: Option<Bitrate>,
    used: Mutex<Used>,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    begun_until: Instant,
    moved_until: Instant,
}

impl Shares {
    pub fn new(limits: ShareLimits) -> Self {
        Self { limits, known: Mutex::default() }
    }

    /// The device's share, of which one more connection is taken; none if it has begun too many.
    pub fn begin(&self, host: DeviceId, now: Instant) -> Option<Arc<Share>> {
        let share = self.of(host, now);
        if self.limits.begun_per_minute == 0 {
            return Some(share);
        }
        let minute = Duration::from_secs(60);
        let interval = minute / self.limits.begun_per_minute;
        let mut used = share.used.lock();
        let until = used.begun_until.max(now) + interval;
        if until > now + minute {
            return None;
        }
        used.begun_until = until;
        drop(used);
        Some(share)
    }

    fn of(&self, host: DeviceId, now: Instant) -> Arc<Share> {
        let mut known = self.known.lock();
        if let Some(share) = known.get(&host) {
            return share.clone();
        }
        if known.len() >= SWEEP_MIN {
            known.retain(|_, share| Arc::strong_count(share) > 1 || share.used.lock().begun_until > now);
        }
        let used = Mutex::new(Used { begun_until: now, moved_until: now });
        known.entry(host).or_insert_with(|| Arc::new(Share { rate: self.limits.rate, used })).clone()
    }
}

impl Share {
    /// So much was moved.
    pub fn moved(&self, bytes: usize, now: Instant) {
        let Some(rate) = self.rate else { return };
        let mut used = self.used.lock();
        used.moved_until = used.moved_until.max(now) + rate.time_for(bytes as u64);
    }

    /// Until when nothing more may be moved, by any connection of the device.
    pub fn pauses_until(&self, now: Instant) -> Option<Instant> {
        self.rate?;
        self.used.lock().moved_until.checked_sub(BURST).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: DeviceId = DeviceId([1; 20]);
    const OTHER: DeviceId = DeviceId([2; 20]);

    #[test]
    fn a_device_that_begins_too_many_waits_and_others_do_not() {
        let shares = Shares::new(ShareLimits { begun_per_minute: 6, rate: None });
        let now = Instant::now();
        let begin = |host, secs| shares.begin(host, now + Duration::from_secs(secs)).is_some();
        assert!((0..6).all(|_| begin(ONE, 0)));
        assert!(!begin(ONE, 0) && !begin(ONE, 9), "a minute's worth is used up");
        assert!(begin(OTHER, 0));
        assert!(begin(ONE, 10) && !begin(ONE, 10), "one for each ten seconds");
        let any = Shares::new(ShareLimits { begun_per_minute: 0, rate: None });
        assert!((0..10_000).all(|_| any.begin(ONE, now).is_some()));
    }

    #[test]
    fn over_any_time_no_more_is_moved_than_the_rate_and_a_burst() {
        let shares = Shares::new(ShareLimits { rate: Some(Bitrate::mbps(8)), ..ShareLimits::default() });
        let begun = Instant::now();
        let share = shares.begin(ONE, begun).unwrap();
        // As fast as it may, for what takes ten seconds at a megabyte a second.
        let (mut now, mut moved) = (begun, 0);
        while moved < 10_000_000 {
            share.moved(40_000, now);
            now = share.pauses_until(now).unwrap_or(now);
            moved += 40_000;
        }
        let took = now - begun;
        assert!(took >= Duration::from_secs(10) - BURST && took <= Duration::from_secs(10), "{took:?}");
        let free = Shares::new(ShareLimits::default()).begin(ONE, begun).unwrap();
        free.moved(usize::MAX, begun);
        assert_eq!(free.pauses_until(begun), None);
    }

    #[test]
    fn devices_that_are_quiet_again_are_forgotten() {
        let shares = Shares::new(ShareLimits::default());
        let now = Instant::now();
        let host = |at: u32| DeviceId(std::array::from_fn(|byte| (at >> (8 * (byte % 4))) as u8));
        let kept = shares.begin(host(0), now).unwrap();
        for at in 1..5_000 {
            shares.begin(host(at), now + Duration::from_secs(at.into())).unwrap();
        }
        let known = shares.known.lock();
        assert!(known.len() <= SWEEP_MIN && known.contains_key(&host(0)), "{}", known.len());
        drop(kept);
    }
}
