//! Which attempt to begin when, and what is remembered of networks: [`Race`] and [`Memory`]. Pure; [`Dialer`](crate::Dialer) runs them.
//!
//! ```text
//! QUIC        v6 ──250 ms── v4 ──250 ms── v6 …          the first that is up ends the race, and the others are closed;
//! WebSocket        250 ms── v6 ──250 ms── v4 …          one that fails brings the next of its row forward, the last of a row the other row
//! ```
//!
//! A server that was restarted ends its devices' connections of QUIC by a reset. All come back at once then, and QUIC is known to pass: WebSocket as well would cost the server as much again, when it has
//! least to spare. So QUIC alone is tried for some seconds, again and again where the server refuses for want of places.

use crate::Kind;
use hoop_units::{Backoff, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// How much later the next address is tried (RFC 8305 §8), and WebSocket where nothing is known of the network.
const STAGGER: Duration = Duration::from_millis(250);

/// How much later WebSocket is tried where QUIC is known to pass: so that a slow start does not cost its place.
const KNOWN_STAGGER: Duration = Duration::from_millis(750);

/// How much later WebSocket is tried where the server has just ended a connection by QUIC, or refused one since: a handshake of QUIC with two lost packets.
const ANSWERED_STAGGER: Duration = Duration::from_secs(5);

/// And no later than this, however often the server refuses. It is what 10,000 devices take to come back to a relay of two cores.
const ANSWERED_MAX: Duration = Duration::from_secs(20);

/// When QUIC is tried again meanwhile, after a refusal.
const REFUSED: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(4) };

/// Addresses of one server that are tried, of each kind; beyond them lies nothing that the first would not tell.
const ADDRESSES_MAX: usize = 8;

/// Networks that are remembered: those of a year of a person's life. The one that was used least recently is forgotten first.
pub(crate) const NETWORKS_MAX: usize = 64;

/// For so long QUIC is not tried first where it lost; twice as long each time that it loses again.
const AGAIN_MIN: Duration = Duration::from_secs(60);

/// And no longer than this: rules of networks change.
const AGAIN_MAX: Duration = Duration::from_secs(3_600);

/// What is known of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    Nothing,
    /// QUIC has passed.
    Quic,
    /// QUIC has brought the end of a connection, just now.
    Answered,
    /// QUIC did not pass, a short while ago.
    NoQuic,
    /// A carrier of QUIC fell silent: UDP is shut, or the server was restarted.
    Silent,
}

/// One to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    pub kind: Kind,
    pub address: SocketAddr,
}

/// How an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// By what a server said: that it has no room, say.
    Answer,
    /// Nothing came, or there is no way.
    Nothing,
}

/// The addresses for one kind.
#[derive(Debug)]
struct Row {
    kind: Kind,
    addresses: VecDeque<SocketAddr>,
    /// When the next is due.
    due: Timestamp,
    running: Vec<SocketAddr>,
}

impl Row {
    fn new(kind: Kind, addresses: &[SocketAddr], due: Timestamp) -> Self {
        Self { kind, addresses: in_turns(addresses), due, running: Vec::new() }
    }

    fn is_over(&self) -> bool {
        self.addresses.is_empty() && self.running.is_empty()
    }
}

/// Both families in turns, IPv6 first (RFC 8305 §4); within one as they were given.
fn in_turns(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let (mut v6, mut v4): (VecDeque<SocketAddr>, VecDeque<SocketAddr>) =
        addresses.iter().partition(|address| address.is_ipv6());
    let mut turns = VecDeque::new();
    while turns.len() < ADDRESSES_MAX && !(v6.is_empty() && v4.is_empty()) {
        turns.extend(v6.pop_front().into_iter().chain(v4.pop_front()));
    }
    turns
}

/// Attempts at one server.
#[derive(Debug)]
pub(crate) struct Race {
    rows: [Row; 2],
    /// Until when WebSocket may wait for QUIC's sake.
    patience: Option<Timestamp>,
    /// How often the server has refused QUIC meanwhile.
    refused: u32,
}

impl Race {
    pub(crate) fn new(now: Timestamp, known: Known, quic: &[SocketAddr], websocket: &[SocketAddr]) -> Self {
        let (first, other) = match known {
            Known::Nothing => (now, now + STAGGER),
            Known::Quic => (now, now + KNOWN_STAGGER),
            Known::Answered => (now, now + ANSWERED_STAGGER),
            // QUIC's turn comes once all else has failed.
            Known::NoQuic => (Timestamp::MAX, now),
            Known::Silent => (now, now),
        };
        let rows = [Row::new(Kind::Quic, quic, first), Row::new(Kind::WebSocket, websocket, other)];
        let patience = (known == Known::Answered).then(|| now + ANSWERED_MAX);
        let mut race = Self { rows, patience, refused: 0 };
        race.hurry(now);
        race
    }

