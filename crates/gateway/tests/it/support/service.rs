//! A service that keeps ranges and can be told to behave badly. It opens nothing: what a true service makes of an upload
//! is tested with the true one.

use bytes::Bytes;
use hoop_http::{Body, Code, Problem, Server, ServerLimits, ShutdownTrigger, full, json, read_limited, shutdown};
use hoop_units::{ByteRange, ContentRange, RangeSet};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What the service does with a request, before it is itself.
pub enum Weather {
    /// Nothing special.
    Fair,
    /// Answers this instead, without looking at the request. Its body is read to the end all the same, as servers do (RFC 9112 §9.6): a connection that is
    /// reset under a sender may take the answer with it.
    Answer(Response<Body>),
    /// Never answers.
    Silence,
    /// Reads so much of the body, then cuts the connection.
    Cut(usize),
}

/// Called with the request's number (from 0), method, path and fields.
pub type Mood = Box<dyn FnMut(usize, &Method, &str, &HeaderMap) -> Weather + Send>;

#[derive(Default)]
pub struct Kept {
    pub bytes: Vec<u8>,
    pub has: RangeSet,
    pub messages: usize,
    /// Bytes that came, also those that it had.
    pub received: u64,
}

pub struct State {
    pub uploads: BTreeMap<String, Kept>,
    /// Method and path of each request, and whether a `PUT` was under way for the same upload.
    pub requests: Vec<(Method, String)>,
    /// What it says of an upload that it has wholly.
    pub verdict: &'static str,
    mood: Mood,
    under_way: BTreeMap<String, usize>,
    pub most_at_once: usize,
    pub twice_at_once: bool,
}

pub struct Service {
    pub address: SocketAddr,
    pub origin: String,
    pub state: Arc<Mutex<State>>,
    stop: ShutdownTrigger,
    task: tokio::task::JoinHandle<()>,
}

impl Service {
    /// A service on loopback in this mood.
    pub async fn start(mood: impl FnMut(usize, &Method, &str, &HeaderMap) -> Weather + Send + 'static) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), mood).await
    }

    pub async fn start_at(
        address: SocketAddr,
        mood: impl FnMut(usize, &Method, &str, &HeaderMap) -> Weather + Send + 'static,
    ) -> Self {
        Self::start_as(Server::bind(address, None, ServerLimits::default()).await.unwrap(), None, mood)
    }

    /// A service behind TLS under this name, in fair weather.
    pub async fn start_tls(name: &str, certificate: &Path, key: &Path) -> Self {
        let tls = Arc::new(hoop_http::tls::server_config(certificate, key).unwrap());
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let server = Server::bind(address, Some(tls), ServerLimits::default()).await.unwrap();
        let origin = format!("https://{name}:{}", server.address().port());
        Self::start_as(server, Some(origin), |_, _, _, _| Weather::Fair)
    }

    fn start_as(
        server: Server,
        origin: Option<String>,
        mood: impl FnMut(usize, &Method, &str, &HeaderMap) -> Weather + Send + 'static,
    ) -> Self {
        let address = server.address();
        let origin = origin.unwrap_or_else(|| format!("http://{address}"));
        let state = Arc::new(Mutex::new(State {
            uploads: BTreeMap::new(),
            requests: Vec::new(),
            verdict: "accepted",
            mood: Box::new(mood),
            under_way: BTreeMap::new(),
            most_at_once: 0,
            twice_at_once: false,
        }));
        let (stop, shutdown) = shutdown();
        let (shared, own) = (state.clone(), origin.clone());
        let handler = move |request, _| handle(shared.clone(), own.clone(), request);
        let task = tokio::spawn(server.run(handler, shutdown));
        Self { address, origin, state, stop, task }
    }

    pub async fn stop(self) {
        self.stop.trigger();
        self.task.await.unwrap();
    }

    pub fn set_mood(&self, mood: impl FnMut(usize, &Method, &str, &HeaderMap) -> Weather + Send + 'static) {
        self.state.lock().unwrap().mood = Box::new(mood);
    }

    pub fn dest(&self) -> String {
        format!("{}/hoop/post", self.origin)
    }

    pub fn bytes(&self, id: impl ToString) -> Vec<u8> {
        self.state.lock().unwrap().uploads.get(&id.to_string()).map_or_else(Vec::new, |kept| kept.bytes.clone())
    }

    pub fn count(&self, method: &Method, path: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|(m, p)| m == method && p.starts_with(path)).count()
    }
}

