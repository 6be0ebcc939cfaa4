//! A request's body: [`RequestBody`].
//!
//! hyper keeps a buffer for each connection as large as its reads, and large reads are what makes intake fast; 64 senders at once would make that 16 MiB and more, on
//! machines that have 32. So a long body that did not come over TLS is read from the socket itself, with one buffer that a thread shares among all its connections:
//!
//! ```text
//!  head and the body's beginning ──▶ hyper ──▶ handler: RequestBody
//!                                                 │ takes over: hyper reads nothing more
//!  what hyper had read by then ◀── drained ◀──────┤
//!  the rest of the body ◀───────── the socket ◀───┘
//! ```
//!
//! Whoever puts the body into a file takes it from the socket without a copy ([`RequestBody::piped`]).
//!
//! hyper never learns that the body came to its end, so it ends what it takes for the connection with the answer. If all of the body was read by then, the socket
//! lives on: the next request is read by a new hyper. If not, the answer says `Connection: close`.

use crate::places::{Place, makes_way};
use crate::server::splice::{self, SpliceChunk};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::request::Parts;
use http::{Request, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use parking_lot::Mutex;
use socket2::SockRef;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Bodies from here on are read from the socket itself. On a LAN, where a new connection costs a millisecond, this much takes twenty.
const LONG_BYTES: u64 = 256 * 1024;

/// The most that is read at once: more makes nothing faster. One such buffer for each thread of the runtime.
const READ_BYTES: usize = 256 * 1024;

thread_local! {
    static BUFFER: RefCell<BytesMut> = RefCell::default();
}

/// Of a body that is not needed so much is still read, and for so long, so that the answer is not lost in a reset connection.
const LINGER_BYTES: u64 = 16 << 20;
const LINGER_TIME: Duration = Duration::from_secs(if cfg!(test) { 3_600 } else { 5 });

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    /// Its sender waits for leave to send it, which the first look at it gives (RFC 9110 §10.1.1).
    waits: bool,
    /// Of a long body that did not come over TLS.
    long: Option<Long>,
    /// The connection's, if it has one.
    place: Option<Place>,
}

#[derive(Debug)]
struct Long {
    direct: RawSocket,
    /// Bytes that are still to come.
    left: u64,
    /// hyper holds nothing of it any more.
    drained: bool,
    /// The last read filled the buffer.
    full: bool,
    /// The connection's, if it has one.
    place: Option<Place>,
}

impl RequestBody {
    /// A request's head, and its body. The [`Place`] of its connection, if it has one among its extensions, is told how the body comes.
    pub fn of(request: Request<Incoming>) -> (Parts, Self) {
        let (mut head, body) = request.into_parts();
        let direct = head.extensions.remove::<RawSocket>();
        let waits = head.headers.contains_key(header::EXPECT);
        let left = body.size_hint().exact().unwrap_or(0);
        let long = direct.filter(|_| left >= LONG_BYTES);
        let place = head.extensions.get::<Place>().cloned();
        let long = long.map(|direct| Long { direct, left, drained: false, full: false, place: place.clone() });
        (head, Self { body, waits, long, place })
    }

    /// Its length, if the sender told.
    pub fn length(&self) -> Option<u64> {
        self.long.as_ref().map_or_else(|| self.body.size_hint().exact(), |long| Some(long.left))
    }

    /// Whether nothing more comes.
    pub fn is_over(&self) -> bool {
        self.long.as_ref().map_or_else(|| self.body.is_end_stream(), |long| long.left == 0)
    }

    /// The next bytes; `None` at the end. May be dropped while it waits. Write them or copy them soon: as long as they are held, the thread's other connections read into
    /// buffers of their own.
    ///
    /// # Errors
    /// If it broke off.
    pub async fn data(&mut self) -> Option<io::Result<Bytes>> {
        let place = self.place.clone();
        place.iter().for_each(Place::is_told_apart);
        let came = told(place.as_ref(), self.next()).await;
        if self.is_over() {
            self.place.iter().for_each(Place::goes_on);
        }
        came
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        self.waits = false;
        let Some(long) = &mut self.long else { return frame(&mut self.body).await };
        if !long.drained {
            long.direct.take_over();
            let next = tokio::select! {
                biased;
                next = frame(&mut self.body) => next,
                () = long.direct.0.drained.notified() => None,
            };
            match next {
                Some(Ok(bytes)) => {
                    long.took(bytes.len() as u64);
                    return Some(Ok(bytes));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => long.drained = true,
            }
        }
        long.rest().await.transpose()
    }
}

impl RequestBody {
    /// The place of its connection, if it has one.
    pub const fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Reads on for a while what nobody needs, so that its sender gets to see the answer; not of one that waits for leave to send. Ends when its connection's place makes way:
    /// its socket would be counted nowhere.
    pub async fn linger(&mut self) {
        let place = self.place.clone();
        let reads = async {
            let until = Instant::now() + LINGER_TIME;
            let mut read = 0;
            while !self.waits
                && read <= LINGER_BYTES
                && let Ok(Some(Ok(bytes))) = timeout_at(until, self.data()).await
            {
                read += bytes.len() as u64;
            }
        };
        tokio::select! {
            biased;
            () = makes_way(place.as_ref()) => {}
            () = reads => {}
        }
    }

