//! What a server's certificates may cost whoever verifies them: [`trusting`].
//!
//! A server may send a hundred certificates that all name the same issuer. webpki tries each order of them, and verifies up to 100 signatures on the way, each of P-384 in half a millisecond. So there are limits:
//!
//! - Beside its own, a server may send 4 certificates. Real servers send 1 to 3.
//! - Of these at most 8 signatures are verified. The longest chain has 5; the others are for authorities that share a name.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName, SignatureVerificationAlgorithm, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme, WantsVerifier,
};
use std::cell::Cell;
use std::sync::Arc;

/// So many certificates a server may send beside its own.
const INTERMEDIATES_MAX: usize = 4;

/// So many signatures are verified of a server's certificates.
const SIGNATURES_MAX: usize = 8;

thread_local! {
    /// How many signatures may still be verified. None: that was one too many.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The builder of a client that trusts these roots, as by [`ConfigBuilder::with_root_certificates`]. A server may send four certificates besides its own, and eight
/// signatures of them are verified. Beyond that the handshake fails.
pub fn trusting(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    roots: RootCertStore,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let algorithms = builder.crypto_provider().signature_verification_algorithms;
    let counted = algorithms.all.iter().copied().map(Counted).collect();
    let verifier = ShortChains { roots, algorithms, counted };
    builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
}

/// Verifies as rustls does by itself (`WebPkiServerVerifier`), without revocation lists, within the limits.
#[derive(Debug)]
struct ShortChains {
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
    counted: Vec<Counted>,
}

impl ServerCertVerifier for ShortChains {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if intermediates.len() > INTERMEDIATES_MAX {
            return Err(too_much());
        }
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let counted: Vec<&dyn SignatureVerificationAlgorithm> = self.counted.iter().map(|one| one as _).collect();
        LEFT.set(Some(SIGNATURES_MAX));
        let verified =
            verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, &counted);
        if verified.is_err() && LEFT.get().is_none() {
            return Err(too_much());
        }
        verified?;
        verify_server_name(&certificate, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// As text, so that it is there in words however the error is shown.
fn too_much() -> Error {
    let why = format!(
        "the server sends too many certificates: at most {INTERMEDIATES_MAX} besides its own are looked at, and {SIGNATURES_MAX} signatures"
    );
    CertificateError::Other(OtherError(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(why)))).into()
}

/// Fails once no signature is left.
#[derive(Debug)]
struct Counted(&'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for Counted {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        LEFT.set(LEFT.get().and_then(|left| left.checked_sub(1)));
        match LEFT.get() {
            Some(_) => self.0.verify_signature(public_key, message, signature),
            None => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use std::time::SystemTime;

    fn authority(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn server() -> CertificateParams {
        CertificateParams::new(["localhost".to_owned()]).unwrap()
    }

    fn verify(root: CertificateDer<'static>, chain: &[CertificateDer<'_>]) -> Result<ServerCertVerified, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(root).unwrap();
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let verifier =
            ShortChains { roots, algorithms, counted: algorithms.all.iter().copied().map(Counted).collect() };
        let now = UnixTime::since_unix_epoch(SystemTime::UNIX_EPOCH.elapsed().unwrap());
        verifier.verify_server_cert(&chain[0], &chain[1..], &"localhost".try_into().unwrap(), &[], now)
    }

    #[test]
    fn a_chain_with_four_intermediates_is_verified_and_one_with_five_is_not() {
        let key = || KeyPair::generate().unwrap();
        let root = CertifiedIssuer::self_signed(authority("0"), key()).unwrap();
        let (root_der, mut issuer, mut chain) = (root.der().clone(), root, Vec::new());
        for number in 1..=5 {
            issuer = CertifiedIssuer::signed_by(authority(&number.to_string()), key(), &issuer).unwrap();
            chain.insert(0, issuer.der().clone());
            let own = server().signed_by(&key(), &issuer).unwrap();
            let sent = [&[own.der().clone()], &chain[..]].concat();
            match verify(root_der.clone(), &sent) {
                Ok(_) => assert!(number <= 4),
                Err(error) => assert!(number == 5 && error.to_string().contains("too many certificates"), "{error}"),
            }
        }
    }

    /// webpki would verify one signature for each order in which they might be a chain: 65.
    #[test]
    fn four_intermediates_that_all_name_one_authority_cost_eight_signatures() {
        let key = || KeyPair::generate().unwrap();
        let [root, false_root] = [(); 2].map(|()| CertifiedIssuer::self_signed(authority("0"), key()).unwrap());
        let mut sent = vec![server().signed_by(&key(), &false_root).unwrap().der().clone()];
        sent.extend((0..4).map(|_| authority("0").signed_by(&key(), &false_root).unwrap().der().clone()));
        let error = verify(root.der().clone(), &sent).unwrap_err();
        assert!(LEFT.get().is_none() && error.to_string().contains("too many certificates"), "{error}");
    }
}
