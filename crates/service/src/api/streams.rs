//! Who reads events: [`Streams`].

use crate::model::Tag;
use hoop_http::{Code, Problem};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Streams at once, with those that end just now. Each has a place among those for streams (`crowd`), and there are half as
/// many of these: whoever comes gets the place of another, whose stream takes a moment to end.
const STREAMS_MAX: usize = 512;

/// Readers of one owner: as many open tabs.
const STREAMS_OF_ONE_MAX: usize = 8;

/// Streams that look at the store at once. All of them look after each change that may concern them, and other requests
/// wait for none of that.
const LOOKS_MAX: usize = 4;

/// Streams that look at their whole lists at once: they share the turns for lists with everybody who asks for one.
const LISTS_MAX: usize = 1;

/// Who reads: how many streams each owner has.
pub struct Streams {
    open: Mutex<BTreeMap<Tag, usize>>,
    looks: Arc<Semaphore>,
    lists: Semaphore,
}

impl Default for Streams {
    fn default() -> Self {
        Self { open: Mutex::default(), looks: Arc::new(Semaphore::new(LOOKS_MAX)), lists: Semaphore::new(LISTS_MAX) }
    }
}

/// A reader's place.
pub struct Slot {
    streams: Arc<Streams>,
    tag: Tag,
}

impl Streams {
    /// A place for one more reader of that owner.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub fn enter(self: &Arc<Self>, tag: Tag) -> Result<Slot, Problem> {
        let mut open = self.open.lock();
        let own = open.get(&tag).copied().unwrap_or_default();
        if own >= STREAMS_OF_ONE_MAX || open.values().sum::<usize>() >= STREAMS_MAX {
            let problem = Problem::new(Code::TooManyRequests, "too many streams of events");
            return Err(problem.retry_after(Duration::from_secs(30)));
        }
        open.insert(tag, own + 1);
        Ok(Slot { streams: self.clone(), tag })
    }

    /// A turn to look at one upload. It is for the call that looks, which goes on when its stream has ended.
    pub async fn look(&self) -> OwnedSemaphorePermit {
        self.looks.clone().acquire_owned().await.expect("it is never closed")
    }

    /// A turn to look at a whole list, if no other stream has it.
    pub fn look_at_all(&self) -> Option<SemaphorePermit<'_>> {
        self.lists.try_acquire().ok()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock();
        match open.get_mut(&self.tag) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.tag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_gets_eight_streams_all_get_twice_their_places_and_each_is_returned() {
        let streams = Arc::new(Streams::default());
        let own: Vec<_> = (0..8).map(|_| streams.enter([1; 16]).unwrap()).collect();
        assert_eq!(streams.enter([1; 16]).err().unwrap().code, Code::TooManyRequests);
        let others: Vec<_> = (2..65).flat_map(|n| [n; 8]).map(|n| streams.enter([n; 16]).unwrap()).collect();
        assert!(streams.enter([99; 16]).is_err(), "512 in all");
        drop(own);
        assert!(streams.enter([99; 16]).is_ok());
        drop(others);
        assert!(streams.open.lock().is_empty());
    }
}