    /// The same while the answer goes out: a sender that reads it stops.
    pub fn linger_apart(mut self) {
        if self.waits || self.is_over() {
            return;
        }
        // Before the answer's head is made: it is to say that the connection ends.
        self.long.iter().for_each(|long| long.direct.take_over());
        tokio::spawn(async move { self.linger().await });
    }

    /// Whether what comes next waits in the socket, so that [`RequestBody::piped`] may have it.
    pub fn is_in_socket(&self) -> bool {
        splice::is_possible() && self.long.as_ref().is_some_and(|long| long.drained && long.left > 0)
    }

    /// Waits until bytes have come to the socket, where [`RequestBody::is_in_socket`]. May be dropped while it waits.
    ///
    /// # Errors
    /// If the connection broke off.
    pub async fn in_socket(&mut self) -> io::Result<()> {
        let Some(long) = &mut self.long else { return Ok(()) };
        if std::mem::take(&mut long.full) {
            // There may always be more: the thread's other connections have their turn.
            tokio::task::yield_now().await;
        }
        poll_fn(|cx| {
            let ready = long.direct.0.socket.read.lock().as_ref().poll_read_ready(cx);
            long.place.iter().filter(|_| ready.is_pending()).for_each(Place::awaits);
            ready
        })
        .await
    }

    /// Takes what has come to the socket, at most so many bytes, for whoever puts them into a file at once; `None`: nothing has, after all, or not in this way:
    /// [`RequestBody::is_in_socket`] is to be asked again.
    ///
    /// # Errors
    /// If the connection broke off.
    pub fn piped(&mut self, most: u64) -> io::Result<Option<SpliceChunk>> {
        let Some(long) = &mut self.long else { return Ok(None) };
        let most = most.min(long.left);
        let taken = {
            let half = long.direct.0.socket.read.lock();
            let stream: &TcpStream = half.as_ref();
            stream.try_io(Interest::READABLE, || SpliceChunk::take(stream, most))
        };
        let piped = match taken {
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            taken => taken?.expect("there is one"),
        };
        if piped.is_empty() {
            return Err(long.broken_off());
        }
        long.place.iter().for_each(|place| place.comes(usize::try_from(piped.len()).unwrap_or(usize::MAX)));
        long.took(piped.len());
        long.full = piped.len() >= READ_BYTES as u64;
        Ok(Some(piped))
    }
}

impl Long {
    /// So many bytes have come.
    fn took(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        // What hyper gave, it knows of.
        if self.left == 0 && self.drained {
            self.direct.0.whole.store(true, Ordering::Relaxed);
        }
        if self.left == 0 {
            self.place.iter().for_each(Place::goes_on);
        }
    }

    fn broken_off(&self) -> io::Error {
        let why = format!("the connection ended {} bytes before the body", self.left);
        io::Error::new(io::ErrorKind::UnexpectedEof, why)
    }

