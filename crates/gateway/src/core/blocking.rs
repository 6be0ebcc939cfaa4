//! Work that waits for the disk: [`blocking`], and [`Turns`] for what strangers begin or ask.

use std::sync::Arc;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::runtime::Handle;

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
}
