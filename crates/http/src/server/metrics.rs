//! Numbers for whoever runs a role: [`Families`], in the text format of Prometheus (version 0.0.4), and how they are answered on a loopback address.
//!
//! Written by hand: it is some lines of text. Labels are states and codes of our own alone; no id, name, address, key, token, cookie or URL may stand in one.

use crate::message::body::{Body, full};
use crate::message::problem::{Code, Problem};
use crate::process::shutdown::Shutdown;
use crate::server::{Crowd, Peer, ServeError, Server, ServerLimits};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Why another address than loopback's is refused.
pub const NOT_LOOPBACK: &str = "it is for this machine alone; use 127.0.0.1 or [::1]";

/// Families of samples, as text.
#[derive(Debug)]
pub struct Families {
    prefix: &'static str,
    text: String,
}

impl Families {
    /// None yet. Each name will begin with `prefix`, such as `hoop_relay_`.
    pub const fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Adds a family: its name without the prefix, `gauge` or `counter`, what it is, and its samples with their labels (`{code="…"}`, or nothing).
    pub fn add(&mut self, name: &str, kind: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        let (prefix, text) = (self.prefix, &mut self.text);
        let _ = writeln!(text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{prefix}{name}{labels} {value}");
        }
    }

    /// Adds a family of one sample that may rise and fall.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.add(name, "gauge", help, [(String::new(), value)]);
    }

    /// Adds a family of one sample that only rises.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.add(name, "counter", help, [(String::new(), value)]);
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Bounds of a server of metrics: one collector, and a person who looks. Any program of this machine may connect: the oldest of eight makes way.
fn limits() -> ServerLimits {
    ServerLimits { crowd: Some(Crowd::of_few(8)), buffer_bytes: 16 * 1024, ..ServerLimits::default() }
}

/// Listens for a collector, if there is an address. Whoever gets there is asked for nothing, so it is one of loopback.
///
/// # Errors
/// If it is another, or cannot be bound.
pub async fn bind(address: Option<SocketAddr>) -> Result<Option<Server>, ServeError> {
    let Some(address) = address else { return Ok(None) };
    if !address.ip().is_loopback() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, NOT_LOOPBACK);
        return Err(ServeError { address, source });
    }
    Server::bind(address, None, limits()).await.map(Some)
}

/// Answers `GET /metrics` with what `text` gives, by loopback's names only.
///
/// # Errors
/// `host-forbidden`, `not-found`, or what `text` fails with.
pub async fn answer<B>(
    request: &Request<B>,
    text: impl Future<Output = Result<String, Problem>>,
) -> Result<Response<Body>, Problem> {
    check_host(request.headers())?;
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => Ok(response(text.await?)),
        _ => Err(Problem::new(Code::NotFound, "there is /metrics")),
    }
}

/// The answer that carries `text`, which nobody keeps.
pub fn response(text: String) -> Response<Body> {
    let mut response = Response::new(full(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Serves `/metrics` until `shutdown`. One text is made at a time, and for as long as that took no other: any program of this machine may ask, and others need what it is made from.
pub async fn serve<F>(server: Server, text: impl Fn() -> F + Clone + Send + Sync + 'static, shutdown: Shutdown)
where
    F: Future<Output = Result<String, Problem>> + Send + 'static,
{
    let turn = Arc::<Mutex<()>>::default();
    let handler = move |request: Request<Incoming>, _: Peer| {
        let (text, turn) = (text.clone(), turn.clone());
        async move { answer(&request, in_turn(&turn, text)).await.unwrap_or_else(Problem::into_response) }
    };
    server.run(handler, shutdown).await;
}

/// What `make` makes, which for as long as it took is made for nobody else.
async fn in_turn<T, F: Future<Output = T>>(turn: &Arc<Mutex<()>>, make: impl FnOnce() -> F) -> T {
    let turn = turn.clone().lock_owned().await;
    let began = Instant::now();
    let made = make().await;
    let rest = began.elapsed();
    tokio::spawn(async move {
        tokio::time::sleep(rest).await;
        drop(turn);
    });
    made
}

/// A page can point its own name at this address: only names that no stranger has are answered.
///
/// # Errors
/// `host-forbidden`.
pub fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(host) = headers.get(header::HOST) else { return Ok(()) };
    let host = host.to_str().unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    match name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        true => Ok(()),
        false => Err(Problem::new(Code::HostForbidden, "by loopback's names only").field("Host")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_loopbacks_own_names_are_answered() {
        let asked = |host: &str| check_host(&[(header::HOST, host.parse().unwrap())].into_iter().collect()).is_ok();
        for host in ["localhost:9", "localhost", "127.0.0.1:4669", "[::1]:4669", "127.0.0.2"] {
            assert!(asked(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:4669", "192.168.1.1", ""] {
            assert!(!asked(host), "{host}");
        }
    }

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let mut families = Families::new("hoop_test_");
        families.gauge("flows", "Flows that are open.", 7);
        families.add("refused_total", "counter", "By code.", [("{code=\"0x101\"}".to_owned(), 2)]);
        let text = "# HELP hoop_test_flows Flows that are open.\n# TYPE hoop_test_flows gauge\nhoop_test_flows 7\n\
                    # HELP hoop_test_refused_total By code.\n# TYPE hoop_test_refused_total counter\n\
                    hoop_test_refused_total{code=\"0x101\"} 2\n";
        assert_eq!(families.into_text(), text);
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_is_made_one_at_a_time_and_rests_as_long_as_it_took() {
        const TAKES: Duration = Duration::from_millis(40);
        let turn = Arc::<Mutex<()>>::default();
        let began = Instant::now();
        let made = || in_turn(&turn, || async { tokio::time::sleep(TAKES).await });
        tokio::join!(made(), made(), made());
        assert_eq!(began.elapsed().as_millis(), 5 * TAKES.as_millis(), "three that were made, and two rests");
    }
}
