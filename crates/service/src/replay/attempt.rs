//! One attempt to hand an upload to the application: [`attempt`] (`docs/protocol.md` §7).
//!
//! ```text
//! head ─▶ records 0 … n-3 ─▶ │ commit `committing`, synced │ ─▶ the last two records ─▶ answer
//! ```
//!
//! A released upload gets the form token of its owner's new session in place of the old one, with an exact length
//! ([`crate::replay::renew`]).
//!
//! Promises: the request is plain HTTP/1.1 with its exact `Content-Length`. The socket gets nothing of the last two
//! records (some 64 KiB at least, or the whole body) before the gate's commit is on disk. So even an application that
//! can do without some bytes at the end cannot have taken the upload before. An early answer is an answer, too.
//!
//! Bounds: [`BATCH`] records in memory.

use super::Replay;
use crate::context::Context;
use crate::model::{Change, Credentials, Reason, State, Upload};
use crate::policy::admit::{self, Admission};
use crate::policy::csrf::edit::Edits;
use crate::policy::csrf::find::{self, Form, Piece, WINDOW};
use crate::policy::fields::Fate;
use crate::policy::head::RequestHead;
use crate::replay::http1_response::{Answer, AnswerError, read_answer};
use crate::replay::remains;
use crate::replay::renew::{self, Trouble};
use crate::store::{Changed, Sealed, blocking};
use hoop_http::{Code, Shutdown, reset_when_dropped};
use hoop_seal::{Keyring, KwsId, Prelude};
use hoop_units::{RangeSet, UploadId};
use parking_lot::Mutex;
use ring::digest;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Records that are opened and sent in one go: half a megabyte.
const BATCH: u64 = 8;

/// Records that stay back until the gate.
const WITHHELD: u64 = 2;

/// Stands where a `Cookie` does in the MAC over credentials. No `Cookie` has a NUL.
const IDEMPOTENCY_DOMAIN: &[u8] = b"\0idempotency";

/// How long an answer may still take that the application sent before it stopped reading.
const LINGER: Duration = Duration::from_secs(10);

/// So long an answer is waited for that may be in the socket when its time is over.
const GRACE: Duration = Duration::from_secs(1);

/// What came of an attempt.
pub enum Attempted {
    /// The application answered, before or after the gate.
    Answered {
        /// What.
        answer: Answer,
        /// Whether it may have all of the upload.
        passed: bool,
        /// The digest of the sent body; unfinished if not all was sent.
        digest: Unfinished,
        /// Why a released upload was sent with its old form token, if so.
        not_renewed: Option<String>,
    },
    /// It was not sent: there is no fresh token for its form.
    Held(Reason),
    /// No answer; the application cannot have the upload.
    Failed(Code, String),
    /// Its body cannot be read, and this is left of it; the application cannot have the upload.
    Damaged(RangeSet),
    /// No answer; the application may have the upload.
    Lost(Code, String),
    /// The upload was stopped, or the service is stopping; nothing is to be noted.
    Abandoned,
}

/// Sends a claimed upload to the application and waits for its answer.
pub async fn attempt(replay: &Replay, upload: &Upload, shutdown: &Shutdown) -> Attempted {
    let (request, not_renewed) = match prepare(replay, upload).await {
        Ok(prepared) => prepared,
        Err(Unprepared::Broken(error)) => return unreadable(replay, upload, error).await,
        Err(Unprepared::NoToken(Trouble::Unreachable(detail))) => {
            return Attempted::Failed(Code::UpstreamUnreachable, detail);
        }
        Err(Unprepared::NoToken(Trouble::SignedOut(detail))) => {
            return Attempted::Held(Reason::new(Code::SignInRequired, detail));
        }
        Err(Unprepared::NoToken(Trouble::Missing(detail))) => {
            return Attempted::Held(Reason::new(Code::FormTokenRefused, detail));
        }
    };
    let mut stream = match replay.application.stream().await {
        Ok(stream) => stream,
        Err(why) => return Attempted::Failed(Code::UpstreamUnreachable, why),
    };
    let gate = Gate { context: &replay.context, id: upload.id, shutdown, passed: AtomicBool::new(false) };
    let mut answer = Answer::default();
    let ended = converse(&mut stream, &request, &gate, &mut answer, replay.answer_timeout).await;
    if matches!(ended, Ended::Answered) {
        reset_when_dropped(&stream);
    }
    let passed = gate.passed.load(Ordering::Acquire);
    match ended {
        Ended::Answered => Attempted::Answered { answer, passed, digest: Unfinished(request), not_renewed },
        // The head is there, and the body was cut off. The rules say whether that is enough.
        Ended::Broken(..) | Ended::Unreadable(_) if answer.has_head() => {
            Attempted::Answered { answer, passed, digest: Unfinished(request), not_renewed }
        }
        // All is read before the gate.
        Ended::Unreadable(detail) => {
            // The application need not wait for that.
            drop(stream);
            unreadable(replay, upload, detail).await
        }
        Ended::Broken(_, detail) if passed => Attempted::Lost(Code::AnswerLost, detail),
        Ended::Broken(code, detail) => Attempted::Failed(code, detail),
        Ended::Abandoned => Attempted::Abandoned,
    }
}

