//! Whether the client of a request is still there, where nobody reads from its connection: [`Presence`].
//!
//! hyper notices a client that has left by reading. It does not read while something is held behind the request (see `gate`),
//! nor while a body waits for its handler. Then the socket itself is asked, every [`LOOK_EVERY`]. As when hyper reads, a client that has shut down
//! its writing side has left.
//!
//! Bounds: one timer for each connection, and that only while somebody has asked for it.

use crate::server::request_body::RawSocket;
use http::Extensions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How often it is looked whether a client has left.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Has a request end when its client leaves: an extension of every request that a [`Server`](crate::Server) hands out.
#[derive(Clone, Default, Debug)]
pub struct Presence(Arc<Inner>);

#[derive(Default, Debug)]
struct Inner {
    /// The request under way ends with its client.
    is_needed: AtomicBool,
    /// It does from now on.
    begins: Notify,
}

impl Presence {
    /// That of a request's client.
    pub fn of(request: &Extensions) -> Option<Self> {
        request.get().cloned()
    }

    /// The request may end when its client has left, and nothing more of its body is read for a second or two. Its handler is dropped then.
    /// Without this, it ends only after its whole body was read.
    pub fn need(&self) {
        if !self.0.is_needed.swap(true, Ordering::Relaxed) {
            self.0.begins.notify_one();
        }
    }

    /// Another request begins.
    pub(crate) fn begin(&self) {
        self.0.is_needed.store(false, Ordering::Relaxed);
    }

