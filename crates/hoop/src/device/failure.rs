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
                    .hint("use `hoop push`, which sends the ordinary request instead")
            }
            PushError::Tickets(TicketsError::Refused(refusal)) if refusal.status == 429 => {
                Self::new(Exit::Refused, "the service issues no ticket now", refusal).hint("try again in a minute")
            }
            PushError::Tickets(TicketsError::Refused(refusal)) => {
                Self::new(Exit::Refused, "the service issues no ticket", refusal)
                    .hint("sign in: -u user:password, -b 'name=value' or -H 'Authorization: …'")
            }
            // What rustls says of a server that does not speak TLS at all.
            PushError::Tickets(TicketsError::Link(error)) if error.to_string().contains("InvalidContentType") => {
                Self::new(Exit::Network, "the server does not speak TLS on that port", error)
                    .hint("use http:// instead of https://, if you meant that")
            }
            PushError::Tickets(TicketsError::Link(error)) if error.is_distrust() => {
                Self::new(Exit::Network, "cannot trust the service's certificate", error)
                    .hint("name its certificate authority with --ca FILE, if it has one of its own")
            }
            PushError::Tickets(TicketsError::Link(error)) => Self::new(
                Exit::Network,
                "cannot reach the service for a ticket",
                error,
            )
            .hint(
                "check the URL and the network; `hoop tickets` fetches tickets in advance, for a time when the service is out of reach",
            ),
            PushError::Tickets(TicketsError::Unusable(reason)) => {
                Self::new(Exit::Unexpected, "cannot use the service's ticket", reason)
                    .hint("install a newer hoop here, or at the service")
            }
            PushError::Refused(refusal) => Self::new(Exit::Refused, "the service does not take the upload", refusal),
            PushError::TooLarge { len, max } => Self::new(
                Exit::Refused,
                "the upload is larger than the service allows",
                format!("it has {len} bytes when sealed, but at most {max} are allowed"),
            ),
            PushError::Unreachable(reason) => {
                Self::new(Exit::Network, "cannot reach a gateway or the service", reason).hint("try again when the network is back")
            }
            PushError::NotNow(refusal) => {
                Self::new(Exit::Network, "the service takes no uploads now", refusal).hint("try again later")
            }
            PushError::Resume(error @ ResumeError::InUse) => {
                Self::new(Exit::Unexpected, "cannot resume the upload", error).hint("try again when the other process has ended")
            }
            PushError::Resume(error @ (ResumeError::NotKept(_) | ResumeError::Restarted)) => {
                Self::new(Exit::Refused, "cannot resume the upload", error)
                    .hint("run `hoop status ID`; if the upload has not arrived, send it again with `hoop push`")
            }
            PushError::State(error) => {
                Self::new(Exit::File, "cannot write the state folder", error).hint("set HOOP_STATE to another folder")
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
                Self::new(Exit::Network, "cannot reach the service", error).hint("try again when the network is back")
            }
            ReleaseError::Refused(refusal) => {
                let code = refusal.problem.as_ref().map(|problem| problem.code);
                let failure = Self::new(Exit::Refused, "the service refuses to hand over the upload again", refusal);
                match code {
                    Some(Code::SignInRequired) => {
                        failure.hint("give the cookies of a session that is valid now: -b 'name=value'")
                    }
                    Some(Code::NotOwner) => failure.hint("use the session of the user who sent it"),
                    Some(Code::TwicePossible) => {
                        failure.hint("look into the application; if the upload may be there twice, use --even-twice")
                    }
                    _ => failure,
                }
            }
            error @ ReleaseError::Unusable => Self::plain(Exit::Unexpected, error).hint("install a newer hoop here"),
        }
    }
}

impl From<UploadError> for Failure {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::Source(SourceError::Read { path, source }) => {
                Self::new(Exit::File, format!("cannot read {}", path.display()), source)
            }
            UploadError::Source(SourceError::Directory(path)) => {
                Self::plain(Exit::File, format!("{} is a directory", path.display()))
                    .hint("send a file, or an archive of the directory")
            }
            UploadError::Source(SourceError::Spool { path, source }) => {
                Self::new(Exit::File, format!("cannot copy {} to a temporary file", path.display()), source)
                    .hint("set TMPDIR to another folder")
            }
            UploadError::Source(SourceError::Note { path, source }) => {
                Self::new(Exit::File, format!("cannot write {}", path.display()), source)
                    .hint("set HOOP_STATE to another folder")
            }
            UploadError::Source(SourceError::Changed(path)) => {
                Self::plain(Exit::Changed, format!("{} changed while it was being sent", path.display())).hint(
                    "run `hoop push` again when nobody writes to the file; nothing of this attempt will be delivered",
                )
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
                Self::new(Exit::Network, "cannot ask the gateway or the service", reason)
            }
            StatusError::Unknown => Self::plain(Exit::Missing, "neither the gateway nor the service knows the upload")
                .hint("run `hoop resume ID`; or send the upload again, if the application does not have it"),
            StatusError::NotOurs(id) => {
                Self::plain(Exit::Usage, format!("this device does not remember an upload {id}"))
                    .hint("`hoop status` lists the uploads that it remembers")
            }
        }
    }
}
