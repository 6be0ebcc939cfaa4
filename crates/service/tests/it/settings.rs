//! A user's settings, and the stream of a user's uploads.

use crate::support::device::{seal, ticket};
use crate::support::upstream::Upstream;
use crate::support::{self, COOKIE, ORIGIN, Sidecar, wire};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

const VERSION: (&str, &str) = ("Hoop-Version", "1");
const OWNER: (&str, &str) = ("Cookie", COOKIE);

#[tokio::test]
async fn settings_are_saved_for_their_user_and_survive_a_restart() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let get = async |sidecar: &Sidecar, cookie: &str| {
        sidecar.send("GET", "/hoop/settings", &[("Cookie", cookie)], b"").await.json()
    };
    let mut nobody = sidecar.send("GET", "/hoop/settings", &[], b"").await.json();
    assert_eq!(nobody, json!({"policy": "ask", "min_bytes": 0, "types": {}, "saved": false, "owner": null}));
    let wanted = json!({"policy": "never", "min_bytes": 5, "types": {"image/*": "always"}});
    let put = async |fields: &[(&str, &str)], body: &[u8]| sidecar.send("PUT", "/hoop/settings", fields, body).await;
    let body = wanted.to_string();
    assert_eq!(put(&[VERSION], body.as_bytes()).await.problem(), (401, "sign-in-required".into()));
    assert_eq!(put(&[OWNER], body.as_bytes()).await.problem(), (400, "request-invalid".into()));
    let evil = [VERSION, OWNER, ("Origin", "https://evil.example")];
    assert_eq!(put(&evil, body.as_bytes()).await.problem(), (403, "origin-forbidden".into()));
    assert_eq!(put(&[VERSION, OWNER], b"{\"policy\":1}").await.problem(), (400, "request-invalid".into()));
    let saved = put(&[VERSION, OWNER], body.as_bytes()).await.json();
    assert_eq!((&saved["policy"], &saved["saved"]), (&"never".into(), &true.into()));
    assert_eq!(get(&sidecar, COOKIE).await, saved);
    // A page may send back what it got.
    assert_eq!(put(&[VERSION, OWNER], saved.to_string().as_bytes()).await.json(), saved);
    nobody["owner"] = get(&sidecar, "session=mallory").await["owner"].clone();
    assert_eq!(get(&sidecar, "session=mallory").await, nobody, "hers are not his");
    let temporary = sidecar.stop().await.unwrap();
    let sidecar = Sidecar::on(upstream.address, temporary.path().to_owned(), |_| {}).await;
    assert_eq!(get(&sidecar, COOKIE).await, saved);
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let body = b"policy=always&min_bytes=&type=video%2Fmp4&type_policy=never";
    let without = sidecar.send("POST", "/hoop/settings", &[form, OWNER], body).await;
    assert_eq!(without.problem(), (403, "origin-forbidden".into()));
    let back = sidecar.send("POST", "/hoop/settings", &[form, OWNER, ("Origin", ORIGIN)], body).await;
    assert_eq!((back.status, back.field("location")), (303, Some("/hoop/settings?saved")));
    let now = get(&sidecar, COOKIE).await;
    assert_eq!((&now["policy"], &now["types"]), (&"always".into(), &json!({"video/mp4": "never"})));
}

#[tokio::test]
async fn the_library_is_served_to_pages_of_this_origin_and_not_sent_twice() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    for path in ["/hoop/hoop.js", "/hoop/hoop-card.js"] {
        let whole = sidecar.send("GET", path, &[], b"").await;
        assert_eq!((whole.status, whole.field("content-type")), (200, Some("text/javascript; charset=utf-8")));
        assert_eq!(whole.field("cache-control"), Some("no-cache"));
        assert_eq!(whole.field("x-content-type-options"), Some("nosniff"));
        assert_eq!(whole.field("cross-origin-resource-policy"), Some("same-origin"));
        let tag = whole.field("etag").unwrap();
        assert!(tag.starts_with('"') && !whole.body.is_empty(), "{tag}");
        let head = sidecar.send("HEAD", path, &[], b"").await;
        assert_eq!((head.status, head.field("etag"), head.body.len()), (200, Some(tag), 0));
        let again = sidecar.send("GET", path, &[("If-None-Match", tag)], b"").await;
        assert_eq!((again.status, again.body.len()), (304, 0));
    }
    assert!(upstream.arrivals().is_empty());
}

/// A stream of events, its head read and checked.
struct Stream(TcpStream);

impl Stream {
    async fn open(sidecar: &Sidecar, cookie: &str) -> Self {
        let fields = [("Cookie", cookie), ("Accept", "text/event-stream")];
        let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
        stream.write_all(&wire::request("GET", "/hoop/uploads", &fields, b"")).await.unwrap();
        let head = wire::read_until(&mut stream, b"\r\n\r\n").await;
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("text/event-stream"), "{head}");
        assert!(head.contains("x-accel-buffering: no"), "{head}");
        Self(stream)
    }

    /// The next event: its name and data.
    async fn event(&mut self) -> (String, Value) {
        let text = String::from_utf8(wire::read_until(&mut self.0, b"\n\n").await).unwrap();
        let name = text.split("event: ").nth(1).expect("an event").lines().next().unwrap().to_owned();
        (name, serde_json::from_str(text.split("data: ").nth(1).unwrap().trim()).unwrap())
    }
}

