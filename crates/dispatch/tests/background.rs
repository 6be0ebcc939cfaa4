//! The background rate on a simulated line, with somebody who asks for the time and somebody who uploads beside it.
#![allow(missing_docs)]

use hoop_dispatch::{Background, FLOOR, TARGET};
use hoop_netem::{Link, LinkConfig, Parcel, QueueLimit};
use hoop_units::{Bitrate, Duration, Timestamp};
use std::collections::VecDeque;

const TICK: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(1);
const PACKET: usize = 1_500;

/// A packet that was not acknowledged for so long is lost.
const RETRANSMIT: Duration = Duration::from_millis(600);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Background,
    Foreground,
    Probe,
}

/// Of whom, when it left, and which of them.
type Packet = (Who, Timestamp, u64);

enum Ack {
    /// Of the first and the last of some packets.
    Background(u64, u64),
    /// Of a packet that left then.
    Of(Who, Timestamp),
}

/// A household's uplink: packets of three senders through one queue, acknowledgements after the way back.
struct Line {
    link: Link<Parcel<Packet>>,
    now: Timestamp,
    way_back: Duration,
    /// When acknowledgements come.
    acks: VecDeque<(Timestamp, Ack)>,
    background: Background,
    connection: Connection,
    foreground: Option<Reno>,
    dropped: u64,
    log: Vec<Second>,
}

/// What came of one second.
#[derive(Clone, Debug, Default)]
struct Second {
    background: u64,
    foreground: u64,
    /// The queueing that a small packet met.
    probes: Vec<Duration>,
}

/// The background's connection: TCP as Linux sends it when it is paced. Its window, once lost packets have made it small, stays so, since
/// it is not what limits; and a window below four packets lets them leave one by one.
struct Connection {
    /// In packets.
    window: f64,
    /// The window was full since the last acknowledgement.
    is_limited: bool,
    /// Packets on their way: number, and when they left.
    in_flight: VecDeque<(u64, Timestamp)>,
    sent: u64,
    /// When packets last left one by one.
    single: Option<Timestamp>,
    /// Losses of packets before this one were answered.
    recovered: u64,
    next: Timestamp,
    /// How long the other end waits for a second packet before it acknowledges one.
    delayed: Duration,
    /// The packet whose acknowledgement waits, and until when.
    waiting: Option<(u64, Timestamp)>,
    expected: u64,
}

impl Connection {
    const fn new(delayed: Duration) -> Self {
        Self {
            window: 10.0,
            is_limited: false,
            in_flight: VecDeque::new(),
            sent: 0,
            single: None,
            recovered: 0,
            next: Timestamp::ZERO,
            delayed,
            waiting: None,
            expected: 0,
        }
    }

    /// The packets that leave now, together.
    fn send(&mut self, rate: Bitrate, now: Timestamp) -> core::ops::Range<u64> {
        if self.in_flight.front().is_some_and(|(_, sent)| now.since(*sent) > RETRANSMIT) {
            self.in_flight.clear();
            self.window = 2.0;
        }
        let from = self.sent;
        if now < self.next {
            return from..from;
        }
        let left = (self.window as u64).saturating_sub(self.in_flight.len() as u64);
        let is_single = self.window < 4.0;
        self.sent += left.min(if is_single { 1 } else { 2 });
        self.single = if is_single { Some(now) } else { self.single };
        self.in_flight.extend((from..self.sent).map(|number| (number, now)));
        self.is_limited |= self.in_flight.len() as u64 >= self.window as u64;
        if self.sent > from {
            let due = self.next.max(Timestamp::from_micros(now.as_micros().saturating_sub(STEP.as_micros() as u64)));
            self.next = due + rate.time_for((self.sent - from) * PACKET as u64);
        }
        from..self.sent
    }

    /// Whether packets left one by one when what is acknowledged now left.
    fn is_single(&self, now: Timestamp) -> bool {
        self.window < 4.0 || self.single.is_some_and(|at| now.since(at) < 2 * TICK)
    }

    /// A packet has come to the other end. Returns what is acknowledged at once: the first and the last of some.
    fn arrive(&mut self, number: u64, now: Timestamp) -> Option<(u64, u64)> {
        let is_next = number == self.expected;
        self.expected = number + 1;
        match self.waiting.take() {
            Some((first, _)) => Some((first, number)),
            None if !is_next => Some((number, number)),
            None => {
                self.waiting = Some((number, now + self.delayed));
                None
            }
        }
    }

