//! What its owner releases goes with the form's token of the new session.

use crate::support::device::{Ticket, plaintext, seal_plaintext, ticket};
use crate::support::upstream::{Arrival, Behaviour, Upstream, answer};
use crate::support::{Sidecar, bytes, wire::Reply};
use hoop_service::Routes;
use ring::digest;

const VERSION: (&str, &str) = ("Hoop-Version", "1");
const NEW: &str = "session=new";

/// An application whose form has a token that belongs to the session.
fn application(arrival: &Arrival) -> Behaviour {
    let new = arrival.fields("cookie").first().is_some_and(|cookie| cookie.starts_with(NEW));
    let is_get = arrival.line().starts_with("GET ");
    match (is_get, new) {
        (_, false) => answer("302 Found\r\nLocation: /login", ""),
        (true, true) => answer(
            "200 OK\r\nContent-Type: text/html\r\nSet-Cookie: pair=of-the-page; Path=/",
            "<form><input type=hidden name=token value=\"fresh&amp;longer-than-before\"></form>",
        ),
        (false, true) => answer("201 Created", ""),
    }
}

async fn before(upstream: &Upstream, csrf: &str) -> Sidecar {
    let routes = Routes::parse(&format!("[[route]]\npath = \"/\"\n[[route.csrf]]\n{csrf}")).unwrap();
    Sidecar::with(upstream.address, |config| config.routes = routes).await
}

async fn release(sidecar: &Sidecar, ticket: &Ticket, cookie: &str) -> Reply {
    let fields = [VERSION, ("Hoop-Token", ticket.token.as_str()), ("Cookie", cookie)];
    sidecar.send("POST", &format!("/hoop/uploads/{}", ticket.id), &fields, b"").await
}

fn part(more: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("--XX\r\nContent-Disposition: form-data; {more}\r\n\r\n");
    [head.as_bytes(), value, b"\r\n"].concat()
}

/// A form with a file of so many bytes and the token before or after it.
fn form(file: usize, token_first: bool, token: &str) -> Vec<u8> {
    let token = part("name=\"token\"", token.as_bytes());
    let file = part("name=\"f\"; filename=\"a\"", &bytes(file, 9));
    let parts = if token_first { [token, file] } else { [file, token] };
    [parts.concat(), b"--XX--\r\n".to_vec()].concat()
}

async fn post(sidecar: &Sidecar, ticket: &Ticket, media: &str, body: &[u8]) {
    let text = plaintext(ticket, "POST /up?album=1", "X-CSRFToken: old\r\n", body);
    let text = String::from_utf8_lossy(&text[..200]).find("application/octet-stream").map_or(text.clone(), |at| {
        [&text[..at], media.as_bytes(), &text[at + "application/octet-stream".len()..]].concat()
    });
    seal_plaintext(ticket, &text).is_taken_by(sidecar).await;
}

#[tokio::test]
async fn a_release_replays_the_form_with_the_fresh_token() {
    let record = 65_519;
    let multipart = "multipart/form-data; boundary=XX";
    for (file, first) in [(10, true), (10, false), (8 * record, true), (8 * record, false), (30 * record, false)] {
        let upstream = Upstream::new(|_, arrival| application(arrival)).await;
        let sidecar = before(&upstream, "field = \"token\"\ninput = \"token\"").await;
        let ticket = ticket(&sidecar).await;
        post(&sidecar, &ticket, multipart, &form(file, first, "old")).await;
        sidecar.reaches(&ticket.id, "held").await;
        assert_eq!(upstream.arrivals().len(), 1, "what goes for the first time is as the page wrote it");
        release(&sidecar, &ticket, NEW).await;
        let status = sidecar.reaches(&ticket.id, "accepted").await;
        let arrivals = upstream.arrivals();
        assert!(arrivals[1].line().starts_with("GET /up?album=1 "), "{}", arrivals[1].line());
        let sent = form(file, first, "fresh&longer-than-before");
        assert!(arrivals[2].whole && arrivals[2].body == sent, "{file} bytes, first: {first}");
        assert_eq!(arrivals[2].length(), sent.len());
        assert_eq!(arrivals[2].fields("cookie"), ["session=new; pair=of-the-page"]);
        assert_eq!(arrivals.len(), 3, "accepted exactly once");
        // The receipt is over the body that the application was sent.
        let receipt = crate::support::device::decode(&status["receipt"]);
        let sum = digest::digest(&digest::SHA256, &sent);
        assert!(receipt.windows(32).any(|window| window == sum.as_ref()));
    }
}

