//! Beside a program: takes its TCP connections and opens a flow for each ([`PreloadServer`]).
//!
//! The program's side is a library that is loaded into it (`crates/hoop/preload/preload.c`): instead of connecting a socket it connects here, says where it wanted to go in a
//! line, and has the program read and write this connection.
//!
//! A program that waits until it is connected has filled the connection with bytes that say nothing, so that it is not writable. They are taken out once the relay has reached where
//! the program wanted to go; if it has not, the connection is broken off, and the program is told why when it asks (`results`).

use super::breakable::Breakable;
use super::connector::{ConnectError, FlowConnector};
use super::link::Link;
use super::names::RemoteNames;
pub use super::results::KEY_BYTES;
use super::results::{Attempt, ConnectResults, Number, is_same};
use super::status::{Listed, Listing, tell};
use crate::codes;
use crate::copy::copy_both;
use hoop_endpoint::{FlowError, FlowOptions, FlowStream, ended};
use hoop_http::Lines;
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::Permissions;
use std::future::pending;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The longest destination: an IPv6 address with its zone, and a port.
const LINE_MAX: usize = 128;

/// The most filler bytes that the library may announce. A socket's buffer (`net.core.wmem_max`) is rarely larger.
const FILLED_MAX: usize = 4 << 20;

/// What is behind the server's path where attempts to connect are asked for.
const ASKED: &str = ".asked";

/// What is behind the server's path where it is asked what is carried. As long as the other, so that a path has room for either.
pub const STATUS: &str = ".state";

/// The library says it at once.
const LINE_TIME: Duration = Duration::from_secs(5);

/// Connections at once: as many descriptors as a program has by default. More wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;

/// What is delivered sooner than this once the program has ended is not spoken of.
const UNDELIVERED_AFTER: Duration = Duration::from_secs(2);

/// How long a program that has ended is waited for whose relay was never reached. Where it was reached once, the network comes back.
pub const REACH_MAX: Duration = Duration::from_secs(60);

/// What somebody who started a program is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A connection is none, in words. Each is told once.
    Refused(String),
    /// The program has ended, and so many of its connections are still to be delivered, or are held by programs that it began.
    Undelivered(usize),
    /// So many were given up after the program had ended: the relay was not reached.
    GivenUp(usize),
}

/// Takes connections of a program on a socket of this machine.
#[derive(Debug)]
pub struct PreloadServer {
    listener: UnixListener,
    /// How attempts to connect have ended is asked here.
    asked: UnixListener,
    /// What is carried is asked here, and told behind a title.
    status: Option<(UnixListener, String)>,
    options: FlowOptions,
    reach_max: Duration,
    give_up_after: Option<Duration>,
    path: PathBuf,
    key: Option<String>,
    listing: Arc<Listing>,
}

