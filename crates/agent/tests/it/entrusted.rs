//! Requests for `https://` that the relay makes: of hosts that the user entrusts to it.

use crate::house::{House, head, relay};
use bytes::Bytes;
use hoop_agent::AuthorityFile;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

/// An authority of the test's own, which relays believe in this folder.
pub struct Ca(Issuer<'static, KeyPair>);

impl Ca {
    pub fn new(folder: &Path) -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self(Issuer::new(params, key))
    }

    /// A server's TLS that has a certificate for this host.
    pub fn tls(&self, host: &str, protocols: &[&str], change: impl FnOnce(&mut CertificateParams)) -> TlsAcceptor {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new(vec![host.to_owned()]).unwrap());
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// An origin that counts its connections, and shows what was asked: method, address, version, and body.
#[derive(Clone, Default)]
struct Origin {
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<String>>>,
    /// What came of fields that the agent looks at.
    fields: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    async fn listen(&self, tls: TlsAcceptor) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, origin) = (listener.local_addr().unwrap(), self.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                origin.connections.fetch_add(1, Ordering::SeqCst);
                let (tls, origin) = (tls.clone(), origin.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let service = service_fn(move |request| origin.clone().answer(request));
                    let stream = TokioIo::new(stream);
                    if is_h2 {
                        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = serving.serve_connection(stream, service).await;
                    } else {
                        let _ = hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
                    }
                });
            }
        });
        address
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let host = head.headers.get("host").map(|host| host.to_str().unwrap().to_owned());
        let authority = head.uri.authority().map(ToString::to_string).or(host).unwrap_or_default();
        let fields = head.headers.get("x-mine").map(|mine| mine.to_str().unwrap()).unwrap_or("-");
        let told = format!(
            "{} {authority}{} {:?} {fields} {}",
            head.method,
            head.uri.path(),
            head.version,
            String::from_utf8_lossy(&body)
        );
        self.asked.lock().unwrap().push(told);
        let came = |name: &str| {
            let values = head.headers.get_all(name).iter().map(|value| value.to_str().unwrap());
            let values = values.collect::<Vec<_>>().join(" | ");
            if values.is_empty() { "-".to_owned() } else { values }
        };
        self.fields.lock().unwrap().push(format!(
            "cookie: {}, hoop-deadline: {}",
            came("cookie"),
            came("hoop-deadline")
        ));
        let answer = Response::builder().header("content-type", "text/plain").header("connection-of", "x");
        let lasts = head.uri.path() == "/kept";
        let answer = answer.header("cache-control", if lasts { "max-age=60" } else { "no-store" });
        Ok(answer.body(Full::new(Bytes::from(format!("hello {}", head.uri.path())))).unwrap())
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A house whose relay believes the test's authority, and whose agent entrusts these hosts to it.
async fn house(origin: &Origin, protocols: &[&str]) -> (House, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    let tls = Ca::new(folder.path()).tls("localhost", protocols, |_| {});
    let to = origin.listen(tls).await;
    let introduced = relay(folder.path()).await;
    let entrusted = vec![format!("localhost:{}", to.port()).parse().unwrap()];
    (House::by(folder, introduced, |config| config.entrusted = entrusted).await, to)
}

/// A request that an agent gets as a proxy.
fn get(url: &str) -> String {
    format!("GET {url} HTTP/1.1\r\nHost: other.example\r\nX-Mine: yes\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn an_answer_by_tls_is_kept_for_the_next_who_asks() {
    for protocols in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let origin = Origin::default();
        let (house, to) = house(&origin, protocols).await;
        let url = format!("https://localhost:{}/kept", to.port());
        for status in ["hoop; fwd=uri-miss; stored", "hoop; hit; ttl="] {
            let answer = house.says(&get(&url)).await;
            assert!(answer.ends_with("\r\n\r\nhello /kept"), "{answer}");
            assert!(answer.contains(&format!("Cache-Status: {status}")), "{answer}");
        }
        assert_eq!(origin.asked().len(), 1);
        let plain = get(&format!("http://localhost:{}/kept", to.port()));
        assert!(!house.says(&plain).await.contains("hoop; hit"), "another scheme is another address");
    }
}