    /// The next bytes from the socket.
    async fn rest(&mut self) -> io::Result<Option<Bytes>> {
        if self.left == 0 {
            return Ok(None);
        }
        if self.full {
            // There may always be more: the thread's other connections have their turn.
            tokio::task::yield_now().await;
        }
        let most = READ_BYTES.min(usize::try_from(self.left).unwrap_or(READ_BYTES));
        let bytes = poll_fn(|cx| self.direct.0.poll_bytes(most, cx)).await?;
        if bytes.is_empty() {
            return Err(self.broken_off());
        }
        self.took(bytes.len() as u64);
        self.full = bytes.len() == READ_BYTES;
        Ok(Some(bytes))
    }
}

/// Tells a place how its client gets on, while the next bytes are waited for.
async fn told(
    place: Option<&Place>,
    next: impl Future<Output = Option<io::Result<Bytes>>>,
) -> Option<io::Result<Bytes>> {
    let mut next = pin!(next);
    poll_fn(|cx| {
        let polled = next.as_mut().poll(cx);
        match (place, &polled) {
            (Some(place), Poll::Pending) => place.awaits(),
            (Some(place), Poll::Ready(Some(Ok(bytes)))) => place.comes(bytes.len()),
            _ => {}
        }
        polled
    })
    .await
}

/// The next bytes that hyper has.
async fn frame(body: &mut Incoming) -> Option<io::Result<Bytes>> {
    loop {
        match body.frame().await? {
            // Trailers mean nothing here.
            Ok(frame) => match frame.into_data() {
                Ok(bytes) => return Some(Ok(bytes)),
                Err(_) => continue,
            },
            Err(error) => return Some(Err(io::Error::other(error))),
        }
    }
}

/// Both directions of a connection: one reader and one writer each at any time.
#[derive(Debug)]
struct Socket {
    /// Read by hyper, or by whoever took a body over; never by both.
    read: Mutex<OwnedReadHalf>,
    write: Mutex<OwnedWriteHalf>,
}

impl Socket {}

#[derive(Debug)]
struct Inner {
    socket: Arc<Socket>,
    /// A body is read from the socket itself.
    taken: AtomicBool,
    /// All of it has been.
    whole: AtomicBool,
    /// The socket outlives the hyper that reads from it.
    stays: AtomicBool,
    /// hyper has asked for more although the body was taken over: it holds nothing of it any more.
    drained: Notify,
}

/// The TCP connection that a request came over. A handler has it only if it is plain.
#[derive(Clone, Debug)]
pub(crate) struct RawSocket(Arc<Inner>);

impl Inner {
    fn new(socket: Arc<Socket>) -> Self {
        let [taken, whole, stays] = [false; 3].map(AtomicBool::new);
        Self { socket, taken, whole, stays, drained: Notify::new() }
    }

