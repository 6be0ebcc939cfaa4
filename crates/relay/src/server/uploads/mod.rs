//! Uploads that are on disk until their answers have arrived: each an [`Upload`] in the [`UploadStore`].
//!
//! Rooms, each importing only those before it: `journal`, `store`.

mod journal;
mod store;

use super::objects::ObjectStore;
use std::sync::Arc;
pub(crate) use store::{Found, Upload, UploadStore};

/// Where uploads are kept, and answers.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    pub(crate) answers: Arc<ObjectStore>,
    pub(crate) uploads: Arc<UploadStore>,
}
