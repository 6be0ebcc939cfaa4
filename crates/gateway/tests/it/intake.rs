//! Taking uploads: what is right, and everything that can be wrong, over real sockets.

use crate::support::{
    GENEROUS, LATER, PRELUDE_LEN, Reply, Running, border, config, get, head, id_of, post, prelude_header, put,
    put_request, recorded, sealed, send, start, status, until, written,
};
use bytes::Bytes;
use hoop_gateway::Config;
use hoop_http::{Clock, empty, full, streamed};
use hoop_spool::{KEEP_SECS, Settings, Spool};
use hoop_units::{ByteRange, UnixTime, UploadId};
use http::Request;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Nobody listens there: uploads stay where they are.
const NOWHERE: &str = "http://127.0.0.1:9/hoop/post";

async fn gateway() -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (start(config(folder.path())).await, folder)
}

async fn gateway_with(change: impl FnOnce(&mut Config)) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    (start(config).await, folder)
}

#[track_caller]
fn refused(reply: &Reply, status: u16, code: &str, field: &str) {
    let json = reply.json();
    let found = (reply.status.as_u16(), json["code"].as_str(), json["field"].as_str().unwrap_or_default());
    assert_eq!(found, (status, Some(code), field), "{json}");
    assert_eq!(reply.header("content-type"), "application/problem+json");
    assert!(!json["detail"].as_str().unwrap_or_default().is_empty(), "it says what is wrong: {json}");
}

/// A body that comes in pieces of this size, without a length.
fn chunked(z: &[u8], piece: usize) -> hoop_http::Body {
    let pieces: Vec<_> = z.chunks(piece).map(Bytes::copy_from_slice).collect();
    streamed(Pieces(pieces.into_iter()))
}

struct Pieces(std::vec::IntoIter<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.next().map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

#[tokio::test]
async fn the_test_resource_says_what_this_is_and_how_much_room_there_is() {
    let (gateway, _folder) = gateway_with(|config| config.quota_bytes = Some(5 << 20)).await;
    let reply = get(gateway.address, "/test").await;
    assert_eq!((reply.status.as_u16(), &reply.json()["hoop"]), (200, &"gateway".into()));
    assert_eq!(reply.json()["free_bytes"], 5 << 20);
    assert_eq!(get(gateway.address, "/").await.status, 200);
}

#[tokio::test]
async fn a_posted_upload_is_stored_whatever_the_size_of_its_pieces() {
    let (gateway, _folder) = gateway().await;
    for (seed, len) in [(1, 0), (2, 1), (3, 65_519), (4, 65_520), (5, 1_000_000)] {
        let z = sealed(seed, len, LATER);
        let reply = post(gateway.address, NOWHERE, &z).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        assert_eq!(reply.json()["stored"], z.len());
        assert_eq!(reply.header("location"), format!("/monitor?ID={}", id_of(&z)));
        assert_eq!(reply.header("hoop-missing"), "");
    }
    for (seed, piece) in [(11, 1), (12, 100), (13, 70_000), (14, 10_000_000)] {
        let z = sealed(seed, 200_000, LATER);
        let request = Request::post(format!("/offload?dest={NOWHERE}"));
        let reply = send(gateway.address, request, chunked(&z, piece)).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["total"]), (201, &z.len().into()), "{piece}: {reply:?}");
    }
}

#[tokio::test]
async fn ranges_in_any_order_complete_an_upload_and_answers_say_what_is_missing() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 250_000, LATER);
    let total = z.len() as u64;
    let last = put(gateway.address, NOWHERE, &z, ByteRange::new(border(3), total)).await;
    assert_eq!(last.status, 202, "{last:?}");
    assert_eq!((last.header("hoop-state"), last.json()["state"].as_str()), ("receiving", Some("receiving")));
    assert_eq!(
        last.header("hoop-missing"),
        format!("{PRELUDE_LEN}-{}", border(3) - 1),
        "the prelude counts as received"
    );
    let second = put(gateway.address, NOWHERE, &z, ByteRange::new(border(1), border(2))).await;
    assert_eq!(second.status, 202);
    let again = put(gateway.address, NOWHERE, &z, ByteRange::new(border(1), border(2))).await;
    assert_eq!(again.status, 202, "a range may come twice");
    let standing = head(gateway.address, id_of(&z)).await;
    assert_eq!(standing.status, 200);
    assert_eq!(standing.header("hoop-total"), total.to_string());
    assert_eq!(
        standing.header("hoop-missing"),
        format!("{PRELUDE_LEN}-{}, {}-{}", border(1) - 1, border(2), border(3) - 1)
    );
    assert_eq!(put(gateway.address, NOWHERE, &z, ByteRange::new(0, border(1))).await.status, 202);
    let whole = put(gateway.address, NOWHERE, &z, ByteRange::new(border(2), border(3))).await;
    assert_eq!((whole.status.as_u16(), whole.header("hoop-missing")), (201, ""));
}

