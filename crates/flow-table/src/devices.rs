//! How many flows each device has: [`Devices`].

use crate::slab::{CHUNK_BYTES, Slab};
use core::hash::BuildHasher;
use hashbrown::HashTable;
use hoop_flow::DeviceId;

#[derive(Clone, Copy, Default, Debug)]
struct Host {
    id: [u8; 20],
    flows: u32,
}

/// The devices that have any flow. A device has a number as long as it has one.
#[derive(Debug)]
pub struct Devices {
    hosts: Slab<Host>,
    index: HashTable<u32>,
}

impl Devices {
    pub fn new() -> Self {
        Self { hosts: Slab::new(1, CHUNK_BYTES), index: HashTable::new() }
    }

    pub const fn len(&self) -> usize {
        self.hosts.len()
    }

    pub fn bytes(&self) -> usize {
        self.hosts.bytes() + self.index.allocation_size()
    }

    pub fn id(&self, host: u32) -> DeviceId {
        DeviceId(self.hosts[host].id)
    }

    pub fn find(&self, id: DeviceId, hasher: &impl BuildHasher) -> Option<u32> {
        self.index.find(hasher.hash_one(id.0), |host| self.hosts[*host].id == id.0).copied()
    }

    pub fn flows(&self, host: u32) -> u32 {
        self.hosts[host].flows
    }

    /// The device, which was found to have this number or none, has one flow more.
    pub fn add(&mut self, id: DeviceId, known: Option<u32>, hasher: &impl BuildHasher) -> u32 {
        let host = known.unwrap_or_else(|| {
            let host = self.hosts.insert();
            self.hosts[host] = Host { id: id.0, flows: 0 };
            let hosts = &self.hosts;
            self.index.insert_unique(hasher.hash_one(id.0), host, |host| hasher.hash_one(hosts[*host].id));
            host
        });
        self.hosts[host].flows += 1;
        host
    }

    /// It has one less.
    pub fn take_off(&mut self, id: DeviceId, hasher: &impl BuildHasher) {
        let hash = hasher.hash_one(id.0);
        let Ok(entry) = self.index.find_entry(hash, |host| self.hosts[*host].id == id.0) else { return };
        let host = *entry.get();
        self.hosts[host].flows -= 1;
        if self.hosts[host].flows == 0 {
            entry.remove();
            self.hosts.remove(host);
        }
    }
}
