//! Everything that is not the service's own passes through to the application.

use crate::fields::names;
use crate::support::upstream::{Behaviour, Upstream, answer};
use crate::support::wire::read_until;
use crate::support::{PATIENCE, Sidecar, played, wire};
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_request_passes_as_it_came_but_for_what_belongs_to_the_hop() {
    let upstream = Upstream::new(|_, _| {
        answer("418 I'm a teapot\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Down: 1\r\nKeep-Alive: timeout=5", "short")
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let fields = [
        ("Host", "photos.example:8443"),
        ("Cookie", "session=1"),
        ("Authorization", "Basic x"),
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Proto", "gopher"),
        ("X-Forwarded-Prefix", "/evil"),
        ("Forwarded", "for=203.0.113.9"),
        ("X-Real-IP", "203.0.113.9"),
        ("Connection", "close, TE, HTTP2-Settings"),
        ("TE", "trailers"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
        ("X-Twice", "1"),
        ("X-Twice", "2"),
    ];
    let reply = sidecar.send("DELETE", "/a//b/../c?d=%20&e", &fields, b"body").await;
    assert_eq!((reply.status, &reply.body[..]), (418, &b"short"[..]));
    let cookies: Vec<_> =
        reply.fields.iter().filter(|(name, _)| name == "set-cookie").map(|(_, v)| v.as_str()).collect();
    assert_eq!((cookies, reply.field("x-down")), (vec!["a=1", "b=2"], Some("1")));
    assert_eq!((reply.field("content-length"), reply.field("keep-alive")), (Some("5"), None));
    let arrival = &upstream.arrivals()[0];
    assert_eq!(arrival.line(), "DELETE /a//b/../c?d=%20&e HTTP/1.1");
    assert_eq!(arrival.body, b"body");
    for (name, expected) in [
        ("host", vec!["photos.example:8443"]),
        ("cookie", vec!["session=1"]),
        ("authorization", vec!["Basic x"]),
        ("content-length", vec!["4"]),
        ("x-forwarded-for", vec!["127.0.0.1"]),
        ("x-forwarded-proto", vec!["https"]),
        ("x-forwarded-host", vec!["photos.example:8443"]),
        ("x-forwarded-prefix", vec![]),
        ("forwarded", vec![]),
        ("x-real-ip", vec![]),
        ("te", vec![]),
        ("http2-settings", vec![]),
        ("transfer-encoding", vec![]),
        ("x-twice", vec!["1", "2"]),
    ] {
        assert_eq!(arrival.fields(name), expected, "{name}");
    }
}

/// Else each request would take one of the ports towards the application for a minute.
#[tokio::test]
async fn an_application_that_keeps_connections_alive_leaves_no_port_taken() {
    for fields in ["", "Upgrade: websocket\r\nConnection: upgrade\r\n"] {
        let (listener, sidecar) = played().await;
        let mut client = TcpStream::connect(sidecar.address).await.unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: photos.example\r\n{fields}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let (mut application, _) = listener.accept().await.unwrap();
        let head = String::from_utf8(read_until(&mut application, b"\r\n\r\n").await).unwrap().to_ascii_lowercase();
        let option = if fields.is_empty() { "close" } else { "upgrade" };
        assert!(head.contains(&format!("connection: {option}\r\n")), "{head}");
        application.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole").await.unwrap();
        read_until(&mut client, b"whole").await;
        // Who is told of an end, and not of a reset, leaves the port taken at the other end.
        let ended = tokio::time::timeout(PATIENCE, application.read(&mut [0; 1])).await.expect("it ends");
        assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        sidecar.stop().await;
    }
}

#[tokio::test]
async fn fields_that_an_answers_connection_names_go_whatever_else_it_says() {
    let fields = "200 OK\r\nConnection: \u{e9}, x-one,,X-Two\r\nX-One: 1\r\nX-Two: 1\r\nX-Three: 1";
    let upstream = Upstream::new(move |_, _| answer(fields, "")).await;
    let reply = Sidecar::before(upstream.address).await.send("GET", "/", &[("Host", "photos.example")], b"").await;
    assert_eq!(["x-one", "x-two", "x-three"].map(|name| reply.field(name)), [None, None, Some("1")]);
}

#[tokio::test]
async fn a_clients_own_forwarding_fields_are_not_believed() {
    let upstream = Upstream::new(|_, _| answer("200 OK", "")).await;
    let trusted = |config: &mut hoop_service::Config| config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    let behind = Sidecar::with(upstream.address, trusted).await;
    let direct = Sidecar::before(upstream.address).await;
    let made_up = [
        ("X-Real-IP", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6;host=evil.example"),
        ("X-Forwarded", "for=6.6.6.6"),
        ("Forwarded-For", "6.6.6.6"),
        ("Forwarded_For", "6.6.6.6"),
    ];
    let written = [&made_up[..], &[("X-Forwarded-For", "198.51.100.7")]].concat();
    behind.send("GET", "/", &written, b"").await;
    direct.send("GET", "/", &made_up, b"").await;
    for (arrival, real) in upstream.arrivals().iter().zip([vec!["198.51.100.7"], vec![]]) {
        assert_eq!(arrival.fields("x-real-ip"), real);
        for name in ["forwarded", "forwarded_for"] {
            assert_eq!(arrival.fields(name), Vec::<&str>::new(), "{name}");
        }
    }
    for name in ["x-forwarded", "forwarded-for"] {
        assert_eq!(upstream.arrivals()[1].fields(name), Vec::<&str>::new(), "{name}");
    }
}

/// Behind CGI, WSGI and PHP other spellings are the same name, and whoever clears the usual one does not clear these.
#[tokio::test]
async fn no_field_of_a_clients_making_stands_for_one_of_a_proxy() {
    let upstream = Upstream::new(|_, _| answer("200 OK", "")).await;
    let trusted = |config: &mut hoop_service::Config| config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    let behind = Sidecar::with(upstream.address, trusted).await;
    let direct = Sidecar::before(upstream.address).await;
    let never = ["Proxy", "X_Auth_User", "X.Remote.User", "Cook_ie", "HTTP_Host", "X_Forwarded_For", "~user"];
    let untrusted = [
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Original-Host",
        "X-Host",
        "X-HTTP-Host-Override",
        "True-Client-IP",
        "Client-IP",
        "X-Client-IP",
        "X-Cluster-Client-IP",
        "CF-Connecting-IP",
        "CF-Connecting-IPv6",
        "Fly-Client-IP",
        "X-Azure-ClientIP",
        "X-Forward-For",
        "X-Forwarded",
        "X-Remote-IP",
        "X-Remote-User",
        "X-Original-URI",
        "X-Override-URL",
        "X-Envoy-Original-Path",
        "X-Real-Port",
        "X-Scheme",
        "Front-End-Https",
    ];
    let sent: Vec<_> = never.iter().chain(&untrusted).chain(&["X-Album"]).map(|name| (*name, "made-up")).collect();
    behind.send("GET", "/", &sent, b"").await;
    direct.send("GET", "/", &sent, b"").await;
    let arrivals = upstream.arrivals();
    for (name, behind, direct) in never
        .iter()
        .map(|name| (name, false, false))
        .chain(untrusted.iter().map(|name| (name, true, false)))
        .chain([(&"X-Album", true, true)])
    {
        for (arrival, passes) in arrivals.iter().zip([behind, direct]) {
            let found = arrival.fields(&name.to_ascii_lowercase());
            assert_eq!(!found.is_empty(), passes, "{name}");
        }
    }
}

/// Names that stand in the table of those by which proxies speak, and that applications' pages and clients send as well.
const OF_PAGES_TOO: [&str; 22] = [
    "Cdn-Loop",
    "Es-Security-Runas-User",
    "Impersonate-Group",
    "Impersonate-User",
    "Kbn-Xsrf-User",
    "Sudo",
    "Uid",
    "X-Access-Token",
    "X-Auth-Token",
    "X-Debug-Token",
    "X-Http-Method",
    "X-Http-Method-Override",
    "X-Id-Token",
    "X-Impersonate-User",
    "X-Method-Override",
    "X-Nextjs-Data",
    "X-Plex-Username",
    "X-Redmine-Switch-User",
    "X-Scope-OrgId",
    "X-Tenant-Id",
    "X-User-Email",
    "X-User-Id",
];

/// Which of these fields reach an application in plain requests, in lower case.
async fn pass(table: &[&str], trusted: &[&str]) -> BTreeSet<String> {
    let upstream = Upstream::new(|_, _| answer("200 OK", "")).await;
    let trusted: Vec<_> = trusted.iter().map(|prefix| prefix.parse().unwrap()).collect();
    let sidecar = Sidecar::with(upstream.address, |config| config.trusted_proxies = trusted).await;
    for names in table.chunks(100) {
        let fields: Vec<_> = names.iter().map(|name| (*name, "made-up")).collect();
        assert_eq!(sidecar.send("GET", "/", &fields, b"").await.status, 200);
    }
    let heads: Vec<_> = upstream.arrivals().iter().map(|arrival| arrival.head.clone()).collect();
    let fields = heads.iter().flat_map(|head| head.lines().skip(1)).filter_map(|line| line.split_once(':'));
    fields.filter(|(_, value)| value.contains("made-up")).map(|(name, _)| name.to_ascii_lowercase()).collect()
}

#[tokio::test]
async fn without_a_front_no_plain_field_speaks_for_one() {
    let table = names(include_str!("../identity-headers.txt"));
    assert!(table.len() >= 300, "{}", table.len());
    let of_pages = |name: &str| OF_PAGES_TOO.iter().any(|one| one.eq_ignore_ascii_case(name));
    let never: Vec<_> = table.into_iter().filter(|name| !of_pages(name)).collect();
    let came: Vec<_> = pass(&never, &[]).await.into_iter().collect();
    assert_eq!(came, Vec::<String>::new());
    // Who is trusted says what it says: all but other spellings, `Proxy`, and what the service writes itself.
    let came = pass(&["X-Auth-Request-User", "X-Middleware-Subrequest", "X-Script-Name", "Via"], &["127.0.0.1"]).await;
    assert_eq!(came.len(), 4, "{came:?}");
}

#[tokio::test]
async fn what_pages_and_clients_send_passes_where_nobody_is_in_front() {
    let of_uploads = names(include_str!("../upload-headers.txt"));
    let table = [names(include_str!("../page-headers.txt")), of_uploads].concat();
    let came = pass(&table, &[]).await;
    let lost: Vec<_> = table.iter().filter(|name| !came.contains(&name.to_ascii_lowercase())).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test]
async fn no_answer_of_the_application_passes_for_the_services_own_word() {
    let fields = "Hoop-State: accepted\r\nhoop-upload-id: 00\r\nHoop-Total: 1\r\nHOOP-MISSING: \r\nHoop-Receipt: x\r\nHoop-Gateway: x\r\n\
                  Hoop-Version: 1\r\nHoop-Permit: x\r\nHoop-Of-Tomorrow: x\r\nLocation: /elsewhere\r\nX-Hoop: kept";
    let upstream = Upstream::new(move |_, _| answer(&format!("201 Created\r\n{fields}"), "{}")).await;
    let sidecar = Sidecar::before(upstream.address).await;
    for (method, path) in
        [("GET", "/"), ("POST", "/up"), ("PUT", "/offload"), ("GET", "/monitor"), ("GET", "/%68oop/post")]
    {
        let reply = sidecar.send(method, path, &[], b"").await;
        assert_eq!(
            (reply.status, reply.field("location"), reply.field("x-hoop")),
            (201, Some("/elsewhere"), Some("kept"))
        );
        let own: Vec<_> = reply.fields.iter().filter(|(name, _)| name.starts_with("hoop-")).collect();
        assert!(own.is_empty(), "{method} {path}: {own:?}");
    }
}

#[tokio::test]
async fn a_clients_malformed_chunk_is_a_400_and_its_own_fault() {
    let (listener, sidecar) = played().await;
    let mut client = TcpStream::connect(sidecar.address).await.unwrap();
    let head = "POST /up HTTP/1.1\r\nHost: photos.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut application, _) = listener.accept().await.unwrap();
    read_until(&mut application, b"abc\r\n").await;
    client.write_all(b"no length\r\n").await.unwrap();
    let mut reply = Vec::new();
    let read = tokio::time::timeout(PATIENCE, client.read_to_end(&mut reply)).await.expect("it ends in time");
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.starts_with("HTTP/1.1 400 ") && reply.contains("request-invalid"), "{read:?}: {reply}");
}

#[tokio::test]
async fn a_trusted_proxys_forwarding_fields_are_kept_and_appended_to() {
    let upstream = Upstream::willing().await;
    let sidecar =
        Sidecar::with(upstream.address, |config| config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()]).await;
    let fields =
        [("X-Forwarded-For", "198.51.100.7"), ("X-Forwarded-Proto", "http"), ("X-Forwarded-Host", "other.example")];
    sidecar.send("GET", "/", &fields, b"").await;
    let arrival = &upstream.arrivals()[0];
    assert_eq!(arrival.fields("x-forwarded-for"), ["198.51.100.7, 127.0.0.1"]);
    assert_eq!(arrival.fields("x-forwarded-proto"), ["http"]);
    assert_eq!(arrival.fields("x-forwarded-host"), ["other.example"]);
}

#[tokio::test]
async fn chunked_bodies_stay_chunked_both_ways() {
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n".to_vec();
    let upstream = Upstream::new(move |_, _| Behaviour::Answer(chunks.clone())).await;
    let sidecar = Sidecar::before(upstream.address).await;
    let reply = sidecar.send("POST", "/", &[("Transfer-Encoding", "chunked")], b"3\r\nabc\r\n0\r\n\r\n").await;
    assert_eq!((reply.field("transfer-encoding"), reply.field("content-length")), (Some("chunked"), None));
    assert!(reply.body.ends_with(b"0\r\n\r\n"));
    let arrival = &upstream.arrivals()[0];
    assert_eq!(arrival.fields("transfer-encoding"), ["chunked"]);
    assert!(arrival.fields("content-length").is_empty());
    assert_eq!(arrival.body, b"3\r\nabc\r\n0\r\n\r\n");
}

#[tokio::test]
async fn a_chunked_body_arrives_whatever_the_method() {
    let upstream = Upstream::new(|_, _| answer("200 OK", "")).await;
    let sidecar = Sidecar::before(upstream.address).await;
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "PATCH", "QUERY"] {
        let chunks = b"3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(sidecar.send(method, "/", &[("Transfer-Encoding", "chunked")], chunks).await.status, 200);
        let arrival = upstream.arrivals().pop().unwrap();
        assert_eq!(
            (arrival.fields("transfer-encoding"), &arrival.body[..]),
            (vec!["chunked"], &chunks[..]),
            "{method}"
        );
        sidecar.send(method, "/", &[], b"").await;
        let arrival = upstream.arrivals().pop().unwrap();
        assert_eq!((arrival.fields("transfer-encoding"), arrival.body.len()), (vec![], 0), "{method} without a body");
    }
}

#[tokio::test]
async fn a_client_does_not_choose_which_proxy_fields_pass() {
    let upstream = Upstream::willing().await;
    let sidecar =
        Sidecar::with(upstream.address, |config| config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()]).await;
    let proxys = [("X-Forwarded-Host", "other.example"), ("X-Auth-Role", "guest"), ("Cookie", "session=1")];
    for named in ["host", "x-auth-role", "cookie", "X-Forwarded-For", "content-type"] {
        let connection = format!("close, {named}");
        let fields: Vec<_> = proxys.into_iter().chain([("Connection", connection.as_str())]).collect();
        let refused = sidecar.send("GET", "/", &fields, b"").await;
        assert_eq!(refused.problem(), (400, "request-invalid".into()), "{named}");
    }
    assert_eq!(upstream.arrivals().len(), 0);
    assert_eq!(sidecar.send("GET", "/", &proxys, b"").await.status, 201);
    assert_eq!(upstream.arrivals()[0].fields("x-auth-role"), ["guest"]);
}

