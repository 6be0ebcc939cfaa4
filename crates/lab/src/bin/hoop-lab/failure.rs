//! Why `hoop-lab` could not do what it was asked, and the exit code that says so.

use hoop_lab::RelayError;
use std::io;
use std::process::ExitCode;

/// Wrong usage, or a description that makes no sense.
pub const WRONG: u8 = 2;

/// This machine allows no lab.
#[cfg(target_os = "linux")]
pub const UNAVAILABLE: u8 = 3;

/// The system refused something.
pub const REFUSED: u8 = 4;

/// `run` failed before its command had started: told apart from the command's own codes, as env(1) and timeout(1) do.
#[cfg(target_os = "linux")]
pub const NOT_RUN: u8 = 125;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What was asked makes no sense; the text names the argument or the field.
    #[error("{0}")]
    Wrong(String),
    /// This machine allows no lab.
    #[cfg(target_os = "linux")]
    #[error("{0}")]
    Unavailable(#[from] hoop_lab::WhyNot),
    /// The system refused something.
    #[error("{doing}: {source}")]
    Refused {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Failure {
    /// For `map_err`: what was being done when the system refused.
    pub fn refused(doing: &str) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.to_owned();
        |source| Self::Refused { doing, source }
    }

    /// The code that tells this failure from others.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Wrong(_) => WRONG,
            #[cfg(target_os = "linux")]
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Refused { .. } => REFUSED,
        })
    }
}

#[cfg(target_os = "linux")]
impl From<hoop_lab::DescriptionError> for Failure {
    fn from(error: hoop_lab::DescriptionError) -> Self {
        Self::Wrong(error.to_string())
    }
}

#[cfg(target_os = "linux")]
impl From<hoop_lab::BuildError> for Failure {
    fn from(error: hoop_lab::BuildError) -> Self {
        match error {
            hoop_lab::BuildError::Topology(error) => Self::Wrong(error.to_string()),
            hoop_lab::BuildError::Unavailable(why_not) => Self::Unavailable(why_not),
            hoop_lab::BuildError::System { doing, source } => Self::Refused { doing, source },
        }
    }
}

impl From<RelayError> for Failure {
    fn from(error: RelayError) -> Self {
        match error {
            RelayError::Listen { address, source } => Self::Refused { doing: format!("--listen {address}"), source },
            RelayError::Unreliable(_) => Self::Wrong(error.to_string()),
        }
    }
}
