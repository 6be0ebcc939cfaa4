//! Which refusals are written to the log: [`Refusals`].

use hoop_endpoint::DeviceId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often each device's refusals were written down since its minute began: so one device does not fill the log. An entry a device of the file.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<DeviceId, (Instant, u32)>>);

impl Refusals {
    /// Lines a minute for one device: more than one needs to see what is wrong.
    const OF_DEVICE: u32 = 20;

    /// Whether one more is written down.
    pub fn are_written(&self, host: DeviceId, now: Instant) -> bool {
        const MINUTE: Duration = Duration::from_secs(60);
        let mut devices = self.0.lock();
        if !devices.contains_key(&host) {
            devices.retain(|_, (began, _)| now.saturating_duration_since(*began) < MINUTE);
        }
        let (began, lines) = devices.entry(host).or_insert((now, 0));
        if now.saturating_duration_since(*began) >= MINUTE {
            (*began, *lines) = (now, 0);
        }
        *lines = lines.saturating_add(1);
        if *lines == Self::OF_DEVICE + 1 {
            let device = hex::encode(host.0);
            tracing::warn!(device, "more of a device's connections are refused than are written down in this minute");
        }
        *lines <= Self::OF_DEVICE
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
        assert_eq!(written, Refusals::OF_DEVICE as usize);
        assert!(refusals.are_written(two, now), "another's are");
        assert!(refusals.are_written(one, now + Duration::from_secs(60)));
    }
}
