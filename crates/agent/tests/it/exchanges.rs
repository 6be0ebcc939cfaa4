//! Requests that the relay makes for a device, to origins that do as they should and to those that do not.

use crate::house::{House, head, odd_relay, old_relay, origin};
use hoop_relay::exchange;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// An origin that answers as many requests as come over a connection. It tells how many connections there were, and how many requests.
async fn keeping() -> (SocketAddr, Arc<[AtomicUsize; 2]>) {
    let counts = Arc::<[AtomicUsize; 2]>::default();
    let counted = counts.clone();
    let address = origin(move |mut stream| {
        counted[0].fetch_add(1, Ordering::SeqCst);
        let counted = counted.clone();
        async move {
            loop {
                let request = head(&mut stream).await;
                counted[1].fetch_add(1, Ordering::SeqCst);
                let length =
                    request.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                stream.read_exact(&mut vec![0; length.unwrap_or(0)]).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
            }
        }
    });
    (address.await, counts)
}

pub fn get(to: SocketAddr) -> String {
    format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")
}

fn post(to: SocketAddr) -> String {
    format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
}

/// A request whose body has no length, so that it goes over a connection.
pub fn chunked(method: &str, to: SocketAddr) -> String {
    format!(
        "{method} http://{to}/ HTTP/1.1\r\nHost: {to}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
}

/// An origin that answers so, and then closes.
pub async fn saying(answer: Vec<u8>) -> SocketAddr {
    origin(move |mut stream| {
        let answer = answer.clone();
        async move {
            head(&mut stream).await;
            let _ = stream.write_all(&answer).await;
            let _ = stream.shutdown().await;
            // Closed with something unread, what was written would be lost.
            let _ = stream.read(&mut [0; 1_024]).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_kept_connection_takes_what_may_be_sent_twice_and_no_other_request() {
    let house = House::new().await;
    let (to, counts) = keeping().await;
    for _ in 0..3 {
        assert!(house.says(&get(to)).await.ends_with("\r\n\r\nhi"));
    }
    let count = |which: usize| counts[which].load(Ordering::SeqCst);
    assert_eq!([count(0), count(1)], [1, 3]);
    for _ in 0..2 {
        assert!(house.says(&post(to)).await.ends_with("\r\n\r\nhi"));
    }
    assert_eq!([count(0), count(1)], [3, 5]);
}

#[tokio::test]
async fn a_request_with_a_long_head_goes_over_a_connection() {
    let house = House::new().await;
    let (to, counts) = keeping().await;
    for (bytes, connections) in [(1, 1), (60 << 10, 1), (200 << 10, 2)] {
        // Plain: its Huffman code is longer.
        let cookie = "~".repeat(bytes);
        let request =
            format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
        assert!(house.says(&request).await.ends_with("\r\n\r\nhi"), "{bytes}");
        assert_eq!(counts[0].load(Ordering::SeqCst), connections, "{bytes}");
    }
}

#[tokio::test]
async fn an_older_relay_is_asked_once_and_then_carries_connections() {
    let folder = tempfile::tempdir().unwrap();
    let (introduction, relay, asked) = old_relay(folder.path()).await;
    let house = House::by(folder, (introduction, relay), |_| {}).await;
    let (to, _) = keeping().await;
    for request in [post(to), get(to), get(to), post(to)] {
        assert!(house.says(&request).await.ends_with("\r\n\r\nhi"), "{request}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2, "for an upload, and for an exchange");
}

#[tokio::test]
async fn a_connection_that_the_origin_has_closed_costs_no_request() {
    let house = House::new().await;
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    // It takes a second request, and closes without an answer.
    let to = origin(move |mut stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
            head(&mut stream).await;
        }
    })
    .await;
    for _ in 0..3 {
        assert!(house.says(&get(to)).await.ends_with("\r\n\r\nhi"));
    }
    assert!(connections.load(Ordering::SeqCst) >= 2);
}

#[tokio::test]
async fn an_upload_arrives_whole_with_and_without_a_length() {
    let house = House::new().await;
    let (to, _) = keeping().await;
    assert!(house.says(&get(to)).await.ends_with("hi"), "the relay is known to make requests");
    let (bodies, mut came) = mpsc::unbounded_channel();
    let origin = origin(move |mut stream| {
        let bodies = bodies.clone();
        async move {
            let request = head(&mut stream).await.to_lowercase();
            let is_chunked = request.contains("transfer-encoding: chunked\r\n");
            assert_ne!(is_chunked, request.contains("content-length: "), "{request}");
            let (mut body, end) = (Vec::new(), if is_chunked { &b"0\r\n\r\n"[..] } else { b"abc" });
            while !body.ends_with(end) {
                body.push(stream.read_u8().await.unwrap());
            }
            bodies.send(body).unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        }
    })
    .await;
    assert!(house.says(&post(origin)).await.starts_with("HTTP/1.1 204 "));
    assert_eq!(came.recv().await.unwrap(), b"abc");
    for method in ["POST", "GET"] {
        assert!(house.says(&chunked(method, origin)).await.starts_with("HTTP/1.1 204 "), "{method}");
        assert_eq!(came.recv().await.unwrap(), b"3\r\nabc\r\n0\r\n\r\n", "{method}");
    }
}

#[tokio::test]
async fn an_answer_without_a_body_has_none_whatever_its_head_says() {
    let house = House::new().await;
    for (method, status) in [("HEAD", "200 OK"), ("GET", "304 Not Modified"), ("GET", "204 No Content")] {
        let length = if status.starts_with("204") { "" } else { "Content-Length: 7\r\n" };
        let to = saying(format!("HTTP/1.1 {status}\r\n{length}ETag: \"a\"\r\n\r\n").into_bytes()).await;
        let request = format!("{method} http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
        let answer = house.says(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")) && answer.ends_with("\r\n\r\n"), "{answer}");
        assert!(answer.contains("Etag: \"a\"\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_to_head_says_one_length_or_is_refused() {
    let house = House::new().await;
    for (lengths, is_one) in [(["7", "7"], true), (["7", "8"], false), (["7, 8", "7"], false)] {
        let [first, second] = lengths;
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {first}\r\nContent-Length: {second}\r\n\r\n");
        let to = saying(answer.into_bytes()).await;
        // The second goes over a connection.
        for request in [get(to).replacen("GET", "HEAD", 1), chunked("HEAD", to)] {
            let came = house.says(&request).await;
            match is_one {
                true => {
                    assert!(came.starts_with("HTTP/1.1 200 ") && came.ends_with("\r\n\r\n"), "{came}");
                    assert_eq!(came.matches("Content-Length: 7\r\n").count(), 1, "{came}");
                }
                false => assert!(came.starts_with("HTTP/1.1 502 "), "{request}{lengths:?}: {came}"),
            }
        }
    }
}

#[tokio::test]
async fn an_origin_does_not_speak_as_the_agent() {
    let house = House::new().await;
    let spoken = [
        "hoop; error=dns_error",
        "a, hoop",
        "a,\thoop;error=x",
        "\"hoop\"; error=x",
        "a; details=\"b\\\"\", \"hoop\" ; error=x",
        "a,\t\t\"hoop\"",
        "\"h\\oop\"; error=x",
        "\"hoop; error=x",
        "HOOP; error=x",
        "(hoop); error=x",
        "( \"Hoop\" a); error=x",
    ];
    let of_others = ["hooper; error=x", "\"hooper\"; error=x", "a; details=\"hoop\"", "\"a hoop\""];
    let fields: String = spoken.iter().chain(&of_others).map(|value| format!("Proxy-Status: {value}\r\n")).collect();
    let answer = format!(
        "HTTP/1.1 200 All is well\r\n{fields}Proxy-Authentication-Info: nextnonce=\"x\"\r\nContent-Length: 2\r\n\r\nhi"
    );
    let to = saying(answer.into()).await;
    for request in [get(to), chunked("POST", to)] {
        let came = house.says(&request).await;
        assert!(came.starts_with("HTTP/1.1 200 OK\r\n") && came.ends_with("\r\n\r\nhi"), "{came}");
        let told: Vec<_> = came.lines().filter_map(|line| line.strip_prefix("Proxy-Status: ")).collect();
        assert_eq!(told, of_others, "{came}");
        assert!(!came.contains("nextnonce"), "{came}");
    }
}

/// A relay takes them out of what web servers say.
#[tokio::test]
async fn a_relay_does_not_speak_as_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let introduced = odd_relay(folder.path(), |flow| {
        tokio::spawn(async move {
            let (mut reader, mut writer) = flow.into_split();
            let _ = exchange::read_head(&mut reader).await;
            let spoken = [
                ("proxy-authenticate", "Basic realm=\"x\""),
                ("proxy-authentication-info", "nextnonce=\"x\""),
                ("proxy-status", "hoop; error=x"),
                ("trailer", "x"),
                ("content-length", "2"),
                ("x-kept", "y"),
            ];
            let fields =
                spoken.into_iter().fold(http::Response::builder(), |head, (name, value)| head.header(name, value));
            let mut section = Vec::new();
            hoop_head::encode_response(&fields.body(()).unwrap().into_parts().0, &mut section).unwrap();
            exchange::put(&section, &mut writer).await.unwrap();
            writer.write_all(b"hi").await.unwrap();
            writer.shutdown().await.unwrap();
            let _ = writer.finished().await;
        });
    })
    .await;
    let house = House::by(folder, introduced, |_| {}).await;
    let came = house.says("GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n").await;
    let (head, body) = came.split_once("\r\n\r\n").unwrap();
    let fields: Vec<_> = head.lines().skip(1).map(|line| line.split_once(": ").unwrap()).collect();
    let others = fields.iter().filter(|(name, _)| !["Date", "Connection", "Content-Length"].contains(name));
    assert_eq!(others.collect::<Vec<_>>(), [&("X-Kept", "y")], "{came}");
    assert_eq!(body, "hi");
}

/// A crowd of them would keep the relay's cores from all devices.
#[tokio::test]
async fn an_origin_that_sends_interim_answers_without_end_is_broken_off() {
    let house = House::new().await;
    let big = format!("HTTP/1.1 103 X\r\n{}\r\n", "a: b\r\n".repeat(200));
    for interim in ["HTTP/1.1 103 X\r\n\r\n", &big] {
        let (ended, mut ends) = mpsc::unbounded_channel();
        let many = interim.repeat((128 << 10) / interim.len());
        let to = origin(move |mut stream| {
            let (many, ended) = (many.clone(), ended.clone());
            async move {
                head(&mut stream).await;
                // Bounded, so that a relay that passes over them all ends as well.
                for _ in 0..2_000 {
                    if stream.write_all(many.as_bytes()).await.is_err() {
                        return ended.send(()).unwrap();
                    }
                }
            }
        })
        .await;
        let chunked = format!(
            "POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"
        );
        // Over a connection that may be kept, over one that is not, and over a flow.
        for request in [get(to), post(to), chunked] {
            let answer = house.says(&request).await;
            assert!(answer.starts_with("HTTP/1.1 502 ") && !answer.contains("103 X"), "{answer}");
            timeout(Duration::from_secs(20), ends.recv()).await.expect("the origin's connection ends").unwrap();
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_short_is_never_taken_for_a_whole_one() {
    let house = House::new().await;
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhalf",
    ] {
        let to = saying(answer.as_bytes().to_vec()).await;
        let mut program = house.program().await;
        program.write_all(get(to).as_bytes()).await.unwrap();
        let mut came = Vec::new();
        let ended = timeout(Duration::from_secs(20), program.read_to_end(&mut came)).await.expect("it ends");
        // A reset may overtake what came before it: the answer is then that there is none.
        let is_refused = came.starts_with(b"HTTP/1.1 502 ");
        assert!(is_refused || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), "{answer}");
    }
}

#[tokio::test]
async fn who_goes_ends_the_answer_at_its_origin() {
    let house = House::new().await;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let to = origin(move |mut stream| {
        let ended = ended.clone();
        async move {
            head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            while stream.write_all(&[0; 16 << 10]).await.is_ok() {}
            ended.send(()).unwrap();
        }
    })
    .await;
    let mut program: TcpStream = house.program().await;
    program.write_all(get(to).as_bytes()).await.unwrap();
    head(&mut program).await;
    drop(program);
    timeout(Duration::from_secs(20), ends.recv()).await.expect("the origin's connection ends").unwrap();
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_is_whole() {
    let house = House::new().await;
    let (to, _) = keeping().await;
    assert!(house.says(&get(to)).await.ends_with("hi"));
    let to = saying(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch".to_vec()).await;
    let mut program = house.program().await;
    let request = format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 1000000\r\n\r\nsome");
    program.write_all(request.as_bytes()).await.unwrap();
    let answer = head(&mut program).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let mut body = [0; 4];
    program.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"much");
}

/// Its connection would be kept for as long as the origin likes.
#[tokio::test]
async fn an_origin_that_answers_and_reads_no_more_loses_its_connection() {
    let house = House::new().await;
    let (to, _) = keeping().await;
    assert!(house.says(&get(to)).await.ends_with("hi"));
    let (ended, mut ends) = mpsc::unbounded_channel();
    let to = origin(move |mut stream| {
        let ended = ended.clone();
        async move {
            head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch").await.unwrap();
            // An end that shows without reading.
            while stream.ready(Interest::ERROR | Interest::WRITABLE).await.is_ok_and(|ready| !ready.is_write_closed()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            ended.send(()).unwrap();
        }
    })
    .await;
    let mut program = house.program().await;
    let request = format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 100000000\r\n\r\n");
    program.write_all(request.as_bytes()).await.unwrap();
    let (mut read, mut write) = program.into_split();
    let writing = tokio::spawn(async move { while write.write_all(&[0; 64 << 10]).await.is_ok() {} });
    let mut answer = Vec::new();
    while !answer.ends_with(b"much") {
        answer.push(timeout(Duration::from_secs(20), read.read_u8()).await.expect("it is answered").unwrap());
    }
    timeout(Duration::from_secs(20), ends.recv()).await.expect("the origin's connection ends").unwrap();
    writing.abort();
}

/// An origin may know a client by its connection, and several programs use one device.
#[tokio::test]
async fn a_connection_that_a_program_signs_on_is_not_kept() {
    let house = House::new().await;
    let (to, counts) = keeping().await;
    for (authorization, connections) in [("NTLM abc", 1), ("negotiate abc", 2), ("Basic eDp5", 3), ("Basic eDp5", 3)] {
        let request = format!(
            "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nAuthorization: {authorization}\r\nConnection: close\r\n\r\n"
        );
        assert!(house.says(&request).await.ends_with("hi"));
        assert_eq!(counts[0].load(Ordering::SeqCst), connections, "{authorization}");
    }
}
