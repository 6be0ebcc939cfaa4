//! The relay's cache as programs meet it: who gets what of whom, and what survives.

use crate::house::{House, answering, head, keeping_relay, origin};
use crate::scripted::{Answer, Origin};
use hoop_relay::{Introduction, Relay, RelayConfig, introduce};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const FRESH: &str = "Cache-Control: max-age=100000";

/// A relay with two devices.
struct Two {
    one: House,
    other: House,
    config: RelayConfig,
    cache: PathBuf,
}

/// One more device of the same relay.
async fn another(introduction: &Introduction, config: &RelayConfig) -> House {
    let certificate = std::fs::read_to_string(&config.certificate).unwrap();
    let server = format!("localhost:{}", config.listen.port());
    let mut other = introduce(&config.devices, &server, Some(certificate)).unwrap();
    other.addresses.clone_from(&introduction.addresses);
    House::by(TempDir::new().unwrap(), (other, tokio::spawn(async {})), |_| {}).await
}

impl Two {
    async fn new(change: impl FnOnce(&mut RelayConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let (introduction, mut relay, mut config) = keeping_relay(folder.path(), Some(state.clone())).await;
        change(&mut config);
        relay.abort();
        let _ = (&mut relay).await;
        let relay = begin(&config).await;
        let other = another(&introduction, &config).await;
        let one = House::by(folder, (introduction, relay), |_| {}).await;
        Self { one, other, config, cache: state.join("cache") }
    }

    /// Another relay goes on with the same folder.
    async fn restart(&mut self) {
        self.one.relay.abort();
        let _ = (&mut self.one.relay).await;
        self.one.relay = begin(&self.config).await;
    }

    /// The files of entries.
    fn entries(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.cache).into_iter().flatten().flatten().map(|file| file.path());
        files.filter(|path| path.extension().is_some_and(|of| of == "entry")).collect()
    }
}

async fn begin(config: &RelayConfig) -> tokio::task::JoinHandle<()> {
    let relay = timeout(Duration::from_secs(20), async {
        loop {
            match Relay::bind(config).await {
                Ok(relay) => return relay,
                // The one before has not let go of everything yet.
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    });
    tokio::spawn(relay.await.expect("it begins").run())
}

async fn get(house: &House, origin: &Origin, path: &str, asks: &str) -> Answer {
    Answer::of(&house.says(&origin.request("GET", path, asks)).await)
}

fn is_hit(answer: &Answer) -> bool {
    answer.cache().starts_with("hoop; hit")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_devices_share_what_is_for_all_and_nothing_else() {
    let (two, origin) = (Two::new(|_| {}).await, Origin::new().await);
    let (cookie, basic) = ("Cookie: a=1", "Authorization: Basic eA==");
    for (number, (first, answer, second, is_shared, is_own)) in [
        ("", FRESH, "", true, true),
        ("", "Cache-Control: private, max-age=1000", "", false, true),
        ("", "Cache-Control: max-age=1000 | Set-Cookie: a=1", "", false, false),
        (cookie, FRESH, cookie, false, true),
        (cookie, FRESH, "Cookie: a=2", false, false),
        (cookie, FRESH, "", false, false),
        (cookie, "Cache-Control: public, max-age=1000", cookie, false, true),
        (basic, FRESH, basic, false, true),
        (basic, FRESH, "Authorization: Basic eB==", false, false),
        (basic, "Cache-Control: public, max-age=1000", basic, true, true),
        ("X-Forwarded-Host: evil.example", FRESH, "", false, false),
        ("X-HTTP-Method-Override: POST", FRESH, "", false, false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        origin.say(&path, answer);
        let given = get(&two.one, &origin, &path, first).await;
        let to_other = get(&two.other, &origin, &path, second).await;
        assert_eq!(
            (is_hit(&to_other), to_other.body == given.body),
            (is_shared, is_shared),
            "{path}: {}",
            to_other.cache()
        );
        // Its own, before the other's took its place.
        origin.say(&format!("{path}-own"), answer);
        let path = format!("{path}-own");
        let given = get(&two.one, &origin, &path, first).await;
        let again = get(&two.one, &origin, &path, second).await;
        assert_eq!((is_hit(&again), again.body == given.body), (is_own, is_own), "{path}: {}", again.cache());
    }
}

/// What a web server sends too much of one answer, a relay may take for the next one over the same connection.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_web_server_sends_too_much_is_no_answer_to_another_device() {
    const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: max-age=99999\r\n\r\nEVIL\n";
    let to = origin(|mut stream| async move {
        loop {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => asked.push(byte),
                    Err(_) => return,
                }
            }
            let asked = String::from_utf8(asked).unwrap();
            let (told, surplus) = match asked.split(' ').nth(1).unwrap() {
                "/204" => ("204 No Content\r\n\r\n", EVIL),
                "/304" => ("304 Not Modified\r\nETag: \"a\"\r\n\r\n", EVIL),
                "/short" => ("200 OK\r\nContent-Length: 2\r\n\r\nhi", EVIL),
                "/head" => ("200 OK\r\nContent-Length: 80\r\n\r\n", EVIL),
                _ => ("200 OK\r\nContent-Length: 5\r\nCache-Control: max-age=1000\r\n\r\ngood\n", ""),
            };
            let _ = stream.write_all(format!("HTTP/1.1 {told}").as_bytes()).await;
            sleep(Duration::from_millis(10)).await;
            let _ = stream.write_all(surplus.as_bytes()).await;
        }
    })
    .await;
    let two = Two::new(|_| {}).await;
    let ask = |method: &str, path: &str| {
        format!("{method} http://{to}{path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")
    };
    let mut own = 0;
    for (kind, method) in [("head", "HEAD"), ("204", "GET"), ("304", "GET"), ("short", "GET")] {
        for number in 0..8 {
            two.one.says(&ask(method, &format!("/{kind}"))).await;
            let path = format!("/{kind}-{number}");
            let is_evil = two.one.says(&ask("GET", &path)).await.ends_with("EVIL\n");
            // Of a length that is wrong nobody can know.
            assert!(!is_evil || kind == "short", "{path}, of one's own");
            own += usize::from(is_evil);
            let to_other = two.other.says(&ask("GET", &path)).await;
            assert!(to_other.ends_with("good\n"), "{path}: {to_other}");
        }
    }
    println!("{own} of 32 were wrong for the device itself");
}

/// Someone has another open a page of theirs under a name that looks as if it never changes, and then asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_one_device_is_not_kept_for_others_whatever_it_is_called() {
    let (two, origin) = (Two::new(|_| {}).await, Origin::new().await);
    for (number, answer) in
        ["Last-Modified: @-1000000 | Date: @0", "Cache-Control: public, max-age=31536000, immutable"].iter().enumerate()
    {
        let path = format!("/account/{number}.css");
        origin.say(&path, answer);
        let own = get(&two.one, &origin, &path, "Cookie: session=1").await;
        for asks in ["", "Cookie: session=2", "Cookie: session=1"] {
            let came = get(&two.other, &origin, &path, asks).await;
            assert!(!is_hit(&came) && came.body != own.body, "{path} {asks}");
        }
    }
}

