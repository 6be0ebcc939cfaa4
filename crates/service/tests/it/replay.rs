//! What the application gets, and what becomes of an upload when it misbehaves.

use crate::support::device::{open_answer, plaintext, seal, seal_plaintext, ticket, ticket_from, tickets_from};
use crate::support::upstream::{Behaviour, Upstream, answer};
use crate::support::{self, COOKIE, Sidecar, bytes, idempotency_key};
use hoop_service::Routes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

const LONG: usize = 1_500_000;

#[tokio::test]
async fn the_replay_is_exactly_the_plain_request() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let fields = "Origin: https://photos.example\r\nReferer: https://photos.example/form\r\nX-CSRFToken: abc\r\nCookie: \
                  session=forged\r\nAuthorization: Basic forged\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Host: \
                  evil.example\r\nForwarded: for=203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\nConnection: X-Hop\r\nX-Hop: \
                  1\r\nTE: trailers\r\nPrefer: one\r\nX-Order: 1\r\nPrefer: two\r\n";
    let body = bytes(LONG, 2);
    let sealed = seal_plaintext(&ticket, &plaintext(&ticket, "PATCH /a%20b/?j&x=%3C", fields, &body));
    sealed.is_taken_by(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let [arrival] = &upstream.arrivals()[..] else { panic!("once") };
    let expected = format!(
        "PATCH /a%20b/?j&x=%3C HTTP/1.1\r\nHost: photos.example\r\nContent-Type: application/octet-stream\r\nOrigin: \
         https://photos.example\r\nReferer: https://photos.example/form\r\nX-CSRFToken: abc\r\nPrefer: one\r\nPrefer: \
         two\r\nContent-Length: {LONG}\r\nAccept-Encoding: identity\r\nCookie: {COOKIE}\r\nX-Forwarded-For: \
         127.0.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: photos.example\r\nIdempotency-Key: \
         \"{}\"\r\nConnection: close",
        idempotency_key(&ticket.id)
    );
    assert_eq!(arrival.head, expected);
    assert!(arrival.whole && arrival.body == body);
}

#[tokio::test]
async fn bodies_of_every_length_around_a_record_arrive_whole() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let head = plaintext(&ticket(&sidecar).await, "POST /upload?from=test", "", b"").len();
    for records in [0, 1, 2, 3, 10] {
        for around in [-1_i64, 0, 1] {
            let Ok(len) = usize::try_from(records * 65_519 - head as i64 + around) else { continue };
            // The length's own digits move the border; that is as good as any other place around it.
            let ticket = ticket(&sidecar).await;
            seal(&ticket, &bytes(len, 3)).post(&sidecar).await;
            sidecar.reaches(&ticket.id, "accepted").await;
            assert_eq!(upstream.whole().last().unwrap().body, bytes(len, 3), "{len} bytes");
        }
    }
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let arrivals = upstream.arrivals();
    assert_eq!(arrivals.last().unwrap().fields("content-length"), ["0"]);
    assert!(arrivals.iter().all(|arrival| arrival.whole));
}

#[tokio::test]
async fn an_application_that_closes_before_it_has_all_is_tried_again() {
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::Close(0),
        1 => Behaviour::Close(1_000),
        2 => Behaviour::Close(LONG / 2),
        _ => answer("200 OK", "at last"),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    // More is left, each time, than sockets hold: what they hold may have been read.
    seal(&ticket, &bytes(8 * LONG, 4)).post(&sidecar).await;
    let status = sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(status["attempts"], 4);
    assert_eq!(upstream.whole().len(), 1, "whole once, however often it was tried");
    assert!(open_answer(&ticket, &status).ends_with("at last"));
}