#[tokio::test]
async fn a_users_uploads_are_streamed_as_they_change_to_that_user_alone() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let first = ticket(&sidecar).await;
    seal(&first, b"first").post(&sidecar).await;
    sidecar.reaches(&first.id, "accepted").await;
    let (mut alice, mut bob) = (Stream::open(&sidecar, COOKIE).await, Stream::open(&sidecar, "session=bob").await);
    let (name, list) = alice.event().await;
    assert_eq!((name.as_str(), &list["uploads"][0]["id"]), ("uploads", &first.id.as_str().into()));
    assert_eq!(bob.event().await, ("uploads".into(), json!({"uploads": []})));
    let second = ticket(&sidecar).await;
    let fields = [VERSION, ("Hoop-Token", second.token.as_str())];
    let path = format!("/hoop/uploads/{}", second.id);
    assert_eq!(sidecar.send("PUT", &path, &fields, b"{\"total\":9,\"caption\":\"x\"}").await.status, 204);
    let (name, entry) = alice.event().await;
    assert_eq!((name.as_str(), &entry["state"], &entry["caption"]), ("upload", &"announced".into(), &"x".into()));
    seal(&second, b"second").post(&sidecar).await;
    // What lies between may be left out, and may not.
    let last = loop {
        let (name, entry) = alice.event().await;
        assert_eq!((name.as_str(), &entry["id"]), ("upload", &second.id.as_str().into()));
        if entry["state"] == "accepted" {
            break entry;
        }
    };
    assert_eq!(last["caption"], "x");
    let reply = support::device::ask(sidecar.address, "session=bob", &json!({})).await.json();
    let bobs = support::device::Ticket::parse(&reply["tickets"][0]);
    seal(&bobs, b"his").post(&sidecar).await;
    assert_eq!(bob.event().await.1["id"], bobs.id.as_str(), "the first that Bob hears of is his own");
    sidecar.stop().await;
    let mut rest = Vec::new();
    alice.0.read_to_end(&mut rest).await.unwrap();
}

/// Anybody has as many names as he makes up, where the application is not asked.
#[tokio::test]
async fn one_address_with_all_streams_leaves_one_to_another() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let mut crowd = Vec::new();
    for number in 0..256 {
        crowd.push(Stream::open(&sidecar, &format!("session=made-up-{}", number / 8)).await);
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.8.8.8:0".parse().unwrap()).unwrap();
    let mut honest = socket.connect(sidecar.address).await.unwrap();
    let fields = [OWNER, ("Accept", "text/event-stream")];
    honest.write_all(&wire::request("GET", "/hoop/uploads", &fields, b"")).await.unwrap();
    let head = String::from_utf8(wire::read_until(&mut honest, b"\r\n").await).unwrap();
    assert_eq!(head, "HTTP/1.1 200 OK\r\n");
}

/// More of others than a stream remembers, before it looks again.
#[tokio::test]
async fn a_change_among_hundreds_of_others_is_told_once() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let reply = support::device::ask(sidecar.address, "session=bob", &json!({})).await.json();
    let (hers, his) = (ticket(&sidecar).await, support::device::Ticket::parse(&reply["tickets"][0]));
    let note = async |ticket: &support::device::Ticket, caption: &str| {
        let fields = [VERSION, ("Hoop-Token", ticket.token.as_str())];
        let note = json!({"total": 9, "caption": caption}).to_string();
        let noted = sidecar.send("PUT", &format!("/hoop/uploads/{}", ticket.id), &fields, note.as_bytes()).await;
        assert_eq!(noted.status, 204, "{noted:?}");
    };
    let mut alice = Stream::open(&sidecar, COOKIE).await;
    assert_eq!(alice.event().await.0, "uploads");
    note(&hers, "among others").await;
    let many = async |part: u32| {
        for number in 0..100 {
            note(&his, &format!("{part}.{number}")).await;
        }
    };
    tokio::join!(many(0), many(1), many(2), many(3));
    let (name, entry) = alice.event().await;
    assert_eq!((name.as_str(), &entry["caption"]), ("upload", &"among others".into()));
    note(&hers, "afterwards").await;
    assert_eq!(alice.event().await.1["caption"], "afterwards");
}

#[tokio::test]
async fn a_user_has_eight_streams_and_one_that_ends_makes_room() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(Stream::open(&sidecar, COOKIE).await);
    }
    let events = ("Accept", "text/event-stream");
    let ninth = sidecar.send("GET", "/hoop/uploads", &[OWNER, events], b"").await;
    assert_eq!(ninth.problem(), (429, "too-many-requests".into()));
    Stream::open(&sidecar, "session=bob").await;
    let nobody = sidecar.send("GET", "/hoop/uploads", &[events], b"").await;
    assert_eq!(nobody.problem(), (401, "sign-in-required".into()));
    let evil = sidecar.send("GET", "/hoop/uploads", &[OWNER, events, ("Origin", "https://evil.example")], b"").await;
    assert_eq!(evil.problem(), (403, "origin-forbidden".into()));
    drop(streams.pop());
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    let fields = [OWNER, events];
    let request = wire::request("GET", "/hoop/uploads", &fields, b"");
    loop {
        let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
        stream.write_all(&request).await.unwrap();
        if wire::read_until(&mut stream, b"\r\n").await.starts_with(b"HTTP/1.1 200") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no place becomes free");
    }
}
