//! What comes in over `/hoop/post`: whole, in ranges, damaged, late, twice.

use crate::support::device::{
    self, Ticket, open_answer, plaintext, seal, seal_plaintext, seal_with_salt, ticket, ticket_at,
};
use crate::support::upstream::{Upstream, answer};
use crate::support::{self, COOKIE, Sidecar, bytes, wire};
use hoop_http::Clock;
use hoop_seal::{Grant, Keyring, KwsId, Route, ServiceKey, Suite, UploadKey};
use hoop_units::{ByteRange, UnixTime, UploadId};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const MB: usize = 1 << 20;

#[tokio::test]
async fn a_whole_body_arrives_once_and_its_answer_is_for_the_device_alone() {
    let upstream = Upstream::new(|_, _| {
        answer("201 Created\r\nContent-Type: text/plain\r\nSet-Cookie: s=1\r\nX-Other: 1", "hello device")
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(MB, 1));
    let reply = sidecar.send("POST", "/hoop/post", &[("Prefer", "wait=30")], &sealed.z).await;
    assert_eq!((reply.status, reply.field("hoop-state")), (200, Some("accepted")), "{reply:?}");
    assert_eq!(reply.field("hoop-upload-id"), Some(ticket.id.as_str()));
    assert_eq!(reply.field("hoop-total"), Some(sealed.z.len().to_string().as_str()));
    assert_eq!(reply.field("hoop-missing"), Some(""));
    assert_eq!(upstream.whole().len(), 1);
    assert_eq!(upstream.whole()[0].body, bytes(MB, 1));
    let status = sidecar.status(&ticket.id).await;
    let opened = open_answer(&ticket, &status);
    assert_eq!(opened, "HTTP/1.1 201 \r\nHoop-State: accepted\r\nContent-Type: text/plain\r\n\r\nhello device");
    // The bytes of what was accepted are deleted.
    sidecar.forgets_bodies().await;
}

#[tokio::test]
async fn the_same_body_again_gets_the_stored_receipt_and_no_second_delivery() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, b"once");
    sealed.post(&sidecar).await;
    let first = sidecar.reaches(&ticket.id, "accepted").await;
    for _ in 0..3 {
        let again = sealed.post(&sidecar).await;
        assert_eq!(again.status, 200);
        assert_eq!(again.json(), first);
        let put = sealed.put(sidecar.address, ByteRange::new(0, sealed.z.len() as u64)).await;
        assert_eq!((put.status, put.json()), (200, first.clone()));
    }
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn a_ticket_that_was_used_for_another_body_is_a_conflict() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let text = plaintext(&ticket, "POST /a", "", b"one");
    seal_with_salt(&ticket, &text, [1; 16]).post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let other = seal_with_salt(&ticket, &text, [2; 16]).post(&sidecar).await;
    assert_eq!(other.problem(), (409, "upload-conflict".into()));
    let longer = seal_with_salt(&ticket, &plaintext(&ticket, "POST /a", "", b"longer"), [1; 16]);
    assert_eq!(longer.post(&sidecar).await.problem(), (409, "upload-conflict".into()));
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn ranges_in_any_order_twice_and_from_several_senders_make_the_whole() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let body = bytes(MB, 3);
    let sealed = Arc::new(seal(&ticket, &body));
    let records = sealed.layout.records();
    let reply = sealed.put(sidecar.address, sealed.records(records - 1, records)).await;
    assert_eq!((reply.status, reply.field("hoop-state")), (202, Some("receiving")), "{reply:?}");
    let expected = format!("{}-{}", sealed.layout.prelude_len(), sealed.layout.record(records - 1).start - 1);
    assert_eq!(reply.field("hoop-missing"), Some(expected.as_str()), "the prelude counts as received");
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..4 {
        let (sealed, address) = (sealed.clone(), sidecar.address);
        senders.spawn(async move {
            // Each goes its own way over all records, so that all overlap.
            for step in 0..records {
                let first = (step * [1, 3, 5, 7][sender] + sender as u64) % records;
                let end = (first + 2).min(records);
                let reply = sealed.put(address, sealed.records(first, end)).await;
                assert!(matches!(reply.status, 200 | 202), "{reply:?}");
            }
        });
    }
    senders.join_all().await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole().len(), 1);
    assert_eq!(upstream.whole()[0].body, body);
}

