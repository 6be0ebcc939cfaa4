//! What stands between a connection and hyper, and lets through one head after the other: [`Gate`].
//!
//! ```text
//!  socket ──▶ Gate ─┬─ a head that [`inspect`] takes ──▶ hyper ──▶ handler
//!                   └─ one that it refuses ──▶ hyper, as a plain request ──▶ the refusal, and the end of the connection
//! ```
//!
//! The gate counts a body's bytes, so that it knows where the next head begins, and hyper gets nothing that was not looked at. After a body in
//! chunks no further head is taken: its answer ends the connection. So chunks are read in one place only. A connection that has changed its
//! protocol passes as it is.
//!
//! While a request is not answered, nothing more is read than shows whether its client is still there: the next head waits in the socket. Once
//! something has come, the socket itself is asked ([`Presence`]).
//!
//! Bounds: one head in memory, and what came behind it in the same read.

use crate::message::head::{Extent, Framing, Head, extent, inspect};
use crate::message::lines::Lines;
use crate::message::problem::{Code, Problem};
use crate::places::Place;
use crate::server::presence::Presence;
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What hyper is given in place of a head that is refused.
const REFUSED: &[u8] = b"GET / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

/// So much of what comes behind a request that is not answered yet is read: enough to see whether its client is still there.
const AHEAD: usize = 64;

/// What a gate lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeadLimits {
    /// The longest head, in bytes, as it comes and as it is passed on.
    pub bytes: usize,
    /// Fields.
    pub fields: usize,
    /// How long a head may take to come, from its first byte; the connection's first from the beginning.
    pub time: Duration,
    /// How long a connection may rest between two requests.
    pub idle: Duration,
}

/// What a gate and the requests of its connection tell each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Heads that were let through, and requests that hyper has made of them.
    heads: u64,
    requests: u64,
    /// Why the last head was refused.
    refusal: Option<Problem>,
    /// The last head let through has a body in chunks.
    is_last: bool,
    /// Requests that are not answered yet.
    under_way: u64,
    /// The connection has changed its protocol.
    is_raw: bool,
    /// Where it rests once the last answer has gone.
    resting: Option<Resting>,
}

/// A place that is changed for one of this share, in which a client's connection rests.
#[derive(Debug)]
pub(crate) struct Resting {
    pub place: Place,
    pub share: usize,
    pub client: IpAddr,
}

impl Watch {
    /// hyper has made a request of a head: why to refuse it, if it is one that the gate refuses.
    pub(crate) fn request(&self) -> Option<Problem> {
        // The answer before has gone, or will have: its request has a place of its own from now on.
        self.is_flushed();
        let mut state = self.0.lock();
        state.requests += 1;
        state.under_way += 1;
        if state.requests == state.heads { state.refusal.take() } else { None }
    }

    /// It was answered. Once the answer has gone to the system, its connection changes to a place in which it rests, if there is one.
    pub(crate) fn answered(&self, rests: Option<Resting>) {
        let mut state = self.0.lock();
        state.under_way -= 1;
        state.resting = rests.filter(|_| !state.is_raw);
    }

    /// Whether an answer is not all with its client's system: it is made, or has not gone.
    pub(crate) fn has_unsent(&self) -> bool {
        let state = self.0.lock();
        state.under_way > 0 || state.resting.is_some()
    }

    /// All that was written has gone to the system.
    fn is_flushed(&self) {
        let resting = self.0.lock().resting.take();
        if let Some(Resting { place, share, client }) = resting {
            place.rest(share, client);
        }
    }

    /// Whether a request is under way.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.lock().under_way > 0
    }

    /// Whether each head that was let through has been answered.
    fn rests(&self) -> bool {
        let state = self.0.lock();
        state.under_way == 0 && state.requests == state.heads
    }

    /// Whether its connection ends with this answer.
    pub(crate) fn is_last(&self) -> bool {
        self.0.lock().is_last
    }

    /// Whether what comes from now on is no head.
    pub(crate) fn has_changed_protocol(&self) -> bool {
        self.0.lock().is_raw
    }

    /// The answer changes the protocol: what comes from now on is no head.
    pub(crate) fn change_protocol(&self) {
        self.0.lock().is_raw = true;
    }
}

