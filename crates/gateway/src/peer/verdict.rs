//! What a service's answer means: [`judge`] says a [`ServiceVerdict`]. Nothing here has a socket or a clock.

use super::status::{ServiceStatus, delivered_from_missing};
use crate::core::wire;
use bytes::Bytes;
use hoop_http::{Code, Problem, retry_after};
use hoop_spool::State;
use hoop_units::{ByteRange, RangeSet};
use http::{HeaderMap, HeaderName, StatusCode};
use std::time::{Duration, SystemTime};

/// An attempt failed for now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retryable {
    pub code: Code,
    pub detail: String,
    pub retry_after: Option<Duration>,
    /// The destination is at fault as a whole.
    pub destination: bool,
}

impl Retryable {
    pub fn new(code: Code, detail: impl std::fmt::Display) -> Self {
        Self { code, detail: detail.to_string(), retry_after: None, destination: false }
    }

    pub fn destination(mut self) -> Self {
        self.destination = true;
        self
    }
}

/// What a service's answer to a question about an upload means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServiceVerdict {
    /// The service says where the upload stands.
    Stands { state: State, has: RangeSet, status: Option<Box<ServiceStatus>> },
    /// The service knows nothing of it.
    Unknown,
    /// It ends here.
    Ends { state: State, code: Code, detail: String },
    /// It is over already; the status says how.
    AskHow,
    /// A record did not open; which one, if the service says so.
    Corrupt { record: Option<u64>, detail: String },
    /// The message was too long for something on the way.
    TooLong,
    /// Try again.
    Retry(Retryable),
}

/// An answer, read whole.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What an answer about an upload of `total` bytes means, at that time.
pub fn judge(answer: &Answer, total: u64, now: SystemTime) -> ServiceVerdict {
    if answer.status.is_success() {
        return judge_success(answer, total);
    }
    if answer.status.is_redirection() {
        let detail = format!("it answered {}; redirects are not followed", answer.status);
        return ServiceVerdict::Retry(Retryable::new(Code::DestNotHoop, detail));
    }
    let retry_after = retry_after(&answer.headers, now);
    let problem = Problem::from_json(&answer.body);
    let is_of_one = problem.as_ref().is_some_and(|problem| problem.code == Code::RangeTooMany);
    let busy = matches!(answer.status.as_u16(), 429 | 502 | 503 | 504) && !is_of_one;
    let retry =
        |code, detail: String| ServiceVerdict::Retry(Retryable { code, detail, retry_after, destination: busy });
    let Some(problem) = problem else {
        return match answer.status {
            StatusCode::PAYLOAD_TOO_LARGE => ServiceVerdict::TooLong,
            StatusCode::NOT_FOUND => ServiceVerdict::Unknown,
            status => retry(Code::DestUnreachable, format!("it answered {status}")),
        };
    };
    let said = their_words(&problem.detail);
    let ends = |state| ServiceVerdict::Ends { state, code: problem.code, detail: said.clone() };
    match problem.code {
        Code::UploadUnknown | Code::NotFound => ServiceVerdict::Unknown,
        Code::UploadDone => ServiceVerdict::AskHow,
        Code::UploadStopped => ends(State::Stopped),
        Code::UploadExpired => ends(State::Expired),
        Code::AnswerLost => ends(State::Unknown),
        Code::Rejected => ends(State::Rejected),
        Code::RecordCorrupt => {
            let record = problem.field.as_deref().and_then(|field| field.strip_prefix("record ")?.parse().ok());
            ServiceVerdict::Corrupt { record, detail: said }
        }
        // Somebody who knew the prelude may have come first with one of the same name, and goes again: what is stored here stays.
        Code::UploadConflict => retry(problem.code, said),
        code if code.is_final() => ends(State::Refused),
        code => retry(code, said),
    }
}

/// A 2xx: the headers of `docs/protocol.md` §5, a status, or both.
fn judge_success(answer: &Answer, total: u64) -> ServiceVerdict {
    let text = |name: &HeaderName| answer.headers.get(name).and_then(|value| value.to_str().ok());
    let status = ServiceStatus::parse(&answer.body);
    let name = text(&wire::STATE).or(status.as_ref().map(|status| status.state.as_str()));
    // What a service is at within itself looks like `received` from here.
    let state = name.and_then(|name| match name {
        "replaying" | "committing" => Some(State::Received),
        name => State::by_name(name),
    });
    let missing = text(&wire::MISSING).or(status.as_ref().map(|status| status.missing.as_str()));
    let has = missing.and_then(|missing| delivered_from_missing(missing, total));
    match (state, has) {
        (Some(State::Receiving), None) => no_word("it does not say what is missing"),
        (Some(state), has) => {
            let all = || [ByteRange::new(0, total)].into_iter().collect();
            let has = if state == State::Receiving { has.unwrap_or_default() } else { all() };
            ServiceVerdict::Stands { state, has, status: status.map(Box::new) }
        }
        (None, _) => no_word("its answer does not say where the upload stands"),
    }
}

/// The longest of a service's own words that are passed on: two lines of a page.
const THEIR_WORDS_MAX: usize = 200;

/// What a service wrote, marked as its own: the monitor's readers must not take it for this gateway's. Shortened, and in one line.
pub fn their_words(detail: &str) -> String {
    let plain: String = detail.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(THEIR_WORDS_MAX) {
        _ if words.is_empty() => String::new(),
        Some((end, _)) => format!("the service says: “{}…”", &words[..end]),
        None => format!("the service says: “{words}”"),
    }
}

fn no_word(why: &str) -> ServiceVerdict {
    ServiceVerdict::Retry(Retryable::new(Code::DestNotHoop, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_in_conflict_at_the_service_is_tried_again() {
        let of = |code| {
            let problem = Problem::new(code, "another prelude is known");
            let answer = Answer { status: code.status(), headers: HeaderMap::new(), body: problem.to_json().into() };
            judge(&answer, 9, SystemTime::UNIX_EPOCH)
        };
        assert!(matches!(of(Code::UploadConflict), ServiceVerdict::Retry(_)), "what is stored here stays");
        assert!(matches!(of(Code::TooLarge), ServiceVerdict::Ends { state: State::Refused, .. }));
    }

    /// All other uploads for it would wait.
    #[test]
    fn a_service_that_says_429_of_one_upload_is_not_busy_itself() {
        let is_destination = |code: Code| {
            let body = Problem::new(code, "").to_json().into();
            match judge(&Answer { status: code.status(), headers: HeaderMap::new(), body }, 9, SystemTime::UNIX_EPOCH) {
                ServiceVerdict::Retry(retryable) => retryable.destination,
                other => panic!("{other:?}"),
            }
        };
        assert!(is_destination(Code::TooManyRequests));
        assert_eq!(Code::RangeTooMany.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(!is_destination(Code::RangeTooMany));
    }

    #[test]
    fn a_services_words_are_marked_as_its_own_and_bounded() {
        assert_eq!(their_words("no\r\n\u{1b}[31m  room"), "the service says: “no [31m room”");
        assert_eq!(their_words(" \n"), "");
        let long = their_words(&"ü".repeat(100_000));
        assert_eq!(long.chars().filter(|letter| *letter == 'ü').count(), THEIR_WORDS_MAX);
    }
}
