//! The transmitter: one packet at a time, for as long as the rate or the trace says.

use crate::instant::Instant;
use crate::trace::Cursor;
use crate::{Packet, Rate};
use hoop_units::Bitrate;

/// Work is counted in bits × nanoseconds: at a rate of b bit/s, t nanoseconds do b × t of it, and one bit is a thousand
/// million. So the work that is left at a change of rate is a whole number, and nothing is lost to rounding.
const WORK_PER_BYTE: u128 = 8 * 1_000_000_000;

/// Holds the packet whose bits are leaving.
#[derive(Debug)]
pub(crate) struct Transmitter<P> {
    rate: Rate,
    /// Where the trace stands, if the rate is one.
    cursor: Cursor,
    service: Option<Service<P>>,
}

#[derive(Debug)]
struct Service<P> {
    packet: P,
    /// What was left to do at `since`.
    work: u128,
    since: Instant,
    /// Whether the transmitter had nothing to do just before `since`.
    idle: bool,
    /// Where the trace stood at `since`.
    cursor: Cursor,
    /// When the last bit will have left; `None` if never.
    finish: Option<Instant>,
}

impl<P: Packet> Transmitter<P> {
    pub(crate) fn new(rate: Rate, origin: Instant) -> Self {
        Self { rate, cursor: Cursor::new(origin), service: None }
    }

    /// Takes up a packet at `at`; `idle` if there was nothing to do just before.
    pub(crate) fn start(&mut self, packet: P, at: Instant, idle: bool) {
        debug_assert!(self.service.is_none(), "one packet at a time");
        let work = packet.size() as u128 * WORK_PER_BYTE;
        self.serve(packet, work, at, idle);
    }

    /// The packet whose last bit has left.
    pub(crate) fn take(&mut self) -> Option<P> {
        self.service.take().map(|service| service.packet)
    }

    /// From `at` on the rate is another; the packet in service goes on with the bits it has left.
    pub(crate) fn set_rate(&mut self, rate: Rate, at: Instant) {
        let service = self.service.take();
        let left = service.as_ref().map(|service| service.work.saturating_sub(self.done(service, at)));
        self.rate = rate;
        self.cursor = Cursor::new(at);
        if let (Some(service), Some(left)) = (service, left) {
            self.serve(service.packet, left, at, true);
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.service.is_some()
    }

    /// When the packet in service will have left.
    pub(crate) fn finish(&self) -> Option<Instant> {
        self.service.as_ref().and_then(|service| service.finish)
    }

    fn serve(&mut self, packet: P, work: u128, at: Instant, idle: bool) {
        let cursor = self.cursor;
        let finish = match &self.rate {
            Rate::Unlimited => Some(at),
            Rate::Fixed(rate) => time_for(work, *rate).and_then(|nanos| at.checked_add_nanos(nanos)),
            Rate::Trace(trace) => {
                let bytes = u64::try_from(work.div_ceil(WORK_PER_BYTE)).unwrap_or(u64::MAX);
                self.cursor.take(trace, bytes, at, idle)
            }
        };
        self.service = Some(Service { packet, work, since: at, idle, cursor, finish });
    }

    /// The work done on the packet in service by `at`.
    fn done(&self, service: &Service<P>, at: Instant) -> u128 {
        match &self.rate {
            Rate::Unlimited => service.work,
            Rate::Fixed(rate) => u128::from(at.nanos_since(service.since)) * u128::from(rate.as_bps()),
            Rate::Trace(trace) => {
                u128::from(service.cursor.passed(trace, service.since, at, service.idle)) * WORK_PER_BYTE
            }
        }
    }
}

/// Nanoseconds for so much work, rounded up so that the rate is never exceeded; `None` at rate zero.
fn time_for(work: u128, rate: Bitrate) -> Option<u128> {
    match rate.as_bps() {
        0 if work > 0 => None,
        0 => Some(0),
        bps => Some(work.div_ceil(u128::from(bps))),
    }
}
