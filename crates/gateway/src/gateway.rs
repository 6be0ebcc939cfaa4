//! Opening and running: [`Gateway`].

use crate::access::consent::Consent;
use crate::announce::Announcement;
use crate::core::blocking::blocking;
use crate::core::config::{Config, Permits};
use crate::core::identity;
use crate::core::state::Core;
use crate::core::wire::PRELUDE_LEN;
use crate::delivery::pacing::Pacer;
use crate::delivery::scheduler;
use crate::delivery::state::Delivery;
use crate::housekeeping;
use crate::intake::state::Receiver;
use crate::peer::probes::ServiceProbes;
use crate::peer::services::Services;
use crate::reload::{self, Reload};
use crate::web::connections::crowd;
use crate::web::state::Web;
use crate::web::{admin, router};
use hoop_http::{Connector, ServeError, Server, ServerLimits, Shutdown, tls};
use hoop_spool::{Settings, Spool};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A gateway with its spool open and its socket bound: devices may connect from now on, and are answered once it runs.
pub struct Gateway {
    server: Server,
    /// The owner's page.
    admin: Option<Server>,
    core: Arc<Core>,
    services: Arc<Services>,
    probes: Arc<ServiceProbes>,
    delivery: Arc<Delivery>,
    web: Arc<Web>,
    /// The name to announce.
    instance: Option<String>,
    reload: Reload,
}

