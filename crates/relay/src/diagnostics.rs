//! What goes wrong between a device and its relay, in words for the person in front of it.

use hoop_carrier::FrontFailed;
use hoop_endpoint::{FlowError, Refusal};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore};
use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

use crate::codes;
use crate::wire::NEVER_PORTS;

/// Sentences that are remembered so that none is said twice: a program may want to go to any number of places. All are forgotten once there are more, and the first of them is a
/// minute old: so many are said in that time at most.
pub const SAID_MAX: usize = 256;

const MINUTE: Duration = Duration::from_secs(60);

/// What is said once where there are more sentences than are said in a minute.
const MORE: &str = "there are more reasons than are told in this minute";

/// Why a server is not reached by one way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Trouble {
    /// The way's name.
    pub way: String,
    /// The cause, in words.
    pub cause: String,
}

/// What was said already.
#[derive(Debug, Default)]
pub struct Said {
    words: BTreeSet<String>,
    /// When the first of them was said.
    began: Option<Instant>,
}

impl Said {
    /// What is to be said now: these words if they are news, or once that there are more.
    pub fn news(&mut self, words: String, now: Instant) -> Option<String> {
        if self.words.contains(&words) {
            return None;
        }
        let is_over = |began| now.saturating_duration_since(began) >= MINUTE;
        if self.words.len() >= SAID_MAX && self.began.is_none_or(is_over) {
            *self = Self::default();
        }
        let words = match self.words.len() {
            ..SAID_MAX => words,
            SAID_MAX => MORE.to_owned(),
            _ => return None,
        };
        self.began.get_or_insert(now);
        self.words.insert(words.clone());
        Some(words)
    }
}

/// Says each cause for which `server` is waited for, once, as long as its link lives: `waiting for SERVER: CAUSE`.
pub async fn tell(mut troubles: watch::Receiver<Option<Trouble>>, server: String, say: impl Fn(&str)) {
    let mut said = Said::default();
    loop {
        let words = troubles.borrow_and_update().as_ref().map(|trouble| match &trouble.way[..] {
            "any" => format!("waiting for {server}: {}", trouble.cause),
            way => format!("waiting for {server} by {way}: {}", trouble.cause),
        });
        words.and_then(|words| said.news(words, Instant::now())).inspect(|words| say(words));
        if troubles.changed().await.is_err() {
            return;
        }
    }
}

/// Why the server is not reached, in words.
pub fn cause(error: &io::Error) -> String {
    if let Some(FrontFailed { name, port, source }) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return format!("the web server in front ({name}:{port}): {}", cause(source));
    }
    if let Some(error) = of_tls(error) {
        return tls(error);
    }
    let text = error.to_string();
    if text.starts_with("failed to lookup address information") {
        return format!("its name cannot be looked up ({})", text.rsplit(": ").next().unwrap_or_default());
    }
    // Of QUIC there is only the text.
    match error.kind() {
        io::ErrorKind::TimedOut => "nobody answers there".into(),
        io::ErrorKind::ConnectionRefused if error.raw_os_error().is_some() => {
            "nobody listens at that port (connection refused)".into()
        }
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown | io::ErrorKind::HostUnreachable => {
            "there is no network that leads there".into()
        }
        _ => text,
    }
}

fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error.get_ref()?);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => certificate(error),
        rustls::Error::InvalidMessage(_) => "what answers there speaks no TLS".into(),
        error => error.to_string(),
    }
}

/// What is wrong with a server's certificates, its own first, for a device that trusts `roots`.
pub fn verify(
    chain: &[CertificateDer<'static>],
    roots: &[CertificateDer<'static>],
    name: &str,
) -> Option<CertificateError> {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(roots.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider).build().ok()?;
    let ((first, others), name) = (chain.split_first()?, ServerName::try_from(name).ok()?);
    match verifier.verify_server_cert(first, others, &name, &[], UnixTime::now()) {
        Err(rustls::Error::InvalidCertificate(error)) => Some(error),
        _ => None,
    }
}

/// What is wrong with a server's certificate, in words.
pub fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: is the clock right?".into()
        }
        CertificateError::NotValidForName => "its certificate is for another name".into(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            format!("its certificate is for another name ({})", names.join(", "))
        }
        // One that bears the name of a trusted one, and is another.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is signed by nobody that this device trusts (hoop introduce --cert)".into()
        }
        error if is_of_authority(error) => {
            "its certificate is an authority's (CA:TRUE), which is none for a server".into()
        }
        CertificateError::Other(error) => format!("its certificate is not taken: {error}"),
        error => format!("its certificate is not taken: {error}"),
    }
}

/// A name as it is, of one as webpki shows it: `DnsName("relay.example")`, `IpAddress(10.9.2.1)`.
fn bare(shown: &str) -> &str {
    let within = shown.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    within.map_or(shown, |name| name.trim_matches('"'))
}

/// Whether a certificate is another server's.
pub fn is_of_name(error: &CertificateError) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(error, NotValidForName | NotValidForNameContext { .. })
}

/// Whether a certificate is not valid now.
pub fn is_of_time(error: &CertificateError) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(error, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

/// Whether a certificate is not valid any more.
pub fn is_expired(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Expired | CertificateError::ExpiredContext { .. })
}

