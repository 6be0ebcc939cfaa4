//! Speaking with a service: [`ServiceClient`], one connection and the exchanges over it.

use super::destination::Dest;
use super::services::Services;
use super::verdict::{Answer, Retryable, ServiceVerdict, judge};
use super::well_known::{DOCUMENT_MAX, LearnedWord, Refusal, WellKnown, When};
use crate::core::blocking::blocking;
use hoop_http::{Body, Code, ConnectError, Connection, Lines, empty, read_limited, retry_after};
use http::request::Builder;
use http::{HeaderMap, Method, Request, StatusCode, header};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
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

/// The same while it has a slot for sending, which others may wait for: what applications take that do little.
pub const PREFER_SHORT_WAIT: &str = "wait=3";

/// A service, and a connection to it if one is open.
pub struct ServiceClient<'a> {
    services: &'a Arc<Services>,
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
        *self.last.lock() = Instant::now();
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
            let last = *self.last.lock();
            if last.elapsed() >= STALL {
                return;
            }
            tokio::time::sleep_until(last + STALL).await;
        }
    }
}

impl<'a> ServiceClient<'a> {
    pub fn new(services: &'a Arc<Services>, dest: &'a Dest) -> Self {
        Self { services, dest, connection: None }
    }

    /// What the service says of itself; asked at most once in a while.
    pub async fn well_known(&mut self) -> Result<Arc<WellKnown>, Retryable> {
        let word = match self.services.well_known.get(&self.dest.origin) {
            // Where a name leads to is asked anew each time.
            Some(word) if !matches!(&word, Err(refusal) if refusal.code == Code::DestForbidden) => word,
            _ => self.learn().await?,
        };
        let refused = |refusal: Refusal| Retryable::new(refusal.code, refusal.why);
        let known = word.map_err(|refusal| refused(refusal).destination())?;
        match self.services.well_known.refusal(self.dest) {
            None => Ok(known),
            Some(refusal) => Err(refused(refusal)),
        }
    }

    /// Asks the service what it is, and remembers what came of it.
    pub async fn learn(&mut self) -> Result<LearnedWord, Retryable> {
        let (cache, origin) = (&self.services.well_known, &self.dest.origin);
        let word = match self.fetch_well_known().await {
            Ok(word) => word.map_err(Refusal::not_hoop),
            Err(retryable) if retryable.code == Code::DestForbidden => Err(Refusal::forbidden()),
            Err(retryable) => {
                cache.silent(origin);
                return Err(retryable);
            }
        };
        let word = cache.put(origin, word, When::now(&self.services.clock));
        if cache.is_due(self.services.clock.now()) {
            blocking(self.services, |services| services.well_known.keep(services.clock.now())).await;
        }
        Ok(word)
    }

    async fn fetch_well_known(&mut self) -> Result<Result<WellKnown, String>, Retryable> {
        let answer = self.ask(self.request(Method::GET, "/.well-known/hoop")).await?;
        match answer.status {
            StatusCode::OK => Ok(WellKnown::parse(&answer.body, &self.dest.origin)),
            // The service, or what stands before it, is not well; that says nothing of what it is.
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                let mut retryable = Retryable::new(Code::DestUnreachable, format_args!("/.well-known/hoop: {status}"));
                retryable.retry_after = retry_after(&answer.headers, self.services.clock.wall());
                Err(retryable.destination())
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
    pub async fn ask(&mut self, request: Builder) -> Result<Answer, Retryable> {
        let motion = Motion::new(0);
        match tokio::time::timeout(ANSWER_WITHIN, self.exchange(request, empty(), &motion)).await {
            Ok(answer) => answer,
            Err(_) => {
                let detail = format_args!("no answer within {} s", ANSWER_WITHIN.as_secs());
                Err(Retryable::new(Code::DestUnreachable, detail).destination())
            }
        }
    }

    /// Sends a request and reads the whole answer. Connects first if need be. Keeps the connection only if the body was sent:
    /// after an early answer the rest of it would have to go over the uplink before anything else.
    pub async fn exchange(&mut self, request: Builder, body: Body, motion: &Motion) -> Result<Answer, Retryable> {
        let request = request.body(body).map_err(|error| Retryable::new(Code::DestInvalid, error))?;
        let mut connection = match self.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => self.services.connector.get().connect(&self.dest.origin).await.map_err(unreachable)?,
        };
        motion.touch();
        // Whoever gives this up, or waits in vain, leaves nothing behind.
        let ends = connection.ends_on_drop();
        let is_answered = AtomicBool::new(false);
        let conversation = async {
            let response = connection.send(request).await.map_err(|error| broken(&error))?;
            is_answered.store(true, Ordering::Relaxed);
            motion.touch();
            let (head, body) = response.into_parts();
            let body = read_limited(body, ANSWER_BODY_MAX.max(DOCUMENT_MAX)).await.map_err(|error| broken(&error))?;
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        let answer = tokio::select! {
            answer = conversation => answer,
            () = motion.stalled() => {
                let stalled = format_args!("nothing moved for {} s", STALL.as_secs());
                let stalled = Retryable::new(Code::DestUnreachable, stalled);
                // Who connects and says nothing is as unreachable as who does not connect.
                Err(if is_answered.load(Ordering::Relaxed) { stalled } else { stalled.destination() })
            }
        };
        motion.over.store(true, Ordering::Relaxed);
        if let Ok(answer) = &answer {
            self.confirm_time(&answer.headers);
        }
        if answer.is_ok() && motion.is_sent() {
            ends.keep();
            self.connection = Some(connection);
        }
        answer
    }

    /// Takes the service's `Date` (RFC 9110 §6.6.1) as a word on what time it is, if TLS vouches for it.
    fn confirm_time(&self, headers: &HeaderMap) {
        if let Some(date) = hoop_http::date(headers).filter(|_| self.dest.origin.is_https()) {
            self.services.clock.confirm(date);
        }
    }

    /// What an answer about an upload of `total` bytes means.
    pub fn judge(&self, answer: &Answer, total: u64) -> ServiceVerdict {
        judge(answer, total, self.services.clock.wall())
    }
}

fn unreachable(error: ConnectError) -> Retryable {
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
        static REFUSED: Lines = Lines::new();
        let more = || tracing::info!("more destinations are refused than are written down in this minute");
        if REFUSED.have_room(std::time::Instant::now(), more) {
            tracing::info!(%error, "a destination is refused");
        }
        return Retryable::new(code, Refusal::forbidden().why).destination();
    }
    Retryable::new(code, error).destination()
}

fn broken(error: &dyn std::error::Error) -> Retryable {
    Retryable::new(Code::DestUnreachable, format_args!("the connection broke: {error}"))
}