#[tokio::test]
async fn a_range_that_means_nothing_is_refused_and_changes_nothing() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(200_000, 3));
    let (total, header) = (sealed.z.len(), sealed.prelude.to_header());
    let path = format!("/hoop/post/{}", sealed.id);
    let put = async |range: &str, body: &[u8]| {
        let fields = [("Content-Range", range), ("Hoop-Prelude", header.as_str())];
        sidecar.send("PUT", &path, &fields, body).await.problem()
    };
    let record = |n: u64| sealed.layout.record(n);
    let first = record(0).start;
    assert_eq!(put("bytes 5-4/100", b"").await, (400, "range-invalid".into()));
    assert_eq!(put("0-1/2", b"xx").await, (400, "range-invalid".into()));
    assert_eq!(put(&format!("bytes 0-{total}/{total}"), &sealed.z).await, (400, "range-invalid".into()));
    assert_eq!(put(&format!("bytes 0-{}/{total}", total - 1), b"short").await, (400, "range-invalid".into()));
    assert_eq!(
        put(&format!("bytes {}-{}/{total}", first + 1, total - 1), &sealed.z[first as usize + 1..]).await.0,
        416
    );
    assert_eq!(put(&format!("bytes {first}-{first}/{total}"), b"x").await, (416, "range-off-grid".into()));
    assert_eq!(put(&format!("bytes 0-0/{total}"), b"x").await, (416, "range-off-grid".into()));
    assert_eq!(put("bytes 0-9/10", b"0123456789").await, (422, "body-not-sealed".into()));
    let huge = (11_u64 << 30).to_string();
    assert_eq!(put(&format!("bytes 0-9/{huge}"), b"0123456789").await, (413, "too-large".into()));
    let mut changed = sealed.z.clone();
    changed[3] ^= 1;
    let whole = format!("bytes 0-{}/{total}", total - 1);
    assert_eq!(put(&whole, &changed).await, (400, "range-invalid".into()), "the body contradicts its header");
    let missing = [("Content-Range", whole.as_str())];
    assert_eq!(sidecar.send("PUT", &path, &missing, &sealed.z).await.problem(), (400, "range-invalid".into()));
    let twice = [("Content-Range", whole.as_str()), ("Hoop-Prelude", &header), ("Hoop-Prelude", &header)];
    assert_eq!(sidecar.send("PUT", &path, &twice, &sealed.z).await.problem(), (400, "range-invalid".into()));
    let chunked = [("Transfer-Encoding", "chunked")];
    let reply = sidecar.send("POST", "/hoop/post", &chunked, b"0\r\n\r\n").await;
    assert_eq!(reply.problem(), (411, "length-required".into()));
    let elsewhere = format!("/hoop/post/{}", "ab".repeat(16));
    let fields = [("Content-Range", whole.as_str()), ("Hoop-Prelude", header.as_str())];
    assert_eq!(sidecar.send("PUT", &elsewhere, &fields, &sealed.z).await.problem(), (400, "request-invalid".into()));
    assert_eq!(sidecar.send("HEAD", &path, &[], b"").await.status, 404, "nothing of it has come");
    // A range of the same upload with another total.
    assert_eq!(sealed.put(sidecar.address, sealed.records(0, 1)).await.status, 202);
    let other = format!("bytes {}-{}/{}", record(1).start, record(1).end - 1, total - 1);
    let body = &sealed.z[record(1).start as usize..record(1).end as usize];
    assert_eq!(put(&other, body).await, (409, "upload-conflict".into()));
    let head = sidecar.send("HEAD", &path, &[], b"").await;
    assert_eq!((head.status, head.field("hoop-state")), (200, Some("receiving")));
    assert_eq!(head.field("hoop-missing").unwrap(), format!("{}-{}", record(1).start, total - 1));
    assert!(head.body.is_empty());
    assert_eq!(upstream.arrivals().len(), 0);
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_refused_and_what_was_right_is_kept() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(200_000, 9));
    let flip = |at: u64| {
        let mut z = sealed.z.clone();
        z[at as usize] ^= 0x10;
        z
    };
    let ticket_start = 21;
    for (what, at, expected) in [
        ("record size", 18, (422, "body-not-sealed")),
        ("version", ticket_start, (403, "ticket-foreign")),
        ("key id", ticket_start + 1, (403, "ticket-foreign")),
        ("upload id", ticket_start + 5, (403, "ticket-foreign")),
        ("expiry", ticket_start + 21, (403, "ticket-foreign")),
        ("nonce", ticket_start + 25, (403, "ticket-foreign")),
        ("ciphertext", ticket_start + 37, (403, "ticket-foreign")),
        ("tag", ticket_start + 106, (403, "ticket-foreign")),
        ("salt", 0, (422, "record-corrupt")),
    ] {
        let reply = sidecar.send("POST", "/hoop/post", &[], &flip(at)).await;
        assert_eq!(reply.problem(), (expected.0, expected.1.to_owned()), "{what}");
    }
    assert_eq!(sidecar.bodies(), Vec::<String>::new(), "nobody without the key fills the folder");
    for record in (0..sealed.layout.records()).rev() {
        let ticket = device::ticket(&sidecar).await;
        let sealed = seal(&ticket, &bytes(200_000, 9));
        let range = sealed.layout.record(record);
        for at in [range.start, range.start + range.len() / 2, range.end - 1] {
            let mut z = sealed.z.clone();
            z[at as usize] ^= 1;
            let reply = sidecar.send("POST", "/hoop/post", &[], &z).await;
            assert_eq!(reply.problem(), (422, "record-corrupt".into()));
            assert!(reply.json()["detail"].as_str().unwrap().contains(&format!("record {record}")), "{reply:?}");
            let head = sidecar.send("HEAD", &format!("/hoop/post/{}", ticket.id), &[], b"").await;
            match record {
                0 => assert_eq!(head.status, 404),
                _ => {
                    let missing = head.field("hoop-missing").unwrap();
                    assert_eq!(missing, format!("{}-{}", range.start, z.len() - 1), "what came before is kept");
                }
            }
        }
        // The right bytes come from elsewhere.
        sealed.is_taken_by(&sidecar).await;
        sidecar.reaches(&ticket.id, "accepted").await;
    }
    assert_eq!(upstream.whole().len() as u64, sealed.layout.records());
}

