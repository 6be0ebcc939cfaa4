//! CUBIC (RFC 9438): [`Cubic`], a window and how it grows. What a loss leaves of it is for [`Losses`](super::losses::Losses) to say.
//!
//! quinn has one as well, whose window nobody else can set. This one also does not count the time in which it is not used (§4.2): a window that nothing filled for a minute
//! does not leap afterwards.

use std::time::{Duration, Instant};

/// What is left of a window after congestion (§4.6).
pub(super) const BETA: f64 = 0.7;

/// How steep the curve is, in segments per cubic second (§5.1).
const C: f64 = 0.4;

/// How much of a window may be added within a round trip (§4.4).
const TARGET_MAX: f64 = 1.5;

/// Without an acknowledgement for so many round trips, a window was not used.
const REST_ROUNDS: u32 = 2;

/// The fewest packets of a window (RFC 9002 §7.2).
const PACKETS_MIN: f64 = 2.0;

/// A window, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    window: f64,
    /// Below it is slow start.
    threshold: f64,
    /// Bytes of a packet.
    packet: f64,
    /// Since then what was lost or acknowledged before has no effect.
    recovery: Option<Instant>,
    epoch: Option<Epoch>,
    /// The window before the last reduction (*W_max*).
    most: f64,
}

/// A time of growth after slow start, or after a reduction.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When it began, less the time in which the window was not used.
    begun: Instant,
    /// The last acknowledgement.
    last: Instant,
    /// Seconds until the window is *W_max* (*K*).
    until_most: f64,
    /// What Reno would have (*W_est*).
    reno: f64,
    /// What the window was before (*cwnd_prior*).
    before: f64,
}

impl Cubic {
    pub(super) const fn new(first_window: u64, packet: u16) -> Self {
        Self {
            window: first_window as f64,
            threshold: f64::INFINITY,
            packet: packet as f64,
            recovery: None,
            epoch: None,
            most: 0.0,
        }
    }

    /// In bytes.
    pub(super) const fn window(&self) -> u64 {
        self.window as u64
    }

