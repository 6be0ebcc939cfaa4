//! TLS for carriers: version 1.3 alone, and also 1.2 to web servers in front, by rustls with ring.

use hoop_flow::{Binding, EXPORTER_LABEL};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, kx_group};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ConnectionCommon, RootCertStore, ServerConfig};
use std::io;
use std::sync::Arc;

/// A device's TLS, which trusts these roots; both kinds of carrier take it, and set the protocol (ALPN) themselves.
///
/// # Errors
/// If rustls does not take it.
pub fn device_tls(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    Ok(hoop_tls::trusting(builder, roots).with_no_client_auth())
}

/// A device's TLS towards a web server in front ([`BoundBy::Nonces`](crate::BoundBy::Nonces)), which trusts these roots. Many of those speak no more than version 1.2.
///
/// # Errors
/// If rustls does not take it.
pub fn front_tls(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13, &TLS12])?;
    Ok(hoop_tls::trusting(builder, roots).with_no_client_auth())
}

/// A server's TLS, with its chain of certificates and its key; both kinds of carrier take it, and set the protocol (ALPN) themselves.
///
/// # Errors
/// If certificate and key do not go together.
pub fn server_tls(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    // P-384 takes half a millisecond, and whoever asks chooses: he may be a stranger.
    let provider =
        CryptoProvider { kx_groups: vec![kx_group::X25519, kx_group::SECP256R1], ..ring::default_provider() };
    let builder = ServerConfig::builder_with_provider(provider.into()).with_protocol_versions(&[&TLS13])?;
    builder.with_no_client_auth().with_single_cert(chain, key)
}

/// ring, named outright: no process-wide default is installed.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The binding of a connection whose handshake is complete.
pub(crate) fn exported<Data>(tls: &ConnectionCommon<Data>) -> io::Result<Binding> {
    tls.export_keying_material([0; 32], EXPORTER_LABEL, None).map(Binding).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_looks_at_no_more_certificates_than_a_server_needs() {
        for tls in [device_tls, front_tls] {
            assert!(format!("{:?}", tls(RootCertStore::empty()).unwrap()).contains("ShortChains"));
        }
    }
}
