//! Who has a place among many, who makes way, and who waits: [`Places`].
//!
//! There are shares of places, one for each kind of use, so that no kind takes another's. While a share has room, whoever comes gets a place. When it is full,
//! one makes way:
//!
//! 1. Of those that are *behind* (their client is waited for, and has brought less than 32 KiB a second while it was), the one whose network, and in it whose client, has most
//!    against it; of these, who is behind most. Who brings more may be silent for a while: up to a second.
//! 2. If nobody is behind: the latest one of the network that holds most, if that is two more than the newcomer's, and more than a 64th of the places; in the newcomer's own
//!    network, of the client that holds most, if that is two more than the newcomer.
//! 3. Else the newcomer waits, or is refused.
//!
//! What is against a client are the places that it holds, and how it has used others before: `Standings` says how long that is remembered.
//!
//! The first 64 of a share begin as they come. Beyond these one more begins every 2 ms, 32 at once, and whenever one has come to its end; of who is known for having had to make way, one every 50 ms: what begins costs a server most, and a crowd that
//! begins all at once would take the cores from everybody.
//!
//! In a share *by age* the oldest makes way, of who has most against it, once it has been there for 20 ms; if nobody has, and more come, after 2 ms, but not for who is known for having had
//! to. Whoever has had what it came for goes first, and comes back only for another such. A handshake of TLS has a second once its ClientHello has come.
//!
//! A request that finds no place waits for one ([`Place::changed`]); those with least against them come first, of these who has waited longest, or, once half of the turns are
//! taken or 64 wait, who has come last. It leaves the place that its connection had: so no newcomer takes its turn. So many wait at most; one more, and who has most against it is told to
//! come again, of equals who has waited longest. So it is, of those with long heads, where the heads of all that wait would take too much ([`Share::heads`]).
//!
//! Whoever is served while others wait ends its connection with the answer, and comes again as they did: so one connection brings no more requests than another in the same time.
//!
//! A client that holds all that one client may is treated so among its own: of these, the one that has been behind the longest makes way, or the newcomer is refused. So what
//! shares an address with many silent connections gets its turn.
//!
//! Nobody makes way for another network that holds as much as its own and is known for nothing better. So whoever moves is safe from others as long as it holds no more than they do,
//! and one address, or one network, is in the way of itself alone.
//!
//! A client is an IPv4 address or an IPv6 /64; a network is an IPv4 /24 or an IPv6 /48.
//!
//! Bounds: an entry of some 200 bytes for each place that is taken or waited for. Who makes way is found by looking at each of the share once.
//!
//! ```text
//!  places.rs   Places, Place: clock, lock, and who is woken
//!   ├─ table      who holds, waits, makes way: a pure machine
//!   ├─ pace       how a client gets on
//!   └─ standing   how it has used places before
//! ```

mod pace;
mod share;
mod standing;
mod table;

pub use share::Share;
pub(crate) use table::network;