#[tokio::test]
async fn the_same_upload_again_gives_the_same_answer_by_post_and_by_put() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 150_000, LATER);
    let first = post(gateway.address, NOWHERE, &z).await;
    let second = post(gateway.address, NOWHERE, &z).await;
    let third = put(gateway.address, NOWHERE, &z, ByteRange::new(0, z.len() as u64)).await;
    assert_eq!(first.status, 201);
    assert_eq!((second.status, &second.body), (first.status, &first.body));
    assert_eq!((third.status, &third.body), (first.status, &first.body));
    let half = put(gateway.address, NOWHERE, &z, ByteRange::new(0, border(1))).await;
    assert_eq!(half.status, 201, "nothing is missing");
}

#[tokio::test]
async fn a_missing_wrong_or_forbidden_dest_is_refused() {
    let (gateway, _folder) = gateway_with(|config| config.allow_dest.clear()).await;
    let z = sealed(1, 10, LATER);
    for (query, status, code) in [
        ("", 400, "dest-missing"),
        ("?destination=https://photos.example/p", 400, "dest-missing"),
        ("?dest=", 400, "dest-invalid"),
        ("?dest=photos.example", 400, "dest-invalid"),
        ("?dest=http://photos.example/p", 400, "dest-invalid"),
        ("?dest=https://user:word@photos.example/p", 400, "dest-invalid"),
        ("?dest=https://photos.example/p&dest=https://other.example/p", 400, "dest-invalid"),
        ("?dest=https%3A%2F%2F192.168.1.1%2Fp", 403, "dest-forbidden"),
        ("?dest=https://[::ffff:127.0.0.1]/p", 403, "dest-forbidden"),
    ] {
        let reply = send(gateway.address, Request::post(format!("/offload{query}")), full(z.clone())).await;
        refused(&reply, status, code, "dest");
    }
}

#[tokio::test]
async fn a_body_that_is_no_sealed_upload_is_refused() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 100_000, LATER);
    let mut record_size = z.clone();
    record_size[16..20].copy_from_slice(&4096_u32.to_be_bytes());
    let mut tiny_records = z.clone();
    tiny_records[16..20].copy_from_slice(&3_u32.to_be_bytes());
    let mut version = z.clone();
    version[21] = 9;
    let mut short_ticket = z.clone();
    short_ticket[20] = 50;
    let bodies: [(&str, &[u8]); 8] = [
        ("nothing", b""),
        ("text", b"hello, world"),
        ("zeroes", &[0; 1000]),
        ("half a prelude", &z[..60]),
        ("a prelude alone", &z[..128]),
        ("another record size", &record_size),
        ("a record size that cannot be", &tiny_records),
        ("a ticket of tomorrow", &version),
    ];
    for (what, body) in bodies.into_iter().chain([("a ticket of another length", short_ticket.as_slice())]) {
        let reply = post(gateway.address, NOWHERE, body).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (422, "body-not-sealed"), "{what}: {reply:?}");
    }
    // Cut so that the last record is shorter than its tag.
    let reply = post(gateway.address, NOWHERE, &z[..border(1) as usize + 9]).await;
    assert_eq!(reply.code(), "body-not-sealed");
    let reply = send(gateway.address, Request::post(format!("/offload?dest={NOWHERE}")), chunked(&z[..300], 300)).await;
    assert_eq!(reply.status, 201, "a gateway cannot see that a body was cut within its only record; the service does");
}

