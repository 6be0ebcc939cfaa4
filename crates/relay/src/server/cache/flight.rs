//! One request to an origin for all who ask for the same at once: [`Flight`], of which there are some in [`Flights`].
//!
//! Whoever asks first has the request made, and others wait for what comes. What is for all of them, and fresh, they get as it comes; a body whose length is not known they get once it is
//! whole. What is not for them they ask for themselves (RFC 9111 §4). Nobody waits for another for longer than [`PATIENCE`] without anything to show for it, and nobody for a request of a device whose own requests wait
//! for each other ([`Seat::came`]). Where somebody has waited so long in vain, no other device waits for that one for a minute ([`ALONE_FOR`]): a device can keep its own requests from getting on.
//!
//! A request goes on while anybody waits for it, whoever that is, and ends with the last.

use super::draft::Draft;
use super::entry::Entry;
use super::key::{Asker, Digest};
use super::policy::Policy;
use super::record::Record;
use super::status::Outcome;
use crate::server::fetch::Source;
use hoop_endpoint::DeviceId;
use http::{HeaderMap, HeaderValue, response};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// So long one waits for another's answer to begin, or for one without a length to be whole: as a browser waits before it dials another address.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Requests whose answers may be kept, at once. Others are made without the cache.
const FLIGHTS_MAX: usize = 1_024;

/// A device may have one in so many of those that are free.
const FLIGHTS_PART: usize = 4;

/// So often it is looked whether the device that asked first is behind.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// So long after an answer that was for one alone, nobody waits for another's answer to the same request, and after a wait in vain no other device for the one that was waited for.
const ALONE_FOR: Duration = Duration::from_secs(60);

/// Requests, and devices, of which that is known. When there are more, those that it no longer holds for are forgotten, or else all.
const ALONE_MAX: usize = 4_096;

/// What an origin has answered.
#[derive(Clone, Debug)]
pub(super) enum Came {
    /// Nothing: the code that says why.
    Failed(u64),
    /// What is not kept: it is for whoever asked first.
    Passed(Arc<Mutex<Option<(response::Parts, Source)>>>),
    /// That what is there is as it was, or an error instead of which it is given. `cookies` are for whoever asked first.
    Answered { entry: Arc<Entry>, outcome: Outcome, is_for_all: bool, cookies: Vec<HeaderValue> },
    /// What is kept.
    Comes(Arc<Coming>),
}

/// An answer that comes, and is kept once it is whole.
#[derive(Debug)]
pub(super) struct Coming {
    /// Whose request it is.
    pub leader: DeviceId,
    pub head: Head,
    pub record: Record,
    pub policy: Policy,
    /// How long the body is, where that was said.
    pub length: Option<u64>,
    pub draft: Draft,
    /// What is left of an answer that is not kept after all.
    pub rest: Mutex<Option<Source>>,
    /// What the origin answered, if it was asked whether something had changed.
    pub status: Option<u16>,
}

/// Status and fields of an answer.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub status: http::StatusCode,
    pub headers: HeaderMap,
}

/// A request that is made for one or more.
#[derive(Debug)]
pub(super) struct Flight {
    /// Who asked first.
    device: DeviceId,
    target: Digest,
    /// None: nobody may join it.
    key: Option<Digest>,
    pub came: watch::Sender<Option<Came>>,
    is_kept: Arc<AtomicBool>,
}

impl Flight {
    /// Whether what comes is kept: not if the URI has changed meanwhile.
    pub(super) fn is_kept(&self) -> impl Fn() -> bool + Send + 'static {
        let is_kept = self.is_kept.clone();
        move || is_kept.load(Ordering::SeqCst)
    }
}

/// Where one waits for an answer.
pub(super) struct Seat {
    came: watch::Receiver<Option<Came>>,
    /// Whose request it is, if it is another's.
    other: Option<DeviceId>,
    /// Until when one waits for it to begin, or to be whole where it has no length.
    until: Instant,
}

impl Seat {
    /// Whether the request is one's own.
    pub(super) const fn is_first(&self) -> bool {
        self.other.is_none()
    }

    /// Whose request was waited for in vain for as long as one waits.
    pub(super) fn waited_for(&self) -> Option<DeviceId> {
        self.other.filter(|_| self.until <= Instant::now())
    }

    /// Until when one waits for it.
    pub(super) const fn until(&self) -> Instant {
        self.until
    }

    /// What comes; it goes on as long as this is there. None: nothing does, or it is another's request, and it takes too long or its device is behind.
    pub(super) async fn came(&mut self, is_behind: impl Fn(DeviceId) -> bool) -> Option<Came> {
        let Some(other) = self.other else { return self.came.wait_for(Option::is_some).await.ok()?.clone() };
        loop {
            // A request may wait for its device's turn behind any number of slow ones, and brings nothing meanwhile.
            if self.came.borrow().is_none() && is_behind(other) {
                return None;
            }
            let left = self.until.saturating_duration_since(Instant::now());
            match timeout(LOOK_EVERY.min(left), self.came.wait_for(Option::is_some)).await {
                Ok(came) => return came.ok()?.clone(),
                Err(_) if left.is_zero() => return None,
                Err(_) => {}
            }
        }
    }
}

