//! How much of the disk the objects of a relay may take, and those of each device: [`Room`], of which each object has a [`Lease`].

use crate::server::places::{Place, Places};
use crate::server::reserve::{Promise, Reserve};
use hoop_endpoint::{DeviceId, FlowName};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where answers are put that devices do not take at once, and how much of the disk they may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// The relay's folder. It is made if there is none.
    pub folder: PathBuf,
    /// What all answers together may take, in bytes. Default 4 GiB.
    pub bytes: u64,
    /// What those of one device may take, in bytes. While others have some, it is the same part of what they leave. Default 1 GiB.
    pub bytes_of_device: u64,
    /// An answer that is whole on disk waits there alone, without a flow or an open file, once its device has been away for so long. Default a minute.
    pub parks_after: Duration,
}

impl StoreConfig {
    /// A folder, with the limits by default.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), bytes: 4 << 30, bytes_of_device: 1 << 30, parks_after: Duration::from_secs(60) }
    }
}

/// What there is for all.
#[derive(Debug)]
pub(in crate::server) struct Room {
    limits: StoreConfig,
    /// What others need of the file system.
    reserve: Arc<Reserve>,
    /// Of files that are open.
    files: Arc<Places>,
    used: Mutex<Used>,
}

#[derive(Default, Debug)]
struct Used {
    all: u64,
    devices: HashMap<DeviceId, u64>,
    /// Bytes of objects that nobody holds, and since when: what an earlier process has left, and what was let go of without being removed.
    left: HashMap<FlowName, (u64, Instant)>,
}

impl Used {
    fn take(&mut self, device: DeviceId, bytes: u64) {
        self.all += bytes;
        *self.devices.entry(device).or_default() += bytes;
    }

    fn give_back(&mut self, device: DeviceId, bytes: u64) {
        self.all -= bytes;
        let Some(of_device) = self.devices.get_mut(&device) else { return };
        *of_device -= bytes;
        if *of_device == 0 {
            self.devices.remove(&device);
        }
    }
}

impl Room {
    /// With nothing in it.
    pub(in crate::server) fn new(limits: StoreConfig, reserve: Arc<Reserve>, files: Arc<Places>) -> Arc<Self> {
        Arc::new(Self { limits, reserve, files, used: Mutex::default() })
    }

    /// A place for one file more of a device, if it may have one. Nobody waits for one: what has none goes on without a file, and what an earlier relay has left is opened all the same.
    pub(in crate::server) fn file(&self, device: DeviceId) -> Option<Place> {
        self.files.take_now(device)
    }

    /// A lease of nothing, for a device.
    pub(in crate::server) fn lease(self: &Arc<Self>, device: DeviceId) -> Lease {
        Lease { room: self.clone(), device, bytes: 0, to_come: None }
    }

    /// Whether this object was left.
    pub(super) fn is_left(&self, name: FlowName) -> bool {
        self.used.lock().left.contains_key(&name)
    }

    /// The lease of an object that was left, for whoever asks first.
    pub(super) fn take_left(self: &Arc<Self>, name: FlowName) -> Option<Lease> {
        let (bytes, _) = self.used.lock().left.remove(&name)?;
        Some(Lease { room: self.clone(), device: name.device, bytes, to_come: None })
    }

    /// Forgets which of these objects were left, and gives their room back. It is told for how long each was left.
    pub(super) fn forget_left(&self, is_over: impl Fn(FlowName, Duration) -> bool) -> Vec<FlowName> {
        let mut used = self.used.lock();
        let over: Vec<_> = used.left.extract_if(|name, (_, since)| is_over(*name, since.elapsed())).collect();
        over.iter().for_each(|(name, (bytes, _))| used.give_back(name.device, *bytes));
        over.into_iter().map(|(name, _)| name).collect()
    }

    /// How many bytes of how many devices there are.
    pub(in crate::server) fn usage(&self) -> (u64, usize) {
        let used = self.used.lock();
        (used.all, used.devices.len())
    }
}

/// Room on disk of one object. It is given back when this is dropped.
#[derive(Debug)]
pub(in crate::server) struct Lease {
    room: Arc<Room>,
    device: DeviceId,
    bytes: u64,
    /// Of these bytes, what is written later and could not be set aside.
    to_come: Option<Promise>,
}

impl Lease {
    /// Takes more, in so many new files. None: there is no room. The promise is to be kept until the bytes are on disk. A device may have its share of what others leave, so that a few leave some
    /// to the next. It asks the file system.
    pub(in crate::server) fn grow(&mut self, bytes: u64, files: u64) -> Option<Promise> {
        let promise = self.room.reserve.promise(bytes, files)?;
        self.take_part(bytes).then_some(promise)
    }

