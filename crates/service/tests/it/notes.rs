//! Notes of uploads that are on their way, and pausing and stopping them.

use crate::support::device::{Sealed, Ticket, seal, ticket};
use crate::support::upstream::{Behaviour, Upstream, answer};
use crate::support::{COOKIE, ORIGIN, PATIENCE, Sidecar, bytes, wire};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const VERSION: (&str, &str) = ("Hoop-Version", "1");
const OWNER: (&str, &str) = ("Cookie", COOKIE);

async fn note(sidecar: &Sidecar, ticket: &Ticket, note: &Value) -> wire::Reply {
    let fields = [VERSION, ("Hoop-Token", ticket.token.as_str())];
    sidecar.send("PUT", &format!("/hoop/uploads/{}", ticket.id), &fields, note.to_string().as_bytes()).await
}

async fn act(sidecar: &Sidecar, id: &str, action: &str) -> wire::Reply {
    let body = json!({"action": action}).to_string();
    sidecar.send("POST", &format!("/hoop/uploads/{id}"), &[VERSION, OWNER], body.as_bytes()).await
}

async fn list(sidecar: &Sidecar, cookie: &str) -> Vec<Value> {
    let list = sidecar.send("GET", "/hoop/uploads", &[("Cookie", cookie)], b"").await.json();
    list["uploads"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_noted_upload_is_in_its_owners_list_before_anything_of_it_has_come() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, b"picture");
    let monitor = "http://hoop.local:4667/monitor?ID=1";
    let files = json!([{"name": "a.jpg", "size": 7, "type": "image/jpeg"}]);
    let told = json!({"total": sealed.z.len(), "files": files, "caption": "At the lake", "monitor": monitor});
    assert_eq!(note(&sidecar, &ticket, &told).await.status, 204);
    let [entry] = &list(&sidecar, COOKIE).await[..] else { panic!("one") };
    assert_eq!(
        (&entry["state"], &entry["total"], &entry["received"]),
        (&"announced".into(), &sealed.z.len().into(), &0.into())
    );
    assert_eq!(
        (&entry["files"], &entry["caption"], &entry["monitor"]),
        (&files, &"At the lake".into(), &monitor.into())
    );
    assert!(list(&sidecar, "session=mallory").await.is_empty());
    let status = sidecar.status(&ticket.id).await;
    assert_eq!((&status["state"], status.get("caption")), (&"announced".into(), None), "the id alone shows no note");
    sealed.post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let [entry] = &list(&sidecar, COOKIE).await[..] else { panic!("still one") };
    assert_eq!((&entry["state"], &entry["caption"]), (&"accepted".into(), &"At the lake".into()));
}

#[tokio::test]
async fn a_note_needs_the_token_of_its_upload_and_to_make_sense() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let [own, other] = [ticket(&sidecar).await, ticket(&sidecar).await];
    let path = format!("/hoop/uploads/{}", own.id);
    let put = async |fields: &[(&str, &str)], body: &[u8]| sidecar.send("PUT", &path, fields, body).await;
    let token = ("Hoop-Token", own.token.as_str());
    let good = b"{\"total\":1}";
    assert_eq!(put(&[VERSION, OWNER], good).await.problem(), (403, "token-invalid".into()));
    assert_eq!(put(&[VERSION, ("Hoop-Token", "!")], good).await.problem(), (403, "token-invalid".into()));
    assert_eq!(put(&[VERSION, ("Hoop-Token", &other.token)], good).await.problem(), (403, "token-mismatch".into()));
    assert_eq!(put(&[token], good).await.problem(), (400, "request-invalid".into()), "no version");
    let page = [VERSION, token, ("Origin", "https://evil.example")];
    assert_eq!(put(&page, good).await.problem(), (403, "origin-forbidden".into()));
    for bad in [&b"{}"[..], b"[1]", b"{\"total\":1,\"monitor\":\"javascript:x\"}", &[b' '; 70_000]] {
        assert_eq!(put(&[VERSION, token], bad).await.problem(), (400, "request-invalid".into()));
    }
    assert!(list(&sidecar, COOKIE).await.is_empty());
}

