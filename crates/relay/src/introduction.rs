//! What device and server are told of each other before they meet: [`Introduction`] at the device, [`Devices`] at the server.

use crate::diagnostics;
use hoop_carrier::{FrontAddress, Pending, WEBSOCKET_PATH};
use hoop_endpoint::{DeviceId, DeviceKey, DeviceKeys};
use hoop_files::{Print, settled};
use hoop_http::{Lines, apart};
use hoop_units::{NoPrefix, Prefix};
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

/// A device's file about its server (TOML). It holds the device's key: nobody else may read it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Introduction {
    /// The server, `NAME:PORT`: UDP for QUIC and TCP for WebSocket.
    pub server: String,
    /// Where it is, if its name is not to be looked up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Who the device is to this server: 20 bytes in hexadecimal.
    pub host: String,
    /// The key that it shares with the server: 32 bytes in hexadecimal.
    pub key: String,
    /// The certificates that are trusted, in PEM. Without any, those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Where a web server stands in front of the relay, which ends TLS and passes WebSockets on: `wss://NAME[:PORT][/PATH]`. Without a path, [`WEBSOCKET_PATH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<String>,
    /// The certificates that are trusted of it, in PEM. Without any, those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_certificate: Option<String>,
}

/// A web server in front of a relay, as a device's file names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Front {
    /// Where it is.
    pub address: FrontAddress,
    /// The path of the WebSocket there.
    pub path: String,
}

impl FromStr for Front {
    type Err = NoFront;

    fn from_str(text: &str) -> Result<Self, NoFront> {
        let uri: http::Uri = text.parse().map_err(|_| NoFront)?;
        let (Some("wss"), Some(authority), None) = (uri.scheme_str(), uri.authority(), uri.query()) else {
            return Err(NoFront);
        };
        let with_port = if authority.port().is_some() { authority.to_string() } else { format!("{authority}:443") };
        let (name, port) = name_and_port(&with_port).ok_or(NoFront)?;
        let path = if uri.path() == "/" { WEBSOCKET_PATH } else { uri.path() };
        Ok(Self { address: FrontAddress { name, port }, path: path.to_owned() })
    }
}

/// A text names no web server in front of a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("write wss://NAME[:PORT][/PATH], such as wss://www.example/.well-known/hoop-flow")]
pub struct NoFront;

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
    #[error("{path} is malformed: {why}")]
    Form {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It is the file of the other end.
    #[error("{path} is {is}; what is wanted here is {wanted}")]
    Kind {
        /// Which.
        path: PathBuf,
        /// What it is.
        is: &'static str,
        /// What it is not.
        wanted: &'static str,
    },
    /// What a device may go to alone is no network.
    #[error("`only` has `{network}`: {why}")]
    Only {
        /// What stands there.
        network: String,
        /// What is wanted.
        why: NoPrefix,
    },
    /// No server is named.
    #[error("`{0}` is no NAME:PORT; for example relay.example:4669")]
    Server(String),
    /// What stands in front of the server has no such address.
    #[error("`front`: {0}")]
    Front(#[from] NoFront),
    /// What is to be trusted is no certificate.
    #[error("what the device is to trust {0}")]
    Certificate(String),
    /// What is to be trusted is the certificate of a server of another name.
    #[error("no device would take {name} for what it is: {why}")]
    Misfit {
        /// The server's name.
        name: String,
        /// What the certificate is for.
        why: String,
    },
    /// Another device has the name.
    #[error("{path} has another device called {name}: choose another name")]
    Name {
        /// Where.
        path: PathBuf,
        /// Which.
        name: String,
    },
    /// Anybody may write to a file that says who is let in, or whom a device relies on.
    #[error(
        "{path} can be written by anybody on this machine (mode {mode:o}): `chmod o-w` it, and see that nothing was put into it"
    )]
    Writable {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A member is malformed.
    #[error("`{0}` is malformed")]
    Member(&'static str),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Rng,
}

impl Introduction {
    /// Reads a device's file.
    ///
    /// # Errors
    /// If it cannot be read, or a member is malformed.
    pub fn read(path: &Path) -> Result<Self, IntroductionError> {
        let introduction: Self = read_toml(path, INTRODUCTION)?;
        introduction.server()?;
        introduction.host()?;
        introduction.key()?;
        introduction.front()?;
        Ok(introduction)
    }

    /// The server as a dialler wants it.
    ///
    /// # Errors
    /// If `server` is not `NAME:PORT`.
    pub fn server(&self) -> Result<hoop_carrier::ServerAddress, IntroductionError> {
        let (name, port) = name_and_port(&self.server).ok_or_else(|| IntroductionError::Server(self.server.clone()))?;
        let addresses = self.addresses.clone();
        let front = self.front()?.map(|front| front.address);
        Ok(hoop_carrier::ServerAddress { name, addresses, quic_port: port, websocket_port: port, front })
    }

    /// The web server in front, if there is one.
    ///
    /// # Errors
    /// If its address is malformed.
    pub fn front(&self) -> Result<Option<Front>, IntroductionError> {
        Ok(self.front.as_deref().map(str::parse).transpose()?)
    }

    /// Who the device is.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn host(&self) -> Result<DeviceId, IntroductionError> {
        bytes(&self.host, "host").map(DeviceId)
    }

    /// The shared key.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn key(&self) -> Result<DeviceKey, IntroductionError> {
        bytes(&self.key, "key").map(DeviceKey)
    }

    /// The certificates that are trusted.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn roots(&self) -> Result<RootCertStore, IntroductionError> {
        roots(self.certificate.as_deref(), "certificate")
    }

    /// The certificates that are trusted of the web server in front.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn front_roots(&self) -> Result<RootCertStore, IntroductionError> {
        roots(self.front_certificate.as_deref(), "front_certificate")
    }
}

