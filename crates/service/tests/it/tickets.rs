//! Who gets tickets, and what a service says of itself.

use crate::support::device::{ask, open_answer, seal, seal_plaintext, ticket_at};
use crate::support::upstream::Upstream;
use crate::support::{self, COOKIE, Sidecar, device};
use serde_json::json;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const VERSION: (&str, &str) = ("Hoop-Version", "1");

#[tokio::test]
async fn a_page_of_another_origin_gets_no_ticket() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let cookie = ("Cookie", COOKIE);
    for (what, fields, expected) in [
        ("another Origin", vec![cookie, JSON, VERSION, ("Origin", "https://evil.example")], (403, "origin-forbidden")),
        ("an opaque Origin", vec![cookie, JSON, VERSION, ("Origin", "null")], (403, "origin-forbidden")),
        ("http for https", vec![cookie, JSON, VERSION, ("Origin", "http://photos.example")], (403, "origin-forbidden")),
        ("another site", vec![cookie, JSON, VERSION, ("Sec-Fetch-Site", "cross-site")], (403, "origin-forbidden")),
        ("a sibling", vec![cookie, JSON, VERSION, ("Sec-Fetch-Site", "same-site")], (403, "origin-forbidden")),
        ("a form", vec![cookie, VERSION, ("Content-Type", "text/plain")], (400, "request-invalid")),
        ("no type", vec![cookie, VERSION], (400, "request-invalid")),
        ("a simple request", vec![cookie, JSON], (400, "request-invalid")),
        ("another version", vec![cookie, JSON, ("Hoop-Version", "2")], (400, "request-invalid")),
    ] {
        let reply = sidecar.send("POST", "/hoop/tickets", &fields, b"{}").await;
        assert_eq!(reply.problem(), (expected.0, expected.1.to_owned()), "{what}");
        assert_eq!(reply.field("access-control-allow-origin"), None);
    }
    let preflight = [("Origin", "https://evil.example"), ("Access-Control-Request-Method", "POST")];
    let reply = sidecar.send("OPTIONS", "/hoop/tickets", &preflight, b"").await;
    assert_eq!((reply.status, reply.field("access-control-allow-origin")), (405, None));
    assert_eq!(sidecar.send("GET", "/hoop/tickets", &[cookie], b"").await.problem().0, 405);
    let own = [cookie, JSON, VERSION, ("Origin", support::ORIGIN), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(sidecar.send("POST", "/hoop/tickets", &own, b"{}").await.status, 200);
    assert_eq!(upstream.arrivals().len(), 0, "none of this is the application's");
}

#[tokio::test]
async fn tickets_are_what_the_protocol_says() {
    let upstream = Upstream::willing().await;
    let routes = hoop_service::Routes::parse("[[route]]\npath = \"/small\"\nmax_bytes = 1000").unwrap();
    let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
    let reply = ask(sidecar.address, COOKIE, &json!({"target": "/small/x?j", "count": 16, "suite": "aes128gcm"})).await;
    assert_eq!((reply.status, reply.field("cache-control")), (200, Some("no-store")));
    let answer = reply.json();
    assert_eq!(answer["post"], "https://photos.example/hoop/post");
    let tickets = answer["tickets"].as_array().unwrap();
    let ids: std::collections::BTreeSet<_> = tickets.iter().map(|t| t["upload_id"].as_str().unwrap()).collect();
    assert_eq!((tickets.len(), ids.len()), (16, 16));
    for ticket in tickets {
        assert_eq!((&ticket["suite"], &ticket["max_bytes"]), (&"aes128gcm".into(), &1000.into()));
        let lifetime = ticket["expires"].as_u64().unwrap() - ticket["not_before"].as_u64().unwrap();
        assert_eq!((lifetime, &ticket["record_size"]), (7 * 24 * 3600, &65_536.into()));
    }
    let ticket = ticket_at(sidecar.address, &json!({"suite": "aes128gcm"})).await;
    seal(&ticket, b"the other suite").post(&sidecar).await;
    let status = sidecar.reaches(&ticket.id, "accepted").await;
    assert!(open_answer(&ticket, &status).starts_with("HTTP/1.1 201"));
    // A ticket for any route is held to the route's limit when record 0 tells it.
    let any = device::ticket(&sidecar).await;
    let text = device::plaintext(&any, "POST /small/y", "", &[0; 2_000]);
    assert_eq!(seal_plaintext(&any, &text).post(&sidecar).await.problem(), (413, "too-large".into()));
}