#[tokio::test]
async fn a_refusal_before_all_was_read_is_the_answer() {
    for (read, early) in [(0, "413 Content Too Large"), (70_000, "403 Forbidden")] {
        let reply = format!("HTTP/1.1 {early}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno").into_bytes();
        let upstream = Upstream::new(move |_, _| Behaviour::Early(read, reply.clone())).await;
        let sidecar = Sidecar::before(upstream.address).await;
        let ticket = ticket(&sidecar).await;
        seal(&ticket, &bytes(8 * LONG, 5)).post(&sidecar).await;
        let status = sidecar.reaches(&ticket.id, "rejected").await;
        assert_eq!(status["reason"]["code"], "rejected");
        assert_eq!(
            open_answer(&ticket, &status),
            format!("HTTP/1.1 {} \r\nHoop-State: rejected\r\n\r\nno", &early[..3])
        );
        assert_eq!((upstream.arrivals().len(), upstream.whole().len()), (1, 0));
    }
}

#[tokio::test]
async fn an_upload_whose_answer_is_lost_is_unknown_and_not_sent_again() {
    for behaviour in [Behaviour::TakeAndClose, Behaviour::TakeAndKeep, Behaviour::Answer(b"HTTP/1.1 2".to_vec())] {
        let told = behaviour.clone();
        let upstream = Upstream::new(move |_, _| told.clone()).await;
        let sidecar = Sidecar::with(upstream.address, |config| config.answer_timeout = Duration::from_secs(1)).await;
        let ticket = ticket(&sidecar).await;
        let sealed = seal(&ticket, &bytes(200_000, 6));
        sealed.post(&sidecar).await;
        let status = sidecar.reaches(&ticket.id, "unknown").await;
        assert_eq!(status["reason"]["code"], "answer-lost", "{behaviour:?}");
        assert_eq!(sealed.post(&sidecar).await.json(), status);
        let dir = sidecar.stop().await.unwrap();
        let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |_| {}).await;
        assert_eq!(sidecar.status(&ticket.id).await, status);
        sidecar.stop().await;
        assert_eq!(upstream.arrivals().len(), 1, "{behaviour:?}");
    }
}

#[tokio::test]
async fn an_idempotent_route_sends_again_after_a_lost_answer() {
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::TakeAndClose,
        _ => answer("200 OK", ""),
    })
    .await;
    let routes = Routes::parse("[[route]]\npath = \"/upload\"\non_unknown = \"retry\"").unwrap();
    let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"idempotent").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let keys: Vec<_> = upstream.whole().iter().map(|a| a.fields("idempotency-key")[0].to_owned()).collect();
    assert_eq!(keys, [format!("\"{}\"", idempotency_key(&ticket.id)), format!("\"{}\"", idempotency_key(&ticket.id))]);
}

/// Whoever carries an upload knows its id, and may send the application a plain request with any key.
#[tokio::test]
async fn no_carrier_knows_an_uploads_idempotency_key() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let guess = format!("\"{}\"", ticket.id);
    sidecar.send("POST", "/upload", &[("Idempotency-Key", &guess)], b"first").await;
    seal(&ticket, b"the upload").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let keys: Vec<_> = upstream.whole().iter().map(|a| a.fields("idempotency-key")[0].to_owned()).collect();
    assert_eq!((keys.len(), &keys[0]), (2, &guess));
    assert_ne!(keys[1], guess);
}

#[tokio::test]
async fn the_first_matching_route_decides_on_retry_after_a_lost_answer() {
    let route = |fields: &str| format!("[[route]]\n{fields}\n");
    let cases = [
        (String::new(), "unknown"),
        (route("path = \"/upload\"\non_unknown = \"hold\""), "unknown"),
        (route("path = \"/upload\""), "unknown"),
        (route("path = \"/other\"\non_unknown = \"retry\""), "unknown"),
        (route("path = \"/upload\"\nmethod = \"PUT\"\non_unknown = \"retry\""), "unknown"),
        (route("path = \"/upload\"") + &route("path = \"/\"\non_unknown = \"retry\""), "unknown"),
        (route("path = \"/upload\"\non_unknown = \"retry\""), "accepted"),
        (route("path = \"/upload\"\nmethod = \"POST\"\non_unknown = \"retry\""), "accepted"),
        (route("path = \"/other\"") + &route("path = \"/\"\non_unknown = \"retry\""), "accepted"),
    ];
    for (text, state) in cases {
        let upstream = Upstream::new(|number, _| match number {
            0 => Behaviour::TakeAndClose,
            _ => answer("201 Created", ""),
        })
        .await;
        let routes = Routes::parse(&text).unwrap();
        let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
        let ticket = ticket(&sidecar).await;
        seal(&ticket, b"perhaps").post(&sidecar).await;
        sidecar.reaches(&ticket.id, state).await;
        sidecar.stop().await;
        assert_eq!(upstream.whole().len(), if state == "unknown" { 1 } else { 2 }, "{text}");
    }
}

