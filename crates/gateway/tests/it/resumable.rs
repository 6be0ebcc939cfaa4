//! Uploads of clients that speak the IETF draft "Resumable Uploads for HTTP": over real sockets, and across restarts.

use crate::support::service::{Service, Weather};
use crate::support::{
    GENEROUS, LATER, PRELUDE_LEN, Reply, Running, border, config, head, id_of, post, prelude_header, put, recorded,
    sealed, send, start, written,
};
use hoop_gateway::Config;
use hoop_http::{empty, full};
use http::Request;
use http::request::Builder;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Nobody listens there: uploads stay where they are.
const NOWHERE: &str = "http://127.0.0.1:9/hoop/post";

/// What a power cut would cost is for others to test; here processes end.
fn unsynced(folder: &Path) -> Config {
    Config { sync: false, ..config(folder) }
}

async fn gateway() -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (start(unsynced(folder.path())).await, folder)
}

fn creation(total: usize) -> Builder {
    Request::post(format!("/offload?dest={NOWHERE}")).header("upload-complete", "?0").header("upload-length", total)
}

fn part(upload: &str, offset: usize, complete: &str) -> Builder {
    Request::patch(upload)
        .header("upload-offset", offset)
        .header("upload-complete", complete)
        .header("content-type", "application/partial-upload")
}

/// Begins an upload without a first part; its resource.
async fn begin(gateway: &Running, total: usize) -> String {
    let reply = send(gateway.address, creation(total), empty()).await;
    assert_eq!((reply.status.as_u16(), reply.header("upload-offset")), (201, "0"), "{reply:?}");
    reply.header("location").to_owned()
}

async fn append(gateway: &Running, upload: &str, z: &[u8], from: usize, to: usize) -> Reply {
    let complete = if to == z.len() { "?1" } else { "?0" };
    send(gateway.address, part(upload, from, complete), full(z[from..to].to_vec())).await
}

async fn look(address: SocketAddr, upload: &str) -> Reply {
    send(address, Request::head(upload), empty()).await
}

#[track_caller]
fn offset(reply: &Reply) -> usize {
    reply.header("upload-offset").parse().unwrap_or_else(|_| panic!("{reply:?}"))
}

/// What the spool holds of an upload.
fn stored(folder: &Path, z: &[u8]) -> Vec<u8> {
    recorded(folder, id_of(z))
}