async fn handle(state: Arc<Mutex<State>>, origin: String, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let weather = {
        let mut state = state.lock().unwrap();
        let number = state.requests.len();
        state.requests.push((head.method.clone(), path.clone()));
        (state.mood)(number, &head.method, &path, &head.headers)
    };
    match weather {
        Weather::Fair => {}
        Weather::Answer(response) => {
            tokio::spawn(read_some(body, usize::MAX));
            return response;
        }
        Weather::Silence => std::future::pending().await,
        Weather::Cut(after) => {
            let _ = read_some(body, after).await;
            // An answer that breaks off before its end is a connection that breaks.
            return Response::new(hoop_http::streamed(Broken));
        }
    }
    match (&head.method, path.as_str()) {
        (&Method::GET, "/.well-known/hoop") => json(StatusCode::OK, &well_known(&origin)),
        (&Method::PUT, path) => {
            let id = path.strip_prefix("/hoop/post/").unwrap_or_default().to_owned();
            begin(&state, &id);
            let range: ContentRange = head.headers["content-range"].to_str().unwrap().parse().unwrap();
            let bytes = read_limited(body, 64 << 20).await;
            let mut state = state.lock().unwrap();
            *state.under_way.get_mut(&id).unwrap() -= 1;
            match bytes {
                Ok(bytes) => keep(&mut state, &id, range, &bytes),
                Err(error) => Problem::new(Code::BodyTruncated, error).into_response(),
            }
        }
        (&Method::HEAD | &Method::GET, path) => {
            let id = path.rsplit('/').next().unwrap_or_default();
            let state = state.lock().unwrap();
            match state.uploads.get(id) {
                Some(kept) => standing(kept, id, state.verdict),
                None => Problem::new(Code::UploadUnknown, id).into_response(),
            }
        }
        _ => Problem::new(Code::NotFound, path).into_response(),
    }
}

fn begin(state: &Mutex<State>, id: &str) {
    let mut state = state.lock().unwrap();
    let mine = state.under_way.entry(id.to_owned()).or_default();
    *mine += 1;
    let twice = *mine > 1;
    state.twice_at_once |= twice;
    let all = state.under_way.values().sum();
    state.most_at_once = state.most_at_once.max(all);
}

fn keep(state: &mut State, id: &str, range: ContentRange, bytes: &[u8]) -> Response<Body> {
    let verdict = state.verdict;
    let kept = state.uploads.entry(id.to_owned()).or_default();
    kept.bytes.resize(range.total as usize, 0);
    kept.bytes[range.range.start as usize..range.range.end as usize].copy_from_slice(bytes);
    kept.has.insert(range.range);
    kept.has.insert(ByteRange::new(0, super::PRELUDE_LEN));
    kept.messages += 1;
    kept.received += range.range.len();
    standing(kept, id, verdict)
}

fn standing(kept: &Kept, id: &str, verdict: &str) -> Response<Body> {
    let total = kept.bytes.len() as u64;
    let whole = kept.has.len() == total;
    let state = if whole { verdict } else { "receiving" };
    let missing: RangeSet = kept.has.missing(total).take(32).collect();
    let answer = (state == "accepted").then_some("c2VhbGVkIGFuc3dlcg");
    let status = json!({"id": id, "state": state, "missing": missing.to_string(), "answer": answer, "reason": null});
    let mut response = json(if whole { StatusCode::OK } else { StatusCode::ACCEPTED }, &status);
    let headers = response.headers_mut();
    headers.insert("hoop-upload-id", HeaderValue::from_str(id).unwrap());
    headers.insert("hoop-state", HeaderValue::from_str(state).unwrap());
    headers.insert("hoop-total", total.into());
    headers.insert("hoop-missing", HeaderValue::from_str(&missing.to_string()).unwrap());
    response
}

pub fn well_known(origin: &str) -> serde_json::Value {
    json!({"hoop": 1, "origin": origin, "post": format!("{origin}/hoop/post"), "tickets": format!("{origin}/hoop/tickets"),
        "uploads": format!("{origin}/hoop/uploads"), "suites": ["aes256gcm"], "record_size": 65536, "max_bytes": 1_u64 << 40})
}

/// An answer of this status with this body.
pub fn plain(status: u16, body: &str) -> Response<Body> {
    let mut response = Response::new(full(body.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

async fn read_some(mut body: Incoming, most: usize) -> usize {
    use http_body_util::BodyExt as _;
    let mut read = 0;
    while read < most {
        match body.frame().await {
            Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
            _ => break,
        }
    }
    read
}

struct Broken;

impl http_body::Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(Some(Err(std::io::Error::other("cut"))))
    }
}
