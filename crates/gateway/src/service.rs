//! Speaking with a service: [`Service`], one connection and the exchanges over it.

use crate::core::wire;
use crate::destination::Dest;
use crate::shared::Shared;
use crate::status::{ServiceStatus, delivered_from_missing};
use crate::well_known::{DOCUMENT_MAX, Refusal, WellKnown, When, Word as Known};
use bytes::Bytes;
use hoop_http::{Body, Code, ConnectError, Connection, Problem, empty, read_limited, retry_after};
use hoop_spool::State;
use hoop_units::RangeSet;
use http::request::Builder;
use http::{HeaderMap, Method, Request, StatusCode, header};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// How long nothing may move before an exchange is given up: longer than a mobile link's sulks and the service's own
/// waiting (30 s), shorter than people's patience with a progress bar.
pub const STALL: Duration = Duration::from_secs(120);

/// How long an exchange without a body of ours may take, its connection included: as long as a service is asked to wait, and some seconds for a
/// full uplink. Questions have few slots, and a service that does not answer must not hold them longer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(40);

/// The longest body of an answer that is read: a status with a sealed answer.
const ANSWER_BODY_MAX: usize = 64 * 1024;

/// How long a service is asked to hold its answer back for a final state (RFC 7240; it may wait 30 s at most).
pub const PREFER_WAIT: &str = "wait=25";

/// An attempt failed for now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Again {
    pub code: Code,
    pub detail: String,
    pub retry_after: Option<Duration>,
    /// The destination is at fault as a whole.
    pub destination: bool,
}

impl Again {
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
pub enum Word {
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
    Again(Again),
}

/// An answer, read whole.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A service, and a connection to it if one is open.
pub struct Service<'a> {
    shared: &'a Arc<Shared>,
    pub dest: &'a Dest,
    connection: Option<Connection>,
}

/// How an exchange moves on; the message's body tells.
#[derive(Debug)]
pub struct Motion {
    /// The last sign of life.
    last: Mutex<Instant>,
    /// Bytes of the message's body that are still to be sent.
    unsent: AtomicU64,
    /// The exchange is over; nothing more of the body is wanted.
    over: AtomicBool,
}

impl Motion {
    /// Of an exchange whose message has a body of so many bytes.
    pub fn new(unsent: u64) -> Arc<Self> {
        Arc::new(Self {
            last: Mutex::new(Instant::now()),
            unsent: AtomicU64::new(unsent),
            over: AtomicBool::new(false),
        })
    }

    /// Something moved.
    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// So many bytes of the body were taken.
    pub fn sent(&self, bytes: u64) {
        self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        self.touch();
    }

    /// Whether all of the body was taken.
    fn is_sent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) == 0
    }

    /// Whether the body is to break off, and the connection with it.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Returns when nothing has moved for [`STALL`].
    async fn stalled(&self) {
        loop {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() >= STALL {
                return;
            }
            tokio::time::sleep_until(last + STALL).await;
        }
    }
}

impl<'a> Service<'a> {
    pub fn new(shared: &'a Arc<Shared>, dest: &'a Dest) -> Self {
        Self { shared, dest, connection: None }
    }

    /// What the service says of itself; asked at most once in a while.
    pub async fn well_known(&mut self) -> Result<Arc<WellKnown>, Again> {
        let word = match self.shared.well_known.get(&self.dest.origin) {
            // Where a name leads to is asked anew each time.
            Some(word) if !matches!(&word, Err(refusal) if refusal.code == Code::DestForbidden) => word,
            _ => self.learn().await?,
        };
        let refused = |refusal: Refusal| Again::new(refusal.code, refusal.why);
        let known = word.map_err(|refusal| refused(refusal).destination())?;
        match self.shared.well_known.refusal(self.dest) {
            None => Ok(known),
            Some(refusal) => Err(refused(refusal)),
        }
    }

