//! Whose turn it is: [`Fair`], start-time fair queuing over devices (Goyal, Vin and Cheng 1996) in bytes sent.
//!
//! Each device has a tag, which grows by what is sent for it; the device with the lowest goes next. *Virtual time* follows the
//! lowest tag of those that have something to send. Who comes new, or back, begins there: an hour of silence is no credit, and a
//! device that took more than its share before pays it back only while others want the uplink.

use alloc::collections::BTreeMap;
use hoop_units::AddressKey;

/// Devices whose tags are remembered at most: each costs some 30 bytes. Beyond it the lowest tag is forgotten, whose device is
/// then a newcomer, which costs it least.
const TAGS_MAX: usize = 1024;

#[derive(Clone, Debug, Default)]
pub struct Fair {
    tags: BTreeMap<AddressKey, u64>,
    virtual_time: u64,
}

impl Fair {
    /// Where a device stands in bytes: the lowest goes next.
    pub fn tag(&self, device: AddressKey) -> u64 {
        self.tags.get(&device).copied().unwrap_or_default().max(self.virtual_time)
    }

    /// So many bytes were sent for it, or are going to be.
    pub fn charge(&mut self, device: AddressKey, bytes: u64) {
        let tag = self.tag(device).saturating_add(bytes);
        self.tags.insert(device, tag);
        if self.tags.len() > TAGS_MAX {
            let lowest = self.tags.iter().min_by_key(|(_, tag)| **tag).map(|(device, _)| *device);
            lowest.and_then(|device| self.tags.remove(&device));
        }
    }

    /// So many of them were not sent after all.
    pub fn refund(&mut self, device: AddressKey, bytes: u64) {
        if let Some(tag) = self.tags.get_mut(&device) {
            *tag = tag.saturating_sub(bytes);
        }
    }

    /// Those that send or want to have these tags: none is less than what is given.
    pub fn advance(&mut self, lowest: u64) {
        if lowest <= self.virtual_time {
            return;
        }
        self.virtual_time = lowest;
        // They are where a newcomer is.
        self.tags.retain(|_, tag| *tag > lowest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn device(number: u8) -> AddressKey {
        AddressKey([number; 16])
    }

    #[test]
    fn who_comes_back_begins_where_the_others_are_and_not_where_it_left() {
        let mut fair = Fair::default();
        fair.charge(device(1), 10);
        fair.charge(device(2), 500);
        fair.advance(500);
        assert_eq!((fair.tag(device(1)), fair.tag(device(2)), fair.tag(device(3))), (500, 500, 500));
        fair.advance(400);
        assert_eq!(fair.tag(device(3)), 500, "it never goes back");
    }

    #[test]
    fn only_so_many_devices_are_remembered_and_the_least_served_is_forgotten() {
        let mut fair = Fair::default();
        for number in 0..=TAGS_MAX as u64 {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&number.to_be_bytes());
            fair.charge(AddressKey(id), number + 1);
        }
        assert_eq!(fair.tags.len(), TAGS_MAX);
        assert_eq!(fair.tag(AddressKey([0; 16])), 0);
    }
}
