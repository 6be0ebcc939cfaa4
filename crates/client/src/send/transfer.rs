//! Getting all of Z to one place, a gateway or the service, over connections that may break: [`Transfer`].
//!
//! ```text
//!        ┌──────────── 2xx, still missing ◀────────┐
//!        ▼                                         │
//!  send the first missing span ── breaks ──▶ wait ──▶ HEAD: what is missing?
//!        │                                         │ (404: everything)
//!        └─▶ complete │ refused │ given up: no progress for `patience`
//! ```
//!
//! A service is not asked what it has while a message is under way. So the time that a message took counts as time without progress only once the
//! service has said that it got nothing by it; until then `patience` begins at the break.
//!
//! Progress is one whole record more: a part of one is sent again anyway, so who acknowledges a byte with each message would hold an upload for as
//! long as it likes.
//!
//! An upload may go several ways: what another gateway has acknowledged is `elsewhere`, and is not sent here as well. What a gateway has
//! acknowledged so far is asked for beside a long message, so that it is known should the gateway be out of reach in the middle.

use crate::config::ClientConfig;
use crate::gateway::identity::Witness;
use crate::request::source::SourceError;
use crate::seal::sealed::{Meter, Sealed};
use crate::ticket::target::Target;
use crate::wire::told::{NotTold, Told};
use crate::wire::{self, Link, LinkError, Refusal, field};
use bytes::Bytes;
use hoop_http::{Code, Rng, SendError, empty};
use hoop_units::{Backoff, ByteRange, ContentRange, RangeSet, UploadId};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between attempts: quick at first, since most breaks on Wi-Fi last for moments.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(10) };

/// The longest wait that a `Retry-After` can impose on somebody who stands there with a device.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How often a gateway is asked what it has stored while a message to it is under way: it commits once a second.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// Messages in a row that a gateway may answer and store not one whole record more of, however patient the user is with one that is away. A true one
/// stores what it answers for, but for moments in which its disk or another device's messages are in the way.
const SHORT_MAX: u32 = 4;

/// Why a transfer ended without Z being whole at the other end.
#[derive(Debug)]
pub(crate) enum TransferError {
    /// The other end does not want it.
    Refused(Refusal),
    /// What answers there is no gateway, or has given the upload up.
    Unusable(String),
    /// No progress for too long.
    GaveUp {
        /// What hindered the last attempt.
        reason: String,
        /// The refusal that this was, if the other end can be reached.
        refusal: Option<Refusal>,
    },
    /// A local file.
    Source(SourceError),
}

/// An attempt that failed, and may succeed later.
struct Setback {
    reason: String,
    /// The other end answered, and takes nothing now.
    refusal: Option<Refusal>,
}

enum Step {
    Complete(Response<Bytes>),
    Missing(RangeSet),
}

enum Failure {
    Setback(Setback),
    Ended(TransferError),
}

/// Told of bytes that the other end has or is being sent.
pub(crate) type OnSent = Arc<dyn Fn(u64) + Send + Sync>;

/// Told of a break: what the reason is.
pub(crate) type OnBreak = Box<dyn Fn(&str) + Send + Sync>;

/// What one place has acknowledged of an upload: on disk and synced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<Mutex<RangeSet>>);

impl Held {
    /// So much.
    pub(crate) fn of(ranges: RangeSet) -> Self {
        Self(Arc::new(Mutex::new(ranges)))
    }

    /// What it has.
    pub(crate) fn ranges(&self) -> RangeSet {
        self.0.lock().clone()
    }

    /// Takes down what it says in `headers` is missing of `total`. A part counts only if it promises to deliver parts, which it cannot do
    /// without the prelude either.
    fn note(&self, headers: &HeaderMap, missing: &RangeSet, total: u64) {
        let mut has: RangeSet = [ByteRange::new(0, total)].into_iter().collect();
        missing.iter().for_each(|span| has.remove(span));
        let promised = field(headers, "hoop-cut-through").map(str::trim) == Some("?1");
        let ready = missing.is_empty() || (promised && !missing.iter().any(|span| span.start == 0));
        *self.0.lock() = if ready { has } else { RangeSet::new() };
    }
}

