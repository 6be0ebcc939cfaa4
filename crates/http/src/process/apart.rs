//! Threads that are nobody else's: [`apart`].

use std::io;
use std::thread;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Runs work that reads a file on a thread of its own: a runtime's threads may all wait for a slow disk. The work begins at once, and goes on if nobody waits for it any more.
///
/// Each call takes a thread. So callers begin nothing new before what they have begun is over.
///
/// # Errors
/// If the system has no thread for it, or the work panics.
///
/// # Panics
/// Outside of a runtime.
pub fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = io::Result<T>> + Send + 'static {
    let (done, told) = oneshot::channel();
    let runtime = Handle::current();
    let begun = thread::Builder::new().name("apart".to_owned()).spawn(move || {
        let _within = runtime.enter();
        // Who has asked may have gone.
        let _ = done.send(work());
    });
    async move {
        begun?;
        told.await.map_err(|_| io::Error::other("a thread ended before its work"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn work_apart_goes_on_unwaited_for_and_its_panic_is_an_error() {
        assert!(apart(|| Handle::try_current().is_ok()).await.unwrap());
        assert!(apart(|| panic!("on purpose")).await.is_err());
        let (done, told) = mpsc::channel();
        drop(apart(move || done.send(7)));
        assert_eq!(told.recv(), Ok(7));
    }
}