#[tokio::test]
async fn an_upload_stopped_before_it_came_is_refused() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let [by_token, by_owner] = [ticket(&sidecar).await, ticket(&sidecar).await];
    let path = |ticket: &Ticket| format!("/hoop/uploads/{}", ticket.id);
    assert_eq!(sidecar.send("DELETE", &path(&by_token), &[OWNER], b"").await.problem(), (404, "upload-unknown".into()));
    let token = ("Hoop-Token", by_token.token.as_str());
    assert_eq!(sidecar.send("DELETE", &path(&by_token), &[token], b"").await.status, 204);
    note(&sidecar, &by_owner, &json!({"total": 9})).await;
    assert_eq!(sidecar.send("DELETE", &path(&by_owner), &[OWNER], b"").await.status, 204, "the note tells whose it is");
    assert_eq!(list(&sidecar, COOKIE).await[0]["state"], "stopped");
    for ticket in [&by_token, &by_owner] {
        let reply = seal(ticket, b"too late").post(&sidecar).await;
        assert_eq!((reply.problem(), reply.field("hoop-state")), ((410, "upload-stopped".into()), Some("stopped")));
        assert_eq!(note(&sidecar, ticket, &json!({"total": 9})).await.problem(), (410, "upload-stopped".into()));
        assert_eq!(sidecar.status(&ticket.id).await["state"], "stopped");
    }
    assert!(sidecar.bodies().is_empty() && upstream.arrivals().is_empty());
}

#[tokio::test]
async fn a_paused_upload_keeps_its_bytes_and_takes_none_until_resumed() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(200_000, 1));
    assert_eq!(sealed.put(sidecar.address, sealed.records(0, 2)).await.status, 202);
    let paused = act(&sidecar, &ticket.id, "pause").await;
    assert_eq!((paused.status, &paused.json()["reason"]["code"]), (200, &"upload-paused".into()));
    assert_eq!(list(&sidecar, COOKIE).await[0]["paused"], true);
    let rest = sealed.records(2, sealed.layout.records());
    let refused = sealed.put(sidecar.address, rest).await;
    assert_eq!(refused.problem(), (423, "upload-paused".into()));
    let wait = refused.field("retry-after").and_then(|secs| secs.parse::<u64>().ok());
    assert!(wait.is_some_and(|secs| (4..=8).contains(&secs)), "soon at first: {wait:?}");
    assert_eq!(refused.field("hoop-state"), Some("receiving"));
    assert_eq!(refused.field("hoop-missing").unwrap(), rest.to_string());
    let temporary = sidecar.stop().await.unwrap();
    let sidecar = Sidecar::on(upstream.address, temporary.path().to_owned(), |_| {}).await;
    assert_eq!(sealed.put(sidecar.address, rest).await.status, 423, "a pause outlives a restart");
    assert_eq!(act(&sidecar, &ticket.id, "resume").await.json()["reason"], Value::Null);
    sealed.put(sidecar.address, rest).await.is_taken();
    sidecar.reaches(&ticket.id, "accepted").await;
}

#[tokio::test]
async fn a_wait_for_an_announced_upload_ends_with_its_delivery() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, b"picture");
    assert_eq!(note(&sidecar, &ticket, &json!({"total": sealed.z.len()})).await.status, 204);
    let path = format!("/hoop/uploads/{}", ticket.id);
    let (told, _) = tokio::join!(sidecar.send("GET", &path, &[("Prefer", "wait=30")], b""), sealed.post(&sidecar));
    assert_eq!(told.json()["state"], "accepted");
}

#[tokio::test]
async fn an_announced_upload_can_be_paused_and_comes_once_it_is_resumed() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, b"later");
    note(&sidecar, &ticket, &json!({"total": sealed.z.len()})).await;
    let paused = act(&sidecar, &ticket.id, "pause").await.json();
    assert_eq!((&paused["state"], &paused["reason"]["code"]), (&"announced".into(), &"upload-paused".into()));
    assert_eq!(sealed.post(&sidecar).await.problem(), (423, "upload-paused".into()));
    act(&sidecar, &ticket.id, "resume").await;
    sealed.is_taken_by(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
}

