//! How fast uploads leave, and when: [`Pacer`]. The decisions are `hoop_dispatch`'s; this gives them clocks, sockets and a file.
//!
//! The kernel spaces the packets (`SO_MAX_PACING_RATE`; inside TCP itself since Linux 4.13, without a queueing discipline). What is
//! measured some 20 times a second are the connections' own counters (`TCP_INFO`); one rate for all is shared between those that
//! have something to send.

mod budget;
mod socket;

pub use budget::is_interface;

use crate::core::pacing::Pacing;
use budget::BudgetShell;
use hoop_dispatch::{Background, Gate, Opening, RateLimit, least_rate};
use hoop_http::{Clock, Shutdown};
use hoop_units::{Bitrate, Duration, Timestamp, UnixTime};
use parking_lot::{Mutex, MutexGuard};
use socket::{Counters, HEADER_BYTES, PacedSocket};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpStream;

/// Rates are worked out anew so often while something is connected: within a round trip or two of most lines.
const TICK: Duration = Duration::from_millis(50);

/// And so often while nothing is.
const IDLE_TICK: Duration = Duration::from_millis(500);

/// Bytes of a full packet; the kernel paces what its headers leave.
const PACKET_BYTES: u64 = 1_500;

/// Less than this is no rate to hold a connection open for: attempts end, and begin again when there is more.
const LEAST: Bitrate = Bitrate::kbps(16);

/// No limit: more than any line.
const UNLIMITED: Bitrate = Bitrate::mbps(1_000_000);

/// What an upload is taken to go at until one has gone: a slow line.
const RATE_GUESS: Bitrate = Bitrate::mbps(1);

/// Paces the connections that send.
pub struct Pacer {
    pacing: Pacing,
    clock: Clock,
    next: AtomicU64,
    connections: Mutex<BTreeMap<u64, Paced>>,
    state: Mutex<State>,
}

struct Paced {
    socket: PacedSocket,
    /// The same for connections to the same address.
    path: u64,
    last: Counters,
    /// What the kernel was told, in bytes a second.
    told: u64,
}

struct State {
    background: Option<Background>,
    limit: RateLimit,
    budget: Option<BudgetShell>,
    /// Whether anything waits to be sent, and the least bytes a second that meet its deadlines.
    demand: (bool, u64),
    /// What all together may use now.
    total: Option<Bitrate>,
    /// The most that was delivered in a second, lately.
    known: Bitrate,
    delivered: u64,
    delivered_since: Timestamp,
}

/// A connection that is paced, until it is dropped.
struct Registration {
    pacer: Arc<Pacer>,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.pacer.connections().remove(&self.number);
    }
}

