//! Why bytes are not taken, for their sender: the problems that follow from the spool's errors and from how uploads ended.

use crate::access::receipts::Taken;
use crate::core::problems::{full_problem, store_problem};
use hoop_http::{Code, Problem};
use hoop_spool::{BeginError, CommitError, Reason, State, Upload, WriteError};

/// The receipt of an upload that takes no more bytes, unless it has ended without them.
pub fn whole(upload: &Upload) -> Result<Taken, Problem> {
    match given_up(upload.state, upload.reason.as_ref()) {
        Some(problem) => Err(problem),
        None => Ok(Taken::of(upload)),
    }
}

/// The refusal of more of an upload that has come to its end and will not be delivered, for the reason that is known: nothing of it is kept.
pub fn given_up(state: State, reason: Option<&Reason>) -> Option<Problem> {
    match state {
        State::Stopped => Some(Problem::new(Code::UploadStopped, "")),
        State::Expired => Some(Problem::new(Code::UploadExpired, "")),
        State::Refused => {
            let code = reason.and_then(|reason| Code::by_name(&reason.code)).unwrap_or(Code::UploadConflict);
            Some(Problem::new(code, reason.map_or("the service has refused it", |reason| &reason.detail)))
        }
        _ => None,
    }
}

/// Records cannot come before their prelude here.
pub fn early_problem(detail: impl std::fmt::Display) -> Problem {
    Problem::new(Code::PreludeNeeded, detail).field("Hoop-Early")
}

/// Why an upload cannot begin.
pub fn begin_problem(error: BeginError) -> Problem {
    match error {
        BeginError::Full { need, free } => full_problem(format_args!("{need} bytes are needed, and {free} are free")),
        BeginError::NoFiles(_) => full_problem(error),
        BeginError::Conflict(what) => {
            let field = match what {
                "prelude" => "Hoop-Prelude",
                "total" => "Content-Range",
                _ => "dest",
            };
            Problem::new(Code::UploadConflict, error).field(field)
        }
        BeginError::TooManySpans(_) => Problem::new(Code::RangeTooMany, error),
        BeginError::TooManyEarly(_) | BeginError::NotBegunHere => early_problem(error),
        BeginError::Store(error) => store_problem(&error),
    }
}

/// Why bytes cannot be written.
pub fn write_problem(error: WriteError) -> Problem {
    match error {
        WriteError::Full => full_problem("the disk became full; what came before is kept"),
        WriteError::PastTotal { .. } => Problem::new(Code::RangeInvalid, error).field("Content-Range"),
        WriteError::Store(error) => store_problem(&error),
    }
}

/// Why what has come could not be recorded, for its sender.
pub fn commit_problem(error: CommitError) -> Problem {
    match error {
        CommitError::Full => full_problem("the disk became full"),
        CommitError::Ended(state) if let Some(problem) = given_up(state, None) => problem,
        error @ (CommitError::Ended(_) | CommitError::Conflict(_)) => Problem::new(Code::UploadConflict, error),
        error @ CommitError::TooManySpans(_) => Problem::new(Code::RangeTooMany, error),
        error @ CommitError::NotWritten => {
            tracing::error!(%error, "an intake lost count");
            Problem::new(Code::Internal, error)
        }
        CommitError::Store(error) => store_problem(&error),
    }
}

/// A body ended too soon.
pub fn truncated(end: u64, expected: Option<u64>) -> Problem {
    let detail = match expected {
        Some(expected) => format!("it ended at byte {end} of {expected}; whole records before that are kept"),
        None => {
            format!("it ended at byte {end}, and its length is not known; send Content-Length to be able to resume")
        }
    };
    Problem::new(Code::BodyTruncated, detail)
}
