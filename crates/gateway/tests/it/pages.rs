//! What pages can and cannot do at a gateway, over real sockets: as browsers send it, and as hostile pages make them send it.

use crate::support::{
    self, LATER, Reply, Running, config, connect, get, head, id_of, post, put, put_request, sealed, send, start, status,
};
use hoop_gateway::Config;
use hoop_http::{Body, empty, full};
use hoop_units::{ByteRange, UploadId};
use http::Request;
use http::request::Builder;
use serde_json::Value;
use std::net::SocketAddr;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A page's origin, and its service's post URL. Uploads stay where they are: nobody listens there.
const SITE: &str = "http://127.0.0.1:9";
const POST: &str = "http://127.0.0.1:9/hoop/post";
const OTHER_SITE: &str = "http://127.0.0.1:8";
const OTHER_POST: &str = "http://127.0.0.1:8/hoop/post";

async fn gateway() -> (Running, TempDir) {
    gateway_with(|_| {}).await
}

async fn gateway_with(change: impl FnOnce(&mut Config)) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    (start(config).await, folder)
}

/// As the library sends it.
fn by(origin: &str, request: Builder) -> Builder {
    request.header("origin", origin).header("hoop-version", "1")
}

/// Refused, so that no page can read it.
#[track_caller]
fn unreadable(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (status, code), "{reply:?}");
    let allowed: Vec<_> = reply.headers.keys().filter(|name| name.as_str().starts_with("access-control-")).collect();
    assert!(allowed.is_empty(), "{allowed:?}");
    varies(reply);
}

/// Whatever it says, the page may read it, with all that a page needs and nothing more.
#[track_caller]
fn readable(reply: &Reply, origin: &str) {
    assert_eq!(reply.header("access-control-allow-origin"), origin, "{reply:?}");
    let exposed = "Hoop-Upload-Id, Hoop-State, Hoop-Total, Hoop-Missing, Hoop-Receipt, Location, Retry-After, \
                   Upload-Complete, Upload-Incomplete, Upload-Length, Upload-Limit, Upload-Offset";
    assert_eq!(reply.header("access-control-expose-headers"), exposed);
    assert!(!reply.headers.contains_key("access-control-allow-credentials"));
    varies(reply);
}

#[track_caller]
fn varies(reply: &Reply) {
    let vary: Vec<_> = reply.headers.get_all("vary").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(vary.contains(&"Origin"), "{vary:?}");
}

/// A request with its own `Host`, or none.
async fn named(address: SocketAddr, host: Option<&str>, rest: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let (version, host) = host.map_or(("1.0", String::new()), |host| ("1.1", format!("Host: {host}\r\n")));
    let request = format!("GET /test HTTP/{version}\r\n{host}Connection: close\r\n{rest}\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_page_hands_over_an_upload_to_its_own_site_and_follows_it() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 200_000, LATER);
    let middle = support::border(2);
    for range in [ByteRange::new(0, middle), ByteRange::new(middle, z.len() as u64)] {
        let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, z.len());
        let body = full(z[range.start as usize..range.end as usize].to_vec());
        let reply = send(gateway.address, by(SITE, put_request(POST, &z, &content_range)), body).await;
        assert_eq!(reply.status, if range.start == 0 { 202 } else { 201 });
        readable(&reply, SITE);
    }
    let target = format!("/offload/{}", id_of(&z));
    let standing = send(gateway.address, by(SITE, Request::head(target)), empty()).await;
    assert_eq!((standing.status.as_u16(), standing.header("hoop-missing")), (200, ""));
    readable(&standing, SITE);
    let target = format!("/monitor?ID={}", id_of(&z));
    let request = Request::get(target).header("accept", "application/json");
    let followed = send(gateway.address, by(SITE, request), empty()).await;
    assert_eq!(followed.json()["dest_origin"], SITE);
    readable(&followed, SITE);
    let posted = Request::post(format!("/offload?dest={POST}"));
    let reply = send(gateway.address, by(SITE, posted), full(sealed(2, 10, LATER))).await;
    assert_eq!(reply.status, 201);
    readable(&reply, SITE);
}

