//! The handshakes that are under way, and whose they are: [`Peers`].

use crate::lingering::OfUse;
use crate::tcp::Watch;
use hoop_units::AddressKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Who has come so lately is not asked to make way: what it sent at once may not have been read yet.
const MOMENT: Duration = Duration::from_millis(50);

/// A handshake that has begun takes no longer where the way is fair: one of the same address may make it end.
const LONG: Duration = Duration::from_secs(2);

/// So many at once, and so many of each address, IPv6 by its /64. When all places are taken, one of who has most makes way for who has fewer, first one that has said nothing yet, and the
/// oldest: whoever comes from many addresses and never ends a handshake keeps nobody out who ends his. One network of IPv6 may be one sender with thousands of /64s: a /48 that has more places than an
/// address may have makes way for all others first, and nobody else waits for its next.
///
/// Hundreds of addresses may each have one handshake, and answer nothing. Where each has its only one, two places are drawn at random. If both wait for their peers, the older one makes way. So
/// the more of the places wait for strangers, the faster these go. Where the server itself is what all wait for, as after its restart, hardly any is drawn, and whoever comes waits in the kernel's queue.
/// Nobody chooses who is drawn. An address that has all its places is treated in the same way. An honest device whose answer takes `t` seconds ends its handshake with a probability of sech²(`t` · rate / places), whatever strangers claim of their round trips.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    all: usize,
    of_peer: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Default, Debug)]
struct Held {
    next: u64,
    count: usize,
    /// In the order in which they were taken.
    peers: BTreeMap<AddressKey, BTreeMap<u64, Taken>>,
}

#[derive(Debug)]
struct Taken {
    since: Instant,
    /// The address was shown to be the peer's.
    is_its_own: bool,
    /// What a handshake begins with has come.
    has_spoken: bool,
    /// Since when the server waits for what the peer answers.
    awaited: Option<Instant>,
    /// Tells whether that has come, and was not read yet.
    watch: Option<Watch>,
    task: Option<AbortHandle>,
    /// Its connection, which is of no use once it makes way.
    of_use: Option<OfUse>,
}

impl Taken {
    /// The server waits for the peer, whose answer has not come.
    fn is_awaited(&self) -> bool {
        self.awaited.is_some() && !self.watch.as_ref().is_some_and(Watch::has_unread)
    }
}

/// There is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// For this peer.
    OfPeer,
    /// For anybody, for a moment.
    ForAMoment,
}

/// A place that a peer has taken; it is free again once this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    held: Arc<Mutex<Held>>,
    key: Key,
}

/// Who makes way no sooner than this.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// One of a peer that has several places.
    several: Duration,
    /// A peer's only one, which has said nothing.
    silent: Duration,
}

/// Which place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key(AddressKey, u64);

/// A network of IPv6: what one sender is given, a house or a server (RFC 6177), may be a /48.
type Network = [u8; 6];

/// The network of an address; none of IPv4, where each address is one.
fn network(peer: AddressKey) -> Option<Network> {
    let network = std::array::from_fn(|at| peer.as_bytes()[at]);
    (network != Network::default()).then_some(network)
}

impl Peers {
    /// `all` places, of which a peer may have `of_peer`.
    pub(crate) fn new(all: usize, of_peer: usize) -> Self {
        Self { all, of_peer, held: Arc::default() }
    }

    /// How many places are taken.
    pub(crate) fn taken(&self) -> usize {
        self.held.lock().count
    }

    /// A place, unless the peer has as many as it may and all of these have spoken, or all are taken and nobody has more than it has. `is_its_own`: whether the address was shown to be the
    /// peer's; otherwise it is not held against it.
    pub(crate) fn take(&self, peer: IpAddr, is_its_own: bool) -> Option<Place> {
        self.take_of(peer, is_its_own, Patience { several: Duration::ZERO, silent: LONG }, None).ok()
    }

    /// The same for a peer that has shown its address, while nobody who has just come makes way. `roll` is any number: by it one is drawn of those that answer nothing.
    pub(crate) fn take_settled(&self, peer: IpAddr, roll: u64) -> Result<Place, Full> {
        self.take_of(peer, true, Patience { several: MOMENT, silent: MOMENT }, Some(roll))
    }