#[tokio::test]
async fn an_idempotent_route_sends_again_however_the_answer_was_lost() {
    let lost = [
        Behaviour::TakeAndKeep,
        Behaviour::Answer(b"HTTP/1.1 2".to_vec()),
        Behaviour::Answer(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Behaviour::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"upload\":".to_vec()),
    ];
    for behaviour in lost {
        let first = behaviour.clone();
        let upstream = Upstream::new(move |number, _| match number {
            0 => first.clone(),
            _ => answer("200 OK\r\nContent-Type: application/json", "{\"upload\":{\"result\":\"Success\"}}"),
        })
        .await;
        let text = "[[route]]\npath = \"/upload\"\npreset = \"mediawiki\"\non_unknown = \"retry\"";
        let sidecar = Sidecar::with(upstream.address, |config| {
            config.routes = Routes::parse(text).unwrap();
            config.answer_timeout = Duration::from_secs(1);
        })
        .await;
        let ticket = ticket(&sidecar).await;
        seal(&ticket, b"idempotent").post(&sidecar).await;
        let status = sidecar.reaches(&ticket.id, "accepted").await;
        assert_eq!((status["attempts"].as_u64(), upstream.whole().len()), (Some(2), 2), "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_busy_application_is_tried_again_and_a_redirect_is_not_followed() {
    let upstream = Upstream::new(|number, _| match number {
        0 => answer("503 Service Unavailable\r\nRetry-After: 1", ""),
        1 => answer("429 Too Many Requests", ""),
        2 => answer("423 Locked", ""),
        _ => answer("302 Found\r\nLocation: /images/7", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"busy").post(&sidecar).await;
    let status = sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(status["attempts"], 4);
    assert_eq!(open_answer(&ticket, &status), "HTTP/1.1 302 \r\nHoop-State: accepted\r\nLocation: /images/7\r\n\r\n");
    assert_eq!(upstream.arrivals().len(), 4, "nobody asked for /images/7");
}

#[tokio::test]
async fn a_502_or_504_after_the_gate_makes_an_upload_unknown() {
    for status in ["502 Bad Gateway", "504 Gateway Timeout"] {
        let upstream = Upstream::new(move |_, _| answer(status, "")).await;
        let sidecar = Sidecar::before(upstream.address).await;
        let ticket = ticket(&sidecar).await;
        seal(&ticket, b"stored behind it, perhaps").post(&sidecar).await;
        let said = sidecar.reaches(&ticket.id, "unknown").await;
        assert_eq!((said["reason"]["code"].as_str(), upstream.whole().len()), (Some("answer-lost"), 1), "{status}");
    }
}

#[tokio::test]
async fn retry_after_is_the_least_wait() {
    let upstream = Upstream::new(|_, _| answer("503 Service Unavailable\r\nRetry-After: 1000", "")).await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"later").post(&sidecar).await;
    upstream.has(1).await;
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    let status = loop {
        let status = sidecar.status(&ticket.id).await;
        if !status["reason"].is_null() {
            break status;
        }
        assert!(tokio::time::Instant::now() < deadline, "{status}");
    };
    assert_eq!((&status["state"], &status["reason"]["code"]), (&"received".into(), &"upstream-busy".into()));
    let wait = status["next_attempt"].as_u64().unwrap() - status["updated"].as_u64().unwrap();
    assert!((1_000..=1_001).contains(&wait), "{status}");
}

#[tokio::test]
async fn other_refusals_are_final_and_garbage_before_the_gate_is_not() {
    for status in ["400 Bad Request", "404 Not Found", "307 Temporary Redirect\r\nLocation: /elsewhere"] {
        let upstream = Upstream::new(move |_, _| answer(status, "why")).await;
        let sidecar = Sidecar::before(upstream.address).await;
        let ticket = ticket(&sidecar).await;
        seal(&ticket, b"x").post(&sidecar).await;
        sidecar.reaches(&ticket.id, "rejected").await;
        assert_eq!(upstream.arrivals().len(), 1, "{status}");
    }
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::Early(0, b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        _ => answer("201 Created", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, &bytes(8 * LONG, 7)).post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let upstream = Upstream::new(|_, _| Behaviour::Answer(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())).await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = support::device::ticket(&sidecar).await;
    seal(&ticket, b"garbage at the end").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "unknown").await;
}

#[tokio::test]
async fn an_early_answer_cut_off_before_what_the_rules_look_at_is_tried_again() {
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::Early(0, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"upload\":".to_vec()),
        1 => Behaviour::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"upload\":".to_vec()),
        _ => answer("500 Never", ""),
    })
    .await;
    let routes = Routes::parse("[[route]]\npath = \"/upload\"\npreset = \"mediawiki\"").unwrap();
    let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, &bytes(8 * LONG, 1)).post(&sidecar).await;
    // The second time it had all of it.
    let status = sidecar.reaches(&ticket.id, "unknown").await;
    assert_eq!(status["attempts"], 2);
    assert_eq!((upstream.arrivals().len(), upstream.whole().len()), (2, 1));
}

