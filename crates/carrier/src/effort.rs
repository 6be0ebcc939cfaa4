//! How much of a processor a server's connections of QUIC take: [`Effort`].
//!
//! A peer may have quinn-proto 0.11 work for milliseconds on one packet: it sorts what came before its turn again and again, where frames have a byte each. Nothing in QUIC bounds that. So
//! a connection's task is measured in processor time, which others do not lengthen. If it takes far more for each datagram than any honest one, the connection is closed, and its
//! address is [shunned](Shunned) for a while.

use hoop_units::AddressKey;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

/// A connection is judged each time that it has taken so much of a processor.
const JUDGED_EVERY: Duration = Duration::from_millis(100);

/// What it may take for each datagram that came or went: an honest one takes some microseconds, and a few times as much without optimisation.
const PER_DATAGRAM: Duration = Duration::from_micros(150);

/// A handshake may take so much, which is ten times as much as an honest one without optimisation.
const HANDSHAKE_MAX: Duration = Duration::from_millis(30);

/// How many datagrams are handled before others have their turn, of a handshake and afterwards. tokio has a task take [`BUDGET`].
const TURNS: [usize; 2] = [8, 32];

/// What a task of tokio's takes out of its channels at once.
const BUDGET: usize = 128;

/// How long an address is shunned whose connection took too much: then it may have 100 ms of a processor again.
pub(crate) const SHUNNED: Duration = Duration::from_secs(60);

/// Addresses that are shunned at once, some 40 bytes each. Of more, any makes way.
const SHUNNED_MAX: usize = 4_096;

/// Says whether a connection may go on that has taken so much since it was judged last; none: it is looked at, as each time that it has worked.
type Judge = Box<dyn FnMut(Option<Duration>) -> bool + Send>;

/// Who judges a connection. Without a judge it ends.
#[derive(Default)]
pub(crate) struct Effort {
    judge: Mutex<Option<Judge>>,
    has_shaken_hands: AtomicBool,
}

impl fmt::Debug for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effort").finish_non_exhaustive()
    }
}

impl Effort {
    /// The handshake is under way. If it takes too much, this is called, and the connection's task ends.
    pub(crate) fn handshake(&self, mut is_too_much: impl FnMut() + Send + 'static) {
        *self.judge.lock() = Some(Box::new(move |spent| {
            spent.iter().for_each(|_| is_too_much());
            spent.is_none()
        }));
    }

    /// The handshake has ended well. The judge gets what the connection has taken, or nothing where it is to look at it. The connection's task goes on if it returns true.
    pub(crate) fn judge_by(&self, judge: impl FnMut(Option<Duration>) -> bool + Send + 'static) {
        *self.judge.lock() = Some(Box::new(judge));
        self.has_shaken_hands.store(true, Ordering::Relaxed);
    }

    fn may_go_on(&self, spent: Option<Duration>) -> bool {
        self.judge.lock().as_mut().is_some_and(|judge| judge(spent))
    }
}

/// Whether so many datagrams may take so much.
pub(crate) fn is_fair(spent: Duration, datagrams: u64) -> bool {
    spent <= PER_DATAGRAM.saturating_mul(u32::try_from(datagrams).unwrap_or(u32::MAX))
}

/// Frames about connection ids that a client may send besides one for each of its datagrams. quinn-proto 0.11 tells the endpoint of each, also of an id that was retired before, and the
/// endpoint's list of that has no bound: a packet may have 700 of them (RFC 9000 §19.15, §19.16).
const ID_FRAMES: u64 = 64;

/// Whether a client has sent so many frames about connection ids, in so many datagrams, that they are there to be worked on.
pub(crate) const fn is_flood(id_frames: u64, datagrams: u64) -> bool {
    id_frames > datagrams.saturating_add(ID_FRAMES)
}

/// A connection's task, measured.
pub(crate) struct Measured<D> {
    driver: D,
    effort: Arc<Effort>,
    spent: Duration,
}

impl<D> Measured<D> {
    pub(crate) const fn new(driver: D, effort: Arc<Effort>) -> Self {
        Self { driver, effort, spent: Duration::ZERO }
    }
}

impl<D: Future<Output = ()> + Unpin> Future for Measured<D> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let has_shaken_hands = self.effort.has_shaken_hands.load(Ordering::Relaxed);
        for _ in TURNS[usize::from(has_shaken_hands)]..BUDGET {
            if pin!(consume_budget()).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        let begun = taken();
        let polled = Pin::new(&mut self.driver).poll(cx);
        self.spent += taken().saturating_sub(begun);
        let most = if has_shaken_hands { JUDGED_EVERY } else { HANDSHAKE_MAX };
        let spent = (self.spent >= most).then(|| std::mem::take(&mut self.spent));
        if polled.is_pending() && (spent.is_some() || has_shaken_hands) && !self.effort.may_go_on(spent) {
            return Poll::Ready(());
        }
        polled
    }
}

