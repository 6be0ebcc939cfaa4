//! What deliveries share: [`Delivery`].

use super::pacing::Pacer;
use super::pause::Pause;
use super::slots::Slots;
use super::unreadable::Unreadable;
use crate::core::config::Config;
use crate::core::state::Core;
use crate::peer::services::Services;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What the scheduler and its attempts share, and what an owner may do to them.
pub struct Delivery {
    pub core: Arc<Core>,
    pub services: Arc<Services>,
    /// Uploads that are sent at once.
    pub transfers: usize,
    pub slots: Arc<Slots>,
    pub pacer: Arc<Pacer>,
    pub pause: Pause,
    /// One permit: for the attempt that may keep its slot while it waits for more of its upload.
    pub patient: Semaphore,
    /// Uploads that the disk gives nothing back of.
    pub unreadable: Unreadable,
}

impl Delivery {
    /// As the configuration has it; `pacer` paces the connections to `services`.
    pub fn new(config: &Config, core: Arc<Core>, services: Arc<Services>, pacer: Arc<Pacer>) -> Arc<Self> {
        Arc::new(Self {
            core,
            services,
            transfers: config.transfers,
            slots: Arc::default(),
            pacer,
            pause: Pause::open(config.spool.join("paused")),
            // With one slot alone, none may idle.
            patient: Semaphore::new(usize::from(config.transfers > 1)),
            unreadable: Unreadable::default(),
        })
    }
}
