//! The listener, and who may use it: [`Agent`].

use crate::authority::{Authority, AuthorityError, AuthorityFile};
use crate::entrusted::{Entrusted, EntrustedHost};
use crate::guests::{Admitted, CONNECTIONS_MAX, Guests};
use crate::local::{Local, title};
use crate::patient::{Patient, PatientConfig, PatientError};
use crate::proxy::{self, Proxy};
use crate::socket::ProgramSocket;
use crate::socks;
use crate::tun::{CARRIER_MARK, Carrying, Intakes, Tun, TunConfig, TunError};
use crate::tunnel::{Dialer, Exchanges};
use hoop_endpoint::FlowOptions;
use hoop_http::tls::{TlsError, client_config};
use hoop_http::{BACKLOG, Lines};
use hoop_relay::preload::{Notice, PreloadServer};
use hoop_relay::status::Listing;
use hoop_relay::{FlowConnector, Introduction, Link, LinkError, NetworkPath};
use rustix::process::geteuid;
use socket2::SockRef;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Where an agent listens unless it is told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:4673";

/// How long a program may say nothing on a new connection. Browsers make some that they may need.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// How long a program may take to say by SOCKS where it wants to go.
const SOCKS_TIME: Duration = Duration::from_secs(10);

/// An agent cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its carriers.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Its authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// Whom it believes.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Patient uploads.
    #[error(transparent)]
    Patient(#[from] PatientError),
    /// It would listen for other machines.
    #[error("{address}: {}", hoop_http::metrics::NOT_LOOPBACK)]
    NotLoopback {
        /// Where.
        address: SocketAddr,
    },
    /// What leads programs here that know no proxy.
    #[error("connections are not taken in by a TUN interface: {0}")]
    Tun(#[from] TunError),
    /// Its socket.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// What an agent is given.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where it listens, on loopback. HTTP and SOCKS5 share the port.
    pub listen: SocketAddr,
    /// The relay, and the device's key for it.
    pub introduction: Introduction,
    /// The ways out of the machine.
    pub ways: Vec<NetworkPath>,
    /// How long there may be no relay before connections are given up; none: they wait.
    pub give_up_after: Option<Duration>,
    /// Whether programs are told that they are connected only when they are, also by name.
    pub waits: bool,
    /// Whom it serves besides the user who runs it, and root, by their numbers. Default: nobody.
    pub users: Vec<u32>,
    /// Hosts whose `https://` requests the relay makes, where programs ask for them. Default: none, and the relay sees nothing of `https://`.
    pub entrusted: Vec<EntrustedHost>,
    /// What shows programs the agent as the hosts that it is for, which are entrusted, too: their connections are then requests that the relay makes. None: programs speak TLS themselves.
    pub authority: Option<AuthorityFile>,
    /// Uploads that are sealed, and left with the gateway of this network. None: all go as they are.
    pub patient: Option<PatientConfig>,
    /// Where programs that `hoop run` has begun connect, in a folder of the user's own; none: they cannot.
    pub runs: Option<PathBuf>,
    /// PEM files of authorities whom the agent believes besides the system's, where it speaks TLS with an entrusted host itself. Default: none.
    pub ca: Vec<PathBuf>,
    /// Takes in all TCP connections of those whom it serves, which know of no proxy; none: only those that are made to it.
    pub tun: Option<TunConfig>,
}

/// Takes connections of this user's programs on loopback, and carries each as a flow.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
    link: Arc<Link>,
    proxy: Arc<Proxy>,
    guests: Arc<Guests>,
    address: SocketAddr,
    runs: Option<PreloadServer>,
    tun: Option<(Arc<Tun>, Intakes)>,
}