#[tokio::test]
async fn an_expired_ticket_is_accepted_within_its_grace_and_then_gets_410() {
    let now = Clock::system().unix();
    let (gateway, _folder) = gateway().await;
    let reply = post(gateway.address, NOWHERE, &sealed(1, 10, UnixTime(now.0 - 400))).await;
    refused(&reply, 410, "ticket-expired", "");
    let reply = post(gateway.address, NOWHERE, &sealed(2, 10, UnixTime(now.0 - 200))).await;
    assert_eq!(reply.status, 201);
}

#[tokio::test]
async fn a_deadline_in_unix_seconds_may_change_and_is_capped_at_upload_expiry() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(config(folder.path())).await;
    let z = sealed(1, 100_000, LATER);
    let begun = |deadline: &str| {
        let range = format!("bytes 0-{}/{}", border(1) - 1, z.len());
        send(
            gateway.address,
            put_request(NOWHERE, &z, &range).header("hoop-deadline", deadline),
            full(z[..border(1) as usize].to_vec()),
        )
    };
    for wrong in ["", "soon", "-1", "+1", "1.5", "4294967296", "Sat, 21 Nov 2026 12:00:00 GMT"] {
        refused(&begun(wrong).await, 400, "request-invalid", "Hoop-Deadline");
    }
    let twice = Request::post(format!("/offload?dest={NOWHERE}")).header("hoop-deadline", 1).header("hoop-deadline", 2);
    refused(&send(gateway.address, twice, full(z.clone())).await, 400, "request-invalid", "Hoop-Deadline");

    assert_eq!(begun("1795003200").await.status, 202);
    // One that says nothing changes nothing.
    assert_eq!(put(gateway.address, NOWHERE, &z, ByteRange::new(border(1), z.len() as u64)).await.status, 201);
    let again = || Request::post(format!("/offload?dest={NOWHERE}"));
    let other = sealed(2, 10, LATER);
    assert_eq!(send(gateway.address, again().header("hoop-deadline", u32::MAX), full(other.clone())).await.status, 201);
    let third = sealed(3, 10, LATER);
    assert_eq!(
        send(gateway.address, again().header("hoop-deadline", 1_795_003_200), full(third.clone())).await.status,
        201
    );
    assert_eq!(
        send(gateway.address, again().header("hoop-deadline", 1_795_003_300), full(third.clone())).await.status,
        201
    );
    gateway.stop().await;

    let spool = Spool::open(Settings::new(folder.path())).unwrap();
    let deadline = |z: &[u8]| spool.get(id_of(z)).unwrap().unwrap().deadline.unwrap().0;
    let expires = spool.get(id_of(&other)).unwrap().unwrap().expires;
    assert_eq!(deadline(&z), 1_795_003_200);
    assert_eq!(deadline(&other), expires.plus_secs(KEEP_SECS).0);
    assert_eq!(deadline(&third), 1_795_003_300);
}

#[tokio::test]
async fn an_upload_that_was_begun_in_time_may_end_after_its_ticket() {
    let offset = Arc::new(AtomicU64::new(0));
    let seen = offset.clone();
    let clock = Clock::with_wall(move || SystemTime::now() + Duration::from_secs(seen.load(Ordering::Relaxed)));
    let (gateway, _folder) = gateway_with(|config| config.clock = clock).await;
    let expires = UnixTime(Clock::system().unix().0 + 60);
    let z = sealed(1, 100_000, expires);
    assert_eq!(put(gateway.address, NOWHERE, &z, ByteRange::new(0, border(1))).await.status, 202);
    offset.store(86_400, Ordering::Relaxed);
    let reply = put(gateway.address, NOWHERE, &z, ByteRange::new(border(1), z.len() as u64)).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let late = post(gateway.address, NOWHERE, &sealed(2, 10, expires)).await;
    refused(&late, 410, "ticket-expired", "");
}