    /// What is acknowledged since nothing more came.
    fn held_back(&mut self, now: Timestamp) -> Option<(u64, u64)> {
        self.waiting.take_if(|(_, until)| *until <= now).map(|(number, _)| (number, number))
    }

    /// Packets are acknowledged. Returns how many, and when the first left.
    fn acknowledge(&mut self, (first, last): (u64, u64), now: Timestamp) -> Option<(u64, Timestamp)> {
        let (_, left) = *self.in_flight.iter().find(|(number, _)| *number >= first)?;
        let before = self.in_flight.len() as u64;
        self.in_flight.retain(|(number, _)| *number > last);
        let (gone, acknowledged) = (before - self.in_flight.len() as u64, if first == last { 1 } else { 2 });
        if gone > acknowledged && last >= self.recovered {
            self.recovered = self.sent;
            self.window = (self.window / 2.0).max(2.0);
        } else if core::mem::take(&mut self.is_limited) {
            self.window += acknowledged as f64 / self.window;
        }
        (left <= now).then_some((acknowledged, left))
    }
}

/// A sender as TCP was in 1990: its window grows until the queue drops.
struct Reno {
    window: f64,
    threshold: f64,
    in_flight: u32,
}

impl Line {
    fn new(rate: Bitrate, one_way: Duration, buffer: Duration) -> Self {
        Self::with_delayed(rate, one_way, buffer, Duration::from_millis(40))
    }

