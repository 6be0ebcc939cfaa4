//! What an origin may send over HTTP/2 besides the bodies of answers: [`FrameLimit`].
//!
//! A frame without content has nine bytes and costs some hundred nanoseconds. Flow control bounds bodies, and nothing in HTTP/2 bounds interim answers (1xx) and all other kinds of frames. So each connection has an
//! allowance of both, which grows with what is asked over it.
//!
//! Bounds: [`HEADS`] heads and [`OTHERS`] other frames at once, and as many more as [`Allowance`] says. A connection with more breaks off.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client says first (RFC 9113 §3.4), in bytes.
const PREFACE: usize = 24;

/// The bytes of a frame's head (RFC 9113 §4.1).
const HEAD: usize = 9;

/// Kinds of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Heads of answers that may come: interim ones, as many as over HTTP/1.1 ([`limit_interim`](hoop_http::limit_interim)), and trailers.
const HEADS: Allowance = Allowance { left: 64, most: 4_096, a_second: 4 };

/// With each request so many more may come.
const HEADS_OF_REQUEST: u64 = 4;

/// Other frames: settings, pings, and how much more of a request's body is taken.
const OTHERS: Allowance = Allowance { left: 1_024, most: 8_192, a_second: 200 };

/// With each request so many more may come.
const OTHERS_OF_REQUEST: u64 = 4;

/// With each piece of a request's body so many more may come: some servers say of each that it was taken, for its stream and for the connection.
const OTHERS_OF_PIECE: u64 = 2;

/// With so many bytes of a request's body one more may come.
const BYTES_OF_OTHER: u64 = 1 << 10;

/// How many frames may come yet. Pure.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: u64,
    /// No more than so many are saved up.
    most: u64,
    /// So many more may come as time goes by.
    a_second: u64,
}

impl Allowance {
    fn earn(&mut self, frames: u64) {
        self.left = self.left.saturating_add(frames).min(self.most);
    }

    /// One comes. Whether it may.
    fn spend(&mut self) -> bool {
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// The frames that pass one way, by their heads. Pure.
#[derive(Debug)]
struct Frames {
    head: [u8; HEAD],
    /// How much of the head is there.
    has: usize,
    /// Bytes that pass before the next head.
    skip: usize,
}

impl Frames {
    /// After so many bytes that are no frames.
    const fn after(skip: usize) -> Self {
        Self { head: [0; HEAD], has: 0, skip }
    }

    /// These bytes pass. `on` gets the kind and the length of each frame whose head is complete with them.
    fn pass(&mut self, mut bytes: &[u8], mut on: impl FnMut(u8, u64)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD - self.has).min(bytes.len());
            self.head[self.has..self.has + taken].copy_from_slice(&bytes[..taken]);
            self.has += taken;
            bytes = &bytes[taken..];
            if self.has == HEAD {
                let [a, b, c, kind, ..] = self.head;
                self.has = 0;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                on(kind, self.skip as u64);
            }
        }
    }
}

/// What passes both ways over a connection. Pure.
#[derive(Debug)]
struct Account {
    sent: Frames,
    came: Frames,
    heads: Allowance,
    others: Allowance,
    /// Bytes of bodies that were sent and are not credited yet.
    sent_bytes: u64,
    /// When the allowances grew last.
    at: Instant,
}

impl Account {
    const fn new(now: Instant) -> Self {
        let (sent, came) = (Frames::after(PREFACE), Frames::after(0));
        Self { sent, came, heads: HEADS, others: OTHERS, sent_bytes: 0, at: now }
    }

    /// These bytes were sent.
    fn sent(&mut self, bytes: &[u8]) {
        let Self { sent, heads, others, sent_bytes, .. } = self;
        sent.pass(bytes, |kind, len| match kind {
            HEADERS => {
                heads.earn(HEADS_OF_REQUEST);
                others.earn(OTHERS_OF_REQUEST);
            }
            DATA => {
                *sent_bytes += len;
                others.earn(OTHERS_OF_PIECE + *sent_bytes / BYTES_OF_OTHER);
                *sent_bytes %= BYTES_OF_OTHER;
            }
            _ => {}
        });
    }