    /// The next to begin, if one is due.
    pub(crate) fn poll(&mut self, now: Timestamp) -> Option<Attempt> {
        let row = self.rows.iter_mut().find(|row| row.due <= now && !row.addresses.is_empty())?;
        let address = row.addresses.pop_front()?;
        row.due = now + STAGGER;
        row.running.push(address);
        Some(Attempt { kind: row.kind, address })
    }

    /// When one is due; None once all have begun.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.rows.iter().filter(|row| !row.addresses.is_empty()).map(|row| row.due).min()
    }

    /// One that was begun has failed: its row's next is due. Where WebSocket still waits for QUIC's sake, one that the server refuses is tried again later; `jitter` is any number. Of one that was given up nothing is noted.
    pub(crate) fn failed(&mut self, attempt: Attempt, failure: Failure, now: Timestamp, jitter: u32) {
        for row in self.rows.iter_mut().filter(|row| row.kind == attempt.kind) {
            let Some(at) = row.running.iter().position(|address| *address == attempt.address) else { return };
            row.running.remove(at);
            row.due = row.due.min(now);
        }
        if (attempt.kind, failure) == (Kind::Quic, Failure::Answer) {
            self.wait(attempt.address, now, jitter);
        }
        self.hurry(now);
    }

    /// The server has ended a connection by QUIC meanwhile: what was begun by WebSocket is given up, and comes later.
    pub(crate) fn answered(&mut self, now: Timestamp) {
        let [quic, websocket] = &mut self.rows;
        if quic.is_over() {
            return;
        }
        self.patience = Some(now + ANSWERED_MAX);
        websocket.running.drain(..).rev().for_each(|address| websocket.addresses.push_front(address));
        (quic.due, websocket.due) = (quic.due.min(now), now + ANSWERED_STAGGER);
    }

    fn wait(&mut self, refused: SocketAddr, now: Timestamp, jitter: u32) {
        let [quic, websocket] = &mut self.rows;
        let Some(until) = self.patience.filter(|_| now < websocket.due) else { return };
        quic.addresses.push_back(refused);
        quic.due = now + REFUSED.delay(self.refused, jitter);
        websocket.due = websocket.due.max(now + ANSWERED_STAGGER).min(until);
        self.refused += 1;
    }

    /// Whether all have failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.rows.iter().all(Row::is_over)
    }

    /// A row that is over makes the other due.
    fn hurry(&mut self, now: Timestamp) {
        let [first, other] = &mut self.rows;
        if first.is_over() {
            other.due = other.due.min(now);
        }
        if other.is_over() {
            first.due = first.due.min(now);
        }
    }
}

#[derive(Debug)]
struct Entry {
    used: Timestamp,
    /// Until when QUIC is not tried first, and how long that was; None where it passes.
    no_quic: Option<(Timestamp, Duration)>,
    /// Whether that is only thought so because QUIC fell silent, and nothing has passed since.
    is_guess: bool,
    /// When QUIC brought the end of a connection.
    answered: Option<Timestamp>,
}

impl Entry {
    const fn passes(now: Timestamp) -> Self {
        Self { used: now, no_quic: None, is_guess: false, answered: None }
    }
}

/// What worked, on each network.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    entries: BTreeMap<String, Entry>,
}

impl Memory {
    pub(crate) fn known(&self, network: &str, now: Timestamp) -> Known {
        match self.entries.get(network) {
            None => Known::Nothing,
            Some(Entry { no_quic: None, answered: Some(at), .. }) if now.since(*at) < ANSWERED_STAGGER => {
                Known::Answered
            }
            Some(Entry { no_quic: None, .. }) => Known::Quic,
            Some(Entry { no_quic: Some((until, _)), is_guess, .. }) if now < *until => {
                if *is_guess {
                    Known::Silent
                } else {
                    Known::NoQuic
                }
            }
            Some(Entry { no_quic: Some(_), .. }) => Known::Nothing,
        }
    }

    pub(crate) fn quic_passed(&mut self, network: &str, now: Timestamp) {
        self.note(network, Entry::passes(now));
    }

    /// The server has ended a connection by QUIC, as one that was restarted does: QUIC passes, and WebSocket need not be tried soon.
    pub(crate) fn quic_answered(&mut self, network: &str, now: Timestamp) {
        self.note(network, Entry { answered: Some(now), ..Entry::passes(now) });
    }

