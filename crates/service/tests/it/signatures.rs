//! What the service signs, and what it asks of gateways that it lists.

use crate::support::device::{self, Ticket, seal, ticket};
use crate::support::upstream::{Behaviour, Upstream, answer};
use crate::support::{COOKIE, ORIGIN, Sidecar, bytes, keys};
use hoop_seal::signing::{self, GatewayKey, Outcome, Permit, PublicKey, Receipt, RequestSalt};
use hoop_seal::{Keyring, KwsId, ServiceKey};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::time::SystemTime;

async fn well_known(sidecar: &Sidecar) -> Value {
    sidecar.send("GET", "/.well-known/hoop", &[], b"").await.json()
}

/// The published key of that id.
fn published(well_known: &Value, id: KwsId) -> Option<PublicKey> {
    well_known["signing_keys"][id.to_string()].as_str()?.parse().ok()
}

async fn receipt(sidecar: &Sidecar, status: &Value) -> Receipt {
    let (receipt, well_known) = (device::decode(&status["receipt"]), well_known(sidecar).await);
    Receipt::open(&receipt, ORIGIN, |id| published(&well_known, id)).unwrap()
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().unwrap()
}

#[tokio::test]
async fn a_ticket_brings_a_permit_that_the_published_key_opens() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let gateway = GatewayKey::from_seed(&[9; 32]).id();
    let well_known = well_known(&sidecar).await;
    assert_eq!(well_known["permits"], "offered");
    for named in [None, Some(gateway)] {
        let wanted = named.map_or_else(|| json!({}), |gateway| json!({"gateway": gateway.to_string()}));
        let reply = device::ask(sidecar.address, COOKIE, &wanted).await.json();
        assert_eq!(reply["gateways"], Value::Null);
        let ticket = &reply["tickets"][0];
        let permit = device::decode(&ticket["permit"]);
        let permit = Permit::open(&permit, ORIGIN, |id| published(&well_known, id)).unwrap();
        assert_eq!(permit.upload_id, Ticket::parse(ticket).upload_id());
        assert_eq!(
            (json!(permit.max_bytes), json!(permit.expires.0)),
            (ticket["max_bytes"].clone(), ticket["expires"].clone())
        );
        assert_eq!(permit.gateway, named);
    }
    let wrong = device::ask(sidecar.address, COOKIE, &json!({"gateway": "fritz"})).await;
    assert_eq!((wrong.problem().1, wrong.json()["field"].clone()), ("request-invalid".into(), json!("gateway")));
}

#[tokio::test]
async fn uploads_come_only_from_listed_gateways_and_from_devices() {
    let upstream = Upstream::willing().await;
    let listed = GatewayKey::from_seed(&[9; 32]);
    let sidecar = Sidecar::with(upstream.address, |config| {
        config.permits.required = true;
        config.permits.gateways = vec![listed.id()];
    })
    .await;
    assert_eq!(well_known(&sidecar).await["permits"], "required");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let proof = |key: &GatewayKey, ticket: &Ticket| {
        let now = hoop_units::UnixTime(u32::try_from(now).unwrap());
        signing::to_text(&key.prove(ORIGIN, ticket.upload_id(), now))
    };
    let first = ticket(&sidecar).await;
    let sealed = seal(&first, b"by a gateway");
    let forbidden = (403, "gateway-forbidden".to_owned());
    assert_eq!(sealed.post(&sidecar).await.problem(), forbidden);
    let stranger = proof(&GatewayKey::from_seed(&[8; 32]), &first);
    let refused = sidecar.send("POST", "/hoop/post", &[("Hoop-Gateway", &stranger)], &sealed.z).await;
    assert_eq!((refused.problem(), refused.field("retry-after")), (forbidden, Some("3600")));
    assert!(sidecar.bodies().is_empty(), "nothing was taken");
    let taken = sidecar.send("POST", "/hoop/post", &[("Hoop-Gateway", &proof(&listed, &first))], &sealed.z).await;
    taken.is_taken();
    sidecar.reaches(&first.id, "accepted").await;
    let second = ticket(&sidecar).await;
    let taken = sidecar.send("POST", "/hoop/post", &[("Hoop-Token", &second.token)], &seal(&second, b"x").z).await;
    taken.is_taken();
    sidecar.reaches(&second.id, "accepted").await;
}

#[tokio::test]
async fn a_receipt_over_the_body_outlives_its_signing_key() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let body = bytes(700_000, 5);
    let sealed = seal(&ticket, &body);
    sealed.post(&sidecar).await;
    let status = sidecar.reaches(&ticket.id, "accepted").await;
    let before = receipt(&sidecar, &status).await;
    assert_eq!((before.upload_id, before.outcome), (ticket.upload_id(), Outcome::Accepted));
    assert_eq!((before.total, before.digest), (sealed.z.len() as u64, sha256(&body)));
    assert_eq!(json!(before.time.0), status["updated"]);
    assert_eq!(before.request, None, "the first version does not say");
    let (second, well_known) = (device::decode(&status["receipt_v2"]), well_known(&sidecar).await);
    let second = Receipt::open(&second, ORIGIN, |id| published(&well_known, id)).unwrap();
    let request = RequestSalt::of(&ticket.key, ticket.upload_id()).digest("POST", "/upload");
    assert_eq!(second, Receipt { request: Some(request), ..before });
    let saved = sidecar.send("GET", &format!("/hoop/uploads/{}?receipt", ticket.id), &[], b"").await;
    assert!(saved.field("content-disposition").unwrap().starts_with("attachment"));
    assert_eq!((&saved.json()["receipt"], &saved.json()["origin"]), (&status["receipt_v2"], &json!(ORIGIN)));
    let dir = sidecar.stop().await.unwrap();
    let new = ServiceKey::new(KwsId([7; 4]), [8; 32]);
    let rotated = Keyring::parse(&format!("{}\n{}", new.to_line(), keys().primary().to_line())).unwrap();
    let change = |config: &mut hoop_service::Config| config.keys = rotated;
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), change).await;
    let after = sidecar.status(&ticket.id).await;
    assert_eq!((&after["receipt"], &after["receipt_v2"]), (&status["receipt"], &status["receipt_v2"]));
    assert_eq!(receipt(&sidecar, &after).await, before);
}

#[tokio::test]
async fn a_rejection_is_signed_too_though_the_application_did_not_read_the_end() {
    let script = |_, _: &_| Behaviour::Early(1_000, b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n".to_vec());
    let upstream = Upstream::new(script).await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let body = bytes(3 << 20, 6);
    seal(&ticket, &body).post(&sidecar).await;
    let status = sidecar.reaches(&ticket.id, "rejected").await;
    let receipt = receipt(&sidecar, &status).await;
    assert_eq!((receipt.outcome, receipt.digest), (Outcome::Rejected, sha256(&body)));
}

#[tokio::test]
async fn an_upload_that_may_still_change_has_no_receipt() {
    let upstream = Upstream::new(|_, _| answer("401 Unauthorized", "")).await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"held").post(&sidecar).await;
    assert_eq!(sidecar.reaches(&ticket.id, "held").await["receipt"], Value::Null);
}
