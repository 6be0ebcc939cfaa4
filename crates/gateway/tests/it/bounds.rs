//! What bounds a device: refusals before anything is stored, quotas, rates, connections, slow senders. Loopback addresses stand for devices.

use crate::support::service::{Service, Weather, plain};
use crate::support::{
    GENEROUS, LATER, Running, border, config, get, head, id_of, post, prelude_header, sealed, start, until_state,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_gateway::{BodyTimeouts, Config, DeviceLimits};
use hoop_http::ServerLimits;
use hoop_units::ContentRange;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

pub(crate) async fn gateway_with(change: impl FnOnce(&mut Config)) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    (start(config).await, folder)
}

/// No limits but these, which hold on loopback, too.
pub(crate) fn limits(change: impl FnOnce(&mut DeviceLimits)) -> DeviceLimits {
    let mut limits = DeviceLimits {
        quota_bytes: Some(0),
        uploads: 0,
        begun_per_minute: 0,
        requests_per_second: 0,
        connections: 0,
        loopback: true,
    };
    change(&mut limits);
    limits
}

/// A device: an address of loopback's network.
#[derive(Clone, Copy)]
pub(crate) struct Device(pub u8);

impl Device {
    pub(crate) async fn connect(self, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, self.0), 0).into()).unwrap();
        socket.connect(to).await.unwrap()
    }

    /// Sends a request and returns the answer's text.
    pub(crate) async fn say(self, to: SocketAddr, head: &str, body: &[u8]) -> String {
        let mut stream = self.connect(to).await;
        let head =
            format!("{head} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // An answer may come before all of it was taken.
        let _ = stream.write_all(body).await;
        answer(&mut stream).await
    }

    pub(crate) async fn post(self, to: SocketAddr, dest: &str, z: &[u8]) -> String {
        self.say(to, &format!("POST /offload?dest={dest}"), z).await
    }
}

/// What comes until the connection ends.
pub(crate) async fn answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(GENEROUS, stream.read_to_end(&mut text)).await.expect("the connection should end");
    let _ = read;
    String::from_utf8_lossy(&text).into_owned()
}

pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// A service that nothing is delivered to, so that what is handed over stays.
pub(crate) async fn shut() -> Service {
    Service::start(
        |_, method, _, _| if *method == Method::PUT { Weather::Answer(plain(503, "")) } else { Weather::Fair },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undeliverable_destination_is_refused_before_anything_is_stored() {
    let not_hoop = Service::start(|_, _, _, _| Weather::Answer(plain(404, ""))).await;
    let (gateway, _folder) = gateway_with(|config| {
        let private: IpAddr = [10, 255, 255, 1].into();
        config.resolve.insert(("rebound.example".to_owned(), 443), vec![private]);
    })
    .await;
    let z = sealed(1, 200_000, LATER);
    for (dest, code) in
        [(not_hoop.dest(), "dest-not-hoop"), ("https://rebound.example/hoop/post".to_owned(), "dest-forbidden")]
    {
        for _ in 0..2 {
            let reply = post(gateway.address, &dest, &z).await;
            assert_eq!(reply.code(), code, "{reply:?}");
            assert!(!reply.json().to_string().contains("10.255"), "pages must not learn where names lead");
        }
    }
    assert_eq!(head(gateway.address, id_of(&z)).await.status, 404);
    assert_eq!(not_hoop.count(&Method::GET, "/.well-known/hoop"), 1, "it is remembered");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_destination_is_silent_uploads_are_taken() {
    let silent = Service::start(|_, _, _, _| Weather::Silence).await;
    let (gateway, _folder) = gateway_with(|_| {}).await;
    for seed in 1..=3 {
        let reply = post(gateway.address, &silent.dest(), &sealed(seed, 1000, LATER)).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_fills_its_share_leaves_the_others_theirs() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|limits| (limits.quota_bytes, limits.uploads) = (Some(250_000), 5));
    })
    .await;
    let (to, dest) = (gateway.address, service.dest());
    let (greedy, other) = (Device(2), Device(3));
    for seed in 1..=2 {
        assert_eq!(status(&greedy.post(to, &dest, &sealed(seed, 100_000, LATER)).await), "201");
    }
    let refused = greedy.post(to, &dest, &sealed(3, 100_000, LATER)).await;
    assert!(
        refused.contains("507") && refused.contains("spool-full") && refused.contains("retry-after: 60"),
        "{refused}"
    );
    assert!(refused.contains("one device may have 250000 bytes"), "{refused}");
    assert_eq!(status(&greedy.post(to, &dest, &sealed(2, 100_000, LATER)).await), "201", "what it has is no more");
    assert_eq!(status(&other.post(to, &dest, &sealed(4, 100_000, LATER)).await), "201");
    for seed in 10..13 {
        assert_eq!(status(&greedy.post(to, &dest, &sealed(seed, 10, LATER)).await), "201");
    }
    let refused = greedy.post(to, &dest, &sealed(13, 10, LATER)).await;
    assert!(refused.contains("spool-full") && refused.contains("5 uploads"), "{refused}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_longer_than_its_devices_share_is_refused_at_its_first_range() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|limits| limits.quota_bytes = Some(1 << 20));
    })
    .await;
    let (to, dest) = (gateway.address, service.dest());
    let begin = async |z: &[u8]| {
        let head = format!("PUT /offload/{}?dest={dest}", id_of(z));
        let fields =
            format!("Content-Range: bytes 0-{}/{}\r\nHoop-Prelude: {}", border(1) - 1, z.len(), prelude_header(z));
        let mut stream = Device(2).connect(to).await;
        let length = border(1);
        let head = format!(
            "{head} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{fields}\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(&z[..border(1) as usize]).await;
        answer(&mut stream).await
    };
    let refused = begin(&sealed(1, 20 << 20, LATER)).await;
    assert!(refused.contains("507") && refused.contains("one device may have 1048576 bytes"), "{refused}");
    let fits = sealed(2, 900_000, LATER);
    for _ in 0..3 {
        assert_eq!(status(&begin(&fits).await), "202", "what it has been promised is no more");
    }
    gateway.stop().await;
}

/// Begins an upload without a length, in chunks.
async fn begin_chunked(device: Device, to: SocketAddr, dest: &str, z: &[u8]) -> TcpStream {
    let mut stream = device.connect(to).await;
    let head = format!(
        "POST /offload?dest={dest} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let _ = stream.write_all(format!("{:x}\r\n", z.len()).as_bytes()).await;
    // An answer may come before all of it was taken.
    let _ = stream.write_all(z).await;
    let _ = stream.write_all(b"\r\n").await;
    stream
}

/// Hands over an upload without its length.
async fn post_chunked(device: Device, to: SocketAddr, dest: &str, z: &[u8]) -> String {
    let mut stream = begin_chunked(device, to, dest, z).await;
    let _ = stream.write_all(b"0\r\n\r\n").await;
    answer(&mut stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_without_a_length_stay_within_their_devices_share_together() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|limits| limits.quota_bytes = Some(20 << 20));
        config.sync = false;
    })
    .await;
    let (to, dest) = (gateway.address, service.dest());
    let greedy = Device(2);
    let bodies = [1, 2, 3].map(|seed| sealed(seed, 8 << 20, LATER));
    let [one, two, three] = &bodies;
    let answers = tokio::join!(
        post_chunked(greedy, to, &dest, one),
        post_chunked(greedy, to, &dest, two),
        post_chunked(greedy, to, &dest, three)
    );
    let answers = <[String; 3]>::from(answers);
    let taken = answers.iter().filter(|answer| status(answer) == "201").count();
    let full = answers.iter().filter(|answer| status(answer) == "507" && answer.contains("spool-full")).count();
    assert!((1..=2).contains(&taken) && taken + full == 3, "{answers:?}");
    assert_eq!(status(&Device(3).post(to, &dest, &sealed(4, 8 << 20, LATER)).await), "201");
    // What is known of an upload from another message does not make it shorter.
    let long = sealed(5, 14 << 20, LATER);
    let other = Device(4);
    let range = format!("Content-Range: bytes 0-{}/{}", border(1) - 1, long.len());
    let head = format!("PUT /offload/{}?dest={dest} HTTP/1.1\r\nHost: {to}\r\nConnection: close", id_of(&long));
    let mut stream = other.connect(to).await;
    let head = format!(
        "{head}\r\nContent-Length: {}\r\n{range}\r\nHoop-Prelude: {}\r\n\r\n",
        border(1),
        prelude_header(&long)
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&long[..border(1) as usize]).await.unwrap();
    let part = answer(&mut stream).await;
    assert_eq!(status(&part), "202", "{part}");
    assert_eq!(status(&other.post(to, &dest, &sealed(6, 8 << 20, LATER)).await), "201");
    let refused = post_chunked(other, to, &dest, &long).await;
    assert!(refused.contains("507") && refused.contains("spool-full"), "{refused}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_a_length_leaves_its_device_room_for_the_next() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|limits| limits.quota_bytes = Some(20 << 20));
        config.sync = false;
    })
    .await;
    let (to, dest) = (gateway.address, service.dest());
    let z = sealed(1, 1 << 20, LATER);
    let mut waiting = begin_chunked(Device(2), to, &dest, &z).await;
    assert_eq!(status(&Device(2).post(to, &dest, &sealed(2, 12 << 20, LATER)).await), "201");
    let refused = Device(2).post(to, &dest, &sealed(3, 12 << 20, LATER)).await;
    assert!(refused.contains("spool-full"), "{refused}");
    waiting.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(status(&answer(&mut waiting).await), "201");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_delivered_makes_room_in_a_devices_share() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (gateway, _folder) =
        gateway_with(|config| config.device = limits(|limits| limits.quota_bytes = Some(150_000))).await;
    for seed in 1..=3 {
        let z = sealed(seed, 100_000, LATER);
        assert_eq!(status(&Device(2).post(gateway.address, &service.dest(), &z).await), "201");
        until_state(gateway.address, id_of(&z), "accepted").await;
    }
    gateway.stop().await;
}

