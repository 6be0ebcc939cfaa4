//! Staying out of the household's way: [`Background`], a rate that follows the uplink's delay.
//!
//! Whatever waits in the line's queue delays everybody in the house, so the delay above the least that was ever seen tells how
//! full the queue is, whoever filled it (LEDBAT, RFC 6817; LEDBAT++, draft-irtf-iccrg-ledbat-plus-plus). Below the target the rate
//! grows, above it shrinks by the more, the longer the delay is; from a whole line to the floor within half a second.
//!
//! Where it differs from LEDBAT, and why:
//!
//! - It rules a *rate* for all connections together, not a window for each. On a slow line a window of two packets is the whole
//!   line's round trip; a rate can be less than that, and paced packets find the queue empty.
//! - The target is some milliseconds (RFC 6817: 100 ms; LEDBAT++: 60 ms), plus what two packets take on this line: that much the
//!   line itself makes of two packets sent together, at 1.15 Mbit/s some 21 ms.
//! - The other end holds the acknowledgement of a single packet back, for the next packet or for 40 to 200 ms (RFC 9293 §3.8.6.3),
//!   which looks like a full queue. On a connection whose window lost packets have made small, every packet is such a one. That time
//!   is not counted; see [`Background::handle_rtt`].
//! - Of several paths the least delayed counts: they share the uplink's queue, and any of them may have another of its own further on.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;
use hoop_units::{Bitrate, Timestamp};

/// Added delay that is aimed at if nobody says otherwise, beside the time of two packets.
pub const TARGET: Duration = Duration::from_millis(10);

/// What is sent even while others fill the line: two packets in three quarters of a second, which is how soon an end of that is
/// noticed, and 3 % of a line of 1 Mbit/s.
pub const FLOOR: Bitrate = Bitrate::kbps(32);

/// Where the rate begins before anything is known: a tenth of a slow line.
const FIRST: Bitrate = Bitrate::kbps(128);

/// The base delay is the least of so many minutes: long enough that others' uploads come to an end in between, short enough that a
/// longer way after a change of route is believed (RFC 6817 §4.2: 10 min).
const BASE_MINUTES: usize = 10;

/// Paths whose delays are remembered at most: more than are sent to at once. Beyond it the one that was silent longest is forgotten.
const PATHS_MAX: usize = 32;

/// A delay says how full the queue is for so long; at the floor a packet comes every 0.75 s.
const FRESH: Duration = Duration::from_millis(1_000);

/// Delivered bytes are counted over so long.
const DELIVERY_WINDOW: Duration = Duration::from_millis(500);

/// The line's own rate is the most that was delivered within one window of the last minutes.
const CAPACITY_MINUTES: usize = 10;

/// Packet of full size, as the line carries it.
const PACKET_BYTES: u64 = 1_500;

/// What two packets are taken to need until the line's rate is known, and at most.
const TWO_PACKETS: Duration = Duration::from_millis(24);
const TWO_PACKETS_MAX: Duration = Duration::from_millis(60);

/// An acknowledgement that waits for a second packet is taken to wait no longer than this: what Linux waits, as most do.
const HELD: Duration = Duration::from_millis(40);

/// Others wait longer, which nothing says. While single packets keep the rate at the bottom, so much more a second is taken for their
/// waiting, until the rate comes off the bottom: rightly, or only to find the queue full.
const HELD_MORE: f64 = 0.04;
const HELD_MAX: Duration = Duration::from_millis(200);

/// The bottom: at twice the floor two packets are 188 ms apart, so that the second fetches any acknowledgement held longer.
const BOTTOM: Bitrate = Bitrate::bps(2 * FLOOR.as_bps());

/// How fast the rate grows while the queue is empty, a second: towards what was known to fit, and beyond it.
const CATCH_UP: f64 = 1.5;
const GROWTH: f64 = 0.15;

/// What was sent when the queue began to fill stands for what fits for so long; after that, the line's own rate does.
const KNOWN_FOR: Duration = Duration::from_secs(3);

/// At twice the target the rate falls to half within so long: a round trip on most lines.
const HALVING: Duration = Duration::from_millis(100);

/// So often, for so long, the rate falls to a quarter, that our own packets leave the queue and the base delay is seen (LEDBAT++
/// §4.4). Costs 1 % of the rate.
const SLOW_EVERY: Duration = Duration::from_secs(30);
const SLOW_FOR: Duration = Duration::from_millis(400);