#[tokio::test]
async fn an_entrusted_request_goes_by_tls_in_whichever_version_the_server_has() {
    for (protocols, version, via) in [
        (&["h2", "http/1.1"][..], "HTTP/2.0", "2 hoop"),
        (&["http/1.1"], "HTTP/1.1", "1.1 hoop"),
        (&[], "HTTP/1.1", "1.1 hoop"),
    ] {
        let origin = Origin::default();
        let (house, to) = house(&origin, protocols).await;
        let url = format!("https://localhost:{}/a", to.port());
        for _ in 0..2 {
            let answer = house.says(&get(&url)).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello /a"), "{answer}");
            assert!(answer.contains(&format!("Via: {via}\r\n")), "{answer}");
        }
        let body = format!("POST {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody");
        assert!(house.says(&body).await.starts_with("HTTP/1.1 200 "));
        let of_origin = format!("localhost:{}/a {version}", to.port());
        let asked =
            [format!("GET {of_origin} yes "), format!("GET {of_origin} yes "), format!("POST {of_origin} - body")];
        assert_eq!(origin.asked(), asked);
        assert_eq!(origin.connections(), if version == "HTTP/2.0" { 1 } else { 2 }, "a connection is used again");
    }
}

#[tokio::test]
async fn many_first_requests_at_once_take_one_connection_by_http_2() {
    let origin = Origin::default();
    let (house, to) = house(&origin, &["h2"]).await;
    let house = Arc::new(house);
    let asking = (0..100).map(|at| {
        let (house, url) = (house.clone(), format!("https://localhost:{}/{at}", to.port()));
        tokio::spawn(async move { house.says(&get(&url)).await })
    });
    for (at, asked) in asking.collect::<Vec<_>>().into_iter().enumerate() {
        let answer = asked.await.unwrap();
        assert!(answer.ends_with(&format!("hello /{at}")), "{answer}");
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn a_request_for_a_host_that_is_not_entrusted_is_refused() {
    let origin = Origin::default();
    let (house, to) = house(&origin, &["h2"]).await;
    for url in [format!("https://a.localhost.example:{}/", to.port()), "https://localhost/".to_owned()] {
        let answer = house.says(&get(&url)).await;
        assert!(answer.starts_with("HTTP/1.1 501 ") && answer.contains("--entrust"), "{answer}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_server_whose_certificate_is_not_valid_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::new(folder.path());
    let other_folder = tempfile::tempdir().unwrap();
    let other = Ca::new(other_folder.path());
    let past = rcgen::date_time_ymd(2020, 1, 1);
    let mut hosts = Vec::new();
    for (tls, error) in [
        (other.tls("localhost", &[], |_| {}), "tls_certificate_error"),
        (ca.tls("other.example", &[], |_| {}), "tls_certificate_error"),
        (ca.tls("localhost", &[], |params| params.not_after = past), "tls_certificate_error"),
        (ca.tls("localhost", &["h3"], |_| {}), "tls_protocol_error"),
    ] {
        hosts.push((Origin::default().listen(tls).await, error));
    }
    let plain = crate::house::origin(|mut stream| async move {
        let _ = stream.read(&mut [0; 1_024]).await;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    });
    let plain = plain.await;
    hosts.push((plain, "tls_protocol_error"));
    let introduced = relay(folder.path()).await;
    let entrusted = hosts.iter().map(|(to, _)| format!("localhost:{}", to.port()).parse().unwrap()).collect();
    let house = House::by(folder, introduced, |config| config.entrusted = entrusted).await;
    for (to, error) in hosts {
        let answer = house.says(&get(&format!("https://localhost:{}/", to.port()))).await;
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(&format!("hoop; error={error}")), "{answer}");
    }
}

/// What a browser believes that has this certificate alone.
fn trusting(certificate: &str, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// A house whose agent shows itself as the origin, and the certificate of its authority.
async fn shown(origin: &Origin) -> (House, SocketAddr, String) {
    let folder = tempfile::tempdir().unwrap();
    let tls = Ca::new(folder.path()).tls("localhost", &["h2", "http/1.1"], |_| {});
    let to = origin.listen(tls).await;
    let introduced = relay(folder.path()).await;
    let host = format!("localhost:{}", to.port()).parse().unwrap();
    let (authority, certificate) = AuthorityFile::new("test", &[host], AuthorityFile::now()).unwrap();
    (House::by(folder, introduced, |config| config.authority = Some(authority)).await, to, certificate)
}

#[tokio::test]
async fn an_authority_whose_year_ends_soon_is_told_of_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let introduced = relay(folder.path()).await;
    let made = AuthorityFile::now().0 - 350 * 24 * 3_600 + 3_600;
    let host = "www.example".parse().unwrap();
    let (authority, _) = AuthorityFile::new("test", &[host], hoop_units::UnixTime(made)).unwrap();
    let house = House::by(folder, introduced, |config| config.authority = Some(authority)).await;
    let told = house.told.lock().unwrap().clone();
    assert!(told.iter().any(|words| words.contains("the authority is good for 15 more days")), "{told:?}");
}

/// TLS with whoever answers as this host.
async fn browse(
    house: &House,
    to: &str,
    name: &str,
    tls: &TlsConnector,
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let tunnel = house.tunnel(to).await;
    tls.connect(ServerName::try_from(name.to_owned()).unwrap(), tunnel).await
}

#[tokio::test]
async fn a_browser_that_trusts_the_authority_has_its_requests_made_by_the_relay() {
    let origin = Origin::default();
    let (house, to, certificate) = shown(&origin).await;
    let host = format!("localhost:{}", to.port());
    let stream = browse(&house, &host, "localhost", &trusting(&certificate, &["h2", "http/1.1"])).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let building = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = building.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let asking = (0..150).map(|at| {
        let mut sender = sender.clone();
        let request = Request::get(format!("https://{host}/{at}")).body(Full::<Bytes>::default()).unwrap();
        tokio::spawn(async move {
            let answer = sender.send_request(request).await.unwrap();
            answer.into_body().collect().await.unwrap().to_bytes()
        })
    });
    for (at, asked) in asking.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(asked.await.unwrap(), format!("hello /{at}"));
    }
    let mut stream = browse(&house, &host, "localhost", &trusting(&certificate, &[])).await.unwrap();
    stream
        .write_all(format!("GET /one HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello /one"), "{answer}");
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn what_a_browser_sends_is_one_request_for_the_server() {
    let origin = Origin::default();
    let (house, to, certificate) = shown(&origin).await;
    let host = format!("localhost:{}", to.port());
    let stream = browse(&house, &host, "localhost", &trusting(&certificate, &["h2"])).await.unwrap();
    let building = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = building.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = |deadline: &str| {
        let request = Request::get(format!("https://{host}/")).header("cookie", "a=1").header("cookie", "b=2");
        request.header("hoop-deadline", deadline).body(Full::<Bytes>::default()).unwrap()
    };
    assert_eq!(sender.send_request(request("4000000000")).await.unwrap().status(), 200);
    assert_eq!(origin.fields.lock().unwrap()[0], "cookie: a=1; b=2, hoop-deadline: -");
    assert_eq!(sender.send_request(request("soon")).await.unwrap().status(), 400);
    assert_eq!(origin.asked().len(), 1);
}

#[tokio::test]
async fn a_connection_to_an_entrusted_host_brings_requests_to_no_other() {
    let origin = Origin::default();
    let (house, to, certificate) = shown(&origin).await;
    let host = format!("localhost:{}", to.port());
    for request in [
        "GET / HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n".to_owned(),
        format!("GET https://other.example/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let mut stream = browse(&house, &host, "localhost", &trusting(&certificate, &[])).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 421 ") || answer.starts_with("HTTP/1.0 421 "), "{request}: {answer}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn an_authority_is_believed_for_its_hosts_alone() {
    let origin = Origin::default();
    let (house, to, certificate) = shown(&origin).await;
    let host = format!("localhost:{}", to.port());
    // Nothing of what the agent shows is taken for another host.
    assert!(browse(&house, &host, "other.example", &trusting(&certificate, &[])).await.is_err());
    // A browser without the authority is not deceived.
    let (_, other) = AuthorityFile::new("other", &[host.parse().unwrap()], AuthorityFile::now()).unwrap();
    assert!(browse(&house, &host, "localhost", &trusting(&other, &[])).await.is_err());
    // What is not entrusted goes to the server itself.
    let tunnelled = crate::house::echo().await;
    let mut stream = house.tunnel(&tunnelled.to_string()).await;
    stream.write_all(b"as it is").await.unwrap();
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"as it is");
}

#[tokio::test]
async fn with_an_old_relay_the_agent_speaks_tls_itself() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::default();
    let to = origin.listen(Ca::new(folder.path()).tls("localhost", &["h2", "http/1.1"], |_| {})).await;
    let (introduction, relay, asked) = crate::house::old_relay(folder.path()).await;
    let host = format!("localhost:{}", to.port());
    let entrusted = vec![host.parse().unwrap()];
    let house = House::by(folder, (introduction, relay), |config| config.entrusted = entrusted).await;
    for path in ["/one", "/two"] {
        let answer = house.says(&get(&format!("https://{host}{path}"))).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&format!("hello {path}")), "{answer}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it is not asked again");
    let mut program = house.program().await;
    program.write_all(b"GET https://other.example/ HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(head(&mut program).await.starts_with("HTTP/1.1 501 "));
}

/// A web server that switches to another protocol, in which it says what was said. It breaks off after `bye`.
async fn switching(tls: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = tls.accept(stream).await else { return };
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    asked.push(stream.read_u8().await.unwrap());
                }
                let asked = String::from_utf8(asked).unwrap().to_lowercase();
                assert!(
                    asked.contains("upgrade: websocket\r\n") && asked.contains("connection: upgrade\r\n"),
                    "{asked}"
                );
                assert!(
                    asked.starts_with("get /chat http/1.1\r\n") && asked.contains("\r\nhost: localhost:"),
                    "{asked}"
                );
                let answer =
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst";
                stream.write_all(answer.as_bytes()).await.unwrap();
                let mut said = [0; 3];
                while stream.read_exact(&mut said).await.is_ok() && &said != b"bye" {
                    stream.write_all(&said).await.unwrap();
                }
                if &said == b"bye" {
                    stream.get_ref().0.set_zero_linger().unwrap();
                }
                drop(stream);
            });
        }
    });
    address
}

