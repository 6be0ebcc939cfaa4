//! How a request reaches its server: through the agent, by a connection of its own ([`Source`]).

use bytes::Bytes;
use hoop_agent::Owners;
use hoop_http::{Stop, Stoppable, limit_interim, read_limited};
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, request};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::process::geteuid;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use url::Url;

/// When it should be there, in seconds since 1970 (`docs/edge.md`).
const DEADLINE: &str = "hoop-deadline";

/// An agent that is there takes a connection in so long.
const TAKEN_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An agent's refusal has a sentence or two, in bytes. Whoever says more is no agent.
const REFUSAL_MAX: usize = 4 << 10;

/// So long a refusal's sentence is waited for.
const REFUSAL_WAIT: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoAnswer {
    /// No agent listens.
    NoAgent(String),
    /// It may be otherwise later.
    Broken(String),
    /// It will not be otherwise.
    Refused(String),
    /// The agent leaves it to the program to speak TLS.
    NotEntrusted,
}

/// An answer, and the connection that it comes over: it ends when that is dropped.
#[derive(Debug)]
pub struct Answer {
    pub response: Response<Incoming>,
    pub connection: JoinSet<()>,
}

/// The way to all servers.
pub struct Source {
    pub agent: SocketAddr,
    pub tls: Arc<ClientConfig>,
    /// What the agent is told of when all should be there.
    pub deadline: Option<HeaderValue>,
    pub owners: Owners,
}

/// Sends requests over one connection.
struct Sender {
    requests: http1::SendRequest<Empty<Bytes>>,
    /// Ends the connection.
    stop: Stop,
}

impl Sender {
    /// Sends a request. If too many interim answers come, there is no other.
    async fn send(&mut self, mut request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, NoAnswer> {
        let stop = self.stop.clone();
        limit_interim(&mut request, move || stop.stop());
        self.requests.send_request(request).await.map_err(broken)
    }
}

impl Source {
    /// Sends a request: by `https` to the relay if the host is entrusted to it, and otherwise to the server itself.
    ///
    /// Any user of this machine may listen at the agent's port while no agent does. So only an agent of this user or of root has a word for servers of `https`: through another's, TLS is
    /// spoken with the server in any case.
    pub async fn send(&self, url: &Url, head: request::Parts) -> Result<Answer, NoAnswer> {
        let agent = self.connect().await?;
        if url.scheme() != "https" {
            return self.send_by(agent, url, head, false).await;
        }
        if !self.is_own(&agent).await {
            return self.send_by(agent, url, head, true).await;
        }
        match self.send_by(agent, url, head.clone(), false).await {
            Err(NoAnswer::NotEntrusted) => self.send_by(self.connect().await?, url, head, true).await,
            answered => answered,
        }
    }

    async fn connect(&self) -> Result<TcpStream, NoAnswer> {
        TcpStream::connect(self.agent).await.map_err(|error| NoAnswer::NoAgent(error.to_string()))
    }

    /// Whether a process of this user or of root has taken the connection.
    async fn is_own(&self, agent: &TcpStream) -> bool {
        let (Ok(theirs), Ok(ours)) = (agent.peer_addr(), agent.local_addr()) else { return false };
        let looked = async {
            loop {
                match self.owners.of(theirs, ours).await {
                    Ok(Some(user)) => return user == 0 || user == geteuid().as_raw(),
                    // It is nobody's until it is taken.
                    Ok(None) => sleep(LOOK_EVERY).await,
                    Err(_) => return false,
                }
            }
        };
        timeout(TAKEN_MAX, looked).await.unwrap_or(false)
    }

