//! Records that come before the upload's prelude: taken, kept for a while, and delivered only once it has come.

use crate::support::service::{Service, Weather};
use crate::support::{
    self, LATER, PRELUDE_LEN, Reply, Running, border, config, head, id_of, put, put_early, put_request, sealed, send,
    start, status, until_dropped, until_state,
};
use hoop_gateway::Config;
use hoop_http::{Clock, full};
use hoop_units::ByteRange;
use http::{Method, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const NOWHERE: &str = "http://127.0.0.1:9/hoop/post";

async fn gateway_with(change: impl FnOnce(&mut Config)) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    (start(config).await, folder)
}

/// All but the prelude and record 0.
fn rest(z: &[u8]) -> ByteRange {
    ByteRange::new(border(1), z.len() as u64)
}

const FIRST: ByteRange = ByteRange { start: 0, end: border(1) };

#[track_caller]
fn refused(reply: &Reply, status: u16, code: &str, field: &str) {
    let json = reply.json();
    let found = (reply.status.as_u16(), json["code"].as_str(), json["field"].as_str().unwrap_or_default());
    assert_eq!(found, (status, Some(code), field), "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn early_records_are_delivered_only_after_the_prelude() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (gateway, _folder) = gateway_with(|_| {}).await;
    let (z, whole) = (sealed(1, 300_000, LATER), sealed(2, 300_000, LATER));
    let reply = put_early(gateway.address, &service.dest(), &z, rest(&z)).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["state"]), (202, &"receiving".into()), "{reply:?}");
    assert_eq!(reply.header("hoop-missing"), format!("0-{}", border(1) - 1), "the prelude too");
    assert_eq!(status(gateway.address, id_of(&z)).await["state"], "receiving");
    assert_eq!(head(gateway.address, id_of(&z)).await.header("hoop-state"), "receiving");
    // What came later and is whole is delivered; this one is not.
    support::post(gateway.address, &service.dest(), &whole).await;
    until_state(gateway.address, id_of(&whole), "accepted").await;
    assert_eq!(service.count(&Method::PUT, &id_of(&z).to_hex()), 0);
    let reply = put(gateway.address, &service.dest(), &z, FIRST).await;
    assert_eq!((reply.status.as_u16(), reply.header("hoop-missing")), (201, ""), "{reply:?}");
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(service.bytes(id_of(&z)), z);
    let again = put_early(gateway.address, &service.dest(), &z, rest(&z)).await;
    assert_eq!(again.status, 201, "the same again gives the same answer");
}

#[tokio::test]
async fn early_records_off_the_grid_and_record_0_are_refused_by_name() {
    let (gateway, _folder) = gateway_with(|_| {}).await;
    let z = sealed(1, 300_000, LATER);
    for (range, status, code, field) in [
        (FIRST, 428, "prelude-needed", "Hoop-Early"),
        (ByteRange::new(0, z.len() as u64), 428, "prelude-needed", "Hoop-Early"),
        (ByteRange::new(PRELUDE_LEN, border(2)), 428, "prelude-needed", "Hoop-Early"),
        (ByteRange::new(border(1) + 1, border(2)), 416, "range-off-grid", "Content-Range"),
        (ByteRange::new(border(1), border(2) - 1), 416, "range-off-grid", "Content-Range"),
        (ByteRange::new(5, PRELUDE_LEN), 416, "range-off-grid", "Content-Range"),
    ] {
        refused(&put_early(gateway.address, NOWHERE, &z, range).await, status, code, field);
    }
    let unmarked = Request::put(format!("/offload/{}?dest={NOWHERE}", id_of(&z)))
        .header("content-range", format!("bytes {}/{}", rest(&z), z.len()));
    let body = full(z[border(1) as usize..].to_vec());
    refused(&send(gateway.address, unmarked, body).await, 400, "request-invalid", "Hoop-Prelude");
    assert_eq!(head(gateway.address, id_of(&z)).await.status, 404, "nothing of it is kept");
}

#[tokio::test]
async fn a_prelude_that_contradicts_the_early_records_is_refused_and_they_stay() {
    let (gateway, _folder) = gateway_with(|_| {}).await;
    let (z, other) = (sealed(1, 300_000, LATER), sealed(2, 300_000, LATER));
    assert_eq!(put_early(gateway.address, NOWHERE, &z, rest(&z)).await.status, 202);
    let longer = sealed(1, 300_001, LATER);
    refused(&put(gateway.address, NOWHERE, &longer, FIRST).await, 409, "upload-conflict", "Content-Range");
    refused(&put(gateway.address, "http://127.0.0.1:9/post", &z, FIRST).await, 409, "upload-conflict", "dest");
    let content_range = format!("bytes {FIRST}/{}", z.len());
    let request = put_request(NOWHERE, &other, &content_range).uri(format!("/offload/{}?dest={NOWHERE}", id_of(&z)));
    let reply = send(gateway.address, request, full(other[..border(1) as usize].to_vec())).await;
    refused(&reply, 400, "request-invalid", "Hoop-Prelude");
    let ended = sealed(1, 300_000, hoop_units::UnixTime(1_000));
    refused(&put(gateway.address, NOWHERE, &ended, FIRST).await, 410, "ticket-expired", "");
    assert_eq!(put(gateway.address, NOWHERE, &z, FIRST).await.status, 201);
}

#[tokio::test]
async fn an_early_upload_survives_a_restart_and_is_dropped_without_its_prelude() {
    let offset = Arc::new(AtomicU64::new(0));
    let clock = || {
        let seen = offset.clone();
        Clock::with_wall(move || SystemTime::now() + Duration::from_secs(seen.load(Ordering::Relaxed)))
    };
    let (gateway, folder) = gateway_with(|config| config.clock = clock()).await;
    let z = sealed(1, 300_000, LATER);
    assert_eq!(put_early(gateway.address, NOWHERE, &z, rest(&z)).await.status, 202);
    gateway.stop().await;
    offset.store(500, Ordering::Relaxed);
    let gateway = start(Config { clock: clock(), ..config(folder.path()) }).await;
    assert_eq!(head(gateway.address, id_of(&z)).await.header("hoop-missing"), format!("0-{}", border(1) - 1));
    gateway.stop().await;
    offset.store(700, Ordering::Relaxed);
    // A gateway keeps house when it begins.
    let again = start(Config { clock: clock(), ..config(folder.path()) }).await;
    until_dropped(again.address, id_of(&z)).await;
}

#[tokio::test]
async fn a_gateway_asks_for_the_prelude_if_early_records_are_off_or_too_many() {
    let (strict, _folder) = gateway_with(|config| config.early = false).await;
    let z = sealed(1, 100_000, LATER);
    refused(&put_early(strict.address, NOWHERE, &z, rest(&z)).await, 428, "prelude-needed", "Hoop-Early");
    assert_eq!(put(strict.address, NOWHERE, &z, rest(&z)).await.status, 202);
    let (gateway, _folder) = gateway_with(|_| {}).await;
    for seed in 0..64 {
        let z = sealed(seed, 100_000, LATER);
        assert_eq!(put_early(gateway.address, NOWHERE, &z, rest(&z)).await.status, 202, "{seed}");
    }
    let more = sealed(64, 100_000, LATER);
    refused(&put_early(gateway.address, NOWHERE, &more, rest(&more)).await, 428, "prelude-needed", "Hoop-Early");
    assert_eq!(put(gateway.address, NOWHERE, &sealed(0, 100_000, LATER), FIRST).await.status, 201);
    assert_eq!(put_early(gateway.address, NOWHERE, &more, rest(&more)).await.status, 202, "one has its prelude now");
}
