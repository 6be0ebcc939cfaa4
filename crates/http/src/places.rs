//! Who has a place among many, and who makes way: [`Places`].
//!
//! There are shares of places, one for each kind of use, so that no kind takes another's. While a share has room, whoever comes gets a place. When it is full,
//! one makes way:
//!
//! 1. Of those that are *behind* (their client is waited for, and has brought nothing that counts for [`BEHIND`]), the one whose network, and in it whose client, holds most
//!    places; of these, who has been behind the longest.
//! 2. If nobody is behind: the latest one of the network that holds most, if that is two more than the newcomer's.
//! 3. Else the newcomer is refused.
//!
//! Nobody makes way for another network that holds as much as its own. So whoever moves is safe from others as long as it holds no more than they do, and one address, or one
//! network, is in the way of itself alone.
//!
//! A client is an IPv4 address or an IPv6 /64; a network is an IPv4 /24 or an IPv6 /48.
//!
//! Bounds: an entry of some 200 bytes for each place that is taken. Who makes way is found by looking at each once.

use hoop_units::DeviceId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a client may be waited for before it counts as behind: longer than most round trips, shorter than a newcomer should be refused for.
const BEHIND: Duration = Duration::from_millis(100);

/// What has to come, or go, in bytes, for a client to be waited for anew: whoever brings a byte at a time is behind all the same.
const COUNTS: usize = 1024;

/// So many places for one kind of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// How many.
    pub places: usize,
    /// How many one client has at most. Default: all, since whoever holds most makes way for others.
    pub of_one: Option<usize>,
    /// Who has a place in it can be asked to come again at any time, as an idle connection, or a stream of events: it counts as behind from when it came.
    pub by_age: bool,
}

impl Share {
    /// So many places for uses that ought to come to their end.
    pub const fn of(places: usize) -> Self {
        Self { places, of_one: None, by_age: false }
    }

    /// So many for uses that have no end of their own, of which the oldest may go.
    pub const fn by_age(places: usize) -> Self {
        Self { by_age: true, ..Self::of(places) }
    }
}

/// Places in shares. Shares are known by their number.
#[derive(Debug)]
pub struct Places {
    began: Instant,
    table: Mutex<Table>,
}

/// A place that is held, until the last copy of this is dropped.
#[derive(Clone, Debug)]
pub struct Place(Arc<Holding>);

#[derive(Debug)]
struct Holding {
    places: Arc<Places>,
    number: u64,
    sign: Arc<Sign>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.places.table().leave(self.number);
    }
}

/// What the holder of a place and the table tell each other.
#[derive(Default, Debug)]
struct Sign {
    /// Since when the client is waited for, in microseconds, and one; 0: it is not.
    since: AtomicU64,
    /// What has come since then, in bytes.
    came: AtomicUsize,
    makes_way: Notify,
}

impl Sign {
    fn awaits(&self, now: Duration) {
        let _ = self.since.compare_exchange(0, micros(now) + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn comes(&self, bytes: usize) {
        if self.came.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) >= COUNTS {
            self.goes_on();
        }
    }

    fn goes_on(&self) {
        self.came.store(0, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }

    fn since(&self) -> Option<Duration> {
        self.since.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_micros)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX - 1)
}

impl Places {
    /// These shares, all empty.
    pub fn new(shares: Vec<Share>) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), table: Mutex::new(Table::new(shares)) })
    }

    /// A place in a share for the client at that address, if there is one for it.
    pub fn enter(self: &Arc<Self>, share: usize, client: IpAddr) -> Option<Place> {
        let now = self.now();
        let (number, sign) = self.table().enter(share, client, now)?;
        Some(Place(Arc::new(Holding { places: self.clone(), number, sign })))
    }

    /// How many places there are in all.
    pub fn total(&self) -> usize {
        self.table().shares.iter().map(|share| share.places).sum()
    }

    /// How many places of a share are taken.
    pub fn taken(&self, share: usize) -> usize {
        self.table().taken.get(share).copied().unwrap_or_default()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Nothing in here panics.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Changes to a place of another share, for the client at that address. Whether there is one; if not, the old one stays.
    pub fn change(&self, share: usize, client: IpAddr) -> bool {
        let now = self.0.places.now();
        self.0.places.table().change(self.0.number, share, client, now)
    }

    /// Returns when it has to make way: whoever holds it ends. It is no longer counted.
    pub async fn makes_way(&self) {
        self.0.sign.makes_way.notified().await;
    }

    /// Its client is waited for.
    pub fn awaits(&self) {
        self.0.sign.awaits(self.0.places.now());
    }

    /// So many bytes have come from its client, or gone to it.
    pub fn comes(&self, bytes: usize) {
        self.0.sign.comes(bytes);
    }

    /// Its client has done what was waited for.
    pub fn goes_on(&self) {
        self.0.sign.goes_on();
    }
}

