//! Small requests over a connection that is kept: [`Link`].

pub(crate) mod status;
pub(crate) mod told;

use bytes::Bytes;
use hoop_http::{Body, ConnectError, Connection, Connector, Origin, Problem, ReadError, read_limited, retry_after};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use std::time::{Duration, SystemTime};

/// How we name ourselves.
pub(crate) const USER_AGENT: &str = concat!("hoop/", env!("CARGO_PKG_VERSION"));

/// The longest answer that is read: a status with the sealed answer of an application, which has 16 KiB of body and
/// grows by a third in base64.
pub(crate) const ANSWER_MAX: usize = 128 * 1024;

/// One server, and the connection to it if there is one.
#[derive(Debug)]
pub(crate) struct Link {
    connector: Connector,
    origin: Origin,
    connection: Option<Connection>,
}

/// No answer came.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error("the connection to {host} broke: {reason}")]
    Broken {
        /// The other end.
        host: String,
        /// Why.
        reason: String,
    },
    /// Nothing came for too long.
    #[error("{host} was silent for {} s", waited.as_secs())]
    Silent {
        /// The other end.
        host: String,
        /// For how long.
        waited: Duration,
    },
    /// More came than an answer of Hoop has.
    #[error("the answer of {host} cannot be read: {source}")]
    Read {
        /// The other end.
        host: String,
        /// Why.
        source: ReadError,
    },
}

impl LinkError {
    /// Whether the other end is there, and not who it should be, or speaks no TLS.
    pub fn is_distrust(&self) -> bool {
        let Self::Connect(ConnectError::Tls { source, .. }) = self else { return false };
        source.kind() == std::io::ErrorKind::InvalidData
    }
}

impl Link {
    pub(crate) const fn new(connector: Connector, origin: Origin) -> Self {
        Self { connector, origin, connection: None }
    }

    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Another to the same server, with a connection of its own.
    pub(crate) fn beside(&self) -> Self {
        Self::new(self.connector.clone(), self.origin.clone())
    }

    /// The same, whose next connections may take so long.
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        Self { connector: self.connector.with_timeout(timeout), ..self }
    }

    /// Connects, unless that has been done.
    pub(crate) async fn open(&mut self) -> Result<&mut Connection, ConnectError> {
        if self.connection.as_ref().is_none_or(|connection| !connection.is_open()) {
            self.connection = Some(self.connector.connect(&self.origin).await?);
        }
        Ok(self.connection.as_mut().expect("it was just opened"))
    }

    /// The next request gets a connection of its own.
    pub(crate) fn close(&mut self) {
        self.connection = None;
    }

    /// A request to this server, with the fields that every one has.
    pub(crate) fn request(&self, method: Method, path_and_query: &str, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() =
            path_and_query.parse().expect("paths are made of URLs, which are bounded where they are read");
        let host = HeaderValue::from_str(self.origin.authority()).expect("an authority is ASCII");
        let headers = request.headers_mut();
        headers.insert(header::HOST, host);
        headers.insert(header::USER_AGENT, const { HeaderValue::from_static(USER_AGENT) });
        headers.insert(header::ACCEPT, const { HeaderValue::from_static("application/json") });
        request
    }

    /// Sends a request and reads the whole answer; each may take `timeout`.
    pub(crate) async fn ask(
        &mut self,
        request: Request<Body>,
        timeout: Duration,
    ) -> Result<Response<Bytes>, LinkError> {
        let host = self.origin.host().to_string();
        let connection = self.open().await?;
        let answer = match tokio::time::timeout(timeout, connection.send(request)).await {
            Ok(Ok(response)) => read(response, &host, timeout).await,
            Ok(Err(error)) => Err(LinkError::Broken { host, reason: deepest(&error) }),
            Err(_) => Err(LinkError::Silent { host, waited: timeout }),
        };
        if answer.is_err() {
            self.close();
        }
        answer
    }
}

/// Reads the body of an answer, at most [`ANSWER_MAX`].
pub(crate) async fn read(
    response: Response<hyper::body::Incoming>,
    host: &str,
    timeout: Duration,
) -> Result<Response<Bytes>, LinkError> {
    let (head, body) = response.into_parts();
    match tokio::time::timeout(timeout, read_limited(body, ANSWER_MAX)).await {
        Ok(Ok(bytes)) => Ok(Response::from_parts(head, bytes)),
        Ok(Err(source)) => Err(LinkError::Read { host: host.to_owned(), source }),
        Err(_) => Err(LinkError::Silent { host: host.to_owned(), waited: timeout }),
    }
}

/// The innermost cause, in words: hyper's own text only says at which step it happened.
pub(crate) fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// A refusal by a gateway or a service, final or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// Its problem document, if it has one that this version knows.
    pub problem: Option<Problem>,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn of(response: &Response<Bytes>, now: SystemTime) -> Self {
        Self {
            status: response.status(),
            problem: Problem::from_json(response.body()),
            retry_after: retry_after(response.headers(), now),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.problem {
            Some(problem) => problem.fmt(f),
            None if self.status.is_success() => write!(f, "it answered {} as no Hoop does", self.status),
            None => write!(f, "it answered {}", self.status),
        }
    }
}

/// A header's text.
pub(crate) fn field<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    headers.get(HeaderName::from_static(name))?.to_str().ok()
}
