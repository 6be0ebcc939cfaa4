//! TLS whose peer has to bring data: [`Allowance`].
//!
//! A peer may send records without any data in them, such as KeyUpdate (RFC 8446 §4.6.3): each costs two hashes' work for 27 bytes, and is read on until data comes. rustls 0.23 bounds how
//! many come one after the other, and not how many come in all. So the records that come below TLS are counted (RFC 8446 §5.1) against the data that they bring above:
//!
//! - A connection may bring 1,024 records without data, as those of a handshake, and one for each byte of data. Beyond that, reading is an error.
//! - After 64 records without data, other tasks have their turn.
//!
//! How long a record is does not matter: what is padded (§5.4) is as good as what is not.
//!
//! ```text
//!   Above     a stream of data
//!   TLS
//!   Below     what carries the records
//! ```

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Records that may come without data: many times those of a handshake.
const FREE: i64 = 1_024;

/// After so many without data others have their turn. One read has at most so many with data that fills them.
const TURN: i64 = 64;

/// A record begins with its type, a version, and its length (RFC 8446 §5.1).
const HEAD_BYTES: usize = 5;

/// How many records may still come of a connection without data. Both of its sides share it.
#[derive(Clone, Debug)]
pub struct Allowance(Arc<AtomicI64>);

impl Default for Allowance {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(FREE)))
    }
}

impl Allowance {
    /// What carries the records, measured.
    pub fn below<S>(&self, stream: S) -> Below<S> {
        Below { stream, allowance: self.clone(), records: Records::default(), turn: 0 }
    }

    /// What TLS makes of it.
    pub fn above<T>(&self, tls: T) -> Above<T> {
        Above { tls, allowance: self.clone() }
    }

    fn left(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn takes(&self, records: i64) {
        self.0.fetch_sub(records, Ordering::Relaxed);
    }

    fn earns(&self, bytes: usize) {
        let earned = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.0.store(self.left().saturating_add(earned).min(FREE), Ordering::Relaxed);
    }
}

/// Counts the records of a stream.
#[derive(Clone, Copy, Default, Debug)]
struct Records {
    /// What has come of the head of the next one.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// What is still to come of the body of this one.
    left: usize,
}

impl Records {
    /// How many begin in these bytes, which are the next.
    fn begin_in(&mut self, mut bytes: &[u8]) -> i64 {
        let mut begun = 0;
        loop {
            let body = self.left.min(bytes.len());
            (self.left, bytes) = (self.left - body, &bytes[body..]);
            if bytes.is_empty() {
                return begun;
            }
            let head = bytes.len().min(HEAD_BYTES - self.head_bytes);
            self.head[self.head_bytes..][..head].copy_from_slice(&bytes[..head]);
            (self.head_bytes, bytes) = (self.head_bytes + head, &bytes[head..]);
            if self.head_bytes == HEAD_BYTES {
                (self.left, self.head_bytes) = (usize::from(u16::from_be_bytes([self.head[3], self.head[4]])), 0);
                begun += 1;
            }
        }
    }
}

/// What carries the records of a TLS connection.
#[derive(Debug)]
pub struct Below<S> {
    stream: S,
    allowance: Allowance,
    records: Records,
    /// Those that began since a read last had to wait.
    turn: i64,
}

impl<S> Below<S> {
    /// What it is made of.
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The same, to be changed.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The same.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Below<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = self.allowance.left();
        if left <= 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "its TLS records bring no data")));
        }
        // Of whoever brings data, what was left has come back.
        if self.turn >= TURN && left <= FREE - TURN {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let begun = self.records.begin_in(&into.filled()[before..]);
        self.turn = if read.is_pending() { 0 } else { self.turn + begun };
        self.allowance.takes(begun);
        read
    }
}

/// The data of a TLS connection.
#[derive(Debug)]
pub struct Above<T> {
    tls: T,
    allowance: Allowance,
}

impl<T> Above<T> {
    /// The TLS connection.
    pub const fn get_ref(&self) -> &T {
        &self.tls
    }

    /// The same, to be changed.
    pub const fn get_mut(&mut self) -> &mut T {
        &mut self.tls
    }

    /// The same.
    pub fn into_inner(self) -> T {
        self.tls
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Above<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.tls).poll_read(cx, into);
        self.allowance.earns(into.filled().len() - before);
        read
    }
}

