//! What requests that bring uploads share: [`Receiver`].

use super::admission::Admission;
use super::resource_lock::ResourceLocks;
use crate::access::consent::Consent;
use crate::core::body_timeouts::BodyTimeouts;
use crate::core::config::Config;
use crate::core::state::Core;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The bytes of short bodies that are held until they are on disk, of all senders together; more are written as they come.
const SHORT_ROOM: usize = 2 << 20;

/// So many senders of long bodies wait for the disk at once, and have it write: two, so that it is never idle. Whoever has a short one, or its end,
/// synced waits behind what these have under way.
pub const DISK_TURNS: usize = 2;

/// What requests that bring uploads share.
pub struct Receiver {
    pub core: Arc<Core>,
    pub consent: Arc<Consent>,
    pub admission: Arc<Admission>,
    pub body_timeouts: BodyTimeouts,
    /// Whether records are taken before the upload's prelude has come.
    pub early: bool,
    /// Who uses each upload resource.
    pub resource_locks: ResourceLocks,
    /// A permit for each byte of short bodies that may be held.
    pub short_room: Arc<Semaphore>,
    /// A permit for each sender of a long body that waits for the disk.
    pub disk_turns: Arc<Semaphore>,
}

impl Receiver {
    /// As the configuration has it.
    pub fn new(config: &Config, core: Arc<Core>, consent: Arc<Consent>) -> Arc<Self> {
        Arc::new(Self {
            admission: Admission::new(config, core.clone()),
            core,
            consent,
            body_timeouts: config.body_timeouts,
            early: config.early,
            resource_locks: ResourceLocks::default(),
            short_room: Arc::new(Semaphore::new(SHORT_ROOM)),
            disk_turns: Arc::new(Semaphore::new(DISK_TURNS)),
        })
    }
}