#[tokio::test]
async fn a_request_for_tickets_that_asks_for_too_much_is_told_what_is_wrong() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    for (wanted, field) in [
        (json!({"count": 0}), "count"),
        (json!({"count": 17}), "count"),
        (json!({"method": "GET"}), "method"),
        (json!({"target": "no/slash"}), "target"),
        (json!({"target": "/with space"}), "target"),
        (json!({"target": "/line\r\nbreak"}), "target"),
        (json!({"suite": "rot13"}), "suite"),
        (json!({"key": "c2hvcnQ"}), "key"),
        (json!({"key": "%".repeat(43)}), "key"),
        (json!({"key": "A".repeat(43), "count": 2}), "key"),
        (json!({"colour": "red"}), "body"),
        (json!([]), "body"),
    ] {
        let reply = ask(sidecar.address, COOKIE, &wanted).await;
        assert_eq!(reply.problem(), (400, "request-invalid".into()), "{wanted}");
        assert_eq!(reply.json()["field"], field, "{wanted}");
    }
    let long = ask(sidecar.address, &format!("session={}", "x".repeat(8 * 1024)), &json!({})).await;
    assert_eq!((long.problem().0, &long.json()["field"]), (400, &"Cookie".into()));
    assert!(!String::from_utf8(long.body).unwrap().contains("xxxx"), "a cookie appears in no error");
    let big = sidecar.send("POST", "/hoop/tickets", &[JSON, VERSION], &[b' '; 20_000]).await;
    assert_eq!(big.problem(), (400, "request-invalid".into()));
}

#[tokio::test]
async fn a_service_says_what_it_takes_and_what_is_not_there() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let reply = sidecar.send("GET", "/.well-known/hoop", &[], b"").await;
    assert_eq!((reply.status, reply.field("cache-control")), (200, Some("public, max-age=3600")));
    let mut told = reply.json();
    // Its own tests open what it signs.
    assert!(told.as_object_mut().unwrap().remove("signing_keys").is_some());
    assert_eq!(
        told,
        json!({"hoop": 1, "permits": "offered", "origin": "https://photos.example", "post": "https://photos.example/hoop/post",
               "tickets": "https://photos.example/hoop/tickets", "uploads": "https://photos.example/hoop/uploads",
               "suites": ["aes256gcm", "aes128gcm"], "record_size": 65536, "max_bytes": 10_737_418_240_u64})
    );
    for path in ["/hoop/", "/hoop/nothing", "/hoop/post/xyz", "/hoop/uploads/..%2f", "/hoop/tickets/"] {
        assert_eq!(sidecar.send("GET", path, &[], b"").await.problem(), (404, "not-found".into()), "{path}");
    }
    let wrong = sidecar.send("DELETE", "/hoop/post", &[], b"").await;
    assert_eq!((wrong.problem().0, wrong.field("allow")), (405, Some("POST, OPTIONS")));
    let unknown = sidecar.send("GET", &format!("/hoop/uploads/{}", "ab".repeat(16)), &[], b"").await;
    assert_eq!(unknown.problem(), (404, "upload-unknown".into()));
    assert_eq!(upstream.arrivals().len(), 0);
}

#[tokio::test]
async fn an_uploads_id_follows_from_its_key_also_from_one_that_the_device_drew() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let drawn = device::ticket(&sidecar).await;
    assert_eq!(drawn.upload_id(), drawn.key.upload_id());
    let key = hoop_seal::UploadKey([9; 32]);
    let wanted = json!({"key": "CQkJ".repeat(10) + "CQk"});
    let [first, again] = [ticket_at(sidecar.address, &wanted).await, ticket_at(sidecar.address, &wanted).await];
    assert_eq!((&first.key, first.upload_id()), (&key, key.upload_id()));
    assert_eq!((first.id, first.token.len()), (again.id.clone(), again.token.len()), "asked again: the same upload");
    seal(&again, b"x").post(&sidecar).await;
    sidecar.reaches(&again.id, "accepted").await;
    assert_eq!(upstream.whole().len(), 1);
}

#[tokio::test]
async fn the_address_in_a_token_is_the_devices_as_a_trusted_proxy_saw_it() {
    let upstream = Upstream::willing().await;
    let trusted = |config: &mut hoop_service::Config| config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    let sidecar = Sidecar::with(upstream.address, trusted).await;
    let fields = [JSON, VERSION, ("Cookie", COOKIE), ("X-Forwarded-For", "203.0.113.9, 198.51.100.7")];
    let reply = sidecar.send("POST", "/hoop/tickets", &fields, b"{}").await.json();
    let ticket = device::Ticket::parse(&reply["tickets"][0]);
    seal(&ticket, b"x").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole()[0].fields("x-forwarded-for"), ["198.51.100.7"]);
}
