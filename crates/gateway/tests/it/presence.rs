//! A gateway shows that it has the key which its name follows from, and signs what it has stored.

use crate::support::{LATER, Reply, border, config, connect, get, head, id_of, put, sealed, send, start};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{empty, full, read_limited};
use hoop_seal::signing::GatewayId;
use hoop_seal::word::{NONCE_LEN, Nonce, StoredReceipt, StoredState, who};
use hoop_units::ByteRange;
use http::Request;
use std::net::SocketAddr;

/// Nobody listens there; `config` lets it be a destination.
const NOWHERE: &str = "http://127.0.0.1:9/hoop/post";
const NOWHERE_ORIGIN: &str = "http://127.0.0.1:9";
const NONCE: Nonce = Nonce([7; NONCE_LEN]);

async fn asked(address: SocketAddr, host: &str, nonce: &str, origin: Option<&str>, more: &str) -> Reply {
    let mut request = Request::get(format!("/test?nonce={nonce}{more}")).header("host", host);
    if let Some(origin) = origin {
        request = request.header("origin", origin).header("hoop-version", "1");
    }
    let response = connect(address).await.send(request.body(empty()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    Reply { status: head.status, headers: head.headers, body: read_limited(body, 1 << 20).await.unwrap() }
}

fn proof(reply: &Reply) -> Option<Vec<u8>> {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["proof"].as_str().map(|text| URL_SAFE_NO_PAD.decode(text).unwrap())
}

#[tokio::test]
async fn a_nonce_is_answered_for_the_gateways_own_places_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.hosts = vec!["hoop.example.org".to_owned()];
    let gateway = start(config).await;
    let own = gateway.address.to_string();
    let name: GatewayId = get(gateway.address, "/test").await.json()["gateway"].as_str().unwrap().parse().unwrap();
    for place in [&*own, "hoop.example.org:4667"] {
        let reply = asked(gateway.address, place, &NONCE.to_text(), None, "").await;
        assert_eq!(who(&proof(&reply).unwrap(), place, &NONCE), Ok(name), "{place}");
    }
    // As one would ask who stands elsewhere and passes on what he is asked.
    for place in ["192.168.1.9:4667", "hoop.local:4667", "127.0.0.1:1", "localhost"] {
        let reply = asked(gateway.address, place, &NONCE.to_text(), None, "").await;
        assert_eq!(proof(&reply), None, "{place}");
    }
    for wrong in ["", "AAAA", "7", &"A".repeat(33)] {
        let reply = asked(gateway.address, &own, wrong, None, "").await;
        assert_eq!((reply.status.as_u16(), &*reply.code()), (400, "request-invalid"), "{wrong}");
    }
    assert_eq!(proof(&get(gateway.address, "/test").await), None, "nobody asked");
    // A page that knows no name of this gateway's learns none by its key.
    let page = Some("https://photos.example");
    assert_eq!(proof(&asked(gateway.address, &own, &NONCE.to_text(), page, "").await), None);
    let named = asked(gateway.address, &own, &NONCE.to_text(), page, &format!("&gateways={name}")).await;
    assert_eq!(who(&proof(&named).unwrap(), &own, &NONCE), Ok(name));
}

/// How far the gateway of that name signs that it has Z. Panics if what it signs is not what the answer says.
#[track_caller]
fn signed(reply: &Reply, name: GatewayId, z: &[u8]) -> StoredState {
    let bytes = URL_SAFE_NO_PAD.decode(reply.header("hoop-receipt")).unwrap();
    assert!(StoredReceipt::open(&bytes, "https://other.example").is_err(), "for another service");
    let (by, receipt) = StoredReceipt::open(&bytes, NOWHERE_ORIGIN).unwrap();
    assert_eq!((by, receipt.upload_id, receipt.total), (name, id_of(z), z.len() as u64));
    assert_eq!(receipt.missing, reply.header("hoop-missing"));
    receipt.state
}

async fn name_of(address: SocketAddr) -> GatewayId {
    get(address, "/test").await.json()["gateway"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn what_is_stored_is_signed_with_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(config(folder.path())).await;
    let name = name_of(gateway.address).await;
    let z = sealed(1, 250_000, LATER);
    let part = put(gateway.address, NOWHERE, &z, ByteRange::new(border(1), border(2))).await;
    assert_eq!((part.status.as_u16(), signed(&part, name, &z)), (202, StoredState::Receiving));
    assert_eq!(signed(&head(gateway.address, id_of(&z)).await, name, &z), StoredState::Receiving);
    let whole = put(gateway.address, NOWHERE, &z, ByteRange::new(0, z.len() as u64)).await;
    assert_eq!((whole.status.as_u16(), whole.header("hoop-missing")), (201, ""));
    assert_ne!(signed(&whole, name, &z), StoredState::Receiving);
    assert_ne!(signed(&head(gateway.address, id_of(&z)).await, name, &z), StoredState::Receiving);
}

#[tokio::test]
async fn the_last_answer_to_a_resumable_upload_is_signed_as_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(config(folder.path())).await;
    let name = name_of(gateway.address).await;
    let create = || Request::post(format!("/offload?dest={NOWHERE}"));
    // At once, and in parts; and asked for again by who missed the answer.
    let z = sealed(2, 100_000, LATER);
    let whole = send(gateway.address, create().header("upload-complete", "?1"), full(z.clone())).await;
    assert_ne!(signed(&whole, name, &z), StoredState::Receiving);
    let z = sealed(3, 200_000, LATER);
    let created = create().header("upload-complete", "?0").header("upload-length", z.len());
    let resource = send(gateway.address, created, empty()).await.header("location").to_owned();
    let part = async |from: usize, to: usize| {
        let complete = if to == z.len() { "?1" } else { "?0" };
        let request = Request::patch(&resource)
            .header("upload-offset", from)
            .header("upload-complete", complete)
            .header("content-type", "application/partial-upload");
        send(gateway.address, request, full(z[from..to].to_vec())).await
    };
    assert_eq!(part(0, 100_000).await.status, 204);
    let standing = async || send(gateway.address, Request::head(&resource), empty()).await;
    assert_eq!(signed(&standing().await, name, &z), StoredState::Receiving);
    for from in [100_000, z.len()] {
        let whole = part(from, z.len()).await;
        assert_eq!((whole.status.as_u16(), whole.header("hoop-missing")), (201, ""));
        assert_ne!(signed(&whole, name, &z), StoredState::Receiving);
    }
    assert_ne!(signed(&standing().await, name, &z), StoredState::Receiving);
}
