//! What a TLS peer may send besides data: [`Allowance`].
//!
//! A peer may send records without any data in them. A KeyUpdate (RFC 8446 §4.6.3) costs two hashes' work for 27 bytes. A record of 16 KiB may hold 888 tickets (§4.6.1), each with a key to derive. rustls 0.23
//! bounds how many KeyUpdates come one after the other, and not how many of either come in all. So the bytes of records are counted below TLS (§5.1), and the data that they bring above:
//!
//! - A record is owed for by its length, at least 32 bytes. Its data pays its own length and 32 bytes. Where each record of a read has brought data, nothing is owed for that read.
//! - Who owes more than 64 KiB gets an error in reading.
//! - After 2 KiB that were no data, which are 64 records, other tasks have their turn.
//!
//! Honest peers do not come near that. A handshake with its certificates and tickets takes some KiB, and at most 20 with signatures that outlast quantum computers. A record has 22 to 29 bytes besides its data, so
//! that each pays for itself, of one byte or of 16 KiB, and a few of them for a KeyUpdate. Padding (§5.4) is paid for, too, unless KeyUpdates come with it. A turn only delays.
//!
//! ```text
//!   Above     a stream of data
//!   TLS
//!   Below     what carries the records
//! ```

use crate::others::Others;
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

/// So much may be owed, in bytes: several times a handshake. It holds 2,048 KeyUpdates or 3,640 tickets, which take some milliseconds.
const OWED_MAX: usize = 64 * 1024;

/// After so many bytes that were no data others have their turn.
const TURN: usize = 2 * 1024;

/// What the shortest record counts, and what data pays besides its length. A record has a head of 5 bytes, its type and a tag of 16 bytes by TLS 1.3 (RFC 8446 §5.2), and a nonce of 8 by 1.2 (RFC 5288 §3).
const RECORD: usize = 32;

/// A record begins with its type, a version, and its length (RFC 8446 §5.1).
const HEAD_BYTES: usize = 5;

/// What a connection's peer may still send without data. Both of its sides share it.
#[derive(Clone, Default, Debug)]
pub struct Allowance(Arc<Mutex<Account>>);

impl Allowance {
    /// What carries the records, measured.
    pub fn below<S>(&self, stream: S) -> Below<S> {
        Below { stream, allowance: self.clone(), records: Records::default(), others: None }
    }

    /// What TLS makes of it.
    pub fn above<T>(&self, tls: T) -> Above<T> {
        Above { tls, allowance: self.clone(), error: None }
    }
}

/// What has come of records and of data, in bytes. TLS reads only when all data was taken.
#[derive(Default, Debug)]
struct Account {
    owed: usize,
    /// The same before the last read.
    owed_before: usize,
    /// Records of the last read that may still bring data.
    open: usize,
    /// What was no data since others had their turn.
    turn: usize,
}

impl Account {
    /// A read has completed these records.
    fn records(&mut self, read: Completed) {
        self.owed_before = self.owed;
        self.open = read.records;
        self.owed += read.bytes;
        self.turn += read.bytes;
    }

    /// A piece of a record's data was taken: its last one, if `is_last`.
    fn data(&mut self, bytes: usize, is_last: bool) {
        self.turn = self.turn.saturating_sub(bytes);
        self.owed = self.owed.saturating_sub(bytes + if is_last { RECORD } else { 0 });
        if is_last && self.open > 0 {
            self.open -= 1;
            if self.open == 0 {
                self.owed = self.owed.min(self.owed_before);
            }
        }
    }
}

/// Records that are whole, and how much they count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Completed {
    records: usize,
    bytes: usize,
}

/// Counts the records of a stream.
#[derive(Clone, Copy, Default, Debug)]
struct Records {
    /// What has come of the head of this one.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// What has come of its body.
    body_bytes: usize,
}