#[tokio::test]
async fn verified_bytes_are_never_overwritten() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let body = bytes(200_000, 4);
    let mut other = body.clone();
    other[100_000] ^= 1;
    // Two bodies under one ticket, salt and length: each record of both opens.
    let (one, two) = (
        seal_with_salt(&ticket, &plaintext(&ticket, "POST /u", "", &body), [5; 16]),
        seal_with_salt(&ticket, &plaintext(&ticket, "POST /u", "", &other), [5; 16]),
    );
    assert_ne!(one.z, two.z);
    one.put(sidecar.address, one.records(1, 3)).await;
    two.is_taken_by(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole()[0].body, body);
}

#[tokio::test]
async fn a_lie_about_the_total_costs_time_and_not_the_upload() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(300_000, 4));
    let lie = async |total: usize| {
        let range = sealed.layout.record(1);
        let content_range = format!("bytes {range}/{total}");
        let fields = [("Content-Range", content_range.as_str()), ("Hoop-Prelude", &sealed.prelude.to_header())];
        let body = &sealed.z[range.start as usize..range.end as usize];
        sidecar.send("PUT", &format!("/hoop/post/{}", sealed.id), &fields, body).await
    };
    assert_eq!(lie(sealed.z.len() + 1_000_000).await.status, 202, "nobody can tell yet");
    assert_eq!(sealed.put(sidecar.address, sealed.records(2, 3)).await.status, 202, "nor who is right");
    assert_eq!(lie(sealed.z.len() + 1_000_000).await.status, 202);
    let first = sealed.put(sidecar.address, sealed.records(0, 1)).await;
    assert_eq!(first.status, 202);
    assert_eq!(lie(sealed.z.len() + 1_000_000).await.problem(), (409, "upload-conflict".into()), "record 0 proves it");
    sealed.is_taken_by(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole()[0].body, bytes(300_000, 4));
}

