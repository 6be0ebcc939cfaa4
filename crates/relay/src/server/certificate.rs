//! What clients are shown: the relay's certificate and key, read and judged.

use super::config::RelayError;
use crate::diagnostics;
use hoop_carrier::{ResetKey, server_tls};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The TLS side of a relay that shows this chain.
pub(crate) fn tls(certificate: &Path, key: &Path) -> Result<rustls::ServerConfig, RelayError> {
    let fail = |path: &Path, why: String| RelayError::Certificate { path: path.to_owned(), why };
    if std::fs::metadata(key).is_ok_and(|key| key.permissions().mode() & 0o002 != 0) {
        return Err(fail(key, "can be written by anybody on this machine: `chmod o-w` it".to_owned()));
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| fail(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(lacks(certificate, "certificate"));
    }
    let private = private_key(key)?;
    if let Some(wrong) = doubt(&chain) {
        tracing::warn!("{}: no device will take it: {wrong}", certificate.display());
    }
    server_tls(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            fail(key, format!("is not the key of the first certificate in {}", certificate.display()))
        }
        error => fail(certificate, error.to_string()),
    })
}

fn lacks(path: &Path, what: &str) -> RelayError {
    let why = format!("holds no {what} (PEM); --tls-cert and --tls-key may be swapped");
    RelayError::Certificate { path: path.to_owned(), why }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, RelayError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => lacks(path, "private key"),
        error => RelayError::Certificate { path: path.to_owned(), why: error.to_string() },
    })
}

/// The same as long as the certificate's key, the address and the machine are. None where the machine has no name: relays of several machines may have one certificate, and must
/// not end each other's connections.
pub(crate) fn reset_key(key: &Path, listen: SocketAddr) -> Result<Option<ResetKey>, RelayError> {
    let private = private_key(key)?;
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let place = format!("{listen} {}", machine.trim());
    Ok((!machine.trim().is_empty()).then(|| ResetKey::derive(private.secret_der(), place.as_bytes())))
}

/// What is wrong with a certificate whoever signed it, and whatever its name: it has expired, or is an authority's.
fn doubt(chain: &[CertificateDer<'static>]) -> Option<String> {
    let error = diagnostics::verify(chain, chain.last().map(std::slice::from_ref)?, "relay.invalid")?;
    let is_for_all = diagnostics::is_of_time(&error) || diagnostics::is_of_authority(&error);
    is_for_all.then(|| diagnostics::certificate(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_http::tls::Renewed;
    use std::sync::Arc;

    /// The certificate that a device is shown which takes any of these.
    fn shown(tls: &rustls::ServerConfig, any: [&CertificateDer<'static>; 2]) -> CertificateDer<'static> {
        let mut roots = rustls::RootCertStore::empty();
        any.into_iter().for_each(|certificate| roots.add(certificate.clone()).unwrap());
        let device = hoop_carrier::device_tls(roots).unwrap();
        let mut device = rustls::ClientConnection::new(Arc::new(device), "localhost".try_into().unwrap()).unwrap();
        let mut relay = rustls::ServerConnection::new(Arc::new(tls.clone())).unwrap();
        let (mut there, mut back) = (Vec::new(), Vec::new());
        device.write_tls(&mut there).unwrap();
        relay.read_tls(&mut &there[..]).unwrap();
        relay.process_new_packets().unwrap();
        while relay.wants_write() {
            relay.write_tls(&mut back).unwrap();
        }
        device.read_tls(&mut &back[..]).unwrap();
        device.process_new_packets().unwrap();
        device.peer_certificates().expect("it was shown one")[0].clone().into_owned()
    }

    #[test]
    fn a_renewed_certificate_is_shown_once_its_key_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let make = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (first, second) = (make(), make());
        let shown = |tls| shown(tls, [first.cert.der(), second.cert.der()]);
        std::fs::write(&certificate, first.cert.pem()).unwrap();
        std::fs::write(&key, first.signing_key.serialize_pem()).unwrap();
        let (files, tls) = Renewed::open(&certificate, &key, tls).unwrap();
        assert_eq!(shown(&tls), *first.cert.der());
        // A name is moved to another file, as is done for a renewal: its length may be the same.
        let renew = |path: &Path, pem: String| {
            let new = folder.path().join("new.pem");
            std::fs::write(&new, pem).unwrap();
            std::fs::rename(new, path).unwrap();
            files.look()
        };
        assert!(renew(&certificate, second.cert.pem()).is_err());
        assert_eq!(shown(&tls), *first.cert.der(), "its key is not there yet");
        assert!(renew(&key, second.signing_key.serialize_pem()).is_ok());
        assert_eq!(shown(&tls), *second.cert.der());
        assert!(renew(&certificate, String::new()).is_err());
        assert_eq!(shown(&tls), *second.cert.der(), "a file that holds none takes none away");
    }

    #[test]
    fn a_certificate_of_no_use_is_doubted_and_a_wrong_pair_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let make = |name: &str, change: &dyn Fn(&mut rcgen::CertificateParams)| {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            change(&mut params);
            let key = rcgen::KeyPair::generate().unwrap();
            let signed = params.self_signed(&key).unwrap();
            std::fs::write(path(name), signed.pem()).unwrap();
            std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
            doubt(&[signed.der().clone()])
        };
        assert_eq!(make("good", &|_| {}), None);
        assert_eq!(make("other", &|_| {}), None);
        let old = make("old", &|params| {
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(2019, 1, 1), rcgen::date_time_ymd(2020, 1, 1));
        });
        assert_eq!(old.unwrap(), "its certificate has expired");
        let authority = make("ca", &|params| params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
        assert!(authority.unwrap().contains("CA:TRUE"));
        let wrong = |certificate, key| tls(&path(certificate), &path(key)).unwrap_err().to_string();
        assert!(tls(&path("good"), &path("good.key")).is_ok());
        assert!(
            wrong("good.key", "good")
                .contains("good.key: holds no certificate (PEM); --tls-cert and --tls-key may be swapped")
        );
        assert!(
            wrong("good", "other")
                .contains("other: holds no private key (PEM); --tls-cert and --tls-key may be swapped")
        );
        assert!(wrong("good", "other.key").contains("is not the key of the first certificate in"));
    }
}
