//! Clients that ask for all images of a page at once, by each protocol: what `images` compares is what is between them and the server.
//!
//! Each keeps its connections, so that a second load of the page finds them warm.

use bytes::{Buf as _, Bytes};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Images of the page, as in the published table.
pub const IMAGES: usize = 150;
/// The bytes of each.
pub const IMAGE_BYTES: usize = 1_517;

/// Connections of HTTP/1.1 to one server, as in browsers.
const CONNECTIONS: usize = 6;

/// Windows of HTTP/2 that the page fits into, as browsers have them.
const WINDOW: u32 = 8 << 20;

/// By what a client asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// HTTP/1.1 over TLS and six connections.
    Http1,
    /// HTTP/2 over TLS and one connection.
    Http2,
    /// HTTP/3 over one connection.
    Http3,
    /// HTTP/1.1 to a proxy on loopback, with a connection for each request, as many as there are images.
    Proxy,
}

impl Protocol {
    /// All of them, and their names on the command line.
    pub const ALL: [(&'static str, Self); 4] =
        [("http1", Self::Http1), ("http2", Self::Http2), ("http3", Self::Http3), ("proxy", Self::Proxy)];

    /// The one of this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(own, _)| *own == name).map(|(_, protocol)| protocol)
    }
}

/// A page's client.
pub enum Client {
    /// Connections of HTTP/1.1, each of which takes the next image that nobody has asked for.
    Http1(Vec<Http1>, Target),
    /// One of HTTP/2.
    Http2(h2::client::SendRequest<Bytes>, Target),
    /// One of HTTP/3.
    Http3(h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>, Target),
}

type Http1 = hyper::client::conn::http1::SendRequest<Empty<Bytes>>;

/// Whom to ask.
#[derive(Clone, Debug)]
pub struct Target {
    /// The origin's name, which its certificate is for.
    pub name: String,
    /// Where to connect: the origin, or the proxy.
    pub at: SocketAddr,
}

impl Client {
    /// Connects, cold: there is no ticket of an earlier connection.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn connect(protocol: Protocol, target: Target, tls: ClientConfig) -> Self {
        match protocol {
            Protocol::Http1 => {
                Self::Http1(many(CONNECTIONS, || http1(target.clone(), Some(tls.clone()))).await, target)
            }
            Protocol::Proxy => Self::Http1(many(IMAGES, || http1(target.clone(), None)).await, target),
            Protocol::Http2 => Self::Http2(http2(&target, tls).await, target),
            Protocol::Http3 => Self::Http3(http3(&target, tls).await, target),
        }
    }

    /// Loads all images.
    ///
    /// # Panics
    /// If one does not come, or not as it is.
    pub async fn load(&mut self) {
        match self {
            Self::Http1(connections, target) => {
                let next = Arc::new(AtomicUsize::new(0));
                let is_proxy = connections.len() > CONNECTIONS;
                let mut all = JoinSet::new();
                for connection in connections.drain(..) {
                    all.spawn(take_turns(connection, target.clone(), is_proxy, next.clone()));
                }
                *connections = all.join_all().await;
            }
            Self::Http2(connection, target) => {
                let mut all = JoinSet::new();
                for image in 0..IMAGES {
                    let mut connection = connection.clone().ready().await.expect("the connection goes on");
                    let request = request(format!("https://{}/{image}", target.name), None, ());
                    let (answer, _) = connection.send_request(request, true).expect("it is asked");
                    all.spawn(take_http2(answer));
                }
                all.join_all().await;
            }
            Self::Http3(connection, target) => {
                let mut all = JoinSet::new();
                for image in 0..IMAGES {
                    let request = request(format!("https://{}/{image}", target.name), None, ());
                    all.spawn(take_http3(connection.clone(), request));
                }
                all.join_all().await;
            }
        }
    }
}

