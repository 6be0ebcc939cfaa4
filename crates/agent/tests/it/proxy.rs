//! Programs' connections through an agent and a relay, over real sockets on loopback. The origins are ours, and look at what comes to them.

use crate::house::{House, answering, breaking, echo, head, origin, relay};
use hoop_agent::{Agent, AgentConfig};
use hoop_relay::NetworkPath;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

#[tokio::test]
async fn a_tunnel_carries_both_ways_and_ends_as_the_program_does() {
    let house = House::new().await;
    let to = echo().await;
    for name in [to.to_string(), format!("localhost:{}", to.port())] {
        let mut program = house.tunnel(&name).await;
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
        let (mut read, mut write) = program.split();
        let sent = async {
            write.write_all(&bytes).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut back = Vec::new();
        let (_, came) = tokio::join!(sent, read.read_to_end(&mut back));
        came.unwrap();
        assert!(back == bytes, "{} bytes came back", back.len());
    }
}

#[tokio::test]
async fn socks_carries_the_same_by_address_and_by_name() {
    let house = House::new().await;
    let port = echo().await.port().to_be_bytes();
    let by_address = [&[5, 1, 0, 1, 127, 0, 0, 1][..], &port].concat();
    let by_name = [&[5, 1, 0, 3, 9][..], b"localhost", &port].concat();
    for request in [by_address, by_name] {
        let mut program = house.program().await;
        program.write_all(&[5, 1, 0]).await.unwrap();
        program.write_all(&request).await.unwrap();
        let mut answer = [0; 12];
        program.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        program.write_all(b"hello").await.unwrap();
        let mut back = [0; 5];
        program.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"hello");
    }
}