    /// Promises bytes anew that are this object's, whatever the file system has left: it gives them back for a moment, or they have not come.
    pub(in crate::server) fn promise_again(&self, bytes: u64) -> Promise {
        self.room.reserve.promise_again(bytes)
    }

    /// These of its bytes are written later, and were not set aside.
    pub(in crate::server) fn owes(&mut self, to_come: Option<Promise>) {
        self.to_come = to_come;
    }

    /// So many more of its bytes were written.
    pub(in crate::server) fn wrote(&mut self, bytes: u64) {
        self.to_come.iter_mut().for_each(|to_come| to_come.took(bytes));
    }

    fn take_part(&mut self, bytes: u64) -> bool {
        let limits = &self.room.limits;
        let is_its_part = {
            let used = self.room.used.lock();
            let has = used.devices.get(&self.device).copied().unwrap_or(0);
            let left = u128::from(limits.bytes.saturating_sub(used.all - has));
            u128::from(has.saturating_add(bytes)) * u128::from(limits.bytes)
                <= left * u128::from(limits.bytes_of_device)
        };
        is_its_part && self.take(bytes)
    }

    /// Takes more. Whether there is room.
    fn take(&mut self, bytes: u64) -> bool {
        let (mut used, limits) = (self.room.used.lock(), &self.room.limits);
        let of_device = used.devices.get(&self.device).copied().unwrap_or(0);
        if used.all.saturating_add(bytes) > limits.bytes || of_device.saturating_add(bytes) > limits.bytes_of_device {
            return false;
        }
        used.take(self.device, bytes);
        self.bytes += bytes;
        true
    }

    /// Takes what an earlier process has left, also beyond the limits: it was let in, and nothing new is until there is room.
    pub(in crate::server) fn take_found(&mut self, bytes: u64) {
        self.room.used.lock().take(self.device, bytes);
        self.bytes += bytes;
    }

    /// Gives some back.
    pub(in crate::server) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.room.used.lock().give_back(self.device, bytes);
    }

    /// The object stays, and nobody holds it: its bytes still count.
    pub(super) fn leave(mut self, name: FlowName) {
        let bytes = std::mem::take(&mut self.bytes);
        self.room.used.lock().left.insert(name, (bytes, Instant::now()));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_endpoint::FlowId;

    #[test]
    fn one_device_leaves_room_to_others_and_gives_back_what_it_had() {
        let [one, two] = [1, 2].map(|id| DeviceId([id; 20]));
        let room = Room::new(
            StoreConfig { bytes: 100, bytes_of_device: 60, ..StoreConfig::new(".") },
            Reserve::of(".".as_ref()),
            Places::new(1, 1),
        );
        let (mut first, mut second, mut third) = (room.lease(one), room.lease(one), room.lease(two));
        assert!(first.take(40) && second.take(20) && !second.take(1), "of one device");
        assert!(third.take(40) && !third.take(1), "of all");
        first.shrink(30);
        assert!(second.take(30) && !third.take(1));
        drop((first, second));
        assert_eq!(room.usage(), (40, 1));
        assert!(third.take(20) && !third.take(1));
        third.shrink(1_000);
        assert_eq!(room.usage(), (0, 0));
    }

    /// Four devices that said heads alone had all of it.
    #[test]
    fn devices_that_take_all_they_can_leave_room_to_others() {
        let room = Room::new(
            StoreConfig { bytes: 4_096, bytes_of_device: 1_024, ..StoreConfig::new(".") },
            Reserve::of(".".as_ref()),
            Places::new(1, 1),
        );
        let taken = (0..8).map(|id| {
            let mut lease = room.lease(DeviceId([id; 20]));
            let taken = (0..4_096).filter(|_| lease.take_part(1)).count();
            lease.leave(FlowName { device: DeviceId([id; 20]), flow: FlowId(0) });
            taken
        });
        assert_eq!(taken.collect::<Vec<_>>(), [1_024, 768, 576, 432, 324, 243, 182, 136]);
    }

    #[test]
    fn what_is_left_counts_until_it_is_taken_or_forgotten() {
        let room = Room::new(
            StoreConfig { bytes: 100, bytes_of_device: 100, ..StoreConfig::new(".") },
            Reserve::of(".".as_ref()),
            Places::new(1, 1),
        );
        let names = [1, 2].map(|id| FlowName { device: DeviceId([id; 20]), flow: FlowId(7) });
        for name in names {
            let mut lease = room.lease(name.device);
            assert!(lease.take(40));
            lease.leave(name);
        }
        assert_eq!(room.usage(), (80, 2));
        let taken = room.take_left(names[0]).unwrap();
        assert!(room.take_left(names[0]).is_none() && room.is_left(names[1]));
        drop(taken);
        assert_eq!(room.forget_left(|_, _| true), [names[1]]);
        assert_eq!(room.usage(), (0, 0));
    }
}
