//! HTTP/1.1 by hand, to the byte.

use httparse::{EMPTY_HEADER, Status};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer, read until the connection closed.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    /// Everything after the head, framing and all.
    pub body: Vec<u8>,
}

impl Reply {
    /// Asserts that bytes were taken which make an upload whole. The answer is 200 if the application has answered by
    /// then.
    #[track_caller]
    pub fn is_taken(&self) {
        assert!(matches!(self.status, 200 | 202), "{self:?}");
    }

    pub fn parse(bytes: &[u8]) -> Self {
        let mut fields = [EMPTY_HEADER; 100];
        let mut response = httparse::Response::new(&mut fields);
        let Ok(Status::Complete(len)) = response.parse(bytes) else {
            panic!("no answer but {:?}", String::from_utf8_lossy(bytes));
        };
        let status = response.code.unwrap();
        let fields = response.headers.iter();
        let fields = fields.map(|f| (f.name.to_ascii_lowercase(), String::from_utf8_lossy(f.value).into_owned()));
        let reply = Self { status, fields: fields.collect(), body: bytes[len..].to_vec() };
        match status {
            100 => Self::parse(&reply.body),
            _ => reply,
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON in {self:?}"))
    }

    /// Status and code of a problem.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        (self.status, problem["code"].as_str().unwrap().to_owned())
    }
}

/// The bytes of a request with `Connection: close`; `Content-Length` and `Host` unless they are among the fields.
pub fn request(method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let has = |name: &str| fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !has("host") {
        head += "Host: photos.example\r\n";
    }
    if !has("connection") {
        head += "Connection: close\r\n";
    }
    if !has("content-length") && !has("transfer-encoding") && (!body.is_empty() || method != "GET") {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

pub async fn send(address: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Reply {
    exchange(address, &request(method, path, fields, body)).await.expect("an answer")
}

/// Sends bytes and reads until the other end closes; none if it closes without a word.
pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> Option<Reply> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut reader, mut writer) = stream.into_split();
    let bytes = bytes.to_vec();
    let writing = tokio::spawn(async move {
        // The other end may answer early and close.
        let _ = writer.write_all(&bytes).await;
        writer
    });
    let mut answer = Vec::new();
    let _ = reader.read_to_end(&mut answer).await;
    drop(writing.await);
    (!answer.is_empty()).then(|| Reply::parse(&answer))
}

/// Reads up to and with `end`.
pub async fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let reading = async {
        while !bytes.ends_with(end) {
            bytes.push(stream.read_u8().await.expect("more comes"));
        }
    };
    tokio::time::timeout(super::PATIENCE, reading).await.expect("it comes in time");
    bytes
}