/// The rate to send at, from round-trip times and delivered bytes. No clock, no socket: call [`Background::handle_rtt`] and
/// [`Background::handle_delivered`] with what was measured, then [`Background::handle_timeout`] some 20 times a second.
#[derive(Clone, Debug)]
pub struct Background {
    target: Duration,
    rate: f64,
    /// What was sent when the queue began to fill: up to there the rate may grow fast. Infinite: nobody knows.
    known: f64,
    known_until: Timestamp,
    /// The delay was above the target last time.
    is_over: bool,
    /// What an acknowledgement of a single packet is taken to be held back, at most.
    held: Duration,
    paths: BTreeMap<u64, Path>,
    delivered: VecDeque<(Timestamp, u64)>,
    capacity: Minutes<CAPACITY_MINUTES>,
    last: Option<Timestamp>,
    slow_until: Option<Timestamp>,
    slow_next: Option<Timestamp>,
    /// Delivered bytes count since then: not those of a time in which we kept back.
    counted_from: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Path {
    base: Minutes<BASE_MINUTES>,
    last: Duration,
    /// The latest two, less what the other end may have held back.
    recent: [Duration; 2],
    /// Packets leave one by one.
    is_single: bool,
    at: Timestamp,
}

/// The extreme of the last `N` minutes, kept as one number a minute.
#[derive(Clone, Debug)]
struct Minutes<const N: usize> {
    values: [Option<u64>; N],
    minute: u64,
}

impl<const N: usize> Minutes<N> {
    const fn new() -> Self {
        Self { values: [None; N], minute: 0 }
    }

    fn add(&mut self, value: u64, now: Timestamp, better: impl Fn(u64, u64) -> u64) {
        let minute = now.as_micros() / 60_000_000;
        let passed = minute.saturating_sub(self.minute).min(N as u64);
        (0..passed).for_each(|ago| self.values[((minute - ago) % N as u64) as usize] = None);
        self.minute = self.minute.max(minute);
        let slot = &mut self.values[(minute % N as u64) as usize];
        *slot = Some(slot.map_or(value, |old| better(old, value)));
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        self.values.iter().copied().flatten()
    }
}

impl Background {
    /// A controller that aims at so much added delay, beside the time of two packets on the line.
    pub fn new(target: Duration) -> Self {
        Self {
            target,
            rate: FIRST.as_bps() as f64,
            known: f64::INFINITY,
            known_until: Timestamp::ZERO,
            is_over: false,
            held: HELD,
            paths: BTreeMap::new(),
            delivered: VecDeque::new(),
            capacity: Minutes::new(),
            last: None,
            slow_until: None,
            slow_next: None,
            counted_from: None,
        }
    }

    /// A round-trip time on a path: whatever number stands for one destination's address. `single`: how long after its packet the next
    /// one left, if packets leave one by one; zero if they leave in pairs, whose acknowledgements nobody holds back.
    pub fn handle_rtt(&mut self, path: u64, rtt: Duration, single: Duration, now: Timestamp) {
        if !self.paths.contains_key(&path) {
            self.remember(path, rtt, now);
        }
        let held = self.held.min(single);
        let Some(path) = self.paths.get_mut(&path) else { return };
        // One that is too short on its own says nothing, either: the kernel's are, once in a while, of packets that were sent again.
        path.base.add(micros(rtt.max(path.last)), now, u64::min);
        path.last = rtt;
        path.recent = [path.recent[1], rtt.saturating_sub(held)];
        path.is_single = !single.is_zero();
        path.at = now;
    }

    /// So many bytes were acknowledged since the last call, on all paths together.
    pub fn handle_delivered(&mut self, bytes: u64, now: Timestamp) {
        self.delivered.push_back((now, bytes));
        while self.delivered.front().is_some_and(|(at, _)| now.since(*at) > DELIVERY_WINDOW) {
            self.delivered.pop_front();
        }
    }

    /// Time has passed. Returns the rate from now on, of bytes as the line carries them.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Bitrate {
        let passed = self.last.map_or(Duration::ZERO, |last| now.since(last)).min(DELIVERY_WINDOW);
        self.last = Some(now);
        self.counted_from.get_or_insert(now);
        let delivered = self.delivered_bps(now).unwrap_or(f64::INFINITY);
        if delivered.is_finite() {
            self.capacity.add(delivered as u64, now, u64::max);
        }
        match self.queueing(now) {
            Some(queueing) if !self.is_slow(queueing, now) => {
                self.hold(passed, now);
                self.follow(queueing, passed, delivered, now);
            }
            Some(_) => {}
            // Nothing is under way, or nothing came back: neither says that there is room for more.
            None => {}
        }
        self.rate()
    }

    /// The rate now.
    pub fn rate(&self) -> Bitrate {
        let rate = if self.slow_until.is_some() { self.rate / 4.0 } else { self.rate };
        Bitrate::bps((rate as u64).max(FLOOR.as_bps()))
    }

    /// How long packets wait in the uplink's queue, as far as the freshest delays tell.
    pub fn queueing(&self, now: Timestamp) -> Option<Duration> {
        self.fresh(now).filter_map(Path::queueing).min()
    }

    /// What the delay is compared with.
    pub fn target(&self) -> Duration {
        let two = self.capacity();
        let two =
            two.map_or(TWO_PACKETS, |bps| Bitrate::bps(bps as u64).time_for(2 * PACKET_BYTES).min(TWO_PACKETS_MAX));
        self.target + two
    }