    async fn send_by(
        &self,
        agent: TcpStream,
        url: &Url,
        mut head: request::Parts,
        by_tunnel: bool,
    ) -> Result<Answer, NoAnswer> {
        let authority = authority(url).ok_or_else(|| NoAnswer::Refused("the URL names no host".to_owned()))?;
        let mut connection = JoinSet::new();
        // Only the agent is told: a tunnel is asked for with it, and a server gets nothing of it.
        if !by_tunnel {
            self.deadline.iter().for_each(|deadline| drop(head.headers.insert(DEADLINE, deadline.clone())));
        }
        let (mut sender, uri) = match by_tunnel {
            true => (self.tunnel(agent, url, &authority, &mut connection).await?, path(url)),
            false => (handshake(agent, &mut connection).await?, url[..url::Position::AfterQuery].to_owned()),
        };
        head.uri = Uri::try_from(uri).map_err(|error| NoAnswer::Refused(error.to_string()))?;
        let host = if url.port().is_some() {
            authority.as_str()
        } else {
            authority.rsplit_once(':').map_or("", |host| host.0)
        };
        head.headers.insert(HOST, HeaderValue::from_str(host).map_err(|error| NoAnswer::Refused(error.to_string()))?);
        let response = sender.send(Request::from_parts(head, Empty::new())).await?;
        // Agents that know no entrusted hosts say no more.
        if url.scheme() == "https" && !by_tunnel && response.status() == StatusCode::NOT_IMPLEMENTED {
            return Err(NoAnswer::NotEntrusted);
        }
        // What comes by a tunnel is a web server's.
        match told_by_agent(response.headers()).filter(|_| !by_tunnel) {
            Some(error) => Err(refusal(error, response).await),
            None => Ok(Answer { response, connection }),
        }
    }

    /// A connection to the server itself (RFC 9110 §9.3.6), over which TLS is spoken.
    async fn tunnel(
        &self,
        agent: TcpStream,
        url: &Url,
        authority: &str,
        connection: &mut JoinSet<()>,
    ) -> Result<Sender, NoAnswer> {
        let refused = |error: &dyn std::fmt::Display| NoAnswer::Refused(error.to_string());
        let mut sender = handshake(agent, connection).await?;
        let mut asked = Request::new(Empty::new());
        *asked.method_mut() = Method::CONNECT;
        *asked.uri_mut() = Uri::try_from(authority).map_err(|error| refused(&error))?;
        *asked.version_mut() = Version::HTTP_11;
        asked.headers_mut().insert(HOST, HeaderValue::from_str(authority).map_err(|error| refused(&error))?);
        self.deadline.iter().for_each(|deadline| drop(asked.headers_mut().insert(DEADLINE, deadline.clone())));
        let answer = sender.send(asked).await?;
        if !answer.status().is_success() {
            let error = told_by_agent(answer.headers()).unwrap_or_default();
            return Err(refusal(error, answer).await);
        }
        let tunnel = hyper::upgrade::on(answer).await.map_err(broken)?;
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| refused(&error))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, TokioIo::new(tunnel)).await;
        let stream =
            stream.map_err(|error| match error.get_ref().is_some_and(|error| error.is::<rustls::Error>()) {
                true => NoAnswer::Refused(format!("no TLS with {authority}: {error}")),
                false => NoAnswer::Broken(format!("no TLS with {authority}: {error}")),
            })?;
        handshake(stream, connection).await
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: &mut JoinSet<()>,
) -> Result<Sender, NoAnswer> {
    let stream = Stoppable::new(stream);
    let stop = stream.stop();
    let (requests, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    connection.spawn(async move { drop(driver.with_upgrades().await) });
    Ok(Sender { requests, stop })
}

fn broken(error: hyper::Error) -> NoAnswer {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    NoAnswer::Broken(format!("{error}{cause}"))
}

/// What the agent says for itself in `Proxy-Status` (RFC 9209): why there is no answer.
fn told_by_agent(headers: &HeaderMap) -> Option<String> {
    let told = headers.get("proxy-status")?.to_str().ok()?;
    let (_, error) = told.strip_prefix("hoop;")?.split_once("error=")?;
    Some(error.split([';', ',']).next().unwrap_or_default().trim().to_owned())
}

/// What an agent's refusal means.
async fn refusal(error: String, response: Response<Incoming>) -> NoAnswer {
    let body = timeout(REFUSAL_WAIT, read_limited(response.into_body(), REFUSAL_MAX)).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let line = text.lines().next().unwrap_or_default();
    let words = hoop_units::plain::line(line.strip_prefix("hoop agent: ").unwrap_or(line));
    let words = if words.is_empty() { error.clone() } else { words };
    match error.as_str() {
        "tls_certificate_error"
        | "dns_error"
        | "destination_ip_prohibited"
        | "proxy_configuration_error"
        | "http_request_error" => NoAnswer::Refused(words),
        _ => NoAnswer::Broken(words),
    }
}

/// `HOST:PORT`.
fn authority(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// The path and the query.
fn path(url: &Url) -> String {
    url[url::Position::BeforePath..url::Position::AfterQuery].to_owned()
}
