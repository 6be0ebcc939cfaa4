//! Interim answers (RFC 9110 §15.2) that hyper's server cannot send by itself: [`Interim`] is a handler's pen, [`InterimIo`]
//! the connection that writes them out.
//!
//! hyper flushes the connection when it has nothing of its own left to write: all answers before this request's are out, and its own has
//! not begun. That is when an interim answer may go, and the only time when one begins here. What has begun is finished before
//! anything else is written. What has not begun when the handler returns is dropped: an interim answer is never owed.

use http::{Extensions, HeaderMap, Request, StatusCode, Version};
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of interim answers that wait on one connection; more are dropped. One has 300 or so, and a peer that reads none of them
/// must not make them pile up.
const WAITING_MAX: usize = 4096;

/// A handler's pen for interim answers to its request: an extension of every HTTP/1.1 request that a [`Server`](crate::Server) hands
/// out. Worth nothing once the handler has returned.
#[derive(Clone, Debug)]
pub struct Interim {
    outbox: Outbox,
    /// The request's number on its connection.
    request: u64,
}

impl Interim {
    /// The pen that came with a request, if interim answers can be sent to it.
    pub fn of(request: &Extensions) -> Option<Self> {
        request.get().cloned()
    }

    /// Sends an interim answer, when the connection can take it; dropped if it cannot before the final one. `reason` is for people
    /// that look at the wire.
    pub fn send(&self, status: StatusCode, reason: &str, headers: &HeaderMap) {
        let mut state = self.outbox.0.lock();
        if state.open != Some(self.request) || state.waiting.len() > WAITING_MAX {
            return;
        }
        state.waiting.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).as_bytes());
        for (name, value) in headers {
            state.waiting.extend_from_slice(name.as_str().as_bytes());
            state.waiting.extend_from_slice(b": ");
            state.waiting.extend_from_slice(value.as_bytes());
            state.waiting.extend_from_slice(b"\r\n");
        }
        state.waiting.extend_from_slice(b"\r\n");
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// What the handlers of one connection, one after the other, give it to send.
#[derive(Clone, Debug, Default)]
pub struct Outbox(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The request that is being handled.
    open: Option<u64>,
    requests: u64,
    /// Whole interim answers.
    waiting: Vec<u8>,
    /// The connection's task, which flushes.
    waker: Option<Waker>,
}

impl Outbox {
    /// A request begins: it gets a pen, if its version knows interim answers (RFC 9110 §15.2).
    pub fn open<B>(&self, request: &mut Request<B>) {
        if request.version() != Version::HTTP_11 {
            return;
        }
        let mut state = self.0.lock();
        state.requests += 1;
        state.open = Some(state.requests);
        let pen = Interim { outbox: self.clone(), request: state.requests };
        request.extensions_mut().insert(pen);
    }

    /// Its handler has returned: the pen is dry.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.open = None;
        state.waiting.clear();
    }
}

/// A connection that writes out what its [`Outbox`] holds when it is flushed.
#[derive(Debug)]
pub struct InterimIo<S> {
    stream: S,
    outbox: Outbox,
    /// What is being written, and how much of it has been.
    begun: Vec<u8>,
    written: usize,
}

impl<S: AsyncWrite + Unpin> InterimIo<S> {
    pub const fn new(stream: S, outbox: Outbox) -> Self {
        Self { stream, outbox, begun: Vec::new(), written: 0 }
    }

    /// Writes out what has begun.
    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.begun.len() {
            let taken = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.begun[self.written..]))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += taken;
        }
        self.begun = Vec::new();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Takes what waits, or leaves word whom to wake for the next.
    fn begin(&mut self, cx: &Context<'_>) -> bool {
        let mut state = self.outbox.0.lock();
        state.waker = Some(cx.waker().clone());
        self.begun = std::mem::take(&mut state.waiting);
        !self.begun.is_empty()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for InterimIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InterimIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_begun(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_begun(cx))?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_begun(cx))?;
            if !self.begin(cx) {
                return Pin::new(&mut self.stream).poll_flush(cx);
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Server, ServerLimits, full, shutdown, streamed};
    use bytes::Bytes;
    use http::{HeaderValue, Response};
    use http_body::Frame;
    use hyper::body::Incoming;
    use std::convert::Infallible;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    fn send(interim: &Interim, number: &str) {
        let headers = HeaderMap::from_iter([(http::header::LOCATION, HeaderValue::from_str(number).unwrap())]);
        interim.send(StatusCode::from_u16(104).unwrap(), "Upload Resumption Supported", &headers);
    }

    /// Answers `/N/bytes` with an interim answer that names N, and then so many bytes; or `late` with one that comes too late.
    async fn answer(request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let (number, bytes) = path[1..].split_once('/').unwrap();
        let interim = Interim::of(request.extensions());
        if bytes == "late" {
            return Response::new(streamed(Late(interim, 0)));
        }
        if let Some(interim) = interim {
            send(&interim, number);
            tokio::task::yield_now().await;
        }
        Response::new(full(vec![number.as_bytes()[0]; bytes.parse().unwrap()]))
    }

    /// All that comes back for these bytes, read only after they were sent and the server has begun to answer.
    async fn exchange(bytes: &str) -> String {
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), None, ServerLimits::default()).await.unwrap();
        let address = server.address();
        let (stop, stopped) = shutdown();
        let task = tokio::spawn(server.run(|request, _| answer(request), stopped));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream.readable().await.unwrap();
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).await.unwrap();
        stop.trigger();
        task.await.unwrap();
        String::from_utf8(answers).unwrap()
    }

    const HEAD: &str = "HTTP/1.1 104 Upload Resumption Supported\r\nlocation: 1\r\n\r\n";

    #[tokio::test]
    async fn an_interim_answer_comes_whole_and_before_the_final_one() {
        let answers = exchange("GET /1/3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        let last = answers.strip_prefix(HEAD).unwrap();
        assert!(last.starts_with("HTTP/1.1 200 OK\r\n") && last.ends_with("\r\n\r\n111"), "{answers}");
    }

    #[tokio::test]
    async fn a_client_of_http_1_0_gets_none() {
        let answers = exchange("GET /1/3 HTTP/1.0\r\nhost: x\r\n\r\n").await;
        assert!(answers.starts_with("HTTP/1.0 200 OK\r\n"), "{answers}");
    }

    /// A body of two bytes; between them it tries to send an interim answer, and lets the connection flush.
    struct Late(Option<Interim>, u8);

    impl http_body::Body for Late {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.1 += 1;
            match self.1 {
                2 => {
                    send(&self.0.take().unwrap(), "1");
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                1 | 3 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x"))))),
                _ => Poll::Ready(None),
            }
        }
    }

    #[tokio::test]
    async fn none_is_written_in_the_middle_of_an_answer_to_whoever_kept_the_pen() {
        let answers = exchange("GET /1/late HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        assert!(answers.ends_with("\r\n\r\n1\r\nx\r\n1\r\nx\r\n0\r\n\r\n"), "{answers}");
    }
}
