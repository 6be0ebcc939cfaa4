//! Delivery over real sockets: fair weather first, then each kind of bad.

use crate::support::service::{self, Service, Weather, plain};
use crate::support::{
    GENEROUS, LATER, Running, border, config, id_of, payload_files, post, prelude_header, put, sealed, start, status,
    until, until_state,
};
use hoop_gateway::Config;
use hoop_http::{Clock, Code, Problem};
use hoop_units::{ByteRange, UnixTime};
use http::{HeaderValue, Method, Response};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

async fn gateway() -> (Running, TempDir) {
    gateway_with(|_| {}).await
}

async fn gateway_with(change: impl FnOnce(&mut Config)) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    (start(config).await, folder)
}

/// Waits until all payload is removed: that comes once it is on disk that it does not count.
async fn until_removed(folder: &Path) {
    let blocks = |file: &PathBuf| std::fs::metadata(file).map_or(0, |file| file.blocks());
    let end = tokio::time::Instant::now() + GENEROUS;
    while payload_files(folder).iter().map(blocks).sum::<u64>() > 0 {
        assert!(tokio::time::Instant::now() < end, "the payload stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn reason(status: &Value) -> &str {
    status["reason"]["code"].as_str().unwrap_or_default()
}

/// Bad weather for the first `times` requests of this method, then fair.
fn at_first(
    times: usize,
    method: Method,
    mut weather: impl FnMut() -> Weather + Send,
) -> impl FnMut(usize, &Method, &str, &http::HeaderMap) -> Weather + Send {
    let mut left = times;
    move |_, asked, _, _| {
        if *asked == method && left > 0 {
            left -= 1;
            return weather();
        }
        Weather::Fair
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_delivered_whole_and_its_sealed_answer_kept() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 300_000, LATER);
    let reply = post(gateway.address, &service.dest(), &z).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["stored"]), (201, &z.len().into()), "{reply:?}");
    assert_eq!(reply.json()["monitor"], format!("http://{}/monitor?ID={}", gateway.address, id_of(&z)));
    let status = until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(status["answer"], "c2VhbGVkIGFuc3dlcg");
    assert_eq!(service.bytes(id_of(&z)), z);
    assert_eq!(service.count(&Method::HEAD, "/"), 0, "the first time nobody has to be asked");
    until_removed(folder.path()).await;
    let again = post(gateway.address, &service.dest(), &z).await;
    assert_eq!((again.status.as_u16(), &again.json()["state"]), (201, &"accepted".into()));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_received_in_ranges_is_delivered_in_messages_of_16_mib() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    // What is sent while it comes goes in messages as it comes.
    let (gateway, _folder) = gateway_with(|config| config.cut_through = false).await;
    let z = sealed(1, 40 << 20, LATER);
    let (middle, total) = (border(300), z.len() as u64);
    put(gateway.address, &service.dest(), &z, ByteRange::new(middle, total)).await;
    assert_eq!(put(gateway.address, &service.dest(), &z, ByteRange::new(0, middle)).await.status, 201);
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert!(service.bytes(id_of(&z)) == z);
    assert_eq!(service.count(&Method::PUT, "/hoop/post/"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_uploads_are_delivered_four_at_a_time_and_none_twice_at_once() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (gateway, _folder) = gateway().await;
    let uploads: Vec<_> = (1..=40).map(|seed| sealed(seed, 50_000, LATER)).collect();
    for z in &uploads {
        assert_eq!(post(gateway.address, &service.dest(), z).await.status, 201);
    }
    for z in &uploads {
        until_state(gateway.address, id_of(z), "accepted").await;
        assert_eq!(service.bytes(id_of(z)), *z);
    }
    let state = service.state.lock().unwrap();
    assert!(state.most_at_once <= 4, "{}", state.most_at_once);
    assert!(!state.twice_at_once);
}

/// Hands over an upload as the device 127.0.0.`device` does.
async fn post_as(device: u8, gateway: &Running, dest: &str, z: &[u8]) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, device), 0).into()).unwrap();
    let mut stream = socket.connect(gateway.address).await.unwrap();
    let (host, len) = (gateway.address, z.len());
    let head = format!(
        "POST /offload?dest={dest} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(z).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_read_nothing_keep_slots_from_no_other_device() {
    const FILM: usize = 2 << 20;
    let silent = |_: usize, method: &Method, _: &str, _: &http::HeaderMap| match *method {
        Method::PUT => Weather::Silence,
        _ => Weather::Fair,
    };
    let mut sinks = Vec::new();
    for _ in 0..8 {
        sinks.push(Service::start(silent).await);
    }
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (gateway, _folder) = gateway().await;
    // Six ports of one machine for the first device, which get its share of the slots, and one each for the next two: then films have no slot left.
    let asked = || sinks.iter().map(|sink| sink.count(&Method::PUT, "/")).sum::<usize>();
    for (seed, sink) in (1_u8..).zip(&sinks) {
        let (device, slots) = if seed <= 6 { (2, usize::from(seed).min(3)) } else { (seed, usize::from(seed) - 3) };
        let z = sealed(seed, FILM, LATER);
        post_as(device, &gateway, &sink.dest(), &z).await;
        until(gateway.address, id_of(&z), "the slots that are its device's", |_| asked() == slots).await;
    }
    let z = sealed(9, FILM, LATER);
    post_as(9, &gateway, &service.dest(), &z).await;
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(service.bytes(id_of(&z)), z);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_costs_only_what_was_not_acknowledged() {
    let service = Service::start(at_first(2, Method::PUT, || Weather::Cut(100_000))).await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 300_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(service.bytes(id_of(&z)), z);
    assert!(service.count(&Method::HEAD, "/hoop/post/") >= 1, "afterwards it asks what is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_redirects_and_5xx_are_retried_and_no_redirect_is_followed() {
    let mut answers = vec![
        plain(500, "oops"),
        plain(200, "<html>log in to the hotel's network</html>"),
        plain(302, ""),
        plain(418, "{\"code\":\"of-tomorrow\"}"),
    ];
    answers[2].headers_mut().insert("location", HeaderValue::from_static("http://127.0.0.1:1/elsewhere"));
    let service = Service::start(move |_, method, _, _| match method {
        &Method::PUT => answers.pop().map_or(Weather::Fair, Weather::Answer),
        _ => Weather::Fair,
    })
    .await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 100_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    let seen = until(gateway.address, id_of(&z), "a reason", |status| status["reason"].is_object()).await;
    assert_eq!(seen["state"], "delivering");
    assert!(!seen["next_attempt"].is_null());
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(service.bytes(id_of(&z)), z);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_heeded_as_the_least_wait() {
    let service = Service::start(at_first(1, Method::PUT, || {
        let mut response = plain(503, "later");
        response.headers_mut().insert("retry-after", HeaderValue::from_static("3600"));
        Weather::Answer(response)
    }))
    .await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 1_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    let status = until(gateway.address, id_of(&z), "a wait", |status| status["attempts"] == 1).await;
    let wait = status["next_attempt"].as_u64().unwrap() - status["updated"].as_u64().unwrap();
    assert!((3600..=3601).contains(&wait), "{wait}");
    assert_eq!(reason(&status), "dest-unreachable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_upload_waits_with_its_reason_and_is_delivered_once_resumed() {
    let paused = Arc::new(AtomicBool::new(true));
    let is_paused = paused.clone();
    let service =
        Service::start(move |_, method, _, _| match *method == Method::PUT && is_paused.load(Ordering::SeqCst) {
            true => {
                let problem = Problem::new(Code::UploadPaused, "").retry_after(Duration::from_secs(1));
                Weather::Answer(problem.into_response())
            }
            false => Weather::Fair,
        })
        .await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 100_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    let status = until(gateway.address, id_of(&z), "a second attempt", |status| status["attempts"] == 2).await;
    assert_eq!((reason(&status), &status["state"]), ("upload-paused", &"delivering".into()));
    assert!(!status["next_attempt"].is_null());
    paused.store(false, Ordering::SeqCst);
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(service.bytes(id_of(&z)), z);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_the_service_kept_of_a_paused_message_count_as_delivered() {
    let z = sealed(1, 100_000, LATER);
    let missing = format!("{}-{}", border(1), z.len() - 1);
    let service = Service::start(move |_, method, _, _| match *method == Method::PUT {
        true => {
            // For an hour: nobody asks again meanwhile.
            let problem = Problem::new(Code::UploadPaused, "").retry_after(Duration::from_secs(3600));
            let mut answer = problem.into_response();
            let headers = answer.headers_mut();
            headers.insert("hoop-state", HeaderValue::from_static("receiving"));
            headers.insert("hoop-missing", missing.parse().unwrap());
            Weather::Answer(answer)
        }
        false => Weather::Fair,
    })
    .await;
    let (gateway, _folder) = gateway().await;
    post(gateway.address, &service.dest(), &z).await;
    let status = until(gateway.address, id_of(&z), "the pause", |status| reason(status) == "upload-paused").await;
    assert_eq!(status["delivered"].as_u64(), Some(border(1)), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_blames_the_upload_ends_it_with_its_reason() {
    for (code, state) in [
        (Code::TicketForeign, "refused"),
        (Code::TokenInvalid, "refused"),
        (Code::TooLarge, "refused"),
        (Code::UploadStopped, "stopped"),
        (Code::UploadExpired, "expired"),
        (Code::AnswerLost, "unknown"),
        (Code::Rejected, "rejected"),
    ] {
        let problem = move || Weather::Answer(Problem::new(code, "because").into_response());
        let service = Service::start(at_first(usize::MAX, Method::PUT, problem)).await;
        let (gateway, folder) = gateway().await;
        let z = sealed(1, 1_000, LATER);
        post(gateway.address, &service.dest(), &z).await;
        let status = until_state(gateway.address, id_of(&z), state).await;
        assert_eq!(status["reason"], serde_json::json!({"code": code.name(), "detail": "the service says: “because”"}));
        assert_eq!((service.count(&Method::PUT, "/"), &status["next_attempt"]), (1, &Value::Null));
        until_removed(folder.path()).await;
    }
}

/// It kept the file, which counts for nobody, as long as it went on.
#[tokio::test(flavor = "multi_thread")]
async fn the_sender_of_a_stopped_upload_is_told_so_and_leaves_no_file() {
    ends_under_a_sender(Code::UploadStopped, "stopped", b"HTTP/1.1 410").await;
    // Nothing is wrong with what is sent: the service has its word already.
    ends_under_a_sender(Code::Rejected, "rejected", b"HTTP/1.1 201").await;
}

async fn ends_under_a_sender(code: Code, state: &str, told: &[u8; 12]) {
    let problem = move || Weather::Answer(Problem::new(code, "").into_response());
    let service = Service::start(at_first(usize::MAX, Method::PUT, problem)).await;
    let (gateway, folder) = gateway().await;
    let z = sealed(1, 16 << 20, LATER);
    let range = ByteRange::new(border(8), z.len() as u64);
    let mut slow = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!(
        "PUT /offload/{}?dest={} HTTP/1.1\r\nHost: gateway\r\nContent-Length: {}\r\nContent-Range: bytes {range}/{}\r\n\
         Hoop-Prelude: {}\r\n\r\n",
        id_of(&z),
        service.dest(),
        range.len(),
        z.len(),
        prelude_header(&z)
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(&z[border(8) as usize..border(9) as usize]).await.unwrap();
    put(gateway.address, &service.dest(), &z, ByteRange::new(0, border(4))).await;
    until_state(gateway.address, id_of(&z), state).await;
    let (mut comes, mut goes) = slow.split();
    let (mut answer, mut record) = ([0; 12], 9);
    let sending = async {
        while border(record + 1) < z.len() as u64 {
            goes.write_all(&z[border(record) as usize..border(record + 1) as usize]).await.unwrap();
            record += 1;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        read = comes.read_exact(&mut answer) => drop(read.unwrap()),
        () = sending => panic!("all of it was taken"),
    }
    assert_eq!(&answer, told);
    drop(slow);
    until_removed(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_never_opens_is_tried_a_few_times_and_then_given_up() {
    let problem = || Weather::Answer(Problem::new(Code::RecordCorrupt, "record 0").into_response());
    let z = sealed(1, 1_000, LATER);
    let missing = format!("0-{}", z.len() - 1);
    // In between it says that it knows the upload and has nothing of it, as real services do.
    let head = move || {
        let answer = Response::builder().header("hoop-state", "receiving").header("hoop-missing", &missing);
        Weather::Answer(answer.body(hoop_http::empty()).unwrap())
    };
    let service = Service::start(move |_, method, path, _| match (method, path) {
        (&Method::PUT, _) => problem(),
        (&Method::HEAD, _) => head(),
        _ => Weather::Fair,
    })
    .await;
    // Each look at the wall clock is an hour later, so that no wait is long.
    let hours = AtomicI64::new(0);
    let clock = Clock::with_wall(move || {
        let hour = u64::try_from(hours.fetch_add(1, Ordering::Relaxed)).unwrap();
        SystemTime::now() + Duration::from_secs(hour * 3600)
    });
    let (gateway, _folder) = gateway_with(|config| config.clock = clock).await;
    post(gateway.address, &service.dest(), &z).await;
    let status = until_state(gateway.address, id_of(&z), "refused").await;
    assert_eq!(reason(&status), "record-corrupt");
    assert_eq!(service.count(&Method::PUT, "/"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_service_calls_altered_is_missing_and_sent_again() {
    let (refusals, z) = (AtomicI64::new(5), sealed(1, 150_000, LATER));
    let missing = format!("0-{}", z.len() - 1);
    let service = Service::start(move |_, method, _, _| match *method {
        Method::PUT if refusals.fetch_sub(1, Ordering::Relaxed) > 0 => {
            Weather::Answer(Problem::new(Code::RecordCorrupt, "altered").field("record 1").into_response())
        }
        Method::HEAD if refusals.load(Ordering::Relaxed) > 0 => {
            let answer = Response::builder().header("hoop-state", "receiving").header("hoop-missing", &missing);
            Weather::Answer(answer.body(hoop_http::empty()).unwrap())
        }
        _ => Weather::Fair,
    })
    .await;
    let hours = AtomicI64::new(0);
    let clock = Clock::with_wall(move || {
        let hour = u64::try_from(hours.fetch_add(1, Ordering::Relaxed)).unwrap();
        SystemTime::now() + Duration::from_secs(hour * 600)
    });
    let (gateway, _folder) = gateway_with(|config| config.clock = clock).await;
    let dest = service.dest();
    assert_eq!(post(gateway.address, &dest, &z).await.status, 201);
    let record = ByteRange::new(border(1), border(2));
    let wanted = record.to_string();
    let status = until(gateway.address, id_of(&z), "a record missing", |status| status["missing"] == *wanted).await;
    assert_eq!(reason(&status), "record-corrupt");
    assert_eq!(put(gateway.address, &dest, &z, record).await.status, 201);
    until_state(gateway.address, id_of(&z), "accepted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_413_of_something_on_the_way_makes_the_messages_smaller() {
    let service = Service::start(|_, method, _, headers| {
        let length: usize = headers.get("content-length").map_or(0, |length| length.to_str().unwrap().parse().unwrap());
        match *method == Method::PUT && length > 1 << 20 {
            true => Weather::Answer(plain(413, "<html>nginx</html>")),
            false => Weather::Fair,
        }
    })
    .await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 5 << 20, LATER);
    post(gateway.address, &service.dest(), &z).await;
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert!(service.bytes(id_of(&z)) == z);
}

/// It would keep a core busy for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_has_now_more_and_now_less_gets_few_messages() {
    let z = sealed(1, 1_000, LATER);
    let (id, total) = (id_of(&z), z.len());
    let mut puts = 0;
    let service = Service::start(move |_, method, _, _| {
        if *method != Method::PUT {
            return Weather::Fair;
        }
        puts += 1;
        let first = total - 1 - puts % 2;
        let mut response = plain(202, "");
        for (name, value) in
            [("hoop-state", "receiving".to_owned()), ("hoop-missing", format!("{first}-{}", total - 1))]
        {
            response.headers_mut().insert(name, HeaderValue::try_from(value).unwrap());
        }
        Weather::Answer(response)
    })
    .await;
    let (gateway, _folder) = gateway().await;
    assert_eq!(post(gateway.address, &service.dest(), &z).await.status, 201);
    let ended = until(gateway.address, id, "an end, or many messages", |status| {
        status["reason"].is_object() || service.count(&Method::PUT, "/") > 100
    })
    .await;
    assert_eq!(reason(&ended), "dest-not-hoop");
    assert!(service.count(&Method::PUT, "/") < 10, "{}", service.count(&Method::PUT, "/"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_known_not_to_be_a_hoop_service_is_refused_at_the_door() {
    // It is not well when it is asked at the door, so that nothing is known of it.
    let statuses = |number| if number == 0 { plain(503, "") } else { plain(404, "a router's own pages") };
    let service = Service::start(move |number, _, _, _| Weather::Answer(statuses(number))).await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 1_000, LATER);
    assert_eq!(post(gateway.address, &service.dest(), &z).await.status, 201, "nothing is known yet");
    let status = until(gateway.address, id_of(&z), "a reason", |status| status["reason"].is_object()).await;
    assert_eq!((reason(&status), status["state"].as_str()), ("dest-not-hoop", Some("stored")));
    let second = post(gateway.address, &service.dest(), &sealed(2, 1_000, LATER)).await;
    assert_eq!((second.status.as_u16(), second.code().as_str()), (422, "dest-not-hoop"), "{second:?}");
    assert_eq!(service.count(&Method::PUT, "/"), 0, "no sealed byte went there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dest_that_is_not_the_post_url_is_not_delivered_to() {
    let weather = |number| if number == 0 { Weather::Answer(plain(503, "")) } else { Weather::Fair };
    let service = Service::start(move |number, _, _, _| weather(number)).await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 1_000, LATER);
    let elsewhere = format!("http://{}/admin/reboot", service.address);
    assert_eq!(post(gateway.address, &elsewhere, &z).await.status, 201, "nothing is known yet");
    let status = until(gateway.address, id_of(&z), "a reason", |status| status["reason"].is_object()).await;
    assert_eq!(reason(&status), "dest-not-hoop");
    assert_eq!(service.count(&Method::PUT, "/") + service.count(&Method::HEAD, "/"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_resolves_to_a_private_address_is_not_connected_to() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let port = service.address.port();
    let (gateway, _folder) = gateway_with(|config| {
        config.allow_dest.clear();
        config.resolve.insert(("rebound.example".to_owned(), port), vec![Ipv4Addr::LOCALHOST.into()]);
    })
    .await;
    let z = sealed(1, 1_000, LATER);
    let reply = post(gateway.address, &format!("https://rebound.example:{port}/hoop/post"), &z).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (403, "dest-forbidden"));
    assert!(service.state.lock().unwrap().requests.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_certificate_that_is_trusted_is_needed_and_enough() {
    let name = "photos.example";
    let files = tempfile::tempdir().unwrap();
    let pair = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (certificate, key) = (files.path().join("certificate.pem"), files.path().join("key.pem"));
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let service = Service::start_tls(name, &certificate, &key).await;
    let at_home = |config: &mut Config| {
        config.allow_dest = vec![name.parse().unwrap()];
        config.resolve.insert((name.to_owned(), service.address.port()), vec![Ipv4Addr::LOCALHOST.into()]);
    };
    let (stranger, _folder) = gateway_with(at_home).await;
    let z = sealed(1, 200_000, LATER);
    post(stranger.address, &service.dest(), &z).await;
    let status = until(stranger.address, id_of(&z), "a reason", |status| status["reason"].is_object()).await;
    assert_eq!(reason(&status), "dest-unreachable");
    assert!(service.state.lock().unwrap().requests.is_empty(), "nothing was said to whom it does not trust");
    let (gateway, _folder) = gateway_with(|config| {
        at_home(config);
        config.ca = vec![certificate.clone()];
    })
    .await;
    post(gateway.address, &service.dest(), &z).await;
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(service.bytes(id_of(&z)), z);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_comes_back_is_delivered_to() {
    let first = Service::start(|_, _, _, _| Weather::Fair).await;
    let (address, dest): (SocketAddr, _) = (first.address, first.dest());
    first.stop().await;
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 100_000, LATER);
    assert_eq!(post(gateway.address, &dest, &z).await.status, 201);
    let status = until(gateway.address, id_of(&z), "a reason", |status| status["reason"].is_object()).await;
    assert_eq!(reason(&status), "dest-unreachable");
    let second = Service::start_at(address, |_, _, _, _| Weather::Fair).await;
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(second.bytes(id_of(&z)), z);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_with_what_was_queued_and_asks_what_is_there() {
    // The first message is taken, the second never: then the gateway stops.
    let service = Service::start(|_, method, _, headers| {
        let first = headers.get("content-range").is_some_and(|range| range.to_str().unwrap().starts_with("bytes 0-"));
        match *method == Method::PUT && !first {
            true => Weather::Cut(1),
            false => Weather::Fair,
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let z = sealed(1, 20 << 20, LATER);
    let one = start(config(folder.path())).await;
    post(one.address, &service.dest(), &z).await;
    until(one.address, id_of(&z), "a reason", |status| status["reason"].is_object()).await;
    one.stop().await;
    service.set_mood(|_, _, _, _| Weather::Fair);
    let two = start(config(folder.path())).await;
    until_state(two.address, id_of(&z), "accepted").await;
    assert!(service.bytes(id_of(&z)) == z);
    let firsts = service.state.lock().unwrap().uploads[&id_of(&z).to_hex()].messages;
    assert_eq!(firsts, 2, "the first message was not sent again");
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_asks_after_a_received_upload_until_the_application_answers() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    service.state.lock().unwrap().verdict = "received";
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 1_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    let received = until_state(gateway.address, id_of(&z), "received").await;
    assert!(!received["received_at"].is_null());
    service.state.lock().unwrap().verdict = "held";
    until_state(gateway.address, id_of(&z), "held").await;
    service.state.lock().unwrap().verdict = "accepted";
    let accepted = until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(accepted["answer"], "c2VhbGVkIGFuc3dlcg");
    assert_eq!(service.count(&Method::PUT, "/"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_lost_what_it_had_received_gets_it_again() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    service.state.lock().unwrap().verdict = "received";
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 100_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    until_state(gateway.address, id_of(&z), "received").await;
    {
        let mut state = service.state.lock().unwrap();
        state.uploads.clear();
        state.verdict = "accepted";
    }
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(service.bytes(id_of(&z)), z);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_neither_loses_nor_delays_an_upload() {
    let service = Service::start(at_first(3, Method::PUT, || Weather::Answer(plain(500, "")))).await;
    let offset = Arc::new(AtomicI64::new(0));
    let seen = offset.clone();
    let now = SystemTime::now();
    let clock = Clock::with_wall(move || {
        let offset = seen.load(Ordering::Relaxed);
        let by = Duration::from_secs(offset.unsigned_abs());
        if offset < 0 { now - by } else { now + by }
    });
    let expires = UnixTime(Clock::system().unix().0 + 30 * 86_400);
    let (gateway, _folder) = gateway_with(|config| config.clock = clock).await;
    let z = sealed(1, 1_000, expires);
    post(gateway.address, &service.dest(), &z).await;
    // This wall clock stands still but for its jumps: a week back, three weeks ahead, ten years back.
    for (attempts, jump) in [(1, -7), (2, 21), (3, -3650)] {
        until(gateway.address, id_of(&z), "an attempt", |status| status["attempts"] == attempts).await;
        offset.store(jump * 86_400, Ordering::Relaxed);
        // Something else that comes in makes the gateway look at the clock.
        let other = "http://127.0.0.1:9/hoop/post";
        assert_eq!(post(gateway.address, other, &sealed(100 + attempts as u8, 10, LATER)).await.status, 201);
    }
    until_state(gateway.address, id_of(&z), "accepted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_could_not_be_delivered_in_time_expires_and_says_so() {
    let now = Clock::system().unix();
    let late = Arc::new(AtomicI64::new(0));
    let seen = late.clone();
    let clock =
        Clock::with_wall(move || SystemTime::now() + Duration::from_secs(seen.load(Ordering::Relaxed).unsigned_abs()));
    let folder = tempfile::tempdir().unwrap();
    let with_clock = || Config { clock: clock.clone(), ..config(folder.path()) };
    let z = sealed(1, 1_000, UnixTime(now.0 + 100));
    let one = start(with_clock()).await;
    post(one.address, "http://127.0.0.1:9/hoop/post", &z).await;
    until(one.address, id_of(&z), "a reason", |status| status["reason"].is_object()).await;
    one.stop().await;
    late.store(8 * 86_400, Ordering::Relaxed);
    let two = start(with_clock()).await;
    let expired = until_state(two.address, id_of(&z), "expired").await;
    assert_eq!(reason(&expired), "upload-expired");
    assert_eq!(status(two.address, id_of(&z)).await["next_attempt"], Value::Null);
}

/// Makes the index refuse to record how an attempt ended, as a disk does that has no room or fails.
fn spoil_index(folder: &Path) {
    let db = rusqlite::Connection::open(folder.join("index.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON upload WHEN OLD.state = 2 AND NEW.state = 2
                  BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END";
    db.execute_batch(refuse).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_cannot_be_recorded_delays_the_next_by_some_seconds() {
    let service = Service::start(at_first(usize::MAX, Method::PUT, || Weather::Answer(plain(500, "")))).await;
    let folder = tempfile::tempdir().unwrap();
    start(config(folder.path())).await.stop().await;
    spoil_index(folder.path());
    let gateway = start(config(folder.path())).await;
    let z = sealed(1, 1_000, LATER);
    assert_eq!(post(gateway.address, &service.dest(), &z).await.status, 201);
    let puts = || service.count(&Method::PUT, "/");
    until(gateway.address, id_of(&z), "an attempt", |_| puts() > 0).await;
    // A gateway that began anew at once would make hundreds of attempts meanwhile.
    for _ in 0..200 {
        status(gateway.address, id_of(&z)).await;
    }
    assert!(puts() <= 2, "{} attempts", puts());
    until(gateway.address, id_of(&z), "another attempt", |_| puts() > 1).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_counts_as_received_at_once_though_the_application_is_silent() {
    // Like a service whose application is silent: whoever asks it to wait gets no answer within this test.
    let prefers = |headers: &http::HeaderMap| headers.contains_key("prefer");
    let service =
        Service::start(move |_, _, _, headers| if prefers(headers) { Weather::Silence } else { Weather::Fair }).await;
    service.state.lock().unwrap().verdict = "received";
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 200_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    let received = until_state(gateway.address, id_of(&z), "received").await;
    assert_eq!((&received["received_at"].is_null(), &received["delivered"]), (&false, &z.len().into()));
    until(gateway.address, id_of(&z), "a question", |_| service.count(&Method::GET, "/hoop/uploads/") == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_application_is_waited_for_where_nobody_waits_to_send() {
    let waits = Arc::new(Mutex::new(Vec::new()));
    let seen = waits.clone();
    let service = Service::start(move |_, _, _, headers| {
        let wait = headers.get("prefer").and_then(|wait| wait.to_str().ok()?.strip_prefix("wait=")?.parse::<u8>().ok());
        seen.lock().unwrap().extend(wait);
        Weather::Fair
    });
    let service = service.await;
    service.state.lock().unwrap().verdict = "received";
    let (gateway, _folder) = gateway().await;
    let z = sealed(1, 200_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    until(gateway.address, id_of(&z), "two questions", |_| waits.lock().unwrap().len() >= 2).await;
    let waits = waits.lock().unwrap().clone();
    assert!(waits[0] <= 3, "it has a slot for sending: {waits:?}");
    assert!(waits[1] >= 20, "nobody waits for a slot for questions: {waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_upload_is_asked_after_ever_less_often_up_to_every_15_minutes() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    service.state.lock().unwrap().verdict = "held";
    let late = Arc::new(AtomicI64::new(0));
    let (seen, now) = (late.clone(), SystemTime::now());
    let clock = Clock::with_wall(move || now + Duration::from_secs(seen.load(Ordering::Relaxed).unsigned_abs()));
    let (gateway, _folder) = gateway_with(|config| config.clock = clock).await;
    let z = sealed(1, 1_000, LATER);
    post(gateway.address, &service.dest(), &z).await;
    let mut asked = 0;
    for attempts in 1..=12_u32 {
        let status = until(gateway.address, id_of(&z), "an attempt", |status| {
            status["attempts"] == attempts && !status["next_attempt"].is_null()
        })
        .await;
        let wait = status["next_attempt"].as_u64().unwrap() - status["updated"].as_u64().unwrap();
        let longest = (1_u64 << (attempts - 1)).min(15 * 60);
        assert!((longest.div_ceil(2)..=longest).contains(&wait), "{wait} s after attempt {attempts}");
        let count = service.count(&Method::GET, "/hoop/uploads/");
        assert_eq!(count - asked, 1, "one question each time");
        asked = count;
        // The wait is over; something else that comes in makes the gateway look at the clock.
        late.fetch_add(i64::try_from(wait).unwrap(), Ordering::Relaxed);
        let other = sealed(100 + attempts as u8, 10, LATER);
        assert_eq!(post(gateway.address, "http://127.0.0.1:9/hoop/post", &other).await.status, 201);
    }
}

/// A service that answers the first message before it has read it, and reads on. Returns how much of what followed came over
/// the same connection.
async fn answer_early(listener: TcpListener) -> usize {
    let well_known = service::well_known(&format!("http://{}", listener.local_addr().unwrap())).to_string();
    // The gateway asks what this is when the upload is offered.
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        assert!(socket.read_buf(&mut seen).await.unwrap() > 0);
    }
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{well_known}", well_known.len());
    socket.write_all(answer.as_bytes()).await.unwrap();
    let (mut socket, _) = listener.accept().await.unwrap();
    seen.clear();
    while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
        assert!(socket.read_buf(&mut seen).await.unwrap() > 0);
    }
    socket.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    // The gateway begins anew, over another connection.
    let (_next, _) = listener.accept().await.unwrap();
    let (mut came, mut buffer) = (seen.len(), vec![0; 1 << 16]);
    while let Ok(read @ 1..) = socket.read(&mut buffer).await {
        came += read;
    }
    came
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_early_answer_the_rest_of_the_message_is_not_sent() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let dest = format!("http://{}/hoop/post", listener.local_addr().unwrap());
    let early = tokio::spawn(answer_early(listener));
    let (gateway, _folder) = gateway().await;
    assert_eq!(post(gateway.address, &dest, &sealed(1, 17 << 20, LATER)).await.status, 201);
    let came = tokio::time::timeout(GENEROUS, early).await.expect("it uses another connection").unwrap();
    assert!(came < 16 << 20, "{came} bytes came");
}