#[tokio::test]
async fn a_token_in_a_header_comes_from_the_new_sessions_cookie() {
    let upstream = Upstream::new(|_, arrival| match arrival.fields("x-csrftoken")[..] {
        ["of=new"] => answer("201 Created", ""),
        _ => answer("403 Forbidden", "CSRF"),
    })
    .await;
    let sidecar = before(&upstream, "header = \"X-CSRFToken\"\ncookie = \"csrftoken\"").await;
    let ticket = ticket(&sidecar).await;
    post(&sidecar, &ticket, "application/json", b"{}").await;
    sidecar.reaches(&ticket.id, "rejected").await;
    release(&sidecar, &ticket, "a=1; csrftoken=of%3Dnew").await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.arrivals().len(), 2, "nothing else was asked for");
}

#[tokio::test]
async fn without_a_fresh_token_nothing_is_sent_and_the_reason_says_why() {
    let page = "field = \"token\"\ninput = \"other\"";
    for (csrf, cookie, code, words) in [
        (page, NEW, "form-token-refused", "no fresh token for the form was found at /up"),
        (page, "session=old", "sign-in-required", "asked for a fresh token, it answered 302"),
        ("field = \"token\"\ncookie = \"c\"", NEW, "form-token-refused", "in the cookie `c`"),
    ] {
        let upstream = Upstream::new(|_, arrival| application(arrival)).await;
        let sidecar = before(&upstream, csrf).await;
        let ticket = ticket(&sidecar).await;
        post(&sidecar, &ticket, "multipart/form-data; boundary=XX", &form(10, true, "old")).await;
        sidecar.reaches(&ticket.id, "held").await;
        release(&sidecar, &ticket, cookie).await;
        let deadline = tokio::time::Instant::now() + crate::support::PATIENCE;
        let held = loop {
            let held = sidecar.reaches(&ticket.id, "held").await;
            if held["attempts"] == 2 {
                break held;
            }
            assert!(tokio::time::Instant::now() < deadline, "{held}");
        };
        let said = held["reason"]["detail"].as_str().unwrap();
        assert_eq!((held["reason"]["code"].as_str(), said.contains(words)), (Some(code), true), "{held}");
        assert_eq!(upstream.arrivals().iter().filter(|arrival| arrival.line().starts_with("POST")).count(), 1);
    }
}

#[tokio::test]
async fn a_refused_token_that_was_not_found_in_the_form_is_told() {
    let upstream = Upstream::new(|_, _| answer("403 Forbidden", "CSRF verification failed")).await;
    let routes = Routes::parse("[[route]]\npath = \"/\"\npreset = \"django\"").unwrap();
    let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
    let ticket = ticket(&sidecar).await;
    let text = plaintext(&ticket, "POST /up", "", b"no form");
    seal_plaintext(&ticket, &text).post(&sidecar).await;
    sidecar.reaches(&ticket.id, "held").await;
    release(&sidecar, &ticket, NEW).await;
    let deadline = tokio::time::Instant::now() + crate::support::PATIENCE;
    loop {
        let held = sidecar.reaches(&ticket.id, "held").await;
        if held["reason"]["detail"].as_str().unwrap().contains("no token's field was found") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{held}");
    }
}
