//! The drop-tail queue before the transmitter.

use crate::{Packet, QueueLimit};
use alloc::collections::VecDeque;

/// Packets in order of arrival, within a [`QueueLimit`].
#[derive(Debug)]
pub(crate) struct DropTail<P> {
    limit: QueueLimit,
    packets: VecDeque<P>,
    bytes: usize,
}

impl<P: Packet> DropTail<P> {
    pub(crate) fn new(limit: QueueLimit) -> Self {
        Self { limit, packets: VecDeque::new(), bytes: 0 }
    }

    /// Appends the packet, or gives it back if it would exceed a bound.
    pub(crate) fn push(&mut self, packet: P) -> Result<(), P> {
        if !self.has_room(packet.size()) {
            return Err(packet);
        }
        self.bytes += packet.size();
        self.packets.push_back(packet);
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<P> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.size();
        Some(packet)
    }

    /// Drops all; says how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let dropped = self.packets.len();
        self.packets.clear();
        self.bytes = 0;
        dropped
    }

    /// Whether a packet of so many bytes would be taken.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.packets.len() < self.limit.packets
            && self.bytes.checked_add(bytes).is_some_and(|sum| sum <= self.limit.bytes)
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parcel;

    #[test]
    fn the_packet_that_would_exceed_a_bound_is_given_back() {
        let mut queue = DropTail::new(QueueLimit { bytes: 100, packets: 3 });
        assert_eq!(queue.push(Parcel::new(1, 60)), Ok(()));
        assert_eq!(queue.push(Parcel::new(2, 41)), Err(Parcel::new(2, 41)), "one byte too many");
        assert_eq!(queue.push(Parcel::new(3, 40)), Ok(()));
        assert_eq!(queue.push(Parcel::new(4, 0)), Ok(()));
        assert_eq!(queue.push(Parcel::new(5, 0)), Err(Parcel::new(5, 0)), "one packet too many");
        assert_eq!((queue.packets(), queue.bytes()), (3, 100));
        assert_eq!(queue.pop(), Some(Parcel::new(1, 60)));
        assert_eq!(queue.bytes(), 40);
    }
}
