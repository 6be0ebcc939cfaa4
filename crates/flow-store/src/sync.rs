//! One sync for all who wait: [`Shared`].

use crate::log::Log;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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

impl<T: Logged> Shared<T> {
    pub fn new(content: T) -> Self {
        Self { inner: Mutex::new(Inner { content, is_syncing: false, failures: 0 }), told: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.lock().content)
    }

    /// Waits until what was appended before outlives a power cut.
    pub fn sync(&self) -> io::Result<()> {
        let mut inner = self.lock();
        let (end, failures) = (inner.content.log().end(), inner.failures);
        loop {
            if inner.failures != failures {
                return Err(io::Error::other("a sync failed that others waited for"));
            }
            if inner.content.log().synced() >= end {
                return Ok(());
            }
            if inner.is_syncing {
                inner = self.told.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let from = inner.content.log().synced();
            let Some((file, upto)) = inner.content.log().begin_sync()? else { return Ok(()) };
            inner.is_syncing = true;
            drop(inner);
            let synced = file.sync_data();
            inner = self.lock();
            inner.is_syncing = false;
            match &synced {
                Ok(()) => inner.content.log().did_sync(upto),
                Err(_) => {
                    inner.failures += 1;
                    inner.content.log().did_not_sync();
                    inner.content.lost(from);
                }
            }
            self.told.notify_all();
            synced?;
        }
    }
}