impl PreloadServer {
    /// Listens at `path`, and for questions about attempts to connect at the same path with `.asked` behind it; with these options for each flow.
    ///
    /// # Errors
    /// If the socket cannot be had.
    pub fn bind(path: &Path, options: FlowOptions) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        Ok(Self {
            listener,
            asked: UnixListener::bind(hoop_files::beside(path, ASKED))?,
            status: None,
            options,
            reach_max: REACH_MAX,
            give_up_after: None,
            path: path.into(),
            key: None,
            listing: Arc::default(),
        })
    }

    /// The sockets of a server at `path`, besides that of its [status](Self::tell_status): what is left of one that was killed has to be removed before another listens there.
    pub fn sockets(path: &Path) -> [PathBuf; 2] {
        [path.into(), hoop_files::beside(path, ASKED)]
    }

    /// Waits for so long for a relay that was never reached, once the program has ended, instead of [`REACH_MAX`].
    #[must_use]
    pub fn reach_within(self, reach_max: Duration) -> Self {
        Self { reach_max, ..self }
    }

    /// Serves other users of this machine, too, if they say this key, of [`KEY_BYTES`] bytes: those that programs of root's become. The sockets' folder has to let them in.
    ///
    /// # Errors
    /// If the sockets' permissions cannot be changed.
    pub fn serve_others(self, key: String) -> io::Result<Self> {
        for socket in Self::sockets(&self.path) {
            std::fs::set_permissions(socket, Permissions::from_mode(0o666))?;
        }
        Ok(Self { key: Some(key), ..self })
    }

    /// Tells the user that this runs as what is carried, behind this title, at the server's path with [`STATUS`] behind it.
    ///
    /// # Errors
    /// If the socket cannot be had.
    pub fn tell_status(self, title: String) -> io::Result<Self> {
        let path = hoop_files::beside(&self.path, STATUS);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(Self { status: Some((listener, title)), ..self })
    }

    /// Lists what is carried there, beside what others list; otherwise in a listing of its own.
    #[must_use]
    pub fn list_in(self, listing: Arc<Listing>) -> Self {
        Self { listing, ..self }
    }

    /// Gives up each connection for which there has been no relay for so long; otherwise it waits.
    #[must_use]
    pub fn give_up_after(self, patience: Option<Duration>) -> Self {
        Self { give_up_after: patience, ..self }
    }

    /// Carries what comes until `ended`, and then until what was written is delivered, or given up because the relay was never reached. Says meanwhile what there is to be known.
    pub async fn run(
        self,
        link: &Link,
        ended: impl Future<Output = ()>,
        notify: impl Fn(Notice) + Send + Sync + 'static,
    ) {
        let (mut connections, mut ended) = (JoinSet::new(), pin!(ended));
        let (results, listing, lines) = (Arc::new(ConnectResults::default()), self.listing, Lines::new());
        let status = async {
            match self.status {
                Some((asked, title)) => tell(asked, &title, link, &listing).await,
                None => pending().await,
            }
        };
        let names = Arc::<RemoteNames>::default();
        let answers = results.clone().serve(self.asked, self.key.clone(), names.clone());
        // Both go on for ever.
        let mut answering = pin!(async { tokio::join!(answers, status) });
        let notify = Arc::new(notify);
        let tell = notify.clone();
        let carrying = Arc::new(Carrying {
            connector: FlowConnector::new(link, self.options, self.give_up_after, move |words| {
                tell(Notice::Refused(words));
            }),
            results,
            names,
            listing: listing.clone(),
            key: self.key,
            lines: Lines::new(),
            has_ended: AtomicBool::new(false),
            given_up: AtomicUsize::new(0),
        });
        let carry = |connection| carry(connection, carrying.clone());
        loop {
            tokio::select! {
                () = &mut ended => break,
                _ = &mut answering => {}
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((connection, _)) => {
                        connections.spawn(carry(connection));
                    }
                    Err(error) => {
                        lines.warn("cannot accept a connection", &error);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        carrying.has_ended.store(true, Ordering::Relaxed);
        // Those that the program's last act made are in the listener's queue.
        while let Ok(Ok((connection, _))) = timeout(Duration::ZERO, self.listener.accept()).await {
            connections.spawn(carry(connection));
        }
        let delivered = tokio::select! {
            delivered = deliver(&mut connections, link, self.reach_max, &*notify) => delivered,
            // What the program began may ask, too.
            _ = answering => return,
        };
        if !delivered {
            notify(Notice::GivenUp(connections.len()));
            link.device().reset_all(ended::GIVEN_UP);
        }
        match carrying.given_up.load(Ordering::Relaxed) {
            0 => {}
            count => notify(Notice::GivenUp(count)),
        }
        link.leave().await;
    }
}

/// Waits until all connections are over; not if the relay is never reached.
async fn deliver(connections: &mut JoinSet<()>, link: &Link, reach_max: Duration, notify: &impl Fn(Notice)) -> bool {
    let (mut speak, mut give_up) = (pin!(sleep(UNDELIVERED_AFTER)), pin!(sleep(reach_max)));
    let (mut is_told, mut is_patient) = (false, false);
    while !connections.is_empty() {
        tokio::select! {
            _ = connections.join_next() => {}
            () = &mut speak, if !is_told => {
                is_told = true;
                notify(Notice::Undelivered(connections.len()));
            }
            () = &mut give_up, if !is_patient => match link.was_reached() {
                true => is_patient = true,
                false => return false,
            },
        }
    }
    true
}

/// What the library says first.
#[derive(PartialEq, Eq, Debug)]
struct ConnectRequest {
    destination: String,
    /// None: the program was told at once that it is connected.
    awaits: Option<Awaits>,
    /// What another user has to say.
    key: Option<String>,
}

/// The program waits until it is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Awaits {
    /// So many bytes follow which say nothing: until they are taken out the program's socket is not writable.
    filled: usize,
    number: Number,
}

impl ConnectRequest {
    /// `HOST:PORT`, or `HOST:PORT FILLED NUMBER`; and the key behind it, where there is one.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let (destination, awaits, key) = match words[..] {
            [destination] => (destination, None, None),
            [destination, key] => (destination, None, Some(key)),
            [destination, filled, number] => (destination, Some((filled, number)), None),
            [destination, filled, number, key] => (destination, Some((filled, number)), Some(key)),
            _ => return None,
        };
        let awaits = match awaits {
            None => None,
            Some((filled, digits)) => {
                let mut number = Number::default();
                hex::decode_to_slice(digits, &mut number).ok()?;
                Some(Awaits { filled: filled.parse().ok().filter(|filled| *filled <= FILLED_MAX)?, number })
            }
        };
        Some(Self { destination: destination.to_owned(), awaits, key: key.map(str::to_owned) })
    }
}

