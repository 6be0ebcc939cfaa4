//! How much of a gateway one device may use: [`Devices`].
//!
//! A device is an address (IPv6: a /64), which is all that a gateway knows of whoever is on its LAN. The limits are far above what an honest device does
//! in a hurry; they are there so that one that runs wild, or means harm, leaves room for the others. What a device holds on disk is counted by the spool; what it asks, here.

use crate::core::device_limits::{AWAY, DeviceLimits};
use hoop_http::{Code, Problem};
use hoop_spool::PROMISED_MAX;
use hoop_units::{AddressKey, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Devices whose rates are remembered; beyond it the one that has been quiet longest is forgotten, and begins anew. More than a LAN's address range
/// has, and some 100 KiB.
const DEVICES_MAX: usize = 1024;

/// What devices have done lately, and are about to.
#[derive(Debug)]
pub struct Devices {
    limits: DeviceLimits,
    known: Mutex<BTreeMap<AddressKey, Lately>>,
}

/// A device's recent past.
#[derive(Clone, Copy, Default, Debug)]
struct Lately {
    requests: Meter,
    begun: Meter,
    resources: Meter,
    /// Bytes that may still come in messages under way, beyond those that the spool has promised room for, and how many messages these are.
    announced: u64,
    messages: u32,
    last: Timestamp,
}

/// A rate, kept as the time until which the allowance is used up (the generic cell rate algorithm of ITU-T I.371): one number.
#[derive(Clone, Copy, Default, Debug)]
struct Meter {
    used_until: Timestamp,
}

impl Meter {
    /// Counts one more, unless that is too much: then how long to wait.
    fn count(&mut self, now: Timestamp, interval: Duration, burst: u32) -> Result<(), Duration> {
        let used = self.used_until.max(now).since(now);
        let most = interval * burst.saturating_sub(1);
        if used > most {
            return Err(used - most);
        }
        self.used_until = now + used + interval;
        Ok(())
    }
}

/// A message under way; what it announced is given back when it ends.
#[derive(Debug)]
pub struct Promise {
    devices: Arc<Devices>,
    device: AddressKey,
    bytes: u64,
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(lately) = self.devices.lock().get_mut(&self.device) {
            lately.announced = lately.announced.saturating_sub(self.bytes);
            lately.messages = lately.messages.saturating_sub(1);
        }
    }
}

impl Devices {
    pub fn new(limits: DeviceLimits) -> Arc<Self> {
        Arc::new(Self { limits, known: Mutex::default() })
    }

    /// Whether there are limits for this device.
    pub fn is_limited(&self, device: AddressKey) -> bool {
        self.limits.apply_to(device)
    }