/// Whoever has seen an upload's prelude can claim another total for it, without any of its records. What had come then
/// lost its row, and its body stayed without one.
#[tokio::test]
async fn a_refused_claim_of_another_total_costs_an_upload_nothing() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.max_stored_bytes = 8 << 20).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(300_000, 4));
    let path = format!("/hoop/post/{}", sealed.id);
    let claim = async |total: usize, body: &[u8]| {
        let start = sealed.layout.record(1).start;
        let content_range = format!("bytes {start}-{}/{total}", start + body.len() as u64 - 1);
        let fields = [("Content-Range", content_range.as_str()), ("Hoop-Prelude", &sealed.prelude.to_header())];
        sidecar.send("PUT", &path, &fields, body).await
    };
    assert_eq!(sealed.put(sidecar.address, sealed.records(1, 4)).await.status, 202);
    let before = sidecar.send("HEAD", &path, &[], b"").await;
    let refused = claim(sealed.z.len() + 1, &[0; 65_536]).await;
    assert_eq!(refused.problem(), (422, "record-corrupt".into()));
    let after = sidecar.send("HEAD", &path, &[], b"").await;
    assert_eq!((after.status, after.field("hoop-missing")), (200, before.field("hoop-missing")));
    assert_eq!(sidecar.bodies(), std::slice::from_ref(&sealed.id));
    // One whose record opens takes the body's place.
    let record = sealed.layout.record(1);
    let opens = claim(sealed.z.len() + 1, &sealed.z[record.start as usize..record.end as usize]).await;
    assert_eq!((opens.status, sidecar.bodies().len()), (202, 1));
    assert!(opens.field("hoop-missing").unwrap().contains(&format!(", {}-", record.end)), "{opens:?}");
    sealed.is_taken_by(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole()[0].body, bytes(300_000, 4));
}

#[tokio::test]
async fn a_message_that_breaks_off_keeps_its_whole_records() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(400_000, 5));
    let request = wire::request("POST", "/hoop/post", &[], &sealed.z);
    let head_len = request.len() - sealed.z.len();
    let cut = sealed.layout.record(3).start as usize + 1_000;
    let mut stream = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &request[..head_len + cut]).await.unwrap();
    drop(stream);
    let path = format!("/hoop/post/{}", ticket.id);
    let expected = format!("{}-{}", sealed.layout.record(3).start, sealed.z.len() - 1);
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    loop {
        let head = sidecar.send("HEAD", &path, &[], b"").await;
        if head.field("hoop-missing") == Some(expected.as_str()) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{head:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rest = ByteRange::new(sealed.layout.record(3).start, sealed.z.len() as u64);
    sealed.put(sidecar.address, rest).await.is_taken();
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole()[0].body, bytes(400_000, 5));
}

/// The file of a stopped upload is deleted. It takes its room on the disk until nobody has it open.
#[tokio::test]
async fn stopping_an_upload_ends_a_message_that_brings_nothing_more() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(600_000, 5));
    assert_eq!(sealed.put(sidecar.address, sealed.records(0, 2)).await.status, 202);
    let request = sealed.put_request(sealed.records(2, 6));
    let mut stream = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &request[..request.len() - 100_000]).await.unwrap();
    let open = || files_open(&sealed.id);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while open() == 0 {
        assert!(tokio::time::Instant::now() < deadline, "the message does not begin");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let path = format!("/hoop/uploads/{}", sealed.id);
    assert_eq!(sidecar.send("DELETE", &path, &[("Hoop-Token", &ticket.token)], b"").await.status, 200);
    let told = tokio::time::timeout(Duration::from_secs(20), wire::read_until(&mut stream, b"\r\n\r\n")).await;
    let told = String::from_utf8(told.expect("it ends at once")).unwrap();
    assert!(told.starts_with("HTTP/1.1 410 "), "{told}");
    while open() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "the file is still open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Otherwise a message that goes on slowly would keep the deleted body open.
#[tokio::test]
async fn a_stop_ends_messages_even_if_its_client_leaves_at_once() {
    use tokio::io::AsyncWriteExt as _;
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.tickets_per_minute = 1_000).await;
    let mut stopped = Vec::new();
    for n in 0..40 {
        let ticket = ticket(&sidecar).await;
        let sealed = seal(&ticket, &bytes(600_000, n));
        assert_eq!(sealed.put(sidecar.address, sealed.records(0, 2)).await.status, 202);
        let request = sealed.put_request(sealed.records(2, 6));
        let mut message = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
        message.write_all(&request[..request.len() - 100_000]).await.unwrap();
        let deadline = tokio::time::Instant::now() + support::PATIENCE / 2;
        while files_open(&sealed.id) == 0 {
            assert!(tokio::time::Instant::now() < deadline, "the message does not begin");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut stop = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
        let path = format!("/hoop/uploads/{}", sealed.id);
        stop.write_all(&wire::request("DELETE", &path, &[("Hoop-Token", &ticket.token)], b"")).await.unwrap();
        tokio::time::sleep(Duration::from_micros(100 * n)).await;
        drop(stop);
        stopped.push((sealed, message));
    }
    let mut ended = 0;
    for (sealed, message) in &mut stopped {
        if sidecar.send("HEAD", &format!("/hoop/post/{}", sealed.id), &[], b"").await.field("hoop-state")
            == Some("stopped")
        {
            let told = tokio::time::timeout(Duration::from_secs(20), wire::read_until(message, b"\r\n\r\n")).await;
            assert!(told.is_ok(), "the message of {} goes on", sealed.id);
            ended += 1;
        }
    }
    assert!(ended > 0, "no stop was heard");
}

/// How many times this process has a body open.
fn files_open(id: &str) -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    paths.filter(|path| path.to_string_lossy().contains(id)).count()
}