/// What all connections of a program share.
struct Carrying {
    connector: FlowConnector,
    results: Arc<ConnectResults>,
    /// What the addresses stand for that programs got instead of their names' own.
    names: Arc<RemoteNames>,
    listing: Arc<Listing>,
    /// What other users have to say.
    key: Option<String>,
    /// Lines that say that there is no descriptor.
    lines: Lines,
    /// The program has ended.
    has_ended: AtomicBool,
    /// Connections that were given up since then.
    given_up: AtomicUsize,
}

impl Carrying {
    /// Whether another user is a program's.
    fn knows(&self, asked: &ConnectRequest) -> bool {
        matches!((&self.key, &asked.key), (Some(key), Some(said)) if is_same(key.as_bytes(), said.as_bytes()))
    }

    /// One more connection is given up; after the program's end it counts.
    fn gives_up(&self) {
        if self.has_ended.load(Ordering::Relaxed) {
            self.given_up.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the relay has reached where the program wants to go. None: it has not, and the program knows.
    async fn reach(
        &self,
        connection: &mut Breakable,
        destination: &str,
        awaits: Awaits,
        listed: &Listed,
    ) -> Option<(FlowStream, Attempt)> {
        let attempt = Attempt::begin(self.results.clone(), awaits.number);
        let watch = connection.watch().inspect_err(|error| self.lines.warn("no descriptor", error)).ok()?;
        let connected = tokio::select! {
            connected = self.connector.connect(destination) => connected,
            _ = watch.closed() => return None,
        };
        let flow = match connected {
            Ok(flow) => flow,
            Err(ConnectError::NoFlow(_)) => return None,
            Err(error) => {
                attempt.failed(errno(error));
                if error == ConnectError::GivenUp {
                    self.gives_up();
                }
                return None;
            }
        };
        attempt.made();
        listed.made(flow.meter(), flow.position());
        if connection.drain(awaits.filled).await.is_err() {
            flow.reset(ended::GIVEN_UP);
            return None;
        }
        Some((flow, attempt))
    }
}

/// What `connect` says where the relay makes no connection. For who does not want to take the device there it is as if no network led there: programs then try their next address, and do not try this one
/// again as they might after `EACCES`.
fn errno(error: ConnectError) -> Errno {
    let error = match error {
        ConnectError::GivenUp => return Errno::TIMEDOUT,
        ConnectError::Protocol => return Errno::PROTO,
        ConnectError::Refused(None) | ConnectError::NoFlow(_) => return Errno::NETDOWN,
        ConnectError::Refused(Some(error)) => error,
    };
    match error {
        FlowError::Ended(codes::REFUSED | codes::UNREACHABLE) => Errno::CONNREFUSED,
        FlowError::Ended(codes::TIMED_OUT | ended::EXPIRED) => Errno::TIMEDOUT,
        FlowError::Ended(codes::NO_HOST | codes::UNKNOWN_NAME) => Errno::HOSTUNREACH,
        FlowError::Ended(codes::NO_NETWORK | codes::FORBIDDEN | codes::REVOKED) => Errno::NETUNREACH,
        // As where no port of the machine's own is free.
        FlowError::Ended(codes::TOO_MANY) => Errno::ADDRNOTAVAIL,
        FlowError::Refused(_) => Errno::NETUNREACH,
        FlowError::Ended(_) | FlowError::Reset(_) => Errno::CONNRESET,
        FlowError::Gone => Errno::NETDOWN,
    }
}

async fn carry(connection: UnixStream, carrying: Arc<Carrying>) {
    let is_own = connection.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw());
    let Ok(Ok((mut connection, line))) = timeout(LINE_TIME, Breakable::after_line(connection, LINE_MAX)).await else {
        return tracing::debug!("a program said no destination");
    };
    let Some(ConnectRequest { destination, awaits, .. }) =
        ConnectRequest::parse(&line).filter(|asked| is_own || carrying.knows(asked))
    else {
        return tracing::debug!("a program said what is no destination");
    };
    let destination = carrying.names.destination(&destination);
    let listed = carrying.listing.add(&destination);
    let flow = match awaits {
        Some(awaits) => {
            let reached = carrying.reach(&mut connection, &destination, awaits, &listed).await;
            reached.map(|(flow, made)| (flow, Some(made)))
        }
        None => {
            let opened = carrying.connector.open(&destination).ok();
            opened.map(|flow| (flow, None)).inspect(|(flow, _)| listed.made(flow.meter(), 0))
        }
    };
    let (Some((mut flow, attempt)), begun) = (flow, Instant::now()) else { return };
    let mut is_copied = false;
    let carried = async {
        copy_both(&mut connection, &mut flow).await?;
        is_copied = true;
        // What the program wrote before it left is still to arrive.
        flow.finished().await
    };
    let ended = tokio::select! {
        ended = carried => Some(ended),
        () = carrying.connector.is_in_vain(begun) => None,
    };
    let Some(ended) = ended else {
        carrying.gives_up();
        attempt.inspect(|attempt| attempt.failed(Errno::TIMEDOUT));
        return flow.reset(ended::GIVEN_UP);
    };
    // Without an end of its own the program reads ECONNRESET: what it has is not all.
    let Err(error) = ended else { return connection.end() };
    tracing::debug!(%error, %destination, "a carried connection broke off");
    // The program may have been the first to leave it; the flow knows why it is over.
    let over = FlowError::of(&error).or_else(|| flow.status().borrow().over);
    if let Some(error) = over {
        let stats = flow.stats();
        carrying.connector.say_refused(&destination, error, stats.acknowledged > 0 || stats.read > 0);
    }
    if !is_copied {
        // Neither end has more to do with it, whatever was written.
        flow.reset(ended::GIVEN_UP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_destination_alone_or_with_what_the_program_waits_by() {
        let early = |key: Option<&str>| ConnectRequest {
            destination: "10.9.1.1:80".into(),
            awaits: None,
            key: key.map(str::to_owned),
        };
        assert_eq!(ConnectRequest::parse("10.9.1.1:80"), Some(early(None)));
        assert_eq!(ConnectRequest::parse("10.9.1.1:80 key"), Some(early(Some("key"))));
        let awaits = Some(Awaits { filled: 53_250, number: [1, 2, 3, 4, 5, 6, 7, 0xff] });
        let line = "[2001:db8::1]:443 53250 01020304050607ff";
        let asked = ConnectRequest { destination: "[2001:db8::1]:443".into(), awaits, key: None };
        assert_eq!(ConnectRequest::parse(line), Some(asked));
        assert_eq!(ConnectRequest::parse(&format!("{line} key")).unwrap().key.unwrap(), "key");
        for wrong in
            ["a:1 2 01", "a:1 -2 01020304050607ff", "a:1 99999999999 01020304050607ff", "a:1 2 01020304050607ff x y"]
        {
            assert_eq!(ConnectRequest::parse(wrong), None, "{wrong}");
        }
    }
}
