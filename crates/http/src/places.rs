//! Who has a place among many, and who makes way: [`Places`].
//!
//! There are shares of places, one for each kind of use, so that no kind takes another's. While a share has room, whoever comes gets a place. When it is full,
//! one makes way:
//!
//! 1. Of those that are *behind* (their client is waited for, and has brought less than [`BYTES_A_SECOND`] while it was), the one whose network, and in it whose client, holds most
//!    places; of these, who is behind most. Who brings more may be silent for a while: up to [`AHEAD`].
//! 2. If nobody is behind: the latest one of the network that holds most, if that is two more than the newcomer's; in the newcomer's own network, of the client that holds
//!    most, if that is two more than the newcomer.
//! 3. Else the newcomer waits, or is refused.
//!
//! In a share *by age* the oldest makes way, of who holds most, once it has been there for [`AT_FIRST`]. Whoever has had what it came for goes first, and comes back only for another such.
//!
//! A client that holds all that one client may is treated so among its own: of these, the one that has been behind the longest makes way, or the newcomer is refused. So what
//! shares an address with many silent connections gets its turn.
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The least pace of a client that is waited for, in bytes a second: what one of twenty phones has at Wi-Fi's slowest rate. To hold a place one has to pay so much for it.
const BYTES_A_SECOND: i64 = 32 * 1024;

/// How long a client may be waited for at first: longer than what it sends at once takes to be read, and so short that a crowd that comes without end leaves room for who comes in between.
const AT_FIRST: Duration = Duration::from_millis(20);

/// How long for who has done what was waited for, or reads: longer than most round trips, shorter than a newcomer should wait.
const BY_LEAVE: Duration = Duration::from_millis(100);

/// How long at most for who has brought more than the least.
const AHEAD: Duration = Duration::from_secs(1);

/// How soon whoever waits for a place looks again. Who becomes behind does so by time alone.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// So many places for one kind of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// How many.
    pub places: usize,
    /// How many one client has at most. Default: all, since whoever holds most makes way for others.
    pub of_one: Option<usize>,
    /// Whether that holds for this machine's own programs, too: a proxy among them may speak for many. Default: yes.
    pub of_loopback: bool,
    /// Who has a place in it can be asked to come again at any time, as an idle connection, or a stream of events: it counts as behind from when it came.
    pub by_age: bool,
}

/// There is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Full {
    /// The client has all that it may.
    OfOne,
    /// Nobody makes way, or not yet.
    OfAll,
}

impl Share {
    /// So many places for uses that ought to come to their end.
    pub const fn of(places: usize) -> Self {
        Self { places, of_one: None, of_loopback: true, by_age: false }
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
    /// A place has become free.
    freed: Notify,
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
        self.places.freed.notify_one();
    }
}

/// How a client gets on: a purse of time. What comes from it, or goes to it, fills the purse; being waited for empties it.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Since when the client is waited for, if it is.
    since: Option<Duration>,
    /// The time for which it may still be waited for, in microseconds; below zero: for how long it has been behind.
    left: i64,
}

impl Pace {
    const FRESH: Self = Self { since: None, left: micros(AT_FIRST) };

    /// What is left of the time, now.
    fn left(&self, now: Duration) -> i64 {
        self.left.saturating_sub(self.since.map_or(0, |since| micros(now.saturating_sub(since))))
    }

    /// Something has moved; nothing is no news.
    fn earns(&mut self, bytes: usize, most: Duration, now: Duration) {
        if bytes == 0 {
            return;
        }
        let left = self.left(now);
        let earned = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(1_000_000) / BYTES_A_SECOND;
        *self = Self { since: None, left: left.saturating_add(earned).min(micros(most).max(left)) };
    }
}

/// What the holder of a place and the table tell each other.
#[derive(Debug)]
struct Sign {
    pace: Mutex<Pace>,
    /// Somebody else than the reader of the connection tells how the client gets on.
    is_told_apart: AtomicBool,
    /// Whether it has to make way, and whoever waits to hear of it.
    is_gone: AtomicBool,
    makes_way: Notify,
    /// A request waits for a place of another share, and is to be told if there is none.
    is_waiting: AtomicBool,
}