/// An error if all that is trusted are servers' own certificates, and each is for another name or has expired: no authority is among them that could have signed another.
fn fits(certificate: Option<&str>, name: &str) -> Result<(), IntroductionError> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(certificate.unwrap_or_default().as_bytes()).flatten().collect();
    let is_wrong = |error: &_| diagnostics::is_of_name(error) || diagnostics::is_expired(error);
    let wrong = |own| diagnostics::verify(std::slice::from_ref(own), &certificates, name).filter(is_wrong);
    let wrong: Vec<_> = certificates.iter().map_while(wrong).collect();
    match wrong.first() {
        Some(error) if wrong.len() == certificates.len() => {
            Err(IntroductionError::Misfit { name: name.to_owned(), why: diagnostics::certificate(error) })
        }
        _ => Ok(()),
    }
}

/// The certificates of a member, or those of the system.
fn roots(pem: Option<&str>, member: &'static str) -> Result<RootCertStore, IntroductionError> {
    let mut roots = RootCertStore::empty();
    let Some(pem) = pem else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| IntroductionError::Member(member))?;
        roots.add(certificate).map_err(|_| IntroductionError::Member(member))?;
    }
    if roots.is_empty() { Err(IntroductionError::Member(member)) } else { Ok(roots) }
}

/// A host's name or address, an IPv6 address in its brackets, and a port.
fn name_and_port(server: &str) -> Option<(String, u16)> {
    let (name, port) = server.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    if let Some(address) = name.strip_prefix('[') {
        let address = address.strip_suffix(']')?;
        return address.parse::<Ipv6Addr>().ok().map(|_| (address.to_owned(), port));
    }
    let is_name = !name.contains(':') && ServerName::try_from(name).is_ok();
    is_name.then(|| (name.to_owned(), port))
}

/// The certificates of a PEM file, and nothing of what stands between them: a file with anything else may be the one that holds the key.
fn certificates_alone(pem: &str) -> Result<String, IntroductionError> {
    let fail = |why: &str| IntroductionError::Certificate(why.to_owned());
    let (mut certificates, mut is_within) = (String::new(), false);
    for line in pem.lines().map(str::trim) {
        if let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|line| line.strip_suffix("-----")) {
            if label != "CERTIFICATE" {
                return Err(IntroductionError::Certificate(format!("holds a {label}; give a certificate alone")));
            }
            is_within = true;
        }
        if is_within {
            certificates.extend([line, "\n"]);
        }
        is_within &= line != "-----END CERTIFICATE-----";
    }
    if certificates.is_empty() {
        return Err(fail("holds no certificate (PEM)"));
    }
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(certificates.as_bytes()) {
        roots.add(certificate.map_err(|_| fail("is malformed PEM"))?).map_err(|_| fail("is no certificate"))?;
    }
    if is_within || roots.is_empty() { Err(fail("is malformed PEM")) } else { Ok(certificates) }
}

fn bytes<const N: usize>(text: &str, member: &'static str) -> Result<[u8; N], IntroductionError> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| IntroductionError::Member(member))?;
    Ok(bytes)
}

const INTRODUCTION: &str = "what a device was told of its server (`hoop introduce` prints it)";
const DEVICES: &str = "a server's file of devices (`--devices`)";