#[tokio::test]
async fn answers_without_a_body_keep_what_they_say_of_it() {
    let upstream = Upstream::new(|_, arrival| {
        Behaviour::Answer(match arrival.line().split(' ').nth(1).unwrap() {
            "/head" => b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nETag: \"x\"\r\n\r\n".to_vec(),
            "/304" => b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n".to_vec(),
            _ => b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n".to_vec(),
        })
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let head = sidecar.send("HEAD", "/head", &[], b"").await;
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("12345"), 0));
    let unchanged = sidecar.send("GET", "/304", &[("If-None-Match", "\"x\"")], b"").await;
    assert_eq!((unchanged.status, unchanged.field("etag"), unchanged.body.len()), (304, Some("\"x\""), 0));
    let nothing = sidecar.send("GET", "/204", &[], b"").await;
    assert_eq!((nothing.status, nothing.field("x"), nothing.body.len()), (204, Some("y"), 0));
    assert_eq!(nothing.field("transfer-encoding"), None);
}

/// What this end takes for the end of an answer, the client must as well.
#[tokio::test]
async fn an_answer_that_is_no_single_answer_is_a_502_or_passed_on_as_one() {
    const CHUNKS: &str = "A\r\n0123456789\r\n0\r\n\r\n";
    for (method, head, body, expected) in [
        ("GET", "200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", CHUNKS, Some(CHUNKS)),
        ("GET", "200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", CHUNKS, Some(CHUNKS)),
        ("GET", "200 OK\r\nContent-Length: 2\r\nContent-Length: 2", "hi", Some("hi")),
        ("GET", "200 OK\r\nTransfer-Encoding: gzip, chunked", CHUNKS, None),
        ("GET", "200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked", CHUNKS, None),
        ("GET", "200 OK\r\nTransfer-Encoding: gzip", "hi", None),
        ("HEAD", "200 OK\r\nContent-Length: 2\r\nContent-Length: 3", "", None),
        ("GET", "599 Last\r\nContent-Length: 2", "hi", Some("hi")),
        ("GET", "600 What\r\nContent-Length: 2", "hi", None),
        ("GET", "999 What\r\nContent-Length: 2", "hi", None),
    ] {
        let upstream =
            Upstream::new(move |_, _| Behaviour::Answer(format!("HTTP/1.1 {head}\r\n\r\n{body}").into_bytes())).await;
        let sidecar = Sidecar::before(upstream.address).await;
        let reply = sidecar.send(method, "/", &[], b"").await;
        match expected {
            Some(body) => assert_eq!(
                (reply.status.to_string().as_str(), &reply.body[..]),
                (&head[..3], body.as_bytes()),
                "{head}"
            ),
            None if method == "HEAD" => assert_eq!(reply.status, 502, "{head}"),
            None => assert_eq!(reply.problem(), (502, "upstream-broken".into()), "{head}"),
        }
    }
}

