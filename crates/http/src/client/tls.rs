//! TLS by rustls with ring, for both sides; HTTP/1.1 is the one protocol offered.

use crate::process::apart::apart;
use crate::process::current::Current;
use crate::process::shutdown::Shutdown;
use hoop_files::Print;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A certificate or its key was changed, and cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the certificate was changed and is not taken: {0}")]
pub struct NotRenewed(String);

/// TLS could not be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file could not be read.
    #[error("cannot read {what} from {}: {source}", path.display())]
    Pem {
        /// What was to be in the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// The file has no certificate.
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    /// Certificate and key do not go together, or rustls does not take them.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The client side: trusts the system's certificate store (Mozilla's, built in, where the system has none) and
/// besides it the certificates in the PEM files `extra`.
///
/// # Errors
/// If a file cannot be read or holds no certificate.
pub fn client_config(extra: &[PathBuf]) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for path in extra {
        for certificate in certificates(path)? {
            roots.add(certificate)?;
        }
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = hoop_tls::trusting(builder, roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The server side, with a certificate chain and its key from PEM files.
///
/// # Errors
/// If a file cannot be read, or the two do not go together.
pub fn server_config(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(pem_error("a private key", key))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// A server's certificate that follows its files: what clients are shown is what the files hold, and the last that could be taken while they hold none that can.
pub struct Renewed {
    certificate: PathBuf,
    key: PathBuf,
    load: Box<Load>,
    shown: Current<Shown>,
}

/// How often it is looked whether a certificate was renewed.
const LOOK_EVERY: Duration = Duration::from_secs(60);

type Load = dyn Fn(&Path, &Path) -> Result<ServerConfig, String> + Send + Sync;

/// What the files were when they were read, and what they held.
type Shown = ([Option<Print>; 2], Arc<dyn ResolvesServerCert>);

impl Renewed {
    /// Reads both files by `load`, such as [`server_config`], and makes a configuration of them that follows what they become.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn open<E: fmt::Display>(
        certificate: &Path,
        key: &Path,
        load: impl Fn(&Path, &Path) -> Result<ServerConfig, E> + Send + Sync + 'static,
    ) -> Result<(Arc<Self>, ServerConfig), E> {
        let prints = [certificate, key].map(Print::of);
        let mut config = load(certificate, key)?;
        let renewed = Arc::new(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            load: Box::new(move |certificate, key| load(certificate, key).map_err(|error| error.to_string())),
            shown: Current::new((prints, config.cert_resolver.clone())),
        });
        config.cert_resolver = renewed.clone();
        Ok((renewed, config))
    }

    /// Reads the files if they are others than they were. It may wait for a disk.
    ///
    /// # Errors
    /// If they cannot be used: what was shown before still is.
    pub fn look(&self) -> Result<(), NotRenewed> {
        let prints = [&self.certificate, &self.key].map(|path| Print::of(path));
        if self.shown.get().0 == prints {
            return Ok(());
        }
        match (self.load)(&self.certificate, &self.key) {
            Ok(config) => {
                self.shown.set((prints, config.cert_resolver));
                tracing::info!("the certificate was renewed");
                Ok(())
            }
            // One of both may be still to come; they are looked at again.
            Err(error) => {
                tracing::warn!(error, "the certificate was changed and is not taken");
                Err(NotRenewed(error))
            }
        }
    }

    /// Looks once a minute until `shutdown`: certificates are renewed weeks before the old ones expire. While a look waits for its disk, no other begins.
    pub async fn follow(self: Arc<Self>, mut shutdown: Shutdown) {
        let looks = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                // The log says what is wrong, and it is looked again.
                let _ = self.look_apart().await;
            }
        };
        tokio::select! {
            () = looks => {}
            () = shutdown.requested() => {}
        }
    }

    /// The same on a thread of its own ([`apart`]). It looks also if nobody waits for what comes of it.
    ///
    /// # Errors
    /// Those of [`Self::look`]; if there is no thread.
    pub fn look_apart(self: &Arc<Self>) -> impl Future<Output = Result<(), NotRenewed>> + Send + 'static {
        let renewed = self.clone();
        let looked = apart(move || renewed.look());
        async move {
            looked.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the certificate cannot be looked at");
                Err(NotRenewed(error.to_string()))
            })
        }
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown.get().1.resolve(hello)
    }
}

impl fmt::Debug for Renewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// ring, named outright: no process-wide default is installed.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(pem_error("certificates", path))?;
    match chain.is_empty() {
        true => Err(TlsError::NoCertificate(path.to_owned())),
        false => Ok(chain),
    }
}

fn pem_error(what: &'static str, path: &Path) -> impl FnOnce(rustls::pki_types::pem::Error) -> TlsError {
    let path = path.to_owned();
    move |source| TlsError::Pem { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc;

    #[test]
    fn a_client_looks_at_no_more_certificates_than_a_server_needs() {
        assert!(format!("{:?}", client_config(&[]).unwrap()).contains("ShortChains"));
    }

    /// Whoever had a server's threads wait for a slow disk kept its old certificate there.
    #[test]
    fn a_certificate_is_renewed_while_all_other_threads_wait_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let renew = || {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
            for (path, pem) in [(&certificate, made.cert.pem()), (&key, made.signing_key.serialize_pem())] {
                fs::write(folder.path().join("new"), pem).unwrap();
                fs::rename(folder.path().join("new"), path).unwrap();
            }
        };
        renew();
        let (renewed, _) = Renewed::open(&certificate, &key, server_config).unwrap();
        let before = renewed.shown.get();
        renew();
        let (goes_on, disk) = mpsc::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
        let looked = runtime.unwrap().block_on(async {
            tokio::task::spawn_blocking(move || disk.recv());
            let looked = tokio::time::timeout(Duration::from_secs(30), renewed.look_apart()).await;
            drop(goes_on);
            looked
        });
        looked.expect("it looks").unwrap();
        assert_ne!(renewed.shown.get().0, before.0);
    }
}
