//! Why a push came to nothing: [`PushError`]; why nobody tells a status: [`StatusError`].

use crate::request::upload::UploadError;
use crate::state::resume_state::ResumeError;
use crate::ticket::TicketsError;
use crate::wire::Refusal;
use hoop_units::UploadId;

/// The upload is not known to be stored anywhere. Each variant has an exit code of `hoop push` (`docs/push.md`).
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The request cannot be made, or a local file cannot be read.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// There is no ticket.
    #[error(transparent)]
    Tickets(#[from] TicketsError),
    /// The service does not take the upload.
    #[error("the service does not take the upload: {0}")]
    Refused(Refusal),
    /// It is larger than the ticket allows.
    #[error("the upload has {len} bytes when sealed; the service allows {max}")]
    TooLarge {
        /// Its length.
        len: u64,
        /// The ticket's limit.
        max: u64,
    },
    /// Neither a gateway nor the service could be reached for too long.
    #[error("nobody can be reached: {0}")]
    Unreachable(String),
    /// The service can be reached, and has taken nothing for too long: it is full, or has too much to do.
    #[error("the service takes nothing now: {0}")]
    NotNow(Refusal),
    /// It cannot be gone on with.
    #[error("it cannot be resumed: {0}")]
    Resume(#[from] ResumeError),
    /// What was to be kept for later could not be written.
    #[error("cannot write to the state folder: {0}")]
    State(std::io::Error),
    /// A defect.
    #[error("{0}")]
    Internal(&'static str),
}

impl PushError {
    /// Whether the same upload may get through later, as it is.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NotNow(_))
    }
}

/// Nobody tells the status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Neither gateway nor service can be reached.
    #[error("neither the gateway nor the service can be asked: {0}")]
    Unreachable(String),
    /// They do not know the upload.
    #[error("neither the gateway nor the service knows the upload")]
    Unknown,
    /// This device has no record of it.
    #[error("this device remembers no upload {0}")]
    NotOurs(UploadId),
}