impl Agent {
    /// Listens; within a tokio runtime. `tell` gets what people should know, each sentence once.
    ///
    /// # Errors
    /// If the address is not on loopback or cannot be had, or the introduction, a way or a TUN interface cannot be used.
    pub async fn bind(config: &AgentConfig, tell: impl Fn(String) + Send + Sync + 'static) -> Result<Self, AgentError> {
        if !config.listen.ip().is_loopback() {
            return Err(AgentError::NotLoopback { address: config.listen });
        }
        let listen = |source| AgentError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        SockRef::from(&listener).listen(BACKLOG).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let multipath = config.ways.len() > 1;
        let own = [geteuid().as_raw(), 0];
        let users = [&own, &config.users[..]].concat();
        let tun = config.tun.as_ref().map(|tun| {
            let relay = config.introduction.addresses.iter().copied().collect();
            Tun::start(tun, &users, relay)
        });
        let tun = tun.transpose()?;
        let mut ways = config.ways.clone();
        if tun.is_some() {
            // Its own carriers are not taken in.
            ways.iter_mut().for_each(|way| way.local.mark = Some(CARRIER_MARK));
        }
        let link = Arc::new(Link::start(&config.introduction, ways)?);
        let options = FlowOptions { multipath, ..FlowOptions::default() };
        let listing = Arc::<Listing>::default();
        let report = tun.as_ref().map(|(tun, _)| tun.report());
        let relay = config.introduction.server.clone();
        let title = title(address, report.as_ref(), &relay);
        let bind = |path| PreloadServer::bind(path, options.clone())?.tell_status(title.clone());
        let runs = config.runs.as_ref().and_then(|path| match bind(path) {
            Ok(server) => Some(server.list_in(listing.clone()).give_up_after(config.give_up_after)),
            // Others go through the proxy all the same.
            Err(error) => {
                tell(format!("`hoop run` is not served: cannot listen at {}: {error}", path.display()));
                None
            }
        });
        let connector = FlowConnector::new(&link, options, config.give_up_after, tell);
        let mut dialer = Dialer {
            connector,
            listing: listing.clone(),
            waits: config.waits,
            exchanges: Exchanges::default(),
            uploads: Default::default(),
            tls: None,
        };
        let local = Local { link: link.clone(), listing, patient: Arc::default(), relay, address, tun: report };
        let authority = config.authority.as_ref().map(|file| Authority::open(file, AuthorityFile::now()));
        let authority = match authority.transpose() {
            // Programs go by themselves as they did before, and all others as ever.
            Err(error @ AuthorityError::Expired) => {
                dialer.connector.say(error.to_string());
                None
            }
            authority => authority?,
        };
        authority.iter().for_each(|authority| {
            authority.is_good(AuthorityFile::now(), |words| dialer.connector.say(words));
        });
        let authority = authority.map(|authority| {
            let hosts = authority.hosts().to_vec();
            (authority, Entrusted(hosts))
        });
        let of_authority = authority.iter().flat_map(|(_, hosts)| &hosts.0);
        let entrusted = Entrusted(config.entrusted.iter().chain(of_authority).cloned().collect());
        if !entrusted.0.is_empty() {
            dialer.tls = Some(client_config(&config.ca)?);
        }
        let seen = authority.as_ref().map_or(&[][..], |(_, hosts)| &hosts.0);
        let urls = config.patient.iter().flat_map(|patient| &patient.urls);
        urls.filter_map(|url| url.is_passed_by(seen)).for_each(|words| dialer.connector.say(words));
        let patient = config
            .patient
            .as_ref()
            .map(|patient| Patient::open(patient, local.patient.clone()))
            .transpose()?
            .map(Arc::new);
        let proxy = Arc::new(Proxy { dialer: Arc::new(dialer), local, entrusted, authority, patient });
        let guests = Arc::new(Guests::new(own, config.users.clone()));
        Ok(Self { listener, link, proxy, guests, address, runs, tun })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its carriers.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Serves until `stop`. What is under way is then given up: programs read `ECONNRESET`.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, link, proxy, guests, address, runs, tun } = self;
        let (mut programs, mut stop) = (JoinSet::new(), pin!(stop));
        let teller = proxy.clone();
        let notify = move |notice| {
            if let Notice::Refused(words) = notice {
                teller.dialer.connector.say(words);
            }
        };
        let mut running = pin!(async {
            match runs {
                Some(runs) => runs.run(&link, pending(), notify).await,
                None => pending().await,
            }
        });
        let carrying = Carrying { dialer: proxy.dialer.clone(), guests: guests.clone(), link: link.clone() };
        let (tun, intakes) = tun.unzip();
        let mut taking = Box::pin(async {
            match tun.clone().zip(intakes) {
                Some((tun, intakes)) => tun.run(intakes, Arc::new(carrying)).await,
                None => pending().await,
            }
        });
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = async {
                let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
                Ok((listener.accept().await?, place))
            };
            tokio::select! {
                () = &mut stop => break,
                Some(_) = programs.join_next() => {}
                () = &mut running => {}
                () = &mut taking => {}
                accepted = accepted => match accepted {
                    Ok(((program, peer), place)) => {
                        let (guests, proxy) = (guests.clone(), proxy.clone());
                        programs.spawn(async move {
                            match guests.admit(peer, address).await {
                                Ok(admitted) => serve(program, place, [peer, address], &guests, admitted, proxy).await,
                                Err(why) => why.into_iter().for_each(|why| proxy.dialer.connector.say(why)),
                            }
                        });
                    }
                    Err::<_, io::Error>(error) => {
                        static LINES: Lines = Lines::new();
                        LINES.warn("cannot accept a connection", &error);
                        sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        // What programs begin now goes past the agent.
        tun.iter().for_each(|tun| tun.undo());
        drop((programs, taking));
        link.give_up().await;
    }
}

async fn serve(
    program: TcpStream,
    place: OwnedSemaphorePermit,
    [peer, address]: [SocketAddr; 2],
    guests: &Guests,
    admitted: Admitted,
    proxy: Arc<Proxy>,
) {
    let mut first = [0];
    match timeout(SILENT_MAX, program.peek(&mut first)).await {
        Ok(Ok(1)) => {}
        // It has closed, or says nothing.
        _ => return,
    }
    let mut program = ProgramSocket::new(program, [peer, address], guests.owners.clone(), admitted, place);
    if first[0] != socks::VERSION {
        return proxy::serve(program, proxy).await;
    }
    let asked = timeout(SOCKS_TIME, socks::accept(&mut program)).await;
    let Ok(Ok(Some(destination))) = asked else { return tracing::debug!("a program said no destination") };
    let under_way = program.under_way();
    let dialled = tokio::select! {
        dialled = proxy.dialer.dial(&destination) => dialled,
        _ = under_way.program_left() => return,
    };
    match dialled {
        Ok(dialled) => {
            if socks::reply(&mut program, socks::CONNECTED).await.is_ok() {
                proxy.dialer.carry(program, &under_way, &destination, dialled).await;
            }
        }
        Err(failure) => drop(socks::reply(&mut program, failure.reply()).await),
    }
}