use pace::Sign;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use table::{Asked, Full, Held, Stage, Table};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How soon it is looked again for those that wait. Who becomes behind does so by time alone.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Places in shares. Shares are known by their number.
#[derive(Debug)]
pub struct Places {
    began: Instant,
    table: Mutex<Table>,
    /// A place has become free, for whoever has not come in yet.
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
        self.places.table.lock().leave(self.number, self.places.now());
        self.places.freed.notify_one();
    }
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
        let (number, sign) = self.table.lock().enter(share, client, now)?;
        Ok(Place(Arc::new(Holding { places: self.clone(), number, sign })))
    }

    /// A place in a share by age, once somebody has been there for a moment; none for a client that has all that it may, or is known for having had to make way.
    pub async fn entered(self: &Arc<Self>, share: usize, client: IpAddr) -> Option<Place> {
        loop {
            match self.try_enter(share, client) {
                Ok(place) => return Some(place),
                Err(Full::One | Full::Known) => return None,
                // Who has been there for a moment is so by time alone.
                Err(Full::All) => drop(tokio::time::timeout(LOOK_AGAIN, self.freed.notified()).await),
            }
        }
    }

    /// A place in a share for the client at that address as soon as there is one, within that time. Others wait with it as [requests](Place::changed) do.
    pub async fn entered_within(self: &Arc<Self>, share: usize, client: IpAddr, within: Duration) -> Option<Place> {
        let (place, asked) = {
            let (mut table, sign) = (self.table.lock(), Arc::<Sign>::default());
            let number = table.number();
            let asked = table.ask(number, Held::new(share, client, self.now(), Stage::New, sign.clone()));
            (Place(Arc::new(Holding { places: self.clone(), number, sign })), asked)
        };
        match asked {
            Asked::Has => Some(place),
            Asked::Waits => place.has_turn(within).await.then_some(place),
            Asked::Refused => None,
        }
    }

    /// Looks again and again as long as a request waits.
    fn keep_looking(self: &Arc<Self>) {
        if std::mem::replace(&mut self.table.lock().is_looking, true) {
            return;
        }
        let places = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_AGAIN).await;
                let Some(places) = places.upgrade() else { return };
                let now = places.now();
                if !places.table.lock().look(now) {
                    return;
                }
            }
        });
    }

    /// How many connections there may be in all: with a place, or waiting for one.
    pub fn total(&self) -> usize {
        self.table.lock().shares.iter().map(|share| share.places + share.waits).sum()
    }

    /// How many places of a share are taken.
    pub fn taken(&self, share: usize) -> usize {
        self.table.lock().taken.get(share).copied().unwrap_or_default()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Place {
    /// Changes to a place of another share, for the client at that address, as soon as there is one, within that time. Whether there was one.
    ///
    /// A request that waits has no place: it has left the one before. Only if as many wait as may, it keeps that.
    pub async fn changed(&self, share: usize, client: IpAddr, within: Duration) -> bool {
        let Holding { places, number, sign } = &*self.0;
        let asked = places.table.lock().ask(*number, Held::new(share, client, places.now(), Stage::Asks, sign.clone()));
        if asked == Asked::Refused {
            sign.is_refused.store(true, Ordering::Relaxed);
            return false;
        }
        places.freed.notify_one();
        asked == Asked::Has || self.has_turn(within).await
    }

    /// Waits for its turn, for so long at most. Whether it has come.
    async fn has_turn(&self, within: Duration) -> bool {
        let Holding { places, number, sign } = &*self.0;
        places.keep_looking();
        let _waiting = Waiting(&self.0);
        let turn = async {
            loop {
                if let Some(holds) = places.table.lock().holds(*number) {
                    return holds;
                }
                sign.turn.notified().await;
            }
        };
        tokio::time::timeout(within, turn).await.unwrap_or(false)
    }

    /// Changes back to a place of a share by age, in which nothing is asked for. If there is none, it makes way.
    pub fn rest(&self, share: usize, client: IpAddr) {
        let Holding { places, number, sign } = &*self.0;
        let (mut table, now) = (places.table.lock(), places.now());
        let rests = table.change(*number, Held::new(share, client, now, Stage::Rests, sign.clone()));
        if !rests {
            table.leave(*number, now);
        }
        drop(table);
        if !rests {
            sign.makes_way();
        }
        places.freed.notify_one();
    }

    /// Whether its connection ends with the answer to the request that it has: others wait for its place, or there was none for the request.
    pub(crate) fn ends_with_answer(&self) -> bool {
        self.0.sign.is_refused.load(Ordering::Relaxed) || self.0.places.table.lock().is_awaited(self.0.number)
    }

    /// Whether it has made way and got no other place since.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.sign.is_gone.load(Ordering::Acquire)
    }

    /// Returns when it has to make way, also to several who wait: whoever holds it ends. It is no longer counted. A request that waits in [`Place::changed`] is told there, too.
    pub async fn makes_way(&self) {
        loop {
            let mut told = pin!(self.0.sign.makes_way.notified());
            told.as_mut().enable();
            if self.is_gone() {
                return;
            }
            told.await;
        }
    }

    /// Its next request has a head that takes so many bytes of memory.
    pub fn brings(&self, head_bytes: usize) {
        self.0.sign.head_bytes.store(head_bytes, Ordering::Relaxed);
    }

    /// Something is waited for that its client is to send.
    pub fn awaits(&self) {
        self.0.sign.awaits(self.0.places.now(), true);
    }

    /// Its client has begun a handshake of TLS: for the rest of that it has more time than who has said nothing, since it takes a way there and back.
    pub(crate) fn shakes_hands(&self) {
        self.0.sign.shakes_hands(self.0.places.now());
    }

    /// Its client is waited for to take what goes to it.
    pub fn awaits_reader(&self) {
        self.0.sign.awaits(self.0.places.now(), false);
    }

    /// So many bytes have come from its client.
    pub fn comes(&self, bytes: usize) {
        self.0.sign.pace().comes(bytes, self.0.places.now());
    }

    /// So many bytes are on their way to its client. It is waited for still if it is to send something.
    pub fn goes(&self, bytes: usize) {
        self.0.sign.pace().goes(bytes, self.0.places.now());
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

/// Returns when that place has to make way ([`Place::makes_way`]); without one, never.
pub async fn makes_way(place: Option<&Place>) {
    match place {
        Some(place) => place.makes_way().await,
        None => std::future::pending().await,
    }
}

/// A request waits, until this is dropped.
struct Waiting<'a>(&'a Holding);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.places.table.lock().gives_up(self.0.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of a host in a network of its own.
    fn far(n: u8) -> IpAddr {
        [10, 0, n, 1].into()
    }

    const HOUR: Duration = Duration::from_secs(3600);

    /// A share by age, and one of a single place for which two may wait.
    fn places() -> Arc<Places> {
        Places::new(vec![Share::by_age(9), Share::of(1).waits(2)])
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_gets_the_place_that_is_left_and_waits_so_long_and_no_longer() {
        let places = places();
        let [one, two] = [1, 2].map(|n| places.enter(0, far(n)).unwrap());
        assert!(one.changed(1, far(1), HOUR).await);
        let begun = Instant::now();
        assert!(!two.changed(1, far(2), HOUR).await);
        assert_eq!((begun.elapsed(), places.taken(0)), (HOUR, 0), "it has no place any more");
        let (changed, ()) = tokio::join!(two.changed(1, far(2), HOUR), async { drop(one) });
        assert!(changed && Instant::now() - begun < HOUR + LOOK_AGAIN);
        two.rest(0, far(2));
        assert_eq!((places.taken(0), places.taken(1)), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_becomes_behind_by_time_alone_makes_way_for_who_waits() {
        let places = places();
        let [one, two] = [1, 2].map(|n| places.enter(0, far(n)).unwrap());
        assert!(one.changed(1, far(1), HOUR).await);
        one.awaits();
        let begun = Instant::now();
        let (changed, ()) = tokio::join!(two.changed(1, far(2), HOUR), one.makes_way());
        assert!(changed && one.is_gone() && begun.elapsed() <= pace::AT_FIRST + LOOK_AGAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_known_for_falling_behind_queues_last_and_makes_way_first() {
        let places = places();
        let [holder, known, known_too, new] = [1, 2, 2, 3].map(|n| places.enter(0, far(n)).unwrap());
        assert!(known.changed(1, far(2), HOUR).await);
        known.awaits();
        tokio::time::sleep(pace::AT_FIRST).await;
        assert!(holder.changed(1, far(1), HOUR).await && known.is_gone());
        let order = Mutex::new(Vec::new());
        let waits = async |place: &Place, n: u8| {
            let changed = place.changed(1, far(n), HOUR).await;
            order.lock().push((n, changed));
            place.rest(0, far(n));
        };
        let another = places.enter(0, far(4)).unwrap();
        tokio::join!(waits(&known, 2), waits(&known_too, 2), waits(&new, 3), waits(&another, 4), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            holder.rest(0, far(1));
        });
        assert_eq!(*order.lock(), [(2, false), (2, false), (4, true), (3, true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answered_connection_goes_on_unless_others_wait_or_it_had_no_place() {
        let places = places();
        let [one, two, three, four] = [1, 2, 3, 4].map(|n| places.enter(0, far(n)).unwrap());
        assert!(one.changed(1, far(1), HOUR).await && !one.ends_with_answer());
        let wait = async |place: &Place, n| assert!(!place.changed(1, far(n), Duration::from_secs(1)).await);
        tokio::join!(wait(&two, 2), wait(&three, 3), async {
            tokio::task::yield_now().await;
            assert!(one.ends_with_answer() && !four.changed(1, far(4), HOUR).await);
            assert!(four.ends_with_answer(), "it was refused");
        });
        assert!(!one.ends_with_answer() && two.ends_with_answer());
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_crowd_of_equals_that_is_longer_than_may_wait_the_last_are_served() {
        let places = Places::new(vec![Share::by_age(99), Share::of(1).waits(4)]);
        let holder = places.enter(0, far(0)).unwrap();
        assert!(holder.changed(1, far(0), HOUR).await);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut crowd = tokio::task::JoinSet::new();
        for n in 1..=9 {
            let (places, order) = (places.clone(), order.clone());
            crowd.spawn(async move {
                tokio::time::sleep(Duration::from_millis(n.into())).await;
                let place = places.enter(0, far(n)).unwrap();
                let changed = place.changed(1, far(n), HOUR).await;
                order.lock().push((n, changed));
            });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(holder);
        crowd.join_all().await;
        let told = (1..=5).map(|n| (n, false));
        // Of the four that wait the last two go first; then there is no crowd any more.
        let served = [9, 8, 6, 7].map(|n| (n, true));
        assert_eq!(*order.lock(), told.chain(served).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waits_no_longer() {
        let places = places();
        let [one, two, three] = [1, 2, 3].map(|n| places.enter(0, far(n)).unwrap());
        assert!(one.changed(1, far(1), HOUR).await);
        let gives_up = tokio::time::timeout(Duration::from_secs(1), two.changed(1, far(2), HOUR)).await;
        assert!(gives_up.is_err());
        drop(one);
        assert_eq!(places.taken(1), 0);
        assert!(three.changed(1, far(3), HOUR).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!places.table.lock().is_looking, "nobody waits");
    }
}
