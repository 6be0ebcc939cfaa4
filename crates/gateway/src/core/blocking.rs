//! Work that waits for the disk: [`blocking`], [`Turns`] for what strangers begin or ask, and [`DropBlocking`] for what waits when it is dropped.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Records that senders have begun, at once. Each waits on a thread for its sync, of which all that wait share one; the
/// runtime has 512 threads, and looks and deliveries need some.
const TURNS_MAX: usize = 128;

/// Looks of strangers at what is recorded, at once. Each waits on a thread while another's record is synced.
const LOOKS_MAX: usize = 64;

/// Turns to record or look at something for a stranger. One is given back when that is done, also if the stranger has gone
/// meanwhile.
#[derive(Debug)]
pub struct Turns(Arc<Semaphore>);

/// A turn that has come.
#[derive(Debug)]
pub struct Turn(OwnedSemaphorePermit);

impl Turn {
    /// Runs [`blocking`] work, also if nobody waits for it any more.
    pub async fn blocking<S, T>(self, state: &Arc<S>, work: impl FnOnce(&S) -> T + Send + 'static) -> T
    where
        S: Send + Sync + 'static,
        T: Send + 'static,
    {
        blocking(state, move |state| {
            let _turn = self.0;
            work(state)
        })
        .await
    }
}

impl Turns {
    /// To record something.
    pub fn of_records() -> Self {
        Self(Arc::new(Semaphore::new(TURNS_MAX)))
    }

    /// To look at something.
    pub fn of_looks() -> Self {
        Self(Arc::new(Semaphore::new(LOOKS_MAX)))
    }

    /// Waits for a turn, without a thread.
    pub async fn take(&self) -> Turn {
        Turn(self.0.clone().acquire_owned().await.expect("it is never closed"))
    }

    /// Runs [`blocking`] work once there is a turn for it. Until then it goes, with all that it holds, if nobody waits for
    /// it any more.
    pub async fn blocking<S, T>(&self, state: &Arc<S>, work: impl FnOnce(&S) -> T + Send + 'static) -> T
    where
        S: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.take().await.blocking(state, work).await
    }
}

/// Runs what waits for the disk on a thread that may wait, with the state that it needs.
pub async fn blocking<S, T>(state: &Arc<S>, work: impl FnOnce(&S) -> T + Send + 'static) -> T
where
    S: Send + Sync + 'static,
    T: Send + 'static,
{
    let state = state.clone();
    match tokio::task::spawn_blocking(move || work(&state)).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// What may wait for the disk when it is dropped. The last sender of an upload gives back what was not recorded, the last reader of one that has ended
/// closes a file that was removed, and either may take the disk its time. So it is dropped on a thread that may wait, wherever it goes out of scope.
#[derive(Debug)]
pub struct DropBlocking<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DropBlocking<T> {
    pub const fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// For who is on such a thread, or hands it on to one.
    pub fn into_inner(mut self) -> T {
        self.0.take().expect(THERE)
    }
}

const THERE: &str = "it is there until it is dropped";

impl<T: Send + 'static> Deref for DropBlocking<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(THERE)
    }
}

impl<T: Send + 'static> DerefMut for DropBlocking<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(THERE)
    }
}

impl<T: Send + 'static> Drop for DropBlocking<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Whoever begins and hangs up, again and again, must not have all threads.
    #[tokio::test]
    async fn what_nobody_waits_for_any_more_keeps_its_turn_until_it_is_done() {
        let (turns, disk) = (Arc::new(Turns::of_records()), Arc::new(Semaphore::new(0)));
        let (begun, mut beginning) = tokio::sync::mpsc::unbounded_channel();
        let record = || {
            let (turns, disk, begun) = (turns.clone(), disk.clone(), begun.clone());
            tokio::spawn(async move {
                turns
                    .blocking(&disk, move |disk| {
                        begun.send(()).unwrap();
                        drop(Handle::current().block_on(disk.acquire()));
                    })
                    .await;
            })
        };
        let senders: Vec<_> = (0..1_000).map(|_| record()).collect();
        for _ in 0..TURNS_MAX {
            beginning.recv().await.unwrap();
        }
        senders.iter().for_each(tokio::task::JoinHandle::abort);
        let another = record();
        let look = tokio::time::timeout(Duration::from_secs(30), blocking(&turns, |_| 1)).await;
        assert_eq!(look, Ok(1), "it waits for no turn");
        assert!(beginning.try_recv().is_err(), "no more than so many at once");
        disk.close();
        another.await.unwrap();
    }

    /// A large file that was removed was closed where connections are served.
    #[tokio::test]
    async fn what_waits_for_the_disk_when_dropped_is_dropped_where_it_may_wait() {
        struct Says(std::sync::mpsc::Sender<std::thread::ThreadId>);
        impl Drop for Says {
            fn drop(&mut self) {
                let _ = self.0.send(std::thread::current().id());
            }
        }
        let (says, dropped) = std::sync::mpsc::channel();
        drop(DropBlocking::new(Says(says.clone())));
        let dropper = tokio::task::spawn_blocking(move || (dropped.recv().unwrap(), dropped)).await.unwrap();
        let here = std::thread::current().id();
        assert_ne!(dropper.0, here);
        drop(DropBlocking::new(Says(says)).into_inner());
        assert_eq!(dropper.1.recv().unwrap(), here);
    }
}