#[tokio::test]
async fn a_page_resumes_an_upload_to_its_own_site_and_others_learn_nothing() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 100_000, LATER);
    let posted =
        Request::post(format!("/offload?dest={POST}")).header("upload-complete", "?0").header("upload-length", z.len());
    let reply = send(gateway.address, by(SITE, posted), full(z[..500].to_vec())).await;
    assert_eq!(reply.status, 201);
    readable(&reply, SITE);
    let upload = reply.header("location");
    let part = |origin: &str| {
        let part = Request::patch(upload).header("upload-offset", "500").header("upload-complete", "?1");
        by(origin, part.header("content-type", "application/partial-upload"))
    };
    for request in [part(OTHER_SITE), by(OTHER_SITE, Request::head(upload)), by(OTHER_SITE, Request::delete(upload))] {
        let reply = send(gateway.address, request, full(z[500..].to_vec())).await;
        assert_eq!(reply.status, 403);
        assert!(!reply.headers.contains_key("access-control-allow-origin"), "{reply:?}");
        assert!(!reply.headers.contains_key("upload-offset"), "{reply:?}");
    }
    let standing = send(gateway.address, by(SITE, Request::head(upload)), empty()).await;
    assert_eq!((standing.status.as_u16(), standing.header("upload-offset")), (204, "500"));
    readable(&standing, SITE);
    let reply = send(gateway.address, part(SITE), full(z[500..].to_vec())).await;
    assert_eq!((reply.status.as_u16(), reply.header("upload-complete")), (201, "?1"));
    readable(&reply, SITE);
}

#[tokio::test]
async fn a_refusal_can_be_read_by_the_page_that_it_is_for() {
    let (gateway, _folder) = gateway_with(|config| config.quota_bytes = Some(2_000_000)).await;
    let z = sealed(1, 3_000_000, LATER);
    let range = format!("bytes 0-{}/{}", z.len() - 1, z.len());
    let full_up = send(gateway.address, by(SITE, put_request(POST, &z, &range)), full(z.clone())).await;
    assert_eq!((full_up.code().as_str(), full_up.header("retry-after")), ("spool-full", "60"));
    readable(&full_up, SITE);
    let unknown = Request::head(format!("/offload/{}", UploadId([9; 16])));
    let unknown = send(gateway.address, by(SITE, unknown), empty()).await;
    assert_eq!(unknown.status, 404);
    readable(&unknown, SITE);
    let simple = Request::post(format!("/offload?dest={POST}")).header("origin", SITE);
    let simple = send(gateway.address, simple, full(sealed(2, 10, LATER))).await;
    assert_eq!((simple.code(), simple.json()["field"].as_str()), ("request-invalid".to_owned(), Some("Hoop-Version")));
    readable(&simple, SITE);
}

#[tokio::test]
async fn no_form_beacon_or_simple_request_of_a_page_stores_anything() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 100, LATER);
    // A beacon or `fetch` with a typeless or text Blob, a form; from a stranger, a sandbox, and the upload's own site.
    for kind in [
        None,
        Some("text/plain;charset=UTF-8"),
        Some("multipart/form-data; boundary=x"),
        Some("application/x-www-form-urlencoded"),
    ] {
        for (origin, code) in
            [("https://evil.example", "origin-forbidden"), ("null", "origin-forbidden"), (SITE, "request-invalid")]
        {
            let request = Request::post(format!("/offload?dest={POST}")).header("origin", origin);
            let request = kind.into_iter().fold(request, |request, kind| request.header("content-type", kind));
            let reply = send(gateway.address, request, full(z.clone())).await;
            assert_eq!(reply.code(), code, "{origin} {kind:?}");
        }
    }
    assert_eq!(head(gateway.address, id_of(&z)).await.status, 404, "nothing of it was kept");
}

#[tokio::test]
async fn a_page_may_not_send_to_another_site_nor_learn_of_an_upload_to_it() {
    let (gateway, _folder) = gateway_with(|config| config.cut_through = false).await;
    let z = sealed(1, 200_000, LATER);
    let range = format!("bytes 0-{}/{}", z.len() - 1, z.len());
    let foreign = by(OTHER_SITE, put_request(POST, &z, &range));
    unreadable(&send(gateway.address, foreign, full(z.clone())).await, 403, "origin-forbidden");
    assert_eq!(head(gateway.address, id_of(&z)).await.status, 404);

    assert_eq!(put(gateway.address, POST, &z, ByteRange::new(0, support::border(1))).await.status, 202);
    let before = status(gateway.address, id_of(&z)).await;
    // The state of a resume; also with a `dest` of one's own beside the id.
    for target in [format!("/offload/{}", id_of(&z)), format!("/offload/{}?dest={OTHER_POST}", id_of(&z))] {
        let reply = send(gateway.address, by(OTHER_SITE, Request::head(target)), empty()).await;
        assert_eq!((reply.status.as_u16(), reply.header("hoop-missing")), (403, ""));
        assert!(!reply.headers.contains_key("access-control-allow-origin"), "{reply:?}");
    }
    for kind in ["application/json", "text/event-stream"] {
        let request = Request::get(format!("/monitor?ID={}", id_of(&z))).header("accept", kind);
        unreadable(&send(gateway.address, by(OTHER_SITE, request), empty()).await, 403, "origin-forbidden");
    }
    // Under its own dest, the id is a conflict, and stays what it was.
    let taken_over = by(OTHER_SITE, put_request(OTHER_POST, &z, &range));
    assert_eq!(send(gateway.address, taken_over, full(z.clone())).await.code(), "upload-conflict");
    assert_eq!(status(gateway.address, id_of(&z)).await, before);
}