    /// Where slow start ends, in bytes, if it has ended before.
    pub(super) fn threshold(&self) -> Option<u64> {
        self.threshold.is_finite().then_some(self.threshold as u64)
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    pub(super) const fn set_packet(&mut self, bytes: u16) {
        self.packet = bytes as f64;
        self.window = self.window.max(self.least());
    }

    const fn least(&self) -> f64 {
        PACKETS_MIN * self.packet
    }

    fn is_before_recovery(&self, sent: Instant) -> bool {
        self.recovery.is_some_and(|recovery| sent <= recovery)
    }

    /// Bytes that were `sent` then are acknowledged `now`. `is_used`: whether the window limits what is sent.
    pub(super) fn acked(&mut self, now: Instant, sent: Instant, bytes: u64, round_trip: Duration, is_used: bool) {
        if self.is_before_recovery(sent) {
            return;
        }
        if self.is_slow_start() {
            if is_used {
                self.window += bytes as f64;
            }
            return;
        }
        let window = self.window;
        let most = &mut self.most;
        let epoch = self.epoch.get_or_insert_with(|| {
            *most = window;
            Epoch { begun: now, last: now, until_most: 0.0, reno: window, before: window }
        });
        let since_last = now.saturating_duration_since(epoch.last);
        epoch.last = now;
        // Of a rest nobody hears before it is over.
        epoch.begun += if is_used { since_last.saturating_sub(round_trip * REST_ROUNDS) } else { since_last };
        if !is_used {
            return;
        }
        let share = bytes as f64 / window;
        let alpha = if epoch.reno < epoch.before { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        epoch.reno += alpha * share * self.packet;
        let then = (now.saturating_duration_since(epoch.begun) + round_trip).as_secs_f64();
        let curve = self.most + C * (then - epoch.until_most).powi(3) * self.packet;
        let target = curve.clamp(window, window * TARGET_MAX);
        self.window = (window + (target - window) * share).max(epoch.reno);
    }

    /// What had been `sent` then says `now` that the path is full: `left` of the window is left. Losses of one round trip count once; returns whether these did.
    pub(super) fn reduce(&mut self, now: Instant, sent: Instant, left: f64) -> bool {
        if self.is_before_recovery(sent) {
            return false;
        }
        self.recovery = Some(now);
        let before = self.window;
        // Fast convergence (§4.7).
        self.most = if before < self.most { before * (1.0 + left) / 2.0 } else { before };
        self.window = (before * left).max(self.least());
        self.most = self.most.max(self.window);
        self.threshold = self.window;
        let until_most = (((self.most - self.window) / self.packet).max(0.0) / C).cbrt();
        self.epoch = Some(Epoch { begun: now, last: now, until_most, reno: self.window, before });
        true
    }

    /// Nothing of a long time arrived (RFC 9002 §7.6): it begins anew.
    pub(super) fn collapse(&mut self) {
        self.threshold = (self.window * BETA).max(self.least());
        self.window = self.least();
        (self.recovery, self.epoch, self.most) = (None, None, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u16 = 1_000;
    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// After so many seconds in which all of the window is acknowledged each round trip.
    fn grow(cubic: &mut Cubic, from: Instant, round_trip: Duration, secs: f64) -> Instant {
        let mut now = from;
        while (now - from).as_secs_f64() < secs {
            let sent = now;
            now += round_trip;
            let packets = cubic.window() / u64::from(PACKET);
            (0..packets).for_each(|_| cubic.acked(now, sent, PACKET.into(), round_trip, true));
        }
        now
    }

    fn reduced(packets: u64, left: f64) -> (Cubic, Instant) {
        let now = Instant::now();
        let mut cubic = Cubic::new(packets * u64::from(PACKET), PACKET);
        assert!(cubic.reduce(now, now, left));
        (cubic, now)
    }

    #[test]
    fn slow_start_doubles_a_window_that_is_used_each_round_trip() {
        let now = Instant::now();
        let mut cubic = Cubic::new(10_000, PACKET);
        grow(&mut cubic, now, ROUND_TRIP, 0.3);
        assert_eq!((cubic.window(), cubic.threshold(), cubic.is_slow_start()), (80_000, None, true));
        cubic.acked(now, now, 1_000, ROUND_TRIP, false);
        assert_eq!(cubic.window(), 80_000);
    }

    #[test]
    fn a_window_is_back_where_it_was_when_the_curve_says_so() {
        let (mut cubic, now) = reduced(1_000, BETA);
        assert_eq!((cubic.window(), cubic.threshold(), cubic.is_slow_start()), (700_000, Some(700_000), false));
        // K = cbrt(300 / 0.4) = 9.09 s, of which the curve is ahead by a round trip.
        let now = grow(&mut cubic, now + Duration::from_micros(1), ROUND_TRIP, 4.5);
        assert!((950_000..970_000).contains(&cubic.window()), "fast at first: {}", cubic.window());
        let now = grow(&mut cubic, now, ROUND_TRIP, 4.5);
        assert!((999_000..1_001_000).contains(&cubic.window()), "and slowly where it was: {}", cubic.window());
        grow(&mut cubic, now, ROUND_TRIP, 9.0);
        assert!((1_270_000..1_310_000).contains(&cubic.window()), "then it looks for more: {}", cubic.window());
    }

    #[test]
    fn on_a_short_path_it_grows_as_reno_does() {
        let (mut cubic, now) = reduced(20, BETA);
        // From 14 packets, 0.53 more each round trip until there are 20, and then one; the curve would be at 15.
        let short = Duration::from_millis(2);
        grow(&mut cubic, now + Duration::from_micros(1), short, 0.08);
        assert!((46_000..49_000).contains(&cubic.window()), "{}", cubic.window());
    }

    #[test]
    fn time_in_which_a_window_is_not_used_does_not_count() {
        let (mut cubic, now) = reduced(1_000, BETA);
        let (mut other, mut late) = (cubic, now + Duration::from_micros(1));
        grow(&mut cubic, late, ROUND_TRIP, 1.0);
        for _ in 0..600 {
            other.acked(late + ROUND_TRIP, late, 1_000, ROUND_TRIP, false);
            late += ROUND_TRIP;
        }
        assert_eq!(other.window(), 700_000);
        grow(&mut other, late, ROUND_TRIP, 1.0);
        assert!(other.window().abs_diff(cubic.window()) < 2_000, "{} {}", other.window(), cubic.window());
    }

    #[test]
    fn a_rest_in_which_nothing_is_heard_does_not_count() {
        let (mut cubic, now) = reduced(1_000, BETA);
        let mut other = cubic;
        let now = now + Duration::from_micros(1);
        let end = grow(&mut cubic, now, ROUND_TRIP, 1.0);
        grow(&mut cubic, end, ROUND_TRIP, 1.0);
        let end = grow(&mut other, now, ROUND_TRIP, 1.0);
        grow(&mut other, end + Duration::from_secs(30), ROUND_TRIP, 1.0);
        // Two round trips of the rest count, as nobody knows that they were one.
        assert!(other.window() - cubic.window() < 20_000, "{} {}", other.window(), cubic.window());
    }

    #[test]
    fn after_a_long_silence_it_grows_along_the_curve_from_where_slow_start_ended() {
        let (mut cubic, now) = reduced(1_000, BETA);
        cubic.collapse();
        let now = grow(&mut cubic, now, ROUND_TRIP, 0.9);
        assert!(!cubic.is_slow_start(), "{}", cubic.window());
        let before = cubic.window();
        // 0.4 * 5^3 packets, and what a round trip adds.
        grow(&mut cubic, now, ROUND_TRIP, 5.0);
        let grown = cubic.window() - before;
        assert!((40_000..70_000).contains(&grown), "{grown}");
    }

    #[test]
    fn losses_of_one_round_trip_count_once() {
        let (mut cubic, now) = reduced(100, BETA);
        assert!(!cubic.reduce(now + ROUND_TRIP, now, BETA));
        assert_eq!(cubic.window(), 70_000);
        cubic.acked(now + ROUND_TRIP, now, 50_000, ROUND_TRIP, true);
        assert_eq!(cubic.window(), 70_000, "what was sent before does not grow it");
        assert!(cubic.reduce(now + ROUND_TRIP, now + Duration::from_micros(1), BETA));
        assert_eq!(cubic.window(), 49_000);
    }

    #[test]
    fn it_never_has_less_than_two_packets_and_begins_anew_after_a_long_silence() {
        let (mut cubic, mut now) = reduced(3, BETA);
        for _ in 0..5 {
            now += ROUND_TRIP;
            cubic.reduce(now, now, BETA);
        }
        assert_eq!(cubic.window(), 2_000);
        let (mut cubic, now) = reduced(100, 0.9);
        assert_eq!(cubic.window(), 90_000, "what is left is not always the same");
        cubic.collapse();
        assert_eq!((cubic.window(), cubic.threshold().map(|bytes| bytes.div_ceil(1_000))), (2_000, Some(63)));
        grow(&mut cubic, now, ROUND_TRIP, 0.4);
        assert_eq!(cubic.window(), 32_000, "in slow start");
        cubic.set_packet(20_000);
        assert_eq!(cubic.window(), 40_000);
    }
}
