//! What looks after flows as time passes: [`run_timers`]. It costs what is due, and not what there is.

use crate::clock::Clock;
use hoop_units::{Duration, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Flows are looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One that is active is looked at again after so long at the latest, since it may have come to rest.
const ACTIVE_EVERY: Duration = Duration::from_secs(4);

/// So many are looked at before others have their turn: a fraction of a millisecond.
const AT_ONCE: usize = 256;

/// Asks for looks.
#[derive(Debug)]
pub(crate) struct Watch<T> {
    /// By address: nobody else has it as long as it is known here.
    asked: Mutex<BTreeMap<usize, Weak<T>>>,
    woken: Notify,
}

impl<T> Default for Watch<T> {
    fn default() -> Self {
        Self { asked: Mutex::default(), woken: Notify::new() }
    }
}

impl<T> Watch<T> {
    /// Something of this one may be due sooner than was known, or it is there no more.
    pub(crate) fn look(&self, at: &Arc<T>) {
        self.asked.lock().insert(Arc::as_ptr(at).addr(), Arc::downgrade(at));
        self.woken.notify_one();
    }

    /// They may all be gone.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }
}

/// What was found.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Look {
    /// When something is due next.
    pub(crate) next: Option<Timestamp>,
    /// Whether it matters that a carrier falls silent.
    pub(crate) is_active: bool,
}

/// Those of which something is due some time, and when.
struct Timers<T> {
    known: HashMap<usize, (Timestamp, bool, Weak<T>)>,
    order: BTreeSet<(Timestamp, usize)>,
    active: usize,
}

impl<T> Timers<T> {
    fn forget(&mut self, address: usize) {
        if let Some((at, was_active, _)) = self.known.remove(&address) {
            self.order.remove(&(at, address));
            self.active -= usize::from(was_active);
        }
    }

    fn set(&mut self, of: &Arc<T>, found: Look, now: Timestamp) {
        let address = Arc::as_ptr(of).addr();
        self.forget(address);
        let latest = found.is_active.then_some(now + ACTIVE_EVERY);
        if let Some(at) = found.next.into_iter().chain(latest).min() {
            self.known.insert(address, (at, found.is_active, Arc::downgrade(of)));
            self.order.insert((at, address));
            self.active += usize::from(found.is_active);
        }
    }

    /// Takes one that is due; it is known no more.
    fn take_due(&mut self, now: Timestamp) -> Option<Weak<T>> {
        let (_, address) = *self.order.first().filter(|(at, _)| *at <= now)?;
        let weak = self.known.get(&address).map(|(.., weak)| weak.clone());
        self.forget(address);
        weak
    }
}

/// Looks after each flow when something of it is due, until `look` says that the endpoint is gone. `tell`: whether any is active.
pub(crate) async fn run_timers<T>(
    watch: Arc<Watch<T>>,
    clock: Clock,
    look: impl Fn(&Arc<T>) -> Look,
    tell: impl Fn(bool) -> Option<()>,
) {
    let mut timers: Timers<T> = Timers { known: HashMap::new(), order: BTreeSet::new(), active: 0 };
    loop {
        let now = clock.now();
        let mut round = std::mem::take(&mut *watch.asked.lock());
        while let Some(due) = timers.take_due(now) {
            round.insert(due.as_ptr().addr(), due);
        }
        for (nth, (address, weak)) in round.into_iter().enumerate() {
            if nth % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            match weak.upgrade() {
                Some(flow) => timers.set(&flow, look(&flow), now),
                None => timers.forget(address),
            }
        }
        if tell(timers.active > 0).is_none() {
            return;
        }
        match timers.order.first() {
            None => watch.woken.notified().await,
            Some((at, _)) => {
                tokio::select! {
                    () = watch.woken.notified() => {}
                    () = tokio::time::sleep_until(clock.instant(*at)) => {}
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use tokio::time::sleep;

    /// Something that is due every so many seconds, and how often it was looked at.
    struct Some {
        every: u64,
        looks: AtomicU64,
    }

    fn some(every: u64) -> Arc<Some> {
        Arc::new(Some { every, looks: AtomicU64::new(0) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_taken_of_what_is_due_or_was_asked_for_and_of_nothing_else() {
        let (watch, clock) = (Arc::<Watch<Some>>::default(), Clock::system());
        let (told, telling) = (Arc::new(Mutex::new(Vec::new())), Arc::new(()));
        let (says, alive) = (told.clone(), Arc::downgrade(&telling));
        let look = move |some: &Arc<Some>| {
            some.looks.fetch_add(1, Relaxed);
            let next = clock.now() + Duration::from_secs(some.every);
            Look { next: (some.every > 0).then_some(next), is_active: some.every == 1 }
        };
        let tell = move |active| {
            let mut told = says.lock();
            if told.last() != Option::Some(&active) {
                told.push(active);
            }
            alive.upgrade().map(|_| ())
        };
        let running = tokio::spawn(run_timers(watch.clone(), clock, look, tell));
        let many: Vec<_> = (0..10_000).map(|_| some(1_000_000)).collect();
        many.iter().for_each(|some| watch.look(some));
        let (never, often, asks) = (some(0), some(1), some(1_000_000));
        [&never, &often].into_iter().for_each(|some| watch.look(some));
        for _ in 0..1_000 {
            watch.look(&asks);
            sleep(Duration::from_millis(200)).await;
        }
        let looks = |some: &Some| some.looks.load(Relaxed);
        assert!(many.iter().all(|some| looks(some) == 1));
        assert_eq!((looks(&never), looks(&asks)), (1, 1_000));
        assert!((150..=201).contains(&looks(&often)), "{} looks in 200 s", looks(&often));
        assert_eq!((Arc::weak_count(&never), Arc::weak_count(&asks)), (0, 1), "what is never due is forgotten");
        assert_eq!(told.lock()[..], [true]);
        drop(often);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(told.lock()[..], [true, false], "who is gone is not active");
        drop(telling);
        watch.wake();
        sleep(Duration::from_secs(1)).await;
        assert!(running.is_finished());
    }
}
