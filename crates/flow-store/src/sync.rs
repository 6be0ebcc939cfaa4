//! One sync for all who wait: [`Shared`].

use crate::log::Log;
use parking_lot::{Condvar, Mutex};
use std::io;

/// What has a log.
pub trait Logged {
    fn log(&mut self) -> &mut Log;

    /// What was appended from this position on is lost.
    fn lost(&mut self, from: u64);
}

/// Whose log is synced for many at once: who comes while a sync is under way waits for its end, and then one of those who wait syncs for all. Nobody waits for
/// company: who is alone syncs at once.
#[derive(Debug)]
pub struct Shared<T> {
    inner: Mutex<Inner<T>>,
    told: Condvar,
}

#[derive(Debug)]
struct Inner<T> {
    content: T,
    is_syncing: bool,
    /// How many syncs have failed.
    failures: u64,
}

/// How many syncs had failed when something was appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

impl<T: Logged> Shared<T> {
    pub fn new(content: T) -> Self {
        Self { inner: Mutex::new(Inner { content, is_syncing: false, failures: 0 }), told: Condvar::new() }
    }

    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.with_mark(work).0
    }

    /// The same, with what [`Shared::sync_since`] is to be told.
    pub fn with_mark<R>(&self, work: impl FnOnce(&mut T) -> R) -> (R, Mark) {
        let mut inner = self.inner.lock();
        let mark = Mark(inner.failures);
        let result = work(&mut inner.content);
        inner.heed();
        (result, mark)
    }

    /// Waits until what is there outlives a power cut.
    pub fn sync(&self) -> io::Result<()> {
        let mark = Mark(self.inner.lock().failures);
        self.sync_since(mark)
    }

    /// Waits until what was appended with this mark outlives a power cut. An error if any sync has failed since, even another's: then it may be lost.
    pub fn sync_since(&self, mark: Mark) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let end = inner.content.log().end();
        loop {
            if Mark(inner.failures) != mark {
                return Err(io::Error::other("a sync failed that others waited for"));
            }
            if inner.content.log().synced() >= end {
                return Ok(());
            }
            if inner.is_syncing {
                self.told.wait(&mut inner);
                continue;
            }
            let from = inner.content.log().synced();
            let begun = inner.content.log().begin_sync();
            inner.heed();
            let Some((file, upto)) = begun? else { return Ok(()) };
            inner.is_syncing = true;
            drop(inner);
            let synced = file.sync_data();
            inner = self.inner.lock();
            inner.is_syncing = false;
            // If another's has failed meanwhile, all is done that is to be done.
            if Mark(inner.failures) == mark {
                match &synced {
                    Ok(()) => inner.content.log().did_sync(upto),
                    Err(_) => inner.fail(from),
                }
            }
            self.told.notify_all();
            synced?;
        }
    }
}

impl<T: Logged> Inner<T> {
    /// A sync that failed at a segment's end is a failed sync.
    fn heed(&mut self) {
        if self.content.log().take_failure() {
            let from = self.content.log().synced();
            self.fail(from);
        }
    }

    fn fail(&mut self, from: u64) {
        self.failures += 1;
        self.content.log().did_not_sync();
        self.content.lost(from);
    }
}