/// Writing is passed on.
macro_rules! writes {
    ($kind:ident, $inner:ident) => {
        impl<S: AsyncWrite + Unpin> AsyncWrite for $kind<S> {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.$inner).poll_write(cx, from)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                from: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.$inner).poll_write_vectored(cx, from)
            }

            fn is_write_vectored(&self) -> bool {
                self.$inner.is_write_vectored()
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.$inner).poll_flush(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.$inner).poll_shutdown(cx)
            }
        }
    };
}

writes!(Below, stream);
writes!(Above, tls);

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
    use std::io::Write as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio_rustls::TlsAcceptor;

    fn configs() -> (TlsAcceptor, Arc<ClientConfig>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder().with_no_client_auth();
        let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        (TlsAcceptor::from(Arc::new(server)), Arc::new(client))
    }

    /// A client that has shaken hands, and its end of the connection. The server reads to the end, and says how much came and how that ended.
    async fn shaken() -> (ClientConnection, DuplexStream, tokio::task::JoinHandle<(usize, io::Result<usize>)>) {
        let (acceptor, config) = configs();
        let (mut near, far) = duplex(1 << 20);
        let server = tokio::spawn(async move {
            let allowance = Allowance::default();
            let tls = acceptor.accept(allowance.below(far)).await.unwrap();
            let (mut data, mut came) = (allowance.above(tls), Vec::new());
            let ended = data.read_to_end(&mut came).await;
            (came.len(), ended)
        });
        let mut client = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        while client.is_handshaking() {
            say(&mut client, &mut near).await;
            let mut came = [0; 4_096];
            let len = near.read(&mut came).await.unwrap();
            let mut came = &came[..len];
            while !came.is_empty() {
                client.read_tls(&mut came).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        say(&mut client, &mut near).await;
        (client, near, server)
    }

    async fn say(client: &mut ClientConnection, near: &mut DuplexStream) {
        let mut said = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut said).unwrap();
        }
        let _ = near.write_all(&said).await;
    }

    #[test]
    fn records_are_counted_however_they_come() {
        let lens = [0_u16, 1, 300, 16_640, 2];
        let bytes: Vec<u8> = lens
            .iter()
            .flat_map(|len| [&[23, 3, 3][..], &len.to_be_bytes(), &vec![7; usize::from(*len)]].concat())
            .collect();
        for piece in [1, 2, 3, 7, 1_000, bytes.len()] {
            let mut records = Records::default();
            let begun: i64 = bytes.chunks(piece).map(|bytes| records.begin_in(bytes)).sum();
            assert_eq!(begun, 5, "{piece} bytes at once");
        }
    }

    #[tokio::test]
    async fn much_data_comes_whole_into_a_large_buffer() {
        let (acceptor, config) = configs();
        let (near, far) = duplex(1 << 20);
        let server = tokio::spawn(async move {
            let allowance = Allowance::default();
            let mut data = allowance.above(acceptor.accept(allowance.below(far)).await.unwrap());
            let (mut buffer, mut came) = (vec![0; 1 << 20], 0);
            loop {
                let len = data.read(&mut buffer).await.unwrap();
                came += len;
                if len == 0 {
                    return came;
                }
            }
        });
        let mut client =
            tokio_rustls::TlsConnector::from(config).connect("localhost".try_into().unwrap(), near).await.unwrap();
        client.write_all(&vec![7; 40 << 20]).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(server.await.unwrap(), 40 << 20);
    }

    #[tokio::test]
    async fn who_brings_data_in_records_of_a_byte_may_go_on() {
        let (mut client, mut near, server) = shaken().await;
        for _ in 0..20_000 {
            client.writer().write_all(b"x").unwrap();
            say(&mut client, &mut near).await;
        }
        client.send_close_notify();
        say(&mut client, &mut near).await;
        let (came, ended) = server.await.unwrap();
        assert_eq!((came, ended.unwrap()), (20_000, 20_000));
    }

    /// rustls ends a connection with more than 32 of them in a row by itself.
    #[tokio::test]
    async fn key_updates_with_hardly_any_data_are_cut_off() {
        let (mut client, mut near, server) = shaken().await;
        for _ in 0..1_000 {
            for _ in 0..30 {
                client.refresh_traffic_keys().unwrap();
                say(&mut client, &mut near).await;
            }
            client.writer().write_all(b"x").unwrap();
            say(&mut client, &mut near).await;
        }
        drop(near);
        let (came, ended) = server.await.unwrap();
        assert!(came < 40 && ended.unwrap_err().kind() == io::ErrorKind::InvalidData, "{came}");
    }
}