#[tokio::test]
async fn an_application_that_is_down_or_hangs_up_is_a_502() {
    let upstream = Upstream::new(|_, _| Behaviour::TakeAndClose).await;
    let sidecar = Sidecar::before(upstream.address).await;
    assert_eq!(sidecar.send("GET", "/", &[], b"").await.problem(), (502, "upstream-broken".into()));
    let (listener, sidecar) = played().await;
    drop(listener);
    assert_eq!(sidecar.send("GET", "/", &[], b"").await.problem(), (502, "upstream-unreachable".into()));
    let own = sidecar.send("GET", "/.well-known/hoop", &[], b"").await;
    assert_eq!(own.status, 200, "what is the service's own does not need it");
}

#[tokio::test]
async fn a_websocket_passes_in_both_directions() {
    let (listener, sidecar) = played().await;
    let mut client = TcpStream::connect(sidecar.address).await.unwrap();
    let fields =
        [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "x3JJHMbDL1EzLkh9GBhXDw==")];
    client.write_all(&wire::request("GET", "/socket", &fields, b"")).await.unwrap();
    let (mut application, _) = listener.accept().await.unwrap();
    let head = String::from_utf8(read_until(&mut application, b"\r\n\r\n").await).unwrap().to_ascii_lowercase();
    assert!(head.contains("connection: upgrade\r\n") && head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-key: x3jjhmbdl1ezlkh9gbhxdw==\r\n"), "{head}");
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\nfirst";
    application.write_all(switch.as_bytes()).await.unwrap();
    let reply = read_until(&mut client, b"first").await;
    let reply = String::from_utf8(reply).unwrap().to_ascii_lowercase();
    assert!(reply.starts_with("http/1.1 101") && reply.contains("upgrade: websocket\r\n"), "{reply}");
    assert!(reply.contains("sec-websocket-accept: y\r\n"), "{reply}");
    for n in 0..3 {
        client.write_all(&[n; 70_000]).await.unwrap();
        let mut got = vec![9; 70_000];
        application.read_exact(&mut got).await.unwrap();
        application.write_all(&got).await.unwrap();
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(got, [n; 70_000]);
    }
    drop(application);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "one end closes, so does the other");
    sidecar.stop().await;
}

