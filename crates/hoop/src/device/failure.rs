//! What the client library reports, as it is told on the command line.

use crate::base::exit::{Exit, Failure};
use hoop_client::{
    PushError, ReleaseError, ResumeError, SourceError, State, Status, StatusError, TicketsError, UploadError,
};
use hoop_http::Code;

/// The code for the state in which an upload was left.
pub const fn exit_of(state: State) -> Exit {
    match state {
        State::Announced | State::Receiving | State::Stored => Exit::Done,
        State::Delivering | State::Received | State::Accepted => Exit::Done,
        State::Held => Exit::Held,
        State::Rejected => Exit::Rejected,
        State::Unknown => Exit::Unknown,
        State::Stopped | State::Expired | State::Refused => Exit::Refused,
    }
}

/// The code for what is said of an upload later: what a gateway claims alone is not proven.
pub fn exit_of_status(status: &Status) -> Exit {
    match status.state {
        state if state.is_given_up() => exit_of(state),
        _ if status.denied => Exit::Missing,
        _ if status.is_claim() => Exit::Unproven,
        state => exit_of(state),
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
            PushError::Tickets(TicketsError::Refused(refusal)) if refusal.status == 429 => {
                Self::new(Exit::Refused, "the service issues no ticket now", refusal).hint("again in a minute")
            }
            PushError::Tickets(TicketsError::Refused(refusal)) => {
                Self::new(Exit::Refused, "the service issues no ticket", refusal)
                    .hint("sign in: -u user:password, -b 'name=value' or -H 'Authorization: …'")
            }
            // What rustls says of a server that does not speak TLS at all.
            PushError::Tickets(TicketsError::Link(error)) if error.to_string().contains("InvalidContentType") => {
                Self::new(Exit::Network, "nothing speaks TLS at that port", error)
                    .hint("http:// instead of https://, if that is meant")
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
            PushError::NotNow(refusal) => {
                Self::new(Exit::Network, "the service takes nothing now", refusal).hint("again, in a while")
            }
            PushError::Resume(error @ ResumeError::InUse) => {
                Self::new(Exit::Unexpected, "the upload cannot be resumed", error).hint("again, once that has ended")
            }
            PushError::Resume(error @ (ResumeError::NotKept(_) | ResumeError::Restarted)) => {
                Self::new(Exit::Refused, "the upload cannot be resumed", error)
                    .hint("`hoop status ID`, and if it has not arrived, the upload anew with `hoop push`")
            }
            PushError::State(error) => {
                Self::new(Exit::File, "the state folder cannot be written", error).hint("another folder in HOOP_STATE")
            }
            PushError::Internal(what) => Self::plain(Exit::Unexpected, what),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Status(error) => error.into(),
            ReleaseError::Link(error) => {
                Self::new(Exit::Network, "the service cannot be reached", error).hint("again, when the network is back")
            }
            ReleaseError::Refused(refusal) => {
                let code = refusal.problem.as_ref().map(|problem| problem.code);
                let failure = Self::new(Exit::Refused, "the service does not hand it over again", refusal);
                match code {
                    Some(Code::SignInRequired) => {
                        failure.hint("-b 'name=value' with the cookies of a session that is good now")
                    }
                    Some(Code::NotOwner) => failure.hint("the session of whoever sent it"),
                    Some(Code::TwicePossible) => {
                        failure.hint("a look into the application; then --even-twice, if it may be there twice")
                    }
                    _ => failure,
                }
            }
            error @ ReleaseError::Unusable => Self::plain(Exit::Unexpected, error).hint("a newer hoop here"),
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
            UploadError::Source(SourceError::Note { path, source }) => {
                Self::new(Exit::File, format!("{} cannot be written", path.display()), source)
                    .hint("another folder in HOOP_STATE")
            }
            UploadError::Source(SourceError::Changed(path)) => {
                Self::plain(Exit::Changed, format!("{} changed while it was being sent", path.display()))
                    .hint("the upload anew with `hoop push`, once nobody writes to the file; nothing of this attempt will be delivered")
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
            StatusError::Unknown => Self::plain(Exit::Missing, "neither the gateway nor the service knows the upload")
                .hint("`hoop resume ID`, or the upload again, if the application does not have it"),
            StatusError::NotOurs(id) => Self::plain(Exit::Usage, format!("this device remembers no upload {id}"))
                .hint("`hoop status`, which lists those that it remembers"),
        }
    }
}
