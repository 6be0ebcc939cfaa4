//! What device and server are told of each other before they meet: [`Introduction`] at the device, [`Devices`] at the server.

use hoop_carrier::Pending;
use hoop_endpoint::{DeviceKey, DeviceKeys, HostId};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A device's file about its server (TOML). It holds the device's key: nobody else may read it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Introduction {
    /// The server, `NAME:PORT`: UDP for QUIC and TCP for WebSocket.
    pub server: String,
    /// Where it is, if its name is not to be looked up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Who the device is to this server: 20 octets in hexadecimal.
    pub host: String,
    /// The key that it shares with the server: 32 octets in hexadecimal.
    pub key: String,
    /// The certificates that are trusted, in PEM. Without any, those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// A file is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum IntroductionError {
    /// It cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no TOML, or lacks something.
    #[error("{path} is no introduction: {why}")]
    Form {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A member is malformed.
    #[error("`{0}` is malformed")]
    Member(&'static str),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Dice,
}

impl Introduction {
    /// Reads a device's file.
    ///
    /// # Errors
    /// If it cannot be read, or a member is malformed.
    pub fn read(path: &Path) -> Result<Self, IntroductionError> {
        let introduction: Self = read_toml(path)?;
        introduction.server()?;
        introduction.host()?;
        introduction.key()?;
        Ok(introduction)
    }

    /// The server as a dialler wants it.
    ///
    /// # Errors
    /// If `server` is not `NAME:PORT`.
    pub fn server(&self) -> Result<hoop_carrier::Server, IntroductionError> {
        let (name, port) = self.server.rsplit_once(':').ok_or(IntroductionError::Member("server"))?;
        let port = port.parse().map_err(|_| IntroductionError::Member("server"))?;
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        if name.is_empty() {
            return Err(IntroductionError::Member("server"));
        }
        let addresses = self.addresses.clone();
        Ok(hoop_carrier::Server { name, addresses, quic_port: port, websocket_port: port })
    }

    /// Who the device is.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn host(&self) -> Result<HostId, IntroductionError> {
        octets(&self.host, "host").map(HostId)
    }

    /// The shared key.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn key(&self) -> Result<DeviceKey, IntroductionError> {
        octets(&self.key, "key").map(DeviceKey)
    }

    /// The certificates that are trusted.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn roots(&self) -> Result<RootCertStore, IntroductionError> {
        let mut roots = RootCertStore::empty();
        let Some(pem) = &self.certificate else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return Ok(roots);
        };
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|_| IntroductionError::Member("certificate"))?;
            roots.add(certificate).map_err(|_| IntroductionError::Member("certificate"))?;
        }
        if roots.is_empty() { Err(IntroductionError::Member("certificate")) } else { Ok(roots) }
    }
}

fn octets<const N: usize>(text: &str, member: &'static str) -> Result<[u8; N], IntroductionError> {
    let mut octets = [0; N];
    hex::decode_to_slice(text, &mut octets).map_err(|_| IntroductionError::Member(member))?;
    Ok(octets)
}

fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, IntroductionError> {
    let text = fs::read_to_string(path).map_err(|source| IntroductionError::File { path: path.to_owned(), source })?;
    let form = |error: toml::de::Error| {
        // What is quoted from the file may be a key.
        IntroductionError::Form { path: path.to_owned(), why: error.message().to_owned() }
    };
    toml::from_str(&text).map_err(form)
}

/// A server's file about its devices (TOML): a table `devices` of `HOST = "KEY"`, both in hexadecimal. It is read again when it has changed, so that devices come and go
/// while the server runs.
#[derive(Debug)]
pub struct Devices {
    path: PathBuf,
    read: Mutex<(Option<Print>, BTreeMap<HostId, DeviceKey>)>,
}

/// What tells a file from what it was: its times alone are too coarse for two changes at once.
type Print = (u64, u64, i64, i64);

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DevicesFile {
    #[serde(default)]
    devices: BTreeMap<String, String>,
}

impl DevicesFile {
    fn keys(&self) -> Result<BTreeMap<HostId, DeviceKey>, IntroductionError> {
        let pair = |(host, key): (&String, &String)| {
            Ok((octets(host, "devices").map(HostId)?, octets(key, "devices").map(DeviceKey)?))
        };
        self.devices.iter().map(pair).collect()
    }
}