/// Who holds what.
#[derive(Debug)]
struct Table {
    shares: Vec<Share>,
    taken: Vec<usize>,
    next: u64,
    held: BTreeMap<u64, Held>,
    clients: BTreeMap<(usize, DeviceId), usize>,
    networks: BTreeMap<(usize, DeviceId), usize>,
}

#[derive(Clone, Debug)]
struct Held {
    share: usize,
    client: DeviceId,
    network: DeviceId,
    entered: Duration,
    sign: Arc<Sign>,
}

impl Table {
    fn new(shares: Vec<Share>) -> Self {
        let taken = vec![0; shares.len()];
        Self { shares, taken, next: 0, held: BTreeMap::new(), clients: BTreeMap::new(), networks: BTreeMap::new() }
    }

    fn enter(&mut self, share: usize, client: IpAddr, now: Duration) -> Option<(u64, Arc<Sign>)> {
        let held = Held::new(share, client, now, Arc::default());
        self.make_room(&held, now)?;
        let (number, sign) = (self.next, held.sign.clone());
        self.next += 1;
        self.put(number, held);
        Some((number, sign))
    }

    fn change(&mut self, number: u64, share: usize, client: IpAddr, now: Duration) -> bool {
        // One that has to make way has no place to change.
        let Some(before) = self.leave(number) else { return false };
        let after = Held::new(share, client, now, before.sign.clone());
        let changes = self.make_room(&after, now).is_some();
        if changes {
            after.sign.goes_on();
        }
        self.put(number, if changes { after } else { before });
        changes
    }

    fn leave(&mut self, number: u64) -> Option<Held> {
        let held = self.held.remove(&number)?;
        self.taken[held.share] -= 1;
        fewer(&mut self.clients, (held.share, held.client));
        fewer(&mut self.networks, (held.share, held.network));
        Some(held)
    }

    fn put(&mut self, number: u64, held: Held) {
        self.taken[held.share] += 1;
        *self.clients.entry((held.share, held.client)).or_default() += 1;
        *self.networks.entry((held.share, held.network)).or_default() += 1;
        self.held.insert(number, held);
    }

    /// Sees to it that there is a place for `newcomer`.
    fn make_room(&mut self, newcomer: &Held, now: Duration) -> Option<()> {
        let share = *self.shares.get(newcomer.share)?;
        let own = self.clients.get(&(newcomer.share, newcomer.client)).copied().unwrap_or_default();
        if share.of_one.is_some_and(|most| own >= most) {
            return None;
        }
        if self.taken[newcomer.share] < share.places {
            return Some(());
        }
        let number = self.behind(newcomer, share, now).or_else(|| self.latest_of_most(newcomer))?;
        self.leave(number)?.sign.makes_way.notify_one();
        Some(())
    }

    fn in_share(&self, share: usize) -> impl Iterator<Item = (&u64, &Held)> {
        self.held.iter().filter(move |(_, held)| held.share == share)
    }

    /// How many places its network holds, and its client.
    fn counts(&self, held: &Held) -> (usize, usize) {
        let network = self.networks.get(&(held.share, held.network)).copied().unwrap_or_default();
        (network, self.clients.get(&(held.share, held.client)).copied().unwrap_or_default())
    }

    fn behind(&self, newcomer: &Held, share: Share, now: Duration) -> Option<u64> {
        let own = self.counts(newcomer).0;
        let late = self.in_share(newcomer.share).filter_map(|(number, held)| {
            let since = if share.by_age { Some(held.entered) } else { held.sign.since() };
            let late = now.saturating_sub(since?);
            let counts = self.counts(held);
            let may = counts.0 > own || held.network == newcomer.network;
            ((share.by_age || late >= BEHIND) && may).then_some((counts, late, *number))
        });
        late.max_by_key(|(counts, late, number)| (*counts, *late, u64::MAX - number)).map(|(.., number)| number)
    }

    fn latest_of_most(&self, newcomer: &Held) -> Option<u64> {
        let own = self.counts(newcomer).0;
        let theirs = self.in_share(newcomer.share).map(|(number, held)| (self.counts(held), *number));
        theirs.filter(|((network, _), _)| *network > own + 1).max().map(|(_, number)| number)
    }
}

fn fewer(counts: &mut BTreeMap<(usize, DeviceId), usize>, key: (usize, DeviceId)) {
    match counts.get_mut(&key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(&key)),
    }
}

impl Held {
    fn new(share: usize, client: IpAddr, entered: Duration, sign: Arc<Sign>) -> Self {
        Self { share, client: DeviceId::from_ip(client), network: network(client), entered, sign }
    }
}

