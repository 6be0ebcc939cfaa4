//! The pages for people, and their events, over real sockets.

use crate::support::service::{Service, Weather, plain};
use crate::support::{
    GENEROUS, LATER, Reply, Running, border, config, connect, get, id_of, post, put, sealed, send, start, until,
};
use hoop_gateway::Config;
use hoop_http::{Connection, empty};
use hoop_units::ByteRange;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use std::net::SocketAddr;
use tempfile::TempDir;

/// A destination where nobody listens.
const NOWHERE: &str = "http://127.0.0.1:9/hoop/post";

async fn gateway() -> (Running, TempDir) {
    gateway_with(|_| {}).await
}

async fn gateway_with(change: impl FnOnce(&mut Config)) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    (start(config).await, folder)
}

/// A stream of events that is being read.
struct Stream {
    _connection: Connection,
    response: Response<Incoming>,
    text: String,
}

impl Stream {
    async fn open(address: SocketAddr, target: &str) -> Self {
        let mut connection = connect(address).await;
        let request = Request::get(target).header("host", address.to_string()).header("accept", "text/event-stream");
        let response = connection.send(request.body(empty()).unwrap()).await.unwrap();
        Self { _connection: connection, response, text: String::new() }
    }

    /// The next event, comments left out; `None` at the end of the stream.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let Some((name, data)) = event.split_once('\n') else { continue };
                let name = name.strip_prefix("event: ").unwrap().to_owned();
                return Some((name, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()));
            }
            let frame = tokio::time::timeout(GENEROUS, self.response.body_mut().frame()).await.unwrap()?;
            self.text += std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap();
        }
    }

    /// Reads on until an event holds.
    async fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..60 {
            let (_, value) = self.next().await.expect("the stream has ended");
            if holds(&value) {
                return value;
            }
        }
        panic!("it never came about");
    }
}