#[tokio::test]
async fn what_is_for_people_is_not_for_pages() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 10, LATER);
    post(gateway.address, POST, &z).await;
    for target in ["/", "/bridge", "/bridge.js", "/bridge.css", "/nothing", &format!("/monitor?ID={}", id_of(&z))] {
        let request = Request::get(target).header("accept", "text/html");
        unreadable(&send(gateway.address, by(SITE, request), empty()).await, 403, "origin-forbidden");
    }
}

#[tokio::test]
async fn a_preflight_is_answered_from_the_url_alone() {
    let (gateway, _folder) = gateway().await;
    let preflight = async |target: &str, origin: &str, method: &str| {
        let request = Request::options(target)
            .header("origin", origin)
            .header("access-control-request-method", method)
            .header("access-control-request-headers", "content-range,content-type,hoop-prelude,hoop-version");
        send(gateway.address, request, empty()).await
    };
    // No such upload is here: nobody looked.
    let upload = format!("/offload/{}", UploadId([9; 16]));
    for (target, method, methods) in [
        ("/test", "GET", "GET"),
        ("/monitor?ID=x", "GET", "GET"),
        (&format!("/offload?dest={POST}"), "POST", "POST"),
        (&format!("{upload}?dest={POST}"), "PUT", "PUT, HEAD"),
        (&upload, "HEAD", "HEAD"),
        ("/offload/r/AAAAAAAAAAAAAAAAAAAAAA", "PATCH", "HEAD, PATCH, DELETE"),
    ] {
        let reply = preflight(target, SITE, method).await;
        assert_eq!((reply.status.as_u16(), reply.header("access-control-allow-methods")), (204, methods), "{target}");
        assert_eq!(reply.header("access-control-allow-origin"), SITE);
        let headers = "Content-Type, Content-Range, Hoop-Prelude, Hoop-Permit, Hoop-Deadline, Hoop-Version, \
                       Upload-Complete, Upload-Draft-Interop-Version, Upload-Incomplete, Upload-Length, Upload-Offset";
        assert_eq!(reply.header("access-control-allow-headers"), headers);
        assert_eq!(reply.header("access-control-max-age"), "600");
        assert!(!reply.headers.contains_key("access-control-allow-credentials") && reply.body.is_empty());
        varies(&reply);
    }
    for (target, origin) in [
        (format!("{upload}?dest={POST}"), OTHER_SITE),
        (format!("/offload?dest={POST}"), "null"),
        ("/test".to_owned(), "null"),
        ("/test".to_owned(), "http://photos.example"),
        ("/".to_owned(), SITE),
        ("/bridge".to_owned(), SITE),
    ] {
        unreadable(&preflight(&target, origin, "PUT").await, 403, "origin-forbidden");
    }
    let nobody = send(gateway.address, Request::options("/test"), empty()).await;
    assert_eq!(nobody.code(), "method-not-allowed", "no page asks");
}