/// A number that looks random (xorshift64).
fn roll(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Files below the folder that are deleted, and that this process has open still.
fn deleted_but_open(folder: &Path) -> usize {
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    open.filter(|path| path.starts_with(folder) && path.to_string_lossy().ends_with(" (deleted)")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_service_does_not_keep_the_bytes_of_an_upload_that_was_deleted() {
    let service = Service::start(|_, method, _, _| match *method {
        http::Method::PUT => Weather::Silence,
        _ => Weather::Fair,
    });
    let (service, (gateway, folder)) = tokio::join!(service, gateway());
    let z = sealed(1, 3 << 20, LATER);
    let creation = Request::post(format!("/offload?dest={}", service.dest()))
        .header("upload-complete", "?0")
        .header("upload-length", z.len());
    let upload = send(gateway.address, creation, empty()).await.header("location").to_owned();
    append(&gateway, &upload, &z, 0, 2 << 20).await;
    let end = tokio::time::Instant::now() + GENEROUS;
    while service.count(&http::Method::PUT, "/") == 0 {
        assert!(tokio::time::Instant::now() < end, "nothing is delivered");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let gone = send(gateway.address, Request::delete(&upload), empty()).await;
    assert_eq!(gone.status, 204, "{gone:?}");
    let end = tokio::time::Instant::now() + GENEROUS;
    while deleted_but_open(folder.path()) > 0 {
        assert!(tokio::time::Instant::now() < end, "the deleted file stays open");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    gateway.stop().await;
}

/// The service holds the upload, and its bytes count for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_bytes_are_freed_while_the_service_leaves_a_question_unanswered() {
    let service = Service::start(|_, method, path, _| match *method == http::Method::GET {
        true if path.starts_with("/hoop/uploads/") => Weather::Silence,
        _ => Weather::Fair,
    });
    let (service, (gateway, folder)) = tokio::join!(service, gateway());
    service.state.lock().unwrap().verdict = "held";
    let z = sealed(1, 3 << 20, LATER);
    assert_eq!(post(gateway.address, &service.dest(), &z).await.status, 201);
    let end = tokio::time::Instant::now() + GENEROUS;
    while head(gateway.address, id_of(&z)).await.header("hoop-state") != "held" {
        assert!(tokio::time::Instant::now() < end, "it is not held");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let id = id_of(&z).to_string();
    let file = folder.path().join("uploads").join(&id[..2]).join(format!("{id}.z"));
    while file.exists() {
        assert!(tokio::time::Instant::now() < end, "its bytes are kept");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // An answer may take 40 s.
    let end = tokio::time::Instant::now() + GENEROUS / 3;
    while deleted_but_open(folder.path()) > 0 {
        assert!(tokio::time::Instant::now() < end, "the deleted file stays open");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    gateway.stop().await;
}

/// It would wait for as long as the sender's last bytes may take.
#[tokio::test]
async fn an_offset_query_does_not_wait_for_bytes_that_nobody_needs() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 300_000, LATER);
    assert_eq!(post(gateway.address, NOWHERE, &z).await.status, 201);
    let upload = begin(&gateway, z.len()).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let path = &upload[upload.find("/offload").unwrap()..];
    let request = format!(
        "PATCH {path} HTTP/1.1\r\nHost: {}\r\nUpload-Offset: 0\r\nUpload-Complete: ?1\r\nContent-Type: \
         application/partial-upload\r\nContent-Length: {}\r\n\r\n",
        gateway.address,
        z.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(&z[..1_000]).await.unwrap();
    let mut told = [0; 512];
    let asked = tokio::time::timeout(std::time::Duration::from_secs(4), async {
        assert!(stream.read(&mut told).await.unwrap() > 0, "the part is answered");
        look(gateway.address, &upload).await
    });
    assert!(asked.await.is_ok(), "it waits for a sender who says nothing");
}

/// Each part with a permit waited for the service's key, 1.5 s, and whoever asked waited for all of them: eight addresses had all places for questions.
#[tokio::test]
async fn an_offset_query_does_not_wait_for_a_silent_service() {
    let (gateway, _folder) = gateway().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let z = sealed(1, 300_000, LATER);
    let dest = format!("http://{}/hoop/post", silent.local_addr().unwrap());
    let creation = Request::post(format!("/offload?dest={dest}")).header("upload-complete", "?0");
    let upload = send(gateway.address, creation.header("upload-length", z.len()), empty()).await;
    let upload = upload.header("location").to_owned();
    let from = usize::try_from(PRELUDE_LEN).unwrap() + 1;
    let begun = append(&gateway, &upload, &z, 0, from).await;
    assert_eq!(begun.status, 204, "{begun:?}");
    let path = &upload[upload.find("/offload").unwrap()..];
    let permit = "AQEB".repeat(38);
    let head = format!(
        "PATCH {path} HTTP/1.1\nHost: {}\nUpload-Offset: {}\nUpload-Complete: ?0\nContent-Type: application/partial-upload\nHoop-Permit: {permit}\nContent-Length: 10\n\n",
        gateway.address, from
    );
    let mut senders = Vec::new();
    for _ in 0..20 {
        senders.push(begin_sending(gateway.address, &head, b"").await);
    }
    // They come before the question does.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let asked = tokio::time::timeout(std::time::Duration::from_secs(15), look(gateway.address, &upload)).await;
    assert_eq!(offset(&asked.expect("it waits for each of them")), from);
}

#[tokio::test]
async fn whoever_sends_no_body_has_no_service_asked() {
    async fn is_asked(service: &tokio::net::TcpListener) -> bool {
        tokio::time::timeout(std::time::Duration::from_millis(100), service.accept()).await.is_ok()
    }
    let (gateway, _folder) = gateway().await;
    let known = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let z = sealed(1, 300_000, LATER);
    let creation = format!("/offload?dest=http://{}/hoop/post", known.local_addr().unwrap());
    let creation = Request::post(creation).header("upload-complete", "?0");
    let upload = send(gateway.address, creation.header("upload-length", z.len()), empty()).await;
    let upload = upload.header("location").to_owned();
    let from = usize::try_from(PRELUDE_LEN).unwrap() + 1;
    assert_eq!(append(&gateway, &upload, &z, 0, from).await.status, 204);
    let (part, permit) = (&upload[upload.find("/offload").unwrap()..], "AQEB".repeat(38));
    let (id, prelude, border) = (id_of(&z), prelude_header(&z), border(1));
    let common = format!("Host: {}\nConnection: close\nHoop-Permit: {permit}\n", gateway.address);
    while is_asked(&known).await {}
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dest = format!("http://{}/hoop/post", silent.local_addr().unwrap());
    for (head, code) in [
        (format!("POST /offload?dest={dest} HTTP/1.1\n"), "body-not-sealed"),
        (format!("POST /offload?dest={dest} HTTP/1.1\nContent-Length: 0\n"), "body-not-sealed"),
        (format!("POST /offload?dest={dest} HTTP/1.1\nUpload-Complete: ?1\nContent-Length: 0\n"), "body-not-sealed"),
        (
            format!(
                "PUT /offload/{id}?dest={dest} HTTP/1.1\nContent-Range: bytes 0-{}/{}\nHoop-Prelude: {prelude}\n",
                border - 1,
                z.len()
            ),
            "body-truncated",
        ),
        (
            format!(
                "PATCH {part} HTTP/1.1\nUpload-Offset: {from}\nUpload-Complete: ?1\nContent-Type: application/partial-upload\n"
            ),
            "length-inconsistent",
        ),
    ] {
        let mut stream = begin_sending(gateway.address, &format!("{head}{common}\n"), b"").await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{head}: {answer}");
    }
    assert!(!is_asked(&silent).await && !is_asked(&known).await, "a service was asked");
}

#[tokio::test]
async fn the_examples_of_the_draft_go_as_the_draft_says() {
    let mut files: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/drafts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(files.len() >= 10, "{files:?}");
    let (gateway, folder) = gateway().await;
    let cases = files.iter().flat_map(|file| [(file, Some(8)), (file, None)]);
    for ((file, interop), seed) in cases.zip(1..) {
        let mut replay = Replay::new(gateway.address, interop, file.display().to_string(), seed);
        replay.run(&std::fs::read_to_string(file).unwrap()).await;
        if replay.whole {
            assert!(stored(folder.path(), &replay.z) == replay.z, "{}", replay.name);
        }
    }
}

#[tokio::test]
async fn parts_of_any_length_make_one_upload_and_acked_bytes_survive_a_restart() {
    for seed in [1, 2, 3_u64] {
        let mut rng = 0x9e37_79b9_7f4a_7c15 ^ seed;
        let z = sealed(seed as u8, 400_000, LATER);
        let (mut gateway, folder) = gateway().await;
        let upload = begin(&gateway, z.len()).await;
        let mut at = 0;
        while at < z.len() {
            let most = [1, 100, 70_000, 150_000][(roll(&mut rng) % 4) as usize];
            let to = (at + 1 + (roll(&mut rng) % most) as usize).min(z.len());
            let reply = append(&gateway, &upload, &z, at, to).await;
            let expected = if to == z.len() { (201, "?1") } else { (204, "?0") };
            assert_eq!(
                (reply.status.as_u16(), reply.header("upload-complete")),
                expected,
                "seed {seed}, {at}..{to}: {reply:?}"
            );
            assert_eq!(offset(&reply), to, "seed {seed}");
            at = to;
            if roll(&mut rng).is_multiple_of(3) {
                gateway.stop().await;
                gateway = start(unsynced(folder.path())).await;
                assert_eq!(offset(&look(gateway.address, &upload).await), at, "seed {seed}");
            }
        }
        assert!(stored(folder.path(), &z) == z, "seed {seed}");
        let reply = look(gateway.address, &upload).await;
        assert_eq!((reply.header("upload-complete"), reply.header("hoop-state")), ("?1", "stored"));
        gateway.stop().await;
    }
}

#[tokio::test]
async fn the_upload_file_gets_a_record_once_all_of_it_has_come() {
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 300_000, LATER);
    let upload = begin(&gateway, z.len()).await;
    let one = border(1) as usize;
    assert_eq!(append(&gateway, &upload, &z, 0, one).await.status, 204);
    for at in [one, one + 1, one + 20_000, one + 40_000, one + 60_000] {
        let told = offset(&look(gateway.address, &upload).await);
        assert_eq!(offset(&append(&gateway, &upload, &z, told, at + 1).await), at + 1);
        assert_eq!(written(folder.path()), one as u64, "{at}: nothing of the next");
    }
    assert_eq!(append(&gateway, &upload, &z, one + 60_001, z.len()).await.status, 201);
    assert!(stored(folder.path(), &z) == z);
}

/// Sends a request's head and the beginning of its body, and leaves the connection open.
async fn begin_sending(address: SocketAddr, head: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.replace('\n', "\r\n").as_bytes()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Reads one head, interim or not.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn a_104_comes_before_the_body_does_and_what_comes_until_a_break_is_kept() {
    let (mut gateway, folder) = gateway().await;
    let z = sealed(1, 300_000, LATER);
    let request = format!(
        "POST /offload?dest={NOWHERE} HTTP/1.1\nHost: hoop.local\nUpload-Draft-Interop-Version: 8\nUpload-Complete: ?1\nContent-Length: {}\n\n",
        z.len()
    );
    let mut stream = begin_sending(gateway.address, &request, &[]).await;
    let interim = read_head(&mut stream).await;
    assert!(interim.starts_with("HTTP/1.1 104 Upload Resumption Supported\r\n"), "{interim}");
    assert!(interim.contains("\r\nupload-draft-interop-version: 8\r\n"), "{interim}");
    assert!(interim.contains("\r\nupload-limit: max-size="), "{interim}");
    let upload = interim.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    stream.write_all(&z[..200_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    // The answer says that it broke off; by then what has come is recorded.
    let answer = read_head(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    assert!(answer.contains("\r\nupload-complete: ?0\r\n"), "{answer}");
    gateway.stop().await;
    gateway = start(unsynced(folder.path())).await;
    assert_eq!(offset(&look(gateway.address, &upload).await), 200_000, "the tail too");
    assert_eq!(append(&gateway, &upload, &z, 200_000, z.len()).await.status, 201);
    assert!(stored(folder.path(), &z) == z);
}

#[tokio::test]
async fn progress_is_told_while_a_long_part_comes() {
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 20_000_000, LATER);
    let upload = begin(&gateway, z.len()).await;
    let request = format!(
        "PATCH {upload} HTTP/1.1\nHost: hoop.local\nUpload-Draft-Interop-Version: 6\nUpload-Offset: 0\nUpload-Complete: ?1\n\
         Content-Type: application/partial-upload\nContent-Length: {}\n\n",
        z.len()
    );
    let mut stream = begin_sending(gateway.address, &request, &z[..z.len() - 1]).await;
    let interim = read_head(&mut stream).await;
    assert!(interim.starts_with("HTTP/1.1 104 ") && interim.contains("upload-draft-interop-version: 6"), "{interim}");
    assert!(interim.contains("upload-offset: ") && !interim.contains("location"), "{interim}");
    stream.write_all(&z[z.len() - 1..]).await.unwrap();
    let mut answer = read_head(&mut stream).await;
    while answer.starts_with("HTTP/1.1 104 ") {
        answer = read_head(&mut stream).await;
    }
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(stored(folder.path(), &z) == z);
}

#[tokio::test]
async fn whoever_asks_ends_what_hangs_and_goes_on_from_what_it_is_told() {
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 12_000_000, LATER);
    let upload = begin(&gateway, z.len()).await;
    let request = format!(
        "PATCH {upload} HTTP/1.1\nHost: hoop.local\nUpload-Draft-Interop-Version: 8\nUpload-Offset: 0\nUpload-Complete: ?1\n\
         Content-Type: application/partial-upload\nContent-Length: {}\n\n",
        z.len()
    );
    let mut hangs = begin_sending(gateway.address, &request, &z[..11_000_000]).await;
    let progress = read_head(&mut hangs).await;
    assert!(progress.starts_with("HTTP/1.1 104 "), "it has come so far: {progress}");
    let told = offset(&look(gateway.address, &upload).await);
    assert!(told > 8_000_000, "what hangs keeps what it has: {told}");
    assert!(read_head(&mut hangs).await.starts_with("HTTP/1.1 408"), "and hears that it is over");
    assert_eq!(append(&gateway, &upload, &z, told, z.len()).await.status, 201);
    assert!(stored(folder.path(), &z) == z);
}

#[tokio::test]
async fn requests_that_end_each_other_take_nothing_away_that_was_told_of() {
    let (gateway, folder) = gateway().await;
    // Within the prelude, and within a record.
    for (number, offset_told) in [(1, 20), (2, 1_000)] {
        let z = sealed(number, 300_000, LATER);
        let upload = begin(&gateway, z.len()).await;
        assert_eq!(offset(&append(&gateway, &upload, &z, 0, offset_told).await), offset_told);
        let request = format!(
            "PATCH {upload} HTTP/1.1\nHost: hoop.local\nUpload-Draft-Interop-Version: 8\nUpload-Offset: {offset_told}\nUpload-Complete: ?0\n\
             Content-Type: application/partial-upload\nContent-Length: 100\n\n"
        );
        for _ in 0..20 {
            // Each is ended by the next, most of them before they have read anything.
            let mut all = Vec::new();
            for _ in 0..8 {
                all.push(begin_sending(gateway.address, &request, &[]).await);
            }
            assert_eq!(offset(&look(gateway.address, &upload).await), offset_told);
        }
        assert_eq!(append(&gateway, &upload, &z, offset_told, z.len()).await.status, 201);
        assert!(stored(folder.path(), &z) == z);
    }
}

#[tokio::test]
async fn ranges_that_others_put_count_too() {
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 300_000, LATER);
    let upload = begin(&gateway, z.len()).await;
    assert_eq!(append(&gateway, &upload, &z, 0, 1000).await.status, 204);
    let range = hoop_units::ByteRange::new(0, border(2));
    assert_eq!(put(gateway.address, NOWHERE, &z, range).await.status, 202);
    assert_eq!(offset(&look(gateway.address, &upload).await), border(2) as usize);
    let behind = append(&gateway, &upload, &z, 1000, 2000).await;
    assert_eq!((behind.status.as_u16(), behind.code().as_str()), (409, "offset-mismatch"));
    assert_eq!(append(&gateway, &upload, &z, border(2) as usize, z.len()).await.status, 201);
    assert!(stored(folder.path(), &z) == z);
    // And the same upload once more, by the same way: it is there already.
    let again = begin(&gateway, z.len()).await;
    let reply = append(&gateway, &again, &z, 0, 5000).await;
    assert_eq!((reply.status.as_u16(), reply.header("upload-complete")), (201, "?1"), "{reply:?}");
}

#[tokio::test]
async fn a_cancelled_upload_is_gone_unless_all_of_it_has_come() {
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 300_000, LATER);
    let upload = begin(&gateway, z.len()).await;
    assert_eq!(append(&gateway, &upload, &z, 0, 200_000).await.status, 204);
    assert_eq!(head(gateway.address, id_of(&z)).await.status, 200);
    assert_eq!(send(gateway.address, Request::delete(&upload), empty()).await.status, 204);
    assert_eq!(look(gateway.address, &upload).await.status, 404);
    assert_eq!(head(gateway.address, id_of(&z)).await.status, 404, "and its bytes with it");
    let upload = begin(&gateway, z.len()).await;
    assert_eq!(append(&gateway, &upload, &z, 0, z.len()).await.status, 201);
    assert_eq!(send(gateway.address, Request::delete(&upload), empty()).await.status, 204);
    assert_eq!(look(gateway.address, &upload).await.status, 404);
    assert!(stored(folder.path(), &z) == z, "what was answered 201 is delivered");
}

#[tokio::test]
async fn what_is_wrong_with_a_part_is_said_and_changes_nothing() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 300_000, LATER);
    let upload = begin(&gateway, z.len()).await;
    assert_eq!(append(&gateway, &upload, &z, 0, 1000).await.status, 204);
    let typed = |builder: Builder| builder.header("content-type", "application/partial-upload");
    let patch = || Request::patch(&upload);
    for (request, code) in [
        (typed(patch().header("upload-offset", "1000")), "request-invalid"),
        (typed(patch().header("upload-complete", "?0")), "request-invalid"),
        (typed(patch().header("upload-offset", "1000").header("upload-complete", "0")), "request-invalid"),
        (patch().header("upload-offset", "1000").header("upload-complete", "?0"), "media-type-unsupported"),
        (
            patch()
                .header("upload-offset", "1000")
                .header("upload-complete", "?0")
                .header("content-type", "image/jpeg"),
            "media-type-unsupported",
        ),
        (part(&upload, 999, "?0"), "offset-mismatch"),
        (part(&upload, 1001, "?0"), "offset-mismatch"),
        (part(&upload, 1000, "?1"), "length-inconsistent"),
        (part(&upload, 1000, "?0").header("upload-length", "5"), "length-inconsistent"),
        (part(&upload, 1000, "?0").header("hoop-deadline", "tomorrow"), "request-invalid"),
        (Request::put(&upload), "method-not-allowed"),
        (part("/offload/r/AAAAAAAAAAAAAAAAAAAAAA", 0, "?0"), "upload-unknown"),
        (part("/offload/r/x", 0, "?0"), "upload-unknown"),
    ] {
        let reply = send(gateway.address, request, full(z[1000..1100].to_vec())).await;
        assert_eq!((reply.code().as_str(), reply.header("upload-complete")), (code, "?0"), "{reply:?}");
        assert_eq!(offset(&look(gateway.address, &upload).await), 1000, "{code}");
    }
    let beyond = vec![0; z.len()];
    let reply = send(gateway.address, part(&upload, 1000, "?0"), full(beyond)).await;
    assert_eq!(reply.code(), "length-inconsistent", "{reply:?}");
    assert_eq!(offset(&look(gateway.address, &upload).await), 1000);
    let elsewhere = Request::post("/offload?dest=https://192.168.1.1/x").header("upload-complete", "?0");
    assert_eq!(send(gateway.address, elsewhere, empty()).await.status, 403);
}

#[tokio::test]
async fn an_upload_that_says_it_is_too_long_is_refused_with_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = unsynced(folder.path());
    config.max_upload_bytes = 100_000;
    let gateway = start(config).await;
    let reply = send(gateway.address, creation(100_001), empty()).await;
    assert_eq!((reply.status.as_u16(), reply.header("upload-limit")), (413, "max-size=100000"), "{reply:?}");
    assert_eq!(reply.header("location"), "");
}

#[tokio::test]
async fn older_versions_of_the_draft_are_understood() {
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 100_000, LATER);
    let oldest = |request: Builder| request.header("upload-draft-interop-version", "3");
    let request = oldest(Request::post(format!("/offload?dest={NOWHERE}")))
        .header("upload-incomplete", "?1")
        .header("upload-length", z.len());
    let reply = send(gateway.address, request, full(z[..500].to_vec())).await;
    assert_eq!((reply.status.as_u16(), reply.header("upload-incomplete")), (201, "?1"), "{reply:?}");
    let request = oldest(Request::patch(reply.header("location")))
        .header("upload-offset", "500")
        .header("upload-incomplete", "?0");
    let reply = send(gateway.address, request, full(z[500..].to_vec())).await;
    assert_eq!((reply.status.as_u16(), reply.header("upload-incomplete")), (201, "?0"), "{reply:?}");
    assert!(stored(folder.path(), &z) == z);
}

#[tokio::test]
async fn there_are_only_so_many_at_once_and_plain_uploads_go_on() {
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 1000, LATER);
    // One that is done makes room.
    let done = begin(&gateway, z.len()).await;
    assert_eq!(append(&gateway, &done, &z, 0, z.len()).await.status, 201);
    for _ in 0..hoop_spool::RESOURCES_OF_DEVICE_MAX {
        begin(&gateway, z.len()).await;
    }
    assert_eq!(look(gateway.address, &done).await.status, 404);
    let reply = send(gateway.address, creation(z.len()), empty()).await;
    assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (429, "60"), "{reply:?}");
    let whole = Request::post(format!("/offload?dest={NOWHERE}"))
        .header("upload-draft-interop-version", "8")
        .header("upload-complete", "?1");
    let reply = send(gateway.address, whole, full(z.clone())).await;
    assert_eq!((reply.status.as_u16(), reply.header("upload-complete")), (201, "?1"), "only it cannot be resumed");
}