/// A connection of which hyper reads what was looked at.
pub(crate) struct Gate<S> {
    stream: S,
    watch: Watch,
    limits: HeadLimits,
    next: Next,
    /// No head has come over this connection before.
    is_new: bool,
    /// What came and was not let through yet, and how much of it was looked at.
    held: Vec<u8>,
    seen: usize,
    /// The next head is held until the request before it is answered.
    is_stopped: bool,
    /// What may go to hyper, and how much of it has.
    passed: Vec<u8>,
    gone: usize,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set for.
    waits_for: Option<Awaited>,
    /// Something was written that is not known to have left.
    writes: bool,
    /// The connection's place, if it has one.
    place: Option<Place>,
    presence: Presence,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Head,
    /// So many bytes of a body.
    Body(u64),
    /// Nothing but this body, in chunks; or another protocol.
    Rest,
    /// Either a head or another protocol, as the answer says.
    Undecided,
    /// Nothing: a head was refused.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaited {
    /// The rest of a head, or the first one.
    Head,
    /// Any.
    Any,
}

impl<S> Gate<S> {
    /// `is_new`: no head has come over this connection before.
    pub(crate) fn new(
        stream: S,
        watch: Watch,
        limits: HeadLimits,
        is_new: bool,
        place: Option<Place>,
        presence: Presence,
    ) -> Self {
        Self {
            stream,
            watch,
            limits,
            next: Next::Head,
            is_new,
            held: Vec::new(),
            seen: 0,
            is_stopped: false,
            passed: Vec::new(),
            gone: 0,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            waits_for: None,
            writes: false,
            place,
            presence,
        }
    }

    /// Lets `head` through, rewritten or not, and says what comes next.
    fn let_through(&mut self, head: &Head) {
        let mut state = self.watch.0.lock();
        state.heads += 1;
        state.is_last = head.body == Framing::Chunked;
        self.presence.begin();
        self.waits_for = None;
        self.next = match head.body {
            Framing::Chunked => Next::Rest,
            Framing::Length(0) if head.upgrades => Next::Undecided,
            Framing::Length(0) => Next::Head,
            Framing::Length(length) => Next::Body(length),
        };
    }

    fn refuse(&mut self, problem: Problem) {
        static HEADS: Lines = Lines::new();
        let more = || tracing::warn!("more heads are refused than are written down in this minute");
        if HEADS.have_room(std::time::Instant::now(), more) {
            tracing::info!(%problem, "a request's head is refused");
        }
        let mut state = self.watch.0.lock();
        state.heads += 1;
        (state.refusal, state.is_last) = (Some(problem), true);
        (self.passed, self.gone, self.next) = (REFUSED.to_vec(), 0, Next::Over);
        self.held = Vec::new();
    }

    /// Looks at a head that came as the first `len` bytes of `bytes`.
    fn look(&self, bytes: &[u8], len: usize) -> Result<Head, Problem> {
        let head = inspect(&bytes[..len], self.limits.fields)?;
        match head.rewritten.as_ref().is_some_and(|head| head.len() > self.limits.bytes) {
            true => Err(self.too_large()),
            false => Ok(head),
        }
    }

    fn too_large(&self) -> Problem {
        Problem::new(Code::HeadTooLarge, format!("it is longer than {} bytes", self.limits.bytes))
    }

    /// Takes a head from what is held, if it is whole or can be none.
    fn take_head(&mut self) {
        match extent(&self.held, self.seen) {
            Extent::Ends(len) => match self.look(&self.held, len) {
                Err(problem) => self.refuse(problem),
                Ok(head) => {
                    self.let_through(&head);
                    let rest = self.held.split_off(len);
                    let came = std::mem::replace(&mut self.held, rest);
                    (self.passed, self.gone, self.seen) = (head.rewritten.unwrap_or(came), 0, 0);
                }
            },
            Extent::Never(why) => self.refuse(Problem::new(Code::RequestInvalid, why)),
            Extent::Open if self.held.len() >= self.limits.bytes => self.refuse(self.too_large()),
            Extent::Open => self.seen = self.held.len(),
        }
    }

    /// Lets what is held through as far as it belongs to the body, or to whatever is not looked at.
    fn take_body(&mut self) {
        let len = match &mut self.next {
            Next::Body(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(self.held.len());
                *left -= len as u64;
                len
            }
            Next::Rest => self.held.len(),
            Next::Head | Next::Undecided | Next::Over => 0,
        };
        if self.next == Next::Body(0) {
            self.next = Next::Head;
        }
        let rest = self.held.split_off(len);
        (self.passed, self.gone) = (std::mem::replace(&mut self.held, rest), 0);
    }