/// How somebody gets an answer.
pub(super) enum Boarded {
    /// By a request of their own, which others may join.
    Leads(Arc<Flight>, Seat),
    /// By another's.
    Joins(Seat),
    /// An entry has come meanwhile.
    Changed,
    Full,
}

/// The requests that are made.
#[derive(Default, Debug)]
pub(super) struct Flights {
    all: Mutex<Vec<Arc<Flight>>>,
    /// Requests whose answers are for one alone.
    passes: Alone<Digest>,
    /// Devices that others have waited for in vain.
    slow: Alone<DeviceId>,
}

/// What was found to be alone, and when.
#[derive(Debug)]
struct Alone<K>(Mutex<HashMap<K, Instant>>);

impl<K> Default for Alone<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Alone<K> {
    fn note(&self, key: K) {
        let (now, mut all) = (Instant::now(), self.0.lock());
        if all.len() >= ALONE_MAX {
            all.retain(|_, at| now.saturating_duration_since(*at) < ALONE_FOR);
        }
        if all.len() >= ALONE_MAX {
            all.clear();
        }
        all.insert(key, now);
    }

    fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }

    fn has(&self, key: &K) -> bool {
        self.0.lock().get(key).is_some_and(|at| at.elapsed() < ALONE_FOR)
    }
}

/// Who may wait for the same request: whoever sends no credentials, or the same.
fn key(asker: &Asker) -> Digest {
    let owner = if asker.has_credentials() { &asker.owner.credentials.0[..] } else { &[] };
    let device = if asker.has_credentials() { &asker.owner.device.0[..] } else { &[] };
    Digest::of([&asker.target.0[..], &asker.fields.0, owner, device])
}

impl Flights {
    /// Joins a request, or begins one. `is_alone`: no other's answer will do. `has_changed`: whether there is something in the cache now that was not there before.
    pub(super) fn board(&self, asker: &Asker, is_alone: bool, has_changed: impl Fn() -> bool) -> Boarded {
        let key = Some(key(asker)).filter(|key| !is_alone && !self.passes.has(key));
        let until = Instant::now() + PATIENCE;
        let mut all = self.all.lock();
        let may_wait = |device| device == asker.owner.device || !self.slow.has(&device);
        let is_same = |flight: &&Arc<Flight>| key.is_some() && flight.key == key && (flight.is_kept())();
        let joined = all.iter().find(|flight| is_same(flight) && may_wait(flight.device));
        if let Some(flight) = joined {
            return Boarded::Joins(Seat { came: flight.came.subscribe(), other: Some(flight.device), until });
        }
        if key.is_some() && has_changed() {
            return Boarded::Changed;
        }
        let of_device = || all.iter().filter(|flight| flight.device == asker.owner.device).count();
        if all.len() >= FLIGHTS_MAX || of_device() > (FLIGHTS_MAX - all.len()) / FLIGHTS_PART {
            return Boarded::Full;
        }
        let (came, seat) = watch::channel(None);
        let (device, is_kept) = (asker.owner.device, Arc::new(AtomicBool::new(true)));
        let flight = Arc::new(Flight { device, target: asker.target, key, came, is_kept });
        all.push(flight.clone());
        Boarded::Leads(flight, Seat { came: seat, other: None, until })
    }