#[tokio::test]
async fn an_answer_streams_as_it_comes() {
    let (listener, sidecar) = played().await;
    let mut client = TcpStream::connect(sidecar.address).await.unwrap();
    client.write_all(&wire::request("GET", "/events", &[], b"")).await.unwrap();
    let (mut application, _) = listener.accept().await.unwrap();
    read_until(&mut application, b"\r\n\r\n").await;
    application.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await.unwrap();
    for n in 0..3 {
        let event = format!("data: {n}\n\n");
        application.write_all(event.as_bytes()).await.unwrap();
        // The next is written only once this one has come.
        read_until(&mut client, event.as_bytes()).await;
    }
}

#[tokio::test]
async fn when_the_client_goes_away_the_applications_connection_ends() {
    for answered in [false, true] {
        let (listener, sidecar) = played().await;
        let mut client = TcpStream::connect(sidecar.address).await.unwrap();
        client.write_all(&wire::request("GET", "/slow", &[], b"")).await.unwrap();
        let (mut application, _) = listener.accept().await.unwrap();
        read_until(&mut application, b"\r\n\r\n").await;
        if answered {
            application.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegin").await.unwrap();
            read_until(&mut client, b"begin").await;
        }
        drop(client);
        let ended = tokio::time::timeout(PATIENCE, application.read(&mut [0])).await.expect("it ends in time");
        assert!(matches!(ended, Ok(0) | Err(_)), "answered: {answered}");
    }
}

