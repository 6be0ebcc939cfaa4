//! What every room of a gateway uses: [`Core`].

use super::blocking::Turns;
use super::counters::Counters;
use super::progress::Progress;
use hoop_http::Clock;
use hoop_seal::signing::GatewayKey;
use hoop_spool::Spool;
use tokio::sync::Notify;

/// The spool, and what belongs beside it: clock, key and counters. Intake and delivery meet here: in the spool and in two notifications.
pub struct Core {
    pub spool: Spool,
    pub clock: Clock,
    /// By which this gateway shows that it is itself.
    pub key: GatewayKey,
    pub counters: Counters,
    /// How far the transfers that run now have come.
    pub progress: Progress,
    /// Told when there is something new to send.
    pub stored: Notify,
    /// Told whenever something is stored, for attempts that wait for more.
    pub committed: Notify,
    /// Turns to record what senders begin.
    pub turns: Turns,
    /// Turns to look at something for a stranger.
    pub looks: Turns,
    /// Whether what is stored is sent before all of it is.
    pub cut_through: bool,
}

impl Core {
    /// Of a gateway that has just been opened.
    pub fn new(spool: Spool, clock: Clock, key: GatewayKey, cut_through: bool) -> Self {
        let (counters, progress) = (Counters::default(), Progress::default());
        let (stored, committed, turns, looks) = (Notify::new(), Notify::new(), Turns::of_records(), Turns::of_looks());
        Self { spool, clock, key, counters, progress, stored, committed, turns, looks, cut_through }
    }

    /// A number that grows whenever anything is recorded or moves.
    pub fn revision(&self) -> u64 {
        self.spool.revision().wrapping_add(self.progress.revision())
    }
}