#[tokio::test]
async fn a_request_by_a_name_that_a_stranger_could_own_is_misdirected() {
    let (gateway, _folder) = gateway_with(|config| config.hosts = vec!["hoop.family.example".to_owned()]).await;
    for host in ["hoop.local", "hoop.local:4667", "192.168.7.1", "hoop.family.example:80", "HOOP", "[fe80::1]"] {
        let answer = named(gateway.address, Some(host), "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
    for host in ["evil.example", "evil.example:4667", "hoop.local.evil.example", "x.hoop.family.example"] {
        // A rebound page is of its own origin as the browser sees it, and says so or not.
        for origin in [String::new(), format!("Origin: http://{host}\r\nHoop-Version: 1\r\n")] {
            let answer = named(gateway.address, Some(host), &origin).await;
            assert!(answer.starts_with("HTTP/1.1 421") && answer.contains("\"host-forbidden\""), "{host}: {answer}");
            assert!(!answer.to_ascii_lowercase().contains("access-control-"), "{answer}");
        }
    }
    // What is no host at all gets no further.
    assert!(named(gateway.address, Some("hoop.local@evil.example"), "").await.starts_with("HTTP/1.1 400"));
    assert!(named(gateway.address, None, "").await.starts_with("HTTP/1.0 200"), "HTTP/1.0 without Host");
    let twice =
        named(gateway.address, Some("hoop.local"), "Origin: http://127.0.0.1:9\r\nOrigin: http://127.0.0.1:9\r\n")
            .await;
    assert!(twice.contains("\"origin-forbidden\""), "{twice}");
}

#[tokio::test]
async fn a_page_learns_of_the_room_only_roughly() {
    let (gateway, _folder) = gateway_with(|config| config.quota_bytes = Some(5 << 20)).await;
    let reply = send(gateway.address, by(SITE, Request::get("/test")), empty()).await;
    assert_eq!((&reply.json()["hoop"], &reply.json()["free_bytes"]), (&"gateway".into(), &(4 << 20).into()));
    readable(&reply, SITE);
    assert_eq!(get(gateway.address, "/test").await.json()["free_bytes"], 5 << 20, "programs are told");
    let (full_up, _folder) = gateway_with(|config| config.quota_bytes = Some(1_000_000)).await;
    let reply = send(full_up.address, by(SITE, Request::get("/test")), empty()).await;
    assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (503, "60"));
    readable(&reply, SITE);
}

#[tokio::test]
async fn a_page_learns_the_gateways_name_only_if_it_has_it_already() {
    let (gateway, _folder) = gateway().await;
    let own = get(gateway.address, "/test").await.json()["gateway"].as_str().unwrap().to_owned();
    let other = "2b".repeat(16);
    let ask = async |query: &str| send(gateway.address, by(SITE, Request::get(format!("/test{query}"))), empty()).await;
    for (query, told) in [
        (String::new(), None),
        (format!("?gateways={other}"), Some(Value::Null)),
        (format!("?gateways={other},{own}"), Some(own.as_str().into())),
    ] {
        let reply = ask(&query).await;
        readable(&reply, SITE);
        assert_eq!(reply.json().get("gateway"), told.as_ref(), "{query}");
    }
    for query in ["?gateways=", "?gateways=all", &format!("?gateways={}", vec![other.as_str(); 257].join(","))] {
        assert_eq!(ask(query).await.code(), "request-invalid", "{}", &query[..14]);
    }
}

#[tokio::test]
async fn the_bridge_is_the_gateways_own_page_and_cannot_be_framed_or_altered() {
    let (gateway, _folder) = gateway().await;
    let fetch = async |target: &str, language: &str| {
        send(gateway.address, Request::get(target).header("accept-language", language), empty()).await
    };
    let page = fetch("/bridge", "de,fr;q=0.5").await;
    assert_eq!(page.status, 200);
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                  form-action 'none'; frame-ancestors 'none'";
    assert_eq!(page.header("content-security-policy"), policy);
    assert_eq!((page.header("x-content-type-options"), page.header("referrer-policy")), ("nosniff", "no-referrer"));
    assert!(!page.headers.contains_key("cross-origin-opener-policy"), "it would lose its opener");
    assert_eq!(page.header("content-language"), "fr");
    let text = |reply: &Reply| String::from_utf8(reply.body.to_vec()).unwrap();
    assert!(text(&page).contains("<html lang=\"fr\">") && text(&page).contains("boîtier Hoop"), "{}", text(&page));
    assert!(text(&fetch("/bridge", "en").await).contains("<noscript>"));
    for (target, kind) in [("/bridge.js", "text/javascript; charset=utf-8"), ("/bridge.css", "text/css; charset=utf-8")]
    {
        let file = fetch(target, "en").await;
        assert_eq!((file.status.as_u16(), file.header("content-type")), (200, kind));
        assert!(!file.body.is_empty());
        varies(&file);
        let again = Request::get(target).header("if-none-match", file.header("etag"));
        let again: Reply = send(gateway.address, again, empty()).await;
        assert_eq!((again.status.as_u16(), again.body.len()), (304, 0));
    }
    // It works for whichever site opened it: its requests are the gateway's own.
    let z = sealed(1, 10, LATER);
    let own = format!("http://{}", gateway.address);
    let request = put_request(POST, &z, &format!("bytes 0-{}/{}", z.len() - 1, z.len()));
    assert_eq!(send(gateway.address, by(&own, request), full(z)).await.status, 201);
}

#[tokio::test]
async fn many_requests_of_one_page_go_over_one_connection() {
    let (gateway, _folder) = gateway().await;
    let mut connection = connect(gateway.address).await;
    for method in ["OPTIONS", "GET", "GET"] {
        let request = by(SITE, Request::builder().method(method).uri("/test")).header("host", "hoop.local");
        let request: Request<Body> = request.body(empty()).unwrap();
        let response = connection.send(request).await.unwrap();
        assert!(response.status().is_success() && !response.headers().contains_key("connection"));
        hoop_http::read_limited(response.into_body(), 1 << 16).await.unwrap();
    }
}