#[tokio::test]
async fn a_websocket_to_an_entrusted_host_goes_through() {
    let folder = tempfile::tempdir().unwrap();
    let to = switching(Ca::new(folder.path()).tls("localhost", &["h2", "http/1.1"], |_| {})).await;
    let introduced = relay(folder.path()).await;
    let host = format!("localhost:{}", to.port());
    let (authority, certificate) = AuthorityFile::new("test", &[host.parse().unwrap()], AuthorityFile::now()).unwrap();
    let house = House::by(folder, introduced, |config| config.authority = Some(authority)).await;
    let asks = |target: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    };
    let mut plain = house.program().await;
    plain.write_all(asks(&format!("https://{host}/chat")).as_bytes()).await.unwrap();
    talk(&mut plain).await;
    let mut browser = browse(&house, &host, "localhost", &trusting(&certificate, &["http/1.1"])).await.unwrap();
    browser.write_all(asks("/chat").as_bytes()).await.unwrap();
    talk(&mut browser).await;
}

/// Talks to a server that has switched, until that breaks off.
async fn talk(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin)) {
    let head = head(stream).await.to_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: websocket\r\n"), "{head}");
    stream.write_all(b"and").await.unwrap();
    let mut came = [0; 8];
    stream.read_exact(&mut came).await.unwrap();
    assert_eq!(&came, b"firstand");
    stream.write_all(b"bye").await.unwrap();
    let mut rest = Vec::new();
    assert!(stream.read_to_end(&mut rest).await.is_err(), "it broke off, and did not end");
}

