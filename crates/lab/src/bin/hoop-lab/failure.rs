//! Why `hoop-lab` could not do what it was asked, and the exit code that says so.

use hoop_lab::{BuildError, DescriptionError, RelayError, WhyNot};
use std::io;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What was asked makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The description of the topology does not.
    #[error("{0}")]
    Description(#[from] DescriptionError),
    /// No lab could be built.
    #[error("{0}")]
    Build(#[from] BuildError),
    /// The relay ended.
    #[error("{0}")]
    Relay(#[from] RelayError),
    /// The system refused something else.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Which codes a command ends with.
#[derive(Clone, Copy)]
pub enum Codes {
    /// 2, 3 and 4.
    Own,
    /// 125 for all, since the others are the command's.
    Run,
}

impl Failure {
    /// For `map_err`: what was being done when the system refused.
    pub fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }

    /// The code that tells this failure from others.
    pub fn exit_code(&self, codes: Codes) -> ExitCode {
        ExitCode::from(match (codes, self) {
            (Codes::Run, _) => 125,
            (Codes::Own, Self::Usage(_) | Self::Description(_) | Self::Build(BuildError::Topology(_))) => 2,
            (Codes::Own, Self::Build(BuildError::Unavailable(_))) => 3,
            (Codes::Own, Self::Build(BuildError::System { .. }) | Self::Relay(_) | Self::System { .. }) => 4,
        })
    }
}

impl From<WhyNot> for Failure {
    fn from(why_not: WhyNot) -> Self {
        Self::Build(why_not.into())
    }
}