/// The network of an address: IPv4 /24, IPv6 /48.
fn network(ip: IpAddr) -> DeviceId {
    let ip = ip.to_canonical();
    let mut network = DeviceId::from_ip(ip);
    let from = if ip.is_ipv4() { 15 } else { 6 };
    network.0[from..].fill(0);
    network
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The address of a host in a network of its own.
    fn far(n: u8) -> IpAddr {
        [10, 0, n, 1].into()
    }

    struct Bench {
        table: Table,
        now: Duration,
    }

    impl Bench {
        fn new(share: Share) -> Self {
            Self { table: Table::new(vec![share, Share::of(2)]), now: SECOND }
        }

        /// Enters a second later: the place, if there is one, and who made way.
        fn enter(&mut self, client: IpAddr) -> Option<(u64, Vec<u64>)> {
            self.now += SECOND;
            let before: Vec<u64> = self.table.held.keys().copied().collect();
            let (number, _) = self.table.enter(0, client, self.now)?;
            Some((number, before.into_iter().filter(|number| !self.table.held.contains_key(number)).collect()))
        }

        fn fill(&mut self, clients: impl IntoIterator<Item = IpAddr>) {
            clients.into_iter().for_each(|client| assert!(self.enter(client).unwrap().1.is_empty()));
        }

        fn awaits(&self, number: u64) {
            self.table.held[&number].sign.awaits(self.now);
        }
    }

    #[test]
    fn of_who_holds_most_the_one_that_is_behind_the_longest_makes_way() {
        let mut bench = Bench::new(Share::of(5));
        bench.fill([far(1), far(2), far(2), far(2), far(3)]);
        bench.awaits(0);
        bench.now += SECOND;
        bench.awaits(3);
        bench.now += SECOND;
        bench.awaits(2);
        assert_eq!(bench.enter(far(4)).unwrap().1, [3], "who came first to be behind holds less");
        assert_eq!(bench.enter(far(5)).unwrap().1, [2]);
        assert_eq!(bench.enter(far(6)).unwrap().1, [0]);
        assert_eq!(bench.enter(far(7)), None, "each holds one, and nobody is behind");
    }

    #[test]
    fn who_brings_a_byte_at_a_time_is_behind_and_who_brings_a_kilobyte_is_not() {
        let mut bench = Bench::new(Share::of(2));
        bench.fill([far(1), far(2)]);
        bench.awaits(0);
        bench.awaits(1);
        (0..COUNTS - 1).for_each(|_| bench.table.held[&0].sign.comes(1));
        bench.table.held[&1].sign.comes(COUNTS);
        assert_eq!(bench.enter(far(3)).unwrap().1, [0]);
        assert_eq!(bench.enter(far(4)), None);
    }

    #[test]
    fn one_network_makes_way_though_it_moves_and_is_many_addresses() {
        let mut bench = Bench::new(Share::of(6));
        bench.fill([far(1), far(2)]);
        bench.fill((1..5).map(|host| [10, 9, 9, host].into()));
        assert_eq!(bench.enter(far(3)).unwrap().1, [5], "its latest");
        assert_eq!(bench.enter([10, 9, 9, 9].into()), None, "nobody makes way for it");
        assert_eq!(bench.enter(far(4)).unwrap().1, [4]);
        assert_eq!(bench.enter(far(5)).unwrap().1, [3]);
        assert_eq!(bench.enter(far(6)), None, "one each");
    }

    #[test]
    fn where_anybody_may_be_asked_to_come_again_the_oldest_goes() {
        let mut bench = Bench::new(Share::by_age(3));
        bench.fill((1..4).map(far));
        assert_eq!(bench.enter(far(9)).unwrap().1, [0]);
        assert_eq!(bench.enter(far(9)).unwrap().1, [3], "its own: it holds most");
        assert_eq!(bench.enter(far(8)).unwrap().1, [1]);
    }

    #[test]
    fn a_change_frees_the_place_before_and_what_has_made_way_changes_no_more() {
        let mut bench = Bench::new(Share::by_age(2));
        bench.fill([far(1), far(2)]);
        assert!(bench.table.change(0, 1, far(7), bench.now));
        assert_eq!(bench.table.taken, [1, 1]);
        bench.fill([far(3)]);
        assert_eq!(bench.enter(far(4)).unwrap().1, [1]);
        assert!(!bench.table.change(1, 1, far(2), bench.now));
        bench.table.leave(0);
        assert_eq!(
            (bench.table.taken.clone(), bench.table.clients.len(), bench.table.networks.len()),
            (vec![2, 0], 2, 2)
        );
    }

    #[test]
    fn one_client_has_its_most_and_ipv6_counts_by_64_and_48() {
        let mut bench = Bench::new(Share { of_one: Some(2), ..Share::of(5) });
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        bench.fill([v6("2001:db8:0:1::1"), v6("2001:db8:0:1::2")]);
        assert_eq!(bench.enter(v6("2001:db8:0:1::3")), None);
        bench.fill([v6("2001:db8:0:2::1"), v6("2001:db8:0:3::1"), far(1)]);
        assert_eq!(bench.table.networks.len(), 2);
        assert_eq!(bench.enter(far(2)).unwrap().1, [1], "the /48 holds most, in it the /64");
    }
}