/// One upload on its way to one target.
pub(crate) struct Transfer<'a> {
    pub(crate) config: &'a ClientConfig,
    pub(crate) link: &'a mut Link,
    pub(crate) target: Target,
    pub(crate) id: UploadId,
    pub(crate) sealed: Arc<Sealed>,
    /// What is not to be sent here, since others have it.
    pub(crate) elsewhere: RangeSet,
    /// What the other end has acknowledged.
    pub(crate) held: Held,
    /// How long to go on without progress.
    pub(crate) patience: Duration,
    /// By whom what a gateway says it has must be signed; `None`: it has shown no key.
    pub(crate) witness: Option<Witness>,
    pub(crate) on_sent: OnSent,
    pub(crate) on_break: OnBreak,
}

impl Transfer<'_> {
    /// Sends what is missing until nothing is. `known`: what the target is known to lack; `None`: ask it first.
    pub(crate) async fn run(mut self, known: Option<RangeSet>) -> Result<Response<Bytes>, TransferError> {
        let whole: RangeSet = [self.sealed.whole()].into_iter().collect();
        let mut missing = known.map(|known| self.wanted(known));
        let mut most = 0;
        let mut held = self.sealed.records_in(&self.held.ranges());
        let mut last_progress = Instant::now();
        let mut failures = 0;
        let mut short = 0;
        let at_gateway = matches!(self.target, Target::Gateway { .. });
        // When a message to the service broke, and why; what it got by it is not known yet.
        let (mut broke, mut hindered) = (last_progress, None);
        loop {
            let asked = missing.is_none();
            let step = match &missing {
                Some(missing) => self.send_next(missing).await,
                None => self.ask_missing(&whole).await,
            };
            let setback = match step {
                Ok(Step::Complete(answer)) => return Ok(answer),
                Ok(Step::Missing(now)) => {
                    let has = now.missing(whole.len()).collect();
                    let has = self.sealed.records_in(&has);
                    let progress = has > most;
                    if progress {
                        (most, last_progress, failures, short) = (has, Instant::now(), 0, 0);
                    }
                    missing = Some(now);
                    let hindered = hindered.take();
                    if let Some(Setback { reason, refusal }) =
                        hindered.filter(|_| last_progress.elapsed() >= self.patience)
                    {
                        return Err(TransferError::GaveUp { reason, refusal });
                    }
                    if progress || asked {
                        continue;
                    }
                    short += 1;
                    if at_gateway && (short >= SHORT_MAX || last_progress.elapsed() >= self.patience) {
                        let secs = last_progress.elapsed().as_secs();
                        let why =
                            format!("it took what it was sent for {secs} s, and has stored not one whole record more");
                        return Err(TransferError::Unusable(why));
                    }
                    Setback { reason: "it has stored not one whole record more".to_owned(), refusal: None }
                }
                Err(Failure::Ended(error)) => return Err(error),
                Err(Failure::Setback(setback)) => setback,
            };
            missing = None;
            self.link.close();
            // What was acknowledged beside a long message is progress as well.
            let now_held = self.sealed.records_in(&self.held.ranges());
            if now_held > held {
                (held, last_progress, failures, short) = (now_held, Instant::now(), 0, 0);
            }
            let is_of_message = !asked && !at_gateway;
            if is_of_message {
                broke = Instant::now();
            }
            if last_progress.max(broke).elapsed() >= self.patience {
                return Err(TransferError::GaveUp { reason: setback.reason, refusal: setback.refusal });
            }
            (self.on_break)(&setback.reason);
            let retry_after = setback.refusal.as_ref().and_then(|refusal| refusal.retry_after);
            if is_of_message {
                hindered = Some(setback);
            }
            let wait = BACKOFF.delay(failures, Rng.jitter()).max(retry_after.unwrap_or_default());
            tokio::time::sleep(wait.min(RETRY_AFTER_MAX).min(self.patience)).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Sends one range, once. `None`: something is missing still, or the connection broke.
    pub(crate) async fn once(mut self, range: ByteRange) -> Result<Option<Response<Bytes>>, TransferError> {
        match self.send(range, 0).await {
            Ok(Step::Complete(answer)) => Ok(Some(answer)),
            Ok(Step::Missing(_)) => Ok(None),
            Err(Failure::Ended(error)) => {
                // Who knows what lives there: what is sent next gets a connection of its own.
                self.link.close();
                Err(error)
            }
            Err(Failure::Setback(setback)) => {
                self.link.close();
                (self.on_break)(&setback.reason);
                // Meanwhile the other end writes down what has come, and need not be sent it again.
                tokio::time::sleep(BACKOFF.delay(0, Rng.jitter())).await;
                Ok(None)
            }
        }
    }

    /// Sends the first missing span, widened to record borders.
    async fn send_next(&mut self, missing: &RangeSet) -> Result<Step, Failure> {
        let Some(span) = missing.iter().next() else { return self.ask_missing(&RangeSet::new()).await };
        let range = self.sealed.on_grid(span);
        self.send(range, self.sealed.layout().total() - missing.len()).await
    }

    /// Sends a range that is cut at record borders; `before` bytes had been sent.
    async fn send(&mut self, range: ByteRange, before: u64) -> Result<Step, Failure> {
        let total = self.sealed.layout().total();
        let on_sent = self.on_sent.clone();
        let meter = Arc::new(Meter::new(move |sent| on_sent((before + sent).min(total))));
        let result = self.put(range, meter.clone()).await;
        if let Some(error) = meter.take_failure() {
            self.link.close();
            return Err(Failure::Ended(TransferError::Source(error)));
        }
        let answer = result?;
        if !answer.status().is_success() {
            // It was not read to its end: the rest of the range must not follow on this connection.
            meter.stop();
            self.link.close();
        }
        self.judge(answer)
    }

    async fn put(&mut self, range: ByteRange, meter: Arc<Meter>) -> Result<Response<Bytes>, Failure> {
        let body = self.sealed.stream(range, meter.clone());
        let mut request = self.link.request(Method::PUT, &self.path(true), body);
        let content_range = ContentRange { range, total: self.sealed.layout().total() };
        let headers = request.headers_mut();
        let ascii = |text: String| HeaderValue::try_from(text).expect("numbers and base64url are ASCII");
        headers.insert(header::CONTENT_RANGE, ascii(content_range.to_string()));
        if self.sealed.is_early() {
            headers.insert("hoop-early", const { HeaderValue::from_static("?1") });
        } else {
            headers.insert("hoop-prelude", ascii(self.sealed.prelude().to_header()));
        }
        let shown = match &self.target {
            Target::Gateway { permit, .. } => permit.as_ref().map(|permit| ("hoop-permit", permit)),
            Target::Service { token, .. } => token.as_ref().map(|token| ("hoop-token", token)),
        };
        if let Some((name, value)) = shown {
            headers.insert(name, HeaderValue::try_from(value).expect("checked with the ticket"));
        }
        if let Target::Gateway { deadline: Some(deadline), .. } = self.target {
            headers.insert("hoop-deadline", deadline.into());
        }
        let mut answer_timeout = self.config.stall_timeout;
        if let Target::Service { wait_secs, .. } = self.target
            && wait_secs > 0
        {
            headers.insert("prefer", ascii(format!("wait={wait_secs}")));
            answer_timeout += Duration::from_secs(wait_secs.into());
        }
        let host = self.link.origin().host().to_string();
        let looking = matches!(self.target, Target::Gateway { .. });
        let (beside, path, total) = (self.link.beside(), self.path(false), self.sealed.layout().total());
        let silence = self.config.gateway_silence;
        let (held, witness) = (self.held.clone(), self.witness.clone());
        let look = Self::look(beside, path, held, (self.id, total), witness, meter.clone(), silence);
        let mut look = std::pin::pin!(look);
        let connection = self.link.open().await.map_err(|error| Failure::setback(&error))?;
        let mut sending = std::pin::pin!(connection.send(request));
        let mut seen = 0;
        let response = loop {
            let ended = tokio::select! {
                ended = tokio::time::timeout(answer_timeout, &mut sending) => ended,
                () = &mut look, if looking => {
                    meter.stop();
                    return Err(Failure::setback(&LinkError::Silent { host, waited: silence }));
                }
            };
            match ended {
                Ok(Ok(response)) => break response,
                Ok(Err(error)) => return Err(Failure::broken(&host, &error)),
                Err(_) if meter.sent() > seen => seen = meter.sent(),
                Err(_) => {
                    meter.stop();
                    return Err(Failure::setback(&LinkError::Silent { host, waited: answer_timeout }));
                }
            }
        };
        wire::read(response, &host, answer_timeout).await.map_err(|error| Failure::setback(&error))
    }

    /// Asks what is missing: `everything` if the upload is not known there.
    async fn ask_missing(&mut self, everything: &RangeSet) -> Result<Step, Failure> {
        let request = self.link.request(Method::HEAD, &self.path(false), empty());
        let answer = self.link.ask(request, self.config.stall_timeout).await;
        let answer = answer.map_err(|error| Failure::setback(&error))?;
        let total = self.sealed.layout().total();
        match answer.status() {
            StatusCode::NOT_FOUND => {
                self.ask_room().await?;
                let nothing = [self.sealed.whole()].into_iter().collect();
                self.held.note(answer.headers(), &nothing, total);
                Ok(self.step(everything.clone(), answer))
            }
            StatusCode::OK => {
                let told = Told::read(answer.headers(), self.id, total);
                self.take(told, answer)
            }
            _ => Err(self.no_success(&answer)),
        }
    }

    /// A gateway that knows nothing of the upload may have refused it in words that the broken connection swallowed.
    async fn ask_room(&mut self) -> Result<(), Failure> {
        if let Target::Service { .. } = self.target {
            return Ok(());
        }
        let request = self.link.request(Method::GET, "/test", empty());
        let answer = self.link.ask(request, self.config.stall_timeout).await;
        let answer = answer.map_err(|error| Failure::setback(&error))?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(Failure::Ended(TransferError::Refused(Refusal::of(&answer, self.config.clock.wall())))),
        }
    }

    /// What the answer to a message comes to.
    fn judge(&self, answer: Response<Bytes>) -> Result<Step, Failure> {
        match answer.status().is_success() {
            true => {
                let told = Told::answered(&answer, self.id, self.sealed.layout().total());
                self.take(told, answer)
            }
            false => Err(self.no_success(&answer)),
        }
    }

    /// What a 2xx comes to: of a stranger's, nothing.
    fn take(&self, told: Result<Told, NotTold>, answer: Response<Bytes>) -> Result<Step, Failure> {
        let at_gateway = matches!(self.target, Target::Gateway { .. });
        match told {
            Ok(told) if at_gateway && told.is_given_up() => {
                let why = format!("it says that it has given the upload up, which is {} there", told.state);
                Err(Failure::Ended(TransferError::Unusable(why)))
            }
            Ok(told) => {
                let total = self.sealed.layout().total();
                if let Some(Err(why)) = self.witness.as_ref().map(|by| by.check(answer.headers(), self.id, total)) {
                    return Err(Failure::Ended(TransferError::Unusable(why.to_owned())));
                }
                self.held.note(answer.headers(), &told.missing, total);
                Ok(self.step(told.missing, answer))
            }
            // Something else lives there.
            Err(why) if at_gateway => Err(Failure::Ended(TransferError::Unusable(why.to_string()))),
            // A network's sign-in page is in front of the service, perhaps, and somebody is about to sign in.
            Err(why) => Err(Failure::setback(&format_args!("that is no Hoop service: {why}"))),
        }
    }

    /// What an answer without success comes to.
    fn no_success(&self, answer: &Response<Bytes>) -> Failure {
        let refusal = Refusal::of(answer, self.config.clock.wall());
        match (&refusal.problem, refusal.status.as_u16()) {
            // Redirects are followed nowhere. Who sends one is in front of the service, or is none.
            (None, 300..400) if matches!(self.target, Target::Service { .. }) => Failure::setback(&refusal),
            _ => self.refusal(refusal),
        }
    }

    /// What is to be sent here of what is missing.
    fn wanted(&self, mut missing: RangeSet) -> RangeSet {
        self.elsewhere.iter().for_each(|span| missing.remove(span));
        missing
    }

    fn step(&self, missing: RangeSet, answer: Response<Bytes>) -> Step {
        let wanted = self.wanted(missing);
        if wanted.is_empty() { Step::Complete(answer) } else { Step::Missing(wanted) }
    }

    /// Asks a gateway over and over what it has of an upload. Returns once it has neither answered nor taken anything for `silence`.
    async fn look(
        mut link: Link,
        path: String,
        held: Held,
        (id, total): (UploadId, u64),
        witness: Option<Witness>,
        meter: Arc<Meter>,
        silence: Duration,
    ) {
        let (mut last, mut sent) = (Instant::now(), 0);
        while last.elapsed() < silence {
            tokio::time::sleep(LOOK_EACH).await;
            let request = link.request(Method::HEAD, &path, empty());
            let answer = link.ask(request, silence).await;
            if answer.is_ok() || meter.sent() > sent {
                (last, sent) = (Instant::now(), meter.sent());
            }
            let Ok(answer) = answer else { continue };
            if let (StatusCode::OK, Ok(told)) = (answer.status(), Told::read(answer.headers(), id, total))
                && !told.is_given_up()
                && witness.as_ref().is_none_or(|by| by.check(answer.headers(), id, total).is_ok())
            {
                held.note(answer.headers(), &told.missing, total);
            }
        }
    }

    /// What a refusal means: some pass by themselves. A gateway without room is not waited for, since there is the
    /// direct way; a busy service is.
    fn refusal(&self, refusal: Refusal) -> Failure {
        let passing = match refusal.problem.as_ref().map(|problem| problem.code) {
            Some(
                Code::RequestTimeout
                | Code::BodyTruncated
                | Code::RecordCorrupt
                | Code::RangeTooMany
                | Code::UpstreamUnreachable
                | Code::UpstreamBroken
                | Code::Internal,
            ) => true,
            // Somebody else sends the service a record under a wrong total; that ends when ours is proven, or his message is over.
            Some(Code::RangeInvalid) => matches!(self.target, Target::Service { .. }),
            _ => matches!(refusal.status.as_u16(), 408 | 500 | 502 | 504),
        };
        let busy = matches!(refusal.status.as_u16(), 429 | 503 | 507);
        match passing || busy && matches!(self.target, Target::Service { .. }) {
            true => Failure::Setback(Setback { reason: refusal.to_string(), refusal: Some(refusal) }),
            false => Failure::Ended(TransferError::Refused(refusal)),
        }
    }

    fn path(&self, with_dest: bool) -> String {
        match &self.target {
            Target::Gateway { dest, .. } if with_dest => {
                format!("/offload/{}?dest={}", self.id, utf8_percent_encode(dest.as_str(), NON_ALPHANUMERIC))
            }
            Target::Gateway { .. } => format!("/offload/{}", self.id),
            Target::Service { post, .. } => format!("{post}/{}", self.id),
        }
    }
}

