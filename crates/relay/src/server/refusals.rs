//! Which refusals are written to the log: [`Refusals`].

use hoop_endpoint::DeviceId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often each device's refusals were written down since its minute began: so one device does not fill the log. An entry a device of the file.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// Lines a minute for one device.
    most: u32,
    /// What is said when there are more.
    more: &'static str,
    devices: Mutex<HashMap<DeviceId, (Instant, u32)>>,
}

impl Default for Refusals {
    /// More lines than one needs to see what is wrong.
    fn default() -> Self {
        Self::new(20, "more of a device's connections are refused than are written down in this minute")
    }
}

impl Refusals {
    /// So many lines a minute for each device, and what is said when there are more.
    pub fn new(most: u32, more: &'static str) -> Self {
        Self { most, more, devices: Mutex::default() }
    }

    /// Whether one more is written down.
    pub fn are_written(&self, host: DeviceId, now: Instant) -> bool {
        const MINUTE: Duration = Duration::from_secs(60);
        let mut devices = self.devices.lock();
        if !devices.contains_key(&host) {
            devices.retain(|_, (began, _)| now.saturating_duration_since(*began) < MINUTE);
        }
        let (began, lines) = devices.entry(host).or_insert((now, 0));
        if now.saturating_duration_since(*began) >= MINUTE {
            (*began, *lines) = (now, 0);
        }
        *lines = lines.saturating_add(1);
        if *lines == self.most + 1 {
            let device = hex::encode(host.0);
            tracing::warn!(device, "{}", self.more);
        }
        *lines <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_is_refused_is_written_down_so_often_a_minute() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let [one, two] = [1, 2].map(|n| DeviceId([n; 20]));
        let written = (0..1_000).filter(|_| refusals.are_written(one, now)).count();
        assert_eq!(written, 20);
        assert!(refusals.are_written(two, now), "another's are");
        assert!(refusals.are_written(one, now + Duration::from_secs(60)));
    }
}