#[tokio::test]
async fn a_sender_that_leaves_with_its_last_byte_has_brought_all() {
    use tokio::io::AsyncWriteExt as _;
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    for n in 0..40 {
        let ticket = ticket(&sidecar).await;
        let sealed = seal(&ticket, &bytes(1_000 + n * 20_000, 5));
        let mut stream = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
        stream.write_all(&wire::request("POST", "/hoop/post", &[], &sealed.z)).await.unwrap();
        drop(stream);
        let path = format!("/hoop/post/{}", ticket.id);
        let deadline = tokio::time::Instant::now() + support::PATIENCE / 2;
        // Nobody rings again: the message's own flush must have told the worker.
        while sidecar.send("HEAD", &path, &[], b"").await.field("hoop-state") != Some("accepted") {
            assert!(tokio::time::Instant::now() < deadline, "upload {n} is not accepted");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(upstream.whole().len(), 40);
}

#[tokio::test]
async fn a_truncated_body_is_never_taken_for_a_whole_one() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let sealed = seal(&ticket(&sidecar).await, &bytes(200_000, 6));
    // Cut at a record's border, and announced as if that were all.
    let cut = &sealed.z[..sealed.layout.record(1).end as usize];
    let reply = sidecar.send("POST", "/hoop/post", &[], cut).await;
    assert_eq!(reply.problem(), (422, "length-mismatch".into()));
    let reply = sidecar.send("POST", "/hoop/post", &[], &sealed.z[..60]).await;
    assert_eq!(reply.problem(), (422, "body-not-sealed".into()));
    assert_eq!(upstream.arrivals().len(), 0);
}

/// A ticket that the service did not issue just now, but could have.
fn made(keys: &Keyring, not_before: u32, expires: u32, max_bytes: u64) -> Ticket {
    made_for(keys, support::ORIGIN, not_before, expires, max_bytes)
}

fn made_for(keys: &Keyring, origin: &str, not_before: u32, expires: u32, max_bytes: u64) -> Ticket {
    let id = UploadId(bytes(16, u64::from(not_before) * 3 + max_bytes).try_into().unwrap());
    let key = UploadKey([6; 32]);
    let grant = Grant {
        key: key.clone(),
        not_before: UnixTime(not_before),
        max_bytes,
        route: Route::ANY,
        suite: Suite::Aes256Gcm,
    };
    let content = json!({"expires": expires}).to_string();
    use base64::Engine as _;
    let token = keys.seal_token(origin, id, content.as_bytes(), [3; 12]);
    Ticket {
        id: id.to_hex(),
        ticket: keys.seal_ticket(origin, id, UnixTime(expires), &grant, [4; 12]).to_vec(),
        key,
        token: base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token),
        suite: Suite::Aes256Gcm,
    }
}

fn now() -> u32 {
    u32::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

#[tokio::test]
async fn expired_early_foreign_and_overlong_uploads_get_their_codes() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.max_bytes = 100_000).await;
    let (keys, now) = (support::keys(), now());
    let strange = Keyring::new(ServiceKey::new(KwsId([1; 4]), [99; 32]));
    let unknown = Keyring::new(ServiceKey::new(KwsId([9; 4]), [2; 32]));
    let fine = (now - 10, now + 1_000, 1_000_000);
    for (what, ticket, body, expected) in [
        ("expired", made(&keys, now - 9_000, now - 320, 1_000_000), 5, (410, "ticket-expired")),
        ("early", made(&keys, now + 400, now + 9_000, 1_000_000), 5, (403, "ticket-early")),
        ("strange key", made(&strange, fine.0, fine.1, fine.2), 5, (403, "ticket-foreign")),
        ("unknown key", made(&unknown, fine.0, fine.1, fine.2), 5, (403, "ticket-foreign")),
        ("other service", made_for(&keys, "https://other.example", fine.0, fine.1, fine.2), 5, (403, "ticket-foreign")),
        ("longer than its ticket allows", made(&keys, fine.0, fine.1, 500), 400, (413, "too-large")),
        ("longer than the service allows", made(&keys, fine.0, fine.1, fine.2), 100_001, (413, "too-large")),
    ] {
        let reply = seal(&ticket, &bytes(body, 1)).post(&sidecar).await;
        assert_eq!(reply.problem(), (expected.0, expected.1.to_owned()), "{what}");
    }
    for (what, ticket) in [
        ("expired within the grace", made(&keys, now - 9_000, now - 200, 1_000_000)),
        ("early within the grace", made(&keys, now + 200, now + 9_000, 1_000_001)),
    ] {
        let reply = seal(&ticket, b"x").post(&sidecar).await;
        assert!(matches!(reply.status, 200 | 202), "{what}: {reply:?}");
        sidecar.reaches(&ticket.id, "accepted").await;
    }
}

