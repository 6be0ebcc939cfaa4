//! Parking a flow in a store: who can ([`Parks`]), and why not ([`ParkError`]).

use crate::flow::{FlowInner, Owner};
use hoop_carrier::Pending;
use hoop_flow_store::StoreError;
use std::sync::Arc;

/// The longest attachment of an application's, in bytes: what the store takes, less the name of the service.
pub const ATTACHMENT_MAX: usize = 768;

/// An endpoint that has a store for flows.
pub(crate) trait Parks: Owner {
    /// Puts a flow into the store with this attachment, and closes its lanes.
    fn park_with<'a>(&'a self, flow: &'a Arc<FlowInner>, attachment: &'a [u8]) -> Pending<'a, Result<(), ParkError>>;
}

/// Why a flow is not parked. It goes on.
#[derive(Debug, thiserror::Error)]
pub enum ParkError {
    /// The server has no store.
    #[error("the server has no store")]
    NoStore,
    /// The flow is over.
    #[error("the flow is over")]
    Over,
    /// The attachment is too long.
    #[error("an attachment has at most {} bytes", ATTACHMENT_MAX)]
    Attachment,
    /// Bytes were acknowledged that nobody has read.
    #[error("bytes were acknowledged that nobody has read")]
    Unread,
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was to be done for the store is not done any more.
pub(crate) fn shutting_down() -> StoreError {
    StoreError::Disk(std::io::Error::other("the runtime is shutting down"))
}
