//! A certificate authority of one's own, and one certificate by it: [`Certificates`].

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::io;
use std::path::{Path, PathBuf};

/// Three PEM files: what clients trust, and what the server shows.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority's certificate, for `--ca`.
    pub authority: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// The server's private key.
    pub key: PathBuf,
}

impl Certificates {
    /// Makes an authority and a certificate for `names`, and writes both into `folder`.
    ///
    /// # Errors
    /// If a file cannot be written or a name is no name.
    pub fn make(folder: &Path, names: &[&str]) -> io::Result<Self> {
        let mut authority = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(rcgen::DnType::CommonName, "The testbed's authority");
        let authority_key = KeyPair::generate().map_err(io::Error::other)?;
        let authority = CertifiedIssuer::self_signed(authority, authority_key).map_err(io::Error::other)?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let server = CertificateParams::new(names).map_err(io::Error::other)?;
        let server = server.signed_by(&key, &authority).map_err(io::Error::other)?;
        let write = |name: &str, pem: &str| -> io::Result<PathBuf> {
            let path = folder.join(name);
            std::fs::write(&path, pem)?;
            Ok(path)
        };
        Ok(Self {
            authority: write("ca.pem", &authority.pem())?,
            certificate: write("certificate.pem", &server.pem())?,
            key: write("key.pem", &key.serialize_pem())?,
        })
    }
}