    /// Waits for bytes, at most so many, and reads them into the thread's buffer; none at the end.
    fn poll_bytes(&self, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let half = self.socket.read.lock();
        let stream: &TcpStream = half.as_ref();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let read = BUFFER.with_borrow_mut(|buffer| {
                buffer.reserve(READ_BYTES);
                stream.try_read_buf(&mut (&mut *buffer).limit(most)).map(|_| buffer.split().freeze())
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

impl RawSocket {
    fn take_over(&self) {
        self.0.taken.store(true, Ordering::Relaxed);
    }

    /// Called once the answer is there: whether the connection ends with it, because a body was read from it of which hyper knows nothing.
    /// It need not if the body was read to its end, and the sender, too, would go on (`keep_alive`).
    pub(crate) fn ends_with_answer(&self, keep_alive: bool) -> bool {
        if !self.0.taken.load(Ordering::Relaxed) {
            return false;
        }
        let stays = keep_alive && self.0.whole.load(Ordering::Relaxed);
        self.0.stays.store(stays, Ordering::Relaxed);
        !stays
    }

    /// Whether something has come that nobody has read.
    pub(crate) fn has_unread(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        SockRef::from(self.0.socket.read.lock().as_ref()).peek(&mut byte).is_ok_and(|bytes| bytes > 0)
    }

    /// Whether nothing more comes from the other end, read or not; never of a connection from which a body was taken over: whoever took it has the end of it.
    #[cfg(target_os = "linux")]
    pub(crate) fn has_left(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        if self.0.taken.load(Ordering::Relaxed) {
            return false;
        }
        let half = self.0.socket.read.lock();
        let stream: &TcpStream = half.as_ref();
        poll(&mut [PollFd::new(stream, PollFlags::RDHUP)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Nobody can tell on other systems.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn has_left(&self) -> bool {
        false
    }

    /// How many bytes have come that nobody has read.
    #[cfg(target_os = "linux")]
    pub(crate) fn unread(&self) -> u64 {
        let half = self.0.socket.read.lock();
        let stream: &TcpStream = half.as_ref();
        rustix::io::ioctl_fionread(stream).unwrap_or(0)
    }

    /// Nobody can tell on other systems.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn unread(&self) -> u64 {
        0
    }

    /// What has gone wrong with the connection meanwhile.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(self.0.socket.read.lock().as_ref()).take_error()
    }

    /// What was written and has not gone is forgotten once the connection is closed, and the other end is told by a reset. Otherwise the kernel would keep it for a minute and a half.
    pub(crate) fn forgets(&self) {
        let _ = SockRef::from(self.0.socket.write.lock().as_ref()).set_linger(Some(Duration::ZERO));
    }

    /// The connection for another hyper, after the one before has ended, if it goes on.
    pub(crate) fn again(&self) -> Option<SharedStream> {
        let stays = self.0.stays.load(Ordering::Relaxed);
        stays.then(|| SharedStream(Arc::new(Inner::new(self.0.socket.clone()))))
    }
}

/// A connection that hyper reads from until it is taken over.
#[derive(Debug)]
pub(crate) struct SharedStream(Arc<Inner>);

impl SharedStream {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self(Arc::new(Inner::new(Arc::new(Socket { read: Mutex::new(read), write: Mutex::new(write) }))))
    }

    pub(crate) fn direct(&self) -> RawSocket {
        RawSocket(self.0.clone())
    }
}

impl AsyncRead for SharedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.0.taken.load(Ordering::Relaxed) {
            self.0.drained.notify_one();
            // Whoever took it over answers, and that ends this hyper: nobody need be woken.
            return Poll::Pending;
        }
        Pin::new(&mut *self.0.socket.read.lock()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.socket.write.lock()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.socket.write.lock()).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.socket.write.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.socket.write.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.stays.load(Ordering::Relaxed) {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut *self.0.socket.write.lock()).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Crowd, Server, ServerLimits, full, shutdown};
    use http::{Request, Response};
    use std::os::unix::fs::FileExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// What is sent: more than sockets and hyper's buffer hold.
    const LEN: usize = 20 << 20;

    fn byte(at: usize) -> u8 {
        (at % 251) as u8
    }

    /// Answers with how many bytes came in their right places, and whether any buffer was larger than one.
    async fn count(request: Request<Incoming>) -> Response<Body> {
        let (_, mut body) = RequestBody::of(request);
        let (mut at, mut right, mut largest) = (0, 0, 0);
        while let Some(bytes) = body.data().await {
            let bytes = bytes.unwrap();
            right += bytes.iter().enumerate().filter(|(index, found)| byte(at + index) == **found).count();
            at += bytes.len();
            largest = largest.max(bytes.len());
        }
        assert!(body.is_over());
        Response::new(full(format!("{right} {}", largest <= READ_BYTES)))
    }

    async fn exchange(stream: &mut TcpStream, len: usize, field: &str) -> String {
        let head = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n{field}\r\n");
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        stream.write_all(head.as_bytes()).await.unwrap();
        if field.starts_with("Expect") {
            let mut interim = [0; 25];
            stream.read_exact(&mut interim).await.unwrap();
            assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        stream.write_all(&bytes).await.unwrap();
        let mut answer = String::new();
        while !answer.contains("true") {
            let mut some = [0; 512];
            let read = stream.read(&mut some).await.unwrap();
            assert!(read > 0, "{answer}");
            answer.push_str(std::str::from_utf8(&some[..read]).unwrap());
        }
        answer
    }

    /// Puts the body into a file, what can be straight from the socket. Answers with how many bytes are in their right places, and whether any went so.
    async fn store(request: Request<Incoming>) -> Response<Body> {
        let (_, mut body) = RequestBody::of(request);
        let file = tempfile::tempfile().unwrap();
        let (mut at, mut piped, mut put) = (0, 0, Vec::new());
        while !body.is_over() {
            if !body.is_in_socket() {
                let bytes = body.data().await.unwrap().unwrap();
                file.write_all_at(&bytes, at).unwrap();
                put.push(at..at + bytes.len() as u64);
                at += bytes.len() as u64;
                continue;
            }
            if let Err(error) = body.in_socket().await {
                return Response::new(full(format!("{error} true")));
            }
            let Some(mut waiting) = body.piped(u64::MAX).unwrap() else { continue };
            let (len, mut seen) = (waiting.len(), Vec::new());
            // Half of it is not wanted, and what is left at the end is lost with no harm to the next.
            waiting.put(&file, at, len / 4, |bytes| seen.extend_from_slice(bytes)).unwrap();
            let expected = (0..seen.len()).map(|index| byte(usize::try_from(at).unwrap() + index));
            assert!(seen.iter().copied().eq(expected) && seen.len() as u64 == len / 4, "it is shown what went by");
            waiting.skip(len / 2).unwrap();
            put.push(at..at + len / 4);
            (at, piped) = (at + len, piped + len);
        }
        for range in put {
            let mut found = vec![0; usize::try_from(range.end - range.start).unwrap()];
            file.read_exact_at(&mut found, range.start).unwrap();
            let first = usize::try_from(range.start).unwrap();
            assert!(found.iter().zip(first..).all(|(found, at)| *found == byte(at)), "{range:?}");
        }
        Response::new(full(format!("{at} {}", piped > 0)))
    }

    #[tokio::test]
    async fn bytes_waiting_in_a_socket_go_to_their_own_place_in_their_own_file() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, ServerLimits::default()).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let serving = tokio::spawn(server.run(|request, _| store(request), stopped));
        let send = async || {
            let mut stream = TcpStream::connect(address).await.unwrap();
            exchange(&mut stream, LEN, "").await
        };
        let answers = tokio::join!(send(), send(), send());
        for answer in [answers.0, answers.1, answers.2] {
            assert!(answer.ends_with(&format!("\r\n\r\n{LEN} true")), "{answer}");
        }
        stop.trigger();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_long_body_comes_whole_and_in_order_and_the_connection_goes_on() {
        let limits = ServerLimits::default();
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let serving = tokio::spawn(server.run(|request, _| count(request), stopped));
        let long = usize::try_from(LONG_BYTES).unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        for expect in ["", "Expect: 100-continue\r\n"] {
            for len in [long - 1, LEN, long, long + 1, 10, LEN] {
                let answer = exchange(&mut stream, len, if len > 10 { expect } else { "" }).await;
                assert!(
                    !answer.contains("connection:") && answer.ends_with(&format!("\r\n\r\n{len} true")),
                    "{answer}"
                );
            }
        }
        let answer = exchange(&mut stream, LEN, "Connection: keep-alive, Close\r\n").await;
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{LEN} true")), "{answer}");
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the connection ends, as was asked for");
        stop.trigger();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn what_follows_a_long_body_at_once_is_the_next_request() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, ServerLimits::default()).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let serving = tokio::spawn(server.run(|request, _| count(request), stopped));
        let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
        let mut all = Vec::new();
        for len in [1 << 20, 5, LEN, 1 << 18, 1 << 20] {
            all.extend_from_slice(format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n").as_bytes());
            all.extend((0..len).map(byte));
        }
        let sending = tokio::spawn(async move { writer.write_all(&all).await.map(|()| writer) });
        let mut answers = String::new();
        while answers.matches("true").count() < 5 {
            let mut some = [0; 512];
            let read = reader.read(&mut some).await.unwrap();
            assert!(read > 0, "{answers}");
            answers.push_str(std::str::from_utf8(&some[..read]).unwrap());
        }
        let bodies: Vec<&str> =
            answers.split("\r\n\r\n").skip(1).map(|rest| &rest[..rest.find("true").unwrap()]).collect();
        assert_eq!(bodies, ["1048576 ", "5 ", "20971520 ", "262144 ", "1048576 "], "{answers}");
        drop(sending.await.unwrap().unwrap());
        stop.trigger();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_long_body_that_was_not_read_to_its_end_ends_the_connection() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, ServerLimits::default()).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let refuse = async |request| {
            let (_, mut body) = RequestBody::of(request);
            let mut read = 0;
            while read < LEN / 2 {
                read += body.data().await.unwrap().unwrap().len();
            }
            Response::new(full(format!("{read} true")))
        };
        let serving = tokio::spawn(server.run(move |request, _| refuse(request), stopped));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {LEN}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![0; LEN / 2]).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        stop.trigger();
        serving.await.unwrap();
    }