/// A service that rejects whatever it gets, with the longest sealed answer that there may be.
async fn talkative() -> Service {
    let answer = URL_SAFE_NO_PAD.encode(vec![7; 32 << 10]);
    Service::start(move |_, method, path, headers| {
        if *method != Method::PUT {
            return Weather::Fair;
        }
        let id = path.rsplit('/').next().unwrap();
        let range: ContentRange = headers["content-range"].to_str().unwrap().parse().unwrap();
        let status = json!({"id": id, "state": "rejected", "missing": "", "answer": answer, "reason": null});
        let mut response = hoop_http::json(StatusCode::OK, &status);
        let fields = [("hoop-upload-id", id), ("hoop-state", "rejected"), ("hoop-missing", "")];
        for (name, value) in fields {
            response.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        response.headers_mut().insert("hoop-total", range.total.into());
        Weather::Answer(response)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_takes_a_bounded_part_of_the_disk() {
    const UPLOADS: u8 = 200;
    let service = talkative().await;
    let (gateway, folder) = gateway_with(|config| {
        config.quota_bytes = Some(4 << 20);
        config.device = limits(|_| {});
        config.sync = false;
    })
    .await;
    let (to, dest) = (gateway.address, service.dest());
    let first = sealed(UPLOADS + 1, 10, LATER);
    assert_eq!(status(&Device(3).post(to, &dest, &first).await), "201");
    until_state(to, id_of(&first), "rejected").await;
    for seed in 1..=UPLOADS {
        let z = sealed(seed, 10, LATER);
        assert_eq!(status(&Device(2).post(to, &dest, &z).await), "201");
        until_state(to, id_of(&z), "rejected").await;
    }
    // The log has a MiB of its own.
    let files = ["index.db", "index.db-wal"].map(|name| std::fs::metadata(folder.path().join(name)).unwrap().len());
    assert!(files.iter().sum::<u64>() < 4 << 20, "{files:?}");
    let answer = async |z: &[u8]| get(to, &format!("/monitor?ID={}", id_of(z))).await.json()["answer"].clone();
    assert!(answer(&first).await.is_string(), "another device's");
    assert!(answer(&sealed(UPLOADS, 10, LATER)).await.is_string(), "the latest");
    assert!(answer(&sealed(1, 10, LATER)).await.is_null(), "the oldest of the device that has most");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_so_many_uploads_in_all_none_is_begun() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| config.max_uploads = 2).await;
    for seed in 1..=2 {
        assert_eq!(post(gateway.address, &service.dest(), &sealed(seed, 10, LATER)).await.status, 201);
    }
    let refused = post(gateway.address, &service.dest(), &sealed(3, 10, LATER)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str(), refused.header("retry-after")),
        (507, "spool-full", "60")
    );
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_in_a_hurry_is_told_to_wait_and_another_is_served() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|limits| (limits.requests_per_second, limits.begun_per_minute) = (5, 2));
    })
    .await;
    let to = gateway.address;
    for seed in 1..=2 {
        assert_eq!(status(&Device(2).post(to, &service.dest(), &sealed(seed, 10, LATER)).await), "201");
    }
    let refused = Device(2).post(to, &service.dest(), &sealed(3, 10, LATER)).await;
    assert!(refused.contains("too-many-requests") && refused.contains("retry-after: "), "{refused}");
    let mut last = String::new();
    for _ in 0..200 {
        last = Device(2).say(to, "GET /test", b"").await;
        if status(&last) != "200" {
            break;
        }
    }
    assert!(last.contains("429") && last.contains("requests a second") && last.contains("retry-after: 1"), "{last}");
    assert_eq!(status(&Device(3).say(to, "GET /test", b"").await), "200");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_trickles_is_cut_off_and_its_whole_records_are_kept() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| {
        config.body_timeouts =
            BodyTimeouts { silence: GENEROUS, least_bytes: 1000, within: Duration::from_millis(300) };
    })
    .await;
    let z = sealed(1, 200_000, LATER);
    let mut stream = Device(2).connect(gateway.address).await;
    let request = format!(
        "PUT /offload/{}?dest={} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\nContent-Range: bytes 0-{}/{}\r\n\
         Hoop-Prelude: {}\r\n\r\n",
        id_of(&z),
        service.dest(),
        gateway.address,
        z.len(),
        z.len() - 1,
        z.len(),
        prelude_header(&z)
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let first = border(1) as usize;
    stream.write_all(&z[..first]).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let trickle = async {
        for byte in &z[first..] {
            if writing.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut text = vec![0; 4096];
    let read = tokio::select! {
        read = tokio::time::timeout(GENEROUS, reading.read(&mut text)) => read.unwrap().unwrap(),
        () = trickle => unreachable!(),
    };
    let said = String::from_utf8_lossy(&text[..read]);
    assert!(said.contains("408") && said.contains("request-timeout") && said.contains("too slow"), "{said}");
    let kept = head(gateway.address, id_of(&z)).await;
    assert_eq!(kept.header("hoop-missing"), format!("{first}-{}", z.len() - 1));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_do_not_come_or_do_not_end_end_the_connection() {
    let (gateway, _folder) = gateway_with(|config| {
        let short = Duration::from_millis(200);
        config.limits = ServerLimits { head_timeout: short, idle_timeout: short, ..config.limits.clone() };
    })
    .await;
    // One that stops in the middle, and one that says nothing.
    for begun in ["GET /test HTTP/1.1\r\nHost: hoop.local\r\nX: ", ""] {
        let mut stream = Device(2).connect(gateway.address).await;
        stream.write_all(begun.as_bytes()).await.unwrap();
        answer(&mut stream).await;
    }
    // One that was answered, and says nothing more.
    let mut stream = Device(2).connect(gateway.address).await;
    stream.write_all(b"GET /test HTTP/1.1\r\nHost: hoop.local\r\n\r\n").await.unwrap();
    assert_eq!(status(&answer(&mut stream).await), "200");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_head_ends_at_its_bound() {
    let (gateway, _folder) = gateway_with(|_| {}).await;
    let mut stream = Device(2).connect(gateway.address).await;
    stream.write_all(b"GET /test HTTP/1.1\r\nHost: hoop.local\r\nX: ").await.unwrap();
    let mut sent = 0;
    while stream.write_all(&[b'a'; 64 << 10]).await.is_ok() {
        sent += 64 << 10;
        assert!(sent < 64 << 20, "nothing ends it");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_takes_every_connection_locks_nobody_out() {
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|limits| limits.connections = 4);
        config.limits.connections = 6;
    })
    .await;
    let mut held = Vec::new();
    for device in [2, 3] {
        for _ in 0..40 {
            let mut stream = Device(device).connect(gateway.address).await;
            stream.write_all(b"GET /test HTTP/1.1\r\nHost: hoop.local\r\nX: ").await.unwrap();
            held.push(stream);
        }
    }
    for device in [4, 5, 4] {
        assert_eq!(status(&Device(device).say(gateway.address, "GET /test", b"").await), "200");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_so_many_that_wait_a_devices_oldest_makes_way() {
    let (gateway, _folder) = gateway_with(|config| config.device = limits(|limits| limits.connections = 1)).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(Device(2).connect(gateway.address).await);
    }
    // Long enough for none of them to have come just now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(held.iter().all(|stream| stream.try_read(&mut [0]).is_err()), "all are there");
    held.push(Device(2).connect(gateway.address).await);
    assert_eq!(answer(&mut held[0]).await, "", "the oldest has gone");
    assert_eq!(status(&Device(2).say(gateway.address, "GET /test", b"").await), "200");
    assert_eq!(status(&Device(3).say(gateway.address, "GET /test", b"").await), "200");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumable_part_ends_when_its_connection_makes_way() {
    let service = shut().await;
    let hour = Duration::from_secs(3_600);
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|limits| limits.connections = 1);
        config.body_timeouts = BodyTimeouts { silence: hour, least_bytes: 1, within: hour };
    })
    .await;
    let (to, device) = (gateway.address, Device(2));
    let mut sending = Vec::new();
    for seed in 1..=2 {
        let z = sealed(seed, 1 << 20, LATER);
        let creation = format!(
            "POST /offload?dest={} HTTP/1.1\r\nHost: {to}\r\nUpload-Complete: ?0\r\nConnection: close\r\n\r\n",
            service.dest()
        );
        let mut stream = device.connect(to).await;
        stream.write_all(creation.as_bytes()).await.unwrap();
        let created = answer(&mut stream).await;
        assert_eq!(status(&created), "201", "{created}");
        let location = created.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
        let part = format!(
            "PATCH {location} HTTP/1.1\r\nHost: {to}\r\nUpload-Offset: 0\r\nUpload-Complete: ?1\r\nContent-Type: application/partial-upload\r\nContent-Length: {}\r\n\r\n",
            z.len()
        );
        let mut stream = device.connect(to).await;
        stream.write_all(part.as_bytes()).await.unwrap();
        stream.write_all(&z[..70_000]).await.unwrap();
        sending.push(stream);
    }
    let refused = answer(&mut sending[0]).await;
    assert_eq!(status(&refused), "429", "{refused}");
    drop(sending);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_device_has_a_quarter_of_the_places_for_early_records() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| config.device = limits(|_| {})).await;
    let to = gateway.address;
    let early = async |device: Device, seed: u8, from: u64, to_border: u64| {
        let z = sealed(seed, 200_000, LATER);
        let (start, end) = (border(from), border(to_border).min(z.len() as u64));
        let range = format!("Content-Range: bytes {start}-{}/{}", end - 1, z.len());
        let head = format!("PUT /offload/{}?dest={}", id_of(&z), service.dest());
        let mut stream = device.connect(to).await;
        let length = end - start;
        let head = format!(
            "{head} HTTP/1.1\r\nHost: {to}\r\nHoop-Early: ?1\r\n{range}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(&z[start as usize..end as usize]).await;
        answer(&mut stream).await
    };
    let (greedy, other) = (Device(2), Device(3));
    for seed in 1..=16 {
        let taken = early(greedy, seed, 1, 2).await;
        assert_eq!(status(&taken), "202", "{taken}");
    }
    let refused = early(greedy, 17, 1, 2).await;
    assert!(refused.contains("428") && refused.contains("prelude-needed"), "{refused}");
    assert_eq!(status(&early(greedy, 16, 2, 3).await), "202", "what it has begun goes on");
    assert_eq!(status(&early(other, 30, 1, 2).await), "202");
    // With its prelude it is no early one any more.
    assert_eq!(status(&greedy.post(to, &service.dest(), &sealed(1, 200_000, LATER)).await), "201");
    assert_eq!(status(&early(greedy, 17, 1, 2).await), "202");
    gateway.stop().await;
}
