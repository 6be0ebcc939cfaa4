//! Which uploads somebody is at: [`Lives`].

use crate::receive::live::Live;
use hoop_units::UploadId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which uploads somebody is at.
#[derive(Default)]
pub struct Lives {
    /// What is being received. As many as there are senders at most.
    pub receiving: BTreeMap<UploadId, Arc<Live>>,
    /// Whose file or row is going. At most one of each sender and each request, and a batch of those whose time is over.
    pub leaving: BTreeSet<UploadId>,
}

impl Lives {
    /// Whether somebody receives it, or takes it away.
    pub fn is_busy(&self, id: UploadId) -> bool {
        self.receiving.contains_key(&id) || self.leaving.contains(&id)
    }
}
