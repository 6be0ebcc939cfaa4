//! What travels: [`Packet`], and [`Parcel`] for simulations that send no bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Something with a size on the wire.
pub trait Packet {
    /// Bytes that the packet takes on the wire, IP header included. It must not change while the link holds the packet.
    fn size(&self) -> usize;
}

impl Packet for Vec<u8> {
    fn size(&self) -> usize {
        self.len()
    }
}

impl Packet for Box<[u8]> {
    fn size(&self) -> usize {
        self.len()
    }
}

impl Packet for &[u8] {
    fn size(&self) -> usize {
        self.len()
    }
}

/// Any content that counts as so many bytes: a number in a test, a message in a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parcel<T> {
    /// What is sent.
    pub content: T,
    /// What it counts as, in bytes.
    pub bytes: usize,
}

impl<T> Parcel<T> {
    /// `content` that counts as `bytes` bytes.
    pub const fn new(content: T, bytes: usize) -> Self {
        Self { content, bytes }
    }
}

impl<T> Packet for Parcel<T> {
    fn size(&self) -> usize {
        self.bytes
    }
}