async fn html(address: SocketAddr, target: &str, language: &str) -> Reply {
    let request = Request::get(target).header("accept", "text/html,*/*;q=0.8").header("accept-language", language);
    send(address, request, empty()).await
}

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_with_each_change_and_end_with_the_final_state() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 200_000, LATER);
    let (middle, total) = (border(2), z.len() as u64);
    put(gateway.address, &service.dest(), &z, ByteRange::new(0, middle)).await;
    let target = format!("/monitor?ID={}", id_of(&z));
    let mut stream = Stream::open(gateway.address, &target).await;
    assert_eq!(stream.response.headers()["content-type"], "text/event-stream");
    let (name, first) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), &first["state"], &first["stored"]), ("status", &"receiving".into(), &middle.into()));
    put(gateway.address, &service.dest(), &z, ByteRange::new(middle, total)).await;
    let done = stream.until(|status| status["state"] == "accepted").await;
    assert_eq!(done, get(gateway.address, &target).await.json(), "the same as for those who ask once");
    assert_eq!(stream.next().await.unwrap().0, "end");
    assert!(stream.next().await.is_none());
    // What has ended already is said once.
    let mut late = Stream::open(gateway.address, &target).await;
    assert_eq!(late.next().await.unwrap().1["state"], "accepted");
    assert_eq!(late.next().await.unwrap().0, "end");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_is_sent_what_changes_of_the_page_in_the_readers_language() {
    let (gateway, _folder) = gateway_with(|config| config.cut_through = false).await;
    let z = sealed(1, 200_000, LATER);
    put(gateway.address, NOWHERE, &z, ByteRange::new(0, border(2))).await;
    let target = format!("/monitor?ID={}", id_of(&z));
    let page = text(&html(gateway.address, &target, "en").await);
    let mut stream = Stream::open(gateway.address, &format!("{target}&page")).await;
    let (name, live) = stream.next().await.unwrap();
    assert_eq!(name, "page");
    // But for the times, which may have moved on by a second.
    let upto = |html: &str| html.split("<time").next().unwrap().to_owned();
    let main = page.split_once("<main").unwrap().1.split_once('>').unwrap().1;
    assert_eq!(upto(live["html"].as_str().unwrap()), upto(main));
    put(gateway.address, NOWHERE, &z, ByteRange::new(border(2), z.len() as u64)).await;
    let safe = stream.until(|live| live["html"].as_str().unwrap().contains("You may leave")).await;
    assert!(safe["title"].as_str().unwrap().contains("% · "), "{safe}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_streams_are_open_at_once_and_the_oldest_makes_way() {
    let (gateway, _folder) = gateway().await;
    let mut streams = Vec::new();
    for _ in 0..16 {
        let mut stream = Stream::open(gateway.address, "/").await;
        assert_eq!(stream.next().await.unwrap().0, "overview");
        streams.push(stream);
    }
    let mut latest = Stream::open(gateway.address, "/").await;
    assert_eq!(latest.next().await.unwrap().0, "overview");
    let oldest = streams[0].response.body_mut();
    while let Some(Ok(_)) = tokio::time::timeout(GENEROUS, oldest.frame()).await.expect("it ends") {}
    assert_eq!(get(gateway.address, "/").await.status, 200, "who asks once has another place");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stops_ends_its_streams() {
    let (gateway, _folder) = gateway().await;
    let mut stream = Stream::open(gateway.address, "/").await;
    stream.next().await.unwrap();
    let reading = tokio::spawn(async move { while stream.next().await.is_some() {} });
    gateway.stop().await;
    reading.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_front_page_names_no_upload_destination_or_person() {
    let service = Service::start(|_, _, _, _| {
        let mut response = plain(503, "later");
        response.headers_mut().insert("retry-after", HeaderValue::from_static("3600"));
        Weather::Answer(response)
    })
    .await;
    let (gateway, _folder) = gateway().await;
    let (waits, comes) = (sealed(1, 100_000, LATER), sealed(2, 200_000, LATER));
    post(gateway.address, &service.dest(), &waits).await;
    put(gateway.address, NOWHERE, &comes, ByteRange::new(0, border(1))).await;
    until(gateway.address, id_of(&waits), "a reason", |status| status["reason"].is_object()).await;
    let overview = get(gateway.address, "/").await.json();
    assert_eq!(overview["waiting"], serde_json::json!({"uploads": 1, "bytes": waits.len()}));
    assert_eq!(overview["recent"][0]["stored"], border(1));
    assert_eq!(overview["recent"][1]["reason"], "dest-unreachable");
    let mut stream = Stream::open(gateway.address, "/").await;
    let (name, event) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), &event["states"]), ("overview", &overview["states"]));
    let page = text(&html(gateway.address, "/", "en").await);
    assert!(page.contains("The service cannot be reached") && page.contains("Coming in"), "{page}");
    let port = service.address.port().to_string();
    for (what, said) in [("page", page), ("JSON", overview.to_string()), ("event", event.to_string())] {
        for secret in [
            id_of(&waits).to_hex(),
            id_of(&comes).to_hex(),
            format!(":{port}"),
            "hoop/post".into(),
            "127.0.0.1:9/".into(),
        ] {
            assert!(!said.contains(&secret), "the {what} names {secret}: {said}");
        }
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_whole_without_script_and_allows_no_other_than_its_own() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 10, LATER);
    post(gateway.address, NOWHERE, &z).await;
    let page = html(gateway.address, &format!("/monitor?ID={}", id_of(&z)), "en").await;
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"), "{policy}");
    let body = text(&page);
    assert!(
        body.contains("<noscript><meta http-equiv=\"refresh\"")
            && body.contains("<script type=\"module\" src=\"/monitor.js\"></script>")
    );
    assert_eq!(body.matches("<script").count(), 1);
    assert!(!body.contains(" style=") && !body.contains("<style"), "the policy would forbid it");
    for (path, kind) in [("/monitor.js", "text/javascript; charset=utf-8"), ("/monitor.css", "text/css; charset=utf-8")]
    {
        let file = get(gateway.address, path).await;
        assert_eq!((file.header("content-type"), file.header("x-content-type-options")), (kind, "nosniff"));
        let again = Request::get(path).header("if-none-match", file.header("etag"));
        assert_eq!(send(gateway.address, again, empty()).await.status, 304);
        assert_eq!(send(gateway.address, Request::builder().method(Method::POST).uri(path), empty()).await.status, 405);
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_link_works_from_anywhere_only_if_the_operator_said_where() {
    let z = sealed(1, 10, LATER);
    let target = format!("/monitor?ID={}", id_of(&z));
    for public in [None, Some("https://box.example/")] {
        let (gateway, _folder) =
            gateway_with(|config| config.public_url = public.map(|url| url.parse().unwrap())).await;
        post(gateway.address, NOWHERE, &z).await;
        let page = text(&html(gateway.address, &target, "en").await);
        let (base, reach) = match public {
            None => (format!("http://{}", gateway.address), "in this network only"),
            Some(_) => ("https://box.example".to_owned(), "from anywhere"),
        };
        assert!(page.contains(&format!("value=\"{base}{target}\"")) && page.contains(reach), "{page}");
        assert!(page.contains("<svg class=\"qr\""));
        gateway.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn french_readers_get_french_and_caches_are_told() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 10, LATER);
    post(gateway.address, NOWHERE, &z).await;
    for (target, words) in
        [(format!("/monitor?ID={}", id_of(&z)), "Vous pouvez partir"), ("/".into(), "Déposez ici, partez")]
    {
        let page = html(gateway.address, &target, "fr-FR,fr;q=0.9,en;q=0.5").await;
        assert_eq!(page.header("vary"), "Accept, Accept-Language");
        let body = text(&page);
        assert!(body.contains("<html lang=\"fr\">") && body.contains(words), "{body}");
        assert!(text(&html(gateway.address, &target, "de").await).contains("<html lang=\"en\">"));
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_link_is_explained_to_people_and_its_words_are_text() {
    let (gateway, _folder) = gateway().await;
    let unknown = html(gateway.address, "/monitor?ID=00112233445566778899aabbccddeeff", "en").await;
    assert_eq!(unknown.status, 404);
    assert!(text(&unknown).contains("Nothing is known of this upload"));
    let wrong = html(gateway.address, "/monitor?ID=%3Cscript%3Ealert(1)%3C/script%3E", "fr").await;
    assert_eq!(wrong.status, 400);
    let body = text(&wrong);
    assert!(body.contains("Ce lien est incomplet") && !body.contains("<script>alert"), "{body}");
    let events = Request::get("/monitor?ID=00112233445566778899aabbccddeeff").header("accept", "text/event-stream");
    assert_eq!(send(gateway.address, events, empty()).await.code(), "upload-unknown");
    gateway.stop().await;
}
