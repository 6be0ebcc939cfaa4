//! A local authority, by which browsers take the agent for the hosts that are entrusted to the relay: [`Authority`].
//!
//! Its certificate names those hosts in its name constraints (RFC 5280 §4.2.1.10), so that nothing else can be made with its key that a browser would believe: no other host, and no address.
//!
//! Bounds: certificates of [`HOSTS_MAX`] hosts are kept.

use crate::entrusted::{EntrustedHost, NoHost};
use hoop_units::UnixTime;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use time::OffsetDateTime;

/// How long it is good for. Browsers take certificates of hosts for 398 days at most.
const DAYS: u32 = 365;

/// People are told of its end so many days before.
const WARNED_DAYS: u32 = 30;

/// Programs' clocks may be late by so much, in seconds.
const EARLIER: u32 = 24 * 3_600;

/// The longest name of a certificate's owner (RFC 5280, `ub-common-name`).
const NAME_MAX: usize = 64;

/// More hosts are seldom entrusted; then their certificates are made anew.
const HOSTS_MAX: usize = 256;

/// An authority as its file has it (TOML). It holds the key: nobody else may read it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorityFile {
    /// What it is called, in browsers' lists.
    name: String,
    /// The hosts that it is for, with all below them.
    hosts: Vec<String>,
    /// From when to when it is good, in seconds since 1970.
    from: u32,
    until: u32,
    /// Its key, in PEM.
    key: String,
}

/// A file is none of an authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A host.
    #[error("{0}: {1}")]
    Host(String, NoHost),
    /// Its key, or what is made with it.
    #[error("the authority cannot be used: {0}")]
    Key(#[from] rcgen::Error),
    /// TLS takes nothing of it.
    #[error("the authority cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// Its time is over.
    #[error(
        "the year of the authority is over, and no host of it is entrusted: make a new one with `hoop agent trust`"
    )]
    Expired,
}

impl fmt::Debug for AuthorityFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityFile").field("name", &self.name).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl AuthorityFile {
    /// A new one, for these hosts, good for a year; and its certificate, in PEM, for browsers.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new(name: &str, hosts: &[EntrustedHost], now: UnixTime) -> Result<(Self, String), AuthorityError> {
        let key = KeyPair::generate()?;
        let (from, until) = (now.0.saturating_sub(EARLIER), now.plus_secs(DAYS * 24 * 3_600).0);
        let hosts = hosts.iter().map(EntrustedHost::to_string).collect();
        let name = name.chars().take(NAME_MAX).collect();
        let file = Self { name, hosts, from, until, key: key.serialize_pem() };
        let certificate = params(&file, &file.hosts()?)?.self_signed(&key)?.pem();
        Ok((file, certificate))
    }

    /// What the time is, as the machine has it.
    pub fn now() -> UnixTime {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        UnixTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
    }

    fn hosts(&self) -> Result<Vec<EntrustedHost>, AuthorityError> {
        let parse = |host: &String| host.parse().map_err(|error| AuthorityError::Host(host.clone(), error));
        self.hosts.iter().map(parse).collect()
    }
}

/// What the authority's own certificate says.
fn params(file: &AuthorityFile, hosts: &[EntrustedHost]) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, &*file.name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let any_v4 = GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4]));
    let any_v6 = GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16]));
    let names: BTreeSet<_> = hosts.iter().map(EntrustedHost::name).collect();
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: names.into_iter().map(|name| GeneralSubtree::DnsName(name.to_owned())).collect(),
        excluded_subtrees: vec![any_v4, any_v6],
    });
    (params.not_before, params.not_after) = (date(file.from), date(file.until));
    Ok(params)
}