    /// Returns when a request is under way (`is_asked`) that ends with its client, and the client has left.
    pub(crate) async fn lost(&self, is_asked: impl Fn() -> bool, socket: &RawSocket) {
        loop {
            while !self.0.is_needed.load(Ordering::Relaxed) {
                self.0.begins.notified().await;
            }
            let unread = socket.unread();
            tokio::time::sleep(LOOK_EVERY).await;
            if !is_asked() {
                self.begin();
            } else if self.0.is_needed.load(Ordering::Relaxed) && socket.has_left() && socket.unread() == unread {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, RequestBody, Server, ServerLimits, full, shutdown};
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use hyper::body::Incoming;
    use socket2::SockRef;
    use std::net::SocketAddr;
    use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// What is told of a request, in order.
    #[derive(PartialEq, Eq, Debug)]
    enum Told {
        Begun,
        /// Its handler was dropped, or has returned.
        Over,
        /// Its body came whole, so many bytes.
        Read(usize),
    }

    struct Over(UnboundedSender<Told>);

    impl Drop for Over {
        fn drop(&mut self) {
            let _ = self.0.send(Told::Over);
        }
    }

    /// Answers after three looks, or never (`/never`), or when it has slowly read its body (`/upload`, `/read`). `/needs` before it: as long as its client is there.
    async fn handle(request: Request<Incoming>, told: UnboundedSender<Told>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if path.starts_with("/needs") {
            Presence::of(request.extensions()).unwrap().need();
        }
        told.send(Told::Begun).unwrap();
        let over = Over(told);
        let mut read = 0;
        match path.trim_start_matches("/needs") {
            "/never" => std::future::pending().await,
            "/upload" => {
                let (_, mut body) = RequestBody::of(request);
                while let Some(bytes) = body.data().await {
                    let is_first = read == 0;
                    read += bytes.unwrap().len();
                    if is_first {
                        tokio::time::sleep(LOOK_EVERY * 3).await;
                    }
                }
                over.0.send(Told::Read(read)).unwrap();
            }
            "/read" => {
                let mut body = request.into_body();
                while let Some(frame) = body.frame().await {
                    read += frame.unwrap().into_data().unwrap().len();
                    over.0.send(Told::Read(read)).unwrap();
                    tokio::time::sleep(LOOK_EVERY / 2).await;
                }
            }
            _ => tokio::time::sleep(LOOK_EVERY * 3).await,
        }
        Response::new(full("answered"))
    }

    async fn serve(tls: Option<Arc<rustls::ServerConfig>>) -> (SocketAddr, UnboundedReceiver<Told>) {
        let limits = ServerLimits { head_bytes: 1_000, buffer_bytes: 16 << 10, ..ServerLimits::default() };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), tls, limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let (tell, told) = unbounded_channel();
        tokio::spawn(async move {
            let _stop = stop;
            server.run(move |request, _| handle(request, tell.clone()), stopped).await;
        });
        (address, told)
    }

    async fn next(told: &mut UnboundedReceiver<Told>, of: &str) -> Told {
        timeout(PATIENCE, told.recv()).await.unwrap_or_else(|_| panic!("nothing happened: {of}")).unwrap()
    }

    /// A request that waits, and so many bytes behind it.
    fn wait(path: &str, fields: &str, behind: usize) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n{}", "G".repeat(behind)).into_bytes()
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_noticed_behind_what_it_sent() {
        const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
        const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
        const LONG: &str = "Content-Length: 100000000\r\n";
        let (address, mut told) = serve(None).await;
        for request in [
            wait("/never", "", 0),
            wait("/never", "", 1),
            wait("/never", "", 100_000),
            wait("/never", UPGRADE, 2_000),
            [wait("/needs/never", CHUNKED, 0), b"0\r\n\r\nG".to_vec()].concat(),
            wait("/needs/never", LONG, 100_000),
        ] {
            for resets in [false, true] {
                let of = format!("{:?}, resets: {resets}", String::from_utf8_lossy(&request[..60.min(request.len())]));
                let mut client = TcpStream::connect(address).await.unwrap();
                client.write_all(&request).await.unwrap();
                assert_eq!(next(&mut told, &of).await, Told::Begun);
                if resets {
                    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
                }
                let left = tokio::time::Instant::now();
                drop(client);
                assert_eq!(next(&mut told, &of).await, Told::Over);
                assert!(left.elapsed() < LOOK_EVERY * 3, "{of}");
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_stays_gets_its_answers_whatever_is_behind_them() {
        let (address, mut told) = serve(None).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client
            .write_all(&[wait("/slow", "", 0), wait("/needs/slow", "Connection: close\r\n", 0)].concat())
            .await
            .unwrap();
        let mut answers = String::new();
        timeout(PATIENCE, client.read_to_string(&mut answers)).await.unwrap().unwrap();
        assert_eq!(answers.matches("answered").count(), 2, "{answers}");
        for expected in [Told::Begun, Told::Over, Told::Begun, Told::Over] {
            assert_eq!(next(&mut told, "both").await, expected);
        }
    }

    #[tokio::test]
    async fn an_upload_is_read_to_its_end_after_its_client_has_left() {
        let (address, mut told) = serve(None).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").await.unwrap();
        client.write_all(&[7; 1_000_000]).await.unwrap();
        drop(client);
        for expected in [Told::Begun, Told::Read(1_000_000), Told::Over] {
            assert_eq!(next(&mut told, "an upload").await, expected);
        }
    }

    #[tokio::test]
    async fn a_body_that_is_read_goes_on_after_its_client_has_left() {
        let (address, mut told) = serve(None).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"PUT /needs/read HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n").await.unwrap();
        client.write_all(&[7; 150_000]).await.unwrap();
        drop(client);
        assert_eq!(next(&mut told, "a body").await, Told::Begun);
        let (mut read, mut pieces) = (0, 0);
        while let Told::Read(so_far) = next(&mut told, "a body").await {
            (read, pieces) = (so_far, pieces + 1);
        }
        assert!(read > 100_000 && pieces > 6, "{read} bytes in {pieces} pieces");
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_noticed_beneath_tls() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let config =
            config.unwrap().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let trust = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let trust = Arc::new(trust.unwrap().with_root_certificates(roots).with_no_client_auth());
        let (address, mut told) = serve(Some(Arc::new(config))).await;
        for path in ["/never", "/needs/never"] {
            let stream = TcpStream::connect(address).await.unwrap();
            let name = "localhost".try_into().unwrap();
            let mut client = tokio_rustls::TlsConnector::from(trust.clone()).connect(name, stream).await.unwrap();
            send(&mut client, &wait(path, "", 1)).await;
            assert_eq!(next(&mut told, path).await, Told::Begun);
            drop(client);
            assert_eq!(next(&mut told, path).await, Told::Over);
        }
    }

    async fn send(client: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) {
        client.write_all(bytes).await.unwrap();
        client.flush().await.unwrap();
    }
}
