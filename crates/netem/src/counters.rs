//! What a link counts: [`Counters`].

/// What has happened on a link since it was made.
///
/// Every packet that entered has either passed, been dropped, or is still held:
/// `entered_packets = passed_packets + dropped_packets() + held`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets handed in.
    pub entered_packets: u64,
    /// Bytes handed in.
    pub entered_bytes: u64,
    /// Packets delivered.
    pub passed_packets: u64,
    /// Bytes delivered.
    pub passed_bytes: u64,
    /// Packets that found the queue, or the delay line, full.
    pub dropped_by_queue: u64,
    /// Packets lost on the wire.
    pub dropped_by_loss: u64,
    /// Packets that came, or waited, while the link was not connected.
    pub dropped_unconnected: u64,
    /// The most bytes that ever waited in the queue.
    pub queue_bytes_peak: usize,
    /// The most packets that ever waited in the queue.
    pub queue_packets_peak: usize,
}

impl Counters {
    /// Packets dropped for any reason.
    pub const fn dropped_packets(&self) -> u64 {
        self.dropped_by_queue + self.dropped_by_loss + self.dropped_unconnected
    }
}