#[tokio::test]
async fn what_record_0_says_is_checked_at_once() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let one = ticket_at(sidecar.address, &json!({"method": "PUT", "target": "/api/x?y=1"})).await;
    let other = ticket(&sidecar).await;
    let line = "PUT /api/x?z=2";
    let with = |token: &str| Ticket { token: token.to_owned(), ..one.clone() };
    let mut altered = other.token.clone().into_bytes();
    altered[60] = if altered[60] == b'A' { b'B' } else { b'A' };
    let altered = String::from_utf8(altered).unwrap();
    let text = |ticket: &Ticket, line: &str, fields: &str| plaintext(ticket, line, fields, b"body");
    for (what, text, expected) in [
        ("another upload's token", text(&with(&other.token), line, ""), (403, "token-mismatch")),
        ("an altered token", text(&with(&altered), line, ""), (403, "token-mismatch")),
        ("no token at all", text(&with("AAAA"), line, ""), (403, "token-invalid")),
        ("text for a token", text(&with("not base64url!"), line, ""), (403, "token-invalid")),
        ("another method", text(&one, "POST /api/x", ""), (403, "route-mismatch")),
        ("another path", text(&one, "PUT /api/y", ""), (403, "route-mismatch")),
        ("chunked", text(&one, line, "Transfer-Encoding: chunked\r\n"), (422, "head-invalid")),
        ("two lengths", text(&one, line, "Content-Length: 4\r\n"), (422, "head-invalid")),
        ("more body than it says", [text(&one, line, ""), b"!".to_vec()].concat(), (422, "length-mismatch")),
        ("no head", vec![b'x'; 70_000], (422, "head-invalid")),
    ] {
        let reply = seal_plaintext(&one, &text).post(&sidecar).await;
        assert_eq!(reply.problem(), (expected.0, expected.1.to_owned()), "{what}");
    }
    // A bad record 0 comes last, and the others were kept; it is refused all the same.
    let long = seal_plaintext(&one, &plaintext(&with(&other.token), line, "", &bytes(100_000, 1)));
    assert_eq!(long.put(sidecar.address, long.records(1, 2)).await.status, 202);
    let reply = long.put(sidecar.address, long.records(0, 1)).await;
    assert_eq!(reply.problem(), (403, "token-mismatch".into()));
    assert_eq!(upstream.arrivals().len(), 0);
    let fresh = ticket_at(sidecar.address, &json!({"method": "PUT", "target": "/api/x?y=1"})).await;
    // A query may differ.
    seal_plaintext(&fresh, &text(&fresh, line, "")).is_taken_by(&sidecar).await;
}

#[tokio::test]
async fn a_cookie_or_an_origin_on_the_post_changes_nothing() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, b"body");
    let fields = [
        ("Cookie", "session=mallory"),
        ("Authorization", "Basic mallory"),
        ("Origin", "https://evil.example"),
        ("X-Forwarded-For", "203.0.113.9"),
    ];
    let reply = sidecar.send("POST", "/hoop/post", &fields, &sealed.z).await;
    reply.is_taken();
    assert_eq!(reply.field("access-control-allow-origin"), Some("*"));
    assert_eq!(reply.field("access-control-allow-credentials"), None);
    sidecar.reaches(&ticket.id, "accepted").await;
    let arrival = &upstream.whole()[0];
    assert_eq!(arrival.fields("cookie"), [COOKIE]);
    assert!(arrival.fields("authorization").is_empty() && !arrival.head.contains("evil"), "{}", arrival.head);
    assert_eq!(arrival.fields("x-forwarded-for"), ["127.0.0.1"], "the device's, when it fetched the ticket");
    let preflight = sidecar.send("OPTIONS", "/hoop/post", &[("Origin", "https://gateway.example")], b"").await;
    assert_eq!((preflight.status, preflight.field("access-control-allow-origin")), (204, Some("*")));
    assert_eq!(preflight.field("access-control-allow-credentials"), None);
}

