//! Sessions whose uploads are under way are kept alive, as far as the operator says how.

use crate::support::device::{seal, ticket};
use crate::support::upstream::{Upstream, answer};
use crate::support::{COOKIE, PATIENCE, Sidecar, bytes};
use hoop_http::Clock;
use hoop_service::Routes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

#[tokio::test]
async fn a_session_is_kept_alive_during_its_upload_until_it_has_gone() {
    let signed_out = Arc::new(AtomicBool::new(false));
    let says = signed_out.clone();
    let upstream = Upstream::new(move |_, arrival| match arrival.line().starts_with("GET /me ") {
        true if says.load(Ordering::SeqCst) => answer("302 Found\r\nLocation: /login", ""),
        true => answer("200 OK", "{}"),
        false => answer("201 Created", "{}"),
    })
    .await;
    let ahead = Arc::new(AtomicU64::new(0));
    let seconds = ahead.clone();
    let clock = Clock::with_wall(move || SystemTime::now() + Duration::from_secs(seconds.load(Ordering::SeqCst)));
    let sidecar = Sidecar::with(upstream.address, |config| {
        config.clock = clock;
        config.keep_alive_round = Duration::from_millis(5);
        config.routes = Routes::parse("[session]\nkeep_alive = \"/me\"\nevery_minutes = 10").unwrap();
    })
    .await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(300_000, 1));
    assert_eq!(sealed.put(sidecar.address, sealed.records(0, 2)).await.status, 202);
    let asked = || upstream.arrivals().iter().filter(|arrival| arrival.line().starts_with("GET /me ")).count();
    // A round takes some milliseconds; the clock jumps until one has asked.
    let next = async |count: usize| {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while asked() < count {
            ahead.fetch_add(60, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(tokio::time::Instant::now() < deadline, "never asked {count} times");
        }
    };
    next(2).await;
    let question = upstream.arrivals().into_iter().find(|arrival| arrival.line().starts_with("GET /me ")).unwrap();
    assert_eq!(question.fields("cookie"), [COOKIE], "as the user");
    signed_out.store(true, Ordering::SeqCst);
    let before = asked();
    next(before + 1).await;
    let known = asked();
    for _ in 0..30 {
        ahead.fetch_add(60, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(asked(), known, "whoever has signed out is left alone");
    let rest = sealed.records(2, sealed.layout.records());
    assert!(sealed.put(sidecar.address, rest).await.status < 300);
    sidecar.reaches(&ticket.id, "accepted").await;
}
