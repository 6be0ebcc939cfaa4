//! Stopping: a [`ShutdownTrigger`] in one hand, any number of [`Shutdown`]s in the tasks.

use tokio::sync::watch;

/// Tells every holder of the [`Shutdown`] to stop, when asked or when dropped.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// Waits to be told to stop.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// A trigger and what it triggers.
pub fn shutdown() -> (ShutdownTrigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownTrigger(sender), Shutdown(receiver))
}

impl ShutdownTrigger {
    /// Tells everyone to stop.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns once stopping was asked for, or the trigger was dropped.
    pub async fn requested(&mut self) {
        // An error means that the trigger is gone, and with it whoever would have stopped us.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Whether stopping was asked for.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}
