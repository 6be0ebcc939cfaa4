//! The hosts whose `https://` requests the relay makes, since the user says so: [`Entrusted`]. Pure.

use crate::destination::Destination;
use std::fmt;
use std::str::FromStr;

/// A host that is entrusted to the relay, with all hosts below it: `example.org` is also `www.example.org`. Name constraints of certificates mean the same (RFC 5280 §4.2.1.10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntrustedHost {
    /// In lower case.
    name: String,
    port: u16,
}

/// It is no host that could be entrusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoHost {
    /// It is none, or an address.
    #[error("expected a host's name, such as example.org or example.org:8443")]
    Form,
    /// It would be millions of hosts.
    #[error("expected a name with a dot in it: all hosts below it would be entrusted")]
    TopLevel,
}

impl EntrustedHost {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn covers(&self, name: &str, port: u16) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let above = name.strip_suffix(&self.name);
        port == self.port && above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    }
}

impl FromStr for EntrustedHost {
    type Err = NoHost;

    /// `HOST` or `HOST:PORT`; the port is 443 by default.
    fn from_str(text: &str) -> Result<Self, NoHost> {
        let destination = Destination::parse(text, Some(443)).ok_or(NoHost::Form)?;
        let name = destination.name().ok_or(NoHost::Form)?.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
        match name.contains('.') || name == "localhost" {
            true => Ok(Self { name, port: destination.port() }),
            false => Err(NoHost::TopLevel),
        }
    }
}

impl fmt::Display for EntrustedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            443 => f.write_str(&self.name),
            port => write!(f, "{}:{port}", self.name),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Entrusted(pub(crate) Vec<EntrustedHost>);

impl Entrusted {
    /// Whether the relay may see what goes there.
    pub(crate) fn covers(&self, destination: &Destination) -> bool {
        let Some(name) = destination.name() else { return false };
        self.0.iter().any(|host| host.covers(name, destination.port()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_entrusted_with_all_below_it_at_its_port() {
        let entrusted = Entrusted(["Example.org.", "a.test:8443"].map(|host| host.parse().unwrap()).to_vec());
        for (authority, is) in [
            ("example.org:443", true),
            ("EXAMPLE.org.:443", true),
            ("www.example.org:443", true),
            ("badexample.org:443", false),
            ("example.org.evil.test:443", false),
            ("example.org:80", false),
            ("a.test:443", false),
            ("a.test:8443", true),
            ("192.0.2.1:443", false),
        ] {
            assert_eq!(entrusted.covers(&Destination::parse(authority, None).unwrap()), is, "{authority}");
        }
    }

    #[test]
    fn addresses_and_top_level_names_are_not_entrusted() {
        for (text, error) in [
            ("192.0.2.1", NoHost::Form),
            ("[2001:db8::1]", NoHost::Form),
            ("https://example.org", NoHost::Form),
            ("*.example.org", NoHost::Form),
            ("", NoHost::Form),
            ("org", NoHost::TopLevel),
            ("org.", NoHost::TopLevel),
        ] {
            assert_eq!(text.parse::<EntrustedHost>(), Err(error), "{text}");
        }
        assert_eq!("localhost:8443".parse::<EntrustedHost>().unwrap().to_string(), "localhost:8443");
    }
}
