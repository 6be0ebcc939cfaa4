//! How fast a QUIC connection sends: CUBIC (RFC 9438), and three things that Hoop does otherwise than quinn.
//!
//! **Growth.** quinn lets a window grow only by acknowledgements that come while it is full. A hundred short answers fill it for an instant, and then there is nothing more to send: the
//! window stays as small as it was, and the next hundred answers take several round trips again. RFC 9002 §7.8 asks that a window which is not used does not grow. Here, as in Linux's TCP, a
//! window counts as used in slow start if half of it was in flight within the last round trip or two, and later if nearly all of it was.
//!
//! **First window.** Thirty-two packets, as Chrome's and Caddy's QUIC have it, where RFC 9002 §7.2 recommends ten: a page's requests, or the first of its answers, go out in one round trip.
//! quinn spreads what exceeds ten packets over the round trip.
//!
//! **Losses.** Those that do not say that the path is full leave the window as it is, and those that say it is a little too full take a little ([`losses`]).

mod cubic;
mod losses;

use cubic::Cubic;
use losses::Losses;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first window, in bytes: 32 packets of 1,200 bytes, which each path takes.
const FIRST_WINDOW: u64 = 32 * 1_200;

/// What makes the controllers of connections.
pub(crate) fn congestion() -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(Congestion)
}

struct Congestion;

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Sending { cubic: Cubic::new(FIRST_WINDOW, mtu), used: Used::new(now), losses: Losses::new(now) })
    }
}

/// How fast a connection sends on its path.
#[derive(Clone, Copy)]
struct Sending {
    cubic: Cubic,
    used: Used,
    losses: Losses,
}

impl Controller for Sending {
    fn on_sent(&mut self, _now: Instant, bytes: u64, _last_packet_number: u64) {
        self.used.sent(bytes);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.used.turn(now, rtt.get());
        self.losses.acked(now, sent, bytes, rtt.min());
        let is_used = !app_limited || self.used.fills(self.cubic.window(), self.cubic.is_slow_start());
        self.cubic.acked(now, sent, bytes, rtt.get(), is_used);
    }

    fn on_end_acks(&mut self, _now: Instant, in_flight: u64, _app_limited: bool, _largest_acked: Option<u64>) {
        self.used.is_now(in_flight);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.losses.lost(lost_bytes);
        // A path that says in words that it is full (ECN) loses nothing.
        let left = if lost_bytes == 0 { cubic::BETA } else { self.losses.left() };
        let is_reduced = left < 1.0 && self.cubic.reduce(now, sent, left);
        if is_persistent_congestion {
            self.cubic.collapse();
            self.losses.forget();
        }
        if is_reduced || is_persistent_congestion {
            // How much the larger window was used says nothing of the smaller one.
            self.used.forget();
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.cubic.set_packet(new_mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        (metrics.congestion_window, metrics.ssthresh) = (self.cubic.window(), self.cubic.threshold());
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        FIRST_WINDOW
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The most that was in flight at once, in bytes, within this round trip and the last.
#[derive(Clone, Copy, Debug)]
struct Used {
    in_flight: u64,
    most: u64,
    most_before: u64,
    since: Instant,
}

impl Used {
    const fn new(now: Instant) -> Self {
        Self { in_flight: 0, most: 0, most_before: 0, since: now }
    }

    /// Of packets that hold nothing but an ACK nobody tells that they are not in flight; [`Used::is_now`] corrects it.
    const fn sent(&mut self, bytes: u64) {
        self.in_flight += bytes;
        if self.in_flight > self.most {
            self.most = self.in_flight;
        }
    }

    const fn is_now(&mut self, in_flight: u64) {
        self.in_flight = in_flight;
    }

    const fn forget(&mut self) {
        (self.most, self.most_before) = (self.in_flight, 0);
    }

    /// A round trip may be over. What was in flight before a rest does not count.
    fn turn(&mut self, now: Instant, round_trip: Duration) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= round_trip {
            let before = if passed < round_trip * 2 { self.most } else { 0 };
            (self.most_before, self.most, self.since) = (before, self.in_flight, now);
        }
    }

    /// Whether so large a window was in use: half of it in slow start, seven eighths of it later.
    fn fills(&self, window: u64, is_slow_start: bool) -> bool {
        let most = self.most.max(self.most_before);
        if is_slow_start { most >= window / 2 } else { most >= window - window / 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    #[test]
    fn half_of_a_window_is_enough_in_slow_start_and_not_later() {
        let mut used = Used::new(Instant::now());
        used.sent(499);
        assert!(!used.fills(1_000, true));
        used.sent(1);
        assert!(used.fills(1_000, true));
        assert!(!used.fills(1_000, false));
        used.sent(375);
        assert!(used.fills(1_000, false));
    }

    #[test]
    fn use_counts_for_two_round_trips() {
        let now = Instant::now();
        let mut used = Used::new(now);
        used.sent(1_000);
        used.is_now(0);
        for round_trips in 0..2 {
            used.turn(now + ROUND_TRIP * round_trips, ROUND_TRIP);
            assert!(used.fills(1_000, false), "after {round_trips} round trips");
        }
        used.turn(now + ROUND_TRIP * 2, ROUND_TRIP);
        assert!(!used.fills(1_000, true));
    }

    #[test]
    fn use_before_a_rest_or_a_loss_does_not_count() {
        let now = Instant::now();
        let mut used = Used::new(now);
        used.sent(1_000);
        used.is_now(0);
        let before = used;
        used.turn(now + ROUND_TRIP * 5, ROUND_TRIP);
        assert!(!used.fills(1_000, true));
        used = before;
        used.forget();
        assert!(!used.fills(700, true));
    }
}
