//! Uploads go to the application: when, as which request, and what its answer makes of them.
//!
//! In order: [`application`], [`http1_response`] and [`left_behind`]; `remains` and `renew`; [`attempt`]; `outcome`; [`worker`] and [`keep_alive`].

pub mod application;
pub mod attempt;
pub mod http1_response;
pub mod keep_alive;
pub mod left_behind;
mod outcome;
mod remains;
mod renew;
pub mod worker;

use crate::config::Config;
use crate::context::Context;
use application::Application;
use hoop_units::Backoff;
use left_behind::LeftBehind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What hands uploads to the application.
pub struct Replay {
    /// What all rooms share.
    pub context: Arc<Context>,
    /// Whom uploads are handed to.
    pub application: Arc<Application>,
    /// Reports fields that the application does not get.
    pub left_behind: Arc<LeftBehind>,
    /// Attempts to hand an upload over, since the service began.
    pub attempts: AtomicU64,
    /// Attempts at once.
    at_once: usize,
    backoff: Backoff,
    answer_timeout: Duration,
    keep_alive_round: Duration,
}

impl Replay {
    /// What `config` makes of it.
    pub fn new(config: &Config, context: Arc<Context>, application: Arc<Application>) -> Self {
        Self {
            context,
            application,
            left_behind: Arc::default(),
            attempts: AtomicU64::new(0),
            at_once: config.replays.max(1),
            backoff: config.backoff,
            answer_timeout: config.answer_timeout,
            keep_alive_round: config.keep_alive_round,
        }
    }
}