    /// Refuses, and reads on.
    async fn refuse(request: Request<Incoming>) -> Response<Body> {
        let (_, body) = RequestBody::of(request);
        body.linger_apart();
        Response::new(full("no true"))
    }

    #[tokio::test]
    async fn a_refused_body_is_read_no_longer_once_its_place_makes_way() {
        let limits = ServerLimits { crowd: Some(Crowd::of_few(8)), ..ServerLimits::default() };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let serving = tokio::spawn(server.run(|request, _| refuse(request), stopped));
        let mut refused = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"no true") {
                answer.push(stream.read_u8().await.unwrap());
            }
            refused.push(stream);
        }
        let mut last = refused.pop().unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(30), refused[0].read(&mut [0])).await;
        assert!(!matches!(ended.expect("the first should have made way"), Ok(1..)));
        last.write_all(&[0; 1_000]).await.unwrap();
        assert_eq!(last.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock, "it is still read");
        stop.trigger();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_refused_client_may_send_on_and_gets_its_answer_with_connection_close() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, ServerLimits::default()).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let serving = tokio::spawn(server.run(|request, _| refuse(request), stopped));
        let len = usize::try_from(LINGER_BYTES).unwrap() - READ_BYTES;
        let answer = exchange(&mut TcpStream::connect(address).await.unwrap(), len, "").await;
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        // A client that waits for leave gets none.
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\nExpect: 100-continue\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("no true"), "{answer}");
        stop.trigger();
        serving.await.unwrap();
    }
}