#[tokio::test]
async fn ranges_that_are_malformed_off_the_grid_or_past_the_end_are_refused() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 250_000, LATER);
    let total = z.len();
    let try_range = async |range: &str, len: usize| {
        send(gateway.address, put_request(NOWHERE, &z, range), full(vec![0; len])).await
    };
    for range in ["", "bytes", "bytes 0-9", "bytes 5-4/100", "bytes 0-100/100", "bytes */100", "items 0-9/100"] {
        refused(&try_range(range, 10).await, 400, "range-invalid", "Content-Range");
    }
    for (first, last) in
        [(1, border(1) - 1), (0, border(1)), (0, 0), (border(1) + 1, border(2) - 1), (0, PRELUDE_LEN - 1)]
    {
        let reply = try_range(&format!("bytes {first}-{last}/{total}"), (last - first + 1) as usize).await;
        refused(&reply, 416, "range-off-grid", "Content-Range");
    }
    let longer = try_range(&format!("bytes {}-{}/{total}", border(1), border(2) - 1), 70_000).await;
    refused(&longer, 400, "range-invalid", "Content-Range");
    let no_range =
        Request::put(format!("/offload/{}?dest={NOWHERE}", id_of(&z))).header("hoop-prelude", prelude_header(&z));
    refused(&send(gateway.address, no_range, full("x")).await, 400, "range-invalid", "Content-Range");
    let no_prelude =
        Request::put(format!("/offload/{}?dest={NOWHERE}", id_of(&z))).header("content-range", "bytes 0-9/10");
    refused(&send(gateway.address, no_prelude, full("x")).await, 400, "request-invalid", "Hoop-Prelude");
    let bad_prelude = Request::put(format!("/offload/{}?dest={NOWHERE}", id_of(&z)))
        .header("content-range", "bytes 0-9/10")
        .header("hoop-prelude", "!!!");
    refused(&send(gateway.address, bad_prelude, full("x")).await, 422, "body-not-sealed", "Hoop-Prelude");
    let range = format!("bytes 0-{}/{total}", total - 1);
    for (field, value) in [("Content-Range", range.clone()), ("Hoop-Prelude", prelude_header(&sealed(2, 10, LATER)))] {
        let twice = put_request(NOWHERE, &z, &range).header(field, value);
        refused(&send(gateway.address, twice, full(z.clone())).await, 400, "request-invalid", field);
    }
    assert_eq!(head(gateway.address, id_of(&z)).await.status, 404, "nothing of it was kept");
}

#[tokio::test]
async fn a_chunked_range_that_is_longer_or_shorter_than_it_says_is_refused() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 250_000, LATER);
    let range = format!("bytes {}-{}/{}", border(1), border(3) - 1, z.len());
    let from = border(1) as usize;
    let body = chunked(&z[from..border(3) as usize + 5], 1_000);
    refused(&send(gateway.address, put_request(NOWHERE, &z, &range), body).await, 400, "range-invalid", "");
    let body = chunked(&z[from..border(2) as usize + 5], 1_000);
    refused(&send(gateway.address, put_request(NOWHERE, &z, &range), body).await, 422, "body-truncated", "");
    let missing = format!("{PRELUDE_LEN}-{}, {}-{}", border(1) - 1, border(2), z.len() - 1);
    assert_eq!(head(gateway.address, id_of(&z)).await.header("hoop-missing"), missing, "whole records are kept");
}

#[tokio::test]
async fn an_id_that_is_not_the_tickets_or_none_at_all_is_refused() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 10, LATER);
    let to = |id: &str| {
        Request::put(format!("/offload/{id}?dest={NOWHERE}"))
            .header("content-range", format!("bytes 0-{}/{}", z.len() - 1, z.len()))
            .header("hoop-prelude", prelude_header(&z))
    };
    let reply = send(gateway.address, to(&UploadId([2; 16]).to_hex()), full(z.clone())).await;
    refused(&reply, 400, "request-invalid", "Hoop-Prelude");
    for id in ["..", "ABCD", "%2e%2e%2fetc", "0101"] {
        refused(&send(gateway.address, to(id), full(z.clone())).await, 400, "request-invalid", "id");
    }
}

#[tokio::test]
async fn another_total_prelude_or_dest_for_one_id_is_a_conflict_without_effect() {
    let (gateway, _folder) = gateway_with(|config| config.cut_through = false).await;
    let z = sealed(1, 250_000, LATER);
    assert_eq!(put(gateway.address, NOWHERE, &z, ByteRange::new(0, border(2))).await.status, 202);
    let before = status(gateway.address, id_of(&z)).await;
    let longer = sealed(1, 260_000, LATER);
    refused(&post(gateway.address, NOWHERE, &longer).await, 409, "upload-conflict", "Content-Range");
    let mut salted = z.clone();
    salted[0] ^= 1;
    refused(&post(gateway.address, NOWHERE, &salted).await, 409, "upload-conflict", "Hoop-Prelude");
    refused(&post(gateway.address, "http://127.0.0.1:10/hoop/post", &z).await, 409, "upload-conflict", "dest");
    assert_eq!(status(gateway.address, id_of(&z)).await, before);
    assert_eq!(post(gateway.address, NOWHERE, &z).await.status, 201);
}