impl Records {
    /// Those that these bytes complete, which are the next.
    fn complete(&mut self, mut bytes: &[u8]) -> Completed {
        let mut completed = Completed::default();
        while !bytes.is_empty() {
            let head = bytes.len().min(HEAD_BYTES - self.head_bytes);
            self.head[self.head_bytes..][..head].copy_from_slice(&bytes[..head]);
            (self.head_bytes, bytes) = (self.head_bytes + head, &bytes[head..]);
            if self.head_bytes < HEAD_BYTES {
                break;
            }
            let len = usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
            let body = bytes.len().min(len - self.body_bytes);
            (self.body_bytes, bytes) = (self.body_bytes + body, &bytes[body..]);
            if self.body_bytes == len {
                completed.records += 1;
                completed.bytes += RECORD.max(HEAD_BYTES + len);
                *self = Self::default();
            }
        }
        completed
    }
}

/// What carries the records of a TLS connection.
#[derive(Debug)]
pub struct Below<S> {
    stream: S,
    allowance: Allowance,
    records: Records,
    /// While it is their turn.
    others: Option<Others>,
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
        if let Some(others) = &self.others {
            ready!(others.poll(cx));
            self.others = None;
        }
        {
            let mut account = self.allowance.0.lock();
            if account.owed > OWED_MAX {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "its TLS records bring no data")));
            }
            if account.turn >= TURN {
                account.turn = 0;
                drop(account);
                self.others = Some(Others::have_their_turn(cx));
                return Poll::Pending;
            }
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let came = &into.filled()[before..];
        if !came.is_empty() {
            let completed = self.records.complete(came);
            self.allowance.0.lock().records(completed);
        }
        read
    }
}

/// The data of a TLS connection.
#[derive(Debug)]
pub struct Above<T> {
    tls: T,
    allowance: Allowance,
    error: Option<io::Error>,
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

impl<T: AsyncBufRead + Unpin> AsyncRead for Above<T> {
    /// Record by record, as the account wants it. An error behind something comes with the next call.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(error) = this.error.take() {
            return Poll::Ready(Err(error));
        }
        let before = into.filled().len();
        while into.remaining() > 0 {
            let data = match Pin::new(&mut this.tls).poll_fill_buf(cx) {
                Poll::Ready(Ok(data)) if !data.is_empty() => data,
                other if into.filled().len() == before => return other.map_ok(|_| ()),
                other => {
                    if let Poll::Ready(Err(error)) = other {
                        this.error = Some(error);
                    }
                    break;
                }
            };
            let (bytes, left) = (data.len().min(into.remaining()), data.len());
            into.put_slice(&data[..bytes]);
            Pin::new(&mut this.tls).consume(bytes);
            this.allowance.0.lock().data(bytes, bytes == left);
        }
        Poll::Ready(Ok(()))
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
    use std::future::poll_fn;
    use std::io::Write as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::yield_now;
    use tokio_rustls::TlsAcceptor;

    fn server_and_config() -> (ServerConfig, Arc<ClientConfig>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder().with_no_client_auth();
        let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        (server, Arc::new(client))
    }