fn read_toml<T: serde::de::DeserializeOwned>(path: &Path, wanted: &'static str) -> Result<T, IntroductionError> {
    refuse_writable(path)?;
    let text = fs::read_to_string(path).map_err(|source| IntroductionError::File { path: path.to_owned(), source })?;
    let has = |members: &[&str]| {
        let table = text.parse::<toml::Table>().unwrap_or_default();
        members.iter().all(|member| table.contains_key(*member))
    };
    let is = [(INTRODUCTION, has(&["host", "key"])), (DEVICES, has(&["devices"]))];
    if let Some((is, _)) = is.into_iter().find(|(is, found)| *found && *is != wanted) {
        return Err(IntroductionError::Kind { path: path.to_owned(), is, wanted });
    }
    let form = |error: toml::de::Error| {
        // What is quoted from the file may be a key.
        IntroductionError::Form { path: path.to_owned(), why: error.message().to_owned() }
    };
    toml::from_str(&text).map_err(form)
}

/// A server's file of devices (TOML). `devices` maps `HOST = "KEY"`, both in hexadecimal. `names` (optional) maps `HOST = "NAME"`, for people. `only` (optional) maps
/// `HOST = ["10.9.2.0/24", …]`, and limits that device to these networks. The file is read again when it changes, on a thread of its own ([`apart`]), once for all who ask.
#[derive(Debug)]
pub struct Devices {
    file: Arc<Keys>,
    /// Who looks has it.
    looking: Arc<tokio::sync::Mutex<Looks>>,
}

/// When the last look at a file began, and how many there were.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    began: Option<Instant>,
    count: u64,
}

/// How long a device that is known waits for a look at the file: longer than one takes after the file was changed once. What is found later holds later.
const KNOWN_WAITS: Duration = Duration::from_millis(400);

/// The file is looked at no more often: a flood of strangers costs a hundred looks a second, and whoever opens a flow meanwhile waits no longer than this.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What is known of the file.
#[derive(Debug)]
struct Keys {
    path: PathBuf,
    read: Mutex<(Option<Print>, Rules)>,
    /// Who stood in the file at earlier looks, since that was [asked](Devices::take_earlier).
    earlier: Mutex<BTreeMap<DeviceId, Rule>>,
    /// Whether the rules are those that the file had when it was last looked at.
    is_taken: AtomicBool,
}

/// What the file says of one device.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    key: DeviceKey,
    /// Where it may go alone, if it may not go wherever the relay goes.
    only: Option<Vec<Prefix>>,
}

impl Rule {
    /// Whether the device is the same, and may go wherever it might by another rule.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let goes = match (&self.only, &other.only) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(now), Some(before)) => before.iter().all(|network| now.contains(network)),
        };
        goes && self.key.0 == other.key.0
    }
}

/// Who is known, and where some of them may go alone.
#[derive(Clone, Default, Debug)]
struct Rules {
    keys: BTreeMap<DeviceId, DeviceKey>,
    only: BTreeMap<DeviceId, Vec<Prefix>>,
}

impl Rules {
    fn of_devices(&self) -> BTreeMap<DeviceId, Rule> {
        let rule =
            |(host, key): (&DeviceId, &DeviceKey)| (*host, Rule { key: *key, only: self.only.get(host).cloned() });
        self.keys.iter().map(rule).collect()
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DevicesFile {
    #[serde(default)]
    devices: BTreeMap<String, String>,
    /// What devices are called, for those who look after the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    names: BTreeMap<String, String>,
    /// Addresses and networks that a device may go to alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    only: BTreeMap<String, Vec<String>>,
}

impl DevicesFile {
    fn rules(&self) -> Result<Rules, IntroductionError> {
        let pair = |(host, key): (&String, &String)| {
            Ok((bytes(host, "devices").map(DeviceId)?, bytes(key, "devices").map(DeviceKey)?))
        };
        let only = |(host, networks): (&String, &Vec<String>)| {
            let networks = networks.iter().map(|network| {
                network.parse::<Prefix>().map_err(|why| IntroductionError::Only { network: network.clone(), why })
            });
            Ok((bytes(host, "only").map(DeviceId)?, networks.collect::<Result<_, _>>()?))
        };
        let keys = self.devices.iter().map(pair).collect::<Result<_, IntroductionError>>()?;
        Ok(Rules { keys, only: self.only.iter().map(only).collect::<Result<_, IntroductionError>>()? })
    }
}

fn rules(path: &Path) -> Result<Rules, IntroductionError> {
    read_toml::<DevicesFile>(path, DEVICES)?.rules()
}

/// Such a file says who is let in, or whom a device relies on: so nobody but its owner and its group may have written it.
fn refuse_writable(path: &Path) -> Result<(), IntroductionError> {
    let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode() & 0o7777);
    match mode & 0o002 {
        0 => Ok(()),
        _ => Err(IntroductionError::Writable { path: path.to_owned(), mode }),
    }
}

impl Devices {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or is malformed.
    pub fn open(path: &Path) -> Result<Self, IntroductionError> {
        let print = Print::of(path);
        let rules = rules(path)?;
        let file = Arc::new(Keys {
            path: path.to_owned(),
            read: Mutex::new((print, rules)),
            earlier: Mutex::default(),
            is_taken: AtomicBool::new(true),
        });
        Ok(Self { file, looking: Arc::default() })
    }