/// A gateway could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An address cannot be bound, or the owner's page would be open to others.
    #[error(transparent)]
    Listen(#[from] ServeError),
    /// The spool cannot be opened.
    #[error(transparent)]
    Spool(#[from] hoop_spool::OpenError),
    /// The extra certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The gateway's own key cannot be read or made.
    #[error("cannot use gateway.key in the spool: {0}")]
    Key(#[source] io::Error),
    /// The last good time cannot be read.
    #[error("cannot use the file clock in the spool: {0}")]
    Clock(#[source] io::Error),
    /// The runtime is going down.
    #[error("cannot open the spool: {0}")]
    Runtime(#[source] io::Error),
}

impl Gateway {
    /// Opens the spool and binds the address.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way.
    pub async fn open(mut config: Config) -> Result<Self, OpenError> {
        let settings = Settings {
            folder: config.spool.clone(),
            quota_bytes: config.quota_bytes,
            reserve_bytes: config.reserve_bytes,
            sync: config.sync,
            cut_through: config.cut_through,
            first_record: PRELUDE_LEN as u64,
        };
        let connector = Connector::new(tls::client_config(&config.ca)?);
        let spool = tokio::task::spawn_blocking(move || Spool::open(settings)).await;
        let spool = spool.map_err(|error| OpenError::Runtime(error.into()))??;
        // The folder is there, and ours.
        config.clock = config.clock.keep(&config.spool.join("clock")).map_err(OpenError::Clock)?;
        let limits = server_limits(&config);
        let server = bind(&config, limits).await?;
        let admin = hoop_http::metrics::bind(config.admin).await?;
        let key = identity::open(&config.spool).map_err(OpenError::Key)?;
        let pacer = Pacer::new(config.pacing.clone(), &config.spool, config.clock.clone());
        let watch = pacer.clone();
        let connector = connector.watched(Arc::new(move |stream| watch.watch(stream)));
        let core = Arc::new(Core::new(spool, config.clock.clone(), key, config.cut_through));
        let services = Arc::new(Services::new(&config, connector));
        let probes = ServiceProbes::new(services.clone(), config.device);
        let required = config.permits == Permits::Required;
        let consent = Consent::new(core.clone(), services.clone(), probes.clone(), required);
        let receiver = Receiver::new(&config, core.clone(), consent.clone());
        let delivery = Delivery::new(&config, core.clone(), services.clone(), pacer);
        let web = Web::new(&config, core.clone(), consent, receiver, delivery.clone());
        let reload = Reload::new(&web, reload::fixed(&config));
        let instance = config.mdns.then_some(config.instance);
        Ok(Self { server, admin, core, services, probes, delivery, web, instance, reload })
    }

    /// The address that was bound.
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The address of the owner's page, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Server::address)
    }

    /// What gives it another configuration while it runs.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Leaves to the caller what is to be announced, and returns its name, if anything is: see [`Announcement`].
    pub fn leave_announcing(&mut self) -> Option<String> {
        self.instance.take()
    }

    /// Serves and delivers until `shutdown`; what is under way then is continued by the next run.
    pub async fn run(self, shutdown: Shutdown) {
        let port = self.address().port();
        let announcement = self.instance.map(|instance| Announcement::begin(&instance, port));
        if let Some(Err(error)) = &announcement {
            tracing::warn!(%error, "cannot announce hoop.local; devices need this gateway's address");
        }
        let Self { server, admin, core, services, probes, delivery, web, .. } = self;
        let (own, stop) = (web.clone(), shutdown.clone());
        let handler = move |request, peer| router::answer(own.clone(), stop.clone(), request, peer);
        let deliver = scheduler::run(delivery.clone(), shutdown.clone());
        let keep_house = housekeeping::run(core.clone(), services.clone(), shutdown.clone());
        let admin = admin::run(admin, web.clone(), shutdown.clone());
        let pace = delivery.pacer.clone().run(shutdown.clone());
        let keep = hoop_http::keep_time(&core.clock, shutdown.clone());
        tokio::join!(server.run(handler, shutdown), deliver, keep_house, admin, pace, keep);
        probes.stop();
        blocking(&services, |services| services.well_known.keep(services.clock.now())).await;
        drop((delivery, web, probes));
        release(core, services).await;
    }
}

/// How long a stopped gateway waits for its last write to the disk.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// Waits until nobody else holds the spool, or what services said, so that whoever opens the folder next finds it free: a write to the disk that was
/// under way cannot be called off.
async fn release(core: Arc<Core>, services: Arc<Services>) {
    let until = Instant::now() + RELEASE_TIME;
    while (Arc::strong_count(&core) > 1 || Arc::strong_count(&services) > 1) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// Where the machine has no IPv6, "all addresses" means those of IPv4.
async fn bind(config: &Config, limits: ServerLimits) -> Result<Server, ServeError> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, config.listen.port()));
    match Server::bind(config.listen, None, limits.clone()).await {
        Err(error) if config.listen.ip().is_unspecified() && config.listen.is_ipv6() && !is_taken(&error) => {
            Server::bind(any, None, limits).await
        }
        result => result,
    }
}

/// The HTTP server's bounds, with what each device may take of them.
fn server_limits(config: &Config) -> ServerLimits {
    ServerLimits { crowd: Some(crowd(config.limits.connections, config.device)), ..config.limits.clone() }
}

fn is_taken(error: &ServeError) -> bool {
    matches!(error.source.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::state::DISK_TURNS;
    use hoop_http::shutdown;
    use hoop_seal::{Prelude, RECORD_SIZE, TICKET_LEN};
    use hoop_spool::{Begin, Offer};
    use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    async fn open(folder: &std::path::Path) -> Gateway {
        let allow_dest = vec!["127.0.0.1".parse().unwrap()];
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        Gateway::open(Config { listen, allow_dest, mdns: false, reserve_bytes: 0, ..Config::new(folder) })
            .await
            .unwrap()
    }

    /// Sends an upload in two parts, the second once `sent` is not 0; it is `total` once all is sent. No answer is waited for.
    async fn hand_over_slowly(gateway: SocketAddr, total: usize, sent: &AtomicUsize) {
        let (head, prelude) = beginning(9, "", total);
        let mut socket = TcpStream::connect(gateway).await.unwrap();
        socket.write_all(&[head.as_bytes(), &prelude].concat()).await.unwrap();
        while sent.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        socket.write_all(&vec![9; total - prelude.len()]).await.unwrap();
        sent.store(total, Ordering::Relaxed);
        let _ = socket.read(&mut [0; 1024]).await;
    }

    /// A request's head, and the prelude that its body begins with.
    fn beginning(seed: u8, fields: &str, total: usize) -> (String, Vec<u8>) {
        let mut ticket = [seed; TICKET_LEN];
        ticket[0] = 1;
        ticket[21..25].copy_from_slice(&4_000_000_000_u32.to_be_bytes());
        let prelude = Prelude::new([seed; 16], RECORD_SIZE, &ticket).unwrap().encode();
        let dest = "http%3A%2F%2F127.0.0.1%3A9%2Fhoop%2Fpost";
        let head =
            format!("POST /offload?dest={dest} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {total}\r\n{fields}\r\n");
        (head, prelude)
    }

    /// Hands over an upload that is `total` bytes long and begins with its prelude; `sent` counts its bytes. Returns once it is stored.
    async fn hand_over(gateway: SocketAddr, seed: u8, fields: &str, total: usize, sent: &AtomicUsize) {
        let (head, prelude) = beginning(seed, fields, total);
        let mut socket = TcpStream::connect(gateway).await.unwrap();
        socket.write_all(&[head.as_bytes(), &prelude].concat()).await.unwrap();
        sent.store(prelude.len(), Ordering::Relaxed);
        let bytes = vec![seed; 64 << 10];
        while sent.load(Ordering::Relaxed) < total {
            let left = total - sent.load(Ordering::Relaxed);
            let written = socket.write(&bytes[..left.min(bytes.len())]).await.unwrap();
            sent.fetch_add(written, Ordering::Relaxed);
        }
        let (mut answer, mut buffer) = (Vec::new(), [0; 1024]);
        // A 104 may come first.
        while !String::from_utf8_lossy(&answer).contains("HTTP/1.1 201") {
            let read = socket.read(&mut buffer).await.unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..read]);
        }
    }

    #[tokio::test]
    async fn a_sender_ahead_of_the_disk_waits_and_short_uploads_do_not() {
        /// More than the sockets hold.
        const LONG: usize = 64 << 20;
        let folder = tempfile::tempdir().unwrap();
        let gateway = open(folder.path()).await;
        let (address, disk_turns) = (gateway.address(), gateway.web.receiver.disk_turns.clone());
        let (stop, shutdown) = shutdown();
        let running = tokio::spawn(gateway.run(shutdown));
        for (seed, fields) in [(1, ""), (2, "Upload-Complete: ?1\r\nUpload-Draft-Interop-Version: 8\r\n")] {
            // As if the disk had enough to do with others.
            let turns = disk_turns.acquire_many(DISK_TURNS.try_into().unwrap()).await.unwrap();
            let sent = Arc::new(AtomicUsize::new(0));
            let own = sent.clone();
            let long = tokio::spawn(async move { hand_over(address, seed, fields, LONG, &own).await });
            let mut before = 0;
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let now = sent.load(Ordering::Relaxed);
                if now > 0 && now == before {
                    break;
                }
                before = now;
            }
            assert!(before < LONG, "{fields:?}: the gateway took all of it");
            hand_over(address, seed + 10, "", 60_000, &AtomicUsize::new(0)).await;
            assert_eq!(sent.load(Ordering::Relaxed), before);
            drop(turns);
            long.await.unwrap();
        }
        stop.trigger();
        running.await.unwrap();
    }

    /// A disk that is slow made others wait for their turns, and what waited was thrown away with its sender.
    #[tokio::test]
    async fn what_a_sender_that_has_gone_had_sent_is_recorded_when_its_turn_comes() {
        const LEN: usize = 200_000;
        let folder = tempfile::tempdir().unwrap();
        let gateway = open(folder.path()).await;
        let (address, core) = (gateway.address(), gateway.core.clone());
        let (stop, shutdown) = shutdown();
        let running = tokio::spawn(gateway.run(shutdown));
        let stored = || core.spool.tally().unwrap().get(&hoop_spool::State::Stored).map_or(0, |tally| tally.uploads);
        let sent = Arc::new(AtomicUsize::new(0));
        let own = sent.clone();
        // One turn begins it.
        let sending = tokio::spawn(async move { hand_over_slowly(address, LEN, &own).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut turns = Vec::new();
        while let Ok(turn) = tokio::time::timeout(Duration::from_millis(10), core.turns.take()).await {
            turns.push(turn);
        }
        // All of it is there soon, and waits for its turn.
        sent.store(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(sent.load(Ordering::Relaxed), LEN);
        sending.abort();
        let _ = sending.await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(stored(), 0);
        drop(turns);
        tokio::time::timeout(Duration::from_secs(20), async {
            while stored() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("it is recorded");
        drop(core);
        stop.trigger();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn expired_uploads_end_although_one_of_them_has_a_sender() {
        const UPLOADS: u8 = 200;
        let folder = tempfile::tempdir().unwrap();
        let core = open(folder.path()).await.core;
        let now = core.clock.unix();
        let begin = |number, expires| {
            let dest = "https://photos.example/hoop/post".to_owned();
            let (id, device) = (UploadId([number; 16]), AddressKey::UNKNOWN);
            let prelude = if number == 0 { Vec::new() } else { vec![1] };
            let offer = Offer { id, prelude, total: Some(100), dest, expires, device, deadline: None };
            let Begin::Take(mut intake) = core.spool.begin(&offer).unwrap() else { panic!("it is new") };
            intake.write_at(50, &[7; 50]).unwrap();
            intake.commit(ByteRange::new(50, 100), now).unwrap();
            intake
        };
        let _sender = begin(0, UnixTime(1));
        (1..UPLOADS).for_each(|number| drop(begin(number, UnixTime(1))));
        crate::housekeeping::end_all(&core, |_| UnixTime(u32::MAX - 1).into()).await;
        let open = core.spool.tally().unwrap().remove(&hoop_spool::State::Receiving).unwrap_or_default();
        assert_eq!(open.uploads, 1, "the one whose sender is at it");
    }
}