#[tokio::test]
async fn an_upload_begun_in_time_may_end_late_and_clocks_may_jump() {
    let upstream = Upstream::willing().await;
    let offset = Arc::new(AtomicU64::new(0));
    let ahead = offset.clone();
    let clock = Clock::with_wall(move || SystemTime::now() + Duration::from_secs(ahead.load(Ordering::Relaxed)));
    let sidecar = Sidecar::with(upstream.address, |config| config.clock = clock).await;
    let (one, two) = (ticket(&sidecar).await, ticket(&sidecar).await);
    let (first, second) = (seal(&one, &bytes(200_000, 1)), seal(&two, b"never begun"));
    first.put(sidecar.address, first.records(0, 1)).await;
    const DAY: u64 = 24 * 3600;
    offset.store(8 * DAY, Ordering::Relaxed);
    assert_eq!(second.post(&sidecar).await.problem(), (410, "ticket-expired".into()));
    first.is_taken_by(&sidecar).await;
    sidecar.reaches(&one.id, "accepted").await;
    // Set back again: what is done stays done.
    offset.store(0, Ordering::Relaxed);
    assert_eq!(first.post(&sidecar).await.status, 200);
    assert_eq!(sidecar.status(&one.id).await["ends"], serde_json::Value::Null);
    let three = ticket(&sidecar).await;
    let (third, third_id) = (seal(&three, &bytes(200_000, 1)), three.id.clone());
    third.put(sidecar.address, third.records(0, 1)).await;
    let status = sidecar.status(&third_id).await;
    let (expires, ends) = (status["expires"].as_u64().unwrap(), status["ends"].as_u64().unwrap());
    assert_eq!(ends - expires, 7 * DAY, "until then it may still come: {status}");
    offset.store(15 * DAY, Ordering::Relaxed);
    assert_eq!(third.post(&sidecar).await.problem(), (410, "upload-expired".into()));
    assert_eq!(upstream.whole().len(), 1);
}

#[tokio::test]
async fn the_key_of_a_ticket_may_rotate_while_the_upload_is_on_its_way() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(100_000, 8));
    sealed.put(sidecar.address, sealed.records(0, 1)).await;
    let dir = sidecar.stop().await.unwrap();
    let new = ServiceKey::new(KwsId([7; 4]), [7; 32]);
    let lines = format!("{}\n{}\n", new.to_line(), support::keys().primary().to_line());
    let rotated = Keyring::parse(&lines).unwrap();
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |config| config.keys = rotated).await;
    sealed.put(sidecar.address, sealed.records(1, 2)).await;
    let status = sidecar.reaches(&ticket.id, "accepted").await;
    assert!(open_answer(&ticket, &status).starts_with("HTTP/1.1 201"));
    let list = sidecar.send("GET", "/hoop/uploads", &[("Cookie", COOKIE)], b"").await.json();
    assert_eq!(list["uploads"][0]["id"], ticket.id.as_str(), "its owner is known by the old key, too");
    sidecar.stop().await;
}

#[tokio::test]
async fn a_known_upload_is_answered_without_its_bytes() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(200_000, 1));
    sealed.post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let request = sealed.put_request(sealed.records(0, 2));
    let head_len = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 2;
    let mut stream = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
    stream.write_all(&request[..head_len]).await.unwrap();
    stream.write_all(b"Expect: 100-continue\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn a_full_quota_defers_new_uploads_and_lets_begun_ones_end() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.max_stored_bytes = 300_000).await;
    let (one, two) = (ticket(&sidecar).await, ticket(&sidecar).await);
    let (first, second) = (seal(&one, &bytes(200_000, 1)), seal(&two, &bytes(200_000, 2)));
    assert_eq!(first.put(sidecar.address, first.records(1, 2)).await.status, 202);
    let full = second.post(&sidecar).await;
    assert_eq!((full.problem(), full.field("retry-after")), ((507, "spool-full".into()), Some("60")));
    first.is_taken_by(&sidecar).await;
    sidecar.reaches(&one.id, "accepted").await;
    sidecar.forgets_bodies().await;
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    while second.post(&sidecar).await.status == 507 {
        assert!(tokio::time::Instant::now() < deadline);
    }
    sidecar.reaches(&two.id, "accepted").await;
}

