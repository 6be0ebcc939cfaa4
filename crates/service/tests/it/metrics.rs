//! `/metrics`, on an address of this machine alone.

use crate::support::device::{plaintext, seal_plaintext, ticket_at};
use crate::support::upstream::Upstream;
use crate::support::{config, wire};
use hoop_http::shutdown;
use hoop_service::{OpenServiceError, Service};

#[tokio::test]
async fn metrics_are_told_on_loopback_alone() {
    let upstream = Upstream::willing().await;
    let dir = tempfile::tempdir().unwrap();
    let mut told = config(upstream.address, dir.path().to_owned());
    told.admin = Some(([127, 0, 0, 1], 0).into());
    let service = Service::open(told).await.unwrap();
    let (address, admin) = (service.address(), service.admin_address().unwrap());
    let (trigger, stop) = shutdown();
    let task = tokio::spawn(service.run(stop));
    let ticket = ticket_at(address, &serde_json::json!({})).await;
    let sealed = seal_plaintext(&ticket, &plaintext(&ticket, "POST /upload", "X-Auth-User: root\r\n", b"counted"));
    let posted = wire::send(address, "POST", "/hoop/post", &[("Prefer", "wait=30")], &sealed.z).await;
    assert_eq!(posted.status, 200, "{posted:?}");
    let refused = wire::send(address, "POST", "/hoop/post", &[], b"no body of ours").await;
    assert_eq!(refused.problem().1, "body-not-sealed");
    let told = wire::send(admin, "GET", "/metrics", &[("Host", "localhost")], b"").await;
    let text = String::from_utf8(told.body).unwrap();
    let bytes = format!("hoop_service_received_bytes_total {}", sealed.z.len());
    for line in [
        "hoop_service_uploads{state=\"accepted\"} 1",
        "hoop_service_uploads{state=\"held\"} 0",
        "hoop_service_uploads_ending 0",
        "hoop_service_tickets_total 1",
        "hoop_service_messages_total 1",
        "hoop_service_replays_total 1",
        "hoop_service_fields_left_behind_total{why=\"unlisted\"} 1",
        "hoop_service_refused_total{code=\"body-not-sealed\"} 1",
        &bytes,
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
    }
    for secret in [ticket.id.as_str(), "/upload"] {
        assert!(!text.contains(secret), "{secret}");
    }
    let stranger = wire::send(admin, "GET", "/metrics", &[("Host", "evil.example")], b"").await;
    assert_eq!(stranger.problem(), (421, "host-forbidden".into()));
    trigger.trigger();
    task.await.unwrap();
    let mut open = config(upstream.address, dir.path().to_owned());
    open.admin = Some(([0, 0, 0, 0], 0).into());
    assert!(matches!(Service::open(open).await, Err(OpenServiceError::Listen(_))));
}