    fn take_of(&self, peer: IpAddr, is_its_own: bool, patience: Patience, roll: Option<u64>) -> Result<Place, Full> {
        let peer = AddressKey::from_ip(peer);
        let held = &mut *self.held.lock();
        let has = held.peers.get(&peer).map_or(0, BTreeMap::len);
        let now = Instant::now();
        if is_its_own && held.own(peer) >= self.of_peer {
            held.make_own_way(peer, now, roll)?;
        }
        if held.count >= self.all {
            let crowd = held.crowd(self.of_peer);
            match crowd {
                Some(crowd) if network(peer) == Some(crowd) => {
                    held.make_way(has, now, patience, roll).map_err(|_| Full::OfPeer)?;
                }
                Some(crowd) if held.make_crowds_way(crowd, now, patience.several) => {}
                _ => held.make_way(has, now, patience, roll)?,
            }
        }
        let key = Key(peer, held.next);
        held.next += 1;
        held.count += 1;
        let taken =
            Taken { since: now, is_its_own, has_spoken: false, awaited: None, watch: None, task: None, of_use: None };
        held.peers.entry(peer).or_default().insert(key.1, taken);
        Ok(Place { held: self.held.clone(), key })
    }

    /// Its connection is counted by this.
    pub(crate) fn set_use(&self, key: Key, of_use: OfUse) {
        let held = &mut *self.held.lock();
        if let Some(taken) = held.taken(key) {
            taken.of_use = Some(of_use);
        }
    }

    /// What has the place ends by this if it is to make way.
    pub(crate) fn set_task(&self, key: Key, task: AbortHandle) {
        let held = &mut *self.held.lock();
        if let Some(taken) = held.taken(key) {
            taken.task = Some(task);
        }
    }
}

impl Held {
    fn taken(&mut self, Key(peer, at): Key) -> Option<&mut Taken> {
        self.peers.get_mut(&peer).and_then(|places| places.get_mut(&at))
    }

    /// How many a peer has taken that had shown its address.
    fn own(&self, peer: AddressKey) -> usize {
        self.peers.get(&peer).map_or(0, |places| places.values().filter(|taken| taken.is_its_own).count())
    }

    /// The oldest of a peer's own that says nothing makes way for its next, or else the oldest of those that have begun long ago, or one that is [drawn](Self::draw): who shares the address with
    /// it need not wait for it to fail. At once: whoever accepts does not wait for one address.
    fn make_own_way(&mut self, peer: AddressKey, now: Instant, roll: Option<u64>) -> Result<(), Full> {
        let own = self.peers.get(&peer).into_iter().flatten().filter(|(_, taken)| taken.is_its_own);
        let is_old = |taken: &Taken| !taken.has_spoken || now.saturating_duration_since(taken.since) >= LONG;
        let oldest = own.filter(|(_, taken)| is_old(taken)).min_by_key(|(at, taken)| (taken.has_spoken, **at));
        let oldest = oldest.map(|(at, _)| Key(peer, *at));
        let chosen = oldest.or_else(|| self.draw(|other, _| *other == peer, now, roll?)).ok_or(Full::OfPeer)?;
        if let Some(task) = self.free(chosen) {
            task.abort();
        }
        Ok(())
    }

    /// The network that has most places, if these are more than one address may have.
    fn crowd(&self, of_peer: usize) -> Option<Network> {
        let mut networks = BTreeMap::<_, usize>::new();
        for (peer, places) in &self.peers {
            if let Some(network) = network(*peer) {
                *networks.entry(network).or_default() += places.len();
            }
        }
        let (crowd, most) = networks.into_iter().max_by_key(|(_, count)| *count)?;
        (most > of_peer).then_some(crowd)
    }

    /// One of a network makes way that has been there for so long: first one that has said nothing yet, and the oldest. Whether there was one.
    fn make_crowds_way(&mut self, crowd: Network, now: Instant, age: Duration) -> bool {
        let its_own = self.peers.iter().filter(|(peer, _)| network(**peer) == Some(crowd));
        let all = its_own.flat_map(|(peer, places)| places.iter().map(|(at, taken)| (taken, Key(*peer, *at))));
        let old = all.filter(|(taken, _)| now.saturating_duration_since(taken.since) >= age);
        let Some((_, key)) = old.min_by_key(|(taken, Key(_, at))| (taken.has_spoken, *at)) else { return false };
        if let Some(task) = self.free(key) {
            task.abort();
        }
        true
    }

