//! The conductor: [`Link`] hands packets from the queue to the transmitter to the delay line, each at its exact time.

use crate::delay::DelayLine;
use crate::instant::Instant;
use crate::loss::LossProcess;
use crate::queue::DropTail;
use crate::transmitter::Transmitter;
use crate::{Change, Counters, LinkConfig, Packet};
use alloc::vec;
use core::time::Duration;
use hoop_units::Timestamp;
use rand_pcg::Pcg32;

/// Loss and jitter have dice of their own, so that turning one on leaves the other's run as it was.
const LOSS_STREAM: u64 = 1;
const JITTER_STREAM: u64 = 2;

/// One direction of a simulated wire.
///
/// The caller hands in packets ([`Link::handle_input`]) and the time ([`Link::handle_timeout`]), and after each of
/// these takes out what has arrived ([`Link::poll_output`] until `None`) and asks when to come again
/// ([`Link::poll_timeout`]). Time never goes back: a `now` before an earlier one counts as that one. A caller who comes
/// late finds everything as if it had been on time, except for packets that it handed in late.
#[derive(Debug)]
pub struct Link<P> {
    start: Instant,
    now: Instant,
    connected: bool,
    queue: DropTail<P>,
    transmitter: Transmitter<P>,
    loss: LossProcess,
    wire: DelayLine<P>,
    changes: vec::IntoIter<(Duration, Change)>,
    counters: Counters,
}

/// A packet that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery<P> {
    /// The packet.
    pub packet: P,
    /// When it was due, to the microsecond above; not after the `now` last handed in.
    pub at: Timestamp,
}

impl<P: Packet> Link<P> {
    /// A link that is as `config` says, from `start` on. All its dice come from `seed`.
    pub fn new(config: LinkConfig, seed: u64, start: Timestamp) -> Self {
        let start = Instant::from_timestamp(start);
        let jitter_dice = Pcg32::new(seed, JITTER_STREAM);
        Self {
            start,
            now: start,
            connected: config.connected,
            queue: DropTail::new(config.queue),
            transmitter: Transmitter::new(config.rate, start),
            loss: LossProcess::new(config.loss, Pcg32::new(seed, LOSS_STREAM)),
            wire: DelayLine::new(config.delay, config.jitter, config.reorder, jitter_dice),
            changes: config.schedule.into_changes(),
            counters: Counters::default(),
        }
    }

    /// A packet has come at `now`.
    pub fn handle_input(&mut self, packet: P, now: Timestamp) {
        self.advance(now);
        self.counters.entered_packets += 1;
        self.counters.entered_bytes += packet.size() as u64;
        if !self.connected {
            self.counters.dropped_unconnected += 1;
        } else if !self.transmitter.is_busy() {
            self.transmitter.start(packet, self.now, true);
            self.advance(now); // at an unlimited rate it has left already
        } else {
            self.enqueue(packet);
        }
    }

    /// It is `now`: whatever was due has happened.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.advance(now);
    }

    /// The next packet that has arrived, in order of arrival.
    pub fn poll_output(&mut self) -> Option<Delivery<P>> {
        let (due, packet) = self.wire.pop_due(self.now)?;
        self.counters.passed_packets += 1;
        self.counters.passed_bytes += packet.size() as u64;
        Some(Delivery { packet, at: due.to_timestamp() })
    }

    /// The link becomes different at `now`.
    pub fn change(&mut self, change: Change, now: Timestamp) {
        self.advance(now);
        self.apply(change, self.now);
        self.advance(now);
    }

    /// When [`Link::handle_timeout`] is due next; `None` if nothing will happen by itself.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let due = [self.wire.next_due(), self.transmitter.finish(), self.next_change()];
        due.into_iter().flatten().min().map(Instant::to_timestamp)
    }

    /// Whether the queue would take a packet of so many bytes now: for callers who would rather wait than lose it.
    pub fn has_room(&self, bytes: usize) -> bool {
        !self.transmitter.is_busy() || self.queue.has_room(bytes)
    }

    /// Bytes that wait in the queue.
    pub fn queue_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Packets that the link holds: waiting, being transmitted, and on the wire.
    pub fn held_packets(&self) -> usize {
        self.queue.packets() + usize::from(self.transmitter.is_busy()) + self.wire.len()
    }

    /// Whether the link carries anything at present.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Lets everything happen that is due by `now`, in order and each at its own time.
    fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(Instant::from_timestamp(now));
        loop {
            let finish = self.transmitter.finish().filter(|at| *at <= self.now);
            let change = self.next_change().filter(|at| *at <= self.now);
            match (finish, change) {
                // A packet whose last bit leaves at the moment of a change has left.
                (Some(left), change) if change.is_none_or(|at| left <= at) => self.depart(left),
                (_, Some(at)) => {
                    let (_, change) = self.changes.next().expect("it was just looked at");
                    self.apply(change, at);
                }
                (_, None) => return,
            }
        }
    }

    /// The packet in service has left at `left`; the next one in the queue begins then.
    fn depart(&mut self, left: Instant) {
        if let Some(packet) = self.transmitter.take() {
            if self.loss.next_is_lost() {
                self.counters.dropped_by_loss += 1;
            } else if self.wire.send(packet, left).is_err() {
                self.counters.dropped_by_queue += 1;
            }
        }
        if let Some(next) = self.queue.pop() {
            self.transmitter.start(next, left, false);
        }
    }

    fn enqueue(&mut self, packet: P) {
        match self.queue.push(packet) {
            Ok(()) => {
                let counters = &mut self.counters;
                counters.queue_bytes_peak = counters.queue_bytes_peak.max(self.queue.bytes());
                counters.queue_packets_peak = counters.queue_packets_peak.max(self.queue.packets());
            }
            Err(_) => self.counters.dropped_by_queue += 1,
        }
    }

    fn apply(&mut self, change: Change, at: Instant) {
        let Change { rate, delay, jitter, loss, connected } = change;
        if let Some(rate) = rate {
            self.transmitter.set_rate(rate, at);
        }
        if let Some(delay) = delay {
            self.wire.set_delay(delay);
        }
        if let Some(jitter) = jitter {
            self.wire.set_jitter(jitter);
        }
        if let Some(loss) = loss {
            self.loss.set_model(loss);
        }
        if let Some(connected) = connected {
            self.set_connected(connected);
        }
    }

    fn set_connected(&mut self, connected: bool) {
        self.connected = connected;
        if !connected {
            let cut_off = usize::from(self.transmitter.take().is_some());
            self.counters.dropped_unconnected += (self.queue.clear() + cut_off) as u64;
        }
    }

    fn next_change(&self) -> Option<Instant> {
        self.changes.as_slice().first().map(|(after, _)| self.start + *after)
    }
}