/// Has whoever brought an upload hear what is missing again, if its body has become shorter: also of those that are not due.
pub async fn check_lengths(replay: Arc<Replay>) {
    let short = replay.context.store.short(remains::is_short).await;
    let short = short.inspect_err(|error| tracing::error!(%error, "the bodies could not be looked through"));
    for id in short.unwrap_or_default() {
        let Ok(Some(upload)) = replay.context.store.load(id).await else { continue };
        if upload.state != State::Received {
            // It was found to be damaged meanwhile.
            continue;
        }
        let detail = "its body is shorter than it was".to_owned();
        if let Attempted::Damaged(left) = unreadable(&replay, &upload, detail).await
            && matches!(replay.context.store.load(id).await, Ok(Some(now)) if is_the_same(&now, &upload))
            && let Err(error) = replay.context.note(id, Change::Damaged(left)).await
        {
            tracing::error!(%id, %error, "a damaged upload could not be noted");
        }
    }
}

/// Whether nothing has happened to an upload in between.
fn is_the_same(now: &Upload, then: &Upload) -> bool {
    (now.state, now.attempts, now.updated) == (then.state, then.attempts, then.updated)
}

/// What to make of an upload that cannot be read. What its body has lost is missing again; else a disk may fail just now.
async fn unreadable(replay: &Replay, upload: &Upload, detail: String) -> Attempted {
    let (context, known) = (replay.context.clone(), upload.clone());
    match blocking(move || remains::left(&context, &known)).await {
        Ok(Ok(Some(left))) => Attempted::Damaged(left),
        _ => Attempted::Failed(Code::Internal, detail),
    }
}

/// A request, ready to be sent.
struct Request {
    head: Vec<u8>,
    /// What of the body stands in record 0.
    first: Vec<u8>,
    admission: Arc<Admission>,
    body: Arc<dyn Sealed>,
    /// Where the body begins in the plaintext.
    head_len: u64,
    edits: Arc<Edits>,
    digest: Arc<Mutex<BodyDigest>>,
}

/// SHA-256 of the body, record by record, in their order.
struct BodyDigest {
    hash: digest::Context,
    /// The first record that is not in it.
    next: u64,
}

impl BodyDigest {
    /// Adds the part of the body that is in a record, unless it has been added.
    fn add(&mut self, index: u64, plaintext: &[u8]) {
        if index == self.next {
            self.hash.update(plaintext);
            self.next += 1;
        }
    }
}

/// The digest of a body. An application that answers early may not have been sent all of it.
pub struct Unfinished(Request);

