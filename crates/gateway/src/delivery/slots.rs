//! Ending attempts before their time: [`Slots`]. The scheduler tells, and the attempts obey.

use hoop_units::UploadId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The attempts under way; as many as there are slots.
#[derive(Debug, Default)]
pub struct Slots {
    running: Mutex<BTreeMap<UploadId, watch::Sender<Told>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Go,
    /// To end before its next message.
    Yield,
    /// To end now.
    Over,
}

impl Slots {
    /// An attempt begins.
    pub fn begin(self: &Arc<Self>, id: UploadId) -> Slot {
        let (sender, told) = watch::channel(Told::Go);
        self.running.lock().insert(id, sender);
        Slot { slots: self.clone(), id, told }
    }

    /// It ends before its next message.
    pub fn make_way(&self, id: UploadId) {
        self.tell(id, |told| {
            if *told == Told::Go {
                *told = Told::Yield
            }
        });
    }

    /// It ends now.
    pub fn stop(&self, id: UploadId) {
        self.tell(id, |told| *told = Told::Over);
    }

    /// An attempt is about to send a message. Returns if it may; otherwise its turn is over, and this is where it ends.
    pub async fn message(&self, id: UploadId) {
        let mut is_over = false;
        self.tell(id, |told| {
            is_over = *told != Told::Go;
            if is_over {
                *told = Told::Over;
            }
        });
        if is_over {
            std::future::pending().await
        }
    }

    fn tell(&self, id: UploadId, change: impl FnOnce(&mut Told)) {
        if let Some(sender) = self.running.lock().get(&id) {
            sender.send_modify(change);
        }
    }
}

/// An attempt, until it ends.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    id: UploadId,
    told: watch::Receiver<Told>,
}

impl Slot {
    /// Returns when it is over: the attempt is to be dropped.
    pub async fn over(&mut self) {
        // The other end lives as long as this.
        let _ = self.told.wait_for(|told| *told == Told::Over).await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.running.lock().remove(&self.id);
    }
}
