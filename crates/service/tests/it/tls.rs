//! A service with a certificate of its own.

use crate::support;
use crate::support::Sidecar;
use crate::support::upstream::Upstream;
use hoop_http::{Connector, Origin, empty, tls};
use hoop_service::TlsFiles;

#[tokio::test]
async fn with_a_certificate_it_speaks_tls_and_tells_the_application() {
    let upstream = Upstream::willing().await;
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["photos.example".to_owned()]).unwrap();
    let files = TlsFiles { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let own = files.clone();
    let sidecar = Sidecar::with(upstream.address, |config| config.tls = Some(own)).await;
    let origin: Origin = format!("https://photos.example:{}", sidecar.address.port()).parse().unwrap();
    let addresses = [(("photos.example".to_owned(), origin.port()), vec![sidecar.address.ip()])].into();
    let trust = tls::client_config(std::slice::from_ref(&files.certificate)).unwrap();
    let mut connection = Connector::new(trust).with_addresses(addresses).connect(&origin).await.unwrap();
    let request = http::Request::get("/page").header("Host", origin.authority()).body(empty()).unwrap();
    assert_eq!(connection.send(request).await.unwrap().status(), 201);
    assert_eq!(upstream.arrivals()[0].fields("x-forwarded-proto"), ["https"]);
}

#[tokio::test]
async fn a_service_that_cannot_open_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let config = || support::config(([127, 0, 0, 1], 9).into(), dir.path().join("state"));
    let error = async |config| hoop_service::Service::open(config).await.err().expect("refused").to_string();
    let mut https = config();
    https.upstream = "https://127.0.0.1:8000".parse().unwrap();
    assert!(error(https).await.contains("must be http://"));
    let mut tls = config();
    tls.tls = Some(TlsFiles { certificate: dir.path().join("none.pem"), key: dir.path().join("none.pem") });
    assert!(error(tls).await.contains("none.pem"));
    let mut folder = config();
    std::fs::write(dir.path().join("file"), "").unwrap();
    folder.state_dir = dir.path().join("file");
    assert!(error(folder).await.contains("the state folder"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut listen = config();
    listen.listen = taken.local_addr().unwrap();
    assert!(error(listen).await.contains("cannot listen on"));
}