#[tokio::test]
async fn a_long_upload_claims_room_only_as_it_comes() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.max_stored_bytes = 20 << 20).await;
    let (one, two) = (ticket(&sidecar).await, ticket(&sidecar).await);
    let long = seal(&one, &bytes(40 << 20, 1));
    assert_eq!(long.put(sidecar.address, long.records(1, 2)).await.status, 202);
    seal(&two, &bytes(1 << 20, 2)).post(&sidecar).await;
    sidecar.reaches(&two.id, "accepted").await;
    let full = long.put(sidecar.address, long.records(2, 600)).await;
    assert_eq!(full.problem(), (507, "spool-full".into()));
    let kept = sidecar.status(&one.id).await["received"].as_u64().unwrap();
    assert!((16 << 20..20 << 20).contains(&kept), "{kept} bytes are kept");
}

#[tokio::test]
async fn uploads_that_begin_together_have_no_more_room_than_one_after_the_other() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.max_stored_bytes = 500_000).await;
    let (one, two) = (ticket(&sidecar).await, ticket(&sidecar).await);
    // Longer than what is read before the first records are written.
    let (first, second) = (seal(&one, &bytes(400_000, 1)), seal(&two, &bytes(200_000, 2)));
    let request = wire::request("POST", "/hoop/post", &[], &first.z);
    let (begin, rest) = request.split_at(request.len() - 1);
    let mut stream = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
    stream.write_all(begin).await.unwrap();
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    // The index knows nothing of the first yet; its body is there once a record has opened.
    while sidecar.bodies().is_empty() {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(sidecar.send("HEAD", &format!("/hoop/post/{}", one.id), &[], b"").await.status, 404);
    assert_eq!(second.post(&sidecar).await.problem(), (507, "spool-full".into()));
    stream.write_all(rest).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    wire::Reply::parse(&answer).is_taken();
    sidecar.reaches(&one.id, "accepted").await;
}

#[tokio::test]
async fn a_state_folder_serves_one_service_at_a_time() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let second = hoop_service::Service::open(support::config(upstream.address, sidecar.dir.clone())).await;
    let error = second.err().expect("refused").to_string();
    assert!(error.contains("another service is using it"), "{error}");
    let dir = sidecar.stop().await.unwrap();
    Sidecar::on(upstream.address, dir.path().to_owned(), |_| {}).await.stop().await;
}

#[tokio::test]
async fn a_sender_that_falls_silent_is_cut_off_and_its_records_are_kept() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.body_timeout = Duration::from_secs(3)).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(200_000, 1));
    let request = sealed.put_request(sealed.records(0, 3));
    let mut stream = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
    stream.write_all(&request[..request.len() - 65_536 - 10]).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let reply = wire::Reply::parse(&answer);
    assert_eq!(reply.problem(), (408, "request-timeout".into()));
    assert!(reply.field("hoop-missing").unwrap().starts_with(&sealed.layout.record(1).start.to_string()), "{reply:?}");
}

#[tokio::test]
async fn a_conflicting_sender_without_proof_keeps_nobody_out() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(200_000, 1));
    // Whoever has seen the prelude can make these up: another salt, another length.
    let stranger = Ticket { key: UploadKey([7; 32]), ..ticket.clone() };
    let salted =
        device::seal_with_salt(&stranger, &device::plaintext(&ticket, "POST /upload", "", &[1; 200_000]), [9; 16]);
    let longer = device::seal(&stranger, &bytes(700_000, 1));
    let mut lies = Vec::new();
    for lie in [&salted, &longer] {
        let request = lie.put_request(lie.records(0, 3));
        let mut stream = tokio::net::TcpStream::connect(sidecar.address).await.unwrap();
        let head = request.len() - lie.records(0, 3).len() as usize;
        stream.write_all(&request[..head + 10]).await.unwrap();
        lies.push((stream, request, head + 10));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(sealed.put(sidecar.address, sealed.records(0, 2)).await.status, 202);
    // It is settled now what the upload is, while the others still come, and afterwards.
    for (mut stream, request, sent) in lies {
        let _ = stream.write_all(&request[sent..]).await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(wire::Reply::parse(&answer).problem(), (400, "range-invalid".into()));
    }
    assert_eq!(salted.put(sidecar.address, salted.records(0, 2)).await.problem(), (409, "upload-conflict".into()));
    sealed.is_taken_by(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.whole().len(), 1);
}