#[tokio::test]
async fn a_body_whose_first_bytes_contradict_the_prelude_is_refused() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 100_000, LATER);
    let mut other = z.clone();
    other[3] ^= 1;
    let range = format!("bytes 0-{}/{}", z.len() - 1, z.len());
    refused(
        &send(gateway.address, put_request(NOWHERE, &z, &range), full(other)).await,
        422,
        "body-not-sealed",
        "Hoop-Prelude",
    );
}

#[tokio::test]
async fn an_upload_larger_than_the_gateway_takes_is_refused_before_it_is_sent() {
    let (gateway, _folder) = gateway_with(|config| config.max_upload_bytes = 100_000).await;
    let z = sealed(1, 150_000, LATER);
    refused(&post(gateway.address, NOWHERE, &z).await, 413, "too-large", "");
    refused(&put(gateway.address, NOWHERE, &z, ByteRange::new(0, border(1))).await, 413, "too-large", "");
    let request = Request::post(format!("/offload?dest={NOWHERE}"));
    refused(&send(gateway.address, request, chunked(&z, 1_000)).await, 413, "too-large", "");
    assert_eq!(head(gateway.address, id_of(&z)).await.status, 404);
    assert_eq!(post(gateway.address, NOWHERE, &sealed(2, 90_000, LATER)).await.status, 201);
}

#[tokio::test]
async fn a_full_spool_says_when_to_come_back_and_keeps_what_it_has() {
    let (gateway, _folder) = gateway_with(|config| config.quota_bytes = Some(200_000)).await;
    let kept = sealed(1, 100_000, LATER);
    assert_eq!(post(gateway.address, NOWHERE, &kept).await.status, 201);
    let z = sealed(2, 150_000, LATER);
    let reply = post(gateway.address, NOWHERE, &z).await;
    refused(&reply, 507, "spool-full", "");
    assert!(!reply.header("retry-after").is_empty());
    let request = Request::post(format!("/offload?dest={NOWHERE}"));
    refused(&send(gateway.address, request, chunked(&z, 1_000)).await, 507, "spool-full", "");
    let test = get(gateway.address, "/test").await;
    assert_eq!((test.status.as_u16(), test.header("retry-after")), (503, "60"));
    assert_eq!(status(gateway.address, id_of(&kept)).await["stored"], kept.len());
}

#[tokio::test]
async fn what_is_not_there_is_404_and_what_cannot_be_done_is_405_with_what_can() {
    let (gateway, _folder) = gateway().await;
    refused(&get(gateway.address, "/hoop").await, 404, "not-found", "");
    for (method, path, allow) in [
        ("GET", "/offload", "POST"),
        ("POST", "/test", "GET, HEAD"),
        ("DELETE", "/monitor", "GET, HEAD"),
        ("PATCH", "/offload/01010101010101010101010101010101", "PUT, HEAD"),
    ] {
        let reply = send(gateway.address, Request::builder().method(method).uri(path), empty()).await;
        refused(&reply, 405, "method-not-allowed", "");
        assert_eq!(reply.header("allow"), allow);
    }
    let unknown = format!("/monitor?ID={}", UploadId([9; 16]));
    refused(&get(gateway.address, &unknown).await, 404, "upload-unknown", "ID");
    refused(&get(gateway.address, "/monitor?ID=x").await, 400, "request-invalid", "ID");
    refused(&get(gateway.address, "/monitor").await, 400, "request-invalid", "ID");
    let page = send(gateway.address, Request::get(unknown).header("accept", "text/html"), empty()).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (404, "text/html; charset=utf-8"));
}

#[tokio::test]
async fn the_monitor_speaks_html_to_people_and_json_to_programs() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 10, LATER);
    post(gateway.address, NOWHERE, &z).await;
    let target = format!("/monitor?ID={}", id_of(&z));
    let page = send(gateway.address, Request::get(&target).header("accept", "text/html,*/*;q=0.8"), empty()).await;
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(std::str::from_utf8(&page.body).unwrap().contains("You may leave"));
    let status = status(gateway.address, id_of(&z)).await;
    assert_eq!((&status["role"], &status["dest_origin"]), (&"gateway".into(), &"http://127.0.0.1:9".into()));
}