    /// Who stood in the file when it was last looked at.
    pub(crate) fn known(&self) -> BTreeMap<DeviceId, Rule> {
        self.file.read.lock().1.of_devices()
    }

    /// Who stood in the file at earlier looks since this was called last, and may have come and gone between two calls.
    pub(crate) fn take_earlier(&self) -> BTreeMap<DeviceId, Rule> {
        std::mem::take(&mut *self.file.earlier.lock())
    }

    /// Where a device may go, by the file as it was last looked at; none: wherever the relay goes. Whoever is known no more goes nowhere: it may have come before it was taken out.
    pub(crate) fn only(&self, host: DeviceId) -> Option<Vec<Prefix>> {
        let rules = &self.file.read.lock().1;
        match rules.keys.contains_key(&host) {
            true => rules.only.get(&host).cloned(),
            false => Some(Vec::new()),
        }
    }

    /// Whether what the file said when it was last looked at is what holds.
    pub(crate) fn are_taken(&self) -> bool {
        self.file.is_taken.load(Ordering::Relaxed)
    }

    /// Looks at the file, unless somebody has done so since this was called.
    pub(crate) async fn look(&self) {
        let asked = Instant::now();
        let looking = self.looking.clone().lock_owned().await;
        if looking.began.is_some_and(|began| began >= asked) {
            return;
        }
        let rested = looking.began.map_or(Duration::ZERO, |began| LOOK_EVERY.saturating_sub(began.elapsed()));
        tokio::time::sleep(rested).await;
        self.look_apart(looking).await;
    }

    /// Looks at the file for who is known already, and may stand there otherwise now. It waits for no long one.
    async fn look_for_known(&self) {
        // Somebody looks.
        let Ok(looking) = self.looking.clone().try_lock_owned() else { return };
        if looking.began.is_none_or(|began| began.elapsed() >= LOOK_EVERY) {
            let _ = timeout(KNOWN_WAITS, self.look_apart(looking)).await;
        }
    }

    /// Looks, also if nobody waits for it any more. The next look waits until this one is over.
    async fn look_apart(&self, mut looking: OwnedMutexGuard<Looks>) {
        static LINES: Lines = Lines::new();
        let (began, file) = (Instant::now(), self.file.clone());
        let looked = tokio::spawn(async move {
            match apart(move || file.look()).await {
                Ok(()) => *looking = Looks { began: Some(began), count: looking.count + 1 },
                // The next who asks tries again.
                Err(error) => LINES.warn("the devices' file cannot be looked at", &error),
            }
        });
        let _ = looked.await;
    }
}

impl Keys {
    /// Reads the file if it is another than it was, once nobody writes it any more: what has come of it may be well-formed, and lack the `only` of devices that it has.
    fn look(&self) {
        // Nobody who asks what is known waits for the disk.
        let print = Print::of(&self.path);
        if self.read.lock().0 == print {
            return;
        }
        if settled(&self.path).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            return tracing::warn!("the devices' file is being written, and not taken yet");
        }
        // A file that is not taken is looked at once, until it changes again.
        let print = Print::of(&self.path);
        self.read.lock().0 = print;
        let read = rules(&self.path);
        self.is_taken.store(read.is_ok(), Ordering::Relaxed);
        match read {
            Ok(rules) => {
                let before = std::mem::replace(&mut self.read.lock().1, rules).of_devices();
                let mut earlier = self.earlier.lock();
                for (host, rule) in before {
                    earlier.entry(host).or_insert(rule);
                }
            }
            // Half written, perhaps: who was known stays known.
            Err(error) => tracing::warn!(%error, "the devices' file is not taken"),
        }
    }

    fn knows(&self, host: DeviceId) -> bool {
        self.read.lock().1.keys.contains_key(&host)
    }

    fn find(&self, host: DeviceId) -> Option<DeviceKey> {
        let key = self.read.lock().1.keys.get(&host).copied();
        if key.is_none() {
            tracing::debug!(host = hex::encode(host.0), "a device that is not in the file of devices");
        }
        key
    }
}

impl DeviceKeys for Devices {
    fn key(&self, host: DeviceId) -> Pending<'_, Option<DeviceKey>> {
        Box::pin(async move {
            match self.file.knows(host) {
                true => self.look_for_known().await,
                false => self.look().await,
            }
            self.file.find(host)
        })
    }
}

