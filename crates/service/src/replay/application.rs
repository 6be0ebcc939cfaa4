//! The application behind the service, and how it is spoken to: [`Application`].

use crate::config::Config;
use crate::model::Credentials;
use hoop_http::{Body, ConnectError, Connection, Connector, Origin, SendError, empty};
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// The application.
pub struct Application {
    connector: Connector,
    /// Where it is.
    upstream: Origin,
    /// The origin that its users see.
    origin: Origin,
    connect_timeout: Duration,
}

/// It gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// No connection came about.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The credentials are no header's value.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The connection broke.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl Application {
    /// The application of `config`, over connections of `connector`.
    pub fn new(config: &Config, connector: Connector) -> Self {
        let (upstream, origin) = (config.upstream.clone(), config.origin.clone());
        Self { connector, upstream, origin, connect_timeout: config.connect_timeout }
    }

    /// Its authorities: the origin that users see, and how the service calls it.
    pub fn own(&self) -> [&str; 2] {
        [self.origin.authority(), self.upstream.authority()]
    }

    /// A new HTTP connection.
    ///
    /// # Errors
    /// If none comes about.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        self.connector.connect(&self.upstream).await
    }

    /// The answer to a `GET` of a path, as the user's browser would ask.
    ///
    /// # Errors
    /// If there is none.
    pub async fn get(
        &self,
        path: &str,
        accept: &str,
        credentials: &Credentials,
    ) -> Result<Response<Incoming>, Unanswered> {
        let mut connection = self.connect().await?;
        connection.resets_at_its_end();
        Ok(connection.send(self.request(path, accept, credentials)?).await?)
    }

    fn request(&self, path: &str, accept: &str, credentials: &Credentials) -> Result<Request<Body>, http::Error> {
        let mut request = Request::get(path)
            .header(header::HOST, self.origin.authority())
            .header(header::ACCEPT, accept)
            .header(header::CONNECTION, "close")
            .header("x-forwarded-proto", if self.origin.is_https() { "https" } else { "http" })
            .header("x-forwarded-host", self.origin.authority());
        if let Some(address) = credentials.address {
            request = request.header("x-forwarded-for", address.to_string());
        }
        for (name, value) in
            [(header::COOKIE, &credentials.cookie), (header::AUTHORIZATION, &credentials.authorization)]
        {
            if let Some(value) = value {
                request = request.header(name, HeaderValue::from_bytes(value.as_bytes())?);
            }
        }
        request.body(empty())
    }

    /// A new TCP connection, for a request that is written by hand.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn stream(&self) -> Result<TcpStream, String> {
        match tokio::time::timeout(self.connect_timeout, self.open()).await {
            Ok(opened) => opened.map_err(|error| error.to_string()),
            Err(_) => Err("it does not answer in time".to_owned()),
        }
    }

    async fn open(&self) -> io::Result<TcpStream> {
        let port = self.upstream.port();
        let stream = match self.upstream.host() {
            url::Host::Domain(name) => TcpStream::connect((name.as_str(), port)).await?,
            url::Host::Ipv4(address) => TcpStream::connect((*address, port)).await?,
            url::Host::Ipv6(address) => TcpStream::connect((*address, port)).await?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