/// An origin that counts, and answers once it may.
async fn waiting(answer: &'static str) -> (SocketAddr, Arc<Notify>, mpsc::UnboundedReceiver<()>, Arc<AtomicUsize>) {
    let (may, count) = (Arc::new(Notify::new()), Arc::<AtomicUsize>::default());
    let (asked, asks) = mpsc::unbounded_channel();
    let (waits, counted) = (may.clone(), count.clone());
    let address = origin(move |mut stream| {
        let (waits, counted, asked) = (waits.clone(), counted.clone(), asked.clone());
        async move {
            head(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = asked.send(());
            waits.notified().await;
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (address.await, may, asks, count)
}

fn ask(to: SocketAddr) -> String {
    format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_for_the_same_at_once_cost_one_request() {
    for answer in [
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
        // Its length is not known.
        "HTTP/1.0 200 OK\r\nCache-Control: max-age=60\r\n\r\nhello",
    ] {
        let two = Arc::new(Two::new(|_| {}).await);
        let (to, may, mut asks, count) = waiting(answer).await;
        let mut asking = JoinSet::new();
        for number in 0..40 {
            let two = two.clone();
            asking.spawn(async move {
                let house = if number % 2 == 0 { &two.one } else { &two.other };
                Answer::of(&house.says(&ask(to)).await)
            });
        }
        asks.recv().await.unwrap();
        may.notify_one();
        let answers = asking.join_all().await;
        assert!(answers.iter().all(|answer| answer.status == 200 && answer.body.contains("hello")), "{answers:?}");
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let miss = answers.iter().filter(|answer| answer.cache() == "hoop; fwd=uri-miss; stored").count();
        assert_eq!(miss, 1, "the others waited for it, or came later");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_gets_an_answer_when_the_first_has_gone() {
    let two = Two::new(|_| {}).await;
    let (to, may, mut asks, count) =
        waiting("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello").await;
    let mut first = two.one.program().await;
    first.write_all(ask(to).as_bytes()).await.unwrap();
    asks.recv().await.unwrap();
    let other = async { Answer::of(&two.other.says(&ask(to)).await) };
    let leaves = async {
        // The other has begun to wait, or asks by itself in the end: both are right, and it never waits in vain.
        sleep(Duration::from_millis(300)).await;
        first.set_zero_linger().unwrap();
        drop(first);
        sleep(Duration::from_millis(300)).await;
        may.notify_one();
    };
    let (answer, ()) = tokio::join!(other, leaves);
    assert_eq!((answer.status, answer.body.as_str(), count.load(Ordering::SeqCst)), (200, "hello", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_turns_out_to_be_for_one_alone_is_asked_for_by_each() {
    let two = Arc::new(Two::new(|_| {}).await);
    for answer in [
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nCache-Control: private, max-age=60\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nSet-Cookie: a=1\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let (to, may, mut asks, count) = waiting(answer).await;
        let (one, other) = (two.clone(), two.clone());
        let one = tokio::spawn(async move { Answer::of(&one.one.says(&ask(to)).await) });
        asks.recv().await.unwrap();
        let other = tokio::spawn(async move { Answer::of(&other.other.says(&ask(to)).await) });
        // Each is answered by a request of its own.
        may.notify_one();
        assert_eq!(one.await.unwrap().body, "hello");
        asks.recv().await.unwrap();
        may.notify_one();
        assert_eq!(other.await.unwrap().body, "hello");
        assert_eq!(count.load(Ordering::SeqCst), 2, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_survive_a_restart_and_damaged_ones_are_fetched_again() {
    let (mut two, origin) = (Two::new(|config| config.cache.memory = 0).await, Origin::new().await);
    let large: Vec<u8> = (0..3_000_000).map(|at| b'a' + (at / 7 % 26) as u8).collect();
    origin.give("/large", large.clone());
    for path in ["/small", "/large"] {
        origin.say(path, "Cache-Control: max-age=1000 | ETag: \"a\"");
        get(&two.one, &origin, path, "").await;
    }
    two.restart().await;
    for path in ["/small", "/large"] {
        let came = get(&two.other, &origin, path, "").await;
        assert!(is_hit(&came) && origin.count(path) == 1, "{path}: {}", came.cache());
        assert!(path == "/small" || came.body.as_bytes() == large);
    }
    let part = get(&two.one, &origin, "/large", "Range: bytes=2000000-2000009").await;
    assert_eq!((part.status, part.body.as_bytes()), (206, &large[2_000_000..2_000_010]));
    // In the middle of the body: it shows when it is read, and the rest comes from the origin, which gives it whole.
    let entries = two.entries();
    let of_large = entries.iter().find(|path| path.metadata().unwrap().len() > 1_000_000).unwrap();
    let mut damaged = std::fs::read(of_large).unwrap();
    damaged[1_500_000] ^= 1;
    std::fs::write(of_large, &damaged).unwrap();
    let came = get(&two.one, &origin, "/large", "").await;
    assert!(came.body.as_bytes() == large && origin.count("/large") == 2);
    // A record: it is no entry any more.
    for path in two.entries() {
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    }
    two.restart().await;
    assert!(two.entries().is_empty());
    assert!(!is_hit(&get(&two.one, &origin, "/small", "").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hit_in_memory_needs_no_disk() {
    let (two, origin) = (Two::new(|_| {}).await, Origin::new().await);
    origin.say("/", FRESH);
    let first = get(&two.one, &origin, "/", "").await;
    two.entries().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let second = get(&two.other, &origin, "/", "").await;
    assert!(is_hit(&second) && second.body == first.body);
    assert!(second.field("age").is_some_and(|age| age.parse::<u64>().is_ok()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_off_or_is_too_large_is_passed_on_and_not_kept() {
    let small = |config: &mut RelayConfig| config.cache.disk = 8 << 20;
    let (two, scripted) = (Two::new(small).await, Origin::new().await);
    // More than an eighth of it, with a length and without.
    let large = vec![b'x'; 2 << 20];
    scripted.say("/", FRESH);
    scripted.give("/", large.clone());
    for _ in 0..2 {
        let came = get(&two.one, &scripted, "/", "").await;
        assert!(came.body.as_bytes() == large && came.cache() == "hoop; fwd=uri-miss", "{}", came.cache());
    }
    assert_eq!(scripted.count("/"), 2);
    let sent = large.clone();
    let to = origin(move |mut stream| {
        let sent = sent.clone();
        async move {
            head(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nCache-Control: max-age=60\r\n\r\n").await;
            let _ = stream.write_all(&sent).await;
            let _ = stream.shutdown().await;
        }
    });
    let to = to.await;
    for _ in 0..2 {
        let mut program = two.one.program().await;
        program.write_all(format!("GET http://{to}/ HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut came = Vec::new();
        timeout(Duration::from_secs(20), program.read_to_end(&mut came)).await.expect("it ends").unwrap();
        assert!(came.ends_with(&large));
    }
    assert!(two.entries().is_empty());
    let count = Arc::<AtomicUsize>::default();
    let counted = count.clone();
    let to = origin(move |mut stream| {
        let counted = counted.clone();
        async move {
            head(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
            let half = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhalf";
            let _ = stream.write_all(half.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    let to = to.await;
    for number in 1..3 {
        let mut program = two.one.program().await;
        program.write_all(ask(to).as_bytes()).await.unwrap();
        let mut came = Vec::new();
        let ended = timeout(Duration::from_secs(20), program.read_to_end(&mut came)).await.expect("it ends");
        assert!(ended.is_err() || Answer::of(&String::from_utf8_lossy(&came)).status == 502);
        assert_eq!(count.load(Ordering::SeqCst), number);
    }
    assert!(two.entries().is_empty());
}

/// Four answers of ten bytes that announced four megabytes each had half of what others had fetched make way.
#[tokio::test(flavor = "multi_thread")]
async fn an_announced_length_has_nothing_make_way() {
    let (two, fetched) = (Two::new(|config| config.cache.disk = 32 << 20).await, Origin::new().await);
    for number in 0..12 {
        fetched.say(&format!("/{number}"), FRESH);
        fetched.give(&format!("/{number}"), vec![b'x'; 2 << 20]);
        get(&two.other, &fetched, &format!("/{number}"), "").await;
    }
    assert_eq!(two.entries().len(), 12);
    let to = origin(|mut stream| async move {
        head(&mut stream).await;
        let announced = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4000000\r\n\r\n0123456789";
        let _ = stream.write_all(announced.as_bytes()).await;
        std::future::pending::<()>().await;
    });
    let to = to.await;
    let mut programs = Vec::new();
    for number in 0..4 {
        let mut program = two.one.program().await;
        let ask = format!("GET http://{to}/{number} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        program.write_all(ask.as_bytes()).await.unwrap();
        let mut came = Vec::new();
        while !came.ends_with(b"0123456789") {
            assert!(
                timeout(Duration::from_secs(20), program.read_buf(&mut came)).await.expect("it comes").unwrap() > 0
            );
        }
        programs.push(program);
    }
    assert_eq!(two.entries().len(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_may_go_to_some_addresses_gets_nothing_that_others_fetched() {
    let (two, origin) = (Two::new(|_| {}).await, Origin::new().await);
    origin.say("/", FRESH);
    get(&two.one, &origin, "/", "").await;
    assert!(is_hit(&get(&two.other, &origin, "/", "").await));
    let devices = std::fs::read_to_string(&two.config.devices).unwrap();
    let only: String = devices
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(host, _)| host)
        .filter(|host| host.trim_matches('"').len() == 40)
        .map(|host| format!("{host} = [\"10.9.2.0/24\"]\n"))
        .collect();
    std::fs::write(&two.config.devices, format!("{devices}\n[only]\n{only}")).unwrap();
    let refused = async {
        loop {
            let came = get(&two.other, &origin, "/", "").await;
            assert!(came.status != 200 || is_hit(&came), "{came:?}");
            if came.status == 403 {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(30), refused).await.expect("it is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_and_conditions_are_answered_from_a_whole_entry() {
    let (house, origin) = (House::new().await, Origin::new().await);
    origin.say("/", "Cache-Control: max-age=1000 | ETag: \"a\" | Last-Modified: @-1000");
    origin.give("/", b"0123456789".to_vec());
    get(&house, &origin, "/", "").await;
    for (asks, status, body) in [
        ("Range: bytes=2-4", 206, "234"),
        ("Range: bytes=-2", 206, "89"),
        ("Range: bytes=20-", 416, ""),
        ("Range: bytes=2-4 | If-Range: \"b\"", 200, "0123456789"),
        ("If-None-Match: \"a\"", 304, ""),
        ("If-None-Match: \"b\"", 200, "0123456789"),
        ("If-Modified-Since: @0", 304, ""),
    ] {
        let came = get(&house, &origin, "/", asks).await;
        assert_eq!((came.status, came.body.as_str(), is_hit(&came)), (status, body, true), "{asks}: {}", came.cache());
    }
    assert_eq!(origin.count("/"), 1);
    let came = get(&house, &origin, "/", "Range: bytes=0-1,4-5").await;
    assert_eq!((came.cache(), origin.count("/")), ("hoop; fwd=request", 2));
    origin.say("/other", FRESH);
    let came = get(&house, &origin, "/other", "If-None-Match: \"x\"").await;
    assert_eq!(came.cache(), "hoop; fwd=uri-miss");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_location_on_the_same_origin_is_forgotten_with_its_uri() {
    let (house, origin) = (House::new().await, Origin::new().await);
    for path in ["/a", "/b", "/c"] {
        origin.say(path, FRESH);
        get(&house, &origin, path, "").await;
    }
    origin.say("/post", "201 | Location: a | Content-Location: http://other.example/b");
    house.says(&origin.request("POST", "/post", "")).await;
    let mut hits = Vec::new();
    for path in ["/a", "/b", "/c"] {
        hits.push(is_hit(&get(&house, &origin, path, "").await));
    }
    assert_eq!(hits, [false, true, true]);
}

/// Also while it is still being put on disk.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_is_never_given_as_it_was() {
    let (two, origin) = (Two::new(|_| {}).await, Origin::new().await);
    origin.say("/", FRESH);
    for _ in 0..100 {
        let before = get(&two.one, &origin, "/", "").await;
        two.one.says(&origin.request("POST", "/", "")).await;
        let after = get(&two.other, &origin, "/", "").await;
        assert!(!is_hit(&after) && after.body != before.body, "{}", after.cache());
        two.one.says(&origin.request("POST", "/", "")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_does_not_speak_as_the_cache() {
    let (house, origin) = (House::new().await, Origin::new().await);
    origin
        .say("/", "Cache-Control: max-age=60 | Cache-Status: CDN; hit, hoop; hit; ttl=9 | Cache-Status: \"hoop\"; hit");
    for own in ["hoop; fwd=uri-miss; stored", "hoop; hit; ttl="] {
        let came = get(&house, &origin, "/", "").await;
        let told: Vec<_> = came.head.lines().filter_map(|line| line.strip_prefix("Cache-Status: ")).collect();
        assert_eq!(told[0], "CDN; hit");
        assert!(told.len() == 2 && told[1].starts_with(own), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_long_for_an_answer_that_another_has_asked_for() {
    for begins in [false, true] {
        let two = Two::new(|_| {}).await;
        let (count, (asked, mut asks)) = (Arc::<AtomicUsize>::default(), mpsc::unbounded_channel());
        let counted = count.clone();
        let to = origin(move |mut stream| {
            let (counted, asked) = (counted.clone(), asked.clone());
            async move {
                let request = head(&mut stream).await;
                let is_first = counted.fetch_add(1, Ordering::SeqCst) == 0;
                let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
                let answer = match request.contains("Range: bytes=5-") {
                    true => format!(
                        "206 Partial Content\r\n{fields}Content-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\nworld"
                    ),
                    false => format!("200 OK\r\n{fields}Content-Length: 10\r\n\r\nhello"),
                };
                let answer =
                    format!("HTTP/1.1 {answer}{}", if is_first || answer.starts_with("206") { "" } else { "world" });
                if !is_first || begins {
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                let _ = asked.send(());
                // The first connection brings nothing more, and stays.
                let _ = stream.read(&mut [0; 100]).await;
            }
        });
        let to = to.await;
        let mut first = two.one.program().await;
        first.write_all(ask(to).as_bytes()).await.unwrap();
        asks.recv().await.unwrap();
        let answer = Answer::of(&two.other.says(&ask(to)).await);
        assert_eq!((answer.status, answer.body.as_str(), count.load(Ordering::SeqCst)), (200, "helloworld", 2));
    }
}

/// One device had all that is kept while it comes: nothing was kept for the others.
#[tokio::test]
async fn a_device_with_many_slow_answers_leaves_the_cache_to_others() {
    let two = Two::new(|_| {}).await;
    let slow = origin(|mut stream| async move {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nit begins").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let mut waiting = Vec::new();
    for number in 0..80 {
        let mut program = two.one.program().await;
        program.write_all(format!("GET http://{slow}/{number} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        head(&mut program).await;
        waiting.push(program);
    }
    let (web, _) = answering("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok").await;
    let get = format!("GET http://{web}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = two.other.says(&get).await;
    assert!(answer.contains("Cache-Status: hoop; fwd=uri-miss; stored\r\n"), "{answer}");
    let answer = two.other.says(&get).await;
    assert!(answer.contains("Cache-Status: hoop; hit"), "{answer}");
}