    /// One of a peer that has more than so many makes way, if it has been there for so long. A peer's only one that has begun does so no sooner than after [`LONG`], unless it is [drawn](Self::draw):
    /// when all devices come at once, as after a restart, those who have begun end what they have begun, and the others come again.
    fn make_way(&mut self, than: usize, now: Instant, patience: Patience, roll: Option<u64>) -> Result<(), Full> {
        let all = self.peers.iter().filter(|(_, places)| places.len() > than);
        let all = all.flat_map(|(peer, places)| {
            places
                .iter()
                .map(|(at, taken)| (places.len(), !taken.has_spoken, std::cmp::Reverse(*at), *peer, taken.since))
        });
        // Nobody is older than who says nothing and was there first; who came just now may yet speak. Of an address that has several one makes way that has begun, rather than that all wait:
        // else whoever begins many from a few addresses sets the pace for everybody.
        let first =
            |(len, silent, at, ..): &(usize, bool, std::cmp::Reverse<u64>, AddressKey, Instant)| (*len, *silent, *at);
        let is_old = |since: Instant| now.saturating_duration_since(since) >= patience.several;
        let chosen = all.clone().max_by_key(first).ok_or(Full::OfPeer)?;
        let of_several = || all.filter(|(len, .., since)| *len > 1 && is_old(*since)).max_by_key(first);
        let least = match chosen {
            (1, false, ..) => LONG,
            (1, true, ..) => patience.silent,
            _ => patience.several,
        };
        let is_free = now.saturating_duration_since(chosen.4) >= least;
        let chosen = if is_free { Some(chosen) } else { of_several() };
        let chosen = chosen.map(|(.., std::cmp::Reverse(at), peer, _)| Key(peer, at));
        let chosen = chosen.or_else(|| self.draw(|_, has| has > than, now, roll?)).ok_or(Full::ForAMoment)?;
        if let Some(task) = self.free(chosen) {
            task.abort();
        }
        Ok(())
    }

    /// Draws two places among those of the peers that `of` accepts (with how many they have). None is drawn that has come, or was answered, just now. Returns the older one if both wait for their
    /// peers.
    fn draw(&self, of: impl Fn(&AddressKey, usize) -> bool, now: Instant, roll: u64) -> Option<Key> {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= MOMENT;
        let may_go = |taken: &Taken| is_old(taken.awaited.unwrap_or(taken.since));
        let places = || self.peers.iter().filter(|(peer, places)| of(peer, places.len()));
        let all = || places().flat_map(|(peer, places)| places.iter().map(|(at, taken)| (Key(*peer, *at), taken)));
        let all = || all().filter(|(_, taken)| may_go(taken));
        let count = all().count();
        let drawn = |roll: u64| all().nth(usize::try_from(roll).ok()?.checked_rem(count)?);
        let drawn = [drawn(roll & u64::from(u32::MAX))?, drawn(roll >> 32)?];
        let are_awaited = drawn.iter().all(|(_, taken)| taken.is_awaited());
        let older = drawn.into_iter().map(|(key, _)| key).min_by_key(|Key(_, at)| *at);
        older.filter(|_| are_awaited)
    }

    /// The place is free; what had it, if that was told.
    fn free(&mut self, Key(peer, at): Key) -> Option<AbortHandle> {
        let places = self.peers.get_mut(&peer)?;
        let task = places.remove(&at)?.task;
        if places.is_empty() {
            self.peers.remove(&peer);
        }
        self.count -= 1;
        task
    }
}

impl Place {
    pub(crate) const fn key(&self) -> Key {
        self.key
    }

    /// What its handshake begins with has come.
    pub(crate) fn speaks(&self) {
        if let Some(taken) = self.held.lock().taken(self.key) {
            taken.has_spoken = true;
        }
    }

    /// The server has answered what came, and waits for its peer.
    pub(crate) fn is_answered(&self, watch: Watch) {
        if let Some(taken) = self.held.lock().taken(self.key) {
            (taken.awaited, taken.watch) = (Some(Instant::now()), Some(watch));
        }
    }

    /// Its handshake has ended well: nothing is awaited of the peer.
    pub(crate) fn is_done(&self) {
        if let Some(taken) = self.held.lock().taken(self.key) {
            taken.awaited = None;
        }
    }