/// A device that is to be introduced: what it is told of its server, and how it is kept in the server's file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NewDevice<'a> {
    /// The server, `NAME:PORT`.
    pub server: &'a str,
    /// See [`Introduction::addresses`].
    pub addresses: Vec<IpAddr>,
    /// See [`Introduction::certificate`].
    pub certificate: Option<String>,
    /// See [`Introduction::front`].
    pub front: Option<String>,
    /// See [`Introduction::front_certificate`].
    pub front_certificate: Option<String>,
    /// What it is called in the server's file.
    pub name: Option<&'a str>,
    /// Whose the server's file becomes, user and group, which takes root. None: it stays whose it is, or becomes yours.
    pub owner: Option<(u32, u32)>,
}

/// [`NewDevice::introduce`] for a device without a name, and a server without anything in front.
///
/// # Errors
/// As there.
pub fn introduce(devices: &Path, server: &str, certificate: Option<String>) -> Result<Introduction, IntroductionError> {
    NewDevice { server, certificate, ..NewDevice::default() }.introduce(devices)
}

impl NewDevice<'_> {
    /// Draws who the device is and its key, adds it to a server's file (which is made if it is not there), and returns what it is to be told. Several may do so at once.
    ///
    /// # Errors
    /// If the server, what is in front or a certificate is none, or the file is malformed or cannot be written; then nothing is added.
    pub fn introduce(self, devices: &Path) -> Result<Introduction, IntroductionError> {
        let (rng, mut host, mut key) = (SystemRandom::new(), [0; 20], [0; 32]);
        rng.fill(&mut host).and_then(|()| rng.fill(&mut key)).map_err(|_| IntroductionError::Rng)?;
        let (host, key) = (hex::encode(host), hex::encode(key));
        let introduction = Introduction {
            server: self.server.to_owned(),
            addresses: self.addresses,
            host: host.clone(),
            key: key.clone(),
            certificate: self.certificate.as_deref().map(certificates_alone).transpose()?,
            front: self.front,
            front_certificate: self.front_certificate.as_deref().map(certificates_alone).transpose()?,
        };
        fits(introduction.certificate.as_deref(), &introduction.server()?.name)?;
        if let Some(front) = introduction.front()? {
            fits(introduction.front_certificate.as_deref(), &front.address.name)?;
        }
        let (owner, devices) = (self.owner, followed(devices));
        let _alone =
            lock(&devices, owner).map_err(|source| IntroductionError::File { path: devices.clone(), source })?;
        let mut known: DevicesFile =
            if devices.exists() { read_toml(&devices, DEVICES)? } else { DevicesFile::default() };
        known.rules()?;
        if let Some(name) = self.name {
            // Of a device that is shut out the name may have stayed.
            if known.names.iter().any(|(host, known_as)| known_as == name && known.devices.contains_key(host)) {
                return Err(IntroductionError::Name { path: devices, name: name.to_owned() });
            }
            known.names.insert(host.clone(), name.to_owned());
        }
        known.devices.insert(host, key);
        let written =
            toml::to_string(&known).map_err(io::Error::other).and_then(|text| replace(&devices, &text, owner));
        written.map_err(|source| IntroductionError::File { path: devices, source })?;
        Ok(introduction)
    }
}

/// Where a symbolic link leads, so that what is replaced is the file and not the link.
fn followed(path: &Path) -> PathBuf {
    fs::canonicalize(path)
        .or_else(|_| fs::read_link(path).map(|to| hoop_files::parent(path).join(to)))
        .unwrap_or(path.to_owned())
}

