//! An origin that answers as a test says, and tells what it was asked.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;

/// What is answered at one path.
#[derive(Clone, Default)]
pub struct Script {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    /// Otherwise the body tells how often it was asked.
    pub body: Option<Vec<u8>>,
    pub asked: Vec<(Method, HeaderMap)>,
}

impl Script {
    /// `404 | Name: value | Name: value`. `@60` is the date a minute from now. 0 as a status closes the connection instead of answering.
    pub fn say(&mut self, answer: &str) {
        let mut parts: Vec<_> = answer.split(" | ").filter(|part| !part.is_empty()).collect();
        let status = parts.first().and_then(|first| first.parse().ok());
        self.status = status.unwrap_or(200);
        parts.drain(..status.is_some() as usize);
        self.fields = fields(&parts.join(" | "));
    }
}

/// `Name: value | Name: value`.
pub fn fields(text: &str) -> Vec<(String, String)> {
    let parts = text.split(" | ").filter(|part| !part.is_empty());
    let field = |part: &str| {
        let (name, value) = part.split_once(':').expect("a field");
        let value = value.trim();
        let value = match value.strip_prefix('@').map(|seconds| seconds.parse::<i64>().unwrap()) {
            Some(seconds) => date(seconds),
            None => value.to_owned(),
        };
        (name.to_owned(), value)
    };
    parts.map(field).collect()
}

/// The date so many seconds from now.
pub fn date(seconds: i64) -> String {
    let (now, by) = (SystemTime::now(), Duration::from_secs(seconds.unsigned_abs()));
    httpdate::fmt_http_date(if seconds < 0 { now - by } else { now + by })
}

#[derive(Clone)]
pub struct Origin {
    pub address: SocketAddr,
    scripts: Arc<Mutex<HashMap<String, Script>>>,
}

impl Origin {
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Self { address: listener.local_addr().unwrap(), scripts: Arc::default() };
        let this = origin.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let this = this.clone();
                let service = service_fn(move |request| {
                    let this = this.clone();
                    async move { this.answer(&request) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        origin
    }

    fn answer(&self, request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, &'static str> {
        let mut scripts = self.scripts.lock().unwrap();
        let script = scripts.entry(request.uri().path().to_owned()).or_default();
        script.asked.push((request.method().clone(), request.headers().clone()));
        if script.status == 0 {
            return Err("it closes");
        }
        let of = |name: &str| {
            let found = script.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str())
        };
        let asks = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let is_same = match asks("if-none-match") {
            Some(tag) => Some(tag) == of("etag"),
            None => asks("if-modified-since").is_some_and(|date| Some(date) == of("last-modified")),
        };
        let mut response = Response::new(Full::default());
        // What comes over a connection that has brought another answer is for one device alone.
        response.headers_mut().append("connection", "close".parse().unwrap());
        for (name, value) in &script.fields {
            response.headers_mut().append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        *response.status_mut() = StatusCode::from_u16(script.status).unwrap();
        if is_same && script.status == 200 {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else if script.status != 204 {
            let body = script.body.clone().unwrap_or_else(|| format!("answer {}", script.asked.len()).into_bytes());
            *response.body_mut() = Full::new(body.into());
        }
        Ok(response)
    }

    /// From now on it answers so at this path.
    pub fn say(&self, path: &str, answer: &str) {
        self.scripts.lock().unwrap().entry(path.to_owned()).or_default().say(answer);
    }

    /// From now on it answers with this body.
    pub fn give(&self, path: &str, body: Vec<u8>) {
        self.scripts.lock().unwrap().entry(path.to_owned()).or_default().body = Some(body);
    }

    /// What it was asked at this path.
    pub fn asked(&self, path: &str) -> Vec<(Method, HeaderMap)> {
        self.scripts.lock().unwrap().get(path).map(|script| script.asked.clone()).unwrap_or_default()
    }

    /// How often it was asked at this path.
    pub fn count(&self, path: &str) -> usize {
        self.asked(path).len()
    }

    /// A request for a path.
    pub fn request(&self, method: &str, path: &str, asks: &str) -> String {
        let to = self.address;
        let mut text = format!("{method} http://{to}{path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n");
        fields(asks).iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        if method == "POST" || method == "PUT" || method == "M-SEARCH" {
            text += "Content-Length: 3\r\n\r\nabc";
        } else {
            text += "\r\n";
        }
        text
    }
}

/// What a program was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ str| line.split_once(": ").filter(|(field, _)| field.eq_ignore_ascii_case(name)).is_some();
        self.head.lines().rfind(|line| of(line)).and_then(|line| Some(line.split_once(": ")?.1))
    }

    /// What the relay's cache says of it.
    pub fn cache(&self) -> &str {
        self.field("cache-status").unwrap_or_default()
    }
}