impl Default for Sign {
    fn default() -> Self {
        let [is_told_apart, is_gone, is_waiting] = [false; 3].map(AtomicBool::new);
        let (pace, makes_way) = (Mutex::new(Pace::FRESH), Notify::new());
        Self { pace, is_told_apart, is_gone, makes_way, is_waiting }
    }
}

impl Sign {
    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaits(&self, now: Duration) {
        self.pace().since.get_or_insert(now);
    }

    fn goes_on(&self) {
        let mut pace = self.pace();
        *pace = Pace { since: None, left: pace.left.max(micros(BY_LEAVE)) };
    }

    /// Another place was taken.
    fn begins(&self) {
        *self.pace() = Pace::FRESH;
        self.is_told_apart.store(false, Ordering::Relaxed);
        self.is_gone.store(false, Ordering::Release);
    }

    fn makes_way(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.makes_way.notify_one();
    }

    /// For how long its client has been behind, if it is waited for and is behind, in microseconds.
    fn late(&self, now: Duration) -> Option<i64> {
        let pace = *self.pace();
        pace.since.and(pace.left(now).checked_neg()).filter(|late| *late >= 0)
    }
}

const fn micros(time: Duration) -> i64 {
    // 290,000 years.
    time.as_micros() as i64
}

impl Places {
    /// These shares, all empty.
    pub fn new(shares: Vec<Share>) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), table: Mutex::new(Table::new(shares)), freed: Notify::new() })
    }

    /// A place in a share for the client at that address, if there is one for it.
    pub fn enter(self: &Arc<Self>, share: usize, client: IpAddr) -> Option<Place> {
        self.try_enter(share, client).ok()
    }

    fn try_enter(self: &Arc<Self>, share: usize, client: IpAddr) -> Result<Place, Full> {
        let now = self.now();
        let (number, sign) = self.table().enter(share, client, now)?;
        Ok(Place(Arc::new(Holding { places: self.clone(), number, sign })))
    }

    /// A place in a share by age, once somebody has been there for a moment; none for a client that has all that it may.
    pub async fn entered(self: &Arc<Self>, share: usize, client: IpAddr) -> Option<Place> {
        loop {
            match self.try_enter(share, client) {
                Ok(place) => return Some(place),
                Err(Full::OfOne) => return None,
                Err(Full::OfAll) => self.look_again().await,
            }
        }
    }

    /// Returns when a place may have become free.
    async fn look_again(&self) {
        // Who becomes behind does so by time alone.
        let _ = tokio::time::timeout(LOOK_AGAIN, self.freed.notified()).await;
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
        self.change_to(share, client, false)
    }

    fn change_to(&self, share: usize, client: IpAddr, rests: bool) -> bool {
        let (places, sign) = (&self.0.places, self.0.sign.clone());
        let after = Held { rests, ..Held::new(share, client, places.now(), sign) };
        let changes = places.table().change(self.0.number, after);
        if changes {
            places.freed.notify_one();
        }
        changes
    }

    /// Changes as soon as there is a place, within that time. Whether there was one. It keeps its old place meanwhile, as long as nobody comes for whom it makes way there.
    pub async fn changed(&self, share: usize, client: IpAddr, within: Duration) -> bool {
        if self.change(share, client) {
            return true;
        }
        let end = Instant::now() + within;
        let _waiting = Waiting::new(&self.0.sign);
        loop {
            if self.0.sign.is_gone.load(Ordering::Acquire) || Instant::now() >= end {
                return false;
            }
            self.0.places.look_again().await;
            if self.change(share, client) {
                return true;
            }
        }
    }

    /// Changes back to a place of a share by age, in which nothing is asked for. If there is none, it makes way.
    pub fn rest(&self, share: usize, client: IpAddr) {
        if !self.change_to(share, client, true) {
            self.0.places.table().leave(self.0.number);
            self.0.sign.makes_way();
        }
    }

    /// Whether it has made way and got no other place since.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.sign.is_gone.load(Ordering::Acquire)
    }

    /// Returns when it has to make way: whoever holds it ends. It is no longer counted. A request that waits in [`Place::changed`] is told there.
    pub async fn makes_way(&self) {
        let sign = &self.0.sign;
        loop {
            sign.makes_way.notified().await;
            if sign.is_gone.load(Ordering::Acquire) && !sign.is_waiting.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Its client is waited for.
    pub fn awaits(&self) {
        self.0.sign.awaits(self.0.places.now());
    }

    /// So many bytes have come from its client.
    pub fn comes(&self, bytes: usize) {
        self.0.sign.pace().earns(bytes, AHEAD, self.0.places.now());
    }

    /// So many bytes are on their way to its client. What the system has taken nobody has read yet: it earns little.
    pub fn goes(&self, bytes: usize) {
        self.0.sign.pace().earns(bytes, BY_LEAVE, self.0.places.now());
    }

    /// Whether somebody else than the reader of its connection tells how its client gets on.
    pub(crate) fn has_teller(&self) -> bool {
        self.0.sign.is_told_apart.load(Ordering::Relaxed)
    }

    /// Somebody else than the reader of its connection tells from now on, until it changes, how its client gets on.
    pub(crate) fn is_told_apart(&self) {
        self.0.sign.is_told_apart.store(true, Ordering::Relaxed);
    }

    /// Its client has done what was waited for.
    pub fn goes_on(&self) {
        self.0.sign.goes_on();
    }
}

/// A request waits, until this is dropped.
struct Waiting<'a>(&'a Sign);