    /// Asks the service what it is, and remembers what came of it.
    pub async fn learn(&mut self) -> Result<Known, Again> {
        let (cache, origin) = (&self.shared.well_known, &self.dest.origin);
        let word = match self.fetch_well_known().await {
            Ok(word) => word.map_err(Refusal::not_hoop),
            Err(again) if again.code == Code::DestForbidden => Err(Refusal::forbidden()),
            Err(again) => {
                cache.silent(origin);
                return Err(again);
            }
        };
        let word = cache.put(origin, word, When::now(&self.shared.clock));
        if cache.is_due(self.shared.clock.now()) {
            self.shared.blocking(|shared| shared.well_known.keep(shared.clock.now())).await;
        }
        Ok(word)
    }

    async fn fetch_well_known(&mut self) -> Result<Result<WellKnown, String>, Again> {
        let answer = self.ask(self.request(Method::GET, "/.well-known/hoop")).await?;
        match answer.status {
            StatusCode::OK => Ok(WellKnown::parse(&answer.body, &self.dest.origin)),
            // The service, or what stands before it, is not well; that says nothing of what it is.
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                let mut again = Again::new(Code::DestUnreachable, format_args!("/.well-known/hoop: {status}"));
                again.retry_after = retry_after(&answer.headers, self.shared.clock.wall());
                Err(again.destination())
            }
            status => Ok(Err(format!("/.well-known/hoop: {status}"))),
        }
    }

    /// A request for a path of the service, with the fields that each has.
    pub fn request(&self, method: Method, target: &str) -> Builder {
        Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, self.dest.origin.authority())
            .header(header::USER_AGENT, concat!("hoop-gateway/", env!("CARGO_PKG_VERSION")))
    }

    /// An exchange without a body of ours, of [`ANSWER_WITHIN`] at most.
    pub async fn ask(&mut self, request: Builder) -> Result<Answer, Again> {
        let motion = Motion::new(0);
        match tokio::time::timeout(ANSWER_WITHIN, self.exchange(request, empty(), &motion)).await {
            Ok(answer) => answer,
            Err(_) => {
                let detail = format_args!("no answer within {} s", ANSWER_WITHIN.as_secs());
                Err(Again::new(Code::DestUnreachable, detail))
            }
        }
    }

    /// Sends a request and reads the whole answer. Connects first if need be. Keeps the connection only if the body was sent:
    /// after an early answer the rest of it would have to go over the uplink before anything else.
    pub async fn exchange(&mut self, request: Builder, body: Body, motion: &Motion) -> Result<Answer, Again> {
        let request = request.body(body).map_err(|error| Again::new(Code::DestInvalid, error))?;
        let mut connection = match self.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => self.shared.connector.get().connect(&self.dest.origin).await.map_err(unreachable)?,
        };
        motion.touch();
        let conversation = async {
            let response = connection.send(request).await.map_err(|error| broken(&error))?;
            motion.touch();
            let (head, body) = response.into_parts();
            let body = read_limited(body, ANSWER_BODY_MAX.max(DOCUMENT_MAX)).await.map_err(|error| broken(&error))?;
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        let answer = tokio::select! {
            answer = conversation => answer,
            () = motion.stalled() => {
                Err(Again::new(Code::DestUnreachable, format_args!("nothing moved for {} s", STALL.as_secs())))
            }
        };
        motion.over.store(true, Ordering::Relaxed);
        if let Ok(answer) = &answer {
            self.confirm_time(&answer.headers);
        }
        self.connection = (answer.is_ok() && motion.is_sent()).then_some(connection);
        answer
    }

    /// Takes the service's `Date` (RFC 9110 §6.6.1) as a word on what time it is, if TLS vouches for it.
    fn confirm_time(&self, headers: &HeaderMap) {
        if let Some(date) = hoop_http::date(headers).filter(|_| self.dest.origin.is_https()) {
            self.shared.clock.confirm(date);
        }
    }

    /// What an answer about an upload of `total` bytes means.
    pub fn judge(&self, answer: &Answer, total: u64) -> Word {
        judge(answer, total, self.shared.clock.wall())
    }
}