#[tokio::test]
async fn an_upload_waits_for_an_application_that_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let sidecar = Sidecar::before(address).await;
    // The ticket is the sidecar's own: it needs no application.
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"patient").post(&sidecar).await;
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    loop {
        let status = sidecar.status(&ticket.id).await;
        if status["attempts"].as_u64() >= Some(2) && status["reason"]["code"] == "upstream-unreachable" {
            assert_eq!(status["state"], "received");
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let upstream = Upstream::on(TcpListener::bind(address).await.unwrap(), |_, _| answer("201 Created", ""));
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn an_upload_whose_session_has_gone_is_held_until_its_owner_comes_back() {
    let upstream = Upstream::new(|_, arrival| match arrival.fields("cookie")[..] {
        ["session=new"] => answer("302 Found\r\nLocation: /images/", ""),
        _ => answer("302 Found\r\nLocation: /login/?next=/upload", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, b"held");
    sealed.post(&sidecar).await;
    let status = sidecar.reaches(&ticket.id, "held").await;
    assert_eq!(status["reason"]["code"], "sign-in-required");
    assert_eq!(sealed.post(&sidecar).await.status, 202, "not final");
    assert_eq!(sidecar.bodies(), std::slice::from_ref(&ticket.id), "kept");
    let path = format!("/hoop/uploads/{}", ticket.id);
    let version = ("Hoop-Version", "1");
    let stranger = sidecar.send("POST", &path, &[version, ("Cookie", "session=mallory")], b"").await;
    assert_eq!(stranger.problem(), (403, "not-owner".into()));
    let token = ("Hoop-Token", ticket.token.as_str());
    let page = [version, token, ("Cookie", "session=new"), ("Origin", "https://evil.example")];
    assert_eq!(sidecar.send("POST", &path, &page, b"").await.problem(), (403, "origin-forbidden".into()));
    let signed_out = sidecar.send("POST", &path, &[version, token], b"").await;
    assert_eq!(signed_out.problem(), (401, "sign-in-required".into()), "there is nothing to go on with");
    assert_eq!(sidecar.status(&ticket.id).await, status, "and it waits on");
    let owner = sidecar.send("POST", &path, &[version, token, ("Cookie", "session=new")], b"").await;
    assert_eq!((owner.status, owner.field("hoop-state")), (200, Some("received")));
    sidecar.reaches(&ticket.id, "accepted").await;
    let list = sidecar.send("GET", "/hoop/uploads", &[("Cookie", "session=new")], b"").await.json();
    assert_eq!(list["uploads"][0]["id"], ticket.id.as_str());
}

#[tokio::test]
async fn only_its_owner_stops_an_upload_and_only_until_the_application_has_it() {
    let busy = Arc::new(AtomicBool::new(true));
    let now = busy.clone();
    let upstream = Upstream::new(move |_, _| match now.load(Ordering::Relaxed) {
        true => answer("503 Service Unavailable\r\nRetry-After: 900", ""),
        false => answer("201 Created", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let waiting = ticket(&sidecar).await;
    let sealed = seal(&waiting, b"waiting");
    sealed.post(&sidecar).await;
    upstream.has(1).await;
    let path = |id: &str| format!("/hoop/uploads/{id}");
    let delete = async |id: &str, fields: &[(&str, &str)]| sidecar.send("DELETE", &path(id), fields, b"").await;
    assert_eq!(delete(&waiting.id, &[]).await.problem(), (403, "not-owner".into()));
    assert_eq!(delete(&waiting.id, &[("Cookie", "session=mallory")]).await.problem(), (403, "not-owner".into()));
    assert_eq!(delete(&"ab".repeat(16), &[("Cookie", COOKIE)]).await.problem(), (404, "upload-unknown".into()));
    // The answer, 503, may be on its way still; what is past the gate cannot be stopped.
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    let stopped = loop {
        let reply = delete(&waiting.id, &[("Cookie", COOKIE)]).await;
        if reply.status == 200 {
            break reply;
        }
        assert_eq!(reply.problem(), (409, "upload-done".into()));
        assert!(tokio::time::Instant::now() < deadline);
    };
    assert_eq!(stopped.field("hoop-state"), Some("stopped"));
    assert_eq!(delete(&waiting.id, &[("Cookie", COOKIE)]).await.status, 200, "stopped is stopped");
    let again = sealed.post(&sidecar).await;
    assert_eq!((again.problem(), again.field("hoop-state")), ((410, "upload-stopped".into()), Some("stopped")));
    sidecar.forgets_bodies().await;
    busy.store(false, Ordering::Relaxed);
    let done = ticket(&sidecar).await;
    seal(&done, b"done").post(&sidecar).await;
    sidecar.reaches(&done.id, "accepted").await;
    assert_eq!(delete(&done.id, &[("Cookie", COOKIE)]).await.problem(), (409, "upload-done".into()));
    let list = sidecar.send("GET", "/hoop/uploads", &[("Cookie", COOKIE)], b"").await.json();
    assert_eq!(list["uploads"].as_array().unwrap().len(), 2);
    let none = sidecar.send("GET", "/hoop/uploads", &[("Cookie", "session=mallory")], b"").await.json();
    assert_eq!(none["uploads"].as_array().unwrap().len(), 0);
    let nobody = sidecar.send("GET", "/hoop/uploads", &[], b"").await;
    assert_eq!(nobody.problem(), (401, "sign-in-required".into()));
}

#[tokio::test]
async fn many_uploads_are_replayed_each_once_and_no_more_at_once_than_allowed() {
    // Slow enough that two are there together.
    let created = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n".to_vec();
    let upstream = Upstream::new(move |_, _| Behaviour::Late(Duration::from_millis(50), created.clone())).await;
    let sidecar = Sidecar::with(upstream.address, |config| config.replays = 2).await;
    let mut ids = Vec::new();
    for n in 0..30 {
        let ticket = ticket(&sidecar).await;
        seal(&ticket, &bytes(n * 1_000, 8)).post(&sidecar).await;
        ids.push(ticket.id);
    }
    for id in &ids {
        sidecar.reaches(id, "accepted").await;
    }
    let mut keys: Vec<_> = upstream.whole().iter().map(|a| a.fields("idempotency-key")[0].to_owned()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!((keys.len(), upstream.arrivals().len()), (30, 30));
    assert_eq!(upstream.peak(), 2, "both places are used, and no third");
}

#[tokio::test]
async fn stopping_an_upload_in_mid_replay_ends_the_attempt() {
    let upstream = Upstream::new(|_, arrival| match arrival.length() {
        0..100 => answer("201 Created", ""),
        _ => Behaviour::Deaf,
    })
    .await;
    let sidecar = Sidecar::with(upstream.address, |config| config.replays = 1).await;
    let (stuck, next) = (ticket(&sidecar).await, ticket(&sidecar).await);
    seal(&stuck, &bytes(24 << 20, 1)).post(&sidecar).await;
    upstream.has(1).await;
    seal(&next, b"waits for its turn").post(&sidecar).await;
    let path = format!("/hoop/uploads/{}", stuck.id);
    let reply = sidecar.send("DELETE", &path, &[("Hoop-Token", &stuck.token)], b"").await;
    assert_eq!((reply.status, reply.field("hoop-state")), (200, Some("stopped")));
    sidecar.reaches(&next.id, "accepted").await;
    sidecar.forgets_bodies().await;
    assert_eq!(upstream.whole().len(), 1);
}

/// Each attempt sends most of the upload to the application, and a pause costs its owner nothing.
#[tokio::test]
async fn an_upload_that_is_paused_in_mid_replay_again_and_again_waits() {
    let upstream = Upstream::new(|_, _| Behaviour::Deaf).await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, &bytes(24 << 20, 1)).post(&sidecar).await;
    upstream.has(1).await;
    let path = format!("/hoop/uploads/{}", ticket.id);
    let fields = [("Hoop-Version", "1"), ("Hoop-Token", ticket.token.as_str()), ("Content-Type", "application/json")];
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    let status = loop {
        for action in ["pause", "resume"] {
            let body = format!("{{\"action\":\"{action}\"}}");
            assert_eq!(sidecar.send("POST", &path, &fields, body.as_bytes()).await.status, 200);
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        let status = sidecar.status(&ticket.id).await;
        if !status["next_attempt"].is_null() {
            break status;
        }
        assert!(tokio::time::Instant::now() < deadline, "after {} requests: {status}", upstream.arrivals().len());
    };
    let attempts = status["attempts"].as_u64().unwrap();
    assert!(attempts >= 8 && upstream.arrivals().len() as u64 <= attempts, "{status}");
}

#[tokio::test]
async fn a_replay_under_way_when_the_service_stops_goes_on_when_it_starts() {
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::Deaf,
        _ => answer("201 Created", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let body = bytes(24 << 20, 2);
    seal(&ticket, &body).post(&sidecar).await;
    upstream.has(1).await;
    let dir = sidecar.stop().await.unwrap();
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |_| {}).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole().len(), 1);
    sidecar.stop().await;
}

#[tokio::test]
async fn one_address_with_a_backlog_leaves_others_their_turn() {
    let upstream = Upstream::new(|_, arrival| match arrival.line().contains("/honest ") {
        true => answer("201 Created", ""),
        false => Behaviour::TakeAndKeep,
    });
    let upstream = upstream.await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        config.replays = 2;
        config.answer_timeout = Duration::from_secs(3);
        config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    });
    let sidecar = sidecar.await;
    let honest = ticket_from(sidecar.address, "203.0.113.9").await;
    let tickets = tickets_from(sidecar.address, "198.51.100.7", 12).await;
    for ticket in &tickets {
        seal(ticket, b"body").is_taken_by(&sidecar).await;
    }
    // The index counts in seconds: this one comes after all of those.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let text = plaintext(&honest, "POST /honest", "", b"body");
    seal_plaintext(&honest, &text).is_taken_by(&sidecar).await;
    sidecar.reaches(&honest.id, "accepted").await;
    let before = upstream.arrivals().iter().position(|arrival| arrival.line().contains("/honest ")).unwrap();
    assert!(before < tickets.len(), "it waited for all {before} that came before");
}