    /// These bytes have come. Whether they may.
    fn came(&mut self, bytes: &[u8], now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.at).as_secs();
        if seconds > 0 {
            self.at += Duration::from_secs(seconds);
            self.heads.earn(seconds.saturating_mul(self.heads.a_second));
            self.others.earn(seconds.saturating_mul(self.others.a_second));
        }
        let Self { came, heads, others, .. } = self;
        let mut may = true;
        came.pass(bytes, |kind, _| {
            may &= match kind {
                DATA => true,
                HEADERS => heads.spend(),
                _ => others.spend(),
            };
        });
        may
    }
}

/// A client's connection over HTTP/2 that breaks off when its origin sends more frames than its answers need (`InvalidData`).
#[derive(Debug)]
pub(super) struct FrameLimit<S> {
    stream: S,
    account: Account,
}

impl<S> FrameLimit<S> {
    /// Nothing was said over it yet.
    pub(super) fn new(stream: S) -> Self {
        Self { stream, account: Account::new(Instant::now()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameLimit<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        if self.account.came(&into.filled()[before..], Instant::now()) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "more frames than answers need")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, from))?;
        self.account.sent(&from[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, len: usize) -> Vec<u8> {
        let head = [(len >> 16) as u8, (len >> 8) as u8, len as u8, kind, 0, 0, 0, 0, 1];
        [&head[..], &vec![kind; len]].concat()
    }

    #[test]
    fn frames_are_counted_however_their_bytes_come() {
        let all = [frame(HEADERS, 30), frame(DATA, 70_000), frame(4, 0), frame(8, 4), frame(DATA, 0)].concat();
        for step in [1, 2, 8, 9, 10, 4_096, all.len()] {
            let (mut frames, mut seen) = (Frames::after(0), Vec::new());
            all.chunks(step).for_each(|bytes| frames.pass(bytes, |kind, len| seen.push((kind, len))));
            assert_eq!(seen, [(HEADERS, 30), (DATA, 70_000), (4, 0), (8, 4), (DATA, 0)], "{step}");
        }
    }

    #[test]
    fn a_flood_is_refused_soon_and_what_answers_need_never() {
        let now = Instant::now();
        for (kind, most) in [(HEADERS, 64), (2, 1_024), (4, 1_024), (6, 1_024), (8, 1_024), (9, 1_024), (200, 1_024)] {
            let mut account = Account::new(now);
            let passed = (0..10_000).take_while(|_| account.came(&frame(kind, 5), now)).count();
            assert_eq!(passed, most, "{kind}");
            let later = now + Duration::from_secs(1);
            assert!(account.came(&frame(kind, 5), later), "{kind}");
        }
        let mut account = Account::new(now);
        account.sent(&[0; PREFACE]);
        for _ in 0..100_000 {
            // A request with a body, and its answer: taken, early hints, head, body, trailers.
            account.sent(&[frame(HEADERS, 20), frame(DATA, 3_000)].concat());
            let answer = [frame(8, 4), frame(8, 4), frame(HEADERS, 9), frame(HEADERS, 9), frame(DATA, 1_000)].concat();
            assert!(account.came(&[answer, frame(HEADERS, 9), frame(3, 4)].concat(), now));
        }
    }

    #[test]
    fn an_upload_in_small_pieces_may_have_each_taken_twice() {
        let now = Instant::now();
        let mut account = Account::new(now);
        account.sent(&[&[0; PREFACE][..], &frame(HEADERS, 20)].concat());
        for _ in 0..100_000 {
            account.sent(&frame(DATA, 1));
            assert!(account.came(&[frame(8, 4), frame(8, 4)].concat(), now));
        }
        // Half seconds are not lost.
        let mut account = Account { others: Allowance { left: 0, ..OTHERS }, ..Account::new(now) };
        for seconds in [1_999, 3_998, 5_997, 7_996] {
            account.came(&[], now + Duration::from_millis(seconds));
        }
        assert_eq!(account.others.left, 7 * OTHERS.a_second);
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let now = Instant::now();
        let mut account = Account::new(now);
        account.sent(&[0; PREFACE]);
        (0..100_000).for_each(|_| account.sent(&frame(HEADERS, 1)));
        let passed = (0..100_000).take_while(|_| account.came(&frame(2, 5), now)).count();
        assert_eq!(passed as u64, OTHERS.most);
        let late = now + Duration::from_secs(1 << 40);
        assert!(account.came(&frame(HEADERS, 5), late));
    }
}