#[tokio::test]
async fn a_websocket_goes_to_nobody_whom_the_agent_does_not_believe() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::new(folder.path());
    let other = switching(ca.tls("other.example", &["http/1.1"], |_| {})).await;
    let no_tls = crate::house::echo().await;
    let introduced = relay(folder.path()).await;
    let hosts = [other, no_tls].map(|to| format!("localhost:{}", to.port()));
    let entrusted = hosts.iter().map(|host| host.parse().unwrap()).collect();
    let house = House::by(folder, introduced, |config| config.entrusted = entrusted).await;
    for (host, error) in hosts.iter().zip(["tls_certificate_error", "tls_protocol_error"]) {
        let asked = format!(
            "GET https://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        );
        let mut program = house.program().await;
        program.write_all(asked.as_bytes()).await.unwrap();
        let answer = head(&mut program).await;
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(error), "{answer}");
    }
}

/// A web server that sends this without end once it was asked. What it could send before its connection was cut off, in bytes.
async fn floods(tls: TlsAcceptor, frame: &'static [u8]) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, tell) = (tls.clone(), tell.clone());
            tokio::spawn(async move {
                let mut stream = tls.accept(stream).await.unwrap();
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
                stream.read_exact(&mut [0; 24]).await.unwrap();
                // Frames, until that of a request.
                let mut head = [0; 9];
                while head[3] != 1 {
                    stream.read_exact(&mut head).await.unwrap();
                    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                    stream.read_exact(&mut vec![0; len as usize]).await.unwrap();
                }
                let (many, mut sent) = (frame.repeat(1_000), 0);
                while sent < 100_000_000 && stream.write_all(&many).await.is_ok() && stream.flush().await.is_ok() {
                    sent += many.len() as u64;
                }
                let _ = tell.send(sent);
            });
        }
    });
    (address, told)
}

/// Heads of 103 (by the static table of RFC 7541 there is no such status, so its digits are written out), frames of priorities, and frames that nobody knows.
#[tokio::test]
async fn a_web_server_that_never_answers_over_http_2_is_cut_off_soon() {
    let early_hints: &[u8] = &[0, 0, 5, 1, 4, 0, 0, 0, 1, 0x08, 3, b'1', b'0', b'3'];
    let priority: &[u8] = &[0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 3, 7];
    let unknown: &[u8] = &[0, 0, 0, 200, 0, 0, 0, 0, 1];
    for frame in [early_hints, priority, unknown] {
        let folder = tempfile::tempdir().unwrap();
        let tls = Ca::new(folder.path()).tls("localhost", &["h2"], |_| {});
        let (to, mut told) = floods(tls, frame).await;
        let introduced = relay(folder.path()).await;
        let entrusted = vec![format!("localhost:{}", to.port()).parse().unwrap()];
        let house = House::by(folder, introduced, |config| config.entrusted = entrusted).await;
        let answer = house.says(&get(&format!("https://localhost:{}/", to.port()))).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{frame:?}: {answer}");
        let sent = told.recv().await.unwrap();
        assert!(sent < 50_000_000, "{sent} bytes of {frame:?}");
    }
}