    /// Gives hyper what may go to it. Whether there was any.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let len = (self.passed.len() - self.gone).min(buffer.remaining());
        if len == 0 {
            return false;
        }
        buffer.put_slice(&self.passed[self.gone..self.gone + len]);
        self.gone += len;
        if self.gone == self.passed.len() {
            (self.passed, self.gone) = (Vec::new(), 0);
        }
        true
    }

    /// Finds out from the answer whether a protocol has been changed, once it is there.
    fn decide(&mut self) {
        if self.next == Next::Undecided {
            self.next = match (self.watch.has_changed_protocol(), self.watch.rests()) {
                (true, _) => Next::Rest,
                (false, true) => Next::Head,
                (false, false) => Next::Undecided,
            };
        }
    }

    /// Whether the head, or the time between two requests, takes too long.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let (first, under_way) = {
            let state = self.watch.0.lock();
            (self.is_new && state.heads == 0, state.under_way > 0)
        };
        if under_way || self.writes || self.next != Next::Head {
            // The time is not the sender's, or is the reader's.
            self.waits_for = None;
            return false;
        }
        if first {
            self.place.iter().for_each(Place::awaits);
        }
        let awaited = if first || !self.held.is_empty() { Awaited::Head } else { Awaited::Any };
        if self.waits_for.replace(awaited) != Some(awaited) {
            let time = if awaited == Awaited::Head { self.limits.time } else { self.limits.idle };
            self.timer.as_mut().reset(Instant::now() + time);
        }
        self.timer.as_mut().poll(context).is_ready()
    }
}

impl<S: AsyncRead + Unpin> Gate<S> {
    /// Tells the place how the client gets on.
    fn wait_for(&self, came: &Poll<io::Result<u64>>) {
        match (self.place.as_ref().filter(|place| !place.has_teller()), came) {
            (Some(place), Poll::Pending) => place.awaits(),
            (Some(place), Poll::Ready(Ok(bytes))) => place.comes(usize::try_from(*bytes).unwrap_or(usize::MAX)),
            _ => {}
        }
    }

    /// Reads with hyper's buffer, and takes what came out of it again: it is held. Whether anything came.
    fn poll_hold(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.held.extend_from_slice(&buffer.filled()[before..]);
        let came = buffer.filled().len() > before;
        buffer.set_filled(before);
        Poll::Ready(Ok(came))
    }

    /// Reads where nothing is held: a whole head that needs no change stays where it came, with what belongs to it. Whether anything came.
    fn poll_head(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let came = &buffer.filled()[before..];
        if came.is_empty() {
            return Poll::Ready(Ok(false));
        }
        let whole = match extent(came, 0) {
            Extent::Ends(len) => {
                self.look(came, len).ok().filter(|head| head.rewritten.is_none()).map(|head| (len, head))
            }
            Extent::Open | Extent::Never(_) => None,
        };
        let Some((len, head)) = whole else {
            self.held.extend_from_slice(came);
            buffer.set_filled(before);
            return Poll::Ready(Ok(true));
        };
        let behind = came.len() - len;
        let of_body = match head.body {
            Framing::Length(length) => usize::try_from(length).map_or(behind, |length| length.min(behind)),
            Framing::Chunked => behind,
        };
        self.held.extend_from_slice(&came[len + of_body..]);
        buffer.set_filled(before + len + of_body);
        self.seen = 0;
        self.let_through(&head);
        self.next = match self.next {
            Next::Body(length) if length == of_body as u64 => Next::Head,
            Next::Body(length) => Next::Body(length - of_body as u64),
            next => next,
        };
        Poll::Ready(Ok(true))
    }

