//! Beside a program: takes its TCP connections and opens a flow for each ([`Agent`]).
//!
//! The program's side is a library that is loaded into it (`crates/hoop/preload/preload.c`): instead of connecting a socket it connects here, says where it wanted to go in a
//! line, and has the program read and write this connection.

use crate::breakable::Breakable;
use crate::copy::copy_both;
use crate::link::Link;
use crate::relay::TCP;
use crate::trouble::{Said, refusal};
use hoop_endpoint::{FlowError, FlowOptions, ended};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The longest destination: an IPv6 address with its zone, and a port.
const LINE_MAX: usize = 128;

/// The library says it at once.
const LINE_TIME: Duration = Duration::from_secs(5);

/// Connections at once: as many descriptors as a program has by default. More wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;

/// How long the relay has to hear that connections have ended: without a network it finds that out by itself, much later.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether it has.
const LEAVE_TICK: Duration = Duration::from_millis(10);

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
    /// So many were given up: the relay was never reached.
    GivenUp(usize),
}

/// Takes connections of a program on a socket of this machine.
#[derive(Debug)]
pub struct Agent {
    listener: UnixListener,
    options: FlowOptions,
    reach_max: Duration,
}

impl Agent {
    /// Listens at `path`, with these options for each flow.
    ///
    /// # Errors
    /// If the socket cannot be had.
    pub fn bind(path: &Path, options: FlowOptions) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(path)?, options, reach_max: REACH_MAX })
    }

    /// Waits for so long for a relay that was never reached, once the program has ended, instead of [`REACH_MAX`].
    #[must_use]
    pub fn reach_within(self, reach_max: Duration) -> Self {
        Self { reach_max, ..self }
    }

    /// Carries what comes until `ended`, and then until what was written is delivered, or given up because the relay was never reached. Says meanwhile what there is to be known.
    pub async fn run(
        self,
        link: &Link,
        ended: impl Future<Output = ()>,
        tell: impl Fn(Notice) + Send + Sync + 'static,
    ) {
        let (mut connections, mut ended) = (JoinSet::new(), pin!(ended));
        let teller = Arc::new(Teller { tell: Box::new(tell), said: Mutex::default() });
        let carry = |connection| carry(connection, link.device().clone(), self.options.clone(), teller.clone());
        loop {
            tokio::select! {
                () = &mut ended => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((connection, _)) => {
                        connections.spawn(carry(connection));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        // Those that the program's last act made are in the listener's queue.
        while let Ok(Ok((connection, _))) = timeout(Duration::ZERO, self.listener.accept()).await {
            connections.spawn(carry(connection));
        }
        if !deliver(&mut connections, link, self.reach_max, &teller).await {
            (teller.tell)(Notice::GivenUp(connections.len()));
            link.device().reset_all(ended::GIVEN_UP);
        }
        leave(link).await;
    }
}

/// Waits until all connections are over; not if the relay is never reached.
async fn deliver(connections: &mut JoinSet<()>, link: &Link, reach_max: Duration, teller: &Teller) -> bool {
    let (mut speak, mut give_up) = (pin!(sleep(UNDELIVERED_AFTER)), pin!(sleep(reach_max)));
    let (mut is_told, mut is_patient) = (false, false);
    while !connections.is_empty() {
        tokio::select! {
            _ = connections.join_next() => {}
            () = &mut speak, if !is_told => {
                is_told = true;
                (teller.tell)(Notice::Undelivered(connections.len()));
            }
            () = &mut give_up, if !is_patient => match link.was_reached() {
                true => is_patient = true,
                false => return false,
            },
        }
    }
    true
}

/// Says each thing once.
struct Teller {
    tell: Box<dyn Fn(Notice) + Send + Sync>,
    said: Mutex<Said>,
}

impl Teller {
    fn refused(&self, destination: &str, error: FlowError, was_known: bool) {
        let Some(words) = refusal(destination, error, was_known) else { return };
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).is_news(&words) {
            (self.tell)(Notice::Refused(words));
        }
    }
}

/// Gives up what is under way, and tells the relay so that nothing is kept there.
pub async fn give_up(link: &Link) {
    link.device().reset_all(ended::GIVEN_UP);
    leave(link).await;
}

/// Waits until the relay knows what has ended, if it can be reached.
async fn leave(link: &Link) {
    let told = async {
        while link.device().flows() > 0 {
            tokio::time::sleep(LEAVE_TICK).await;
        }
    };
    let _ = timeout(LEAVE_MAX, told).await;
}

async fn carry(connection: UnixStream, device: hoop_endpoint::Device, options: FlowOptions, teller: Arc<Teller>) {
    let Ok(Ok((mut connection, destination))) = timeout(LINE_TIME, Breakable::after_line(connection, LINE_MAX)).await
    else {
        return tracing::debug!("a program said no destination");
    };
    let mut flow = match device.open(&format!("{TCP}{destination}"), options) {
        Ok(flow) => flow,
        Err(error) => return tracing::warn!(%error, destination, "no flow"),
    };
    let copied = copy_both(&mut connection, &mut flow).await;
    let is_copied = copied.is_ok();
    let ended = match copied {
        // What the program wrote before it left is still to arrive.
        Ok(_) => flow.finished().await,
        Err(error) => Err(error),
    };
    // Without an end of its own the program reads ECONNRESET: what it has is not all.
    let Err(error) = ended else { return connection.end() };
    tracing::debug!(%error, destination, "a carried connection broke off");
    // The program may have been the first to leave it; the flow knows why it is over.
    let over = FlowError::of(&error).or_else(|| flow.status().borrow().over);
    if let Some(error) = over {
        let stats = flow.stats();
        teller.refused(&destination, error, stats.acknowledged > 0 || stats.read > 0);
    }
    if !is_copied {
        // Neither end has more to do with it, whatever was written.
        flow.reset(ended::GIVEN_UP);
    }
}