/// What this thread has taken of a processor.
fn taken() -> Duration {
    let taken = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(taken.tv_sec.try_into().unwrap_or(0), taken.tv_nsec.try_into().unwrap_or(0))
}

/// Addresses (of IPv6: /64s) whose connections took too much.
#[derive(Clone, Default, Debug)]
pub(crate) struct Shunned(Arc<Mutex<HashMap<AddressKey, Instant>>>, Arc<Mutex<Option<Instant>>>);

impl Shunned {
    /// Somebody took too much who had not shown his address: others have to show theirs for a while (RFC 9000 §8.1.2).
    pub(crate) fn alarm(&self) {
        *self.1.lock() = Some(Instant::now());
    }

    pub(crate) fn is_alarmed(&self) -> bool {
        self.1.lock().is_some_and(|since| since.elapsed() < SHUNNED)
    }

    pub(crate) fn add(&self, peer: IpAddr) {
        let (mut shunned, now) = (self.0.lock(), Instant::now());
        if shunned.len() >= SHUNNED_MAX {
            shunned.retain(|_, since| now.saturating_duration_since(*since) < SHUNNED);
        }
        if shunned.len() >= SHUNNED_MAX
            && let Some(any) = shunned.keys().next().copied()
        {
            shunned.remove(&any);
        }
        shunned.insert(AddressKey::from_ip(peer), now);
    }

    pub(crate) fn contains(&self, peer: IpAddr) -> bool {
        let mut shunned = self.0.lock();
        let key = AddressKey::from_ip(peer);
        let Some(since) = shunned.get(&key) else { return false };
        let is_shunned = since.elapsed() < SHUNNED;
        if !is_shunned {
            shunned.remove(&key);
        }
        is_shunned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicU32;

    fn works(time: Duration) {
        let begun = taken();
        while taken() - begun < time {
            std::hint::black_box(0);
        }
    }

    /// A task that works for a millisecond each time, until it is ended. How often it did.
    async fn works_until_ended(begin: impl FnOnce(&Effort)) -> u32 {
        let turns = Arc::<AtomicU32>::default();
        let counted = turns.clone();
        let driver = Box::pin(poll_fn(move |cx| {
            works(Duration::from_millis(1));
            counted.fetch_add(1, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        let effort = Arc::<Effort>::default();
        begin(&effort);
        tokio::spawn(Measured::new(driver, effort)).await.unwrap();
        turns.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_handshake_that_takes_too_much_is_ended() {
        let told = Arc::<AtomicU32>::default();
        let tells = told.clone();
        let turns = works_until_ended(|effort| {
            effort.handshake(move || {
                tells.fetch_add(1, Ordering::Relaxed);
            });
        });
        let turns = turns.await;
        assert!((1..=30).contains(&turns) && told.load(Ordering::Relaxed) == 1, "{turns}");
    }

    #[tokio::test]
    async fn who_takes_more_than_its_datagrams_are_worth_is_ended_and_others_go_on() {
        let mut asked = 0;
        let judge = move |spent: Option<Duration>| {
            let Some(spent) = spent else { return true };
            asked += 1;
            // A thousand datagrams the first time, and ten after that.
            is_fair(spent, if asked == 1 { 1_000 } else { 10 })
        };
        let turns = works_until_ended(|effort| effort.judge_by(judge)).await;
        assert!((2..=200).contains(&turns), "{turns}");
        assert!(is_fair(Duration::from_micros(1_500), 10) && !is_fair(Duration::from_micros(1_501), 10));
        assert!(!is_fair(JUDGED_EVERY, 0) && is_fair(JUDGED_EVERY, u64::MAX));
    }

    #[tokio::test]
    async fn a_flood_of_frames_about_connection_ids_is_seen_as_soon_as_it_was_worked_on() {
        let turns = works_until_ended(|effort| effort.judge_by(|spent| spent.is_some())).await;
        assert_eq!(turns, 1);
        // Who moves a hundred times retires an id each time, in a packet of its own.
        assert!(!is_flood(100, 100) && !is_flood(64, 0) && is_flood(700, 1) && is_flood(22_400, 32));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_shunned_for_a_while() {
        let shunned = Shunned::default();
        shunned.alarm();
        assert!(shunned.is_alarmed());
        let ip = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(number));
        shunned.add(ip(1));
        assert!(shunned.contains(ip(1)) && !shunned.contains(ip(2)));
        tokio::time::advance(SHUNNED).await;
        assert!(!shunned.contains(ip(1)) && shunned.0.lock().is_empty() && !shunned.is_alarmed());
        (0..2 * SHUNNED_MAX as u32).for_each(|number| shunned.add(ip(number)));
        assert_eq!(shunned.0.lock().len(), SHUNNED_MAX);
    }
}