    /// Counts a request.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub fn request(&self, device: AddressKey, now: Timestamp) -> Result<(), Problem> {
        let most = self.limits.requests_per_second;
        if most == 0 || !self.is_limited(device) {
            return Ok(());
        }
        let interval = Duration::from_secs(1) / most;
        let counted = self.with(device, now, |lately| lately.requests.count(now, interval, most.saturating_mul(4)));
        counted.map_err(|wait| too_many(format_args!("more than {most} requests a second from one device"), wait))
    }

    /// Counts an upload that is begun.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub fn begin(&self, device: AddressKey, now: Timestamp) -> Result<(), Problem> {
        self.count_begun(device, now, |lately| &mut lately.begun)
    }

    /// Counts a resumable upload that is begun; once something of it has come, [`Devices::begin`] counts it as well.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub fn begin_resource(&self, device: AddressKey, now: Timestamp) -> Result<(), Problem> {
        self.count_begun(device, now, |lately| &mut lately.resources)
    }

    fn count_begun(
        &self,
        device: AddressKey,
        now: Timestamp,
        meter: fn(&mut Lately) -> &mut Meter,
    ) -> Result<(), Problem> {
        let most = self.limits.begun_per_minute;
        if most == 0 || !self.is_limited(device) {
            return Ok(());
        }
        let interval = Duration::from_secs(60) / most;
        let counted = self.with(device, now, |lately| meter(lately).count(now, interval, most));
        counted.map_err(|wait| too_many(format_args!("more than {most} uploads begun in a minute by one device"), wait))
    }

    /// Takes note of a message of a device that holds `held`. What the spool promised or wrote of it counts there; what is longer counts here until
    /// the message ends, so for a while twice: rather that than that a device gets past its quota with several long ones at once.
    ///
    /// # Errors
    /// In words: it would have too much.
    pub fn promise(
        self: &Arc<Self>,
        device: AddressKey,
        held: Holding,
        need: Need,
        now: Timestamp,
    ) -> Result<Promise, String> {
        let beyond = need.bytes.saturating_sub(PROMISED_MAX);
        let promise = || Promise { devices: self.clone(), device, bytes: beyond };
        let limits = self.limits;
        let most = self.most(held);
        self.with(device, now, |lately| {
            let has = held.bytes.saturating_add(lately.announced);
            if self.is_limited(device) {
                if need.is_new && limits.uploads > 0 && held.uploads >= limits.uploads {
                    return Err(format!(
                        "one device may have {} uploads here, and this one has {}",
                        limits.uploads, held.uploads
                    ));
                }
                let away = limits.uploads.saturating_mul(AWAY);
                if need.is_new && limits.uploads > 0 && held.away >= away {
                    return Err(format!(
                        "one device may have {away} uploads that wait at their services, and this one has {}: have their owner finish or stop some",
                        held.away
                    ));
                }
                if most > 0 && has.saturating_add(need.bytes) > most {
                    return Err(format!(
                        "one device may have {most} bytes here; this one has {has}, and needs {} more",
                        need.bytes
                    ));
                }
            }
            lately.announced += beyond;
            lately.messages += 1;
            Ok(promise())
        })
    }

    /// How many more bytes a device may have here.
    pub fn left(&self, device: AddressKey, held: Holding) -> u64 {
        let most = self.most(held);
        if most == 0 || !self.is_limited(device) {
            return u64::MAX;
        }
        let announced = self.lock().get(&device).map_or(0, |lately| lately.announced);
        most.saturating_sub(held.bytes.saturating_add(announced))
    }

    /// The most bytes that one device may have here; 0: any number.
    fn most(&self, held: Holding) -> u64 {
        self.limits.quota_bytes.unwrap_or(held.room - held.room / 4)
    }

    /// Devices that are remembered.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    fn with<T>(&self, device: AddressKey, now: Timestamp, change: impl FnOnce(&mut Lately) -> T) -> T {
        let mut known = self.lock();
        if known.len() >= DEVICES_MAX && !known.contains_key(&device) {
            // Not one that is sending: what it was promised must be given back to it.
            let quiet = known.iter().filter(|(_, lately)| lately.messages == 0).min_by_key(|(_, lately)| lately.last);
            if let Some(quiet) = quiet.map(|(device, _)| *device) {
                known.remove(&quiet);
            }
        }
        let lately = known.entry(device).or_default();
        lately.last = now;
        change(lately)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AddressKey, Lately>> {
        self.known.lock()
    }
}

/// What a device has in the spool.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    pub uploads: u64,
    /// Their bytes, and what each takes beside them.
    pub bytes: u64,
    /// Uploads that are at their services and not done.
    pub away: u64,
    /// All that the spool can hold, what it holds already included.
    pub room: u64,
}

/// What a message needs.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub bytes: u64,
    pub is_new: bool,
}

