//! How `hoop` ends: [`Exit`] codes, and a [`Failure`] in words.

use hoop_client::{PushError, SourceError, State, StatusError, TicketsError, UploadError};
use std::fmt;

/// The exit codes; `docs/push.md` has the same table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Done, as far as was asked.
    Done = 0,
    /// Something unexpected.
    Unexpected = 1,
    /// The command line or a configuration is wrong.
    Usage = 2,
    /// A local file cannot be read or written.
    File = 3,
    /// The service or the gateway does not take it, for good.
    Refused = 4,
    /// The application has rejected it.
    Rejected = 5,
    /// It is held until its owner has signed in.
    Held = 6,
    /// Nobody can be reached.
    Network = 7,
    /// The wait was over; the upload is safe.
    TimedOut = 8,
    /// The application had the whole request, and its answer was lost.
    Unknown = 9,
    /// A file changed while it was being sent.
    Changed = 10,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The code for the state in which an upload was left.
    pub const fn of_state(state: State) -> Self {
        match state {
            State::Receiving | State::Stored | State::Delivering | State::Received | State::Accepted => Self::Done,
            State::Held => Self::Held,
            State::Rejected => Self::Rejected,
            State::Unknown => Self::Unknown,
            State::Stopped | State::Expired | State::Refused => Self::Refused,
        }
    }
}

/// What went wrong, as it is printed: a sentence, the cause, what to try.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    what: String,
    cause: Option<String>,
    hint: Option<String>,
}

impl Failure {
    /// A failure with its cause.
    pub fn new(exit: Exit, what: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self { exit, what: what.to_string(), cause: Some(cause.to_string()), hint: None }
    }

    /// A failure that says everything itself.
    pub fn plain(exit: Exit, what: impl fmt::Display) -> Self {
        Self { exit, what: what.to_string(), cause: None, hint: None }
    }

    /// A command line that means nothing.
    pub fn usage(what: impl fmt::Display) -> Self {
        Self::plain(Exit::Usage, what)
    }

    /// The same, with what to try.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The sentence and the cause in one line, for `--json`.
    pub fn message(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.what),
            None => self.what.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Error: {}.", self.what)?;
        if let Some(cause) = &self.cause {
            writeln!(f, "  Cause: {cause}.")?;
        }
        self.hint.iter().try_for_each(|hint| writeln!(f, "  Try: {hint}."))
    }
}

impl From<PushError> for Failure {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Upload(error) => error.into(),
            PushError::Tickets(TicketsError::NoHoop(reason)) => {
                Self::new(Exit::Refused, "the service does not take sealed uploads", reason)
                    .hint("`hoop push`, which then sends the ordinary request")
            }
            PushError::Tickets(TicketsError::Refused(refusal)) => {
                Self::new(Exit::Refused, "the service issues no ticket", refusal)
                    .hint("sign in: -u user:password, -b 'name=value' or -H 'Authorization: …'")
            }
            PushError::Tickets(TicketsError::Link(error)) if error.is_distrust() => {
                Self::new(Exit::Network, "the service cannot be trusted", error)
                    .hint("--ca FILE with its certificate authority, if it has one of its own")
            }
            PushError::Tickets(TicketsError::Link(error)) => Self::new(
                Exit::Network,
                "the service cannot be reached for a ticket",
                error,
            )
            .hint(
                "check the URL and the network; `hoop tickets` fetches some ahead for when the service is out of reach",
            ),
            PushError::Tickets(TicketsError::Unusable(reason)) => {
                Self::new(Exit::Unexpected, "the service's ticket cannot be used", reason)
                    .hint("a newer hoop here, or at the service")
            }
            PushError::Refused(refusal) => Self::new(Exit::Refused, "the service does not take the upload", refusal),
            PushError::TooLarge { len, max } => Self::new(
                Exit::Refused,
                "the upload is larger than the service allows",
                format!("it has {len} bytes when sealed, and {max} are allowed"),
            ),
            PushError::Unreachable(reason) => {
                Self::new(Exit::Network, "nobody can be reached", reason).hint("again, when the network is back")
            }
            PushError::State(error) => {
                Self::new(Exit::File, "the state folder cannot be written", error).hint("another folder in HOOP_STATE")
            }
            PushError::Internal(what) => Self::plain(Exit::Unexpected, what),
        }
    }
}

impl From<UploadError> for Failure {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::Source(SourceError::Read { path, source }) => {
                Self::new(Exit::File, format!("{} cannot be read", path.display()), source)
            }
            UploadError::Source(SourceError::Directory(path)) => {
                Self::plain(Exit::File, format!("{} is a directory", path.display()))
                    .hint("a file, or an archive of it")
            }
            UploadError::Source(SourceError::Spool { path, source }) => {
                Self::new(Exit::File, format!("{} cannot be copied to a temporary file", path.display()), source)
                    .hint("another folder in TMPDIR")
            }
            UploadError::Source(SourceError::Changed(path)) => {
                Self::plain(Exit::Changed, format!("{} changed while it was being sent", path.display()))
                    .hint("again, once nobody writes to it; nothing of this attempt will be delivered")
            }
            error @ (UploadError::Url(_)
            | UploadError::Method(_)
            | UploadError::Header(_)
            | UploadError::Head { .. }
            | UploadError::Parts(_)) => Self::usage(error),
        }
    }
}

impl From<StatusError> for Failure {
    fn from(error: StatusError) -> Self {
        match error {
            StatusError::Unreachable(reason) => {
                Self::new(Exit::Network, "neither the gateway nor the service can be asked", reason)
            }
            StatusError::Unknown => Self::plain(Exit::Refused, "neither the gateway nor the service knows the upload")
                .hint("the upload again, if the application does not have it"),
            StatusError::NotOurs(id) => Self::plain(Exit::Usage, format!("this device remembers no upload {id}"))
                .hint("`hoop status`, which lists those that it remembers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_stands_in_the_page_of_push() {
        let page = include_str!("../../../docs/push.md");
        for exit in [
            Exit::Done,
            Exit::Unexpected,
            Exit::Usage,
            Exit::File,
            Exit::Refused,
            Exit::Rejected,
            Exit::Held,
            Exit::Network,
            Exit::TimedOut,
            Exit::Unknown,
            Exit::Changed,
        ] {
            assert!(page.contains(&format!("\n| {} | ", exit.code())), "{exit:?}");
        }
    }

    #[test]
    fn a_failure_is_a_sentence_a_cause_and_what_to_try() {
        let failure = Failure::new(Exit::Network, "nobody can be reached", "no route").hint("again");
        assert_eq!(failure.to_string(), "Error: nobody can be reached.\n  Cause: no route.\n  Try: again.\n");
        assert_eq!(failure.message(), "nobody can be reached: no route");
    }
}