/// The same, at a time. Pure.
pub fn judge(answer: &Answer, total: u64, now: SystemTime) -> Word {
    if answer.status.is_success() {
        return judge_success(answer, total);
    }
    if answer.status.is_redirection() {
        let detail = format!("it answered {}; redirects are not followed", answer.status);
        return Word::Again(Again::new(Code::DestNotHoop, detail));
    }
    let retry_after = retry_after(&answer.headers, now);
    let busy = matches!(answer.status.as_u16(), 429 | 502 | 503 | 504);
    let again = |code, detail: String| Word::Again(Again { code, detail, retry_after, destination: busy });
    let Some(problem) = Problem::from_json(&answer.body) else {
        return match answer.status {
            StatusCode::PAYLOAD_TOO_LARGE => Word::TooLong,
            StatusCode::NOT_FOUND => Word::Unknown,
            status => again(Code::DestUnreachable, format!("it answered {status}")),
        };
    };
    let said = their_words(&problem.detail);
    let ends = |state| Word::Ends { state, code: problem.code, detail: said.clone() };
    match problem.code {
        Code::UploadUnknown | Code::NotFound => Word::Unknown,
        Code::UploadDone => Word::AskHow,
        Code::UploadStopped => ends(State::Stopped),
        Code::UploadExpired => ends(State::Expired),
        Code::AnswerLost => ends(State::Unknown),
        Code::Rejected => ends(State::Rejected),
        Code::RecordCorrupt => {
            let record = problem.field.as_deref().and_then(|field| field.strip_prefix("record ")?.parse().ok());
            Word::Corrupt { record, detail: said }
        }
        // Somebody who knew the prelude may have come first with one of the same name, and goes again: what is stored here stays.
        Code::UploadConflict => again(problem.code, said),
        code if code.is_final() => ends(State::Refused),
        code => again(code, said),
    }
}

/// A 2xx: the headers of `docs/protocol.md` §5, a status, or both.
fn judge_success(answer: &Answer, total: u64) -> Word {
    let text = |name: &header::HeaderName| answer.headers.get(name).and_then(|value| value.to_str().ok());
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
            let all = || [hoop_units::ByteRange::new(0, total)].into_iter().collect();
            let has = if state == State::Receiving { has.unwrap_or_default() } else { all() };
            Word::Stands { state, has, status: status.map(Box::new) }
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

fn no_word(why: &str) -> Word {
    Word::Again(Again::new(Code::DestNotHoop, why))
}

fn unreachable(error: ConnectError) -> Again {
    let code = match error {
        ConnectError::Forbidden { .. } => Code::DestForbidden,
        ConnectError::Resolve { .. }
        | ConnectError::Connect { .. }
        | ConnectError::Tls { .. }
        | ConnectError::Http { .. }
        | ConnectError::Timeout { .. } => Code::DestUnreachable,
    };
    if code == Code::DestForbidden {
        // Its address is for the operator alone: pages read reasons, and must not learn where names lead on this network.
        tracing::info!(%error, "a destination is refused");
        return Again::new(code, Refusal::forbidden().why).destination();
    }
    Again::new(code, error).destination()
}

fn broken(error: &dyn std::error::Error) -> Again {
    Again::new(Code::DestUnreachable, format_args!("the connection broke: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_of_which_somebody_has_sent_something_else_is_tried_again() {
        let of = |code| {
            let problem = Problem::new(code, "another prelude is known");
            let answer = Answer { status: code.status(), headers: HeaderMap::new(), body: problem.to_json().into() };
            judge(&answer, 9, SystemTime::UNIX_EPOCH)
        };
        assert!(matches!(of(Code::UploadConflict), Word::Again(_)), "what is stored here stays");
        assert!(matches!(of(Code::TooLarge), Word::Ends { state: State::Refused, .. }));
    }

    #[test]
    fn a_services_words_are_marked_as_its_own_and_bounded() {
        assert_eq!(their_words("no\r\n\u{1b}[31m  room"), "the service says: “no [31m room”");
        assert_eq!(their_words(" \n"), "");
        let long = their_words(&"ü".repeat(100_000));
        assert_eq!(long.chars().filter(|letter| *letter == 'ü').count(), THEIR_WORDS_MAX);
    }
}