    /// WebSocket passes where QUIC was not tried: if that was for its silence, it is QUIC that does not pass.
    pub(crate) fn websocket_passed(&mut self, network: &str) {
        if let Some(entry) = self.entries.get_mut(network) {
            entry.is_guess = false;
        }
    }

    /// QUIC fell silent while it carried: it does not pass any more, or nothing does.
    pub(crate) fn quic_is_silent(&mut self, network: &str, now: Timestamp) {
        if !matches!(self.known(network, now), Known::NoQuic | Known::Silent) {
            self.quic_lost(network, now);
            self.entries.get_mut(network).into_iter().for_each(|entry| entry.is_guess = true);
        }
    }

    /// The server ended a WebSocket as soon as it was up, perhaps for want of places: QUIC, which has others, comes first again.
    pub(crate) fn websocket_is_ended(&mut self, network: &str) {
        if let Some(entry) = self.entries.get_mut(network) {
            (entry.no_quic, entry.is_guess) = (None, false);
        }
    }

    /// A link has come up: where nothing passed before, that was why QUIC was silent.
    pub(crate) fn link_is_up(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.is_guess) {
            (entry.no_quic, entry.is_guess) = (None, false);
        }
    }

    pub(crate) fn quic_lost(&mut self, network: &str, now: Timestamp) {
        let last = self.entries.get(network).and_then(|entry| entry.no_quic);
        let (until, wait) = match last {
            // It was not tried again in between.
            Some((until, wait)) if now < until => (until, wait),
            Some((_, wait)) => (now + (2 * wait).min(AGAIN_MAX), (2 * wait).min(AGAIN_MAX)),
            None => (now + AGAIN_MIN, AGAIN_MIN),
        };
        self.note(network, Entry { no_quic: Some((until, wait)), ..Entry::passes(now) });
    }

    fn note(&mut self, network: &str, entry: Entry) {
        if self.entries.len() >= NETWORKS_MAX && !self.entries.contains_key(network) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(network, _)| network.clone());
            oldest.map(|oldest| self.entries.remove(&oldest));
        }
        self.entries.insert(network.to_owned(), entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// What begins when, in milliseconds, if `fails` says how long each takes to fail.
    fn run(
        known: Known,
        quic: &[&str],
        websocket: &[&str],
        fails: impl Fn(Attempt) -> Option<u64>,
    ) -> Vec<(u64, Kind, String)> {
        run_till(5_000, known, quic, websocket, |attempt| Some((fails(attempt)?, Failure::Nothing)))
    }

    fn run_till(
        end: u64,
        known: Known,
        quic: &[&str],
        websocket: &[&str],
        fails: impl Fn(Attempt) -> Option<(u64, Failure)>,
    ) -> Vec<(u64, Kind, String)> {
        let addresses = |texts: &[&str]| texts.iter().map(|text| address(text)).collect::<Vec<_>>();
        let mut race = Race::new(at(0), known, &addresses(quic), &addresses(websocket));
        let (mut begun, mut failing, mut failed) = (Vec::new(), Vec::<(u64, Attempt, Failure)>::new(), 0);
        for now in 0..end {
            let (due, later): (Vec<_>, Vec<_>) = failing.into_iter().partition(|(then, ..)| *then <= now);
            failing = later;
            failed += due.len();
            due.into_iter().for_each(|(_, attempt, failure)| race.failed(attempt, failure, at(now), u32::MAX));
            while let Some(attempt) = race.poll(at(now)) {
                begun.push((now, attempt.kind, attempt.address.ip().to_string()));
                failing.extend(fails(attempt).map(|(after, failure)| (now + after, attempt, failure)));
            }
            assert!(race.poll_timeout().is_none_or(|due| due > at(now)));
        }
        let attempts = quic.len() + websocket.len();
        assert_eq!(race.is_lost(), begun.len() >= attempts && failing.is_empty() && failed == begun.len());
        begun
    }

    const V4: &str = "192.0.2.1:443";
    const V4_B: &str = "192.0.2.2:443";
    const V6: &str = "[2001:db8::1]:443";
    use Kind::{Quic, WebSocket};

    fn told(begun: Vec<(u64, Kind, String)>) -> Vec<(u64, Kind)> {
        begun.into_iter().map(|(when, kind, _)| (when, kind)).collect()
    }

    #[test]
    fn quic_goes_first_and_websocket_a_quarter_of_a_second_later() {
        assert_eq!(told(run(Known::Nothing, &[V4], &[V4], |_| None)), [(0, Quic), (250, WebSocket)]);
        assert_eq!(told(run(Known::Quic, &[V4], &[V4], |_| None)), [(0, Quic), (750, WebSocket)]);
    }

    #[test]
    fn where_quic_lost_websocket_goes_first_and_quic_once_it_has_failed() {
        assert_eq!(told(run(Known::NoQuic, &[V4], &[V4], |_| None)), [(0, WebSocket)]);
        assert_eq!(told(run(Known::NoQuic, &[V4], &[V4], |_| Some(40))), [(0, WebSocket), (40, Quic)]);
    }

    #[test]
    fn a_kind_that_has_failed_does_not_keep_the_other_waiting() {
        assert_eq!(told(run(Known::Nothing, &[V4], &[V4], |_| Some(10))), [(0, Quic), (10, WebSocket)]);
        assert_eq!(told(run(Known::Nothing, &[], &[V4], |_| None)), [(0, WebSocket)]);
        assert_eq!(told(run(Known::NoQuic, &[V4], &[], |_| None)), [(0, Quic)]);
    }

    #[test]
    fn after_an_answer_by_quic_websocket_waits_for_five_seconds() {
        let begun =
            |fails: fn(Attempt) -> Option<(u64, Failure)>| told(run_till(30_000, Known::Answered, &[V4], &[V4], fails));
        assert_eq!(begun(|_| None), [(0, Quic), (5_000, WebSocket)]);
        let is_lost = |attempt: Attempt| (attempt.kind == Quic).then_some((40, Failure::Nothing));
        assert_eq!(begun(is_lost), [(0, Quic), (40, WebSocket)], "it passes no more");
    }

    #[test]
    fn a_server_that_refuses_quic_is_asked_again_before_websocket() {
        let refuses = |attempt: Attempt| (attempt.kind == Quic).then_some((10, Failure::Answer));
        let begun = told(run_till(60_000, Known::Answered, &[V4], &[V4], refuses));
        let at = [0, 1_010, 3_020, 7_030, 11_040, 15_050, 19_060].map(|at| (at, Quic));
        assert_eq!(begun, [&at[..], &[(20_000, WebSocket), (23_070, Quic)]].concat());
        let once = told(run_till(60_000, Known::Quic, &[V4], &[V4], refuses));
        assert_eq!(once, [(0, Quic), (10, WebSocket)], "without a restart WebSocket follows at once");
    }

    #[test]
    fn a_reset_amid_a_race_has_websocket_begin_anew_later() {
        let mut race = Race::new(at(0), Known::Silent, &[address(V4)], &[address(V4), address(V4_B)]);
        let begun = |race: &mut Race, now| {
            std::iter::from_fn(|| race.poll(at(now))).map(|one| (one.kind, one.address)).collect::<Vec<_>>()
        };
        assert_eq!(begun(&mut race, 0), [(Quic, address(V4)), (WebSocket, address(V4))]);
        race.answered(at(200));
        assert_eq!((begun(&mut race, 5_199), race.poll_timeout()), (vec![], Some(at(5_200))));
        race.failed(Attempt { kind: Quic, address: address(V4) }, Failure::Answer, at(5_199), u32::MAX);
        assert_eq!(begun(&mut race, 6_199), [(Quic, address(V4))], "WebSocket waits on");
        assert_eq!(begun(&mut race, 10_199), [(WebSocket, address(V4))]);
        assert_eq!(begun(&mut race, 10_449), [(WebSocket, address(V4_B))]);
    }

    #[test]
    fn families_take_turns_and_what_fails_brings_the_next_forward() {
        let begun = run(Known::Quic, &[V4, V4_B, V6], &[], |_| None);
        let ips: Vec<&str> = begun.iter().map(|(_, _, ip)| &ip[..]).collect();
        assert_eq!(ips, ["2001:db8::1", "192.0.2.1", "192.0.2.2"]);
        assert_eq!(told(begun), [(0, Quic), (250, Quic), (500, Quic)]);
        let quick = |attempt: Attempt| attempt.address.is_ipv6().then_some(20);
        assert_eq!(told(run(Known::Quic, &[V4, V6], &[], quick)), [(0, Quic), (20, Quic)]);
    }

    #[test]
    fn of_many_addresses_only_so_many_are_tried() {
        let many: Vec<SocketAddr> = (0..100).map(|last| address(&format!("192.0.2.{last}:443"))).collect();
        assert_eq!(in_turns(&many).len(), ADDRESSES_MAX);
    }

    #[test]
    fn quic_is_tried_first_again_later_and_later_and_at_last_hourly() {
        let (mut memory, mut now) = (Memory::default(), at(0));
        let mut waits = Vec::new();
        for _ in 0..9 {
            memory.quic_lost("home", now);
            let begin = now;
            assert_eq!(memory.known("home", now), Known::NoQuic);
            while memory.known("home", now) == Known::NoQuic {
                now += Duration::from_secs(1);
                // What is said meanwhile, of attempts in which it was not tried, makes it no longer.
                if memory.known("home", now) == Known::NoQuic {
                    memory.quic_lost("home", now);
                }
            }
            waits.push(now.since(begin).as_secs());
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600]);
        memory.quic_passed("home", now);
        assert_eq!(memory.known("home", now), Known::Quic);
        memory.quic_lost("home", now);
        assert_eq!(memory.known("home", now + Duration::from_secs(61)), Known::Nothing);
        assert_eq!(memory.known("elsewhere", now), Known::Nothing);
    }

    #[test]
    fn after_an_outage_quic_goes_first_unless_only_websocket_passed() {
        let mut memory = Memory::default();
        for network in ["outage", "blocked"] {
            memory.quic_passed(network, at(0));
            memory.quic_is_silent(network, at(1));
            assert_eq!(memory.known(network, at(2)), Known::Silent);
        }
        memory.websocket_passed("blocked");
        memory.quic_is_silent("blocked", at(3));
        memory.link_is_up();
        assert_eq!(memory.known("outage", at(4)), Known::Quic);
        assert_eq!(memory.known("blocked", at(4)), Known::NoQuic);
        memory.quic_lost("outage", at(5));
        memory.link_is_up();
        assert_eq!(memory.known("outage", at(6)), Known::NoQuic, "it has lost a race");
    }

    /// It may be the server that was restarted: its devices come back by QUIC, and not all by WebSocket.
    #[test]
    fn where_a_websocket_is_ended_at_once_quic_comes_first_again() {
        let mut memory = Memory::default();
        memory.websocket_is_ended("wifi");
        assert_eq!(memory.known("wifi", at(0)), Known::Nothing);
        memory.quic_lost("wifi", at(0));
        assert_eq!(memory.known("wifi", at(1)), Known::NoQuic);
        memory.websocket_is_ended("wifi");
        assert_eq!(memory.known("wifi", at(2)), Known::Quic);
    }

    #[test]
    fn what_a_server_has_said_by_quic_counts_for_five_seconds() {
        let mut memory = Memory::default();
        memory.quic_lost("wifi", at(0));
        memory.quic_answered("wifi", at(1_000));
        assert_eq!(memory.known("wifi", at(5_999)), Known::Answered);
        assert_eq!(memory.known("wifi", at(6_000)), Known::Quic);
        memory.quic_answered("wifi", at(7_000));
        memory.quic_is_silent("wifi", at(8_000));
        assert_eq!(memory.known("wifi", at(8_000)), Known::Silent);
        memory.link_is_up();
        assert_eq!(memory.known("wifi", at(8_000)), Known::Quic);
        memory.quic_answered("wifi", at(9_000));
        memory.quic_passed("wifi", at(9_500));
        assert_eq!(memory.known("wifi", at(9_500)), Known::Quic, "the device is back");
    }

    #[test]
    fn after_a_silence_both_kinds_are_tried_at_once() {
        let address = "192.0.2.1:4669".parse().unwrap();
        let mut memory = Memory::default();
        memory.quic_passed("home", at(0));
        memory.quic_is_silent("home", at(1));
        let mut race = Race::new(at(2), memory.known("home", at(2)), &[address], &[address]);
        let begun: Vec<_> = std::iter::from_fn(|| race.poll(at(2))).map(|attempt| attempt.kind).collect();
        assert_eq!(begun, [Kind::Quic, Kind::WebSocket]);
    }

    #[test]
    fn the_network_that_was_used_least_recently_is_forgotten() {
        let mut memory = Memory::default();
        for number in 0..NETWORKS_MAX as u64 {
            memory.quic_passed(&number.to_string(), at(number));
        }
        memory.quic_passed("0", at(1_000));
        memory.quic_lost("new", at(1_001));
        assert_eq!(memory.entries.len(), NETWORKS_MAX);
        assert_eq!(memory.known("1", at(1_002)), Known::Nothing);
        assert_eq!((memory.known("0", at(1_002)), memory.known("new", at(1_002))), (Known::Quic, Known::NoQuic));
    }
}