fn date(seconds: u32) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds.into()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Shows programs certificates of entrusted hosts.
pub struct Authority {
    hosts: Vec<EntrustedHost>,
    /// When it ends to be good.
    until: UnixTime,
    /// When its certificate begins and ends to be good: those of hosts, too.
    times: [OffsetDateTime; 2],
    issuer: Issuer<'static, KeyPair>,
    shown: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Authority {
    /// As its file says.
    ///
    /// # Errors
    /// If the file is damaged, or its year is over.
    pub fn open(file: &AuthorityFile, now: UnixTime) -> Result<Self, AuthorityError> {
        let hosts = file.hosts()?;
        let params = params(file, &hosts)?;
        let times = [params.not_before, params.not_after];
        let issuer = Issuer::new(params, KeyPair::from_pem(&file.key)?);
        let authority = Self { hosts, until: UnixTime(file.until), times, issuer, shown: Mutex::default() };
        if authority.days_left(now).is_none() { Err(AuthorityError::Expired) } else { Ok(authority) }
    }

    /// The hosts that it is for.
    pub fn hosts(&self) -> &[EntrustedHost] {
        &self.hosts
    }

    /// For how many more days it is good. None: its year is over.
    fn days_left(&self, now: UnixTime) -> Option<u32> {
        self.until.0.checked_sub(now.0).filter(|left| *left > 0).map(|left| left / (24 * 3_600))
    }

    /// Whether programs may be shown certificates now. `tell` gets what people should know of its end.
    pub(crate) fn is_good(&self, now: UnixTime, tell: impl FnOnce(String)) -> bool {
        match self.days_left(now) {
            None => tell(AuthorityError::Expired.to_string()),
            Some(days) if days < WARNED_DAYS => {
                let left = match days {
                    0 => "ends within a day".to_owned(),
                    1 => "is good for 1 more day".to_owned(),
                    days => format!("is good for {days} more days"),
                };
                tell(format!("the authority {left}: make a new one with `hoop agent trust`, and import it"));
            }
            Some(_) => {}
        }
        self.days_left(now).is_some()
    }

    /// How TLS is spoken as this host.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub(crate) fn speak_as(&self, host: &str) -> Result<Arc<ServerConfig>, AuthorityError> {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if let Some(shown) = self.shown.lock().get(&host) {
            return Ok(shown.clone());
        }
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![host.clone()])?;
        params.distinguished_name.push(DnType::CommonName, "hoop agent");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        [params.not_before, params.not_after] = self.times;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())?;
        config.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).to_vec();
        let (config, mut shown) = (Arc::new(config), self.shown.lock());
        if shown.len() >= HOSTS_MAX {
            shown.clear();
        }
        shown.insert(host, config.clone());
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    #[test]
    fn an_authority_is_good_for_a_year() {
        let (file, certificate) = AuthorityFile::new("a", &["a.example".parse().unwrap()], NOW).unwrap();
        assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        assert_eq!(Authority::open(&file, NOW).unwrap().hosts()[0].name(), "a.example");
        let later = UnixTime(NOW.0 + 366 * 24 * 3_600);
        assert!(matches!(Authority::open(&file, later), Err(AuthorityError::Expired)));
        for (days, is_good, words) in [
            (0, true, ""),
            (334, true, ""),
            (336, true, "good for 29 more days"),
            (364, true, "is good for 1 more day:"),
            (366, false, "the year of the authority is over"),
        ] {
            let (authority, mut told) = (Authority::open(&file, NOW).unwrap(), String::new());
            let now = UnixTime(NOW.0 + days * 24 * 3_600);
            assert_eq!(authority.is_good(now, |words| told = words), is_good, "{days}");
            assert!(told.contains(words) && told.is_empty() == words.is_empty(), "{days}: {told}");
        }
        let damaged = AuthorityFile { key: "no key".to_owned(), ..file };
        assert!(matches!(Authority::open(&damaged, NOW), Err(AuthorityError::Key(_))));
    }

    #[test]
    fn certificates_of_a_bounded_number_of_hosts_are_kept() {
        let (file, _) = AuthorityFile::new("a", &["a.example".parse().unwrap()], NOW).unwrap();
        let authority = Authority::open(&file, NOW).unwrap();
        for host in 0..=HOSTS_MAX {
            authority.speak_as(&format!("h{host}.a.example")).unwrap();
            assert!(authority.shown.lock().len() <= HOSTS_MAX);
        }
    }
}
