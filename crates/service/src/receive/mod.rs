//! Sealed uploads come in: records are opened as they come, written, synced and noted, within the room that there is.
//!
//! In order: [`room`], [`source`] and [`intakes`]; [`arrival`]; [`in_flight`]; [`message`] and [`gc`] use all of them.

pub mod arrival;
pub mod gc;
pub mod in_flight;
pub mod intakes;
pub mod message;
pub mod room;
pub mod source;

use crate::config::Config;
use crate::context::Context;
use hoop_http::Code;
use in_flight::InFlight;
use intakes::Intakes;
use parking_lot::Mutex;
use room::{Limits, Room};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What takes uploads in.
pub struct Receive {
    /// What all rooms share.
    pub context: Arc<Context>,
    /// Uploads that are coming in now.
    pub in_flight: InFlight,
    /// Messages that are coming in now.
    pub intakes: Arc<Intakes>,
    /// Who has how much of the disk.
    pub room: Arc<Room>,
    /// Numbers for `/metrics`.
    pub counters: Counters,
    /// How long a sender may take for each 64 KiB.
    pub body_timeout: Duration,
}

/// What has come in since the service began.
#[derive(Default)]
pub struct Counters {
    /// Messages to `/hoop/post` that were taken.
    pub messages: AtomicU64,
    /// Bytes of sealed bodies that came with them.
    pub bytes: AtomicU64,
    /// Messages to `/hoop/post` that were refused, by code: as many as there are codes.
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    /// One more message was refused.
    pub fn refuse(&self, code: Code) {
        *self.refused.lock().entry(code.name()).or_default() += 1;
    }

    /// How many were refused, by code.
    pub fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.refused.lock().clone()
    }
}

impl Receive {
    /// What `config` makes of it.
    pub fn new(config: &Config, context: Arc<Context>) -> Self {
        let share = config.share();
        let limits = Limits {
            all: config.max_stored_bytes,
            owner: config.owner_quota_bytes.unwrap_or(share),
            address: config.address_quota_bytes.unwrap_or(share),
            reserve: config.reserve_bytes,
        };
        Self {
            in_flight: InFlight::default(),
            intakes: Intakes::new(config.intakes),
            room: Arc::new(Room::new(limits, config.state_dir.clone(), context.store.clone(), context.clock.clone())),
            counters: Counters::default(),
            body_timeout: config.body_timeout,
            context,
        }
    }
}