fn too_many(what: std::fmt::Arguments<'_>, wait: Duration) -> Problem {
    Problem::new(Code::TooManyRequests, what).retry_after(wait.max(Duration::from_secs(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::ZERO;

    fn device(last: u16) -> AddressKey {
        AddressKey::from_ip(std::net::Ipv4Addr::from(0x0a00_0000 + u32::from(last)).into())
    }

    fn devices(limits: DeviceLimits) -> Arc<Devices> {
        Devices::new(limits)
    }

    #[test]
    fn a_device_in_a_hurry_is_slowed_down_and_another_is_not() {
        let devices = devices(DeviceLimits { requests_per_second: 10, ..DeviceLimits::default() });
        for _ in 0..40 {
            devices.request(device(1), T0).unwrap();
        }
        let refused = devices.request(device(1), T0).unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (Code::TooManyRequests, Some(Duration::from_secs(1))));
        devices.request(device(2), T0).unwrap();
        let later = T0 + Duration::from_millis(100);
        devices.request(device(1), later).unwrap();
        assert!(devices.request(device(1), later).is_err(), "ten a second");
        devices.request(AddressKey::from_ip([127, 0, 0, 1].into()), T0).unwrap();
    }

    #[test]
    fn uploads_begun_are_counted_by_the_minute() {
        let devices = devices(DeviceLimits { begun_per_minute: 3, ..DeviceLimits::default() });
        for _ in 0..3 {
            devices.begin(device(1), T0).unwrap();
        }
        let refused = devices.begin(device(1), T0).unwrap_err();
        assert_eq!(refused.retry_after, Some(Duration::from_secs(20)));
        devices.begin(device(1), T0 + Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn what_a_device_holds_and_was_promised_counts_together() {
        let devices = devices(DeviceLimits { quota_bytes: Some(100), uploads: 3, ..DeviceLimits::default() });
        let long = |bytes| PROMISED_MAX + bytes;
        let devices = Devices::new(DeviceLimits { quota_bytes: Some(long(130)), ..devices.limits });
        let held = Holding { uploads: 1, bytes: 40, away: 0, room: 1000 };
        let need = Need { bytes: long(30), is_new: true };
        let first = devices.promise(device(1), held, need, T0).unwrap();
        let _second = devices.promise(device(1), held, need, T0).unwrap();
        // The spool has counted what it promised of them by now: here only what they are longer.
        let refused = devices.promise(device(1), held, Need { bytes: long(31), is_new: false }, T0).unwrap_err();
        assert!(refused.contains("this one has 100"), "{refused}");
        assert!(devices.promise(device(2), held, need, T0).is_ok(), "another device has its own");
        drop(first);
        assert!(devices.promise(device(1), held, Need { bytes: long(31), is_new: false }, T0).is_ok());
        let many = Holding { uploads: 3, bytes: 0, away: 0, room: 1000 };
        assert!(
            devices.promise(device(3), many, Need { bytes: 1, is_new: true }, T0).unwrap_err().contains("3 uploads")
        );
        assert!(
            devices.promise(device(3), many, Need { bytes: 1, is_new: false }, T0).is_ok(),
            "what it began may end"
        );
        let away = Holding { uploads: 0, bytes: 0, away: 3 * AWAY, room: 1000 };
        let refused = devices.promise(device(3), away, Need { bytes: 1, is_new: true }, T0).unwrap_err();
        assert!(refused.contains("may have 15 uploads that wait at their services"), "{refused}");
        assert!(devices.promise(device(3), away, Need { bytes: 1, is_new: false }, T0).is_ok());
    }

    #[test]
    fn nobody_fills_the_spool_alone() {
        let devices = devices(DeviceLimits::default());
        let held = Holding { uploads: 1, bytes: 700, away: 0, room: 1000 };
        assert!(devices.promise(device(1), held, Need { bytes: 51, is_new: false }, T0).is_err());
        assert!(devices.promise(device(1), held, Need { bytes: 50, is_new: false }, T0).is_ok());
    }

    #[test]
    fn the_quietest_device_is_forgotten_first_and_no_sender_is() {
        let devices = devices(DeviceLimits::default());
        let held = Holding { uploads: 0, bytes: 0, away: 0, room: 1000 };
        let _promise = devices.promise(device(0), held, Need { bytes: 1, is_new: true }, T0).unwrap();
        for last in 1..3 * DEVICES_MAX as u16 {
            devices.request(device(last), T0 + Duration::from_secs(last.into())).unwrap();
        }
        assert_eq!(devices.len(), DEVICES_MAX);
        assert!(devices.lock().contains_key(&device(0)));
    }
}
