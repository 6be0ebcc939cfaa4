//! Beside a program: takes its TCP connections and opens a flow for each ([`Agent`]).
//!
//! The program's side is a library that is loaded into it (`crates/hoop/preload/preload.c`): instead of connecting a socket it connects here, says where it wanted to go in a
//! line, and has the program read and write this connection.

use crate::link::Link;
use crate::relay::TCP;
use hoop_endpoint::{FlowOptions, ended};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

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

/// What a connection is copied through, each way.
const COPY_BYTES: usize = 64 * 1024;

/// Takes connections of a program on a socket of this machine.
#[derive(Debug)]
pub struct Agent {
    listener: UnixListener,
    options: FlowOptions,
}

impl Agent {
    /// Listens at `path`, with these options for each flow.
    ///
    /// # Errors
    /// If the socket cannot be had.
    pub fn bind(path: &Path, options: FlowOptions) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(path)?, options })
    }

    /// Carries what comes until `ended`, and then until what was written is delivered.
    pub async fn run(self, link: &Link, ended: impl Future<Output = ()>) {
        let (mut connections, mut ended) = (JoinSet::new(), pin!(ended));
        loop {
            tokio::select! {
                () = &mut ended => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((connection, _)) => {
                        connections.spawn(carry(connection, link.device().clone(), self.options.clone()));
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
            connections.spawn(carry(connection, link.device().clone(), self.options.clone()));
        }
        while connections.join_next().await.is_some() {}
        leave(link).await;
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

async fn carry(mut connection: UnixStream, device: hoop_endpoint::Device, options: FlowOptions) {
    let destination = match timeout(LINE_TIME, line(&mut connection)).await {
        Ok(Ok(destination)) => destination,
        _ => return tracing::debug!("a program said no destination"),
    };
    let mut flow = match device.open(&format!("{TCP}{destination}"), options) {
        Ok(flow) => flow,
        Err(error) => return tracing::warn!(%error, destination, "no flow"),
    };
    match tokio::io::copy_bidirectional_with_sizes(&mut connection, &mut flow, COPY_BYTES, COPY_BYTES).await {
        // What the program wrote before it left is still to arrive.
        Ok(_) => drop(flow.finished().await),
        Err(error) => {
            tracing::debug!(%error, destination, "a carried connection broke off");
            // Neither end has more to do with it, whatever was written.
            flow.reset(ended::GIVEN_UP);
        }
    }
}

/// The destination, up to the end of its line, and no octet more.
async fn line(connection: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        match connection.read_u8().await? {
            b'\n' => return String::from_utf8(line).map_err(io::Error::other),
            _ if line.len() == LINE_MAX => return Err(io::ErrorKind::InvalidData.into()),
            octet => line.push(octet),
        }
    }
}