#[tokio::test]
async fn a_paused_upload_is_not_handed_to_the_application() {
    let busy = Arc::new(AtomicBool::new(true));
    let now = busy.clone();
    let upstream = Upstream::new(move |_, _| match now.load(Ordering::Relaxed) {
        true => answer("503 Service Unavailable", ""),
        false => answer("201 Created", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let waiting = ticket(&sidecar).await;
    seal(&waiting, b"first").post(&sidecar).await;
    upstream.has(1).await;
    assert_eq!(act(&sidecar, &waiting.id, "pause").await.status, 200);
    sidecar.reaches(&waiting.id, "received").await;
    busy.store(false, Ordering::Relaxed);
    // One that comes after it is handed over, although that one is due.
    let other = ticket(&sidecar).await;
    seal(&other, b"second").post(&sidecar).await;
    sidecar.reaches(&other.id, "accepted").await;
    assert_eq!(sidecar.status(&waiting.id).await["reason"]["code"], "upload-paused");
    act(&sidecar, &waiting.id, "resume").await;
    sidecar.reaches(&waiting.id, "accepted").await;
    assert_eq!(upstream.whole().last().unwrap().body, b"first");
}

#[tokio::test]
async fn a_replay_before_its_gate_ends_when_its_upload_is_paused() {
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::Deaf,
        _ => answer("201 Created", ""),
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    // More than sockets hold.
    seal(&ticket, &bytes(16 << 20, 7)).post(&sidecar).await;
    upstream.has(1).await;
    act(&sidecar, &ticket.id, "pause").await;
    assert_eq!(sidecar.status(&ticket.id).await["state"], "received");
    act(&sidecar, &ticket.id, "resume").await;
    let status = sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!((upstream.arrivals().len(), upstream.whole().len()), (2, 1));
    assert_eq!(status["attempts"], 2, "the application was sent most of it");
}

/// A message that has brought its first records, as the list shows, and waits.
async fn under_way(sidecar: &Sidecar, sealed: &Sealed) -> (TcpStream, Vec<u8>) {
    let request = sealed.put_request(sealed.records(0, sealed.layout.records()));
    let begun = request.len() - sealed.z.len() + sealed.layout.record(8).start as usize;
    let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
    stream.write_all(&request[..begun]).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // Records are taken four at least at a time.
    let wanted = sealed.layout.record(4).start;
    while list(sidecar, COOKIE).await.first().and_then(|entry| entry["received"].as_u64()) < Some(wanted) {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", list(sidecar, COOKIE).await);
    }
    (stream, request[begun..].to_vec())
}

async fn answer_to(stream: &mut TcpStream, rest: &[u8]) -> wire::Reply {
    stream.write_all(rest).await.unwrap();
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    tokio::time::timeout(PATIENCE, reading).await.expect("an answer comes").unwrap();
    wire::Reply::parse(&bytes)
}

#[tokio::test]
async fn a_message_under_way_ends_when_its_upload_is_paused_or_stopped() {
    let upstream = Upstream::willing().await;
    for (action, status, code) in [("pause", 423, "upload-paused"), ("stop", 410, "upload-stopped")] {
        let sidecar = Sidecar::before(upstream.address).await;
        let sealed = seal(&ticket(&sidecar).await, &bytes(2 << 20, 1));
        let (mut stream, rest) = under_way(&sidecar, &sealed).await;
        assert_eq!(act(&sidecar, &sealed.id, action).await.status, 200);
        let reply = answer_to(&mut stream, &rest).await;
        assert_eq!(reply.problem(), (status, code.into()));
        if action == "stop" {
            sidecar.forgets_bodies().await;
            continue;
        }
        let kept = list(&sidecar, COOKIE).await[0]["received"].as_u64().unwrap();
        assert!(kept >= sealed.layout.record(4).start && kept < sealed.z.len() as u64, "{kept} are kept");
        act(&sidecar, &sealed.id, "resume").await;
        sealed.is_taken_by(&sidecar).await;
        sidecar.reaches(&sealed.id, "accepted").await;
    }
}

#[tokio::test]
async fn a_page_without_script_acts_by_a_form_of_the_services_own_origin() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    note(&sidecar, &ticket, &json!({"total": 9})).await;
    let path = format!("/hoop/uploads/{}", ticket.id);
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let post = async |fields: &[(&str, &str)], body: &[u8]| sidecar.send("POST", &path, fields, body).await;
    let own = ("Origin", ORIGIN);
    assert_eq!(post(&[form, OWNER], b"action=stop").await.problem(), (403, "origin-forbidden".into()));
    let evil = post(&[form, OWNER, ("Origin", "https://evil.example")], b"action=stop").await;
    assert_eq!(evil.problem(), (403, "origin-forbidden".into()));
    let mallory = post(&[form, own, ("Cookie", "session=mallory")], b"action=stop").await;
    assert_eq!(mallory.problem(), (403, "not-owner".into()));
    assert_eq!(post(&[form, own, OWNER], b"action=dance").await.problem(), (400, "request-invalid".into()));
    assert_eq!(
        post(&[form, own, OWNER], b"").await.problem(),
        (400, "request-invalid".into()),
        "a form names its action"
    );
    assert_eq!(list(&sidecar, COOKIE).await[0]["state"], "announced");
    let back = post(&[form, own, OWNER], b"action=stop").await;
    assert_eq!((back.status, back.field("location")), (303, Some("/hoop/uploads")));
    assert_eq!(list(&sidecar, COOKIE).await[0]["state"], "stopped");
}

#[tokio::test]
async fn a_list_names_the_first_twenty_files_of_an_upload_and_counts_all() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let [few, many] = [ticket(&sidecar).await, ticket(&sidecar).await];
    let files = |count: usize| (0..count).map(|n| json!({"name": format!("{n}.jpg"), "size": 1})).collect::<Vec<_>>();
    note(&sidecar, &few, &json!({"total": 9, "files": files(20)})).await;
    note(&sidecar, &many, &json!({"total": 9, "files": files(1_000)})).await;
    for entry in list(&sidecar, COOKIE).await {
        let count = if entry["id"] == many.id { 1_000 } else { 20 };
        let named = entry["files"].as_array().unwrap();
        assert_eq!((named.len(), &named[19]["name"], &entry["file_count"]), (20, &"19.jpg".into(), &count.into()));
        assert!(entry.get("answer").is_none(), "an answer is its device's");
    }
    let page = sidecar.send("GET", "/hoop/uploads", &[OWNER, ("Accept", "text/html")], b"").await;
    let page = String::from_utf8(page.body).unwrap();
    assert!(page.contains("999") && page.contains("980"), "999 others, 980 of them unnamed: {page}");
}

#[tokio::test]
async fn a_note_with_a_link_of_any_length_is_kept() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let long = format!("http://hoop.local:4667/monitor?ID={}", "1".repeat(2_048));
    let reply = note(&sidecar, &ticket, &json!({"total": 9, "caption": "x", "monitor": long})).await;
    assert_eq!(reply.status, 204);
    let entry = &list(&sidecar, COOKIE).await[0];
    assert_eq!((&entry["caption"], &entry["monitor"]), (&"x".into(), &Value::Null));
}

#[tokio::test]
async fn resuming_an_upload_that_was_not_paused_changes_nothing() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let path = format!("/hoop/uploads/{}", ticket.id);
    let fields = [VERSION, ("Hoop-Token", ticket.token.as_str())];
    let act = async |action: &str| {
        sidecar.send("POST", &path, &fields, json!({"action": action}).to_string().as_bytes()).await
    };
    assert_eq!(act("resume").await.problem(), (404, "upload-unknown".into()));
    assert_eq!(act("pause").await.status, 200);
    assert_eq!(act("resume").await.status, 200);
    let gone = sidecar.send("GET", &path, &[], b"").await;
    assert_eq!(gone.problem(), (404, "upload-unknown".into()), "neither note nor pause is left");
}
