//! The background rate on a simulated line, with somebody who asks for the time and somebody who uploads beside it.
#![allow(missing_docs)]

use hoop_dispatch::{Background, FLOOR, TARGET};
use hoop_netem::{Link, LinkConfig, Parcel, QueueLimit};
use hoop_units::{Bitrate, Duration, Timestamp};
use std::collections::VecDeque;

const TICK: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(1);
const PACKET: usize = 1_500;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Background,
    Foreground,
    Probe,
}

/// A household's uplink: packets of three senders through one queue, acknowledgements after the way back.
struct Line {
    link: Link<Parcel<(Who, Timestamp)>>,
    now: Timestamp,
    way_back: Duration,
    /// When they come, of whom, sent when.
    acks: VecDeque<(Timestamp, Who, Timestamp)>,
    background: Background,
    next_pair: Timestamp,
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

/// A sender as TCP was in 1990: its window grows until the queue drops.
struct Reno {
    window: f64,
    threshold: f64,
    in_flight: u32,
}

impl Line {
    fn new(rate: Bitrate, one_way: Duration, buffer: Duration) -> Self {
        let queue = rate.as_bps() / 8 * buffer.as_millis() as u64 / 1_000;
        let config = LinkConfig::new().rate(rate).delay(one_way).queue(QueueLimit::bytes(queue as usize));
        Self {
            link: Link::new(config, 1, Timestamp::ZERO),
            now: Timestamp::ZERO,
            way_back: one_way,
            acks: VecDeque::new(),
            background: Background::new(TARGET),
            next_pair: Timestamp::ZERO,
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
            self.link.handle_input(Parcel::new((Who::Probe, now), 84), now);
        }
        // Two packets together, as the kernel sends at any rate.
        while now >= self.next_pair {
            (0..2).for_each(|_| self.link.handle_input(Parcel::new((Who::Background, now), PACKET), now));
            self.next_pair += self.background.rate().time_for(2 * PACKET as u64);
        }
        self.send_foreground();
        self.link.handle_timeout(now);
        while let Some(delivery) = self.link.poll_output() {
            let (who, sent) = delivery.packet.content;
            self.acks.push_back((delivery.at + self.way_back, who, sent));
        }
        while self.acks.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, who, sent) = self.acks.pop_front().expect("it was just looked at");
            self.acknowledge(who, now.since(sent));
        }
        if now.as_micros().is_multiple_of(TICK.as_micros() as u64) {
            self.background.handle_timeout(now);
        }
    }

    fn send_foreground(&mut self) {
        let Some(reno) = &mut self.foreground else { return };
        while f64::from(reno.in_flight) < reno.window {
            reno.in_flight += 1;
            self.link.handle_input(Parcel::new((Who::Foreground, self.now), PACKET), self.now);
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

    fn acknowledge(&mut self, who: Who, rtt: Duration) {
        let second = self.log.last_mut().expect("one is begun");
        match who {
            Who::Background => {
                second.background += PACKET as u64;
                self.background.handle_rtt(1, rtt, self.now);
                self.background.handle_delivered(PACKET as u64, self.now);
            }
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
fn a_foreground_upload_finds_the_line_all_but_free_within_two_seconds_and_its_end_is_noticed() {
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
        background.handle_rtt(path, ms(base), Timestamp::ZERO);
    }
    for second in 1..4 {
        let now = Timestamp::from_millis(second * 100);
        background.handle_rtt(1, ms(21), now);
        background.handle_rtt(2, ms(450), now);
        assert!(background.queueing(now).unwrap() <= ms(1), "the far one is congested elsewhere");
    }
}

#[test]
fn a_path_first_seen_while_others_fill_the_queue_does_not_take_that_for_its_base() {
    let (mut background, ms) = (Background::new(TARGET), Duration::from_millis);
    background.handle_rtt(1, ms(20), Timestamp::ZERO);
    for tenth in 1..5 {
        background.handle_rtt(1, ms(320), Timestamp::from_millis(tenth * 100));
    }
    let now = Timestamp::from_millis(500);
    background.handle_rtt(2, ms(340), now);
    assert_eq!(background.queueing(now), Some(ms(300)));
}