    fn configs() -> (TlsAcceptor, Arc<ClientConfig>) {
        let (server, client) = server_and_config();
        (TlsAcceptor::from(Arc::new(server)), client)
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
            let completed: Vec<_> = bytes.chunks(piece).map(|bytes| records.complete(bytes)).collect();
            let sum = |of: fn(&Completed) -> usize| completed.iter().map(of).sum::<usize>();
            assert_eq!((sum(|of| of.records), sum(|of| of.bytes)), (5, 3 * 32 + 305 + 16_645), "{piece} bytes at once");
        }
    }

    /// What is owed after many reads of these records, each with one last piece of this many bytes of data.
    fn owed(records: usize, record_bytes: usize, data: usize) -> usize {
        let mut account = Account::default();
        for _ in 0..1_000 {
            account.records(Completed { records, bytes: records * record_bytes });
            account.data(data, true);
        }
        account.owed
    }

    #[test]
    fn padding_around_data_is_paid_for_and_what_comes_beside_data_is_not() {
        assert_eq!(owed(1, 16 * 1024, 1), 0);
        assert_eq!(owed(2, 8 * 1024, 1), 1_000 * (16 * 1024 - 33));
    }

    #[test]
    fn every_size_of_record_pays_for_itself_whatever_comes_beside_it() {
        for data in [1, 2, 100, 1_400, 16_384] {
            for besides_data in [22, 29] {
                let mut account = Account::default();
                account.records(Completed { records: 2, bytes: RECORD + RECORD.max(data + besides_data) });
                account.data(data, true);
                assert!(account.owed <= RECORD, "{data}");
            }
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

    /// A reader that goes on after it is told to wait, as a handshake does that got something.
    #[tokio::test]
    async fn who_goes_on_at_once_gets_nothing_before_others_had_their_turn() {
        let (acceptor, config) = configs();
        let (near, far) = duplex(1 << 20);
        let allowance = Allowance::default();
        let client = tokio::spawn(async move {
            let connector = tokio_rustls::TlsConnector::from(config);
            let mut client = connector.connect("localhost".try_into().unwrap(), near).await.unwrap();
            for _ in 0..20_000 {
                client.write_all(b"x").await.unwrap();
            }
            client.flush().await.unwrap();
            client
        });
        let mut data = allowance.above(acceptor.accept(allowance.below(far)).await.unwrap());
        let _client = client.await.unwrap();
        let (mut came, mut turns, mut most) = (0, 0, 0);
        while came < 20_000 {
            let before = came;
            poll_fn(|cx| {
                for _ in 0..20_000 {
                    let mut byte = [0; 1];
                    let mut into = ReadBuf::new(&mut byte);
                    let read = Pin::new(&mut data).poll_read(cx, &mut into);
                    assert!(!matches!(read, Poll::Ready(Err(_))));
                    came += into.filled().len();
                }
                Poll::Ready(())
            })
            .await;
            yield_now().await;
            (turns, most) = (turns + 1, most.max(came - before));
        }
        // What one read brings to TLS.
        assert!(most < 1_000, "{most} records in one turn, of {turns}");
    }

    #[tokio::test]
    async fn a_record_full_of_tickets_counts_by_its_length() {
        for (tickets, is_honest) in [(4, true), (1_000, false)] {
            let (mut server, config) = server_and_config();
            server.send_tls13_tickets = tickets;
            let (near, far) = duplex(1 << 20);
            let server = tokio::spawn(async move {
                let mut tls = TlsAcceptor::from(Arc::new(server)).accept(far).await.unwrap();
                // Whoever is cut off does not hear it.
                let _ = tls.write_all(b"x").await;
                let _ = tls.shutdown().await;
            });
            let allowance = Allowance::default();
            let connector = tokio_rustls::TlsConnector::from(config);
            let tls = connector.connect("localhost".try_into().unwrap(), allowance.below(near)).await.unwrap();
            let read = allowance.above(tls).read_to_end(&mut Vec::new()).await;
            assert_eq!(read.map_err(|error| error.kind()).ok(), is_honest.then_some(1), "{tickets} tickets");
            server.await.unwrap();
        }
    }

    /// rustls ends a connection with more than 32 of them in a row by itself.
    #[tokio::test]
    async fn key_updates_with_hardly_any_data_are_cut_off() {
        for data in [1, 33, 131] {
            let (mut client, mut near, server) = shaken().await;
            for _ in 0..1_000 {
                for _ in 0..30 {
                    client.refresh_traffic_keys().unwrap();
                    say(&mut client, &mut near).await;
                }
                client.writer().write_all(&vec![7; data]).unwrap();
                say(&mut client, &mut near).await;
            }
            drop(near);
            let (came, ended) = server.await.unwrap();
            assert!(came < 100 * data && ended.unwrap_err().kind() == io::ErrorKind::InvalidData, "{came} of {data}");
        }
    }
}
