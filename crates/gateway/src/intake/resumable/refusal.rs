//! What the draft wants said when a request for a resumable upload is refused: [`Refusal`].

use hoop_http::{Code, Problem};

/// A refusal, with what the draft wants said of it.
pub struct Refusal {
    pub problem: Problem,
    /// Whether the upload has ended with this.
    pub complete: bool,
    /// How far the upload is.
    pub offset: Option<u64>,
    pub kind: Kind,
}

/// The draft's own types of problems.
pub enum Kind {
    Other,
    Offset { expected: u64, provided: u64 },
    Length,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { complete: problem.code.is_final(), problem, offset: None, kind: Kind::Other }
    }
}

impl Refusal {
    /// A part that begins elsewhere than the last one ended.
    pub fn offset(expected: u64, provided: u64) -> Self {
        let detail = format!("{expected} bytes are here, and the part begins at {provided}");
        let problem = Problem::new(Code::OffsetMismatch, detail).field("Upload-Offset");
        Self { problem, complete: false, offset: Some(expected), kind: Kind::Offset { expected, provided } }
    }

    /// Lengths that do not agree.
    pub fn length(detail: impl std::fmt::Display) -> Self {
        let problem = Problem::new(Code::LengthInconsistent, detail).field("Upload-Length");
        Self { problem, complete: false, offset: None, kind: Kind::Length }
    }

    /// A last part that ended too soon.
    pub fn ended(end: u64, total: u64) -> Self {
        Self { offset: Some(end), ..Self::length(format_args!("it ended after {end} bytes of {total}")) }
    }
}

/// Two lengths that were told and differ.
pub fn inconsistent((one, other): (u64, u64)) -> Refusal {
    Refusal::length(format_args!("{one} bytes by one word, {other} by another"))
}

impl Kind {
    /// The problem's document with the draft's type and members, where the draft has one.
    pub fn document(&self, problem: &Problem) -> Option<Vec<u8>> {
        const TYPES: &str = "https://iana.org/assignments/http-problem-types#";
        let name = match self {
            Self::Other => return None,
            Self::Offset { .. } => "mismatching-upload-offset",
            Self::Length => "inconsistent-upload-length",
        };
        let mut document: serde_json::Value = serde_json::from_slice(&problem.to_json()).ok()?;
        document["type"] = format!("{TYPES}{name}").into();
        if let Self::Offset { expected, provided } = self {
            document["expected-offset"] = (*expected).into();
            document["provided-offset"] = (*provided).into();
        }
        serde_json::to_vec(&document).ok()
    }
}
