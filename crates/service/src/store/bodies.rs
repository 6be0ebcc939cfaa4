//! What keeps sealed bodies, and promises: [`Bodies`], each a [`Sealed`].

use hoop_units::UploadId;
use std::io;
use std::sync::Arc;

/// One upload's sealed bytes: a file that is exactly Z, with holes where nothing has come.
pub trait Sealed: Send + Sync {
    /// Writes at an offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Fills the buffer from an offset.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Syncs what was written. Once a sync has failed, all further ones fail, since lost pages may look synced the next
    /// time. The body is then opened anew, and what the index does not count is written again.
    fn sync(&self) -> io::Result<()>;
}

/// Keeps the sealed bytes.
pub trait Bodies: Send + Sync {
    /// An empty body for a new upload. It is durable once its first sync has returned.
    fn create(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>>;
    /// The body of an upload that is there.
    fn open(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>>;
    /// Deletes a body. It is no error if there is none.
    fn remove(&self, id: UploadId) -> io::Result<()>;
    /// Ids of at most `limit` bodies that `wanted` accepts and nobody has written to for `secs`.
    fn idle(&self, secs: u64, limit: usize, wanted: &dyn Fn(UploadId) -> bool) -> io::Result<Vec<UploadId>>;
}