impl<'a> Waiting<'a> {
    fn new(sign: &'a Sign) -> Self {
        sign.is_waiting.store(true, Ordering::Release);
        Self(sign)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.is_waiting.store(false, Ordering::Release);
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
    /// It has had what it came for, and keeps its connection.
    rests: bool,
    sign: Arc<Sign>,
}

impl Table {
    fn new(shares: Vec<Share>) -> Self {
        let taken = vec![0; shares.len()];
        Self { shares, taken, next: 0, held: BTreeMap::new(), clients: BTreeMap::new(), networks: BTreeMap::new() }
    }

    fn enter(&mut self, share: usize, client: IpAddr, now: Duration) -> Result<(u64, Arc<Sign>), Full> {
        let held = Held::new(share, client, now, Arc::default());
        self.make_room(&held, now)?;
        let (number, sign) = (self.next, held.sign.clone());
        self.next += 1;
        self.put(number, held);
        Ok((number, sign))
    }

    /// One that has made way comes as anybody else.
    fn change(&mut self, number: u64, after: Held) -> bool {
        let before = self.leave(number);
        let changes = self.make_room(&after, after.entered).is_ok();
        if changes {
            after.sign.begins();
        }
        if let Some(held) = if changes { Some(after) } else { before } {
            self.put(number, held);
        }
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
    fn make_room(&mut self, newcomer: &Held, now: Duration) -> Result<(), Full> {
        let share = *self.shares.get(newcomer.share).ok_or(Full::OfOne)?;
        let (network, own) = self.counts(newcomer);
        let is_limited = share.of_loopback || !is_loopback(newcomer.client);
        let number = if is_limited && share.of_one.is_some_and(|most| own >= most) {
            self.behind(newcomer, share, now, |held| held.client == newcomer.client).ok_or(Full::OfOne)?
        } else if self.taken[newcomer.share] < share.places {
            return Ok(());
        } else {
            let may = |held: &Held| self.counts(held).0 > network || held.network == newcomer.network;
            let number = self.behind(newcomer, share, now, may).or_else(|| self.latest_of_most(newcomer, share));
            number.ok_or(Full::OfAll)?
        };
        self.leave(number).ok_or(Full::OfAll)?.sign.makes_way();
        Ok(())
    }

    fn in_share(&self, share: usize) -> impl Iterator<Item = (&u64, &Held)> {
        self.held.iter().filter(move |(_, held)| held.share == share)
    }

    /// How many places its network holds, and its client.
    fn counts(&self, held: &Held) -> (usize, usize) {
        let network = self.networks.get(&(held.share, held.network)).copied().unwrap_or_default();
        (network, self.clients.get(&(held.share, held.client)).copied().unwrap_or_default())
    }

    /// Of those that `may` make way for `newcomer`, who is behind.
    fn behind(&self, newcomer: &Held, share: Share, now: Duration, may: impl Fn(&Held) -> bool) -> Option<u64> {
        let late = self.in_share(newcomer.share).filter(|(_, held)| may(held)).filter_map(|(number, held)| {
            let late = match share.by_age {
                true => Some(micros(now.saturating_sub(held.entered))).filter(|late| *late >= micros(AT_FIRST)),
                false => held.sign.late(now),
            }?;
            // Who has been served goes before who has not, and takes nobody's place who has not.
            (held.rests || !newcomer.rests).then_some((self.counts(held), held.rests, late, *number))
        });
        let most = late.max_by_key(|(counts, served, late, number)| (*counts, *served, *late, u64::MAX - number));
        most.map(|(.., number)| number)
    }

    fn latest_of_most(&self, newcomer: &Held, share: Share) -> Option<u64> {
        // Where age decides, whoever has just come has its moment.
        if share.by_age {
            return None;
        }
        let own = self.counts(newcomer);
        let theirs = self.in_share(newcomer.share).map(|(number, held)| (self.counts(held), held.network, *number));
        let more = theirs.filter(|((network, client), whose, _)| {
            *network > own.0 + 1 || (*whose == newcomer.network && *client > own.1 + 1)
        });
        more.max_by_key(|(counts, _, number)| (*counts, *number)).map(|(.., number)| number)
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
        let (rests, client, network) = (false, DeviceId::from_ip(client), network(client));
        Self { share, client, network, entered, rests, sign }
    }
}

/// Whether it is this machine. IPv6's loopback address is in the unspecified /64.
fn is_loopback(client: DeviceId) -> bool {
    let ip = IpAddr::from(*client.as_bytes()).to_canonical();
    ip.is_loopback() || ip.is_unspecified()
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
            let (number, _) = self.table.enter(0, client, self.now).ok()?;
            Some((number, before.into_iter().filter(|number| !self.table.held.contains_key(number)).collect()))
        }