/// What a browser says of an image, some 150 bytes more than nothing.
fn request<B>(uri: String, host: Option<&str>, body: B) -> Request<B> {
    let mut request = Request::get(uri).header("accept", "image/avif,image/webp,*/*");
    if let Some(host) = host {
        request = request.header("host", host);
    }
    request = request.header("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0");
    request.header("accept-language", "en-US,en;q=0.5").body(body).expect("a request")
}

/// So many at once.
async fn many<T, F>(count: usize, connect: impl Fn() -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    (0..count).map(|_| connect()).collect::<JoinSet<T>>().join_all().await
}

async fn tcp(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).await.expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    stream
}

async fn tls_over(target: &Target, mut tls: ClientConfig, alpn: &[u8]) -> tokio_rustls::client::TlsStream<TcpStream> {
    tls.alpn_protocols = vec![alpn.to_vec()];
    let name = ServerName::try_from(target.name.clone()).expect("a name");
    TlsConnector::from(Arc::new(tls)).connect(name, tcp(target.at).await).await.expect("TLS")
}

async fn http1(target: Target, tls: Option<ClientConfig>) -> Http1 {
    match tls {
        Some(tls) => http1_over(tls_over(&target, tls, b"http/1.1").await).await,
        None => http1_over(tcp(target.at).await).await,
    }
}

async fn http1_over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Http1 {
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    sender
}

async fn http2(target: &Target, tls: ClientConfig) -> h2::client::SendRequest<Bytes> {
    let stream = tls_over(target, tls, b"h2").await;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
    let (sender, connection) = builder.handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn http3(target: &Target, mut tls: ClientConfig) -> h3::client::SendRequest<h3_quinn::OpenStreams, Bytes> {
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = QuicClientConfig::try_from(tls).expect("TLS 1.3");
    let endpoint = quinn::Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into()).expect("a socket");
    let connecting = endpoint.connect_with(quinn::ClientConfig::new(Arc::new(tls)), target.at, &target.name);
    let connection = connecting.expect("a configuration").await.expect("QUIC");
    let connection = h3_quinn::Connection::new(connection);
    let (mut driver, sender) = h3::client::new(connection).await.expect("HTTP/3");
    tokio::spawn(async move { poll_fn(|context| driver.poll_close(context)).await });
    // The endpoint lives as long as its connection.
    sender
}

/// Asks by one connection for one image after another.
async fn take_turns(mut connection: Http1, target: Target, is_proxy: bool, next: Arc<AtomicUsize>) -> Http1 {
    loop {
        let image = next.fetch_add(1, Ordering::Relaxed);
        if image >= IMAGES {
            return connection;
        }
        let uri = if is_proxy { format!("http://{}/{image}", target.name) } else { format!("/{image}") };
        connection.ready().await.expect("the connection goes on");
        let request = request(uri, Some(&target.name), Empty::new());
        let answer = connection.send_request(request).await.expect("an answer");
        let status = answer.status();
        check(status, answer.into_body().collect().await.expect("a body").to_bytes().len());
        if is_proxy {
            // One image each, whoever is the first.
            return connection;
        }
    }
}

async fn take_http2(answer: h2::client::ResponseFuture) {
    let answer = answer.await.expect("an answer");
    let (status, mut body) = (answer.status(), answer.into_body());
    let mut len = 0;
    while let Some(chunk) = body.data().await {
        let chunk = chunk.expect("a body");
        let _ = body.flow_control().release_capacity(chunk.len());
        len += chunk.len();
    }
    check(status, len);
}

async fn take_http3(mut connection: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>, request: Request<()>) {
    let mut stream = connection.send_request(request).await.expect("it is asked");
    stream.finish().await.expect("it is asked");
    let status = stream.recv_response().await.expect("an answer").status();
    let mut len = 0;
    while let Some(chunk) = stream.recv_data().await.expect("a body") {
        len += chunk.remaining();
    }
    check(status, len);
}

fn check(status: StatusCode, len: usize) {
    assert_eq!((status, len), (StatusCode::OK, IMAGE_BYTES), "an image as it is");
}
