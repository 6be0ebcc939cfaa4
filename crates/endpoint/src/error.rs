//! Why a flow goes on no more: [`FlowError`].

use hoop_flow::ended;
use hoop_flow::frame::Refusal;
use std::io;

/// Why a flow goes on no more. Reading and writing give it within an [`io::Error`]: [`FlowError::of`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowError {
    /// It ended, with a code of `docs/flow.md` §6 ([`ended`]) or of the applications.
    #[error("the flow has ended: {}", meaning(*.0))]
    Ended(u64),
    /// The server does not take it, or no longer knows it.
    #[error("the server refuses the flow: {0:?}")]
    Refused(Refusal),
    /// This end has given it up.
    #[error("the flow was given up here, with code {0:#x}")]
    Reset(u64),
    /// It was parked here, or the endpoint that it belongs to is gone.
    #[error("the flow is not here any more")]
    Gone,
}

impl FlowError {
    /// What a flow's [`io::Error`] is about, if it came of a flow.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// `TimedOut`: its deadline has passed. `ConnectionRefused`: the server does not take it. `BrokenPipe`: it has ended in order, or here.
    /// `InvalidData`: bytes are lost, or an end broke the protocol. `ConnectionReset`: an application gave it up.
    const fn kind(self) -> io::ErrorKind {
        match self {
            Self::Ended(ended::FINISHED) | Self::Reset(_) => io::ErrorKind::BrokenPipe,
            Self::Ended(ended::EXPIRED) => io::ErrorKind::TimedOut,
            Self::Ended(ended::LOST | ended::PROTOCOL) => io::ErrorKind::InvalidData,
            Self::Ended(_) => io::ErrorKind::ConnectionReset,
            Self::Refused(_) => io::ErrorKind::ConnectionRefused,
            Self::Gone => io::ErrorKind::NotConnected,
        }
    }
}

impl From<FlowError> for io::Error {
    fn from(error: FlowError) -> Self {
        Self::new(error.kind(), error)
    }
}

fn meaning(code: u64) -> String {
    match code {
        ended::FINISHED => "both streams are whole".into(),
        ended::EXPIRED => "its deadline has passed".into(),
        ended::LOST => "one end lacks bytes that the other no longer has".into(),
        ended::PROTOCOL => "an end broke the protocol".into(),
        ended::GIVEN_UP => "the other end gave it up".into(),
        code => format!("code {code:#x}"),
    }
}
