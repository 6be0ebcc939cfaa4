//! What keeps sealed bodies, and promises: [`Bodies`], each a [`Sealed`].

use hoop_units::UploadId;
use std::io;
use std::sync::Arc;

/// One upload's sealed bytes: a file that is exactly Z, with holes where nothing has come.
pub trait Sealed: Send + Sync {
    /// Writes at an offset.
    fn write_at(&self, octets: &[u8], offset: u64) -> io::Result<()>;
    /// Fills the buffer from an offset.
    fn read_at(&self, octets: &mut [u8], offset: u64) -> io::Result<()>;
    /// Syncs what was written. Once that has failed it fails for good, as what is lost may look synced the next time: the body is opened
    /// anew, and what the index does not count is written again.
    fn sync(&self) -> io::Result<()>;
}

/// Keeps the sealed bytes.
pub trait Bodies: Send + Sync {
    /// The body of a new upload, empty; it is there for good once its first sync has returned.
    fn create(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>>;
    /// The body of an upload that is there.
    fn open(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>>;
    /// Deletes a body; none: all is well.
    fn remove(&self, id: UploadId) -> io::Result<()>;
    /// Names of bodies that have not been written to for so many seconds, of those that `wanted` wants at most `limit`.
    fn idle(&self, secs: u64, limit: usize, wanted: &dyn Fn(UploadId) -> bool) -> io::Result<Vec<UploadId>>;
}