        fn fill(&mut self, clients: impl IntoIterator<Item = IpAddr>) {
            clients.into_iter().for_each(|client| assert!(self.enter(client).unwrap().1.is_empty()));
        }

        fn awaits(&self, number: u64) {
            self.table.held[&number].sign.awaits(self.now);
        }

        fn comes(&self, number: u64, bytes: usize) {
            self.table.held[&number].sign.pace().earns(bytes, AHEAD, self.now);
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
    fn who_brings_a_byte_at_a_time_is_behind_and_who_brings_its_kilobytes_is_not() {
        let mut bench = Bench::new(Share::of(2));
        bench.fill([far(1), far(2)]);
        for _ in 0..100 {
            bench.awaits(0);
            bench.awaits(1);
            bench.now += SECOND / 10;
            bench.comes(0, 1);
            bench.comes(1, 4096);
        }
        bench.awaits(0);
        bench.awaits(1);
        assert_eq!(bench.enter(far(3)).unwrap().1, [0]);
        bench.now -= SECOND + Duration::from_micros(1);
        assert_eq!(bench.enter(far(4)), None, "it has been waited for a second, and has earned as much");
        bench.now -= SECOND - Duration::from_micros(1);
        assert_eq!(bench.enter(far(4)).unwrap().1, [1]);
    }

    #[test]
    fn who_has_just_come_has_its_moment_and_who_only_takes_earns_a_tenth_of_a_second() {
        let mut bench = Bench::new(Share::of(2));
        bench.fill([far(1), far(2)]);
        bench.awaits(0);
        let sign = bench.table.held[&1].sign.clone();
        sign.pace().earns(1 << 20, BY_LEAVE, bench.now);
        bench.awaits(1);
        let at = |bench: &mut Bench, after: Duration| {
            bench.table.make_room(&Held::new(0, far(9), bench.now + after, Arc::default()), bench.now + after)
        };
        assert_eq!(at(&mut bench, AT_FIRST - Duration::from_micros(1)), Err(Full::OfAll));
        assert_eq!(at(&mut bench, AT_FIRST), Ok(()));
        assert!(!bench.table.held.contains_key(&0));
        bench.fill([far(3)]);
        bench.now -= SECOND;
        assert_eq!(at(&mut bench, BY_LEAVE - Duration::from_micros(1)), Err(Full::OfAll));
        assert_eq!(at(&mut bench, BY_LEAVE), Ok(()));
        assert!(!bench.table.held.contains_key(&1));
    }

    #[test]
    fn on_one_lan_who_holds_most_makes_way_for_who_holds_two_less() {
        let mut bench = Bench::new(Share::of(4));
        let host = |host| IpAddr::from([192, 168, 0, host]);
        bench.fill([host(1), host(1), host(1), host(2)]);
        assert_eq!(bench.enter(host(3)).unwrap().1, [2], "its latest");
        assert_eq!(bench.enter(host(4)).unwrap().1, [1]);
        assert_eq!(bench.enter(host(5)), None, "one each, and nobody is behind");
        bench.awaits(3);
        assert_eq!(bench.enter(host(5)).unwrap().1, [3]);
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
    fn who_has_been_served_goes_before_who_waits_and_takes_nobodys_place_who_does() {
        let mut bench = Bench::new(Share::by_age(3));
        bench.fill((1..4).map(far));
        let rests = |bench: &mut Bench, number: u64| {
            bench.now += SECOND;
            let sign = bench.table.held[&number].sign.clone();
            let client = far(u8::try_from(number).unwrap() + 1);
            assert!(bench.table.change(number, Held::new(1, client, bench.now, sign.clone())));
            let after = Held { rests: true, ..Held::new(0, client, bench.now, sign) };
            (bench.table.leave(number).is_some(), bench.table.make_room(&after, bench.now).is_ok(), after)
        };
        let (_, has_room, after) = rests(&mut bench, 2);
        assert!(has_room);
        bench.table.put(2, after);
        assert_eq!(bench.enter(far(9)).unwrap().1, [2], "though it is the latest");
        let (_, has_room, _) = rests(&mut bench, 1);
        assert!(has_room, "its own place is free");
        assert!(bench.enter(far(8)).unwrap().1.is_empty());
        let late = Held { rests: true, ..Held::new(0, far(7), bench.now, Arc::default()) };
        assert_eq!(bench.table.make_room(&late, bench.now), Err(Full::OfAll));
    }

    #[test]
    fn a_change_frees_the_place_before_and_who_has_made_way_comes_as_anybody_else() {
        let mut bench = Bench::new(Share::by_age(2));
        bench.fill([far(1), far(2)]);
        let signs = [0, 1].map(|number| bench.table.held[&number].sign.clone());
        assert!(bench.table.change(0, Held::new(1, far(7), bench.now, signs[0].clone())));
        assert_eq!(bench.table.taken, [1, 1]);
        bench.fill([far(3)]);
        assert_eq!(bench.enter(far(4)).unwrap().1, [1]);
        assert!(signs[1].is_gone.load(Ordering::Relaxed));
        assert!(bench.table.change(1, Held::new(1, far(2), bench.now, signs[1].clone())));
        assert!(!signs[1].is_gone.load(Ordering::Relaxed));
        assert_eq!(bench.table.taken, [2, 2]);
        bench.table.leave(0);
        bench.table.leave(1);
        assert_eq!(
            (bench.table.taken.clone(), bench.table.clients.len(), bench.table.networks.len()),
            (vec![2, 0], 2, 2)
        );
    }

    #[test]
    fn a_client_with_all_that_one_may_have_makes_way_for_itself() {
        let mut bench = Bench::new(Share { of_one: Some(2), ..Share::of(5) });
        bench.fill([far(2), far(1), far(1)]);
        bench.awaits(0);
        bench.now += SECOND;
        assert_eq!(bench.enter(far(1)), None, "none of its own is behind");
        bench.awaits(2);
        bench.now += SECOND;
        bench.awaits(1);
        assert_eq!(bench.enter(far(1)).unwrap().1, [2], "its own, though another has been behind for longer");
        assert_eq!(bench.enter(far(1)).unwrap().1, [1]);
        assert_eq!(bench.enter(far(1)), None);
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