impl Failure {
    fn setback(error: &dyn std::fmt::Display) -> Self {
        Self::Setback(Setback { reason: error.to_string(), refusal: None })
    }

    fn broken(host: &str, error: &SendError) -> Self {
        Self::setback(&LinkError::Broken { host: host.to_owned(), reason: wire::deepest(error) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::plaintext::Plaintext;
    use crate::request::source::Segment;
    use hoop_http::Connector;
    use hoop_http::Origin;
    use hoop_seal::{ContentKey, Prelude, RECORD_SIZE, Suite, UploadKey};
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU64, Ordering};

    const ID: UploadId = UploadId([7; 16]);

    fn sealed(len: usize) -> Arc<Sealed> {
        let mut plaintext = Plaintext::default();
        plaintext.push(Segment::Bytes(vec![5; len].into()));
        let prelude = Prelude::new([7; 16], RECORD_SIZE, &[1; 107]).unwrap();
        let key = ContentKey::new(Suite::Aes256Gcm, &UploadKey([3; 32]), &[7; 16]);
        Arc::new(Sealed::new(prelude, key, plaintext).unwrap())
    }

    /// How an end behaves that takes each message to its end.
    #[derive(Clone, Copy)]
    enum Manner {
        /// It answers.
        Answers,
        /// It breaks off after so long, and tells what it has when it is asked.
        Breaks(Duration),
        /// The same, and it is gone then.
        Dies(Duration),
    }

    /// An end that acknowledges so many bytes of the messages it takes, from the first on: at most `each` more than before. Returns where it is, and
    /// the number of its messages.
    fn sparing(each: u64, total: u64, manner: Manner) -> (Origin, Arc<AtomicU64>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let messages = Arc::new(AtomicU64::new(0));
        let count = messages.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let count = count.clone();
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(connection);
                    while spare(&mut reader, &count, each, total, manner).is_some() {}
                });
            }
        });
        (origin, messages)
    }

    fn spare(
        reader: &mut BufReader<TcpStream>,
        messages: &AtomicU64,
        each: u64,
        total: u64,
        manner: Manner,
    ) -> Option<()> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (reader.read_line(&mut head).ok()? > 0).then_some(())?;
        }
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or("0", str::trim);
        std::io::copy(&mut reader.take(length.parse().ok()?), &mut std::io::sink()).ok()?;
        let is_message = head.starts_with("put");
        let before = messages.fetch_add(is_message.into(), Ordering::Relaxed);
        match manner {
            Manner::Answers => {}
            Manner::Breaks(after) | Manner::Dies(after) if is_message => {
                std::thread::sleep(after);
                return None;
            }
            Manner::Breaks(_) => {}
            Manner::Dies(_) => return None,
        }
        let has = (each * (before + u64::from(is_message))).min(total);
        let missing = if has == total { String::new() } else { format!("{has}-{}", total - 1) };
        let (state, body) = (if has == total { "stored" } else { "receiving" }, format!(r#"{{"id":"{ID}"}}"#));
        let answer = format!(
            "HTTP/1.1 200 OK\r\nHoop-Upload-Id: {ID}\r\nHoop-State: {state}\r\nHoop-Total: {total}\r\nHoop-Missing: {missing}\r\n\
             Hoop-Cut-Through: ?1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
            body.len(),
            if head.starts_with("head") { "" } else { &body }
        );
        reader.get_mut().write_all(answer.as_bytes()).ok()
    }

    /// What becomes of an upload of 200 kB, of four records, at a gateway that acknowledges so much with each message; what it has then, and how many
    /// messages there were.
    async fn sent_to_sparing(each: u64, patience: Duration) -> (Result<Response<Bytes>, TransferError>, u64, u64) {
        let gateway =
            Target::Gateway { dest: "https://photos.example/p".parse().unwrap(), permit: None, deadline: None };
        sent_to(gateway, each, Manner::Answers, patience).await
    }

    /// The same at a service that lets each message break after that.
    async fn sent_to_breaking(
        each: u64,
        manner: Manner,
        patience: Duration,
    ) -> (Result<Response<Bytes>, TransferError>, u64, u64) {
        let service = Target::Service { post: "/hoop/post".to_owned(), wait_secs: 0, token: None };
        sent_to(service, each, manner, patience).await
    }

    async fn sent_to(
        target: Target,
        each: u64,
        manner: Manner,
        patience: Duration,
    ) -> (Result<Response<Bytes>, TransferError>, u64, u64) {
        let sealed = sealed(200_000);
        let total = sealed.layout().total();
        let (origin, messages) = sparing(each, total, manner);
        let config = ClientConfig::default();
        let mut link = Link::new(Connector::new(hoop_http::tls::client_config(&[]).unwrap()), origin);
        let held = Held::default();
        let transfer = Transfer {
            config: &config,
            link: &mut link,
            target,
            id: ID,
            sealed: sealed.clone(),
            elsewhere: RangeSet::new(),
            held: held.clone(),
            patience,
            witness: None,
            on_sent: Arc::new(|_| ()),
            on_break: Box::new(|_| ()),
        };
        let everything = [sealed.whole()].into_iter().collect();
        let ended = tokio::time::timeout(Duration::from_secs(30), transfer.run(Some(everything))).await;
        let ended = ended.expect("it holds the upload for as long as it likes");
        (ended, held.ranges().len(), messages.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_gateway_that_acknowledges_a_byte_a_message_is_given_up() {
        for patience in [Duration::from_secs(1), Duration::from_secs(3600)] {
            let (ended, held, messages) = sent_to_sparing(1, patience).await;
            let why = "and has stored not one whole record more";
            assert!(matches!(&ended, Err(TransferError::Unusable(reason)) if reason.ends_with(why)), "{ended:?}");
            assert!((1..=SHORT_MAX.into()).contains(&messages), "{messages} messages");
            assert_eq!(held, messages, "what it has acknowledged counts");
        }
    }

    #[tokio::test]
    async fn a_gateway_that_acknowledges_a_record_a_message_is_gone_on_with() {
        let (ended, held, messages) = sent_to_sparing(70_000, Duration::from_secs(1)).await;
        assert!(ended.is_ok(), "{ended:?}");
        assert_eq!((held, messages), (sealed(200_000).layout().total(), 3));
    }

    #[tokio::test]
    async fn a_message_that_breaks_late_is_retried_where_it_brought_something() {
        let (patience, after) = (Duration::from_millis(300), Duration::from_millis(600));
        let (ended, _, messages) = sent_to_breaking(70_000, Manner::Breaks(after), patience).await;
        assert!(ended.is_ok() && messages == 3, "{messages} messages: {ended:?}");
        let (ended, _, messages) = sent_to_breaking(0, Manner::Breaks(after), patience).await;
        assert!(matches!(ended, Err(TransferError::GaveUp { .. })) && messages == 1, "{messages} messages: {ended:?}");
    }

    #[tokio::test]
    async fn a_service_that_dies_late_is_given_up_after_the_patience() {
        let (patience, after) = (Duration::from_millis(1200), Duration::from_millis(1500));
        let begun = Instant::now();
        let (ended, _, messages) = sent_to_breaking(0, Manner::Dies(after), patience).await;
        assert!(matches!(ended, Err(TransferError::GaveUp { .. })) && messages == 1, "{messages} messages: {ended:?}");
        assert!(begun.elapsed() >= after + patience, "it is waited for since the break: {:?}", begun.elapsed());
    }

    #[test]
    fn a_part_counts_as_held_only_with_its_prelude_where_parts_go_out() {
        let held = |promise: Option<&'static str>, missing: &str| {
            let (held, mut headers) = (Held::default(), HeaderMap::new());
            if let Some(promise) = promise {
                headers.insert("hoop-cut-through", HeaderValue::from_static(promise));
            }
            held.note(&headers, &missing.parse().unwrap(), 1_000);
            held.ranges().to_string()
        };
        assert_eq!(held(Some("?1"), "500-999"), "0-499");
        assert_eq!(held(Some("?1"), "0-127, 500-999"), "", "without its prelude nothing can be delivered");
        assert_eq!(held(Some("?0"), "500-999"), "");
        assert_eq!(held(None, "500-999"), "", "a gateway that delivers whole uploads only");
        assert_eq!(held(None, ""), "0-999");
    }
}