impl Unfinished {
    /// SHA-256 of the whole body. None if the rest cannot be read, which is logged.
    pub async fn finish(self) -> Option<[u8; 32]> {
        let (records, digest) = (self.0.admission.layout.records(), self.0.digest.clone());
        let next = || digest.lock().next;
        while next() < records {
            let first = next();
            if let Err(error) = read_records(&self.0, first, (first + BATCH).min(records)).await {
                tracing::warn!(%error, "a body could not be read again: there is no receipt");
                return None;
            }
        }
        let hash = digest.lock().hash.clone().finish();
        Some(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// Why there is nothing to send.
enum Unprepared {
    /// It cannot be read.
    Broken(String),
    /// There is no fresh token for its form.
    NoToken(Trouble),
}

/// Opens the body and record 0 again, and writes the head. The second value says why a released upload keeps its old
/// form token, if it does.
async fn prepare(replay: &Replay, upload: &Upload) -> Result<(Request, Option<String>), Unprepared> {
    let (opening, known) = (replay.context.clone(), upload.clone());
    let whole = move || match open(&opening, &known)? {
        opened if remains::is_short(&*opened.body, &known) => Err("its body is shorter than it was".to_owned()),
        opened => Ok(opened),
    };
    let mut opened = blocking(whole).await.map_err(|error| error.to_string()).flatten().map_err(Unprepared::Broken)?;
    // The first attempt sends what the page wrote.
    let (edits, not_renewed) = match upload.token.is_some() {
        true => fresh(replay, &mut opened).await?,
        false => (Edits::default(), None),
    };
    let Opened { admission, body, head, credentials, first } = opened;
    let sent = edits.len_of(head.body_len);
    let first = if first.is_empty() { first } else { edits.apply(0, &first) };
    let mut digest = BodyDigest { hash: digest::Context::new(&digest::SHA256), next: 0 };
    digest.add(0, &first);
    let key = idempotency_key(&replay.context.policy().keys, admission.ticket.label.kws_id, upload.id);
    let key = key.ok_or_else(|| Unprepared::Broken("the key of its ticket has gone".to_owned()))?;
    let (text, digest) = (write_head(replay, upload, &head, sent, &credentials, &key), Arc::new(Mutex::new(digest)));
    let (edits, head_len) = (Arc::new(edits), head.head_len as u64);
    Ok((Request { head: text, first, admission, body, head_len, edits, digest }, not_renewed))
}

/// Puts fresh tokens into the head, and returns the edits that put them into the body. The second value says why there
/// are none.
async fn fresh(replay: &Replay, opened: &mut Opened) -> Result<(Edits, Option<String>), Unprepared> {
    let policy = replay.context.policy();
    let rules = &policy.routes.of(&opened.head.method, opened.head.path()).csrf;
    if rules.is_empty() {
        return Ok((Edits::default(), Some("its route does not say where a fresh token is found".to_owned())));
    }
    let is = |name: &str, other: &str| name.eq_ignore_ascii_case(other);
    let content_type = opened.head.fields.iter().find(|(name, _)| is(name, "content-type"));
    let content_type = content_type.map_or_else(String::new, |(_, value)| String::from_utf8_lossy(value).into_owned());
    let windows = windows(opened).await.map_err(Unprepared::Broken)?;
    let pieces: Vec<_> = windows
        .iter()
        .map(|(at, bytes)| Piece { at: *at, bytes, last: at + bytes.len() as u64 == opened.head.body_len })
        .collect();
    let mut due = Vec::new();
    for rule in rules {
        let places = rule.field.as_ref().map_or_else(Vec::new, |field| find::find(&content_type, field, &pieces));
        let in_head =
            rule.header.as_ref().is_some_and(|wanted| opened.head.fields.iter().any(|(name, _)| is(name, wanted)));
        if in_head || !places.is_empty() {
            due.push((rule, places));
        }
    }
    if due.is_empty() {
        let kib = WINDOW / 1024;
        let why =
            format!("no token's field was found in the first and last {kib} KiB of its form, and no token's header");
        return Ok((Edits::default(), Some(why)));
    }
    let asked: Vec<_> = due.iter().map(|(rule, _)| *rule).collect();
    let target = opened.head.target.clone();
    let tokens = renew::renew(&replay.application, &asked, &target, &mut opened.credentials)
        .await
        .map_err(Unprepared::NoToken)?;
    let form = Form::of(&content_type);
    let mut edits = Vec::new();
    for ((rule, places), token) in due.into_iter().zip(tokens) {
        for (name, value) in &mut opened.head.fields {
            if rule.header.as_ref().is_some_and(|wanted| is(name, wanted)) {
                *value = token.clone().into_bytes();
            }
        }
        edits.extend(
            form.into_iter()
                .flat_map(|form| places.iter().map(|place| (place.clone(), form.write(&token))).collect::<Vec<_>>()),
        );
    }
    Ok((Edits::new(edits), None))
}

/// The first and the last of the body, and where each begins.
async fn windows(opened: &Opened) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let (admission, body) = (opened.admission.clone(), opened.body.clone());
    let (layout, head_len, body_len) = (admission.layout, opened.head.head_len as u64, opened.head.body_len);
    let work = move || {
        // Complete records. Those that belong to both ends are read once.
        let record_of = |at: u64| {
            (0..layout.records()).rev().find(|index| layout.plaintext(*index).start <= head_len + at).unwrap_or(0)
        };
        let last = layout.records() - 1;
        let spans = match body_len <= 2 * WINDOW {
            true => vec![(0, last)],
            false => vec![(0, record_of(WINDOW)), (record_of(body_len - WINDOW), last)],
        };
        let read = |(first, last): (u64, u64)| {
            let mut bytes = Vec::new();
            for index in first..=last {
                let mut record = vec![0; layout.record(index).len() as usize];
                body.read_at(&mut record, layout.record(index).start).map_err(|error| error.to_string())?;
                let plaintext = admission.open(index, &mut record).map_err(|problem| problem.to_string())?;
                bytes.extend_from_slice(&plaintext[if index == 0 { head_len as usize } else { 0 }..]);
            }
            let at = if first == 0 { 0 } else { layout.plaintext(first).start - head_len };
            Ok::<_, String>((at, bytes))
        };
        spans.into_iter().map(read).collect::<Result<Vec<_>, _>>()
    };
    blocking(work).await.map_err(|error| error.to_string())?
}

/// The credentials of an upload, by its record 0.
///
/// # Errors
/// If that cannot be read, in words.
pub async fn credentials(context: &Arc<Context>, upload: &Upload) -> Result<Credentials, String> {
    let (context, upload) = (context.clone(), upload.clone());
    let work = move || open(&context, &upload).map(|opened| opened.credentials);
    blocking(work).await.map_err(|error| error.to_string())?
}

/// An upload with record 0 opened.
struct Opened {
    admission: Arc<Admission>,
    body: Arc<dyn Sealed>,
    head: RequestHead,
    credentials: Credentials,
    /// What of the body stands in record 0.
    first: Vec<u8>,
}

/// Opens the body and record 0 again. Blocking.
fn open(context: &Context, upload: &Upload) -> Result<Opened, String> {
    let prelude = Prelude::parse(&upload.prelude).map_err(|error| error.to_string())?;
    let admission = Admission::new(&context.policy(), prelude, upload.total).map_err(|problem| problem.to_string())?;
    let body = context.store.bodies().open(upload.id).map_err(|error| format!("its body cannot be read: {error}"))?;
    let mut record = vec![0; admission.layout.record(0).len() as usize];
    body.read_at(&mut record, admission.layout.record(0).start).map_err(|error| error.to_string())?;
    let plaintext = admission.open(0, &mut record).map_err(|problem| problem.to_string())?;
    let head = RequestHead::parse(plaintext, admission.layout.plaintext_len());
    let head = head.map_err(|problem| problem.to_string())?;
    let credentials = admit::open_token(&context.policy(), upload.id, upload.token.as_deref().unwrap_or(&head.token));
    let credentials = credentials.map_err(|problem| problem.to_string())?;
    let first = plaintext[head.head_len..].to_vec();
    Ok(Opened { admission: Arc::new(admission), body, head, credentials, first })
}

/// The head as the application gets it: the device's fields, and those that only the service can say.
fn write_head(
    replay: &Replay,
    upload: &Upload,
    head: &RequestHead,
    body_len: u64,
    credentials: &Credentials,
    idempotency_key: &str,
) -> Vec<u8> {
    let mut text =
        format!("{} {} HTTP/1.1\r\nHost: {}\r\n", head.method, head.target, replay.context.origin.authority())
            .into_bytes();
    let mut field = |name: &str, value: &[u8]| {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    };
    let policy = replay.context.policy();
    let route = policy.routes.of(&head.method, head.path());
    let mut left: Vec<_> = head.forged.iter().map(|name| (name.as_str(), Fate::OfTheFront)).collect();
    for (name, value) in &head.fields {
        match policy.routes.fate(route, name) {
            Fate::Goes => field(name, value),
            fate => left.push((name, fate)),
        }
    }
    replay.left_behind.tell(upload.id, upload.attempts, &left);
    field("Content-Length", body_len.to_string().as_bytes());
    // Rules read the answer, and the device keeps it: so it has to be legible.
    field("Accept-Encoding", b"identity");
    if let Some(cookie) = &credentials.cookie {
        field("Cookie", cookie.as_bytes());
    }
    if let Some(authorization) = &credentials.authorization {
        field("Authorization", authorization.as_bytes());
    }
    if let Some(address) = credentials.address {
        field("X-Forwarded-For", address.to_string().as_bytes());
    }
    field("X-Forwarded-Proto", if replay.context.origin.is_https() { b"https" } else { b"http" });
    field("X-Forwarded-Host", replay.context.origin.authority().as_bytes());
    field("Idempotency-Key", format!("\"{idempotency_key}\"").as_bytes());
    field("Connection", b"close");
    text.extend_from_slice(b"\r\n");
    text
}

/// The `Idempotency-Key` of an upload: the same at each attempt, as long as its ticket can be opened, and known to
/// nobody else. A carrier knows the upload's id, and could send a plain request with that as its key first. None: the
/// ticket's key has gone.
fn idempotency_key(keys: &Keyring, of: KwsId, id: UploadId) -> Option<String> {
    let ids = keys.signing_keys().map(|(id, _)| id);
    let (_, tag) = ids.zip(keys.owner_tags(IDEMPOTENCY_DOMAIN, id.as_bytes())).find(|(id, _)| *id == of)?;
    Some(tag.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// How a conversation ended.
enum Ended {
    Answered,
    Broken(Code, String),
    /// The body cannot be read, and nothing of the last records was sent.
    Unreadable(String),
    Abandoned,
}

/// Sends and listens at once: an answer may come before all is sent.
async fn converse(
    stream: &mut TcpStream,
    request: &Request,
    gate: &Gate<'_>,
    answer: &mut Answer,
    timeout: Duration,
) -> Ended {
    let (mut read_half, mut write_half) = stream.split();
    let mut reading = std::pin::pin!(read_answer(&mut read_half, answer));
    let sending = std::pin::pin!(send(request, gate, &mut write_half, timeout));
    let sent = tokio::select! {
        biased;
        read = &mut reading => return heard(read),
        sent = sending => sent,
    };
    match sent {
        Ok(()) => {
            let mut read = tokio::time::timeout(timeout, &mut reading).await;
            if read.is_err() {
                // Of a process that was stopped, timers run before its sockets are looked at: the answer may be there.
                read = tokio::time::timeout(GRACE, reading).await;
            }
            let late = |_| Ended::Broken(Code::UpstreamBroken, format!("no answer within {} s", timeout.as_secs()));
            read.map_or_else(late, heard)
        }
        Err(Unsent::Abandoned) => Ended::Abandoned,
        Err(Unsent::Local(detail)) => Ended::Broken(Code::Internal, detail),
        Err(Unsent::Unreadable(detail)) => Ended::Unreadable(detail),
        Err(Unsent::Socket(error)) => match tokio::time::timeout(LINGER, reading).await {
            Ok(Ok(())) => Ended::Answered,
            _ => Ended::Broken(Code::UpstreamBroken, format!("it stopped listening: {error}")),
        },
    }
}

fn heard(read: Result<(), AnswerError>) -> Ended {
    match read {
        Ok(()) => Ended::Answered,
        Err(error) => Ended::Broken(Code::UpstreamBroken, error.to_string()),
    }
}

/// Why not all was sent.
enum Unsent {
    /// The application does not take it.
    Socket(io::Error),
    /// The gate cannot be noted.
    Local(String),
    /// The body cannot be read.
    Unreadable(String),
    /// The gate is shut.
    Abandoned,
}

async fn send(
    request: &Request,
    gate: &Gate<'_>,
    socket: &mut (impl AsyncWrite + Unpin),
    timeout: Duration,
) -> Result<(), Unsent> {
    let records = request.admission.layout.records();
    let open_until = records.saturating_sub(WITHHELD);
    let mut withheld = [&request.head[..], &request.first].concat();
    if open_until > 0 {
        write(socket, &std::mem::take(&mut withheld), timeout).await?;
    }
    let mut index = 1;
    while index < open_until {
        let end = (index + BATCH).min(open_until);
        let plaintext = read_records(request, index, end).await.map_err(Unsent::Unreadable)?;
        write(socket, &plaintext, timeout).await?;
        index = end;
    }
    // Before the gate: what cannot be read then was certainly not sent.
    withheld.extend(read_records(request, index, records).await.map_err(Unsent::Unreadable)?);
    gate.pass().await?;
    write(socket, &withheld, timeout).await
}

async fn write(socket: &mut (impl AsyncWrite + Unpin), bytes: &[u8], timeout: Duration) -> Result<(), Unsent> {
    match tokio::time::timeout(timeout, socket.write_all(bytes)).await {
        Ok(written) => written.map_err(Unsent::Socket),
        Err(_) => Err(Unsent::Socket(io::Error::new(io::ErrorKind::TimedOut, "it reads nothing more"))),
    }
}

/// The plaintext of records `first..end`. It is added to the digest, too.
async fn read_records(request: &Request, first: u64, end: u64) -> Result<Vec<u8>, String> {
    let (admission, body, digest) = (request.admission.clone(), request.body.clone(), request.digest.clone());
    let (edits, head_len) = (request.edits.clone(), request.head_len);
    let work = move || {
        let mut plaintext = Vec::new();
        let mut record = Vec::new();
        for index in first..end {
            let range = admission.layout.record(index);
            record.resize(range.len() as usize, 0);
            body.read_at(&mut record, range.start).map_err(|error| error.to_string())?;
            let opened = admission.open(index, &mut record).map_err(|problem| problem.to_string())?;
            let sent = edits.apply(admission.layout.plaintext(index).start - head_len, opened);
            digest.lock().add(index, &sent);
            plaintext.extend_from_slice(&sent);
        }
        Ok(plaintext)
    };
    blocking(work).await.map_err(|error| error.to_string())?
}

/// The point after which the application may have the upload. It is passed once, and noted on disk before.
struct Gate<'a> {
    context: &'a Context,
    id: UploadId,
    shutdown: &'a Shutdown,
    passed: AtomicBool,
}

impl Gate<'_> {
    async fn pass(&self) -> Result<(), Unsent> {
        if self.shutdown.is_requested() {
            return Err(Unsent::Abandoned);
        }
        let changed = self.context.store.apply(self.id, Change::Commit, self.context.clock.unix()).await;
        match changed {
            Ok(Changed::Done(_)) => {
                self.passed.store(true, Ordering::Release);
                Ok(())
            }
            Ok(Changed::Refused(_) | Changed::Unknown) => Err(Unsent::Abandoned),
            Err(error) => Err(Unsent::Local(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_seal::ServiceKey;

    #[test]
    fn an_idempotency_key_outlives_a_rotation_and_differs_by_upload() {
        let [old, new] = [1, 2].map(|n| ServiceKey::new(KwsId([n; 4]), [n; 32]));
        let before = Keyring::new(old.clone());
        let rotated = Keyring::parse(&format!("{}\n{}", new.to_line(), old.to_line())).unwrap();
        let (id, other) = (UploadId([7; 16]), UploadId([8; 16]));
        let key = idempotency_key(&before, old.id(), id);
        assert!(key.as_ref().is_some_and(|key| *key != id.to_hex()));
        assert_eq!(idempotency_key(&rotated, old.id(), id), key);
        assert_ne!(idempotency_key(&rotated, new.id(), id), key);
        assert_ne!(idempotency_key(&before, old.id(), other), key);
        assert_eq!(idempotency_key(&Keyring::new(new), old.id(), id), None);
    }
}
