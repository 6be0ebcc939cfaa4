//! How many messages come in at once, and from whom: [`Intakes`].
//!
//! Bounds: so many messages in all, and half of them from one address. When all places are taken, a message of the
//! largest holder that is behind makes way (`hoop_http::Places`). It ends as if it had broken off, and its complete
//! records are kept. So slow messages of one or two addresses keep out nobody. Whoever finds no place waits for one for
//! [`WAIT_MAX`], and half as many wait as there are places: a gateway that is told to come again leaves the service alone for
//! longer.

use hoop_http::{Place, Places, Share};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a message waits for a place.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The messages that are being taken.
pub struct Intakes {
    places: Arc<Places>,
    /// Those that have a place or wait for one, and as many as there are places that make way: a message takes a moment to
    /// end, and nobody waits for that.
    tasks: Arc<Semaphore>,
    tasks_max: usize,
}

impl Intakes {
    /// Room for `max` at once.
    pub fn new(max: usize) -> Arc<Self> {
        let waits = max.div_ceil(2);
        let share = Share { of_one: Some(max.div_ceil(2)), ..Share::of(max).waits(waits) };
        let tasks_max = max.saturating_mul(2).saturating_add(waits).min(Semaphore::MAX_PERMITS);
        Arc::new(Self { places: Places::new(vec![share]), tasks: Arc::new(Semaphore::new(tasks_max)), tasks_max })
    }

    /// The most messages at once, with those that make way or wait.
    pub const fn max(&self) -> usize {
        self.tasks_max
    }

    /// A slot for a message of `sender`, if there is one for it soon.
    pub async fn begin(&self, sender: IpAddr) -> Option<Slot> {
        // First, so that nobody makes way for a message that cannot begin.
        let permit = self.tasks.clone().try_acquire_owned().ok()?;
        let place = self.places.entered_within(0, sender, WAIT_MAX).await?;
        Some(Slot { place, _permit: permit })
    }

    /// Returns once no message is being taken, and none waits.
    pub async fn done(&self) {
        let all = u32::try_from(self.tasks_max).unwrap_or(u32::MAX);
        // It is never closed.
        let _ = self.tasks.acquire_many(all).await;
    }
}

/// A message that is being taken, until this is dropped.
pub struct Slot {
    /// Its place. It is told how the body comes, and says when the message has to make way.
    pub place: Place,
    _permit: OwnedSemaphorePermit,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn one_address_takes_at_most_half_of_the_slots() {
        let intakes = Intakes::new(5);
        let [one, two, three] = [1, 2, 3].map(|n| IpAddr::from([10, 0, n, 1]));
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(intakes.begin(one).await.unwrap());
        }
        assert!(intakes.begin(one).await.is_none());
        let others = [intakes.begin(two).await.unwrap(), intakes.begin(two).await.unwrap()];
        let third = intakes.begin(three).await.expect("one of the three makes way, as it is two more");
        held[2].place.makes_way().await;
        assert!(intakes.begin(three).await.is_none(), "two, two and one, and nobody is behind");
        held.truncate(1);
        assert!(intakes.begin(three).await.is_some());
        drop((held, others, third));
        intakes.done().await;
        assert_eq!(intakes.places.taken(0), 0);
    }

    /// A disk that stalls has those that make way end late.
    #[tokio::test(start_paused = true)]
    async fn nobody_makes_way_for_a_message_that_cannot_begin() {
        let (intakes, one) = (Intakes::new(4), IpAddr::from([10, 0, 0, 1]));
        let held = [intakes.begin(one).await.unwrap(), intakes.begin(one).await.unwrap()];
        let other = intakes.begin(IpAddr::from([10, 0, 1, 1])).await.unwrap();
        let last = intakes.begin(IpAddr::from([10, 0, 2, 1])).await.unwrap();
        let left = intakes.tasks.available_permits();
        let ending = intakes.tasks.clone().try_acquire_many_owned(u32::try_from(left).unwrap()).unwrap();
        assert!(intakes.begin(IpAddr::from([10, 0, 3, 1])).await.is_none());
        let told = async {
            tokio::select! {
                () = held[0].place.makes_way() => {}
                () = held[1].place.makes_way() => {}
            }
        };
        assert!(tokio::time::timeout(WAIT_MAX, told).await.is_err());
        drop((ending, other, last, held));
        intakes.done().await;
    }

    /// A gateway shares its address with many that come again at once.
    #[tokio::test(start_paused = true)]
    async fn who_finds_no_slot_waits_for_the_next_one_for_a_moment() {
        let (intakes, one) = (Intakes::new(4), IpAddr::from([10, 0, 0, 1]));
        let mut held = vec![intakes.begin(one).await.unwrap(), intakes.begin(one).await.unwrap()];
        let ends = async {
            sleep(WAIT_MAX / 2).await;
            held.pop();
        };
        let (begun, ()) = tokio::join!(intakes.begin(one), ends);
        assert!(begun.is_some());
        let asked = Instant::now();
        assert!(intakes.begin(one).await.is_none());
        assert_eq!(asked.elapsed().as_secs(), WAIT_MAX.as_secs());
    }
}