    /// The line's own rate, if anything was sent.
    fn capacity(&self) -> Option<f64> {
        self.capacity.values().max().filter(|bps| *bps > FLOOR.as_bps()).map(|bps| bps as f64)
    }

    /// Takes more, or again the least, for what the other end holds back.
    fn hold(&mut self, passed: Duration, now: Timestamp) {
        if !self.is_single(now) {
            self.held = HELD;
        } else if self.rate <= BOTTOM.as_bps() as f64 {
            self.held = (self.held + passed.mul_f64(HELD_MORE)).min(HELD_MAX);
        }
    }

    fn follow(&mut self, queueing: Duration, passed: Duration, delivered: f64, now: Timestamp) {
        let (target, floor) = (self.target().as_secs_f64(), FLOOR.as_bps() as f64);
        let (off, passed) = ((target - queueing.as_secs_f64()) / target, passed.as_secs_f64());
        if off < 0.0 {
            // Half of what the delay is too long, in shares of the target; far beyond it, nearly all.
            let share = if off > -1.0 { -off / 2.0 } else { 1.0 + 0.5 / off };
            let share = share * (passed / HALVING.as_secs_f64()).min(1.0);
            // More than what got through only fills the queue.
            let fits = self.rate.min(delivered.max(floor));
            let is_single = self.is_single(now);
            if !self.is_over && !is_single {
                self.known = self.rate.min(self.capacity().unwrap_or(f64::INFINITY));
                self.known_until = now + KNOWN_FOR;
            }
            if is_single && self.rate > BOTTOM.as_bps() as f64 {
                self.held = HELD;
            }
            self.is_over = true;
            self.rate = (fits * (1.0 - share)).max(floor);
            return;
        }
        self.is_over = false;
        if now >= self.known_until {
            self.known = self.known.max(self.capacity().unwrap_or_default());
        }
        let is_known = self.rate < 0.85 * self.known;
        let growth = if is_known { CATCH_UP } else { GROWTH };
        let grown = self.rate * (1.0 + growth * off * passed);
        // Whoever does not use the rate learns nothing from an empty queue.
        self.rate = grown.min((delivered * 1.5).max(4.0 * floor)).max(self.rate);
        if !is_known && self.known.is_finite() {
            self.known = self.known.max(self.rate);
        }
    }

    /// Whether our own packets are kept back to see the base delay.
    fn is_slow(&mut self, queueing: Duration, now: Timestamp) -> bool {
        if self.slow_until.is_some_and(|until| now >= until) {
            self.slow_until = None;
            self.counted_from = Some(now);
        }
        let next = *self.slow_next.get_or_insert(now + SLOW_EVERY);
        if now >= next {
            self.slow_next = Some(now + SLOW_EVERY);
            // While others fill the queue there is nothing to be seen.
            if queueing <= 2 * self.target() {
                self.slow_until = Some(now + SLOW_FOR);
            }
        }
        // What is acknowledged just after it says how it was.
        self.slow_until.is_some() || self.counted_from.is_some_and(|from| now.since(from) < HELD_MAX)
    }

    /// Whether all that is known of the queue comes from single packets: a guess.
    fn is_single(&self, now: Timestamp) -> bool {
        self.fresh(now).all(|path| path.is_single)
    }

    fn fresh(&self, now: Timestamp) -> impl Iterator<Item = &Path> {
        self.paths.values().filter(move |path| now.since(path.at) <= FRESH)
    }

    /// What was delivered lately; none: it was not counted for long enough.
    fn delivered_bps(&self, now: Timestamp) -> Option<f64> {
        if self.counted_from.is_none_or(|from| now.since(from) < DELIVERY_WINDOW + FRESH / 10) {
            return None;
        }
        let bytes: u64 = self.delivered.iter().filter(|(at, _)| now.since(*at) < DELIVERY_WINDOW).map(|(_, n)| n).sum();
        Some(bytes as f64 * 8.0 / DELIVERY_WINDOW.as_secs_f64())
    }

    fn remember(&mut self, path: u64, rtt: Duration, now: Timestamp) {
        // While others fill the queue, the first delay of a new path has that in it.
        let full = self.queueing(now).filter(|queueing| *queueing > 2 * self.target()).unwrap_or_default();
        if self.paths.len() >= PATHS_MAX {
            let silent = self.paths.iter().min_by_key(|(_, path)| path.at).map(|(number, _)| *number);
            silent.and_then(|number| self.paths.remove(&number));
        }
        let mut base = Minutes::new();
        base.add(micros(rtt.saturating_sub(full)), now, u64::min);
        self.paths.insert(path, Path { base, last: rtt, recent: [rtt; 2], is_single: false, at: now });
    }
}

impl Path {
    fn queueing(&self) -> Option<Duration> {
        let base = Duration::from_micros(self.base.values().min()?);
        // One packet that came late on its own says nothing.
        Some(self.recent[0].min(self.recent[1]).saturating_sub(base))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
