//! The handshakes that are under way, and whose they are: [`Peers`].

use crate::lingering::OfUse;
use hoop_units::DeviceId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    peers: BTreeMap<DeviceId, BTreeMap<u64, Taken>>,
}

#[derive(Debug)]
struct Taken {
    since: Instant,
    /// The address was shown to be the peer's.
    is_its_own: bool,
    /// What a handshake begins with has come.
    has_spoken: bool,
    task: Option<AbortHandle>,
    /// Its connection, which is of no use once it makes way.
    of_use: Option<OfUse>,
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

/// Which place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(DeviceId, u64);

/// A network of IPv6: what one sender is given, a house or a server (RFC 6177), may be a /48.
type Network = [u8; 6];

/// The network of an address; none of IPv4, where each address is one.
fn network(peer: DeviceId) -> Option<Network> {
    let network = std::array::from_fn(|at| peer.as_bytes()[at]);
    (network != Network::default()).then_some(network)
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers {
    /// `all` places, of which a peer may have `of_peer`.
    pub(crate) fn new(all: usize, of_peer: usize) -> Self {
        Self { all, of_peer, held: Arc::default() }
    }

    /// How many places are taken.
    pub(crate) fn taken(&self) -> usize {
        lock(&self.held).count
    }

    /// A place, unless the peer has as many as it may and all of these have spoken, or all are taken and nobody has more than it has. `is_its_own`: whether the address was shown to be the
    /// peer's; otherwise it is not held against it.
    pub(crate) fn take(&self, peer: IpAddr, is_its_own: bool) -> Option<Place> {
        self.take_of(peer, is_its_own, Duration::ZERO, LONG).ok()
    }

    /// The same for a peer that has shown its address, while nobody who has just come makes way.
    pub(crate) fn take_settled(&self, peer: IpAddr) -> Result<Place, Full> {
        self.take_of(peer, true, MOMENT, MOMENT)
    }

    /// `age`: who has several places makes way no sooner; `alone`: nor who has one, and has said nothing.
    fn take_of(&self, peer: IpAddr, is_its_own: bool, age: Duration, alone: Duration) -> Result<Place, Full> {
        let peer = DeviceId::from_ip(peer);
        let held = &mut *lock(&self.held);
        let has = held.peers.get(&peer).map_or(0, BTreeMap::len);
        let now = Instant::now();
        if is_its_own && held.own(peer) >= self.of_peer {
            held.make_own_way(peer, now)?;
        }
        if held.count >= self.all {
            let crowd = held.crowd(self.of_peer);
            match crowd {
                Some(crowd) if network(peer) == Some(crowd) => {
                    held.make_way(has, now, age, alone).map_err(|_| Full::OfPeer)?;
                }
                Some(crowd) if held.make_crowds_way(crowd, now, age) => {}
                _ => held.make_way(has, now, age, alone)?,
            }
        }
        let key = Key(peer, held.next);
        held.next += 1;
        held.count += 1;
        held.peers
            .entry(peer)
            .or_default()
            .insert(key.1, Taken { since: now, is_its_own, has_spoken: false, task: None, of_use: None });
        Ok(Place { held: self.held.clone(), key })
    }

    /// Its connection is counted by this.
    pub(crate) fn set_use(&self, key: Key, of_use: OfUse) {
        let held = &mut *lock(&self.held);
        if let Some(taken) = held.taken(key) {
            taken.of_use = Some(of_use);
        }
    }

    /// What has the place ends by this if it is to make way.
    pub(crate) fn set_task(&self, key: Key, task: AbortHandle) {
        let held = &mut *lock(&self.held);
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
    fn own(&self, peer: DeviceId) -> usize {
        self.peers.get(&peer).map_or(0, |places| places.values().filter(|taken| taken.is_its_own).count())
    }

    /// The oldest of a peer's own that says nothing makes way for its next, or else the oldest of those that have begun long ago: who shares the address with it need not wait for it to fail. At
    /// once: whoever accepts does not wait for one address.
    fn make_own_way(&mut self, peer: DeviceId, now: Instant) -> Result<(), Full> {
        let own = self.peers.get(&peer).into_iter().flatten().filter(|(_, taken)| taken.is_its_own);
        let is_old = |taken: &Taken| !taken.has_spoken || now.saturating_duration_since(taken.since) >= LONG;
        let oldest = own.filter(|(_, taken)| is_old(taken)).min_by_key(|(at, taken)| (taken.has_spoken, **at));
        let Some(at) = oldest.map(|(at, _)| *at) else { return Err(Full::OfPeer) };
        if let Some(task) = self.free(Key(peer, at)) {
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

    /// One of a peer that has more than so many makes way, if it has been there for so long. A peer's only one that has begun does so no sooner than after [`LONG`]: when all devices come at once, as
    /// after a restart, those who have begun end what they have begun, and the others come again.
    fn make_way(&mut self, than: usize, now: Instant, age: Duration, alone: Duration) -> Result<(), Full> {
        let all = self.peers.iter().filter(|(_, places)| places.len() > than);
        let all = all.flat_map(|(peer, places)| {
            places
                .iter()
                .map(|(at, taken)| (places.len(), !taken.has_spoken, std::cmp::Reverse(*at), *peer, taken.since))
        });
        // Nobody is older than who says nothing and was there first; who came just now may yet speak. Of an address that has several one makes way that has begun, rather than that all wait:
        // else whoever begins many from a few addresses sets the pace for everybody.
        let first =
            |(len, silent, at, ..): &(usize, bool, std::cmp::Reverse<u64>, DeviceId, Instant)| (*len, *silent, *at);
        let is_old = |since: Instant| now.saturating_duration_since(since) >= age;
        let chosen = all.clone().max_by_key(first).ok_or(Full::OfPeer)?;
        let of_several = || all.filter(|(len, .., since)| *len > 1 && is_old(*since)).max_by_key(first);
        let least = match chosen {
            (1, false, ..) => LONG,
            (1, true, ..) => alone,
            _ => age,
        };
        let is_free = now.saturating_duration_since(chosen.4) >= least;
        let chosen = if is_free { Some(chosen) } else { of_several() };
        let (.., std::cmp::Reverse(at), peer, _) = chosen.ok_or(Full::ForAMoment)?;
        if let Some(task) = self.free(Key(peer, at)) {
            task.abort();
        }
        Ok(())
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
        if let Some(taken) = lock(&self.held).taken(self.key) {
            taken.has_spoken = true;
        }
    }

    /// What its connection is counted by, which goes on.
    pub(crate) fn take_use(&self) -> Option<OfUse> {
        lock(&self.held).taken(self.key)?.of_use.take()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.held).free(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let [first, second] = [0; 2].map(|_| peers.take_settled(peer).unwrap());
        first.speaks();
        let third = peers.take_settled(peer).unwrap();
        let has = |place: &Place| lock(&peers.held).taken(place.key()).is_some();
        assert_eq!([&first, &second, &third].map(has), [true, false, true]);
        third.speaks();
        tokio::time::advance(MOMENT).await;
        assert_eq!(peers.take_settled(peer).unwrap_err(), Full::OfPeer, "both are in a handshake");
        assert_eq!(peers.taken(), 11);
        tokio::time::advance(LONG).await;
        let _fourth = peers.take_settled(peer).unwrap();
        assert_eq!([&first, &third].map(has), [false, true], "the older one takes too long");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_spoken_stays_and_who_has_just_come_has_its_moment() {
        let peers = Peers::new(3, 3);
        let [first, _second, _third] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|peer| peers.take(ip(peer), true));
        first.as_ref().unwrap().speaks();
        assert_eq!(peers.take_settled(ip("192.0.2.4")).unwrap_err(), Full::ForAMoment);
        tokio::time::advance(MOMENT).await;
        let _fourth = peers.take_settled(ip("192.0.2.4")).unwrap();
        let _fifth = peers.take_settled(ip("192.0.2.5")).unwrap();
        assert!(lock(&peers.held).taken(first.as_ref().unwrap().key()).is_some(), "the silent ones made way");
        assert_eq!(peers.take_settled(ip("192.0.2.6")).unwrap_err(), Full::ForAMoment);
        assert_eq!(peers.take_settled(ip("192.0.2.1")).unwrap_err(), Full::OfPeer, "nobody has more");
        tokio::time::advance(MOMENT).await;
        let _sixth = peers.take_settled(ip("192.0.2.6")).unwrap();
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
                    held.extend(peers.take_settled(ip(address)).inspect(Place::speaks));
                }
            }
            // They have just come, and say nothing yet.
            held.extend((0..2).filter_map(|_| peers.take_settled(ip("192.0.2.1")).ok()));
            if round > 10 {
                let other = peers.take_settled(ip(&format!("198.51.100.{round}")));
                assert!(other.is_ok(), "round {round}: {other:?}");
            }
            tokio::time::advance(MOMENT / 3).await;
        }
    }

    /// Else all who come at once after a restart would make way for each other, and none would ever get in.
    #[tokio::test(start_paused = true)]
    async fn who_has_one_handshake_ends_it_though_all_come_at_once() {
        let peers = Peers::new(8, 3);
        let come = |from: u8, takes: &dyn Fn(&Peers, IpAddr) -> Option<Place>| {
            (from..from + 100).filter_map(|at| takes(&peers, ip(&format!("192.0.2.{at}")))).collect::<Vec<_>>()
        };
        let has = |places: &[Place]| places.iter().all(|place| lock(&peers.held).taken(place.key()).is_some());
        for takes in [
            (&|peers: &Peers, peer| peers.take(peer, true)) as &dyn Fn(&Peers, IpAddr) -> Option<Place>,
            &|peers, peer| peers.take_settled(peer).ok().inspect(Place::speaks),
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
        let begin = |peer: &str| peers.take_settled(ip(peer)).inspect(Place::speaks);
        let few: Vec<_> = (0..8).map(|at| begin(&format!("2001:db8:1:{at}::1")).unwrap()).collect();
        let many: Vec<_> = (0..56).map(|at| begin(&format!("2001:db8:2:{at}::1")).unwrap()).collect();
        let has = |place: &Place| lock(&peers.held).taken(place.key()).is_some();
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
    async fn when_all_places_are_taken_the_oldest_of_who_has_most_makes_way_for_who_has_fewer() {
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