    /// Reads what is not looked at, at most `left` bytes.
    fn poll_rest(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>, left: u64) -> Poll<io::Result<u64>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let came = buffer.filled().len() - before;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(came);
        self.held.extend_from_slice(&buffer.filled()[before + len..]);
        buffer.set_filled(before + len);
        Poll::Ready(Ok(len as u64))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let gate = &mut *self;
        let before = buffer.filled().len();
        loop {
            if gate.give(buffer) || buffer.filled().len() > before || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            gate.decide();
            match gate.next {
                Next::Over => return Poll::Pending,
                Next::Body(_) | Next::Rest if !gate.held.is_empty() => gate.take_body(),
                Next::Rest => {
                    let came = gate.poll_rest(context, buffer, u64::MAX);
                    // Of a body in chunks nobody here knows whether more is to come.
                    if let (Some(place), true) = (&gate.place, gate.watch.0.lock().is_raw) {
                        if came.is_pending() { place.awaits() } else { place.goes_on() }
                    }
                    return came.map_ok(drop);
                }
                Next::Body(left) => {
                    let came = gate.poll_rest(context, buffer, left);
                    gate.wait_for(&came);
                    let len = ready!(came)?;
                    if len == left {
                        gate.place.iter().filter(|place| !place.has_teller()).for_each(Place::goes_on);
                    }
                    gate.next = if len == left { Next::Head } else { Next::Body(left - len) };
                    return Poll::Ready(Ok(()));
                }
                // Nobody waits for what comes before the answer; but whether the other end is still there has to be noticed.
                Next::Undecided if gate.held.len() >= gate.limits.bytes => {
                    gate.presence.need();
                    return Poll::Pending;
                }
                Next::Undecided => {
                    if !ready!(gate.poll_hold(context, buffer))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Next::Head if !gate.watch.rests() => {
                    gate.is_stopped = true;
                    if !gate.held.is_empty() {
                        gate.presence.need();
                        return Poll::Pending;
                    }
                    if !ready!(gate.poll_hold(context, &mut buffer.take(AHEAD)))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Next::Head => {
                    gate.is_stopped = false;
                    if gate.held.len() > gate.seen {
                        gate.take_head();
                        continue;
                    }
                    let read = match gate.held.is_empty() {
                        true => gate.poll_head(context, buffer),
                        false => gate.poll_hold(context, buffer),
                    };
                    match read {
                        Poll::Ready(Ok(true)) => {}
                        Poll::Ready(ended) => return Poll::Ready(ended.map(drop)),
                        Poll::Pending if !gate.is_late(context) => return Poll::Pending,
                        // Who has begun is told.
                        Poll::Pending if gate.held.is_empty() => return Poll::Ready(Ok(())),
                        Poll::Pending => {
                            let detail = format!("the head did not come within {} s", gate.limits.time.as_secs());
                            gate.refuse(Problem::new(Code::RequestTimeout, detail));
                        }
                    }
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes = true;
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.writes = false;
        self.watch.is_flushed();
        // With its answer gone a connection begins to rest, and hyper need not read again by itself.
        let was_undecided = self.next == Next::Undecided;
        self.decide();
        let is_decided = was_undecided && self.next != Next::Undecided;
        let goes_on = is_decided || (self.is_stopped && self.watch.rests());
        if goes_on && !self.held.is_empty() {
            self.is_stopped = false;
            context.waker().wake_by_ref();
        }
        let _ = self.is_late(context);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    const LIMITS: HeadLimits =
        HeadLimits { bytes: 32 << 10, fields: 256, time: Duration::from_secs(15), idle: Duration::from_secs(15) };

    #[tokio::test]
    async fn a_head_behind_a_request_waits_in_the_socket_until_that_is_answered() {
        let (ours, mut theirs) = tokio::io::duplex(40_000);
        let watch = Watch::default();
        let mut gate = Gate::new(ours, watch.clone(), LIMITS, true, None, Presence::default());
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(31_000));
        let mut got = vec![0; head.len()];
        theirs.write_all(head.as_bytes()).await.unwrap();
        gate.read_exact(&mut got).await.unwrap();
        assert!(watch.request().is_none());
        theirs.write_all(head.as_bytes()).await.unwrap();
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        let (context, mut more) = (&mut Context::from_waker(&waker), [0; 40_000]);
        for _ in 0..3 {
            assert!(Pin::new(&mut gate).poll_read(context, &mut ReadBuf::new(&mut more)).is_pending());
        }
        assert!((1..=AHEAD).contains(&gate.held.len()), "{} bytes", gate.held.len());
        assert!(Pin::new(&mut gate).poll_flush(context).is_ready());
        assert!(!woken.0.load(Ordering::Relaxed), "it is not answered yet");
        watch.answered(None);
        assert!(Pin::new(&mut gate).poll_flush(context).is_ready());
        assert!(woken.0.load(Ordering::Relaxed), "nobody else tells the reader");
        gate.read_exact(&mut got).await.unwrap();
        assert_eq!(got, head.as_bytes());
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_it_waits_is_noticed() {
        let (ours, mut theirs) = tokio::io::duplex(40_000);
        let watch = Watch::default();
        let mut gate = Gate::new(ours, watch.clone(), LIMITS, true, None, Presence::default());
        theirs.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(gate.read(&mut [0; 1_000]).await.unwrap() > 0 && watch.request().is_none());
        drop(theirs);
        assert_eq!(gate.read(&mut [0; 1_000]).await.unwrap(), 0);
    }
}