#[tokio::test]
async fn a_client_that_waits_for_leave_gets_it_once_the_application_listens() {
    let (listener, sidecar) = played().await;
    let mut client = TcpStream::connect(sidecar.address).await.unwrap();
    let head = "POST /up HTTP/1.1\r\nHost: photos.example\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut application, _) = listener.accept().await.unwrap();
    let seen = read_until(&mut application, b"\r\n\r\n").await;
    assert!(!String::from_utf8(seen).unwrap().to_ascii_lowercase().contains("expect:"));
    assert_eq!(read_until(&mut client, b"\r\n\r\n").await, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").await.unwrap();
    assert_eq!(read_until(&mut application, b"hello").await, b"hello");
    application.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert!(read_until(&mut client, b"\r\n\r\n").await.starts_with(b"HTTP/1.1 204"));
}

#[tokio::test]
async fn short_chunks_reach_the_application_joined() {
    let (listener, sidecar) = played().await;
    let mut client = TcpStream::connect(sidecar.address).await.unwrap();
    let head = "POST /up HTTP/1.1\r\nHost: photos.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_all(&[head.as_bytes(), &b"1\r\nx\r\n".repeat(20_000), b"0\r\n\r\n"].concat()).await.unwrap();
    let (mut application, _) = listener.accept().await.unwrap();
    let came = read_until(&mut application, b"\r\n0\r\n\r\n").await;
    let body = &came[came.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4..];
    assert_eq!(body.iter().filter(|byte| **byte == b'x').count(), 20_000);
    let chunks = body.iter().filter(|byte| **byte == b'\n').count() / 2;
    assert!(chunks < 2_000, "{chunks} chunks");
}