impl Pacer {
    /// A pacer; the month of a budget is kept in `folder`.
    pub fn new(pacing: Pacing, folder: &Path, clock: Clock) -> Arc<Self> {
        let budget = pacing.budget.map(|config| BudgetShell::open(config, &pacing, folder, clock.unix()));
        let state = State {
            background: pacing.background.map(Background::new),
            limit: RateLimit::new(pacing.rate.unwrap_or(UNLIMITED)),
            budget,
            demand: (false, 0),
            total: pacing.rate,
            known: RATE_GUESS,
            delivered: 0,
            delivered_since: clock.now(),
        };
        Arc::new(Self {
            pacing,
            clock,
            next: AtomicU64::new(0),
            connections: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// Paces a connection from now on, until what is returned is dropped.
    pub fn watch(self: &Arc<Self>, stream: &TcpStream) -> Box<dyn Send> {
        if !self.pacing.is_paced() {
            return Box::new(());
        }
        let (path, socket) = match (stream.peer_addr(), PacedSocket::of(stream, self.pacing.background.is_some())) {
            (Ok(peer), Ok(socket)) => {
                let mut hasher = DefaultHasher::new();
                peer.ip().hash(&mut hasher);
                (hasher.finish(), socket)
            }
            (peer, socket) => {
                let error = socket.err().or(peer.err());
                tracing::warn!(?error, "a connection cannot be paced");
                return Box::new(());
            }
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut paced = Paced { socket, path, last: Counters::default(), told: 0 };
        if let Some(total) = self.state().total {
            paced.tell(total);
        }
        self.connections().insert(number, paced);
        Box::new(Registration { pacer: self.clone(), number })
    }

    /// Keeps the rates until `shutdown`.
    pub async fn run(self: Arc<Self>, mut shutdown: Shutdown) {
        if !self.pacing.is_paced() {
            return;
        }
        loop {
            let pause = if self.connections().is_empty() { IDLE_TICK } else { TICK };
            tokio::select! {
                () = shutdown.requested() => break,
                () = tokio::time::sleep(pause) => self.tick(),
            }
        }
        if let Some(budget) = &mut self.state().budget {
            budget.save();
        }
    }

    /// What waits to be sent: whether anything does, and its deadlines with the bytes left of each.
    pub fn set_demand(&self, has_queue: bool, deadlines: impl Iterator<Item = (UnixTime, u64)>) {
        let forced = if self.pacing.deadlines_wait { 0 } else { least_rate(deadlines, self.clock.unix()) };
        self.state().demand = (has_queue, forced);
    }

    /// Whether anything may be sent now.
    pub fn gate(&self) -> Gate {
        let now = self.clock.unix();
        let state = self.state();
        match self.shut_for(&state) {
            None => Gate::Open,
            Some(_) if self.pacing.deadlines_wait => Gate::Shut,
            Some(secs) => Gate::Urgent { now, opens: now.plus_secs(secs), rate: state.known },
        }
    }

    /// When something may be sent again that has no deadline, if it may not now.
    pub fn opens(&self) -> Option<UnixTime> {
        let now = self.clock.unix();
        self.shut_for(&self.state()).map(|secs| now.plus_secs(secs))
    }

    /// For how many seconds neither hours nor budget let anything out.
    fn shut_for(&self, state: &State) -> Option<u32> {
        match self.pacing.hours.at(self.second_of_day()) {
            Opening::Open(_) => state.budget.as_ref().and_then(|budget| budget.shut_for(LEAST)),
            Opening::Shut { opens_in } => Some(opens_in),
        }
    }

    fn tick(&self) {
        let (now, unix) = (self.clock.now(), self.clock.unix());
        let mut connections = self.connections();
        let mut state = self.state();
        let (mut sent, mut delivered) = (0, 0);
        let mut active = Vec::new();
        for (number, paced) in connections.iter_mut() {
            let Ok(counters) = paced.socket.counters() else { continue };
            let before = std::mem::replace(&mut paced.last, counters);
            sent += counters.wire_bytes().saturating_sub(before.wire_bytes());
            let acked = counters.acked.saturating_sub(before.acked);
            delivered += on_the_wire(acked);
            if let (Some(rtt), Some(background)) = (counters.rtt_since(&before), &mut state.background) {
                let single = if counters.is_single_since(&before) { paced.spacing() } else { Duration::ZERO };
                background.handle_rtt(paced.path, rtt, single, now);
            }
            if counters.has_more() || acked > 0 {
                active.push(*number);
            }
        }
        let total = state.total(&self.pacing, self.second_of_day(), sent, delivered, now, unix);
        state.total = total;
        drop(state);
        let total = total.unwrap_or(UNLIMITED);
        // Who sends nothing now may begin before the next tick.
        let sharers = active.len().max(1) as u64;
        for (number, paced) in connections.iter_mut() {
            let sharers = if active.contains(number) { sharers } else { sharers + 1 };
            paced.tell(Bitrate::bps(total.as_bps() / sharers));
        }
    }

    /// By the wall clock, as its owner sees it.
    fn second_of_day(&self) -> u32 {
        let now = self.clock.wall_unix();
        let offset = self.pacing.utc_offset.unwrap_or_else(|| socket::utc_offset(now));
        (i64::from(now.0) + i64::from(offset)).rem_euclid(86_400) as u32
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, Paced>> {
        self.connections.lock()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// What all connections together may use from now on; `None`: there is no limit.
    fn total(
        &mut self,
        pacing: &Pacing,
        second: u32,
        sent: u64,
        delivered: u64,
        now: Timestamp,
        unix: UnixTime,
    ) -> Option<Bitrate> {
        self.learn(delivered, now);
        let (has_queue, forced) = self.demand;
        let budget = self.budget.as_mut().and_then(|budget| budget.tick(sent, has_queue, forced, now, unix));
        let window = match pacing.hours.at(second) {
            Opening::Open(rate) => rate,
            Opening::Shut { .. } => None,
        };
        let limit = [pacing.rate, window, budget].into_iter().flatten().min();
        let limit = limit.map(|rate| {
            self.limit.set_rate(rate);
            self.limit.handle_sent(sent, now)
        });
        let background = self.background.as_mut().map(|background| {
            background.handle_delivered(delivered, now);
            background.handle_timeout(now)
        });
        if let (Some(rate), Some(background)) = (background, &self.background) {
            let queueing = background.queueing(now).map(|queueing| queueing.as_millis());
            tracing::trace!(%rate, ?queueing, target = background.target().as_millis(), delivered, sent, "background");
        }
        limit.into_iter().chain(background).min()
    }

    /// Remembers how fast uploads go.
    fn learn(&mut self, delivered: u64, now: Timestamp) {
        self.delivered += delivered;
        let passed = now.since(self.delivered_since);
        if passed < Duration::from_secs(5) {
            return;
        }
        if let Some(rate) = Bitrate::of(self.delivered, passed).filter(|rate| *rate >= LEAST) {
            self.known = rate;
        }
        (self.delivered, self.delivered_since) = (0, now);
    }
}

impl Paced {
    /// The time from one packet to the next, if they leave one by one.
    fn spacing(&self) -> Duration {
        Bitrate::bps(self.told * 8).time_for(PACKET_BYTES - HEADER_BYTES)
    }

    /// Tells the kernel, if it makes a difference.
    fn tell(&mut self, rate: Bitrate) {
        let bytes = (rate.as_bps() / 8 * (PACKET_BYTES - HEADER_BYTES) / PACKET_BYTES).max(1);
        if bytes.abs_diff(self.told) * 100 <= self.told {
            return;
        }
        self.told = bytes;
        if let Err(error) = self.socket.set_max_rate(bytes) {
            tracing::debug!(%error, "a connection's rate cannot be set");
        }
    }
}

/// What so many bytes of a stream are in full packets.
const fn on_the_wire(bytes: u64) -> u64 {
    bytes * PACKET_BYTES / (PACKET_BYTES - HEADER_BYTES)
}
