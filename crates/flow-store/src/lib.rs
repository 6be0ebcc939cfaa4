//! What a server keeps of its flows: [`FlowStore`], what and whose they are and how far they have come; [`ByteStore`], what devices have sent and the
//! application has not consumed. `docs/flow-store.md` says what is to be written down before which frame leaves.
//!
//! The methods of both are synchronous and may wait for a disk: call them from threads that may block (`tokio::task::spawn_blocking`). Only
//! [`When::Synced`], [`ByteStore::sync`] and [`FlowStore::tick`] wait for a sync, and those who wait at the same time share one.

mod byte_log;
mod flows;
mod log;
mod memory;
mod settings;
mod store;
mod sync;

use hoop_flow::{FlowName, Record};
use hoop_units::ByteRange;
use std::fmt::Debug;
use std::io;

pub use hoop_clock::Clock;
pub use hoop_flow_table::{Lifetimes, Limits};
pub use log::{Damage, OpenError};
pub use memory::MemoryStore;
pub use settings::Settings;
pub use store::{Report, Store, Usage, check};

/// The longest attachment, in bytes: a URL and something beside it.
pub const ATTACHMENT_MAX: usize = 1024;

/// A flow as it is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The machine's part.
    pub record: Record,
    /// What the application wants to find again with it, at most [`ATTACHMENT_MAX`] bytes.
    pub attachment: Vec<u8>,
    /// Whether what comes is in the [`ByteStore`] until it is consumed. Then [`FlowStore::take`] sets `record.kept` and `record.consumed` to what the
    /// bytes say, which may be later than the record.
    pub spools: bool,
}

/// Where a flow stands in its life. Parked ones are spilled, the ones that have been quiet longest first, as memory is needed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    /// Attached, and busy.
    Live,
    /// Attached, and nothing is to be said: [`Due::Park`] names it after a while.
    Quiet,
    /// Attached to nothing.
    Parked,
}

/// When something outlives a restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum When {
    /// Once somebody syncs, or the store does by itself; a process that is killed loses at most the last second.
    Later,
    /// When the call returns.
    Synced,
}

/// What is known of a name.
#[derive(Clone, Debug)]
pub enum Found {
    /// A flow, which is [`Life::Live`] from now on.
    Kept(Box<Kept>),
    /// It has ended, with this code; remembered for a while.
    Ended(u64),
    /// Nothing.
    Unknown,
}

/// What time has made due.
#[derive(Clone, Debug)]
pub enum Due {
    /// This attached flow has been quiet for long, or memory is short: it is to be parked ([`hoop_flow::Flow::park`]).
    Park(FlowName),
    /// This flow has expired, and is removed. It was attached to nothing; one that is attached ends by its own machine.
    Expired(Box<Kept>),
}

/// The flows of a server.
pub trait FlowStore: Debug + Send + Sync {
    /// Writes a flow down as it stands: a new one, or one that is known. To be called
    /// - with [`When::Synced`] before the first ATTACHED of a flow leaves, before DATA beyond `record.written` leaves, before a FIN of its own leaves, and before bytes
    ///   are dropped (`record.available`);
    /// - with [`When::Later`] whenever it becomes quiet or busy, or is detached. Everything else in a record may be out of date.
    ///
    /// # Errors
    /// [`StoreError::Full`] and [`StoreError::DeviceFull`] for a new flow only. If the disk fails, a flow that is known stays in memory as it
    /// is told here, and is written once that is possible.
    fn put(&self, kept: &Kept, life: Life, when: When) -> Result<(), StoreError>;

    /// Finds a flow that is to be attached.
    ///
    /// # Errors
    /// If it cannot be read.
    fn take(&self, name: FlowName) -> Result<Found, StoreError>;

    /// A flow has ended with this code: it is forgotten with its bytes, and how it ended is remembered for a while. Written down later: if that is lost, the flow is
    /// there again until it expires, and no harm is done.
    ///
    /// # Errors
    /// If the disk fails; it is forgotten nevertheless.
    fn remove(&self, name: FlowName, code: u64) -> Result<(), StoreError>;

    /// To be called about once a second: syncs what was to be written later, tidies up, and says what is due, at most some thousand at a time.
    ///
    /// # Errors
    /// If the disk fails. Nothing is lost by it.
    fn tick(&self) -> Result<Vec<Due>, StoreError>;
}

/// What devices have sent and the application has not consumed, for flows with `keeps_at_once: false`.
pub trait ByteStore: Debug + Send + Sync {
    /// Takes bytes in that follow on what there is of this flow; returns what lies before is there. A flow's first may begin anywhere. What is there already is passed over. They outlive a restart once a
    /// [`ByteStore::sync`] that was begun later has returned, and may be acknowledged then ([`hoop_flow::Flow::keep`]).
    ///
    /// # Errors
    /// [`StoreError::Gap`] if they do not follow; [`StoreError::Full`] and [`StoreError::DeviceFull`] if too much is held: try again when some is
    /// consumed, and acknowledge nothing.
    fn append(&self, name: FlowName, offset: u64, bytes: &[u8]) -> Result<u64, StoreError>;

    /// Waits until everything outlives a restart that was appended before, by whomever. Many may call it at once, and share one sync.
    ///
    /// # Errors
    /// If the disk fails. What was appended since the last sync is not to be acknowledged then, ever: the disk may have lost it.
    fn sync(&self) -> Result<(), StoreError>;

    /// Reads from `offset` on; returns how many bytes there were, 0 at the end.
    ///
    /// # Errors
    /// [`StoreError::Gap`] before the first that is held; [`StoreError::Damaged`] if the disk gives back something else than was written.
    fn read(&self, name: FlowName, offset: u64, into: &mut [u8]) -> Result<usize, StoreError>;

    /// The application needs nothing before `offset` any more. Written down later: after a restart it may be less, and the application is given some bytes again. Whoever must not see
    /// a byte twice notes down himself how far he has come, and consumes up to there after a restart.
    ///
    /// # Errors
    /// If the disk fails; the bytes are gone nevertheless.
    fn consume(&self, name: FlowName, offset: u64) -> Result<(), StoreError>;

    /// What is held of a flow: from what is consumed to the end. None: nothing was ever appended, or all was consumed before the last restart.
    fn held(&self, name: FlowName) -> Option<ByteRange>;
}

/// A store does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// As much as this server holds.
    #[error("the store is full: it holds {0}")]
    Full(&'static str),
    /// As much as one device may have.
    #[error("the device has as much as one device may have: {0}")]
    DeviceFull(&'static str),
    /// Bytes that do not follow on, or are gone.
    #[error("byte {asked} was asked for, and {held} is held")]
    Gap {
        /// Which.
        asked: u64,
        /// What there is.
        held: ByteRange,
    },
    /// The caller's mistake.
    #[error("an attachment of {0} bytes is longer than {ATTACHMENT_MAX}")]
    Attachment(usize),
    /// The disk has no more room, or may not be written. It is tried again.
    #[error("the store cannot be written: {0}")]
    Disk(#[from] io::Error),
    /// The disk gives back something else than was written.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}