    /// Nobody joins it any more.
    pub(super) fn land(&self, flight: &Arc<Flight>) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, flight));
    }

    /// Returns once nobody waits for it, and nobody can join it any more.
    pub(super) async fn abandoned(&self, flight: &Arc<Flight>) {
        loop {
            flight.came.closed().await;
            let mut all = self.all.lock();
            if flight.came.receiver_count() == 0 {
                all.retain(|other| !Arc::ptr_eq(other, flight));
                return;
            }
        }
    }

    /// What comes of a URI now is not kept: it has changed.
    pub(super) fn invalidate(&self, target: Digest) {
        let all = self.all.lock();
        all.iter()
            .filter(|flight| flight.target == target)
            .for_each(|flight| flight.is_kept.store(false, Ordering::SeqCst));
    }

    /// Answers to such a request are for one alone.
    pub(super) fn pass(&self, asker: &Asker) {
        self.passes.note(key(asker));
    }

    /// Answers to such a request are for all again.
    pub(super) fn pass_no_more(&self, asker: &Asker) {
        self.passes.forget(&key(asker));
    }

    /// Another device has waited for a request of this one in vain.
    pub(super) fn is_slow(&self, device: DeviceId) {
        self.slow.note(device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_endpoint::DeviceId;
    use http::Request;

    fn asker(uri: &str, device: u8, cookie: Option<&str>) -> Asker {
        let request = cookie.into_iter().fold(Request::get(uri), |request, cookie| request.header("cookie", cookie));
        Asker::of(&request.body(()).unwrap().into_parts().0, DeviceId([device; 20]))
    }

    fn board(flights: &Flights, asker: &Asker) -> Boarded {
        flights.board(asker, false, || false)
    }

    #[tokio::test]
    async fn whoever_asks_for_the_same_joins_until_nobody_waits() {
        let flights = Flights::default();
        let first = asker("http://a/", 1, None);
        let Boarded::Leads(flight, seat) = board(&flights, &first) else { panic!("it leads") };
        let Boarded::Joins(joined) = board(&flights, &asker("http://a/", 2, None)) else { panic!("it joins") };
        for other in
            [asker("http://a/b", 1, None), asker("http://a/", 1, Some("a=1")), asker("http://a/", 2, Some("a=1"))]
        {
            assert!(matches!(board(&flights, &other), Boarded::Leads(..)), "{other:?}");
        }
        assert!(matches!(flights.board(&first, true, || false), Boarded::Leads(..)), "alone");
        drop(seat);
        assert_eq!(flight.came.receiver_count(), 1);
        drop(joined);
        flights.abandoned(&flight).await;
        assert!(matches!(board(&flights, &first), Boarded::Leads(..)));
        assert!(matches!(flights.board(&asker("http://c/", 1, None), false, || true), Boarded::Changed));
    }

    #[test]
    fn nobody_waits_for_a_request_of_a_device_that_is_behind() {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(is_behind_at_once_or_later());
    }

    async fn is_behind_at_once_or_later() {
        let flights = Flights::default();
        let Boarded::Leads(flight, mut first) = board(&flights, &asker("http://a/", 1, None)) else {
            panic!("it leads")
        };
        let join = || match board(&flights, &asker("http://a/", 2, None)) {
            Boarded::Joins(seat) => seat,
            _ => panic!("it joins"),
        };
        assert!(join().came(|device| device == DeviceId([1; 20])).await.is_none());
        // It falls behind while others wait.
        let (looks, mut seat) = (std::cell::Cell::new(0), join());
        let is_behind = |_| looks.replace(looks.get() + 1) >= 5;
        assert!(seat.came(is_behind).await.is_none());
        assert_eq!(looks.get(), 6);
        // What has come is taken, and whoever asked first waits all the same.
        flight.came.send_replace(Some(Came::Failed(7)));
        assert!(matches!(join().came(|_| true).await, Some(Came::Failed(7))));
        assert!(matches!(first.came(|_| true).await, Some(Came::Failed(7))));
    }

    #[test]
    fn what_is_under_way_of_a_uri_that_changes_is_not_kept_nor_joined() {
        let flights = Flights::default();
        let (one, other) = (asker("http://a/", 1, None), asker("http://b/", 1, None));
        let Boarded::Leads(changed, _) = board(&flights, &one) else { panic!("it leads") };
        let Boarded::Leads(same, _) = board(&flights, &other) else { panic!("it leads") };
        flights.invalidate(one.target);
        assert!(!(changed.is_kept())() && (same.is_kept())());
        assert!(matches!(board(&flights, &one), Boarded::Leads(..)));
    }

    #[test]
    fn there_are_so_many_at_once_and_so_much_is_known_of_those_that_are_alone() {
        let flights = Flights::default();
        let had = (0..8).map(|device| {
            let next = |number| asker(&format!("http://a{device}/{number}"), device, None);
            (0..FLIGHTS_MAX).take_while(|number| matches!(board(&flights, &next(*number)), Boarded::Leads(..))).count()
        });
        assert_eq!(had.collect::<Vec<_>>(), [205, 164, 132, 105, 84, 67, 54, 43], "each leaves some to others");
        let alone = asker("http://a0/0", 1, None);
        assert!(matches!(board(&flights, &alone), Boarded::Joins(_)));
        flights.pass(&alone);
        assert!(!matches!(board(&flights, &alone), Boarded::Joins(_)), "it does not join");
        flights.pass_no_more(&alone);
        assert!(matches!(board(&flights, &alone), Boarded::Joins(_)));
        for number in 0..ALONE_MAX * 2 {
            flights.pass(&asker(&format!("http://c/{number}"), 1, None));
        }
        assert!(flights.passes.0.lock().len() <= ALONE_MAX);
    }

    /// A device may keep its own requests from getting on, and name whatever others ask for.
    #[tokio::test(start_paused = true)]
    async fn who_has_waited_for_a_device_in_vain_is_the_last_for_a_minute() {
        let flights = Flights::default();
        let ask = |uri, device| board(&flights, &asker(uri, device, None));
        let _led = ["http://a/", "http://b/"].map(|uri| ask(uri, 1));
        let Boarded::Joins(mut seat) = ask("http://a/", 2) else { panic!("it joins") };
        assert_eq!(seat.waited_for(), None);
        assert!(seat.came(|_| false).await.is_none());
        seat.waited_for().into_iter().for_each(|device| flights.is_slow(device));
        for uri in ["http://a/", "http://b/"] {
            assert!(matches!(ask(uri, 1), Boarded::Joins(_)), "its own wait for it");
            let Boarded::Leads(..) = ask(uri, 3) else { panic!("{uri}: another asks for itself") };
        }
        tokio::time::sleep(ALONE_FOR).await;
        assert!(matches!(ask("http://b/", 4), Boarded::Joins(_)));
    }
}
