//! Where a service is: [`Origin`] (RFC 6454).

use std::fmt;
use std::str::FromStr;
use url::{Host, Url};

/// Scheme, host and port of an `http` or `https` URL, in the ASCII serialisation of RFC 6454 §6.2.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    text: String,
    https: bool,
    host: Host<String>,
    port: u16,
}

/// A text or URL names no origin that Hoop can use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OriginError {
    /// Not a URL.
    #[error("not a URL: {0}")]
    NotAUrl(#[from] url::ParseError),
    /// Another scheme.
    #[error("the scheme must be https or http, not `{0}`")]
    Scheme(String),
    /// A path, query, user or fragment where only an origin may stand.
    #[error("expected scheme, host and port alone, such as https://photos.example")]
    MoreThanOrigin,
}

impl Origin {
    /// The origin of a URL.
    ///
    /// # Errors
    /// If the scheme is neither `http` nor `https`.
    pub fn of(url: &Url) -> Result<Self, OriginError> {
        let https = match url.scheme() {
            "https" => true,
            "http" => false,
            other => return Err(OriginError::Scheme(other.to_owned())),
        };
        let host = url.host().expect("an http URL has a host").to_owned();
        let port = url.port_or_known_default().expect("an http URL has a known port");
        Ok(Self { text: url.origin().ascii_serialization(), https, host, port })
    }

    /// `https://photos.example`, `http://127.0.0.1:8000`: no default port, no slash at the end.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is spoken to over TLS.
    pub const fn is_https(&self) -> bool {
        self.https
    }

    /// The host: a name in ASCII, or an address.
    pub const fn host(&self) -> &Host<String> {
        &self.host
    }

    /// Whether it is this machine for certain: loopback's addresses, and the names that browsers let nobody point elsewhere.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        }
    }

    /// The port, also where it is the scheme's own.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What goes into the `Host` field: host, and port unless it is the scheme's own.
    pub fn authority(&self) -> &str {
        self.text.split_once("://").map_or("", |(_, authority)| authority)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let url = Url::parse(text)?;
        let origin = Self::of(&url)?;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if !bare || !url.username().is_empty() || url.password().is_some() {
            return Err(OriginError::MoreThanOrigin);
        }
        Ok(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_without_its_default_port() {
        let origin: Origin = "https://Photos.Example:443/".parse().unwrap();
        assert_eq!(origin.as_str(), "https://photos.example");
        assert_eq!((origin.authority(), origin.port()), ("photos.example", 443));
        let origin: Origin = "http://[::1]:8000".parse().unwrap();
        assert_eq!(origin.authority(), "[::1]:8000");
        assert!(!origin.is_https());
    }

    #[test]
    fn what_is_more_or_less_than_an_origin_is_refused() {
        assert!(matches!("photos.example".parse::<Origin>(), Err(OriginError::NotAUrl(_))));
        assert!(matches!("ftp://photos.example".parse::<Origin>(), Err(OriginError::Scheme(_))));
        for more in ["https://a.example/x", "https://a.example/?q", "https://u:p@a.example", "https://a.example/#f"] {
            assert_eq!(more.parse::<Origin>(), Err(OriginError::MoreThanOrigin), "{more}");
        }
    }
}