/// Whether it is an authority's own. rustls has no name of its own for it.
pub fn is_of_authority(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity"))
}

/// Why a connection to `destination` is none, in words; None for what is no fault of anybody's. `was_known`: whether the relay has ever taken bytes of it.
pub fn refusal(destination: &str, error: FlowError, was_known: bool) -> Option<String> {
    let said = match error {
        FlowError::Ended(codes::MALFORMED) => "the relay does not understand what is asked of it (0x100)".into(),
        FlowError::Ended(codes::FORBIDDEN) => match destination.parse::<SocketAddr>() {
            Ok(address) if NEVER_PORTS.contains(&address.port()) => {
                format!(
                    "the relay does not go to this port (0x101): it must be run with --allow-port {}",
                    address.port()
                )
            }
            Ok(address) => {
                format!("the relay does not go there (0x101): it must be run with --allow {}", address.ip())
            }
            Err(_) => "the relay does not go there (0x101)".into(),
        },
        FlowError::Ended(codes::UNKNOWN_NAME) => "the relay finds no such name (0x102)".into(),
        FlowError::Ended(codes::UNREACHABLE) => "the relay reaches nobody there (0x103)".into(),
        FlowError::Ended(codes::BROKEN) => "the connection between the relay and there broke off (0x104)".into(),
        FlowError::Ended(codes::TOO_MANY) => {
            "this device begins more connections a minute, or has more at once, than the relay takes (0x105)".into()
        }
        // The program itself is told (`connect`).
        FlowError::Ended(codes::REFUSED | codes::TIMED_OUT | codes::NO_HOST | codes::NO_NETWORK) => return None,
        FlowError::Ended(codes::REVOKED) => "the relay has shut this device out (0x106)".into(),
        FlowError::Refused(Refusal::Unknown) if was_known => {
            "the relay no longer has this connection: was it restarted?".into()
        }
        FlowError::Refused(Refusal::Unknown) => {
            return Some("the relay does not know this device, or not by this key: `hoop introduce` it again".into());
        }
        FlowError::Refused(refusal) => format!("the relay refuses it: {refusal:?}"),
        FlowError::Ended(_) | FlowError::Reset(_) | FlowError::Gone => return None,
    };
    Some(format!("{destination}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_told_with_what_to_do() {
        let told = |code| refusal("10.9.1.1:8000", FlowError::Ended(code), false);
        assert_eq!(
            told(codes::FORBIDDEN).unwrap(),
            "10.9.1.1:8000: the relay does not go there (0x101): it must be run with --allow 10.9.1.1"
        );
        assert!(
            refusal("[fd00::1]:1", FlowError::Ended(codes::FORBIDDEN), false).unwrap().ends_with("--allow fd00::1")
        );
        for code in codes::MALFORMED..=codes::REVOKED {
            assert!(told(code).unwrap().contains(&format!("({code:#x})")), "{code}");
        }
        for code in [hoop_endpoint::ended::FINISHED, codes::REFUSED, codes::TIMED_OUT] {
            assert_eq!(told(code), None);
        }
        let unknown = FlowError::Refused(Refusal::Unknown);
        let words = refusal("10.9.1.1:1", unknown, false).unwrap();
        assert_eq!(words, "the relay does not know this device, or not by this key: `hoop introduce` it again");
        assert_ne!(refusal("10.9.1.1:1", unknown, true).unwrap(), words, "a relay that was restarted knows the device");
    }

    #[test]
    fn a_chain_that_is_not_looked_at_is_told_in_words() {
        let why: Box<dyn Error + Send + Sync> = "too many".into();
        let error = CertificateError::Other(rustls::OtherError(why.into()));
        assert_eq!(certificate(&error), "its certificate is not taken: too many");
    }

    #[test]
    fn what_was_said_is_not_said_again_until_256_others_were() {
        let (mut said, mut now) = (Said::default(), Instant::now());
        assert_eq!(said.news("one".into(), now).unwrap(), "one");
        // What comes again and again is said once for each so many others, and these are all said.
        let mut again = 0;
        for number in (0..10 * SAID_MAX).map(|number| number.to_string()) {
            now += Duration::from_secs(1);
            assert_eq!(said.news(number.clone(), now).as_ref(), Some(&number));
            assert_eq!(said.news(number, now), None);
            again += usize::from(said.news("one".into(), now).is_some());
        }
        assert_eq!(again, 10);
    }

    #[test]
    fn in_a_minute_256_sentences_are_said_and_once_that_there_are_more() {
        let (mut said, began) = (Said::default(), Instant::now());
        for minute in 0..3 {
            let now = began + minute * MINUTE;
            let news: Vec<_> = (0..3 * SAID_MAX).filter_map(|n| said.news(format!("{minute}: {n}"), now)).collect();
            assert_eq!((news.len(), &news[SAID_MAX][..]), (SAID_MAX + 1, MORE));
            let last = now + MINUTE - Duration::from_millis(1);
            assert_eq!(said.news("another".into(), last), None);
            assert_eq!(said.words.len(), SAID_MAX + 1, "what is remembered is bounded");
        }
    }
}