/// One exchange after the other, as `tests/drafts/README.md` has them.
struct Replay {
    address: SocketAddr,
    interop: Option<u32>,
    name: String,
    z: Vec<u8>,
    words: BTreeMap<String, String>,
    /// Whether all of Z was said to have come.
    whole: bool,
}

/// An answer over a plain socket.
struct Answer {
    status: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Replay {
    fn new(address: SocketAddr, interop: Option<u32>, name: String, seed: u8) -> Self {
        // 123,456 bytes: two records, the second less than whole.
        let z = sealed(seed, 123_456 - PRELUDE_LEN as usize - 34, LATER);
        assert_eq!(z.len(), 123_456);
        let words = [("dest", NOWHERE.to_owned()), ("total", z.len().to_string())];
        let words = words.map(|(name, word)| (name.to_owned(), word)).into();
        Self { address, interop, name, z, words, whole: false }
    }

    async fn run(&mut self, text: &str) {
        let (mut request, mut expected) = (Vec::new(), Vec::new());
        for line in text.lines().filter(|line| !line.starts_with('#')).chain(["> end"]) {
            match (line.as_bytes()[0], line.get(2..).unwrap_or_default()) {
                (b'>', line) => {
                    if !expected.is_empty() {
                        self.exchange(&std::mem::take(&mut request), &std::mem::take(&mut expected)).await;
                    }
                    request.push(line.to_owned());
                }
                (b'X', _) => self.break_off(&std::mem::take(&mut request)).await,
                (b'<', line) => expected.push(line.to_owned()),
                _ => panic!("{}: {line}", self.name),
            }
        }
    }

    fn fill(&self, line: &str) -> String {
        self.words.iter().fold(line.to_owned(), |line, (name, word)| line.replace(&format!("{{{name}}}"), word))
    }

    fn bytes(&self, request: &[String]) -> Vec<u8> {
        let interop =
            self.interop.map(|version| format!("Upload-Draft-Interop-Version: {version}\r\n")).unwrap_or_default();
        let (mut head, mut body, mut length) = (String::new(), Vec::new(), false);
        for line in request.iter().map(|line| self.fill(line)) {
            let span = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
            match span {
                Some(span) if span.starts_with("garbage ") => body.resize(span[8..].parse().unwrap(), 0xee),
                Some(span) => {
                    let (from, to) = span.split_once("..").unwrap();
                    body.extend_from_slice(&self.z[from.parse().unwrap()..to.parse().unwrap()]);
                }
                None if line.is_empty() => {}
                None => head += &format!("{line}\r\n"),
            }
            length |= line.starts_with("Content-Length");
        }
        let length = if length { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let mut bytes = format!("{head}Host: hoop.local\r\nConnection: close\r\n{interop}{length}\r\n").into_bytes();
        bytes.extend(body);
        bytes
    }

    async fn break_off(&self, request: &[String]) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&self.bytes(request)).await.unwrap();
    }

