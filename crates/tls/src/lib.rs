//! TLS whose peer has to bring data: [`Allowance`].
//!
//! A peer may send records without any data in them, such as KeyUpdate (RFC 8446 §4.6.3): each costs two hashes' work for 27 bytes, and is read on until data comes. rustls 0.23 bounds how
//! many come one after the other, and not how many come in all. So what comes below TLS is measured against what it brings above:
//!
//! - A connection may bring 64 KiB without data, as a handshake does, and 32 times as much as its data has. A record with one byte has 23. Beyond that, reading is an error.
//! - After a record's worth of bytes without data, other tasks have their turn.
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

/// How much may come without data, in bytes: more than any handshake that rustls takes as one message.
const FREE: i64 = 64 << 10;

/// How much may come for each byte of data.
const FOR_EACH: i64 = 32;

/// After so much without data others have their turn: more than a record may have (RFC 8446 §5.2).
const TURN: usize = 17 << 10;

/// How much may still come of a connection without data. Both of its sides share it.
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
        Below { stream, allowance: self.clone(), turn: 0 }
    }

    /// What TLS makes of it.
    pub fn above<T>(&self, tls: T) -> Above<T> {
        Above { tls, allowance: self.clone() }
    }

    fn left(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn takes(&self, bytes: usize) {
        self.0.fetch_sub(signed(bytes), Ordering::Relaxed);
    }

    fn earns(&self, bytes: usize) {
        let left = self.left().saturating_add(signed(bytes).saturating_mul(FOR_EACH));
        self.0.store(left.min(FREE), Ordering::Relaxed);
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// What carries the records of a TLS connection.
#[derive(Debug)]
pub struct Below<S> {
    stream: S,
    allowance: Allowance,
    /// What was read since a read last had to wait.
    turn: usize,
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
        // Whoever brings data never comes so far down.
        if self.turn >= TURN && left < FREE - signed(TURN) {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let came = into.filled().len() - before;
        self.turn = if read.is_pending() { 0 } else { self.turn + came };
        self.allowance.takes(came);
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
        assert!(came < 100 && ended.unwrap_err().kind() == io::ErrorKind::InvalidData, "{came}");
    }
}
