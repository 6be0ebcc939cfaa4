//! How many descriptors devices have at once, for connections and for files: [`Places`].
//!
//! Whoever does not read its answers keeps their places, so that a few devices would have all. Devices therefore take [turns](Turns).

use super::turns::Turns;
use hoop_endpoint::DeviceId;
use parking_lot::Mutex;
use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// So many of a device's connections may have the kernel's buffers grow as it likes, to some megabytes each, and so many of its answers have large buffers here. What a destination sends and the
/// device does not take lies there, and counts for nobody.
pub(crate) const WIDE: usize = 32;

/// A device may have a quarter of those that are free, and one more: 16 devices that take all they can one after the other leave 3 of 100.
const PART: usize = 4;

/// So many at once, of all devices and of each.
#[derive(Debug)]
pub(crate) struct Places {
    of_all: usize,
    of_device: usize,
    turns: Mutex<Turns<oneshot::Sender<Place>>>,
}

impl Places {
    pub fn new(all: usize, of_device: usize) -> Arc<Self> {
        let turns = Mutex::new(Turns::new(all, of_device, PART, oneshot::Sender::is_closed));
        Arc::new(Self { of_all: all, of_device, turns })
    }

    /// Waits for one of this device's. It is given back when what is returned is dropped.
    pub async fn take(self: &Arc<Self>, host: DeviceId) -> Option<Place> {
        let turn = {
            let mut turns = self.turns.lock();
            if turns.take_now(host) {
                return Some(self.place(host, &turns));
            }
            let (ticket, turn) = oneshot::channel();
            turns.ask(host, ticket);
            turn
        };
        self.hand_out();
        turn.await.ok()
    }

    /// One of this device's, if it may have one at once.
    pub fn take_now(self: &Arc<Self>, host: DeviceId) -> Option<Place> {
        let mut turns = self.turns.lock();
        turns.take_now(host).then(|| self.place(host, &turns))
    }

    /// Whether this device waits for one.
    pub fn waits(&self, host: DeviceId) -> bool {
        self.turns.lock().waits(host)
    }

    /// Whether a connection may keep its place for what comes next: its device has few, and half of all are free.
    pub fn are_plenty(&self, host: DeviceId) -> bool {
        let turns = self.turns.lock();
        // Fewer than are wide: what is kept leaves some of those for what is under way.
        turns.has(host) < (WIDE / 2).min(self.of_device / 2) && turns.free() > self.of_all / 2
    }

    fn place(self: &Arc<Self>, host: DeviceId, turns: &Turns<oneshot::Sender<Place>>) -> Place {
        Place { rank: turns.has(host), places: self.clone(), host }
    }

    fn hand_out(self: &Arc<Self>) {
        loop {
            let (ticket, place) = {
                let mut turns = self.turns.lock();
                let Some((host, ticket)) = turns.next() else { return };
                (ticket, self.place(host, &turns))
            };
            // Who stops waiting just now gives it back, and it is the next one's.
            let _ = ticket.send(place);
        }
    }
}

/// A descriptor's place.
#[derive(Debug)]
pub(crate) struct Place {
    /// How many its device had when it took this one, with it.
    pub rank: usize,
    places: Arc<Places>,
    host: DeviceId,
}

impl Place {
    /// Whether it is one of its device's first [`WIDE`].
    pub const fn is_wide(&self) -> bool {
        self.rank <= WIDE
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.turns.lock().give_back(self.host, false);
        self.places.hand_out();
    }
}

/// A file that is open, and its place. It is closed on a thread that may wait: if it was removed, that takes the disk its time.
#[derive(Debug)]
pub(crate) struct PlacedFile {
    /// None: it is being closed.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// None: it is open for a moment, or an earlier relay had counted it.
    _place: Option<Place>,
    /// What counts it, and ends after it.
    counted: Option<Counted>,
}

impl Drop for PlacedFile {
    fn drop(&mut self) {
        let open = self.open.take();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || drop(open));
        }
    }
}

/// What counts a file until it is closed.
pub(crate) type Counted = Box<dyn fmt::Debug + Send + Sync>;

impl PlacedFile {
    pub const fn new(file: File, place: Option<Place>) -> Self {
        Self { open: Some(Open { file, _place: place, counted: None }) }
    }

    /// The same; this is dropped once the file is closed.
    pub fn counted(mut self, counted: Option<Counted>) -> Self {
        self.open.iter_mut().zip(counted).for_each(|(open, counted)| open.counted = Some(counted));
        self
    }
}

impl Deref for PlacedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.open.as_ref().expect("until it is dropped").file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_device_has_so_many_places_and_leaves_others_theirs() {
        let places = Places::new(40, 3);
        let [one, two] = [1, 2].map(|id| DeviceId([id; 20]));
        let take = async |host| timeout(Duration::from_millis(1), places.take(host)).await.ok().flatten();
        let mut held = vec![take(one).await.unwrap(), take(one).await.unwrap(), take(one).await.unwrap()];
        assert!(take(one).await.is_none() && places.take_now(one).is_none());
        held.extend([take(two).await.unwrap(), take(two).await.unwrap(), take(two).await.unwrap()]);
        let waiting = {
            let places = places.clone();
            tokio::spawn(async move { places.take(two).await })
        };
        tokio::task::yield_now().await;
        drop(held.remove(0));
        assert!(take(one).await.is_some(), "another waits for what this one gives back");
        drop(held.pop());
        drop(waiting.await.unwrap().expect("it is free"));
        held.clear();
        assert!(places.turns.lock().is_unused(), "who has none is forgotten");
    }

    /// Two devices that read none of their answers had all places of a relay with few.
    #[tokio::test]
    async fn devices_that_keep_all_they_can_leave_places_to_others() {
        let (places, mut held) = (Places::new(512, 512), Vec::new());
        for number in 0..16 {
            let before = held.len();
            held.extend(std::iter::from_fn(|| places.take_now(DeviceId([number; 20]))));
            assert!(held.len() > before + 3, "{number}");
        }
    }

    /// A large file that was removed was closed where all that is carried waits.
    #[tokio::test]
    async fn a_file_is_closed_on_a_thread_that_may_wait() {
        #[derive(Debug)]
        struct Closed(std::sync::mpsc::Sender<std::thread::ThreadId>);
        impl Drop for Closed {
            fn drop(&mut self) {
                let _ = self.0.send(std::thread::current().id());
            }
        }
        let (says, closed) = std::sync::mpsc::channel();
        let file = PlacedFile::new(tempfile::tempfile().unwrap(), None).counted(Some(Box::new(Closed(says))));
        drop(file);
        let closer = tokio::task::spawn_blocking(move || closed.recv().unwrap()).await.unwrap();
        assert_ne!(closer, std::thread::current().id());
    }

    #[tokio::test]
    async fn what_is_kept_leaves_places_for_what_is_under_way() {
        let ([one, two], mut held) = ([1, 2].map(|id| DeviceId([id; 20])), Vec::new());
        let places = Places::new(200, 160);
        for _ in 0..WIDE / 2 {
            assert!(places.are_plenty(one));
            held.push(places.take(one).await.unwrap());
        }
        assert!(!places.are_plenty(one) && places.are_plenty(two), "it has enough");
        for host in 3..8 {
            let host = DeviceId([host; 20]);
            held.extend((0..18).map(|_| places.take_now(host).unwrap()));
        }
        assert!(!places.are_plenty(two), "half of all are taken");
        held.truncate(1);
        assert!(places.are_plenty(one) && places.are_plenty(two));
    }
}