/// Sends the head of a `POST` and part of its body by hand.
async fn half_a_post(address: SocketAddr, z: &[u8], part: usize) -> tokio::net::TcpStream {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head =
        format!("POST /offload?dest={NOWHERE} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n", z.len());
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&z[..part]).await.unwrap();
    socket
}

#[tokio::test]
async fn an_interrupted_upload_keeps_complete_records_and_goes_on_from_there() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 250_000, LATER);
    drop(half_a_post(gateway.address, &z, border(2) as usize + 1_000).await);
    let kept = until(gateway.address, id_of(&z), "two records", |status| status["stored"] == border(2)).await;
    assert_eq!(kept["missing"], format!("{}-{}", border(2), z.len() - 1));
    let rest = put(gateway.address, NOWHERE, &z, ByteRange::new(border(2), z.len() as u64)).await;
    assert_eq!(rest.status, 201);
}

#[tokio::test]
async fn a_second_sender_need_not_wait_and_the_hanging_first_overwrites_nothing() {
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 250_000, LATER);
    let mut hanging = half_a_post(gateway.address, &z, border(2) as usize + 1_000).await;
    // The gateway has begun with it once the file is there.
    while written(folder.path()) < border(1) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(post(gateway.address, NOWHERE, &z).await.status, 201);
    // The first wakes up and sends something else.
    let rest = vec![0xee; z.len() - border(2) as usize - 1_000];
    hanging.write_all(&rest).await.unwrap();
    let mut answer = [0; 12];
    hanging.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
    assert!(recorded(folder.path(), id_of(&z)) == z, "what was acknowledged stays as it was");
}

#[tokio::test]
async fn a_known_upload_is_answered_without_reading_all_of_it_again() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 40 << 20, LATER);
    assert_eq!(post(gateway.address, NOWHERE, &z).await.status, 201);
    // Half of it, and then nothing more: the answer does not wait for the rest.
    let mut socket = half_a_post(gateway.address, &z, 20 << 20).await;
    let mut answer = [0; 12];
    tokio::time::timeout(GENEROUS, socket.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
    // A PUT that asks first is answered before any of its body.
    let mut socket = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let request = format!(
        "PUT /offload/{}?dest={NOWHERE} HTTP/1.1\r\nHost: gateway\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\
         Content-Range: bytes 0-{}/{}\r\nHoop-Prelude: {}\r\n\r\n",
        id_of(&z),
        z.len(),
        z.len() - 1,
        z.len(),
        prelude_header(&z)
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    tokio::time::timeout(GENEROUS, socket.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
}

#[tokio::test]
async fn every_truncation_of_a_head_and_garbage_leave_the_gateway_standing() {
    let (gateway, _folder) = gateway().await;
    let head =
        b"PUT /offload/01 HTTP/1.1\r\nHost: gateway\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n";
    let garbage =
        [&b"\x16\x03\x01\x02\x00"[..], b"POST /offload HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"\r\n\r\n\r\n"];
    for garbage in (0..=head.len()).map(|len| &head[..len]).chain(garbage) {
        let mut socket = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
        socket.write_all(garbage).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
    }
    assert_eq!(get(gateway.address, "/test").await.status, 200);
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(config(folder.path())).await;
    let (whole, part) = (sealed(1, 100_000, LATER), sealed(2, 200_000, LATER));
    post(first.address, NOWHERE, &whole).await;
    put(first.address, NOWHERE, &part, ByteRange::new(0, border(1))).await;
    first.stop().await;
    let second = start(config(folder.path())).await;
    assert_eq!(status(second.address, id_of(&whole)).await["stored"], whole.len());
    let rest = put(second.address, NOWHERE, &part, ByteRange::new(border(1), part.len() as u64)).await;
    assert_eq!(rest.status, 201);
}

#[tokio::test]
async fn two_gateways_live_side_by_side_but_not_in_one_spool() {
    let (one, folder) = gateway().await;
    let (two, _other) = gateway().await;
    assert_ne!(one.address, two.address);
    let error = hoop_gateway::Gateway::open(config(folder.path())).await.unwrap_err();
    assert!(error.to_string().contains("in use by another gateway"), "{error}");
}
