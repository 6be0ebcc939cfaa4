//! What an answer of the application means for its upload, and what its owner can still do about it.

use crate::support::device::{Ticket, seal, ticket};
use crate::support::upstream::{Behaviour, Upstream, answer};
use crate::support::{COOKIE, Sidecar, bytes, wire::Reply};
use hoop_service::Routes;

const VERSION: (&str, &str) = ("Hoop-Version", "1");

/// What the owner does, as the user who fetched the ticket.
async fn act(sidecar: &Sidecar, ticket: &Ticket, action: &str) -> Reply {
    let path = format!("/hoop/uploads/{}", ticket.id);
    sidecar.send("POST", &path, &[VERSION, ("Cookie", COOKIE)], action.as_bytes()).await
}

#[tokio::test]
async fn an_application_that_fails_is_asked_again_and_then_it_is_held() {
    for status in ["500 Internal Server Error", "501 Not Implemented", "507 Insufficient Storage"] {
        let upstream = Upstream::new(move |_, _| answer(status, "why")).await;
        let sidecar = Sidecar::before(upstream.address).await;
        let ticket = ticket(&sidecar).await;
        seal(&ticket, b"x").post(&sidecar).await;
        let held = sidecar.reaches(&ticket.id, "held").await;
        assert_eq!((&held["reason"]["code"], &held["attempts"]), (&"upstream-failed".into(), &4.into()), "{held}");
        assert_eq!(upstream.whole().len(), 4, "{status}");
        assert_eq!(sidecar.bodies(), std::slice::from_ref(&ticket.id));
    }
}

#[tokio::test]
async fn an_application_that_is_well_again_gets_what_it_failed_at() {
    let upstream = Upstream::new(|number, _| match number {
        0..2 => answer("500 Internal Server Error", ""),
        _ => answer("201 Created", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"x").post(&sidecar).await;
    let status = sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!((&status["attempts"], upstream.whole().len()), (&3.into(), 3));
}

#[tokio::test]
async fn a_route_that_holds_on_failure_holds_at_the_first() {
    let upstream = Upstream::new(|_, _| answer("500 Internal Server Error", "")).await;
    let routes = Routes::parse("[[route]]\npath = \"/upload\"\non_failure = \"hold\"").unwrap();
    let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"x").post(&sidecar).await;
    assert_eq!(sidecar.reaches(&ticket.id, "held").await["reason"]["code"], "upstream-failed");
    assert_eq!(upstream.arrivals().len(), 1);
}

/// Before the gate an application cannot have stored anything.
#[tokio::test]
async fn a_failure_before_all_was_sent_is_tried_again_on_every_route() {
    let failed = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::Early(0, failed.to_vec()),
        _ => answer("201 Created", ""),
    })
    .await;
    let routes = Routes::parse("[[route]]\npath = \"/upload\"\non_failure = \"hold\"").unwrap();
    let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, &bytes(12_000_000, 5)).post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
}

#[tokio::test]
async fn a_rejected_upload_is_kept_and_may_be_released() {
    let upstream = Upstream::new(|number, _| match number {
        0 => answer("403 Forbidden", "no"),
        _ => answer("201 Created", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, b"again");
    sealed.post(&sidecar).await;
    let rejected = sidecar.reaches(&ticket.id, "rejected").await;
    let kept = rejected["kept_until"].as_u64().unwrap() - rejected["updated"].as_u64().unwrap();
    assert_eq!((kept, sidecar.bodies()), (7 * 24 * 3600, vec![ticket.id.clone()]));
    assert_eq!(sealed.post(&sidecar).await.status, 200, "to whoever carries it, that is final");
    let path = format!("/hoop/uploads/{}", ticket.id);
    let stranger = sidecar.send("POST", &path, &[VERSION, ("Cookie", "session=mallory")], b"").await;
    assert_eq!(stranger.problem(), (403, "not-owner".into()));
    assert_eq!(act(&sidecar, &ticket, "").await.field("hoop-state"), Some("received"));
    let accepted = sidecar.reaches(&ticket.id, "accepted").await;
    assert!(accepted["kept_until"].is_null() && accepted["receipt"] != rejected["receipt"]);
    sidecar.forgets_bodies().await;
    assert_eq!(upstream.whole().len(), 2);
}

#[tokio::test]
async fn a_kept_upload_goes_when_stopped_or_when_others_need_the_room() {
    let upstream = Upstream::new(|_, _| answer("403 Forbidden", "no")).await;
    let sidecar = Sidecar::with(upstream.address, |config| config.max_stored_bytes = 500_000).await;
    let mut rejected = Vec::new();
    for n in 0..3 {
        let ticket = ticket(&sidecar).await;
        seal(&ticket, &bytes(200_000, n)).is_taken_by(&sidecar).await;
        sidecar.reaches(&ticket.id, "rejected").await;
        rejected.push(ticket);
    }
    // Times are whole seconds, so that any of the first two may count as the longest kept.
    let gone = rejected.iter().position(|ticket| !sidecar.bodies().contains(&ticket.id)).expect("one has made way");
    assert!(gone < 2 && sidecar.bodies().len() == 2, "{gone}");
    let gone = rejected.remove(gone);
    assert_eq!(act(&sidecar, &gone, "").await.field("hoop-state"), Some("rejected"), "there is nothing to hand over");
    for ticket in &rejected {
        let stopped = act(&sidecar, ticket, "{\"action\":\"stop\"}").await;
        assert_eq!((stopped.status, stopped.field("hoop-state")), (200, Some("rejected")));
        assert!(stopped.json()["kept_until"].is_null());
    }
    sidecar.forgets_bodies().await;
    assert_eq!(act(&sidecar, &rejected[0], "{\"action\":\"stop\"}").await.problem(), (409, "upload-done".into()));
}

#[tokio::test]
async fn an_unknown_upload_goes_again_only_if_its_owner_takes_the_risk() {
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::TakeAndClose,
        _ => answer("201 Created", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    seal(&ticket, b"perhaps").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "unknown").await;
    assert_eq!(act(&sidecar, &ticket, "").await.problem(), (409, "twice-possible".into()));
    assert_eq!(act(&sidecar, &ticket, "{\"risk\":\"none\"}").await.problem(), (400, "request-invalid".into()));
    assert_eq!(upstream.arrivals().len(), 1);
    assert_eq!(act(&sidecar, &ticket, "{\"action\":\"release\",\"risk\":\"twice\"}").await.status, 200);
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole().len(), 2);
}

#[tokio::test]
async fn only_a_session_that_had_gone_is_said_to_have_gone() {
    for (reply, preset, code) in [
        ("401 Unauthorized", "generic", "sign-in-required"),
        ("302 Found\r\nLocation: /session/new", "generic", "sign-in-required"),
        ("302 Found\r\nLocation: https://id.example/authorize", "generic", "sign-in-required"),
        ("403 Forbidden", "django", "form-token-refused"),
        ("403 Forbidden", "copyparty", "not-permitted"),
    ] {
        let upstream = Upstream::new(move |_, _| answer(reply, "CSRF verification failed.")).await;
        let routes = Routes::parse(&format!("[[route]]\npath = \"/\"\npreset = \"{preset}\"")).unwrap();
        let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
        let ticket = ticket(&sidecar).await;
        seal(&ticket, b"held").post(&sidecar).await;
        assert_eq!(sidecar.reaches(&ticket.id, "held").await["reason"]["code"], code, "{preset}: {reply}");
    }
}
