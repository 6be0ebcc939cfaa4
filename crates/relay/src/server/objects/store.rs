//! The folder that objects are in: [`ObjectStore`].
//!
//! Bounds: bytes on disk ([`StoreConfig`]). What an earlier process has left counts, too, as does what is parked. Both wait for their device for `LEFT_MAX`.

use super::file::{Heads, Left, ObjectFile, Place};
use super::room::{Room, StoreConfig};
use crate::server::places::Places;
use crate::server::reserve::Reserve;
use hoop_endpoint::{DeviceId, FlowId, FlowName};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// So long it is waited for a device whose answers an earlier process has left, or that are parked: as long as for one that is offline.
pub(in crate::server) const LEFT_MAX: Duration = Duration::from_secs(12 * 3_600);

/// The file that one process locks.
const LOCK: &str = "lock";

/// What an object's files are called.
const KINDS: [&str; 3] = ["head", "part", "whole"];

/// The objects of a relay that are on disk.
#[derive(Debug)]
pub(crate) struct ObjectStore {
    folder: PathBuf,
    room: Arc<Room>,
    /// What is of another boot is not believed. Where the boot has no name, nothing is.
    boot: String,
    /// See [`StoreConfig`].
    parks_after: Duration,
    _lock: File,
}

impl ObjectStore {
    /// Opens the folder, or makes it. What an earlier process has left of this boot is kept, if its device is known still. Everything else that looks like an object is removed.
    ///
    /// # Errors
    /// If the folder cannot be used, or another process uses it.
    pub(crate) fn open(
        config: &StoreConfig,
        reserve: Arc<Reserve>,
        files: Arc<Places>,
        is_known: impl Fn(DeviceId) -> bool,
    ) -> io::Result<Arc<Self>> {
        hoop_files::folder(&config.folder)?;
        let lock = hoop_files::lock(&config.folder.join(LOCK)).map_err(io::Error::other)?;
        let folder = config.folder.join("objects");
        hoop_files::folder(&folder)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let room = Room::new(config.clone(), reserve, files);
        let store = Self { folder, room, boot, parks_after: config.parks_after, _lock: lock };
        for of_device in fs::read_dir(&store.folder)? {
            store.find_left(&of_device?.path(), &is_known);
        }
        Ok(Arc::new(store))
    }

    /// Finds what is left of a device.
    fn find_left(&self, folder: &Path, is_known: impl Fn(DeviceId) -> bool) {
        let Some(device) = folder_of(folder) else { return };
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        for flow in files.filter_map(|file| flow_of(&file.file_name().into_string().ok()?, &KINDS)) {
            let name = FlowName { device, flow };
            if self.room.is_left(name) {
                continue;
            }
            let find = || ObjectFile::find(self.place(name), self.room.lease(device), None, &self.boot);
            let usable = (!self.boot.is_empty() && is_known(device)).then(find).flatten();
            // Dropped, it is left.
            match usable {
                Some(mut left) => left.file.count(),
                None => self.place(name).remove(),
            }
        }
        // It stays if something is in it.
        let _ = fs::remove_dir(folder);
    }

    fn place(&self, name: FlowName) -> Place {
        Place::new(&self.folder, name)
    }

    /// Makes an object's files. None: there is no room, or its device has too many open.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn create(&self, name: FlowName, heads: &Heads) -> io::Result<Option<ObjectFile>> {
        // What was left by that name is another's: its files are replaced.
        drop(self.room.take_left(name));
        let Some(of_file) = self.room.file(name.device) else { return Ok(None) };
        ObjectFile::create(self.place(name), self.room.lease(name.device), of_file, heads, &self.boot)
    }

    /// An answer waits on disk alone once its device has been away for so long.
    pub(super) const fn parks_after(&self) -> Duration {
        self.parks_after
    }

    /// What was left of this object, for whoever asks first.
    pub(super) fn take_left(&self, name: FlowName) -> Option<Left> {
        let lease = self.room.take_left(name)?;
        let left = ObjectFile::find(self.place(name), lease, self.room.file(name.device), &self.boot);
        if left.is_none() {
            self.place(name).remove();
        }
        left
    }

    /// Removes what was left of devices that are gone, and what was left for too long.
    pub(crate) fn forget(&self, is_gone: impl Fn(DeviceId) -> bool) {
        let gone = self.room.forget_left(|name, since| since > LEFT_MAX || is_gone(name.device));
        gone.into_iter().for_each(|name| self.place(name).remove());
    }

    /// The room that all share whose bytes are in the same folder, and the name of the boot.
    pub(in crate::server) fn shared(&self) -> (Arc<Room>, String) {
        (self.room.clone(), self.boot.clone())
    }

    /// How many bytes of how many devices are here.
    pub(crate) fn usage(&self) -> (u64, usize) {
        self.room.usage()
    }
}

/// The device whose folder this is.
pub(in crate::server) fn folder_of(folder: &Path) -> Option<DeviceId> {
    let mut id = [0; 20];
    hex::decode_to_slice(folder.file_name()?.to_str()?, &mut id).ok()?;
    Some(DeviceId(id))
}

/// The flow of `ID.part` and the like.
pub(in crate::server) fn flow_of(name: &str, kinds: &[&str]) -> Option<FlowId> {
    let (id, kind) = name.split_once('.')?;
    let is_ours = kinds.contains(&kind) && id.len() == 16;
    is_ours.then(|| u64::from_str_radix(id, 16).ok().map(FlowId)).flatten()
}
