//! Whose an upload is, and who may do what with it.

use crate::support::device::{Ticket, ask, seal};
use crate::support::upstream::{Arrival, Behaviour, Upstream, answer};
use crate::support::{
    self, Sidecar, device,
    wire::{self, Reply},
};
use hoop_service::Routes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

const ASKED: &str = "[user]\npath = \"/me\"\njson = \"/user/id\"";
const VERSION: (&str, &str) = ("Hoop-Version", "1");

/// What `/me` says: Alice has two sessions, Bob one; the rest is nobody.
fn me(arrival: &Arrival) -> Behaviour {
    match arrival.fields("cookie").first() {
        Some(&("session=alice-1" | "session=alice-2")) => answer("200 OK", r#"{"user":{"id":7}}"#),
        Some(&"session=bob") => answer("200 OK", r#"{"user":{"id":"bob"}}"#),
        Some(&"session=moved") => answer("302 Found\r\nLocation: /me2", ""),
        Some(&"session=page") => answer("200 OK", "<html>"),
        Some(&"session=endless") => {
            answer("200 OK", &format!("{{\"user\":{{\"id\":1}},\"x\":\"{}\"}}", "x".repeat(70_000)))
        }
        _ => answer("401 Unauthorized", "{}"),
    }
}

async fn application() -> Upstream {
    Upstream::new(
        |_, arrival| if arrival.line().starts_with("GET /me ") { me(arrival) } else { answer("201 Created", "") },
    )
    .await
}

async fn before(upstream: &Upstream, routes: &str) -> Sidecar {
    let routes = Routes::parse(routes).unwrap();
    Sidecar::with(upstream.address, |config| config.routes = routes).await
}

async fn tickets(sidecar: &Sidecar, cookie: &str) -> (Ticket, Value) {
    let reply = ask(sidecar.address, cookie, &json!({})).await.json();
    (Ticket::parse(&reply["tickets"][0]), reply["owner"].clone())
}

async fn list(sidecar: &Sidecar, cookie: &str) -> Reply {
    sidecar.send("GET", "/hoop/uploads", &[("Cookie", cookie)], b"").await
}

async fn ids(sidecar: &Sidecar, cookie: &str) -> Vec<String> {
    let list = list(sidecar, cookie).await.json();
    list["uploads"].as_array().unwrap().iter().map(|upload| upload["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_users_list_follows_into_a_new_session_and_is_nobody_elses() {
    let upstream = application().await;
    let sidecar = before(&upstream, ASKED).await;
    let (ticket, owner) = tickets(&sidecar, "session=alice-1").await;
    assert_eq!(owner, tickets(&sidecar, "session=alice-2").await.1);
    assert_ne!(owner, tickets(&sidecar, "session=bob").await.1);
    seal(&ticket, b"hers").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(ids(&sidecar, "session=alice-2").await, std::slice::from_ref(&ticket.id));
    assert!(ids(&sidecar, "session=bob").await.is_empty());
    let listed = list(&sidecar, "session=alice-1").await.json()["uploads"][0].clone();
    assert_eq!(
        (&listed["path"], &listed["paused"], &listed["files"]),
        (&"/upload".into(), &false.into(), &Value::Null)
    );
    let asked = upstream.arrivals().into_iter().find(|arrival| arrival.line() == "GET /me HTTP/1.1").unwrap();
    assert_eq!(asked.fields("accept"), ["application/json"]);
    assert_eq!(asked.fields("host"), ["photos.example"]);
    assert_eq!(asked.fields("x-forwarded-proto"), ["https"]);
}

#[tokio::test]
async fn an_anonymous_owner_is_known_by_the_credentials() {
    let upstream = application().await;
    let sidecar = before(&upstream, ASKED).await;
    let plain = before(&upstream, "").await;
    for cookie in ["session=moved", "session=page", "session=endless", "session=nobody"] {
        let (ticket, owner) = tickets(&sidecar, cookie).await;
        assert_eq!(owner, tickets(&plain, cookie).await.1, "{cookie}");
        seal(&ticket, b"x").post(&sidecar).await;
        sidecar.reaches(&ticket.id, "accepted").await;
        assert_eq!(ids(&sidecar, cookie).await, [ticket.id]);
    }
    assert!(upstream.arrivals().iter().all(|arrival| !arrival.line().contains("/me2")), "no redirect is followed");
    let before = upstream.arrivals().len();
    let nobody = sidecar.send("POST", "/hoop/tickets", &[VERSION, ("Content-Type", "application/json")], b"").await;
    assert_eq!(nobody.status, 400, "an empty body is no request for tickets");
    let nobody = sidecar.send("POST", "/hoop/tickets", &[VERSION, ("Content-Type", "application/json")], b"{}").await;
    assert_eq!(nobody.json()["owner"], Value::Null);
    assert_eq!(upstream.arrivals().len(), before, "of nobody nothing is asked");
}

#[tokio::test]
async fn a_signed_out_client_gets_no_ticket_where_users_are_required() {
    let upstream = application().await;
    let asked = before(&upstream, &format!("{ASKED}\nrequired = true")).await;
    let refused = (401, "sign-in-required".to_owned());
    let wanted = |sidecar, cookie| async move { ask(sidecar, cookie, &json!({})).await };
    assert_eq!(wanted(asked.address, "session=alice-1").await.status, 200);
    assert_eq!(wanted(asked.address, "session=over").await.problem(), refused, "a cookie of a session that is over");
    let nobody = asked.send("POST", "/hoop/tickets", &[VERSION, ("Content-Type", "application/json")], b"{}").await;
    assert_eq!(nobody.problem(), refused);
    let named = before(&upstream, "[user]\ncookies = [\"session\"]\nrequired = true").await;
    assert_eq!(wanted(named.address, "session=1").await.status, 200, "any session, where nobody can be asked");
    assert_eq!(wanted(named.address, "theme=dark").await.problem(), refused);
}

#[tokio::test]
async fn only_the_named_cookies_make_the_user() {
    let upstream = application().await;
    let sidecar = before(&upstream, "[user]\ncookies = [\"session\"]").await;
    let (ticket, owner) = tickets(&sidecar, "theme=dark; session=1").await;
    seal(&ticket, b"x").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(ids(&sidecar, "session=1; theme=light").await, [ticket.id]);
    assert_eq!(tickets(&sidecar, "session=1").await.1, owner);
    assert_eq!(tickets(&sidecar, "theme=dark").await.1, Value::Null);
    assert_eq!(list(&sidecar, "theme=dark").await.problem(), (401, "sign-in-required".into()));
}

#[tokio::test]
async fn tickets_need_no_application_and_lists_say_when_it_cannot_be_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let routes = Routes::parse(ASKED).unwrap();
    let sidecar = Sidecar::with(address, |config| config.routes = routes).await;
    let (ticket, owner) = tickets(&sidecar, "session=alice-1").await;
    assert!(owner.is_string());
    assert_eq!(list(&sidecar, "session=alice-1").await.problem(), (502, "upstream-unreachable".into()));
    let settings = sidecar.send("GET", "/hoop/settings", &[("Cookie", "session=alice-1")], b"").await;
    assert_eq!(settings.problem(), (502, "upstream-unreachable".into()));
    let fields = [("Hoop-Token", ticket.token.as_str()), ("Cookie", "session=alice-1")];
    let path = format!("/hoop/uploads/{}", ticket.id);
    assert_eq!(sidecar.send("DELETE", &path, &fields, b"").await.status, 204, "with T it can be stopped all the same");
    // What was begun while nobody could be asked is found by the credentials, once somebody can be.
    let (ticket, _) = tickets(&sidecar, "session=alice-1").await;
    seal(&ticket, b"x").post(&sidecar).await;
    let _upstream = Upstream::on(TcpListener::bind(address).await.unwrap(), |_, arrival| me(arrival));
    assert_eq!(ids(&sidecar, "session=alice-1").await, [ticket.id]);
}

#[tokio::test]
async fn a_token_does_not_release_an_upload_as_another_user() {
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let upstream = Upstream::new(move |_, arrival| match arrival.line().starts_with("GET /me ") {
        true if is_over.load(Ordering::Relaxed) && arrival.fields("cookie") == ["session=alice-1"] => {
            answer("401 No", "")
        }
        true => me(arrival),
        false if arrival.fields("cookie") == ["session=alice-1"] => answer("401 No", ""),
        false => answer("201 Created", ""),
    })
    .await;
    let sidecar = before(&upstream, ASKED).await;
    let (ticket, _) = tickets(&sidecar, "session=alice-1").await;
    over.store(true, Ordering::Relaxed);
    seal(&ticket, b"hers").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "held").await;
    let path = format!("/hoop/uploads/{}", ticket.id);
    let token = ("Hoop-Token", ticket.token.as_str());
    for action in [&b""[..], b"{\"action\":\"pause\"}", b"{\"action\":\"stop\"}"] {
        let bob = sidecar.send("POST", &path, &[VERSION, token, ("Cookie", "session=bob")], action).await;
        assert_eq!(bob.problem(), (403, "not-owner".into()));
    }
    assert_eq!(sidecar.status(&ticket.id).await["state"], "held");
    let alice = sidecar.send("POST", &path, &[VERSION, ("Cookie", "session=alice-2")], b"").await;
    assert_eq!(alice.status, 200, "she needs no token: {alice:?}");
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole().last().unwrap().fields("cookie"), ["session=alice-2"]);
}

#[tokio::test]
async fn anonymous_uploads_take_no_room_of_named_users() {
    let upstream = application().await;
    let sidecar = before(&upstream, ASKED).await;
    let path = |ticket: &Ticket| format!("/hoop/uploads/{}", ticket.id);
    let note = async |ticket: &Ticket| {
        let fields = [VERSION, ("Hoop-Token", ticket.token.as_str())];
        sidecar.send("PUT", &path(ticket), &fields, b"{\"total\":9}").await
    };
    let stream = async |cookie| {
        let fields = [("Cookie", cookie), ("Accept", "text/event-stream")];
        let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
        stream.write_all(&support::wire::request("GET", "/hoop/uploads", &fields, b"")).await.unwrap();
        String::from_utf8(support::wire::read_until(&mut stream, b"\r\n").await).unwrap()
    };
    let settings = async |method: &str, cookie| {
        let body: &[u8] = if method == "PUT" { b"{\"policy\":\"never\"}" } else { b"" };
        sidecar.send(method, "/hoop/settings", &[VERSION, ("Cookie", cookie)], body).await
    };
    let sign_in = (401, "sign-in-required".to_owned());
    let made_up = "session=made-up";
    let (anonymous, _) = tickets(&sidecar, made_up).await;
    assert_eq!(note(&anonymous).await.problem(), sign_in);
    assert_eq!(stream(made_up).await, "HTTP/1.1 401 Unauthorized\r\n");
    assert_eq!(settings("PUT", made_up).await.problem(), sign_in);
    let defaults = settings("GET", made_up).await;
    let nothing = json!({"policy": "ask", "min_bytes": 0, "types": {}, "saved": false, "owner": null});
    assert_eq!((defaults.status, defaults.json()), (200, nothing), "a page must learn that nothing is saved");
    // What they hand over goes on, and they can stop it.
    seal(&anonymous, b"theirs").post(&sidecar).await;
    sidecar.reaches(&anonymous.id, "accepted").await;
    let (stopped, _) = tickets(&sidecar, made_up).await;
    let token = [("Hoop-Token", stopped.token.as_str())];
    assert_eq!(sidecar.send("DELETE", &path(&stopped), &token, b"").await.status, 204);
    // Whom it knows is served.
    let (hers, _) = tickets(&sidecar, "session=alice-1").await;
    assert_eq!(note(&hers).await.status, 204);
    assert_eq!(stream("session=alice-1").await, "HTTP/1.1 200 OK\r\n");
    assert_eq!(settings("PUT", "session=alice-1").await.json()["saved"], true);
    assert!(settings("GET", "session=alice-2").await.json()["owner"].is_string());
}

#[tokio::test]
async fn every_document_says_that_it_is_what_it_says() {
    let upstream = application().await;
    let sidecar = before(&upstream, ASKED).await;
    for path in ["/.well-known/hoop", "/hoop/settings", "/hoop/uploads", "/hoop/nothing"] {
        let reply = sidecar.send("GET", path, &[], b"").await;
        assert_eq!(reply.field("x-content-type-options"), Some("nosniff"), "{path}");
    }
}

/// Otherwise its owner is told that it has stopped, and its sender that it was received.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_upload_that_is_stopped_as_it_comes_is_stopped_for_good() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.tickets_per_minute = 10_000).await;
    let mut races = tokio::task::JoinSet::new();
    for n in 0..400_u64 {
        let ticket = device::ticket(&sidecar).await;
        let (at, sealed) = (sidecar.address, device::seal(&ticket, b"short"));
        races.spawn(async move {
            let path = format!("/hoop/uploads/{}", ticket.id);
            let stop = async {
                tokio::time::sleep(std::time::Duration::from_millis(n % 5)).await;
                wire::send(at, "DELETE", &path, &[("Hoop-Token", &ticket.token)], b"").await.status
            };
            let post = wire::send(at, "POST", "/hoop/post", &[], &sealed.z);
            (sealed.id.clone(), tokio::join!(stop, post).0)
        });
    }
    let mut stopped = 0;
    for (id, status) in races.join_all().await {
        if status < 300 {
            let state = sidecar.send("HEAD", &format!("/hoop/post/{id}"), &[], b"").await;
            let state = state.field("hoop-state").map(str::to_owned);
            assert!(state.is_none() || state.as_deref() == Some("stopped"), "{id}: {status}, {state:?}");
            stopped += 1;
        }
    }
    assert!(stopped > 0);
    sidecar.forgets_bodies().await;
}
