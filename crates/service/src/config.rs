//! What a service needs to know: [`Config`].

use crate::policy::permits::Permits;
use crate::policy::rules_file::Routes;
use crate::store::ENDED_MAX;
use hoop_http::{Clock, LeastRate, Origin, ServerLimits};
use hoop_seal::Keyring;
use hoop_units::{Backoff, Prefix};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A certificate chain and its key, as PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The chain, the service's own certificate first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The longest head, and the largest read. A connection keeps a buffer as long as its longest head: 2,560 of them hold
/// 160 MiB at most, and some 5 MiB with short heads. Cookies, a token and a prelude together have 24 KiB.
const BUFFER_BYTES: usize = 64 * 1024;

/// How much of an answer a client has to take. A browser whose film is paused takes nothing and asks for the rest anew,
/// as it does with most web servers, which wait as long.
const LEAST_READ: LeastRate = LeastRate { bytes: 16 << 10, within: Duration::from_secs(60) };

/// Everything that a [`Service`](crate::Service) is made from. Begin with [`Config::new`] and change what differs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen. Default `127.0.0.1:4668`: most stand behind a web server that has the certificate.
    pub listen: SocketAddr,
    /// Where to serve `/metrics`. Use a loopback address, since anyone who can reach it can read the metrics.
    /// Default none.
    pub admin: Option<SocketAddr>,
    /// The service's own TLS. Default none.
    pub tls: Option<TlsFiles>,
    /// The application: `http://…`, on this machine or a network that is trusted as much.
    pub upstream: Origin,
    /// The origin that users see, such as `https://photos.example`. Tickets are bound to it; URLs are made from it.
    pub origin: Origin,
    /// The service's long-term keys (K_ws in `docs/protocol.md`), the newest first; see [`load_keyring`](crate::load_keyring).
    pub keys: Keyring,
    /// The folder of the index and the sealed bodies; made if it is not there. One service at a time may use it.
    pub state_dir: PathBuf,
    /// What the application's answers mean, by route. Default: none, so that the generic rules hold.
    pub routes: Routes,
    /// Which gateways may hold and bring uploads. Default: any.
    pub permits: Permits,
    /// The longest sealed body (Z in `docs/protocol.md`) that the service takes, in bytes. Default 10 GiB: more than a phone's video, less than a small disk.
    pub max_bytes: u64,
    /// The most that all stored uploads may have together, in bytes. Beyond that, new ones are told to come back
    /// (`spool-full`). Default 100 GiB, ten of the longest: tickets cost nothing, so something has to bound the disk.
    pub max_stored_bytes: u64,
    /// The most of that for one user whom the application names. Default none: a quarter of it, or one upload of the
    /// longest.
    pub owner_quota_bytes: Option<u64>,
    /// The most of that for the anonymous clients at one address, an IPv4 address or an IPv6 /64. Default as for a
    /// user.
    pub address_quota_bytes: Option<u64>,
    /// How many bytes of the disk stay free, and one file for each 16 KiB of them. Default 256 MiB: the application has
    /// its data there, too.
    pub reserve_bytes: u64,
    /// The most that is kept of ended uploads, in bytes: answers, receipts and notes. Each payer (user or address) gets
    /// a sixteenth. Beyond that, the payer with most loses its oldest; a row of some 150 bytes stays, by which the
    /// upload is known. Default 1 GiB: 60,000 of the longest answers, of which one address has 3,800.
    pub max_ended_bytes: u64,
    /// Tickets in a minute for one user whom the application names, or for the anonymous clients at one address.
    /// Default 240: an album's worth, four a second.
    pub tickets_per_minute: u32,
    /// How long a ticket is valid. Default 7 days, which covers a long weekend without a connection to the service.
    pub ticket_lifetime: Duration,
    /// How long a connection to the application may take to come about. Default 10 s.
    pub connect_timeout: Duration,
    /// How long the application may take to answer a replay once it has the whole request, and to take each piece of
    /// it. Default 10 minutes: some scan for viruses or transcode before they answer.
    pub answer_timeout: Duration,
    /// How long a sender may take for each 64 KiB of a message or a body, or for the rest of it, before it counts as
    /// broken off. Default 60 s, of which a sender at 64 kbit/s may be silent for most.
    pub body_timeout: Duration,
    /// How long nothing may move in an upgraded connection (WebSocket) before it ends. Default 5 minutes: programs that
    /// keep one open say something every minute or so, since web servers and address translators on the way forget it
    /// otherwise.
    pub tunnel_idle: Duration,
    /// Replays at once. Default 4: an application made for browsers has few workers, and its users come first.
    pub replays: usize,
    /// The waits between attempts to replay. Default 1 s doubling to 15 min, as a gateway's.
    pub backoff: Backoff,
    /// How often the service looks which sessions to keep alive. Default 30 s.
    pub keep_alive_round: Duration,
    /// Messages to `/hoop/post` at once; more are asked to come back. Default 64, each with about 1 MiB of buffers.
    pub intakes: usize,
    /// Addresses and networks of the web servers in front, whose `X-Forwarded-For`, `-Proto` and `-Host`, and
    /// `Forwarded`, are believed. Default none: everyone's are replaced.
    pub trusted_proxies: Vec<Prefix>,
    /// Connections at once, in shares by use (`crowd`). Default 2,560. Each has two descriptors at most, and 10 KiB of
    /// memory while it is silent.
    pub connections: usize,
    /// Bounds of the server loop, but for the number of connections.
    pub limits: ServerLimits,
    /// The clock.
    pub clock: Clock,
}

impl Config {
    /// A service for `origin` in front of `upstream`, with every default.
    pub fn new(upstream: Origin, origin: Origin, keys: Keyring, state_dir: PathBuf) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 4668)),
            admin: None,
            tls: None,
            upstream,
            origin,
            keys,
            state_dir,
            routes: Routes::default(),
            permits: Permits::default(),
            max_bytes: 10 << 30,
            max_stored_bytes: 100 << 30,
            owner_quota_bytes: None,
            address_quota_bytes: None,
            reserve_bytes: 256 << 20,
            max_ended_bytes: ENDED_MAX,
            tickets_per_minute: 240,
            ticket_lifetime: Duration::from_secs(7 * 24 * 3600),
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(600),
            body_timeout: Duration::from_secs(60),
            tunnel_idle: Duration::from_secs(300),
            replays: 4,
            backoff: Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(15 * 60) },
            keep_alive_round: Duration::from_secs(30),
            intakes: 64,
            trusted_proxies: Vec::new(),
            connections: 2_560,
            limits: ServerLimits {
                buffer_bytes: BUFFER_BYTES,
                least_read: Some(LEAST_READ),
                ..ServerLimits::default()
            },
            clock: Clock::system(),
        }
    }

    /// The default share of one user or address: a quarter of all, or one upload of the longest.
    pub(crate) fn share(&self) -> u64 {
        (self.max_stored_bytes / 4).max(self.max_bytes).min(self.max_stored_bytes)
    }
}