#[tokio::test]
async fn a_request_is_passed_on_without_the_fields_of_the_hop() {
    let house = House::new().await;
    let (to, asked) =
        answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\nhi")
            .await;
    let answer = house
        .says(&format!(
            "GET http://{to}/a?b HTTP/1.1\r\nHost: elsewhere.example\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\n\
             Connection: close, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nX-Kept: 3\r\n\r\n"
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhi"), "{answer}");
    assert!(answer.to_lowercase().contains("x-end: 2\r\n") && !answer.to_lowercase().contains("x-hop"), "{answer}");
    assert!(answer.to_lowercase().contains("via: 1.1 hoop\r\n"), "{answer}");
    let asked = asked.lock().unwrap().concat();
    assert!(asked.starts_with("GET /a?b HTTP/1.1\r\n"), "{asked}");
    let fields = asked.to_lowercase();
    assert!(fields.contains(&format!("host: {to}\r\n")) && fields.contains("x-kept: 3\r\n"), "{asked}");
    assert!(fields.contains("via: 1.1 hoop\r\n"), "{asked}");
    for gone in ["elsewhere", "proxy-", "x-mine", "te:"] {
        assert!(!fields.contains(gone), "{gone}: {asked}");
    }
}

#[tokio::test]
async fn exchanges_on_one_connection_are_flows_of_their_own() {
    let house = House::new().await;
    let (to, asked) = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await;
    let mut program = house.program().await;
    for _ in 0..3 {
        program.write_all(format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await.unwrap();
        let head = head(&mut program).await;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        let mut body = [0; 2];
        program.read_exact(&mut body).await.unwrap();
    }
    assert_eq!(asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_body_is_passed_on_as_it_comes() {
    let house = House::new().await;
    let to = origin(|mut stream| async move {
        let request = head(&mut stream).await;
        assert!(request.to_lowercase().contains("transfer-encoding: chunked\r\n"), "{request}");
        let mut body = Vec::new();
        while !body.ends_with(b"0\r\n\r\n") {
            body.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n").await.unwrap();
    })
    .await;
    let mut program = house.program().await;
    let request = format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nTransfer-Encoding: chunked\r\n\r\n");
    program.write_all(request.as_bytes()).await.unwrap();
    for piece in ["3\r\nabc\r\n", "0\r\n\r\n"] {
        tokio::time::sleep(Duration::from_millis(20)).await;
        program.write_all(piece.as_bytes()).await.unwrap();
    }
    let head = head(&mut program).await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
}

#[tokio::test]
async fn an_upgrade_goes_through() {
    let house = House::new().await;
    let to = origin(|mut stream| async move {
        let request = head(&mut stream).await.to_lowercase();
        assert!(request.contains("upgrade: websocket\r\n") && request.contains("connection: upgrade\r\n"), "{request}");
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let mut program = house.program().await;
    let request =
        format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    program.write_all(request.as_bytes()).await.unwrap();
    let head = head(&mut program).await.to_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: websocket\r\n"), "{head}");
    program.write_all(b"and back").await.unwrap();
    let mut came = [0; 13];
    program.read_exact(&mut came).await.unwrap();
    assert_eq!(&came, b"firstand back");
}

#[tokio::test]
async fn why_there_is_no_connection_is_said_in_each_protocol() {
    let house = House::with(|config| config.waits = true).await;
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for (to, status, error, reply) in [
        (nobody.to_string(), "502 ", "connection_refused", 5),
        ("10.0.0.1:80".to_owned(), "403 ", "destination_ip_prohibited", 2),
        ("no.such.name.invalid:80".to_owned(), "502 ", "dns_error", 4),
    ] {
        for request in [
            format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n"),
            format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n"),
        ] {
            let answer = house.says(&request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            assert!(answer.contains(&format!("Proxy-Status: hoop; error={error}\r\n")), "{answer}");
            assert!(answer.contains(&format!("hoop agent: {to}: ")), "{answer}");
        }
        let (host, port) = to.rsplit_once(':').unwrap();
        let port = port.parse::<u16>().unwrap().to_be_bytes();
        let request = [&[5, 1, 0, 5, 1, 0, 3, host.len() as u8], host.as_bytes(), &port].concat();
        let mut program = house.program().await;
        program.write_all(&request).await.unwrap();
        let mut answer = Vec::new();
        program.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer[..4], [5, 0, 5, reply], "{to}");
    }
    let told = house.told.lock().unwrap().clone();
    assert!(told.iter().any(|words| words.starts_with("10.0.0.1:80: the relay does not go there")), "{told:?}");
}

#[tokio::test]
async fn what_is_no_request_for_a_proxy_is_refused() {
    let house = House::new().await;
    for (request, status) in [
        ("GET https://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n", "501 "),
        ("GET ftp://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n", "400 "),
        ("GET http://user:word@127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n", "400 "),
        ("GET http://127.1/ HTTP/1.1\r\nHost: x\r\n\r\n", "400 "),
        ("TRACE http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n", "501 "),
        ("CONNECT 127.0.0.1 HTTP/1.1\r\nHost: x\r\n\r\n", "400 "),
        ("CONNECT 127.0.0.1:0 HTTP/1.1\r\nHost: x\r\n\r\n", "400 "),
        ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "421 "),
        ("nonsense\r\n\r\n", "400 "),
    ] {
        let answer = house.says(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
    }
}

#[tokio::test]
async fn only_this_machine_by_its_own_name_is_told_what_is_carried() {
    let house = House::new().await;
    let port = house.agent.port();
    let asks = async |target: &str, host: &str| {
        house.says(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
    };
    let _carried = house.tunnel(&echo().await.to_string()).await;
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        let status = asks("/status.json", &host).await;
        let (_, json) = status.split_once("\r\n\r\n").unwrap();
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        assert!(json["relay"].as_str().unwrap().starts_with("localhost:"), "{json}");
        assert_eq!(
            (json["connections"].as_array().unwrap().len(), &json["not_reached_secs"]),
            (1, &serde_json::Value::Null)
        );
        assert!(asks("/", &host).await.contains("hoop agent at 127.0.0.1:"));
        let pac = asks("/proxy.pac", &host).await;
        assert!(
            pac.contains("application/x-ns-proxy-autoconfig") && pac.contains(&format!("PROXY 127.0.0.1:{port}")),
            "{pac}"
        );
    }
    // As a program asks that has the agent as its proxy.
    let own = format!("http://127.0.0.1:{port}/status.json");
    assert!(asks(&own, &format!("127.0.0.1:{port}")).await.contains("\"relay\""));
    for host in ["attacker.example".to_owned(), format!("attacker.example:{port}"), "127.0.0.1:1".to_owned()] {
        assert!(asks("/status.json", &host).await.starts_with("HTTP/1.1 421 "), "{host}");
    }
}

#[tokio::test]
async fn what_breaks_off_is_a_reset_for_the_program() {
    let house = House::new().await;
    let to = breaking().await;
    // A tunnel, and a request of HTTP/1.0, whose answer's end is that of the connection.
    let mut tunnel = house.tunnel(&to.to_string()).await;
    tunnel.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut request = house.program().await;
    request.write_all(format!("GET http://{to}/ HTTP/1.0\r\nHost: {to}\r\n\r\n").as_bytes()).await.unwrap();
    for mut program in [tunnel, request] {
        let mut answer = Vec::new();
        let ended = timeout(Duration::from_secs(20), program.read_to_end(&mut answer)).await.expect("it ends");
        assert!(answer.ends_with(b"half"), "{answer:?}");
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
    let stopped = house.tunnel(&echo().await.to_string()).await;
    let House { stop, running, .. } = house;
    drop(stop);
    timeout(Duration::from_secs(20), running).await.expect("it stops").unwrap();
    let mut stopped = stopped;
    assert_eq!(stopped.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

/// How many connections the agent carries.
async fn carried(house: &House) -> usize {
    let request = format!("GET /status.json HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", house.agent);
    let status = house.says(&request).await;
    let json: serde_json::Value = serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap();
    json["connections"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_program_that_has_gone_leaves_no_flow_behind() {
    let house = House::new().await;
    let to = origin(|mut stream| async move {
        while stream.read(&mut [0; 1_024]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let requests = [
        format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n"),
        format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("CONNECT localhost:{} HTTP/1.1\r\nHost: {to}\r\n\r\n", to.port()),
    ];
    for is_reset in [true, false] {
        for (at, request) in requests.iter().enumerate() {
            let mut program = house.program().await;
            program.write_all(request.as_bytes()).await.unwrap();
            if at == 2 {
                head(&mut program).await;
                program.write_all(b"hello").await.unwrap();
            }
            let begins = async {
                while carried(&house).await == 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(Duration::from_secs(40), begins).await.unwrap_or_else(|_| panic!("{is_reset} {request}"));
            if is_reset {
                program.set_zero_linger().unwrap();
            }
            drop(program);
            nothing_is_left(&house).await;
        }
    }
}

#[tokio::test]
async fn a_program_that_leaves_another_protocol_leaves_no_flow_behind() {
    let house = House::new().await;
    let (broken, mut is_broken) = tokio::sync::mpsc::channel(1);
    let to = origin(move |mut stream| {
        let broken = broken.clone();
        async move {
            head(&mut stream).await;
            let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
            while stream.write_all(b"on and on").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            broken.send(()).await.unwrap();
        }
    })
    .await;
    let mut program = house.program().await;
    let request =
        format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    program.write_all(request.as_bytes()).await.unwrap();
    assert!(head(&mut program).await.starts_with("HTTP/1.1 101"));
    program.read_exact(&mut [0; 9]).await.unwrap();
    assert_eq!(carried(&house).await, 1, "it is listed");
    program.shutdown().await.unwrap();
    program.read_exact(&mut [0; 9]).await.unwrap();
    drop(program);
    timeout(Duration::from_secs(40), is_broken.recv()).await.expect("the origin hears of it").unwrap();
    assert_eq!(carried(&house).await, 0);
}

#[tokio::test]
async fn an_answer_that_its_program_leaves_ends_at_its_origin() {
    let house = House::new().await;
    let (broken, mut is_broken) = tokio::sync::mpsc::channel(1);
    let to = origin(move |mut stream| {
        let broken = broken.clone();
        async move {
            head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n").await.unwrap();
            while stream.write_all(&[1; 10_000]).await.is_ok() {}
            broken.send(()).await.unwrap();
        }
    })
    .await;
    // By an exchange, and over a connection. What ends it may come in any order.
    for request in [
        format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n"),
        format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ] {
        for _ in 0..10 {
            let mut program = house.program().await;
            program.write_all(request.as_bytes()).await.unwrap();
            program.read_exact(&mut [0; 100_000]).await.unwrap();
            drop(program);
            timeout(Duration::from_secs(40), is_broken.recv()).await.expect("the origin hears of it").unwrap();
        }
    }
}

/// Nothing is carried any more.
async fn nothing_is_left(house: &House) {
    let ends = async {
        while carried(house).await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(40), ends).await.expect("nothing is left");
}

#[tokio::test]
async fn a_tunnel_that_breaks_off_after_its_program_has_gone_leaves_no_flow_behind() {
    let house = House::new().await;
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for _ in 0..40 {
        // By a name, a program begins before the relay has connected.
        let mut program = house.tunnel(&format!("localhost:{}", nobody.port())).await;
        let _ = program.write_all(&vec![1; 1_000_000]).await;
    }
    nothing_is_left(&house).await;
}

#[tokio::test]
async fn a_program_that_has_gone_is_missed_though_nobody_reads_what_it_wrote() {
    let house = House::new().await;
    let to = origin(|stream| async move {
        let _held = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let mut program = house.program().await;
    let request = format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 100000000\r\n\r\n");
    program.write_all(request.as_bytes()).await.unwrap();
    let all = timeout(Duration::from_secs(2), program.write_all(&vec![1; 100_000_000])).await;
    assert!(all.is_err(), "nobody reads it");
    assert_eq!(carried(&house).await, 1);
    drop(program);
    nothing_is_left(&house).await;
}

#[tokio::test]
async fn a_program_that_has_said_all_still_gets_its_answer() {
    let house = House::new().await;
    let to = origin(|mut stream| async move {
        let _ = stream.read(&mut [0; 1_024]).await;
        // Meanwhile it is looked whether the program is there.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await;
    })
    .await;
    let get = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let tunnel = async {
        let mut program = house.tunnel(&to.to_string()).await;
        program.write_all(b"x").await.unwrap();
        program.shutdown().await.unwrap();
        let mut answer = String::new();
        program.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let (answer, carried) = tokio::join!(house.says(&get), tunnel);
    assert!(answer.ends_with("\r\n\r\nhi") && carried.ends_with("\r\n\r\nhi"), "{answer} {carried}");
}

#[tokio::test]
async fn without_a_relay_programs_wait_or_are_told_after_a_while() {
    let house = House::with(|config| config.give_up_after = Some(Duration::from_millis(700))).await;
    house.relay.abort();
    let answer = house.says("CONNECT 192.0.2.1:80 HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("destination_unavailable"), "{answer}");
    let answer = house.says("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    let status = house.says(&format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", house.agent)).await;
    assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
}

/// Uploads waited one after the other, each for as long as one may.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_relay_uploads_are_told_at_the_same_time() {
    let house = Arc::new(House::with(|config| config.give_up_after = Some(Duration::from_millis(700))).await);
    house.relay.abort();
    let post = async |house: Arc<House>| {
        let post = "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n\r\nx";
        let answer = house.says(post).await;
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    };
    // Sixty in a row would take longer than any of them is waited for.
    let mut posts = JoinSet::new();
    (0..60).for_each(|_| drop(posts.spawn(post(house.clone()))));
    assert_eq!(posts.join_all().await.len(), 60);
}

#[tokio::test]
async fn it_listens_for_this_machine_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (introduction, _relay) = relay(folder.path()).await;
    let config = AgentConfig {
        listen: "0.0.0.0:0".parse().unwrap(),
        introduction,
        ways: vec![NetworkPath::any()],
        give_up_after: None,
        waits: false,
        entrusted: vec![],
        authority: None,
        ca: vec![],
        users: vec![],
        patient: None,
        runs: None,
        tun: None,
    };
    let error = Agent::bind(&config, |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("0.0.0.0:0: it is for this machine alone"), "{error}");
}
