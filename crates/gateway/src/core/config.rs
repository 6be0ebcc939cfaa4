//! What a gateway is told: [`Config`].

use super::allow_dest::AllowDest;
use super::body_timeouts::BodyTimeouts;
use super::device_limits::DeviceLimits;
use super::pacing::Pacing;
use hoop_http::{Clock, LeastRate, ServerLimits};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The gateway's port: 4667 spells HOOP on a keypad.
pub const DEFAULT_PORT: u16 = 4667;

/// Connections that are served at once. Each may hold a read buffer of 256 KiB and 128 KiB that wait to be written, so that 48 make 18 MiB at
/// worst: what a router of 32 MB can spare. In addition, 64 connections may be idle and 1,096 requests may wait (`web::connections`).
pub const CONNECTIONS: usize = 48;

/// The longest head: each of those that ask for nothing yet may hold as much. A prelude, a permit and a page's cookies have a quarter of it.
const HEAD_BYTES: usize = 32 << 10;

/// How slowly a device may read what it asked for: a reader that sips holds a connection, and a stream of events what waits for it.
const LEAST_READ: LeastRate = LeastRate { bytes: 16 << 10, within: Duration::from_secs(30) };

/// Whether a gateway takes uploads without their service's consent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Permits {
    /// Where the service does not demand permits.
    #[default]
    Offered,
    /// Never: whoever is on the LAN can fill the disk only as far as services permit it.
    Required,
}

/// A gateway's configuration. [`Config::new`] has the defaults; every field may be changed before
/// [`Gateway::open`](crate::Gateway::open).
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen. Default `[::]:4667`, all addresses of both families; where the machine has no IPv6,
    /// `0.0.0.0:4667` takes its place. Port 0: any free one.
    pub listen: SocketAddr,
    /// The folder of what waits for delivery; made if absent. One gateway at a time may use it.
    pub spool: PathBuf,
    /// The most bytes of uploads that the spool may hold; `None` (the default): as much as the disk has, but for the reserve.
    pub quota_bytes: Option<u64>,
    /// Bytes of the disk that are left free for everything else. Default 64 MiB: a router's own logs and updates.
    pub reserve_bytes: u64,
    /// The most uploads that the spool may hold, done ones not counted. Default 100,000: opening it and finding what is due cost the same for so
    /// many as for ten. 0: without limit.
    pub max_uploads: u64,
    /// What one device may do.
    pub device: DeviceLimits,
    /// How slowly a device may send.
    pub body_timeouts: BodyTimeouts,
    /// Whether uploads are taken only with their service's permit. Default: where the service demands it.
    pub permits: Permits,
    /// Where the owner's page and `/metrics` are served: a loopback address. Default: nowhere, since a port that nobody asked for is one more to guard.
    pub admin: Option<SocketAddr>,
    /// The longest upload that is taken, in bytes of Z. Default 64 GiB, an hour of camera footage.
    pub max_upload_bytes: u64,
    /// Whether records are taken before the upload's prelude has come (`docs/protocol.md` §6). Default true: a device need
    /// not wait for its ticket. False: it does.
    pub early: bool,
    /// Whether what is stored of an upload is sent on while the rest still comes, also if the rest never comes from this device. Default
    /// true. False: uploads are sent when they are whole.
    pub cut_through: bool,
    /// PEM files of certificates that are trusted besides the system's.
    pub ca: Vec<PathBuf>,
    /// Destinations that are allowed although they are not public, or not HTTPS. Default: none.
    pub allow_dest: Vec<AllowDest>,
    /// Names whose addresses are given by hand, by (name, port), as with curl's `--resolve`. The address still has to
    /// be public or listed in [`Config::allow_dest`].
    pub resolve: BTreeMap<(String, u16), Vec<IpAddr>>,
    /// Where people reach this gateway, for the links to the monitor page; `None` (the default): whatever the request
    /// said in `Host`.
    pub public_url: Option<Url>,
    /// Names by which this gateway may be called, besides addresses, local names and that of [`Config::public_url`]
    /// (`docs/protocol.md`, "Pages at a gateway"). Default: none. A name that strangers can point at this gateway opens it to their
    /// pages.
    pub hosts: Vec<String>,
    /// Whether to announce `hoop.local` and `_hoop._tcp` by multicast DNS. Default true. A failure is logged, no more.
    pub mdns: bool,
    /// The name that `_hoop._tcp` announces to people. Default `Hoop gateway`.
    pub instance: String,
    /// Whether a 2xx waits for the disk. Default true; false only to measure what that costs, since a power cut then
    /// loses uploads that were answered 2xx.
    pub sync: bool,
    /// How many uploads are sent at once. Default [`hoop_dispatch::TRANSFERS`].
    pub transfers: usize,
    /// How fast uploads leave, and when. Default: as fast as they go, always.
    pub pacing: Pacing,
    /// The HTTP server's bounds. Default [`CONNECTIONS`] connections, otherwise the server's own.
    pub limits: ServerLimits,
    /// Both clocks; a test may set the wall clock.
    pub clock: Clock,
}

impl Config {
    /// The defaults, with this spool folder.
    pub fn new(spool: impl Into<PathBuf>) -> Self {
        Self {
            listen: (Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into(),
            spool: spool.into(),
            quota_bytes: None,
            reserve_bytes: 64 << 20,
            max_uploads: 100_000,
            device: DeviceLimits::default(),
            body_timeouts: BodyTimeouts::default(),
            permits: Permits::Offered,
            admin: None,
            max_upload_bytes: 64 << 30,
            early: true,
            cut_through: true,
            ca: Vec::new(),
            allow_dest: Vec::new(),
            resolve: BTreeMap::new(),
            public_url: None,
            hosts: Vec::new(),
            mdns: true,
            instance: "Hoop gateway".to_owned(),
            sync: true,
            transfers: hoop_dispatch::TRANSFERS,
            pacing: Pacing::default(),
            limits: ServerLimits {
                connections: CONNECTIONS,
                head_bytes: HEAD_BYTES,
                least_read: Some(LEAST_READ),
                ..ServerLimits::default()
            },
            clock: Clock::system(),
        }
    }

    /// By what this gateway is called in the world: the public URL's host and the names that the operator lists.
    pub(crate) fn own_names(&self) -> Vec<&str> {
        let public = self.public_url.as_ref().and_then(Url::host_str);
        self.hosts.iter().map(String::as_str).chain(public).collect()
    }
}