/// AckPolicy others out until it is dropped. A file beside it is locked, as the file itself is another each time; the folder is not, since whoever may look into
/// it could hold its lock. It becomes its owner's, who may introduce the next.
fn lock(path: &Path, owner: Option<(u32, u32)>) -> io::Result<fs::File> {
    let beside = hoop_files::beside(path, ".lock");
    hoop_files::touch(&beside)?;
    let file = hoop_files::open(&beside)?;
    if let Some((uid, gid)) = owner {
        std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    file.lock()?;
    Ok(file)
}

/// Writes a file whole, or not at all: a server reads it meanwhile. Its owner and group stay unless others are named, and what they may.
fn replace(path: &Path, text: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let mut mark = [0; 8];
    SystemRandom::new().fill(&mut mark).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    let new = hoop_files::parent(path).join(format!(".devices-{}", hex::encode(mark)));
    hoop_files::replace_by(&new, path, text.as_bytes(), |written| {
        let (old, is) = (fs::metadata(path).ok(), written.metadata()?);
        let owner = owner.or_else(|| old.as_ref().map(|old| (old.uid(), old.gid())));
        if let Some((uid, gid)) = owner.filter(|owner| *owner != (is.uid(), is.gid())) {
            std::os::unix::fs::fchown(written, Some(uid), Some(gid))?;
        }
        if let Some(old) = old {
            // A group may read it, such as that of a relay with a user of its own; it holds keys, so nobody else may, and nobody else may write.
            written.set_permissions(fs::Permissions::from_mode(old.mode() & 0o640))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[tokio::test]
    async fn who_is_introduced_is_known_at_once_and_others_stay_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        let first = introduce(&path, "relay.example:4669", None).unwrap();
        let devices = Devices::open(&path).unwrap();
        let second = introduce(&path, "[2001:db8::1]:4669", None).unwrap();
        for introduction in [&first, &second] {
            let key = devices.key(introduction.host().unwrap()).await.unwrap();
            assert_eq!(key.0, introduction.key().unwrap().0);
        }
        assert_eq!(second.server().unwrap().name, "2001:db8::1");
        assert!(devices.key(DeviceId([0; 20])).await.is_none());
        fs::write(&path, "devices = 7").unwrap();
        assert!(devices.key(first.host().unwrap()).await.is_some(), "a file that is being written takes nobody away");
        let third = introduce(&folder.path().join("other.toml"), "relay.example:4669", None).unwrap();
        fs::rename(folder.path().join("other.toml"), &path).unwrap();
        assert!(devices.key(third.host().unwrap()).await.is_some(), "once it is whole it is taken");
        assert!(devices.key(first.host().unwrap()).await.is_none(), "it was taken out");
    }

    /// Devices waited up to 4 s each time an operator added another one.
    #[tokio::test]
    async fn who_is_known_waits_for_nobody_who_writes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        let known = introduce(&path, "relay.example:4669", None).unwrap().host().unwrap();
        let devices = Devices::open(&path).unwrap();
        let _somebody_looks = devices.looking.lock().await;
        let asked = tokio::time::timeout(Duration::from_secs(5), devices.key(known)).await;
        assert!(asked.expect("it waits").is_some());
        let asked = tokio::time::timeout(Duration::from_millis(50), devices.key(DeviceId([0; 20]))).await;
        assert!(asked.is_err(), "who is not known may be in what is being written");
    }

    /// A copy over the network writes by and by, into the file itself.
    #[tokio::test]
    async fn a_file_that_is_half_written_frees_no_device_from_its_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        let host = introduce(&path, "relay.example:4669", None).unwrap().host().unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let only = format!("\n[only]\n{} = [\"10.9.2.0/24\"]\n", hex::encode(host.0));
        fs::write(&path, whole.clone() + &only).unwrap();
        let devices = Devices::open(&path).unwrap();
        assert_eq!(devices.only(host).map(|only| only.len()), Some(1));
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(whole.as_bytes()).unwrap();
        let writer = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            file.write_all(only.as_bytes()).unwrap();
        };
        let asked = async {
            devices.look().await;
            assert!(devices.key(host).await.is_some());
            assert_eq!(devices.only(host).map(|only| only.len()), Some(1));
        };
        tokio::join!(writer, asked);
        fs::write(&path, "[devices]\n").unwrap();
        devices.look().await;
        assert!(devices.key(host).await.is_none());
        assert_eq!(devices.only(host), Some(Vec::new()), "what it began before that goes nowhere");
        fs::write(&path, whole).unwrap();
        assert!(devices.key(host).await.is_some());
        assert_eq!(devices.only(host), None, "it is free once the whole file says so");
    }

    #[tokio::test]
    async fn a_file_that_anybody_may_write_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        let first = introduce(&path, "relay.example:4669", None).unwrap();
        let devices = Devices::open(&path).unwrap();
        let second = introduce(&path, "relay.example:4669", None).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(devices.key(second.host().unwrap()).await.is_none());
        assert!(devices.key(first.host().unwrap()).await.is_some(), "who was known stays known");
        assert!(matches!(Devices::open(&path), Err(IntroductionError::Writable { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let third = introduce(&path, "relay.example:4669", None).unwrap();
        assert!(devices.key(third.host().unwrap()).await.is_some());
    }

    /// On a runtime of one thread.
    #[tokio::test]
    async fn a_file_that_takes_long_to_read_holds_up_nobody_who_does_not_ask() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        introduce(&path, "relay.example:4669", None).unwrap();
        let devices = Devices::open(&path).unwrap();
        let told = introduce(&path, "relay.example:4669", None).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        // Whoever reads it waits for the writer.
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let ((goes_on, waits), (is_read, reading)) = (std::sync::mpsc::channel(), tokio::sync::oneshot::channel());
        let writer = std::thread::spawn(move || {
            let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
            is_read.send(()).unwrap();
            let went_on = waits.recv_timeout(Duration::from_secs(5)).is_ok();
            file.write_all(if went_on { text.as_bytes() } else { b"devices = 7" }).unwrap();
        });
        let others = async {
            reading.await.unwrap();
            // The writer waits no more if that took too long.
            let _ = goes_on.send(());
        };
        let (key, ()) = tokio::join!(devices.key(told.host().unwrap()), others);
        assert!(key.is_some(), "the runtime stood still");
        writer.join().unwrap();
    }

    /// A device's downloads to a stuck disk took all threads, and the device could not be shut out.
    #[test]
    fn who_is_taken_out_is_unknown_while_all_other_threads_wait_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        let host = introduce(&path, "relay.example:4669", None).unwrap().host().unwrap();
        let devices = Devices::open(&path).unwrap();
        fs::write(&path, "[devices]\n").unwrap();
        let (goes_on, disk) = std::sync::mpsc::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
        let looked = runtime.unwrap().block_on(async {
            tokio::task::spawn_blocking(move || disk.recv());
            let looked = timeout(Duration::from_secs(30), devices.look()).await;
            drop(goes_on);
            looked
        });
        looked.expect("it looks");
        assert!(!devices.known().contains_key(&host));
    }

    #[tokio::test]
    async fn the_file_is_looked_at_for_all_who_ask_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        introduce(&path, "relay.example:4669", None).unwrap();
        let devices = Arc::new(Devices::open(&path).unwrap());
        let mut asking = tokio::task::JoinSet::new();
        for stranger in 0..1_000_u16 {
            let devices = devices.clone();
            asking.spawn(async move {
                let mut host = [0; 20];
                host[..2].copy_from_slice(&stranger.to_be_bytes());
                assert!(devices.key(DeviceId(host)).await.is_none());
            });
        }
        let told = introduce(&path, "relay.example:4669", None).unwrap();
        assert!(devices.key(told.host().unwrap()).await.is_some());
        while asking.join_next().await.transpose().unwrap().is_some() {}
        let looks = devices.looking.lock().await.count;
        assert!(looks < 20, "{looks} looks");
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
            front: None,
            front_certificate: None,
        };
        for (bad, member) in [
            (Introduction { server: "relay.example".into(), ..good.clone() }, "`relay.example` is no NAME:PORT"),
            (Introduction { server: ":1".into(), ..good.clone() }, "`:1` is no NAME:PORT"),
            (Introduction { host: "0".repeat(39), ..good.clone() }, "host"),
            (Introduction { key: "secret".into(), ..good.clone() }, "key"),
            (Introduction { front: Some("www.example".into()), ..good.clone() }, "`front`: write wss://NAME"),
        ] {
            fs::write(&path, toml::to_string(&bad).unwrap()).unwrap();
            let error = Introduction::read(&path).unwrap_err().to_string();
            assert!(error.contains(member) && !error.contains("secret"), "{error}");
        }
        fs::write(&path, "key = \"secret").unwrap();
        assert!(!Introduction::read(&path).unwrap_err().to_string().contains("secret"));
        assert!(Introduction { certificate: Some("none".into()), ..good.clone() }.roots().is_err());
        assert!(Introduction { front_certificate: Some("none".into()), ..good }.front_roots().is_err());
    }

    #[test]
    fn what_stands_in_front_has_a_name_and_may_have_a_port_and_a_path() {
        let front =
            |text: &str| text.parse::<Front>().map(|Front { address, path }| (address.name, address.port, path));
        let is = |name: &str, port, path: &str| Ok((name.to_owned(), port, path.to_owned()));
        assert_eq!(front("wss://www.example"), is("www.example", 443, WEBSOCKET_PATH));
        assert_eq!(front("wss://www.example/"), is("www.example", 443, WEBSOCKET_PATH));
        assert_eq!(front("wss://www.example:8443/a/b"), is("www.example", 8_443, "/a/b"));
        assert_eq!(front("wss://[2001:db8::1]:8443/a"), is("2001:db8::1", 8_443, "/a"));
        assert_eq!(front("wss://192.0.2.1/a"), is("192.0.2.1", 443, "/a"));
        for none in [
            "https://www.example",
            "ws://www.example",
            "wss://",
            "wss://me@www.example",
            "wss://www.example:0",
            "wss://www.example/a?b",
            "www.example",
            "wss://www.example/a b",
            "",
        ] {
            assert_eq!(front(none), Err(NoFront), "{none}");
        }
    }

    #[test]
    fn what_stands_in_front_is_checked_before_a_device_is_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        let certificate = rcgen::generate_simple_self_signed(vec!["www.example".to_owned()]).unwrap().cert.pem();
        let device = |front: &str, certificate: &str| {
            let (front, front_certificate) = (Some(front.to_owned()), Some(certificate.to_owned()));
            NewDevice { server: "relay.example:1", front, front_certificate, ..NewDevice::default() }.introduce(&path)
        };
        assert!(matches!(device("www.example", &certificate), Err(IntroductionError::Front(_))));
        assert!(matches!(device("wss://www.example", "none"), Err(IntroductionError::Certificate(_))));
        assert!(matches!(device("wss://other.example", &certificate), Err(IntroductionError::Misfit { .. })));
        assert!(!path.exists());
        let told = device("wss://www.example/flows", &certificate).unwrap();
        assert_eq!(told.server().unwrap().front, Some(FrontAddress { name: "www.example".to_owned(), port: 443 }));
        let written = folder.path().join("laptop.toml");
        fs::write(&written, toml::to_string(&told).unwrap()).unwrap();
        assert_eq!(Introduction::read(&written).unwrap(), told);
    }

    #[test]
    fn what_is_no_server_or_no_certificate_alone_adds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        for server in ["relay.example", "https://relay.example:4669", "fe80::1:4669", "relay.example:0", "[::1:1", ""] {
            let error = introduce(&path, server, None).unwrap_err().to_string();
            assert_eq!(error, format!("`{server}` is no NAME:PORT; for example relay.example:4669"));
        }
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let half = certificate.rsplit_once("-----END").unwrap().0.to_owned();
        let both = format!("{certificate}{key}");
        for pem in [&key, &encrypted, &both, &half, "[devices]", "", &certificate.replace("MII", "QUJ")] {
            let error = introduce(&path, "relay.example:1", Some(pem.to_owned())).unwrap_err();
            assert!(matches!(error, IntroductionError::Certificate(_)), "{error}");
        }
        let error = introduce(&path, "relay.example:1", Some(certificate.clone())).unwrap_err().to_string();
        assert!(error.ends_with("its certificate is for another name (localhost)"), "{error}");
        let mut old = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        old.not_after = rcgen::date_time_ymd(2025, 1, 1);
        let old = old.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
        let error = introduce(&path, "localhost:1", Some(old.clone())).unwrap_err().to_string();
        assert!(error.ends_with("its certificate has expired"), "{error}");
        assert!(!path.exists());
        introduce(&path, "localhost:1", Some(format!("{old}{certificate}"))).unwrap();
        let told = introduce(&path, "localhost:1", Some(format!("a remark\r\n{certificate}"))).unwrap();
        assert_eq!(told.certificate.unwrap().lines().collect::<Vec<_>>(), certificate.lines().collect::<Vec<_>>());
    }

    #[test]
    fn an_authoritys_certificate_is_taken_for_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let own = of("localhost").self_signed(&key).unwrap().pem();
        let mut authority = of("authority.example");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = authority.self_signed(&key).unwrap().pem();
        for certificate in [authority.clone(), format!("{own}{authority}")] {
            introduce(&folder.path().join("devices.toml"), "relay.example:1", Some(certificate)).unwrap();
        }
    }

    #[test]
    fn introductions_at_once_are_all_kept_and_the_file_stays_whose_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("real.toml"), folder.path().join("devices.toml"));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.toml", &link).unwrap();
        let laptop = NewDevice { server: "relay.example:1", name: Some("laptop"), ..NewDevice::default() };
        let named = laptop.clone().introduce(&link).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| introduce(&link, "relay.example:1", None).unwrap());
            }
        });
        let file: DevicesFile = read_toml(&path, DEVICES).unwrap();
        assert_eq!(file.devices.len(), 17);
        assert_eq!(file.names[&named.host], "laptop");
        let again = laptop.clone().introduce(&link).unwrap_err();
        assert!(matches!(again, IntroductionError::Name { .. }), "{again}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "with the lock, nothing else is left");
    }

    #[test]
    fn the_file_of_the_other_end_is_called_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (devices, device) = (folder.path().join("devices.toml"), folder.path().join("laptop.toml"));
        let told = introduce(&devices, "relay.example:1", None).unwrap();
        fs::write(&device, toml::to_string(&told).unwrap()).unwrap();
        let error = Devices::open(&device).unwrap_err().to_string();
        assert!(error.contains(&format!("is {INTRODUCTION}; what is wanted here is {DEVICES}")), "{error}");
        let error = Introduction::read(&devices).unwrap_err().to_string();
        assert!(error.contains(&format!("is {DEVICES}; what is wanted here is {INTRODUCTION}")), "{error}");
    }
}