    /// What its connection is counted by, which goes on.
    pub(crate) fn take_use(&self) -> Option<OfUse> {
        self.held.lock().taken(self.key)?.of_use.take()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.held.lock().free(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;
    use std::collections::VecDeque;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_peer_has_its_places_and_no_more_and_takes_none_of_anothers() {
        let peers = Peers::new(99, 2);
        let take = |peer: &str| peers.take(ip(peer), true).inspect(Place::speaks);
        let first = [take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap()];
        assert!(take("192.0.2.1").is_none());
        assert!(take("::ffff:192.0.2.1").is_none(), "the same address");
        let _not_shown = peers.take(ip("192.0.2.1"), false).unwrap();
        let [_first, _second] = [take("2001:db8::1").unwrap(), take("2001:db8::2").unwrap()];
        assert!(take("2001:db8::ffff:3").is_none() && take("2001:db8:0:1::1").is_some(), "a /64 is one peer");
        assert_eq!(peers.taken(), 5);
        drop(first);
        assert_eq!(peers.taken(), 3);
        assert!(take("192.0.2.1").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_silent_one_of_a_peer_makes_way_for_its_next() {
        let peers = Peers::new(99, 2);
        let peer = ip("192.0.2.1");
        // What somebody else may have sent in its name is not its own.
        let _forged: Vec<_> = (0..9).map(|_| peers.take(peer, false).unwrap()).collect();
        let [first, second] = [0; 2].map(|_| peers.take_settled(peer, 0).unwrap());
        first.speaks();
        let third = peers.take_settled(peer, 0).unwrap();
        let has = |place: &Place| peers.held.lock().taken(place.key()).is_some();
        assert_eq!([&first, &second, &third].map(has), [true, false, true]);
        third.speaks();
        tokio::time::advance(MOMENT).await;
        assert_eq!(peers.take_settled(peer, 0).unwrap_err(), Full::OfPeer, "both are in a handshake");
        assert_eq!(peers.taken(), 11);
        tokio::time::advance(LONG).await;
        let _fourth = peers.take_settled(peer, 0).unwrap();
        assert_eq!([&first, &third].map(has), [false, true], "the older one takes too long");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_spoken_stays_and_who_has_just_come_has_its_moment() {
        let peers = Peers::new(3, 3);
        let [first, _second, _third] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|peer| peers.take(ip(peer), true));
        first.as_ref().unwrap().speaks();
        assert_eq!(peers.take_settled(ip("192.0.2.4"), 0).unwrap_err(), Full::ForAMoment);
        tokio::time::advance(MOMENT).await;
        let _fourth = peers.take_settled(ip("192.0.2.4"), 0).unwrap();
        let _fifth = peers.take_settled(ip("192.0.2.5"), 0).unwrap();
        assert!(peers.held.lock().taken(first.as_ref().unwrap().key()).is_some(), "the silent ones made way");
        assert_eq!(peers.take_settled(ip("192.0.2.6"), 0).unwrap_err(), Full::ForAMoment);
        assert_eq!(peers.take_settled(ip("192.0.2.1"), 0).unwrap_err(), Full::OfPeer, "nobody has more");
        tokio::time::advance(MOMENT).await;
        let _sixth = peers.take_settled(ip("192.0.2.6"), 0).unwrap();
        assert_eq!(peers.taken(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_addresses_that_begin_many_set_no_pace_for_others() {
        let peers = Peers::new(64, 32);
        let mut held = Vec::new();
        for round in 0..100 {
            for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
                for _ in 0..4 {
                    // A greeting that was heard elsewhere; what comes of it takes its time.
                    held.extend(peers.take_settled(ip(address), 0).inspect(Place::speaks));
                }
            }
            // They have just come, and say nothing yet.
            held.extend((0..2).filter_map(|_| peers.take_settled(ip("192.0.2.1"), 0).ok()));
            if round > 10 {
                let other = peers.take_settled(ip(&format!("198.51.100.{round}")), 0);
                assert!(other.is_ok(), "round {round}: {other:?}");
            }
            tokio::time::advance(MOMENT / 3).await;
        }
    }

    /// What strangers and devices do to each other in five seconds.
    #[derive(Default, Debug)]
    struct Crowd {
        begun: usize,
        ended: usize,
        /// How long a device waited at most, in milliseconds, before the server took its connection.
        waited: u64,
    }

    /// A server of 512 places, to which so many strangers come a second, each of so many addresses in turn, and answer nothing; and 20 devices a second, whose answers take `round_trip`: of
    /// others, or where strangers have one address, of that.
    async fn crowd(strangers: u64, addresses: u32, round_trip: u64) -> Crowd {
        let (peers, mut dice) = (Peers::new(512, 32), Pcg64Mcg::seed_from_u64(1));
        let (mut crowd, mut queue, mut strange, mut rests) = (Crowd::default(), VecDeque::new(), Vec::new(), 0);
        let mut devices: Vec<(u64, Place)> = Vec::new();
        let nobody = Watch::of_nobody();
        for now in 0..5_000_u64 {
            for number in now * strangers / 1_000..(now + 1) * strangers / 1_000 {
                queue.push_back((now, false, number as u32 % addresses));
            }
            if now % 50 == 0 {
                queue.push_back((now, true, if addresses == 1 { 0 } else { now as u32 }));
            }
            devices.retain(|(until, place)| {
                let is_there = peers.held.lock().taken(place.key()).is_some();
                crowd.ended += usize::from(is_there && *until <= now);
                is_there && now < *until
            });
            while rests <= now
                && let Some((since, is_device, number)) = queue.front().copied()
            {
                let place = peers.take_settled(std::net::Ipv4Addr::from(number + (1 << 24)).into(), dice.next_u64());
                if place.as_ref().is_err_and(|full| *full == Full::ForAMoment) {
                    rests = now + 5;
                    break;
                }
                queue.pop_front();
                place.iter().for_each(Place::speaks);
                place.iter().for_each(|place| place.is_answered(nobody.clone()));
                match place {
                    Ok(place) if is_device => {
                        crowd.waited = crowd.waited.max(now - since);
                        // The last ones have no time to end.
                        crowd.begun += usize::from(now + round_trip < 5_000);
                        devices.push((now + round_trip, place));
                    }
                    Ok(place) => strange.push(place),
                    Err(_) => crowd.begun += usize::from(is_device),
                }
            }
            strange.retain(|place: &Place| peers.held.lock().taken(place.key()).is_some());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        crowd
    }

    /// Each had two seconds: at 260 a second whoever came waited longer and longer.
    #[tokio::test(start_paused = true)]
    async fn strangers_of_hundreds_of_addresses_keep_no_device_waiting() {
        // The share of devices that end their handshakes; the others come again.
        let cases = [(260, 100, 0.95), (260, 600, 0.9), (1_000, 100, 0.9), (1_000, 600, 0.2), (2_000, 100, 0.8)];
        for (strangers, round_trip, least) in cases {
            let crowd = crowd(strangers, 2_048, round_trip).await;
            let share = crowd.ended as f64 / crowd.begun as f64;
            assert!(crowd.begun > 50 && share >= least, "{strangers} a second, {round_trip} ms: {crowd:?}");
            assert!(crowd.waited <= 50, "{strangers} a second: {crowd:?}");
        }
    }

    /// They had all places of the address for two seconds each: at 17 a second some of the others behind the same router were refused, and at 200 nearly all.
    #[tokio::test(start_paused = true)]
    async fn strangers_of_ones_own_address_shut_nobody_out() {
        for (strangers, round_trip, least) in [(20, 100, 0.98), (50, 100, 0.9), (200, 30, 0.8), (200, 100, 0.5)] {
            let crowd = crowd(strangers, 1, round_trip).await;
            let share = crowd.ended as f64 / crowd.begun as f64;
            assert!(crowd.begun > 50 && share >= least, "{strangers} a second, {round_trip} ms: {share} {crowd:?}");
        }
    }

    /// The server is busy with all, as after its restart: a twentieth of them were answered, and will be heard.
    #[tokio::test(start_paused = true)]
    async fn few_make_way_where_the_server_itself_is_what_all_wait_for() {
        let (peers, mut dice) = (Peers::new(500, 32), Pcg64Mcg::seed_from_u64(1));
        let peer = |at: u32| IpAddr::from(std::net::Ipv4Addr::from(at + (1 << 24)));
        let all: Vec<_> = (0..500).map(|at| peers.take_settled(peer(at), 0).unwrap()).collect();
        all.iter().for_each(Place::speaks);
        all[..25].iter().for_each(|place| place.is_answered(Watch::of_nobody()));
        tokio::time::advance(2 * MOMENT).await;
        // Whoever accepts looks again after 5 ms: for half a second.
        let more: Vec<_> =
            (0..100).filter_map(|at| peers.take_settled(peer(1_000 + at), dice.next_u64()).ok()).collect();
        assert!(more.len() <= 2, "{}", more.len());
        all[..25].iter().for_each(Place::is_done);
        assert_eq!(peers.take_settled(peer(2_000), 0).unwrap_err(), Full::ForAMoment, "they have ended theirs");
    }

    /// Else all who come at once after a restart would make way for each other, and none would ever get in.
    #[tokio::test(start_paused = true)]
    async fn who_has_one_handshake_ends_it_though_all_come_at_once() {
        let peers = Peers::new(8, 3);
        let come = |from: u8, takes: &dyn Fn(&Peers, IpAddr) -> Option<Place>| {
            (from..from + 100).filter_map(|at| takes(&peers, ip(&format!("192.0.2.{at}")))).collect::<Vec<_>>()
        };
        let has = |places: &[Place]| places.iter().all(|place| peers.held.lock().taken(place.key()).is_some());
        for takes in [
            (&|peers: &Peers, peer| peers.take(peer, true)) as &dyn Fn(&Peers, IpAddr) -> Option<Place>,
            &|peers, peer| peers.take_settled(peer, 0).ok().inspect(Place::speaks),
        ] {
            let first = come(1, takes);
            tokio::time::advance(2 * MOMENT).await;
            let second = come(101, takes);
            assert_eq!((first.len(), second.len()), (8, 0));
            assert!(has(&first));
            tokio::time::advance(LONG).await;
            assert_eq!(come(101, takes).len(), 8, "who takes too long makes way");
            assert!(!has(&first));
        }
    }

    /// Each /64 has one, and each has begun: nobody of them need make way for another.
    #[tokio::test(start_paused = true)]
    async fn one_network_of_many_addresses_has_nobody_else_wait() {
        let peers = Peers::new(64, 8);
        let begin = |peer: &str| peers.take_settled(ip(peer), 0).inspect(Place::speaks);
        let few: Vec<_> = (0..8).map(|at| begin(&format!("2001:db8:1:{at}::1")).unwrap()).collect();
        let many: Vec<_> = (0..56).map(|at| begin(&format!("2001:db8:2:{at}::1")).unwrap()).collect();
        let has = |place: &Place| peers.held.lock().taken(place.key()).is_some();
        assert_eq!(begin("2001:db8:2:99::1").unwrap_err(), Full::OfPeer, "whoever accepts does not wait for it");
        tokio::time::advance(MOMENT).await;
        let others: Vec<_> = (0..40).map(|at| begin(&format!("198.51.100.{at}"))).collect();
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        assert!(few.iter().all(has), "a network with few is none that crowds");
        assert_eq!(many.iter().filter(|place| has(place)).count(), 16);
        assert_eq!(begin("2001:db8:2:99::1").unwrap_err(), Full::OfPeer);
        assert_eq!(peers.taken(), 64);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_the_peer_with_most_makes_way_once_all_is_taken() {
        let peers = Peers::new(4, 3);
        let take = |peer: &str| {
            let place = peers.take(ip(peer), true)?;
            let key = place.key();
            let task = tokio::spawn(async move {
                let _place = place;
                std::future::pending::<()>().await;
            });
            peers.set_task(key, task.abort_handle());
            Some(task)
        };
        let (old, kept) = (take("192.0.2.1").unwrap(), take("192.0.2.2").unwrap());
        let (older, newer) = (take("192.0.2.3").unwrap(), take("192.0.2.3").unwrap());
        let other = take("192.0.2.4").unwrap();
        assert!(older.await.unwrap_err().is_cancelled());
        assert_eq!(peers.taken(), 4, "it is not free twice");
        assert!(take("192.0.2.2").is_none(), "nobody has more");
        tokio::time::advance(LONG).await;
        let another = take("192.0.2.5").unwrap();
        assert!(old.await.unwrap_err().is_cancelled(), "all have one: the oldest");
        for task in [kept, newer, other, another] {
            assert!(!task.is_finished());
            task.abort();
            let _ = task.await;
        }
        assert_eq!(peers.taken(), 0);
    }
}