    async fn exchange(&mut self, request: &[String], expected: &[String]) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&self.bytes(request)).await.unwrap();
        let mut bytes = Vec::new();
        tokio::time::timeout(GENEROUS, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
        let mut answers = answers(&bytes);
        // Those that only tell the progress may come or not.
        answers.retain(|answer| answer.status != "104" || answer.field("location").is_some());
        let mut answers = answers.into_iter();
        let mut answer: Option<Answer> = None;
        for line in expected {
            if let Some(status) = line.strip_prefix("HTTP/1.1 ") {
                if status == "104" && self.interop.is_none() {
                    answer = None;
                    continue;
                }
                let next = answers.next().unwrap_or_else(|| panic!("{}: {line}: no answer", self.name));
                let body = String::from_utf8_lossy(&next.body).into_owned();
                assert_eq!(next.status, status, "{} (interop {:?}): {request:?}: {body}", self.name, self.interop);
                answer = Some(next);
                continue;
            }
            let Some(answer) = &answer else { continue };
            self.whole |= line == "Hoop-State: stored" || line.contains("\"state\": \"stored\"");
            match line.starts_with('{') {
                true => members(&self.name, answer, line),
                false => {
                    let (name, value) = line.split_once(": ").unwrap();
                    let found = answer.field(name).unwrap_or_else(|| panic!("{}: no {name}", self.name)).to_owned();
                    self.compare(name, value, &found);
                }
            }
        }
        assert!(answers.next().is_none(), "{} (interop {:?}): more answers than expected", self.name, self.interop);
    }

    fn compare(&mut self, name: &str, value: &str, found: &str) {
        match value.strip_prefix('{').and_then(|value| value.strip_suffix('}')) {
            Some(word) => {
                let word = self.words.entry(word.to_owned()).or_insert_with(|| found.to_owned());
                assert_eq!(found, word, "{}: {name}", self.name);
            }
            None if value == "*" => assert!(!found.is_empty(), "{}: {name}", self.name),
            None => assert_eq!(found, value, "{}: {name}", self.name),
        }
    }
}

fn members(name: &str, answer: &Answer, line: &str) {
    let wanted: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    for (member, value) in wanted {
        assert_eq!(found[&member], value, "{name}: {member} of {found}");
    }
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// All answers of one connection; the last one's body is all that remains.
fn answers(bytes: &[u8]) -> Vec<Answer> {
    let (mut rest, mut answers) = (bytes, Vec::<Answer>::new());
    while rest.starts_with(b"HTTP/1.1 ") {
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap()[9..12].to_owned();
        let fields = lines.map(|line| line.split_once(": ").unwrap_or((line, "")));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        rest = &rest[end + 4..];
        answers.push(Answer { status, fields, body: Vec::new() });
    }
    if let Some(last) = answers.last_mut() {
        last.body = rest.to_vec();
    }
    answers
}