impl Devices {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or is malformed.
    pub fn open(path: &Path) -> Result<Self, IntroductionError> {
        let devices = Self { path: path.to_owned(), read: Mutex::default() };
        let print = devices.print();
        let keys = read_toml::<DevicesFile>(path)?.keys()?;
        *devices.read.lock().unwrap_or_else(PoisonError::into_inner) = (print, keys);
        Ok(devices)
    }

    fn print(&self) -> Option<Print> {
        let file = fs::metadata(&self.path).ok()?;
        Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    }

    fn find(&self, host: HostId) -> Option<DeviceKey> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let print = self.print();
        if print != read.0 {
            // A file that is not taken is looked at once, until it changes again.
            read.0 = print;
            match read_toml::<DevicesFile>(&self.path).and_then(|file| file.keys()) {
                Ok(keys) => read.1 = keys,
                // Half written, perhaps: who was known stays known.
                Err(error) => tracing::warn!(%error, "the devices' file is not taken"),
            }
        }
        read.1.get(&host).copied()
    }
}

impl DeviceKeys for Devices {
    fn key(&self, host: HostId) -> Pending<'_, Option<DeviceKey>> {
        Box::pin(std::future::ready(self.find(host)))
    }
}

/// Draws who a new device is and its key, adds it to a server's file (which is made if it is not there), and returns what the device is to be told.
///
/// # Errors
/// If the file is malformed or cannot be written.
pub fn introduce(devices: &Path, server: &str, certificate: Option<String>) -> Result<Introduction, IntroductionError> {
    let file = |source| IntroductionError::File { path: devices.to_owned(), source };
    let mut known: DevicesFile = if devices.exists() { read_toml(devices)? } else { DevicesFile::default() };
    known.keys()?;
    let (dice, mut host, mut key) = (SystemRandom::new(), [0; 20], [0; 32]);
    dice.fill(&mut host).and_then(|()| dice.fill(&mut key)).map_err(|_| IntroductionError::Dice)?;
    let (host, key) = (hex::encode(host), hex::encode(key));
    let introduction = Introduction {
        server: server.to_owned(),
        addresses: Vec::new(),
        host: host.clone(),
        key: key.clone(),
        certificate,
    };
    introduction.server()?;
    known.devices.insert(host, key);
    let text = toml::to_string(&known).map_err(|error| file(io::Error::other(error)))?;
    // Whole, or not at all: a server reads it meanwhile.
    let new = devices.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(file)?;
    written.write_all(text.as_bytes()).and_then(|()| written.sync_all()).map_err(file)?;
    fs::rename(&new, devices).map_err(file)?;
    Ok(introduction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_introduced_is_known_at_once_and_others_stay_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        let first = introduce(&path, "relay.example:4669", None).unwrap();
        let devices = Devices::open(&path).unwrap();
        let second = introduce(&path, "[2001:db8::1]:4669", None).unwrap();
        for introduction in [&first, &second] {
            let key = devices.find(introduction.host().unwrap()).unwrap();
            assert_eq!(key.0, introduction.key().unwrap().0);
        }
        assert_eq!(second.server().unwrap().name, "2001:db8::1");
        assert!(devices.find(HostId([0; 20])).is_none());
        fs::write(&path, "devices = 7").unwrap();
        assert!(devices.find(first.host().unwrap()).is_some(), "a file that is being written takes nobody away");
        let third = introduce(&folder.path().join("other.toml"), "relay.example:4669", None).unwrap();
        fs::rename(folder.path().join("other.toml"), &path).unwrap();
        assert!(devices.find(third.host().unwrap()).is_some(), "once it is whole it is taken");
    }

    #[test]
    fn a_malformed_file_is_refused_and_no_key_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device.toml");
        let good = Introduction {
            server: "relay.example:1".into(),
            addresses: Vec::new(),
            host: "0".repeat(40),
            key: "f".repeat(64),
            certificate: None,
        };
        for (bad, member) in [
            (Introduction { server: "relay.example".into(), ..good.clone() }, "server"),
            (Introduction { server: ":1".into(), ..good.clone() }, "server"),
            (Introduction { host: "0".repeat(39), ..good.clone() }, "host"),
            (Introduction { key: "secret".into(), ..good.clone() }, "key"),
        ] {
            fs::write(&path, toml::to_string(&bad).unwrap()).unwrap();
            let error = Introduction::read(&path).unwrap_err().to_string();
            assert!(error.contains(member) && !error.contains("secret"), "{error}");
        }
        fs::write(&path, "key = \"secret").unwrap();
        assert!(!Introduction::read(&path).unwrap_err().to_string().contains("secret"));
        assert!(Introduction { certificate: Some("none".into()), ..good }.roots().is_err());
    }
}