    /// The other end holds acknowledgements of single packets back for so long.
    fn with_delayed(rate: Bitrate, one_way: Duration, buffer: Duration, delayed: Duration) -> Self {
        let queue = rate.as_bps() / 8 * buffer.as_millis() as u64 / 1_000;
        let config = LinkConfig::new().rate(rate).delay(one_way).queue(QueueLimit::bytes(queue as usize));
        Self {
            link: Link::new(config, 1, Timestamp::ZERO),
            now: Timestamp::ZERO,
            way_back: one_way,
            acks: VecDeque::new(),
            background: Background::new(TARGET),
            connection: Connection::new(delayed),
            foreground: None,
            dropped: 0,
            log: vec![Second::default()],
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += STEP;
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        if now.as_micros().is_multiple_of(1_000_000) {
            self.log.push(Second::default());
        }
        if now.as_micros().is_multiple_of(100_000) {
            self.link.handle_input(Parcel::new((Who::Probe, now, 0), 84), now);
        }
        loop {
            let packets = self.connection.send(self.background.rate(), now);
            if packets.is_empty() {
                break;
            }
            for number in packets {
                self.link.handle_input(Parcel::new((Who::Background, now, number), PACKET), now);
            }
        }
        self.send_foreground();
        self.link.handle_timeout(now);
        while let Some(delivery) = self.link.poll_output() {
            let (who, sent, number) = delivery.packet.content;
            let ack = match who {
                Who::Background => self.connection.arrive(number, delivery.at).map(|(a, b)| Ack::Background(a, b)),
                Who::Foreground | Who::Probe => Some(Ack::Of(who, sent)),
            };
            self.acks.extend(ack.map(|ack| (delivery.at + self.way_back, ack)));
        }
        if let Some((first, last)) = self.connection.held_back(now) {
            self.acks.push_back((now + self.way_back, Ack::Background(first, last)));
        }
        while self.acks.front().is_some_and(|(at, _)| *at <= now) {
            match self.acks.pop_front().expect("it was just looked at").1 {
                Ack::Background(first, last) => self.acknowledge_background((first, last)),
                Ack::Of(who, sent) => self.acknowledge(who, now.since(sent)),
            }
        }
        if now.as_micros().is_multiple_of(TICK.as_micros() as u64) {
            self.background.handle_timeout(now);
        }
    }

    fn send_foreground(&mut self) {
        let Some(reno) = &mut self.foreground else { return };
        while f64::from(reno.in_flight) < reno.window {
            reno.in_flight += 1;
            self.link.handle_input(Parcel::new((Who::Foreground, self.now, 0), PACKET), self.now);
        }
        let dropped = self.link.counters().dropped_by_queue;
        if dropped > self.dropped {
            // Its own or another's: a full queue drops of all.
            reno.in_flight = reno.in_flight.saturating_sub((dropped - self.dropped) as u32);
            reno.threshold = (reno.window * 0.7).max(2.0);
            reno.window = reno.threshold;
            self.dropped = dropped;
        }
    }

    fn acknowledge_background(&mut self, packets: (u64, u64)) {
        let Some((acknowledged, sent)) = self.connection.acknowledge(packets, self.now) else { return };
        let bytes = acknowledged * PACKET as u64;
        self.log.last_mut().expect("one is begun").background += bytes;
        let spacing = self.background.rate().time_for(PACKET as u64);
        let single = if self.connection.is_single(self.now) { spacing } else { Duration::ZERO };
        self.background.handle_rtt(1, self.now.since(sent), single, self.now);
        self.background.handle_delivered(bytes, self.now);
    }

    fn acknowledge(&mut self, who: Who, rtt: Duration) {
        let second = self.log.last_mut().expect("one is begun");
        match who {
            Who::Background => {}
            Who::Foreground => {
                second.foreground += PACKET as u64;
                let Some(reno) = &mut self.foreground else { return };
                reno.in_flight = reno.in_flight.saturating_sub(1);
                reno.window += if reno.window < reno.threshold { 1.0 } else { 1.0 / reno.window };
            }
            Who::Probe => second.probes.push(rtt.saturating_sub(2 * self.way_back)),
        }
    }

    fn foreground_comes(&mut self) {
        self.foreground = Some(Reno { window: 10.0, threshold: 1e9, in_flight: 0 });
        self.dropped = self.link.counters().dropped_by_queue;
    }

    /// Of the seconds since `from`: rates of background and foreground in bit/s, and the median of the probes.
    fn since(&self, from: usize) -> (f64, f64, Duration) {
        let seconds = &self.log[from..self.log.len() - 1];
        let rate = |of: fn(&Second) -> u64| seconds.iter().map(of).sum::<u64>() as f64 * 8.0 / seconds.len() as f64;
        let mut probes: Vec<_> = seconds.iter().flat_map(|second| second.probes.clone()).collect();
        probes.sort_unstable();
        (rate(|second| second.background), rate(|second| second.foreground), probes[probes.len() / 2])
    }
}

/// Slow DSL, with more queue and a longer way; cable; fibre.
fn lines() -> Vec<(Bitrate, Duration, Duration)> {
    let ms = Duration::from_millis;
    vec![
        (Bitrate::kbps(1_150), ms(10), ms(100)),
        (Bitrate::kbps(1_150), ms(20), ms(300)),
        (Bitrate::kbps(600), ms(15), ms(500)),
        (Bitrate::mbps(5), ms(10), ms(200)),
        (Bitrate::mbps(20), ms(5), ms(100)),
    ]
}

#[test]
fn alone_it_uses_the_line_and_leaves_the_queue_all_but_empty() {
    for (rate, one_way, buffer) in lines() {
        let mut line = Line::new(rate, one_way, buffer);
        line.run(Duration::from_secs(180));
        let (background, _, delay) = line.since(60);
        let used = background / rate.as_bps() as f64;
        eprintln!("{rate}: {used:.3} of the line, {delay:?}");
        assert!(used >= 0.85, "{rate}: {used:.3} of the line");
        let bound = TARGET + rate.time_for(2 * PACKET as u64);
        assert!(delay <= bound, "{rate}: a packet waits {delay:?}");
    }
}

#[test]
fn background_yields_to_a_foreground_upload_in_2_s_and_returns_after_it() {
    for (rate, one_way, buffer) in lines() {
        let mut line = Line::new(rate, one_way, buffer);
        line.run(Duration::from_secs(90));
        line.foreground_comes();
        line.run(Duration::from_secs(60));
        let (background, foreground, _) = line.since(93);
        let (floor, all) = (FLOOR.as_bps() as f64, rate.as_bps() as f64);
        eprintln!("{rate}: beside a foreground {:.0} and {:.0} kbit/s", background / 1e3, foreground / 1e3);
        assert!(background <= floor.max(all * 0.05) * 1.5, "{rate}: {background} bit/s beside a foreground");
        line.foreground = None;
        let ended = line.log.len();
        line.run(Duration::from_secs(30));
        let (background, ..) = line.since(ended + 10);
        eprintln!("{rate}: after it {:.3}", background / all);
        assert!(background >= 0.85 * all, "{rate}: {background} bit/s ten seconds after it");
    }
}

/// What the other end holds back is no queue. The foreground's losses have made the window small, and it stays so: single packets.
#[test]
fn the_rate_recovers_after_a_foreground_upload_despite_delayed_acks() {
    for (delayed, within) in [(40, 8), (100, 12), (200, 15)] {
        let (rate, delayed) = (Bitrate::kbps(1_150), Duration::from_millis(delayed));
        let mut line = Line::with_delayed(rate, Duration::from_millis(10), Duration::from_millis(200), delayed);
        line.run(Duration::from_secs(60));
        line.foreground_comes();
        line.run(Duration::from_secs(30));
        // What a long upload leaves, more or less by chance.
        line.connection.window = 3.0;
        let (beside, ..) = line.since(63);
        line.foreground = None;
        let ended = line.log.len();
        line.run(Duration::from_secs(60));
        let used = |second: usize| line.log[second].background as f64 * 8.0 / rate.as_bps() as f64;
        let back = (ended..line.log.len() - 1).find(|second| used(*second) >= 0.85).map(|second| second + 1 - ended);
        let (after, ..) = line.since(ended + 15);
        let after = after / rate.as_bps() as f64;
        eprintln!("held back {delayed:?}: beside {beside:.0} bit/s, back after {back:?} s, then {after:.3}");
        assert!(beside <= 0.06 * rate.as_bps() as f64, "{delayed:?}: {beside} bit/s beside a foreground");
        assert!(back.is_some_and(|secs| secs <= within), "{delayed:?}: back after {back:?} s");
        assert!(after >= 0.85, "{delayed:?}: {after} of the line");
    }
}

#[test]
fn a_longer_way_is_believed_after_ten_minutes() {
    let mut line = Line::new(Bitrate::kbps(1_150), Duration::from_millis(10), Duration::from_millis(300));
    line.run(Duration::from_secs(60));
    line.way_back = Duration::from_millis(80);
    line.run(Duration::from_secs(60));
    assert!(line.since(90).0 <= 100_000.0, "it looks like a full queue");
    line.run(Duration::from_secs(660));
    assert!(line.since(740).0 >= 900_000.0, "{}", line.since(740).0);
}

#[test]
fn of_two_paths_the_one_with_less_delay_says_how_full_the_uplink_is() {
    let (mut background, ms) = (Background::new(TARGET), Duration::from_millis);
    for (path, base) in [(1, 20), (2, 150)] {
        background.handle_rtt(path, ms(base), Duration::ZERO, Timestamp::ZERO);
    }
    for second in 1..4 {
        let now = Timestamp::from_millis(second * 100);
        background.handle_rtt(1, ms(21), Duration::ZERO, now);
        background.handle_rtt(2, ms(450), Duration::ZERO, now);
        assert!(background.queueing(now).unwrap() <= ms(1), "the far one is congested elsewhere");
    }
}

#[test]
fn one_delay_that_is_too_short_does_not_make_the_others_look_long() {
    let (mut background, ms) = (Background::new(TARGET), Duration::from_millis);
    for (tenth, rtt) in [30, 31, 9, 30, 31, 30].into_iter().enumerate() {
        background.handle_rtt(1, ms(rtt), Duration::ZERO, Timestamp::from_millis(tenth as u64 * 100));
    }
    assert!(background.queueing(Timestamp::from_millis(600)).unwrap() <= ms(1));
}

#[test]
fn a_path_first_seen_with_a_full_queue_does_not_take_that_for_its_base() {
    let (mut background, ms) = (Background::new(TARGET), Duration::from_millis);
    background.handle_rtt(1, ms(20), Duration::ZERO, Timestamp::ZERO);
    for tenth in 1..5 {
        background.handle_rtt(1, ms(320), Duration::ZERO, Timestamp::from_millis(tenth * 100));
    }
    let now = Timestamp::from_millis(500);
    background.handle_rtt(2, ms(340), Duration::ZERO, now);
    assert_eq!(background.queueing(now), Some(ms(300)));
}
